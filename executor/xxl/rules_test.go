package xxlexec

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
)

// The quirks of XXL-JOB executors that a replacement for their admin must handle.

const allowed = plain + "\npolicy: {overlap: allow, lost_after: 60s}"

func TestGoReportsCancelledWorkAsSuccess(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		a := r.run(plain + "\npolicy: {retry: {attempts: 3}}")
		_, err := r.store.Cancel(r.Context(), a.Run, "ann", "")
		r.must(err)
		r.callback(r.admin, 1, 200, "task cancelled") // before the keeper has polled
		r.wants(a, job.OutcomeCancelled, "cancelled by ann")
	})
}

// With cover_early it never queues, so that the clock shows whether it succeeded in time.
func TestGoReportsTimedOutWorkAsSuccessAlsoWhereRunsMayOverlap(t *testing.T) {
	for block, want := range map[string]job.Outcome{"serial": job.OutcomeSucceeded, "cover_early": job.OutcomeTimedOut, "discard_later": job.OutcomeTimedOut} {
		t.Run(block, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.executor("g", "10.0.0.5:9999", "")
				a := r.run("run: {xxl: {group: g, handler: h, block: " + block + "}}\npolicy: {overlap: allow, timeout: 5s}")
				time.Sleep(6 * time.Second)
				r.callback(r.admin, 1, 200, "")
				r.wants(a, want, "")
			})
		})
	}
}

func TestGoSendsOneResultTwiceAndAnotherNever(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		r.beats("10.0.0.5:9999", 20*time.Second)
		r.keep(r.admin)
		silent, second := r.run("run: {xxl: {group: g, handler: h, id: 1}}\npolicy: {lost_after: 60s}"), r.run("run: {xxl: {group: g, handler: h, id: 2}}")
		r.callback(r.admin, 2, 500, "task panic")
		r.callback(r.admin, 2, 200, "")
		r.wants(second, job.OutcomeFailed, "task panic")
		time.Sleep(9 * time.Minute)
		r.wants(silent, "", "")
		time.Sleep(2 * time.Minute)
		r.wants(silent, job.OutcomeLost, "has not reported its end for 10 min")
	})
}

func TestJavaIsIdleAfterAKillAndReportsLater(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		r.keep(r.admin)
		a := r.run(plain + "\npolicy: {overlap: skip, retry: {attempts: 1}}")
		_, err := r.store.Cancel(r.Context(), a.Run, "ann", "enough")
		r.must(err)
		time.Sleep(time.Second)
		r.wants(a, job.OutcomeCancelled, "enough")
		time.Sleep(time.Minute)
		r.callback(r.admin, 1, 200, "") // its handler has ignored the interrupt
		r.wants(a, job.OutcomeCancelled, "enough")
		if e.sent("/kill") != 1 || e.sent("/run") != 1 {
			t.Errorf("asked %v", e.asked)
		}
	})
}

func TestNodeReportsATimeoutAndThenSuccess(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		a := r.run(plain + "\npolicy: {timeout: 5s}")
		time.Sleep(5 * time.Second)
		r.callback(r.admin, 1, 500, "Error: timeout")
		r.callback(r.admin, 1, 200, "")
		r.wants(a, job.OutcomeFailed, "Error: timeout")
	})
}

// Node accepts a second run of a job, reports its failure, and answers idle while the first runs.
func TestNodeIsIdleOnceItHasRefusedAnotherRun(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.busy = true
		r.beats("10.0.0.5:9999", 20*time.Second)
		r.keep(r.admin)
		j := r.put(allowed)
		first := r.runOf(j, 0, 0)
		time.Sleep(time.Minute)
		second := r.runOf(j, 0, 0)
		e.set(func(e *stub) { e.busy = false })
		r.callback(r.admin, 2, 500, "There is already a running task")
		r.wants(second, job.OutcomeFailed, "already a running task")
		time.Sleep(5 * time.Minute)
		r.wants(first, "", "")
		r.callback(r.admin, 1, 200, "")
		r.wants(first, job.OutcomeSucceeded, "")
	})
}

func TestPythonDropsItsQueueAtAKill(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.busy = true
		r.beats("10.0.0.5:9999", 10*time.Second)
		r.keep(r.admin)
		j := r.put(allowed)
		first, queued := r.runOf(j, 0, 0), r.runOf(j, 0, 0)
		time.Sleep(time.Minute)
		_, err := r.store.Cancel(r.Context(), first.Run, "ann", "")
		r.must(err)
		e.set(func(e *stub) { e.busy = false })
		time.Sleep(3 * time.Second)
		r.wants(first, job.OutcomeCancelled, "")
		time.Sleep(2 * time.Minute)
		r.wants(queued, job.OutcomeLost, "does not run it, and has not reported its end for 1 min")
	})
}

func TestPythonReportsATimeoutAsAFailure(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		a := r.run(plain + "\npolicy: {timeout: 5s}")
		r.say(r.admin, "/api/callback", nil, `[{"logId":1,"logDateTim":7,"handleCode":500,"handleMsg":"TimeoutError","executeResult":{"code":500,"msg":"TimeoutError"}}]`, 200)
		r.wants(a, job.OutcomeFailed, "TimeoutError")
	})
}

