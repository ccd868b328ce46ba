package engine

import (
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// AddEnds adds the ends in the decisions.
func (c *Changes) AddEnds(e *store.Ends) {
	e.Records = append(e.Records, c.Records...)
	for _, a := range c.Audit {
		if a.Actor == System && a.Action == "job.pause" {
			e.Paused = append(e.Paused, a)
		}
	}
}

// Events returns the changes of the decisions, for followers of the store: first the user's
// actions, then the ends, then the runs with a changed state, in the order of the
// decisions. It copies runs, since the next batch may change them.
func (b *Batch) Events(c *Changes) []store.Event {
	var list []store.Event
	for i := range c.Audit {
		list = append(list, store.Event{Kind: c.Audit[i].Action, Time: b.now, Audit: &c.Audit[i]})
	}
	for _, records := range [...][]*store.Record{c.Records, c.Replaced} {
		for _, r := range records {
			if r.EndsRun() {
				record := *r
				list = append(list, store.Event{Kind: store.RunEvent(job.StateDone), Time: b.now, Record: &record})
			}
		}
	}
	for _, m := range b.order {
		if !m.removed && m.State != m.was {
			run := m.Run
			list = append(list, store.Event{Kind: store.RunEvent(m.State), Time: b.now, Run: &run})
		}
	}
	return list
}
