package worker_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// TestCallsThatFollowCloselyShareABatch lets one run fall due each millisecond, which would
// otherwise each be one call.
func TestCallsThatFollowCloselyShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const n = 200
		r.capacity = 2 * n
		j := r.put("j", besides)
		r.start()
		var reports atomic.Int32
		r.store.set(func(h *hooks) {
			h.finish = func(do func() error, _ []store.Result) error {
				reports.Add(1)
				return do()
			}
		})
		var due []time.Time
		for i := range n {
			due = append(due, in(1500*time.Millisecond+time.Duration(i)*time.Millisecond))
		}
		var last job.ID
		for _, id := range r.plan(j, due...) {
			last = id
		}
		r.until("the last run has ended", 5*time.Second, func() bool { return r.outcome(last) != "" })

		claims := map[time.Time]bool{}
		for _, c := range r.store.allClaims() {
			claims[c.at] = true
		}
		if most := n / 15; len(claims) > most || int(reports.Load()) > most {
			t.Errorf("%d runs in %d ms: %d claims and %d reports, want at most %d", n, n, len(claims), reports.Load(), most)
		}
		for _, s := range r.exec.starts() {
			if late := s.at.Sub(s.due); late < 0 || late > 2*time.Millisecond {
				t.Errorf("a run started %s late", late)
			}
		}
	})
}

// TestResultIsReportedAtOnce has no reason to wait: no other report is in flight, and a run waits
// for the room of the second one.
func TestResultIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		r.exec.do = lasts(3 * time.Millisecond)
		j := r.put("j", besides)
		r.start()
		const n = 20
		var due []time.Time
		for i := range n {
			due = append(due, in(1500*time.Millisecond+time.Duration(i)*time.Millisecond))
		}
		ids := r.plan(j, due...)
		began := due[0]
		r.until("the last run has ended", 5*time.Second, func() bool { return r.outcome(ids[n-1]) != "" })
		if took := time.Since(began); took > 6*n*time.Millisecond {
			t.Errorf("a node with room for one run took %s for %d of 3 ms each", took, n)
		}
	})
}
