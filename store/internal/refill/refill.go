// Package refill rewrites the jobs of a store that is opened with new defaults: a bounded part
// while its server waits, and the rest in the background. The store itself rewrites each job.
package refill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/store"
)

const (
	// StartMax bounds the delay of a start: enough for some ten thousand jobs.
	StartMax = 3 * time.Second
	// countMax is how long it may take to count jobs: enough for some millions.
	countMax = 2 * time.Second
	// tellEvery is how often progress is reported.
	tellEvery = 10 * time.Second
	// again is the pause after a failure.
	again = time.Second
)

// ErrSuperseded is returned by [Part] after a server with other defaults has started.
var ErrSuperseded = errors.New("another server has begun with other defaults")

// Part is the result of one call of [Jobs.Part].
type Part struct {
	Looked, Changed int // jobs
	More            bool
}

// Jobs is the part of a store that rewrites jobs.
type Jobs interface {
	// Count returns the number of jobs.
	Count(ctx context.Context) (int, error)
	// Part examines the next jobs and rewrites those whose meaning changes with the
	// defaults. After an error it continues where it stopped.
	Part(ctx context.Context) (Part, error)
}

// Refill is one rewrite of all jobs. It is for one goroutine at a time.
type Refill struct {
	Jobs Jobs
	// Tell receives the progress: at the beginning, periodically, and at the end. May be nil.
	Tell func(store.Refill)

	is                store.Refill
	began, reportedAt time.Time
}

// Start rewrites as many jobs as possible in a time, at least one part, with which the store
// records the beginning. It reports whether all are done.
func (r *Refill) Start(ctx context.Context, most time.Duration) (over bool, err error) {
	r.began = time.Now()
	r.count(ctx)
	r.tell()
	for first := true; first || time.Since(r.began) < most; first = false {
		over, err := r.part(ctx)
		if errors.Is(err, store.ErrNoSpace) {
			return false, nil // the server reports it and tries again
		}
		if over || err != nil {
			return over, err
		}
	}
	return false, nil
}

// count counts the jobs if that is quick: the number is only informative.
func (r *Refill) count(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, countMax)
	defer cancel()
	if n, err := r.Jobs.Count(ctx); err == nil {
		r.is.Jobs = n
	}
}

// Rest rewrites the remaining jobs, using half of the time, until all are done or the store is
// closed, when ctx may end as well.
func (r *Refill) Rest(ctx context.Context, closed <-chan struct{}) {
	for {
		begun := time.Now()
		over, err := r.part(ctx)
		if over {
			return
		}
		pause := time.Since(begun)
		failed := err != nil
		if failed {
			pause = again
		}
		select {
		case <-closed:
			return
		default:
		}
		if was := r.is.Err != nil; failed && !was {
			r.is.Err = err
			r.tell()
		} else if !failed {
			r.is.Err = nil
		}
		select {
		case <-closed:
			return
		case <-time.After(pause):
		}
	}
}

func (r *Refill) part(ctx context.Context) (over bool, err error) {
	p, err := r.Jobs.Part(ctx)
	superseded := errors.Is(err, ErrSuperseded)
	if err != nil && !superseded {
		return false, fmt.Errorf("fill in other defaults: %w", err)
	}
	r.is.Looked, r.is.Changed = r.is.Looked+p.Looked, r.is.Changed+p.Changed
	over = superseded || !p.More
	if over {
		r.is.Over, r.is.Superseded, r.is.Err = !superseded, superseded, nil
	}
	if over || r.is.Err == nil && time.Since(r.reportedAt) >= tellEvery {
		r.tell()
	}
	return over, nil
}

func (r *Refill) tell() {
	r.reportedAt = time.Now()
	r.is.Took = r.reportedAt.Sub(r.began)
	if r.Tell != nil {
		r.Tell(r.is)
	}
}
