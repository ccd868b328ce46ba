package storetest

import (
	"context"
	"sync/atomic"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Nodes combines the stores of several nodes on one database into one store whose writing calls
// alternate between them: a cache of one node must not matter. Such a store must pass the suite,
// too.
func Nodes(first store.Store, others ...store.Store) store.Store {
	return &nodes{Store: first, all: append([]store.Store{first}, others...)}
}

type nodes struct {
	store.Store
	all  []store.Store
	turn atomic.Int32
}

func (n *nodes) next() store.Store { return n.all[int(n.turn.Add(1))%len(n.all)] }

// Renew waits until all nodes see the renewal: copies of the state are some milliseconds behind.
func (n *nodes) Renew(ctx context.Context, session job.ID, load store.Load) error {
	if err := n.Store.Renew(ctx, session, load); err != nil {
		return err
	}
	for _, other := range n.all[1:] {
		if _, err := other.Sessions(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *nodes) PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error) {
	return n.next().PutJobs(ctx, list)
}

func (n *nodes) DeleteJob(ctx context.Context, d store.DeleteJob) error {
	return n.next().DeleteJob(ctx, d)
}

func (n *nodes) RestoreJob(ctx context.Context, r store.RestoreJob) (*store.Job, error) {
	return n.next().RestoreJob(ctx, r)
}

func (n *nodes) PutDocument(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error) {
	return n.next().PutDocument(ctx, d, ifVersion, actor)
}

func (n *nodes) JobsNamed(ctx context.Context, names []string) ([]*store.Job, error) {
	return n.next().JobsNamed(ctx, names)
}

func (n *nodes) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	return n.next().JobsByUID(ctx, uids)
}

func (n *nodes) Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error) {
	return n.next().Cursors(ctx, uids)
}

func (n *nodes) Followers(ctx context.Context, upstream string, after job.ID, limit int) ([]*store.Job, bool, error) {
	return n.next().Followers(ctx, upstream, after, limit)
}

func (n *nodes) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	return n.next().Plan(ctx, session, items)
}

func (n *nodes) Trigger(ctx context.Context, items []store.TriggerItem) ([]store.TriggerOutcome, error) {
	return n.next().Trigger(ctx, items)
}

func (n *nodes) Place(ctx context.Context, placements []store.Placement) error {
	return n.next().Place(ctx, placements)
}

func (n *nodes) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	return n.next().Claim(ctx, session, attempts)
}

func (n *nodes) Release(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	return n.next().Release(ctx, session, attempts)
}

func (n *nodes) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	return n.next().Finish(ctx, session, results)
}

func (n *nodes) Cancel(ctx context.Context, run job.ID, by, reason string) (store.Run, error) {
	return n.next().Cancel(ctx, run, by, reason)
}

func (n *nodes) Reap(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	return n.next().Reap(ctx, session, attempts)
}

func (n *nodes) Tidy(ctx context.Context) (more bool, err error) {
	// One node's position in the work is unknown to the others.
	for _, s := range n.all {
		left, err := s.Tidy(ctx)
		if err != nil {
			return false, err
		}
		more = more || left
	}
	return more, nil
}

func (n *nodes) PutConsumer(ctx context.Context, c store.Consumer) error {
	return n.next().PutConsumer(ctx, c)
}

func (n *nodes) DeleteConsumer(ctx context.Context, name string) error {
	return n.next().DeleteConsumer(ctx, name)
}

func (n *nodes) Ended(ctx context.Context, consumer string, after store.FeedRef, limit int) ([]store.FeedEntry, error) {
	return n.next().Ended(ctx, consumer, after, limit)
}

func (n *nodes) Taken(ctx context.Context, consumer string, refs []store.FeedRef) error {
	return n.next().Taken(ctx, consumer, refs)
}

// Events returns the events of one node, which makes all later calls.
func (n *nodes) Events(ctx context.Context) <-chan []store.Event {
	n.all = n.all[:1]
	return n.Store.Events(ctx)
}
