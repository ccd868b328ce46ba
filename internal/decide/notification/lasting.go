package notification

import (
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
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

// LateAfter is how long a run may be due before it counts as late: a busy node or a takeover takes some
// seconds.
const LateAfter = 10 * time.Second

// LateStart returns the event of a late start, nil if the run was on time. e describes the run.
func LateStart(e Event, due, began time.Time) *Event {
	if e.Late = began.Sub(due); began.IsZero() || due.IsZero() || e.Late < LateAfter {
		return nil
	}
	e.Kind, e.Lasting, e.Count, e.InARow, e.Cause = job.NoticeLateStart, false, 1, 0, ""
	e.Text = reason.BeganLate.Of(e.Late.Round(time.Second))
	return &e
}
