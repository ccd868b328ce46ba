package memory

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// Control is a store in memory that keeps no history: what ends is in its feed, for
// store.ConsumerHistory. It is safe for concurrent use.
type Control struct {
	*ledger.Control
	*outbox
}

// NewControl returns an empty store that keeps no history.
func NewControl(opt Options) *Control {
	b := newBackend(&opt)
	b.feed.consumers[store.ConsumerHistory] = &consumer{Consumer: store.Consumer{Name: store.ConsumerHistory}}
	b.outbox = &outbox{backend: b, taken: map[job.ID]time.Time{}}
	return &Control{ledger.NewControl(b, optionsOf(opt)), b.outbox}
}

// outbox is what a store without history remembers of history.
type outbox struct {
	backend *backend
	history store.HistoryID
	// taken are runs of which a record was taken, and when.
	taken map[job.ID]time.Time
}

// takenLife is how long the records of runs are remembered that were taken: decisions about
// repeated results then need no history.
const takenLife = 5 * time.Minute

// forget removes the records of runs that were taken long ago.
func (o *outbox) forget(now time.Time) {
	entries := o.backend.feed.consumers[store.ConsumerHistory].entries
	for run, at := range o.taken {
		held := slices.ContainsFunc(entries, func(e entry) bool { return e.Record.Run.ID == run })
		if now.Sub(at) > takenLife && !held && o.backend.runs.byID[run] == nil {
			delete(o.taken, run)
			delete(o.backend.records, run)
		}
	}
}

// Waiting implements store.Outbox.
func (o *outbox) Waiting(ctx context.Context, run job.ID, limit int) ([]store.Record, error) {
	return locked(ctx, o.backend, func() (list []store.Record) {
		for _, e := range slices.Backward(o.backend.feed.consumers[store.ConsumerHistory].entries) {
			same := func(r store.Record) bool {
				return r.Run.ID == e.Record.Run.ID && r.Attempt.Number == e.Record.Attempt.Number
			}
			if len(list) < limit && (run.IsZero() || e.Record.Run.ID == run) && !slices.ContainsFunc(list, same) {
				list = append(list, e.Record)
			}
		}
		return list
	})
}

// UseHistory implements store.Outbox.
func (o *outbox) UseHistory(ctx context.Context, id store.HistoryID) error {
	unlock, err := o.backend.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if o.history == 0 {
		o.history = id
	}
	if o.history != id {
		return store.ErrConflict
	}
	return nil
}
