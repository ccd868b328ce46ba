package planqueue

import (
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A job whose runs wait for each other is caught up at the pace of its runs: the next missed
// occurrence is planned, and claimed in the same step, when a run has ended. A run that is planned
// earlier waits, which takes two more writes and is read by each step of its job.
//
// That holds while the node that plans also runs them, and runs them quickly. Others are planned
// in portions as the backlog has room: with them the planner must not fall behind the clock.

const (
	// paceWait is how long a planned run of such a job may take: the next portion does not wait for
	// it longer.
	paceWait = Every
	// paceTrial is how long a job may be caught up so before its progress is judged, and paceLead how
	// many times as fast as the clock it must be: a job whose runs take longer than its interval
	// would never end to catch up.
	paceTrial = 2 * time.Second
	paceLead  = 2
)

// pace is how a job is caught up.
type pace struct {
	// width is how many of its runs may be unfinished: as many as have started together. It is
	// doubled until one has to wait, which full says.
	width int
	full  bool
	out   int // how many are planned and have not ended
	// began is the moment of the process of its first portion, and from its cursor behind that: the first
	// may leave out what is beyond the limit.
	began time.Time
	from  int64
	// parked is set while the job waits for an end, since a moment.
	parked bool
	since  time.Time
	slow   bool // it is planned in portions
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

// park reports whether an entry waits for the end of one of its runs, at a moment of the process.
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

// unpark holds back an entry for the next room.
func (t *Queue) unpark(i uint32, p *pace) {
	p.parked = false
	t.parkedNow--
	t.held = append(t.held, i)
}

// expire unparks the entries that have waited too long, at a moment of the process.
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
		t.parked = nil // its room with it
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

// portion returns for how many missed occurrences an entry is planned at a time.
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

// claimed is what became of the runs of a job that were claimed in the step that planned them.
type claimed struct{ started, waits int }

// Claimed records the answers to the claims of runs that Own has returned.
func (b *Batch) Claimed(runs []store.ReadyRun, outcomes []store.ClaimOutcome) {
	if b.claims == nil {
		b.claims = make(map[job.ID]claimed, len(outcomes))
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
