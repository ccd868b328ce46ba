// Package recovery settles in the store the attempts of a node's process that died: attempts that
// never began are released, the others are lost. Both the watchdog of the dead process and the next
// process on the machine do that, even concurrently and repeatedly, since the store compares the
// token of each attempt.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is what is needed, a part of work.Store.
type Store interface {
	steps
	Mine(ctx context.Context, session job.ID) ([]store.Run, error)
}

type steps interface {
	Leave(ctx context.Context, session job.ID) error
	Release(ctx context.Context, session job.ID, attempts []store.Attempt) error
	Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)
}

// Backing is what is needed of a store.
type Backing interface {
	steps
	store.RunLister
}

// On returns a [Store] backed by a store.
func On(s Backing) Store { return local{s} }

type local struct{ Backing }

// Mine implements [Store].
func (l local) Mine(ctx context.Context, session job.ID) ([]store.Run, error) {
	return store.RunsOn(ctx, l, session)
}

// DeadSession is the session of a process that died.
type DeadSession struct {
	Session job.ID
	// Began reports whether an attempt may have taken effect.
	Began func(run job.ID, attempt int) bool
	// Ended is closed when the processes of its attempts have ended; until then none is lost and
	// each holds its slot. Nil: none runs.
	Ended <-chan struct{}
	// Kept reports whether the next process of the node continues an attempt, under the same session:
	// then the session does not leave. Nil: none is kept.
	Kept func(run job.ID, attempt int) bool
	// Replaced reports, once Ended is closed, whether that process has begun: from then on the session
	// is not the dead process's any more. Nil: none begins.
	Replaced func() bool
}

// isReplaced reports whether another process continues the session.
func (d *DeadSession) isReplaced() bool {
	if d.Replaced == nil {
		return false
	}
	select {
	case <-d.Ended:
		return d.Replaced()
	default:
		return false // it waits for the commands of this one
	}
}

// Recovered lists the attempts that were released, the runs that were lost, and those that another
// process continues.
type Recovered struct {
	GivenBack  []store.Attempt
	Lost, Kept []store.Run
}

// lookAgain is when the store is read again: a claim sent before the death may be committed after
// it, usually at once.
var lookAgain = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

// Recover settles the session's attempts in the store now.
func (d *DeadSession) Recover(ctx context.Context, s Store) (settled Recovered, err error) {
	if d.Kept == nil {
		// From now on no claim is accepted, and other nodes take the unclaimed runs.
		if err := s.Leave(ctx, d.Session); err != nil && !errors.Is(err, store.ErrSessionOver) {
			return settled, fmt.Errorf("leave for session %s: %w", d.Session, err)
		}
	}
	runs, err := s.Mine(ctx, d.Session)
	if err != nil {
		return settled, err
	}
	if d.isReplaced() { // asked after the list was read, which may have its claims
		return settled, nil
	}
	var lost []store.Run
	var unbegun []store.Attempt
	for i := range runs {
		if d.Kept != nil && d.Kept(runs[i].ID, runs[i].Attempt) {
			settled.Kept = append(settled.Kept, runs[i])
		} else if d.Began(runs[i].ID, runs[i].Attempt) {
			lost = append(lost, runs[i])
		} else {
			unbegun = append(unbegun, runs[i].Present())
		}
	}
	for batch := range slices.Chunk(unbegun, store.MaxBatch) {
		if err := s.Release(ctx, d.Session, batch); err != nil {
			return settled, err
		}
		settled.GivenBack = append(settled.GivenBack, batch...)
	}
	if len(lost) > 0 && d.Ended != nil {
		select {
		case <-d.Ended:
		case <-ctx.Done():
			return settled, context.Cause(ctx)
		}
	}
	for batch := range slices.Chunk(lost, store.MaxBatch) {
		results := make([]store.Result, len(batch))
		for i := range batch {
			results[i] = store.Result{
				Attempt: batch[i].Present(), Outcome: job.OutcomeLost, Reason: reason.ProcessEnded.Of(batch[i].Node),
			}
		}
		outcomes, err := s.Finish(ctx, d.Session, results)
		if err != nil {
			return settled, err
		}
		for i := range batch {
			if outcomes[i].Accepted { // others were not due, or are settled
				settled.Lost = append(settled.Lost, batch[i])
			}
		}
	}
	return settled, nil
}

// Again settles late attempts for some seconds.
func (d *DeadSession) Again(ctx context.Context, s Store) (all Recovered, err error) {
	for _, wait := range lookAgain {
		select {
		case <-ctx.Done():
			return all, context.Cause(ctx)
		case <-time.After(wait):
		}
		var more Recovered
		more, err = d.Recover(ctx, s)
		all.GivenBack, all.Lost = append(all.GivenBack, more.GivenBack...), append(all.Lost, more.Lost...)
	}
	return all, err
}
