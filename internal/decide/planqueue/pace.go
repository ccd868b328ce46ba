package planqueue

import (
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A job whose runs wait for each other is caught up at the pace of its runs: the next missed
// occurrence is planned, and claimed in the same step, when a run has ended. A run planned earlier
// waits, which takes two more writes and burdens each step of its job. This applies while the
// planning node also runs them, and quickly. Other jobs are planned in portions as the backlog has
// room: there the planner must not fall behind the clock.

const (
	// paceWait is how long the next portion of such a job waits for a planned run.
	paceWait = Every
	// paceTrial is how long a job is caught up at its pace before its progress is judged, and
	// paceLead how many times as fast as the clock it must be: a job whose runs take longer than its
	// interval would never finish.
	paceTrial = 2 * time.Second
	paceLead  = 2
)

// pace is how a job is caught up.
type pace struct {
	// width is how many of its runs may be unfinished: as many as have started together. It doubles
	// until one has to wait, which full records.
	width int
	full  bool
	out   int // number of planned, unfinished runs
	// began is when its first portion was planned, on the process clock, and from the cursor after
	// that: the first portion may skip occurrences beyond the limit.
	began time.Time
	from  int64
	// parked is set while the job waits for an end; since is when it began to wait.
	parked bool
	since  time.Time
	slow   bool // it is planned in portions instead
}

// waiter is a parked entry.
type waiter struct {
	entry uint32
	since time.Time
}

// paced returns the pace of an entry, nil if it is planned in portions.
func (t *Queue) paced(i uint32) *pace {
	if p := t.paces[i]; p != nil && !p.slow {
		return p
	}
	return nil
}

// park reports whether an entry waits for the end of one of its runs, at a moment of the process
// clock.
func (t *Queue) park(i uint32, at time.Time) bool {
	p := t.paced(i)
	switch {
	case p == nil:
		return false
	case p.parked:
		return true
	case at.Sub(p.began) > paceTrial && time.Duration(t.entries[i].cursor-p.from) < paceLead*at.Sub(p.began):
		p.slow = true
		return false
	case p.out < p.width:
		return false
	}
	p.parked, p.since = true, at
	t.parked = append(t.parked, waiter{i, at})
	t.parkedNow++
	return true
}

// forgetPace ends the catch-up of an entry.
func (t *table) forgetPace(i uint32) {
	if p := t.paces[i]; p != nil && p.parked {
		t.parkedNow--
	}
	delete(t.paces, i)
}

// unpark moves an entry to those that wait for room.
func (t *Queue) unpark(i uint32, p *pace) {
	p.parked = false
	t.parkedNow--
	t.waitForRoom = append(t.waitForRoom, i)
}

// expire unparks the entries that have waited too long, at a moment of the process clock.
func (t *Queue) expire(at time.Time) {
	for len(t.parked) > 0 && at.Sub(t.parked[0].since) >= paceWait {
		first := t.parked[0]
		t.parked = t.parked[1:]
		if p := t.paces[first.entry]; p != nil && p.parked && p.since.Equal(first.since) {
			p.slow = true
			t.unpark(first.entry, p)
		}
	}
	if len(t.parked) == 0 {
		t.parked = nil // frees its memory
	}
}

// Ended records that attempts of jobs have ended on this node. It reports whether more may be
// planned now.
func (t *Queue) Ended(results []store.Result) (more bool) {
	if len(t.paces) == 0 {
		return false
	}
	for k := range results {
		i, ok := t.byUID[results[k].Job]
		if !ok {
			continue
		}
		p := t.paces[i]
		if p == nil {
			continue
		}
		if p.out = max(0, p.out-1); p.parked && p.out < p.width {
			t.unpark(i, p)
			more = true
		}
	}
	return more
}

// portion returns how many missed occurrences of an entry are planned at once.
func (t *Queue) portion(i uint32, v *View) int {
	timing := t.timingOf(i)
	if p := t.paced(i); p != nil {
		return max(1, p.width-p.out)
	}
	if timing.Serial && v.Paced && t.paces[i] == nil {
		return 1
	}
	return t.backlog.most(timing)
}

// pacedBy updates the pace of an entry after an item of a batch was planned, at a moment of the
// process.
func (t *Queue) pacedBy(i uint32, b *Batch, k int, at time.Time) {
	item, p := &b.Items[k], t.paces[i]
	if !b.caughtUp[k] || len(item.Runs) == 0 {
		return
	}
	if p == nil {
		p = &pace{width: 1, began: at, from: item.To.UnixNano()}
		t.paces[i] = p
	}
	for n := range item.Runs {
		r := &item.Runs[n]
		p.slow = p.slow || r.Session != b.self || r.Shards > 0
	}
	p.out += len(item.Runs)
	if claims := b.claims[item.Job]; claims.waits > 0 {
		p.width, p.full = max(1, p.out-claims.waits), true
	} else if !p.full && claims.started == len(item.Runs) && p.out >= p.width {
		p.width = min(2*p.width, CatchUpMost)
	}
}

// claimCounts is what became of the runs of a job that were claimed in the step that planned them.
type claimCounts struct{ started, waits int }

// Claimed records the answers to the claims of runs that Own has returned.
func (b *Batch) Claimed(runs []store.ReadyRun, outcomes []store.ClaimOutcome) {
	if b.claims == nil {
		b.claims = make(map[job.ID]claimCounts, len(outcomes))
	}
	for i := range outcomes {
		c := b.claims[runs[i].Job]
		switch outcomes[i].Verdict {
		case store.Started:
			c.started++
		case store.Waiting:
			c.waits++
		}
		b.claims[runs[i].Job] = c
	}
}

// isCaughtUp reports whether an entry is caught up at its pace by a view.
func (t *Queue) isCaughtUp(v *View, i uint32, d *engine.Decision) bool {
	return v.Paced && t.timingOf(i).Serial && t.catchesUp(i, v.Now) && len(d.Due) > 0
}
