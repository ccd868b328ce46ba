package sqldb

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

func TestDuesKnowWhatIsClaimedAndForgetWhatHasEnded(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
	run := func(n byte, state job.RunState) *store.Run {
		return &store.Run{Run: job.Run{ID: job.ID{n}, State: state, Due: at(int64(n))}}
	}
	ids := func(list ...byte) (all [][]byte) {
		for _, n := range list {
			all = append(all, idOf(job.ID{n}))
		}
		return all
	}
	var d dues
	d.ready([]store.ReadyRun{{RunRef: store.RunRef{Due: at(1), ID: job.ID{1}}}, {RunRef: store.RunRef{Due: at(9), ID: job.ID{2}}}})
	d.wrote(&engine.Changes{Made: []*store.Run{run(3, job.StateRunning), run(4, job.StateReady)}, Saved: []*store.Run{run(5, job.StateRunning)}})
	if last, known := d.latest(ids(1, 2, 3, 5)); !known || last != columns.Nanos(at(9)) {
		t.Errorf("the latest is due at %d, known: %t", last, known)
	}
	if _, known := d.latest(ids(1, 4)); known {
		t.Error("a planned run that no one is about to claim is remembered")
	}
	if d.wrote(&engine.Changes{Removed: []*store.Run{run(2, job.StateRunning)}}); len(d.at) != 3 {
		t.Errorf("%d runs are remembered, want 3", len(d.at))
	}
	for n := range uint32(2 * duesMax) {
		r := &store.Run{Run: job.Run{State: job.StateRunning}}
		binary.BigEndian.PutUint32(r.ID[:], n)
		d.wrote(&engine.Changes{Saved: []*store.Run{r}})
	}
	if len(d.at) > duesMax+1 {
		t.Errorf("%d runs are remembered", len(d.at))
	}
}
