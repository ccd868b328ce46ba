package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/job"
)

func TestFailureHasTheLastLineOfItsOutputAsCause(t *testing.T) {
	secret := "hunter2-hunter2"
	for name, c := range map[string]struct {
		says    func(out executor.Output)
		outcome job.Outcome
		own     string
		want    string
	}{
		"standard error": {func(out executor.Output) {
			fmt.Fprint(out.Stderr, "one\nfeed.csv: 0 rows\n\n")
			fmt.Fprintln(out.Stdout, "bye")
		}, job.OutcomeFailed, "", "feed.csv: 0 rows"},
		"standard output": {func(out executor.Output) { fmt.Fprint(out.Stdout, "one\ntwo") }, job.OutcomeFailed, "", "two"},
		"nothing":         {func(executor.Output) {}, job.OutcomeFailed, "", ""},
		"the executor":    {func(out executor.Output) { fmt.Fprintln(out.Stderr, "noise") }, job.OutcomeTimedOut, "503: down", "503: down"},
		"a success":       {func(out executor.Output) { fmt.Fprintln(out.Stderr, "a warning") }, job.OutcomeSucceeded, "", ""},
		"a secret": {func(out executor.Output) {
			fmt.Fprintln(out.Stderr, "bad: "+secret+" 68756e746572322d68756e74657232 "+strings.ToUpper(secret))
		}, job.OutcomeFailed, "", "bad: *** *** ***"},
		"a secret's answer":     {func(executor.Output) {}, job.OutcomeFailed, "503: " + secret, "503: ***"},
		"a secret at the limit": {func(executor.Output) {}, job.OutcomeFailed, strings.Repeat("x", 290) + secret, strings.Repeat("x", 290) + "***"},
		"long ago and later": {func(out executor.Output) {
			fmt.Fprintln(out.Stderr, "early")
			time.Sleep(5 * time.Second)
			fmt.Fprint(out.Stdout, strings.Repeat("x\n", 1<<20))
		}, job.OutcomeFailed, "", "early"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.secrets = func(context.Context, work.SecretsOf) (map[string]string, error) {
					return map[string]string{"db": secret}, nil
				}
				r.exec.do = func(_ context.Context, _ executor.Attempt, out executor.Output) executor.Result {
					c.says(out)
					return executor.Result{Outcome: c.outcome, Reason: job.Text("exit status 1"), Cause: c.own}
				}
				r.start()
				run := r.plan(r.putText(usesSecret), time.Now().Add(2*time.Second).Truncate(time.Second))[0]
				r.until("the end of the run", time.Minute, r.isOver(run))
				a := r.record(run).Attempt
				if a.Cause != c.want || (a.Fingerprint == 0) != (c.outcome == job.OutcomeSucceeded) {
					t.Errorf("the cause is %q with the fingerprint %s, want %q", a.Cause, a.Fingerprint, c.want)
				}
			})
		})
	}
}
