package joined

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// keeps has the retention settings of jobs, for a history that has no jobs. It follows the feed of
// changed jobs.
type keeps struct {
	mu      sync.Mutex
	jobs    *store.JobKeeps // replaced, never changed
	since   int64
	looked  time.Time
	control store.Control
}

// deletionsMissed is the time without a poll after which all jobs are read again: a tombstone may
// have been removed.
const deletionsMissed = store.TombstoneLife / 2

// now returns the current settings of jobs.
func (k *keeps) now(ctx context.Context, now time.Time) (*store.JobKeeps, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	jobKeeps, since, changed := store.JobKeeps{}, int64(0), true
	if k.jobs != nil && now.Sub(k.looked) < deletionsMissed {
		jobKeeps, since, changed = *k.jobs, k.since, false
	}
	for {
		list, next, err := k.control.JobsChanged(ctx, store.AllPartitions, since, store.MaxBatch)
		if err != nil {
			return nil, fmt.Errorf("read how long jobs keep their history: %w", err)
		}
		if len(list) == 0 {
			break
		}
		since = next
		fresh, err := k.saidBy(ctx, list)
		if err != nil {
			return nil, err
		}
		for i := range list {
			uid := list[i].UID
			was, had := jobKeeps[uid]
			is, has := fresh[uid]
			if had == has && was == is {
				continue
			}
			if !changed { // a concurrent round of Expire may read the old one
				copied := make(store.JobKeeps, len(jobKeeps)+1)
				for uid, keep := range jobKeeps {
					copied[uid] = keep
				}
				jobKeeps, changed = copied, true
			}
			if delete(jobKeeps, uid); has {
				jobKeeps[uid] = is
			}
		}
	}
	if changed {
		k.jobs = &jobKeeps
	}
	k.since, k.looked = since, now
	return k.jobs, nil
}

// saidBy returns the settings of changed jobs.
func (k *keeps) saidBy(ctx context.Context, list []store.PlannedJob) (store.JobKeeps, error) {
	uids := make([]job.ID, len(list))
	for i := range list {
		uids[i] = list[i].UID
	}
	jobs, err := k.control.JobsByUID(ctx, uids)
	if err != nil {
		return nil, fmt.Errorf("read how long jobs keep their history: %w", err)
	}
	jobKeeps := store.JobKeeps{}
	for i, j := range jobs {
		if j != nil && !j.Deleted && j.Filled.Policy.Keep != nil {
			jobKeeps[uids[i]] = *j.Filled.Policy.Keep
		}
	}
	return jobKeeps, nil
}
