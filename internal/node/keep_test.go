package node

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/server/callback"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// handsOver is an executor that hands each attempt over.
func handsOver(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
	if _, err := a.HandOver(ctx, executor.Handover{Kind: callback.Kind, To: "a service"}); err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	return executor.Result{HandedOver: true}
}

const handedOver = `{name: j, schedule: {every: 1h, start: "%s", align: start}, run: {shell: "true"}, policy: {overlap: skip, timeout: 10m, lost_after: 20s, retry: {attempts: 2, on: [lost]}}}`

// handed returns the only run, which is handed over.
func (w *world) handed() store.Run {
	w.t.Helper()
	list, err := w.store.ListActive(context.Background(), store.ActiveQuery{State: job.StateRunning, Limit: 10})
	if err != nil || len(list) != 1 || !list[0].Session.IsZero() {
		w.t.Fatalf("what is handed over: %+v, %v", list, err)
	}
	return list[0]
}

func TestHandoverOutlivesTheRestartOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.exec.do = handsOver
		stopA, stopB := w.start("a"), w.start("b")
		j := w.apply(fmtStart(handedOver, 5*time.Second))
		time.Sleep(time.Minute)
		run := w.handed()
		stopA()
		stopB()
		time.Sleep(time.Minute) // longer than lost_after
		stopA, stopB = w.start("a"), w.start("b")
		time.Sleep(time.Minute)
		if again := w.handed(); again.ID != run.ID || again.Attempt != 1 || again.Token != run.Token || len(w.exec.started()) != 1 {
			t.Fatalf("after the restart %+v runs, after %d starts", again, len(w.exec.started()))
		}
		got, err := w.store.Finish(t.Context(), job.ID{}, []store.Result{{Attempt: run.Present(), Outcome: job.OutcomeSucceeded}})
		if err != nil || !got[0].Accepted {
			t.Fatalf("its result: %+v, %v", got, err)
		}
		stopA()
		stopB()
		records, err := w.store.AttemptsOf(t.Context(), run.ID)
		if err != nil || len(records) != 1 || records[0].Attempt.Number != 1 || records[0].Attempt.Outcome != job.OutcomeSucceeded {
			t.Errorf("history: %+v, %v", records, err)
		}
		if outcomes := w.outcomes(j); len(outcomes) != 1 {
			t.Errorf("outcomes: %v", outcomes)
		}
	})
}

func TestAnyNodeEndsCancelledAndTimedOutHandovers(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(w *world, run job.ID)
		want job.Outcome
		// within bounds the wait.
		within time.Duration
	}{
		{"a cancel", func(w *world, run job.ID) { _, _ = w.store.Cancel(context.Background(), run, "ann", "") }, job.OutcomeCancelled, 100 * time.Millisecond},
		{"its timeout", func(*world, job.ID) { time.Sleep(9 * time.Minute) }, job.OutcomeTimedOut, time.Minute + 2*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.exec.do = handsOver
				stop := w.start("a")
				w.apply(fmtStart(handedOver, 5*time.Second))
				time.Sleep(10 * time.Second)
				run := w.handed().ID
				stop()
				stop = w.start("b")
				time.Sleep(5 * time.Second)
				c.end(w, run)
				time.Sleep(c.within)
				stop()
				records, err := w.store.AttemptsOf(t.Context(), run)
				if err != nil || len(records) != 1 || records[0].Attempt.Outcome != c.want {
					t.Errorf("history: %+v, %v, want %s", records, err, c.want)
				}
			})
		})
	}
}

// fmtStart writes the start of a schedule.
func fmtStart(yaml string, in time.Duration) string {
	return fmt.Sprintf(yaml, time.Now().UTC().Add(in).Format(time.RFC3339))
}
