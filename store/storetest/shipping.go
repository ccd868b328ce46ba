package storetest

import (
	"context"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Joined is a store of two, as package joined makes it.
type Joined interface {
	store.Store
	Ship(ctx context.Context) (more bool, err error)
	Held(ctx context.Context) (store.ConsumerState, error)
}

// Shipping returns a joined store that ships before history is read: always, or only when more
// records wait than a read examines.
func Shipping(s Joined, always bool) store.Store { return &shipping{s, always} }

// shipping ships before history is read.
type shipping struct {
	Joined
	ships bool
}

func (s *shipping) ship(ctx context.Context) {
	state, _ := s.Held(ctx)
	for more := s.ships || state.Entries > 1000; more; {
		more, _ = s.Ship(ctx)
	}
}

func (s *shipping) Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error) {
	s.ship(ctx)
	return s.Joined.Attempts(ctx, q)
}

func (s *shipping) AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error) {
	s.ship(ctx)
	return s.Joined.AttemptsOf(ctx, run)
}

func (s *shipping) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	s.ship(ctx)
	return s.Joined.Finish(ctx, session, results)
}

func (s *shipping) Expire(ctx context.Context, keep store.Retention) (bool, error) {
	for more := true; more; { // waiting records are recent
		more, _ = s.Ship(ctx)
	}
	return s.Joined.Expire(ctx, keep)
}

func (s *shipping) Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error) {
	s.ship(ctx)
	return s.Joined.Aggregate(ctx, q)
}
