package sqldb

import (
	"sync"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// dues is when runs are due that this process is likely to claim or to finish: it says how far the
// slots of their jobs must be read. A run whose due time has moved beyond that is read by its id.
type dues struct {
	mu sync.Mutex
	at map[job.ID]int64
}

// duesMax bounds how many are remembered, at about 50 bytes each: more than a node claims in a second.
const duesMax = 50_000

// room makes room for more runs. Removed ones are read with the slots.
func (d *dues) room() {
	if d.at == nil || len(d.at) > duesMax {
		d.at = map[job.ID]int64{}
	}
}

// ready remembers runs that are about to be claimed.
func (d *dues) ready(list []store.ReadyRun) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room()
	for i := range list {
		d.at[list[i].ID] = columns.Nanos(list[i].Due)
	}
}

// wrote remembers what a step has started, and forgets what has ended.
func (d *dues) wrote(c *engine.Changes) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room()
	for _, list := range [...][]*store.Run{c.Saved, c.Made} {
		for _, r := range list {
			if r.State == job.StateRunning {
				d.at[r.ID] = columns.Nanos(r.Due)
			}
		}
	}
	for _, r := range c.Removed {
		delete(d.at, r.ID)
	}
}

// latest returns the latest due time of some runs, and whether all are known.
func (d *dues) latest(ids [][]byte) (due int64, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		at, ok := d.at[job.ID(id)]
		if !ok {
			return 0, false
		}
		due = max(due, at)
	}
	return due, true
}
