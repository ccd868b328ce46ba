// Package callback ends HTTP jobs with callback: true whose service does not report in time. The
// reports themselves come through the API.
package callback

import (
	"context"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Kind of the handovers of HTTP jobs.
const Kind = string(job.WorkHTTP)

const (
	// TimeoutDefault is the timeout of a job without one, so that a missing report does not hold
	// its slot forever.
	TimeoutDefault = 24 * time.Hour
	// nextMax bounds the pause of a handover: a timeout may be days long, and clocks be set.
	nextMax = time.Hour
	// gapMax is the longest gap between polls that counts as none: the life of a session.
	gapMax = store.SessionLife
	// pagesMax is how many batches one poll takes.
	pagesMax = 20
)

// Store is what is needed of a store.
type Store interface {
	ToAsk(ctx context.Context, kind string, limit int) ([]store.Outstanding, error)
	Asked(ctx context.Context, list []store.Answer) error
	Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)
}

// Keeper looks after the handovers of HTTP jobs. Use [New].
type Keeper struct {
	store Store
	boot  func() time.Duration

	mu sync.Mutex
	// since is the beginning of this node's gapless polls, and looked the last poll.
	since, looked time.Duration
	watches       bool
}

// Kind returns the kind of the handovers.
func (k *Keeper) Kind() string { return Kind }

// New returns a keeper. boot is a clock that runs while the machine sleeps.
func New(s Store, boot func() time.Duration) *Keeper { return &Keeper{store: s, boot: boot} }

// Look ends finished work and returns when to poll the rest again.
func (k *Keeper) Look(ctx context.Context) error {
	for range pagesMax {
		list, err := k.store.ToAsk(ctx, Kind, store.MaxBatch)
		if err != nil {
			return err
		}
		watched := k.watch()
		var results []store.Result
		var answers []store.Answer
		for i := range list {
			o := &list[i]
			if res, next := Decide(o, watched); res != nil {
				results = append(results, *res)
			} else {
				answers = append(answers, store.Answer{Handover: o.Handover, Next: next})
			}
		}
		if len(results) > 0 {
			// Without a session: any node may take the following runs.
			if _, err := k.store.Finish(ctx, job.ID{}, results); err != nil {
				return err
			}
		}
		if len(answers) > 0 {
			if err := k.store.Asked(ctx, answers); err != nil {
				return err
			}
		}
		if len(list) < store.MaxBatch {
			return nil
		}
	}
	return nil
}

// watch records that this node reaches the store, and returns for how long without a gap: in a gap,
// reports may have come that no node received.
func (k *Keeper) watch() time.Duration {
	now := k.boot()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.watches || now-k.looked > gapMax {
		k.watches, k.since = true, now
	}
	k.looked = now
	return now - k.since
}

// Decide returns how an attempt has ended, or nil and when to poll it again. Reports were
// receivable for the time watched. Silence counts only for a service that has reported before; the
// timeout bounds others.
func Decide(o *store.Outstanding, watched time.Duration) (res *store.Result, next time.Duration) {
	end := func(outcome job.Outcome, why job.Reason) *store.Result {
		return &store.Result{Attempt: o.Attempt, Started: o.Sent, Ended: o.Now, Outcome: outcome, Reason: why}
	}
	timeout := o.Timeout
	if timeout == 0 {
		timeout = TimeoutDefault
	}
	left := o.Sent.Add(timeout).Sub(o.Now)
	switch {
	case o.Run.CancelBy != "":
		return end(job.OutcomeCancelled, reason.CancelUnknown.Of(o.Run.CancelBy, o.Run.CancelReason, o.To)), 0
	case left <= 0:
		return end(job.OutcomeTimedOut, reason.NoResult.Of(o.To, timeout)), 0
	}
	next = min(left, nextMax)
	if !o.Seen.IsZero() && o.Run.LostAfter > 0 {
		silent := min(o.Now.Sub(o.Seen), watched)
		if silent > o.Run.LostAfter {
			return end(job.OutcomeLost, reason.ReportsEnded.Of(o.To, o.Seen, o.Run.LostAfter)), 0
		}
		next = min(next, o.Run.LostAfter-silent+time.Millisecond)
	}
	return nil, next
}
