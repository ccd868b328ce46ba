package runlog_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/server/runlog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// logging runs a log in a bubble of fake time until test returns, and passes the lines.
func logging(t *testing.T, test func(l *runlog.Log, said *logtest.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var said logtest.Log
		l := runlog.New(slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelInfo})), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		test(l, &said)
		cancel()
		<-done
	})
}

// ended is the end of a run of a job.
func ended(n int, outcome job.Outcome, reason string) store.Ends {
	return store.Ends{Records: []*store.Record{{
		Run:     job.Run{ID: job.ID{1}, JobUID: job.ID{0: byte(n >> 8), 1: byte(n)}, Namespace: "web", Name: fmt.Sprint("j", n)},
		Attempt: job.Attempt{Number: 2, Outcome: outcome, Reason: job.Text(reason)}, Final: true, Count: 1,
	}}}
}

func TestFailedRunsAreLogged(t *testing.T) {
	logging(t, func(l *runlog.Log, said *logtest.Log) {
		for n, outcome := range []job.Outcome{
			job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeLost, job.OutcomeMissed,
			job.OutcomeSucceeded, job.OutcomeCancelled, job.OutcomeSkipped, job.OutcomeWithdrawn,
		} {
			l.Ended(ended(n, outcome, "the reason"))
		}
		retried := ended(20, job.OutcomeFailed, "is tried again")
		retried.Records[0].Final = false
		l.Ended(retried)
		span := ended(21, job.OutcomeMissed, "no node was running")
		span.Records[0].Count, span.Records[0].Attempt.Number = 40, 0
		l.Ended(span)
		l.Ended(store.Ends{Paused: []store.AuditRecord{{Object: "web/j0", Detail: job.Text("3 runs failed in a row")}}})
		synctest.Wait()
		for _, want := range []string{
			`level=WARN msg="a run failed" job=web/j0 run=` + (job.ID{1}).String() + ` attempt=2 reason="the reason"`,
			`level=WARN msg="a run timed out" job=web/j1`,
			`level=WARN msg="a run was lost" job=web/j2`,
			`level=WARN msg="a run was missed" job=web/j3`,
			`msg="a run was missed" job=web/j21 run=` + (job.ID{1}).String() + ` occurrences=40 reason="no node was running"`,
			`level=WARN msg="a job was paused by pause_on_failure" job=web/j0 reason="3 runs failed in a row"`,
		} {
			if said.Count(want) != 1 {
				t.Errorf("the log has %d lines with %s:\n%s", said.Count(want), want, said.String())
			}
		}
		if n := said.Count("level="); n != 6 {
			t.Errorf("%d lines, want 6:\n%s", n, said.String())
		}
	})
}

// A job that fails each second gets a line a minute, with the number of omitted ones; so does an
// outage in which thousands of jobs fail.
func TestFrequentFailuresDoNotFillTheLog(t *testing.T) {
	logging(t, func(l *runlog.Log, said *logtest.Log) {
		for range 150 {
			l.Ended(ended(1, job.OutcomeFailed, "exit status 1"))
			l.Ended(ended(2, job.OutcomeSucceeded, ""))
			time.Sleep(time.Second)
		}
		l.Ended(ended(3, job.OutcomeFailed, "exit status 1"))
		time.Sleep(2 * time.Minute)
		log := said.String()
		if n := said.Count("job=web/j1 "); n != 4 || said.Count("left_out=59") != 2 || said.Count(`"more runs of the job failed" job=web/j1 left_out=29`) != 1 {
			t.Errorf("%d lines about a job that failed for 150 s, want three with 59 left out twice, and 29 at the end:\n%s", n, log)
		}
		if said.Count("job=web/j3 ") != 1 || strings.Contains(log, "web/j2") {
			t.Errorf("another job's failure is not one line:\n%s", log)
		}
	})
	logging(t, func(l *runlog.Log, said *logtest.Log) {
		for n := range 3000 {
			l.Ended(ended(n, job.OutcomeFailed, "the network is down"))
		}
		time.Sleep(2 * time.Minute)
		if n := said.Count("msg="); n != 1002 || said.Count(`"runs of more jobs failed" left_out=1999`) != 1 {
			t.Errorf("3,000 jobs that fail at once are %d lines, want 1,000, one of another job and one for the rest", n)
		}
	})
}

// An unread log must not block the store.
func TestUnreadLogBlocksNothing(t *testing.T) {
	var said logtest.Log
	l := runlog.New(slog.New(slog.NewTextHandler(&said, nil)), nil)
	for range 10_500 { // Run is not running to write
		l.Ended(ended(1, job.OutcomeFailed, "exit status 1"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Run(ctx)
	if said.Count("left_out=500") != 1 {
		t.Errorf("the log does not say that 500 were left out:\n%s", said.String())
	}
}
