package runqueue

import (
	"time"

	"github.com/belfry-cron/belfry/store"
)

const (
	// herdSpan is the width of the steps in which due times are counted to find claims that
	// coincide.
	herdSpan = 100 * time.Millisecond
	// claimSpan is the longest time between the due times of a batch: if runs fall due one after
	// another, one batch for several costs a fraction of a batch for each.
	claimSpan = 25 * time.Millisecond
	// smoothing is the weight of earlier measurements.
	smoothing = 16
	// leadMin covers the timers themselves.
	leadMin = 3 * time.Millisecond
	// leadFalls is the minimum time between two falls of the estimate, down to leadKept: a shared
	// disk stalls every few seconds, for some tens of milliseconds, with many batches in between. A
	// longer time would be too far ahead for jobs that run each second.
	leadFalls = 500 * time.Millisecond
	leadKept  = 100 * time.Millisecond
)

func herdOf(due time.Time) int64 { return due.UnixNano() / int64(herdSpan) }

// Lead estimates how long claims take, as measured: one batch, and each claim in it. Claims are
// sent that much ahead of their due time, so that runs start at their instant even on a slow store.
type Lead struct {
	batch, each time.Duration
	fell        time.Duration // when batch last fell, on the monotonic clock
}

// leadAtFirst is the estimate before the first measurement: a slow store, so that the first
// herd is not late.
var leadAtFirst = Lead{batch: 10 * time.Millisecond, each: 75 * time.Microsecond}

// measured records the duration of a batch with a number of claims. An occasionally slow
// store counts as slow: the estimate rises at once and falls slowly.
func (l *Lead) measured(took time.Duration, claims int, answered time.Duration) {
	if took >= l.batch {
		l.batch, l.fell = took, answered
	} else if l.batch > leadKept || answered-l.fell >= leadFalls {
		l.batch, l.fell = (l.batch*(smoothing-1)+took)/smoothing, answered
	}
	l.each = (l.each*(smoothing-1) + took/time.Duration(claims)) / smoothing
}

// of returns how far ahead the claims of a herd are sent.
func (l *Lead) of(herd int) time.Duration {
	return min(leadMin+2*l.batch+time.Duration(herd)*l.each, store.ClaimAhead-herdSpan)
}

// leadFor returns how far ahead the claims of the earliest herd are sent.
func (a *Queue[P]) leadFor(first int64) time.Duration {
	herd := herdOf(time.Unix(0, first))
	return a.lead.of(a.herds[herd] + a.herds[herd+1])
}
