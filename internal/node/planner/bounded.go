package planner

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// bounded ends calls before the runs planned ahead are used up: a call on a half-open connection hangs
// for longer, while the calls beside it succeed, so that no other node takes over.
type boundedStore struct{ Store }

// slack is how much earlier: another call must be made.
const slack = 3 * time.Second

func (b boundedStore) context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(b.LookAhead()-slack, slack))
}

func (b boundedStore) JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error) {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Store.JobsChanged(ctx, partitions, since, limit)
}

func (b boundedStore) Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error) {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Store.Cursors(ctx, uids)
}

func (b boundedStore) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Store.JobsByUID(ctx, uids)
}

func (b boundedStore) Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error) {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Store.Documents(ctx, kinds...)
}

func (b boundedStore) Registrations(ctx context.Context, kind string) ([]store.Registration, error) {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Store.Registrations(ctx, kind)
}

func (b boundedStore) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Store.Plan(ctx, session, items)
}

func (b boundedStore) Backlog(ctx context.Context, limit int) (map[job.ID]int, error) {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Store.Backlog(ctx, limit)
}

func (b boundedStore) Unplaced(ctx context.Context, after store.RunRef, limit int) ([]store.Run, error) {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Store.Unplaced(ctx, after, limit)
}

func (b boundedStore) Place(ctx context.Context, placements []store.Placement) error {
	ctx, cancel := b.context(ctx)
	defer cancel()
	return b.Store.Place(ctx, placements)
}