// Each strategy skips an executor that does not connect, and uses another number for the next.
func TestOnlyWhatDidNotConnectIsSentElsewhere(t *testing.T) {
	for _, strategy := range []string{"first", "last", "round_robin", "random", "hash", "least_frequently_used", "least_recently_used", "first_idle"} {
		t.Run(strategy, func(t *testing.T) {
			bubble(t, func(r *rig) {
				stubs := map[string]*stub{}
				for i := range 3 {
					addr := fmt.Sprintf("10.0.0.%d:9999", i+1)
					stubs[addr] = r.executor("g", addr, "")
				}
				r.cut("10.0.0.1:9999")
				r.cut("10.0.0.3:9999")
				a := r.run(plain + "\nplace: {strategy: " + strategy + "}")
				if e := stubs["10.0.0.2:9999"]; !a.result.HandedOver || e.sent("/run") != 1 || r.handoverOf(a).Number != e.last().LogID {
					t.Errorf("%+v, sent %v, noted as %d", a.result, e.triggers, r.handoverOf(a).Number)
				}
			})
		})
	}
}

// If no run of a job is unfinished, executors get SERIAL_EXECUTION whatever its overlap.
func TestOneRunInAllIsSentAsSerial(t *testing.T) {
	for _, overlap := range []string{"skip", "queue", "replace"} {
		bubble(t, func(r *rig) {
			e := r.executor("g", "10.0.0.5:9999", "")
			r.run(plain + "\npolicy: {overlap: " + overlap + "}")
			if got := e.last().Block; got != xxl.BlockSerial {
				t.Errorf("overlap: %s is sent as %s", overlap, got)
			}
		})
	}
}

func TestExecutorsWithoutATokenAreShownOneAllTheSame(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		r.run(plain)
		if got := e.header.Get(xxl.HeaderToken); got != token {
			t.Errorf("shown %q", got)
		}
	})
}

// Three nodes poll in turn; the executor gets three kills of a run in all.
func TestKillIsTriedThreeTimesByAllNodesTogether(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.answer = func(path string, _ *xxl.Trigger) string {
			if path == "/kill" {
				return hangsUp
			}
			return ""
		}
		for range 3 {
			r.keep(r.newAdmin())
		}
		a := r.run(plain)
		_, err := r.store.Cancel(r.Context(), a.Run, "ann", "")
		r.must(err)
		time.Sleep(9 * time.Second)
		r.wants(a, "", "")
		time.Sleep(4 * time.Second)
		r.wants(a, job.OutcomeCancelled, "did not answer, and may still run it")
		if n := e.sent("/kill"); n != killTries {
			t.Errorf("/kill was sent %d times, want %d", n, killTries)
		}
	})
}

// Runs that queue at an executor have their timeout from when it is their turn.
func TestTimeoutOfQueuedRunsCountsFromTheirTurn(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.busy = true
		r.beats("10.0.0.5:9999", 20*time.Second)
		r.keep(r.admin)
		r.keep(r.newAdmin())
		j := r.put(plain + "\npolicy: {overlap: allow, timeout: 60s, lost_after: 60s}")
		first := r.runOf(j, 0, 0)
		time.Sleep(10 * time.Second)
		second := r.runOf(j, 0, 0)
		time.Sleep(40 * time.Second)
		r.callback(r.admin, 1, 200, "")
		r.wants(first, job.OutcomeSucceeded, "")
		time.Sleep(55 * time.Second) // 95 s after it was sent
		r.wants(second, "", "")
		time.Sleep(40 * time.Second)
		r.wants(second, job.OutcomeTimedOut, "longer than its timeout of 1 min")
		if e.sent("/kill") != 1 {
			t.Errorf("asked %v", e.asked)
		}
	})
}

func TestTimeoutIsEnforcedWhereRunsMayOverlap(t *testing.T) {
	for _, block := range []string{"serial", "cover_early"} {
		t.Run(block, func(t *testing.T) {
			bubble(t, func(r *rig) {
				e := r.executor("g", "10.0.0.5:9999", "")
				e.busy = true
				r.keep(r.admin)
				a := r.run("run: {xxl: {group: g, handler: h, block: " + block + "}}\npolicy: {overlap: allow, timeout: 60s}")
				time.Sleep(74 * time.Second)
				r.wants(a, "", "")
				time.Sleep(20 * time.Second)
				r.wants(a, job.OutcomeTimedOut, "longer than its timeout of 1 min, and the executor did not end it")
				if e.sent("/kill") != 1 {
					t.Errorf("asked %v", e.asked)
				}
			})
		})
	}
}

// The node that took the result of a later run dies; other nodes know its conclusions.
func TestWhatANodeHasFoundOutCountsOnOthers(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "").busy = true
		r.beats("10.0.0.5:9999", 20*time.Second)
		stop := r.keepUntil(r.admin)
		j := r.put(allowed)
		first := r.runOf(j, 0, 0)
		time.Sleep(2 * sendSpan)
		r.runOf(j, 0, 0)
		time.Sleep(sendSpan)
		r.callback(r.admin, 2, 200, "")
		time.Sleep(2 * askEvery)
		stop()
		r.keep(r.newAdmin())
		time.Sleep(3 * time.Minute)
		r.wants(first, job.OutcomeLost, "has ended a later run of the job")
	})
}

// Numbers do not grow with time across nodes: each has its own block.
func TestALowerNumberIsNotAnEarlierRun(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "").busy = true
		r.beats("10.0.0.5:9999", 20*time.Second)
		r.keep(r.admin)
		j := r.put(allowed)
		low, err := r.store.Numbers(r.Context(), 1, 0)
		r.must(err)
		early := r.runOf(j, 0, 0)
		time.Sleep(2 * sendSpan)
		r.number = low
		late := r.runOf(j, 0, 0)
		r.callback(r.admin, r.handoverOf(early).Number, 200, "")
		time.Sleep(10 * time.Minute)
		r.wants(early, job.OutcomeSucceeded, "")
		r.wants(late, "", "")
		synctest.Wait()
	})
}
