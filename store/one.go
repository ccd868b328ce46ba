package store

import (
	"context"
	"fmt"

	"github.com/belfry-cron/belfry/job"
)

// PutOne creates or changes one job: see [Jobs.PutJobs].
func PutOne(ctx context.Context, s interface {
	PutJobs(ctx context.Context, list []PutJob) ([]*Job, error)
}, p PutJob) (*Job, error) {
	list, err := s.PutJobs(ctx, []PutJob{p})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// JobNamed returns the job with a name, or [ErrNotFound].
func JobNamed(ctx context.Context, s interface {
	JobsNamed(ctx context.Context, names []string) ([]*Job, error)
}, namespace, name string) (*Job, error) {
	return jobOf(ctx, s.JobsNamed, namespace+"/"+name)
}

// JobByUID returns the job with a uid, even a deleted one while its tombstone is kept, or
// [ErrNotFound].
func JobByUID(ctx context.Context, s interface {
	JobsByUID(ctx context.Context, uids []job.ID) ([]*Job, error)
}, uid job.ID) (*Job, error) {
	return jobOf(ctx, s.JobsByUID, uid)
}

func jobOf[K any](ctx context.Context, read func(context.Context, []K) ([]*Job, error), key K) (*Job, error) {
	list, err := read(ctx, []K{key})
	if err == nil && list[0] == nil {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("job %v: %w", key, err)
	}
	return list[0], nil
}

// ActiveRun returns a run that is planned or running, or [ErrNotFound].
func ActiveRun(ctx context.Context, s RunLister, run job.ID) (Run, error) {
	list, err := s.ListActive(ctx, ActiveQuery{Run: run, Limit: 1})
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Run{}, fmt.Errorf("run %s: %w", run, err)
	}
	return list[0], nil
}

// RunsOn returns the running runs of a session by the store's records.
func RunsOn(ctx context.Context, s RunLister, session job.ID) (all []Run, err error) {
	const page = 1000
	q := ActiveQuery{State: job.StateRunning, Sessions: []job.ID{session}, Limit: page}
	for {
		list, err := s.ListActive(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("running runs: %w", err)
		}
		if all = append(all, list...); len(list) < page {
			return all, nil
		}
		q.After = list[page-1].Ref()
	}
}

// RunLister is the part of a store that lists unfinished runs.
type RunLister interface {
	ListActive(ctx context.Context, q ActiveQuery) ([]Run, error)
}
