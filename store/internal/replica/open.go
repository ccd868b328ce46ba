package replica

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// Store is a store with its history. It is safe for concurrent use.
type Store struct {
	*ledger.Store
	refilled func() // waits for the background update of jobs
}

// Open returns the store of a driver when its state is read. It closes the driver if it
// fails.
func Open(ctx context.Context, d Driver, o Options) (*Store, error) {
	b, err := start(ctx, d, o)
	if err != nil {
		return nil, err
	}
	s := ledger.New(b, o.ledger())
	refilled, err := b.refill(ctx, s.Control)
	if err != nil {
		return nil, err
	}
	return &Store{s, refilled}, nil
}

// Close ends the connections.
func (s *Store) Close() error {
	s.refilled()
	return s.Store.Close()
}

// Control is a store without history. It is safe for concurrent use.
type Control struct {
	*ledger.Control
	b        *Backend
	refilled func()
}

// OpenControl is [Open] for a store whose history is elsewhere: see package joined.
func OpenControl(ctx context.Context, d Driver, o Options) (*Control, error) {
	o.apart = true
	b, err := start(ctx, d, o)
	if err != nil {
		return nil, err
	}
	c := ledger.NewControl(b, o.ledger())
	refilled, err := b.refill(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Control{c, b, refilled}, nil
}

// Close ends the connections.
func (c *Control) Close() error {
	c.refilled()
	return c.Control.Close()
}

// refill applies the defaults of the options to the jobs, and closes the backend if that fails.
func (b *Backend) refill(ctx context.Context, s *ledger.Control) (wait func(), err error) {
	if b.opt.KeepDefaults {
		return func() {}, nil
	}
	if wait, err = b.ApplyDefaults(ctx, s, b.opt.Refill); err != nil {
		_ = b.Close()
	}
	return wait, err
}

func (o *Options) ledger() ledger.Options {
	newID := o.NewID
	if newID == nil {
		newID = func() job.ID {
			id, _ := job.NewID(time.Now(), rand.Reader) // crypto/rand does not fail
			return id
		}
	}
	return ledger.Options{
		LookAhead: cmp.Or(o.LookAhead, store.LookAheadDefault), Defaults: o.Defaults, NewID: newID, Ended: o.Ended, Guard: o.Guard,
		PoolStep: poolStep,
	}
}
