package service

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// recallStore is the part of a store that shows which claims were released.
type recallStore interface {
	ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error)
	Now(ctx context.Context) (time.Time, error)
}

const (
	// recallMax is how long a change waits for the release of claims: their nodes receive
	// the change within some milliseconds, or 20 ms if they poll.
	recallMax = 500 * time.Millisecond
	// recallEvery is the interval at which a change checks whether they were released.
	recallEvery = 5 * time.Millisecond
	// recallPage is the number of runs that one read returns.
	recallPage = 1000
)

// unreleased waits, at most recallMax, until nodes have released the claims of jobs that
// are not due and were made under a version of their job or an earlier one. It returns the
// other ones, and the moment at which they were not due.
func unreleased(ctx context.Context, s recallStore, jobs map[job.ID]int64) (at time.Time, rest []store.Run, err error) {
	if len(jobs) == 0 {
		return at, nil, nil
	}
	for deadline := time.Now().Add(recallMax); ; {
		if at, err = s.Now(ctx); err != nil {
			return at, nil, err
		}
		if rest, err = claimedAfter(ctx, s, jobs, at); err != nil || len(rest) == 0 || time.Now().After(deadline) {
			return at, rest, err
		}
		select {
		case <-ctx.Done():
			return at, nil, ctx.Err()
		case <-time.After(recallEvery):
		}
	}
}

// claimedAfter returns the claims that fall due after a moment. Steps continue with their
// flow, which has begun.
func claimedAfter(ctx context.Context, s recallStore, jobs map[job.ID]int64, at time.Time) (list []store.Run, err error) {
	q := store.ActiveQuery{State: job.StateRunning, After: store.RunRef{Due: at}, Limit: recallPage}
	if len(jobs) == 1 {
		for q.Job = range jobs {
		}
	}
	for {
		page, err := s.ListActive(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			if version, ok := jobs[r.JobUID]; ok && r.Version <= version && r.Due.After(at) && r.Kind != job.RunStep {
				list = append(list, r)
			}
		}
		if len(page) < recallPage {
			return list, nil
		}
		q.After = page[recallPage-1].Ref()
	}
}
