package node

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

// A run that becomes known between two polls, and is due before the second one, starts in time,
// whenever the polls are.
func TestRunDueBeforeTheNextPollStartsInTime(t *testing.T) {
	for phase := range 10 {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				time.Sleep(time.Duration(phase) * 100 * time.Millisecond)
				stop := w.start("a")
				defer stop()
				const backoff = 700 * time.Millisecond
				w.exec.do = func(_ context.Context, a executor.Attempt, _ executor.Output) executor.Result {
					if late := time.Since(a.Run.Due); late > 5*time.Millisecond {
						t.Errorf("attempt %d of %s starts %s late", a.Number, a.Run.Name, late)
					}
					return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text("exit status 1")}
				}
				time.Sleep(3350 * time.Millisecond)
				w.apply(fmt.Sprintf(`{name: j, schedule: {cron: "* * * * * *", max_runs: 1}, run: {shell: "true"}, policy: {retry: {attempts: 2, backoff: %s, factor: 1, jitter: 0s}}}`, backoff))
				time.Sleep(5 * time.Second)
				if n := len(w.exec.started()); n != 3 {
					t.Errorf("%d attempts have started, want 3", n)
				}
			})
		})
	}
}
