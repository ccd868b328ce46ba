package reason

import (
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/job"
)

// Wants describes the requirements of a place and a handler, "" for no handler; none if any node
// meets them.
func Wants(place *job.Place, handler string) (wants job.Reason) {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(place.Labels)) {
		if key != job.LabelWorkerNamespace { // most workers have none
			pairs = append(pairs, key+"="+place.Labels[key])
		}
	}
	if len(pairs) > 0 {
		wants = Labels.Of(pairs)
	}
	var program job.Reason
	switch handler {
	case "", job.AnyNode:
		return wants
	case job.XXLHandler:
		program = XXLConfigured.Of()
	case job.ContainerHandler:
		program = EngineWorking.Of()
	default:
		program = Handler.Of(handler)
	}
	if wants.IsZero() {
		return program
	}
	return And.Of(wants, program)
}
