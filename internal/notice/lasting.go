package notice

import (
	"slices"

	"github.com/belfry-cron/belfry/job"
)

// Lasting is what lasts at a moment, but for failures of jobs.
type Lasting struct {
	Events []Event
	// Whole are the kinds of which Events has all there is.
	Whole []job.Notice
	// Live are the nodes that are not silent.
	Live map[string]bool
}

// Over reports whether a problem that is not among the events is over. A silent node that the
// store has forgotten is not back: it is waited for until a person has seen that.
func (l *Lasting) Over(e *Event, acked bool) bool {
	if e.Kind == job.NoticeNodeLost {
		return l.Live[e.Node] || acked && slices.Contains(l.Whole, e.Kind)
	}
	return slices.Contains(l.Whole, e.Kind)
}
