package notification

import (
	"slices"

	"github.com/belfry-cron/belfry/job"
)

// Lasting has the problems that last at a moment, except failures of jobs.
type Lasting struct {
	Events []Event
	// Whole are the kinds for which Events is complete.
	Whole []job.Notice
	// Live are the nodes that are not silent.
	Live map[string]bool
}

// Over reports whether a problem that is not among the events is over. A silent node that the
// store has forgotten is not back: its problem lasts until a person has acknowledged it.
func (l *Lasting) Over(e *Event, acked bool) bool {
	if e.Kind == job.NoticeNodeLost {
		return l.Live[e.Node] || acked && slices.Contains(l.Whole, e.Kind)
	}
	return slices.Contains(l.Whole, e.Kind)
}
