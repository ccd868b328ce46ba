package xxlexec

import (
	"context"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// away is a store that accepts no results.
type away struct{ *onMemory }

func (away) Finish(context.Context, job.ID, []store.Result) ([]store.FinishOutcome, error) {
	return nil, store.ErrAway
}

// beats registers an executor again and again until the test ends.
func (r *rig) beats(addr string, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(every):
				r.register("g", addr, "")
			}
		}
	}()
	stop = func() { cancel(); <-done }
	r.Cleanup(stop)
	return stop
}

func TestACancelReachesTheExecutor(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		r.keep(r.admin)
		a := r.run(plain)
		e.set(func(e *stub) {
			e.answer = func(path string, _ *xxl.Trigger) string {
				if path == "/kill" {
					r.callback(r.newAdmin(), 1, 200, "cancelled") // in the words of Go executors, to another node
				}
				return ""
			}
		})
		_, err := r.store.Cancel(r.Context(), a.Run, "ann", "wrong day")
		r.must(err)
		time.Sleep(time.Second)
		r.wants(a, job.OutcomeCancelled, "ann: wrong day")
		if e.sent("/kill") != 1 {
			t.Errorf("asked %v", e.asked)
		}
	})
}

func TestCancelEndsWithoutAnAnswerFromTheExecutor(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		r.keep(r.admin)
		a := r.run(plain)
		r.cut("10.0.0.5:9999")
		_, err := r.store.Cancel(r.Context(), a.Run, "ann", "")
		r.must(err)
		time.Sleep(8 * time.Second)
		r.wants(a, "", "")
		time.Sleep(10 * time.Second)
		r.wants(a, job.OutcomeCancelled, "did not answer, and may still run it")
	})
}

func TestIgnoredTimeoutIsEnforced(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.busy = true
		r.keep(r.admin)
		a := r.run(plain + "\npolicy: {timeout: 20s}")
		time.Sleep(34 * time.Second)
		r.wants(a, "", "")
		time.Sleep(20 * time.Second)
		r.wants(a, job.OutcomeTimedOut, "longer than its timeout of 20 s, and the executor did not end it")
		if e.sent("/kill") != 1 {
			t.Errorf("asked %v", e.asked)
		}
	})
}

// A run of hours reports regularly and needs no node in between.
func TestBusyExecutorIsPolledAndNothingIsLost(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.busy = true
		r.keep(r.admin)
		a := r.run(plain)
		time.Sleep(3 * time.Hour)
		r.wants(a, "", "")
		if n := e.sent("/idleBeat"); n < 600 || n > 900 {
			t.Errorf("asked %d times in three hours", n)
		}
		r.callback(r.admin, 1, 200, "")
		r.wants(a, job.OutcomeSucceeded, "")
	})
}

func TestVanishedRunIsLostUntilALateResult(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.busy = true
		r.beats("10.0.0.5:9999", 20*time.Second)
		r.keep(r.admin)
		a := r.run(plain + "\npolicy: {lost_after: 60s}")
		time.Sleep(5 * time.Minute)
		e.set(func(e *stub) { e.busy = false })
		time.Sleep(40 * time.Second)
		r.wants(a, "", "")
		time.Sleep(40 * time.Second)
		r.wants(a, job.OutcomeLost, "http://10.0.0.5:9999 does not run it, and has not reported its end for 1 min")
		r.callback(r.admin, 1, 200, "")
		r.wants(a, job.OutcomeSucceeded, "recorded as lost")
	})
}

// Some executors always answer idle.
func TestAnExecutorThatWasNeverSeenBusyHasLonger(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		stop := r.beats("10.0.0.5:9999", 20*time.Second)
		r.keep(r.admin)
		a := r.run(plain + "\npolicy: {lost_after: 60s}")
		time.Sleep(9 * time.Minute)
		r.wants(a, "", "")
		time.Sleep(2 * time.Minute)
		r.wants(a, job.OutcomeLost, "does not run it")

		b := r.run(plain + "\npolicy: {lost_after: 60s}")
		stop()
		time.Sleep(4 * time.Minute)
		r.wants(b, job.OutcomeLost, "")
	})
}

func TestRunsOfAGoneExecutorAreLost(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		r.keep(r.admin)
		time.Sleep(2 * time.Minute)
		r.register("g", "10.0.0.5:9999", "")
		a := r.run(plain + "\npolicy: {lost_after: 20s}")
		r.cut("10.0.0.5:9999")
		r.say(r.admin, "/api/registryRemove", nil, `{"registryGroup":"EXECUTOR","registryKey":"g","registryValue":"http://10.0.0.5:9999"}`, 200)
		time.Sleep(38 * time.Second)
		r.wants(a, "", "") // Java needs 30 s to report failures again
		time.Sleep(12 * time.Second)
		r.wants(a, job.OutcomeLost, "is not registered any more, and was not reached for 40 s: connection refused")
	})
}

// After an outage of Belfry executors need time to call back.
func TestFreshNodeDeclaresNothingLost(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		a := r.run(plain + "\npolicy: {lost_after: 60s}")
		r.cut("10.0.0.5:9999")
		time.Sleep(time.Hour) // no node is running
		r.keep(r.newAdmin())
		time.Sleep(55 * time.Second)
		r.wants(a, "", "")
		time.Sleep(20 * time.Second)
		r.wants(a, job.OutcomeLost, "not reached")
	})
}

// With several runs of a job at an executor, busy may be about another run.
func TestARunThatALaterOneHasOvertakenIsLost(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "").busy = true
		r.beats("10.0.0.5:9999", 20*time.Second)
		r.keep(r.admin)
		j := r.put(plain + "\npolicy: {overlap: allow, lost_after: 60s}")
		first := r.runOf(j, 0, 0)
		time.Sleep(2 * sendSpan)
		second, third := r.runOf(j, 0, 0), r.runOf(j, 0, 0)
		time.Sleep(time.Minute)
		r.callback(r.admin, 2, 200, "")
		time.Sleep(3 * time.Minute)
		r.wants(first, job.OutcomeLost, "has ended a later run of the job")
		r.wants(second, job.OutcomeSucceeded, "")
		r.wants(third, "", "")
	})
}

// A dead machine does not answer, and each request to it takes seconds.
func TestManyRunsOfASilentExecutorAreLost(t *testing.T) {
	bubble(t, func(r *rig) {
		const addr, cancelled = "10.0.0.5:9999", 40
		r.executor("g", addr, "")
		r.keep(r.admin)
		time.Sleep(2 * time.Minute)
		r.register("g", addr, "")
		var runs []attempt
		for range 300 {
			runs = append(runs, r.run(plain+"\npolicy: {lost_after: 20s}"))
		}
		j := r.put(plain + "\npolicy: {overlap: allow}")
		for range cancelled { // of one job: they end one after another
			runs = append(runs, r.runOf(j, 0, 0))
		}
		r.say(r.admin, "/api/registryRemove", nil, `{"registryGroup":"EXECUTOR","registryKey":"g","registryValue":"http://10.0.0.5:9999"}`, 200)
		r.cut(addr)
		r.net.listen(addr) // no connection is accepted
		for _, a := range runs[300:] {
			_, err := r.store.Cancel(r.Context(), a.Run, "ann", "")
			r.must(err)
		}
		time.Sleep(2 * time.Minute)
		for _, a := range runs[:300] {
			r.wants(a, job.OutcomeLost, "was not reached for 40 s")
		}
		for _, a := range runs[300:] {
			r.wants(a, job.OutcomeCancelled, "did not answer, and may still run it")
		}
	})
}
