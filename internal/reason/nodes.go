package reason

import (
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// OutageIn returns the span of the outage of all nodes, or of the store, that a reason names.
func OutageIn(r job.Reason) (from, to time.Time, ok bool) {
	if NoNodeThere.Is(r) || StoreAway.Is(r) {
		from, errFrom := time.Parse(time.RFC3339, NoNodeThere.Arg(r, "from"))
		to, errTo := time.Parse(time.RFC3339, NoNodeThere.Arg(r, "to"))
		return from, to, errFrom == nil && errTo == nil
	}
	for name := range r.Args() {
		if inner := Inner(r, name); !inner.IsZero() {
			if from, to, ok = OutageIn(inner); ok {
				return from, to, true
			}
		}
	}
	return from, to, false
}

// Wants describes the requirements of a place and a handler, "" for no handler; none if any node
// meets them.
func Wants(place *job.Place, handler string) (wants job.Reason) {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(place.Labels)) {
		if key != job.LabelWorkerNamespace { // most workers lack it
			pairs = append(pairs, key+"="+place.Labels[key])
		}
	}
	if len(pairs) > 0 {
		wants = Labels.Of(pairs)
	}
	var program job.Reason
	cluster, isCluster := job.ClusterOf(handler)
	if isCluster {
		program = ClusterConfigured.Of(cluster)
	}
	switch handler {
	case "", job.AnyNode:
		return wants
	case job.XXLHandler:
		program = XXLConfigured.Of()
	case job.ContainerHandler:
		program = EngineWorking.Of()
	default:
		if !isCluster {
			program = Handler.Of(handler)
		}
	}
	if wants.IsZero() {
		return program
	}
	return And.Of(wants, program)
}
