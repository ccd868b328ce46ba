package worker_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/job"
)

// A lack of resources for a command is no failure of the job: the attempt is retried, even beyond
// its timeout, and sometimes logged.
func TestAttemptWithoutResourcesIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var said logtest.Log
		r.log = slog.New(slog.NewTextHandler(&said, nil))
		var room atomic.Bool
		r.exec.does(func(context.Context, executor.Attempt, executor.Output) executor.Result {
			if room.Load() {
				return executor.Result{Outcome: job.OutcomeSucceeded}
			}
			time.Sleep(2 * time.Second)
			return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text("too many open files"), Unstarted: true}
		})
		j := r.put("j", "policy: {overlap: allow, timeout: 1s}")
		r.start()
		id := r.plan(j, in(time.Second))[0]
		time.Sleep(25 * time.Second)
		if outcome := r.outcome(id); outcome != "" {
			t.Fatalf("without room the run has ended: %s", outcome)
		}
		room.Store(true)
		r.until("the run has succeeded", 10*time.Second, func() bool { return r.outcome(id) == job.OutcomeSucceeded })
		if a := r.record(id).Attempt; a.Number != 1 {
			t.Errorf("attempt %d has succeeded, want the first", a.Number)
		}
		r.stop()
		log := said.String()
		if n := strings.Count(log, "an attempt was not started; retrying"); n < 2 || n > 3 || !strings.Contains(log, `reason="too many open files"`) {
			t.Errorf("%d lines in 25 s, want one in 10 s:\n%s", n, log)
		}
	})
}
