package job

import (
	"maps"
	"slices"
	"strings"
)

// Place selects the nodes that run a job.
type Place struct {
	Labels   map[string]string `json:"labels,omitzero" items:"64" doc:"The labels that a node must have, all of them. Default: any node."`
	Strategy Strategy          `json:"strategy,omitzero" doc:"How a matching node is chosen; with run.xxl, an executor. Default: any, the less loaded of two nodes, or a random executor."`
	Shards   int               `json:"shards,omitzero" min:"1" max:"1000" doc:"Splits each occurrence into this many runs, which know their index and the total."`
	Sticky   bool              `json:"sticky,omitzero" doc:"A run waits for its node; no other node takes it over when it is late."`
}

// Labels that servers give to workers without a store.
const (
	// LabelWorker is the name of the token of the worker.
	LabelWorker = "worker"
	// LabelWorkerNamespace is the namespace of the token, if it has one: the worker runs
	// only jobs of that namespace. Place.Labels always have it together with [LabelWorker].
	LabelWorkerNamespace = "worker-namespace"
)

// Nodes returns the place that selects nodes. If executors do the work, the strategy of the
// place selects executors, and any matching node may send the work.
func (j *Job) Nodes() Place {
	place := j.Place
	if j.Run.traits().isElsewhere {
		place = Place{Labels: place.Labels, Strategy: StrategyAny, Shards: place.Shards}
	}
	if place.Labels[LabelWorker] != "" {
		place.Labels = maps.Clone(place.Labels)
		place.Labels[LabelWorkerNamespace] = j.Namespace
	}
	return place
}

// SplitBy returns the group of executors that each get a run of their own for each
// occurrence, "" for none.
func (j *Job) SplitBy() string {
	if j.Place.Strategy != StrategyBroadcast {
		return ""
	}
	return j.Run.Group()
}

// Binds reports whether a run is bound to the node that it was placed on: sticky runs, and runs of
// a broadcast, since each node has one.
func (p *Place) Binds() bool { return p.Sticky || p.Strategy == StrategyBroadcast }

// AnyNode replaces the handler for work that starts nothing on the claiming node, a flow or a wait:
// a program with only handlers claims it too. No handler can have this name.
const AnyNode = ":any"

// Wants describes the requirements of a place and a handler, "" for no handler: "the
// labels disk=ssd, zone=a and the handler bake". It is empty if any node meets them.
func (p *Place) Wants(handler string) string {
	var wants []string
	if len(p.Labels) > 0 {
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
			if key == LabelWorkerNamespace {
				continue // most workers lack it
			}
			pairs = append(pairs, key+"="+p.Labels[key])
		}
		word := "the label "
		if len(pairs) > 1 {
			word = "the labels "
		}
		wants = append(wants, word+strings.Join(pairs, ", "))
	}
	cluster, isCluster := ClusterOf(handler)
	switch {
	case handler == AnyNode:
	case isCluster:
		wants = append(wants, "the cluster "+cluster+" in its configuration")
	case handler == XXLHandler:
		wants = append(wants, "xxl in its configuration")
	case handler == ContainerHandler:
		wants = append(wants, "a container engine")
	case handler != "":
		wants = append(wants, "the handler "+handler)
	}
	return strings.Join(wants, " and ")
}

// Strategy is the choice of a node among matching nodes.
type Strategy string

// The strategies for choosing a node.
const (
	StrategyAny                 Strategy = "any" // the less loaded of two random ones
	StrategyRoundRobin          Strategy = "round_robin"
	StrategyRandom              Strategy = "random"
	StrategyFirst               Strategy = "first"
	StrategyLast                Strategy = "last"
	StrategyHash                Strategy = "hash" // the same for all runs of a job
	StrategyLeastRecentlyUsed   Strategy = "least_recently_used"
	StrategyLeastFrequentlyUsed Strategy = "least_frequently_used"
	StrategyFirstIdle           Strategy = "first_idle" // the first executor that is not running the job
	StrategyBroadcast           Strategy = "broadcast"  // all nodes or executors, each with its own run
)

// Values returns all strategies.
func (Strategy) Values() []string {
	return texts(StrategyAny, StrategyRoundRobin, StrategyRandom, StrategyFirst, StrategyLast, StrategyHash,
		StrategyLeastRecentlyUsed, StrategyLeastFrequentlyUsed, StrategyFirstIdle, StrategyBroadcast)
}
