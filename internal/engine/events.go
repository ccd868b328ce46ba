package engine

import (
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// AddEnds adds what the decisions have ended.
func (c *Changes) AddEnds(e *store.Ends) {
	e.Records = append(e.Records, c.Records...)
	for _, a := range c.Audit {
		if a.Actor == System && a.Action == "job.pause" {
			e.Paused = append(e.Paused, a)
		}
	}
}

// Events returns what the decisions have changed, for followers of the store:
// first what a user did, then what has ended, then the runs that have another
// state than before, in the order of the decisions. It takes copies, since the
// runs of a batch may change in the next one.
func (b *Batch) Events(c *Changes) []store.Event {
	var list []store.Event
	for i := range c.Audit {
		list = append(list, store.Event{Kind: c.Audit[i].Action, Time: b.now, Audit: &c.Audit[i]})
	}
	for _, records := range [...][]*store.Record{c.Records, c.Replaced} {
		for _, r := range records {
			if r.Final || isStep(&r.Run) && r.Run.State == job.StateDone {
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
