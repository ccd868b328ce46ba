package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const usesSecret = `{name: uses, schedule: {cron: '* * * * * *'}, run: {shell: 'true', env: {A: '{{ .Secret.db }}'}}, policy: {overlap: allow}}`

func TestAttemptWaitsForItsSecretsAndMasksThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var asked atomic.Int64
		r.secrets = func(_ context.Context, of work.SecretsOf) (map[string]string, error) {
			if asked.Add(1) < 4 {
				return nil, errors.New("vault is away")
			}
			return map[string]string{"db": "hunter2-hunter2"}, nil
		}
		r.exec.do = func(_ context.Context, a executor.Attempt, out executor.Output) executor.Result {
			fmt.Fprint(out.Stdout, "hunter2-")
			fmt.Fprint(out.Stdout, "hunter2 is ", a.Data.Secrets["db"], "\n")
			return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text("refused: " + a.Data.Secrets["db"])}
		}
		r.start()
		run := r.plan(r.putText(usesSecret), time.Now().Add(2*time.Second).Truncate(time.Second))[0]
		r.until("the end of the run", time.Minute, r.isOver(run))
		record := r.record(run)
		if asked.Load() != 4 || r.startsOf(run) != 1 || record.Attempt.Reason.String() != "refused: ***" || record.Attempt.Cause != "*** is ***" {
			t.Errorf("secrets were asked for %d times, and the attempt ended with %+v", asked.Load(), record.Attempt)
		}
		if record.OutputBytes != int64(len("*** is ***\n")) {
			t.Errorf("the output has %d bytes", record.OutputBytes)
		}
	})
}

func TestAttemptWithoutItsSecretFailsBeforeItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.secrets = func(context.Context, work.SecretsOf) (map[string]string, error) {
			return nil, &secret.Missing{Namespace: "default", Name: "db", Near: "dbs"}
		}
		r.start()
		run := r.plan(r.putText(usesSecret), time.Now().Add(2*time.Second).Truncate(time.Second))[0]
		r.until("the end of the run", time.Minute, r.isOver(run))
		const want = "not started: there is no secret db in the namespace default (did you mean dbs?)"
		if got := r.record(run).Attempt.Reason; got.String() != want || r.startsOf(run) != 0 {
			t.Errorf("the reason is %q, and it started %d times", got, r.startsOf(run))
		}
	})
}

// A run that waits for its secrets is not running, and the occurrences that it delays say why.
func TestRunWaitsForItsSecretsAndNamesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var back atomic.Bool
		r.secrets = func(context.Context, work.SecretsOf) (map[string]string, error) {
			if back.Load() {
				return map[string]string{"db": "hunter2-hunter2"}, nil
			}
			return nil, errors.New("vault is away")
		}
		r.start()
		due := time.Now().Add(2 * time.Second).Truncate(time.Second)
		runs := r.plan(r.putText(strings.Replace(usesSecret, "allow", "skip", 1)), due, due.Add(3*time.Second))
		r.until("the end of the second occurrence", time.Minute, r.isOver(runs[1]))
		first := "run " + runs[0].String() + " of " + due.UTC().Format(time.RFC3339)
		if got, want := r.record(runs[1]).Attempt.Reason, first+" is waiting: its secrets cannot be read: vault is away"; r.outcome(runs[1]) != job.OutcomeSkipped || got.String() != want {
			t.Errorf("the second occurrence is %s: %q, want %q", r.outcome(runs[1]), got, want)
		}
		active, err := store.ActiveRun(t.Context(), r.store, runs[0])
		if err != nil || !active.IsPostponed() || active.Reason.String() != "its secrets cannot be read: vault is away" || !active.FirstDue.Equal(due) {
			t.Errorf("the first occurrence is %+v, %v", active, err)
		}
		back.Store(true)
		r.until("the end of the run", time.Minute, r.isOver(runs[0]))
		if r.outcome(runs[0]) != job.OutcomeSucceeded || r.record(runs[0]).Attempt.Number != 1 {
			t.Errorf("it is %+v", r.record(runs[0]).Attempt)
		}
	})
}

func TestAttemptWithUnreachableSecretsIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var back atomic.Bool
		r.secrets = func(context.Context, work.SecretsOf) (map[string]string, error) {
			if back.Load() {
				return map[string]string{"db": "hunter2-hunter2"}, nil
			}
			return nil, errors.New("vault is away")
		}
		r.start()
		run := r.plan(r.putText(usesSecret), time.Now().Add(2*time.Second).Truncate(time.Second))[0]
		time.Sleep(50 * time.Second)
		if r.startsOf(run) != 0 || r.outcome(run) != "" {
			t.Fatalf("it started %d times and is %q", r.startsOf(run), r.outcome(run))
		}
		back.Store(true)
		r.until("the end of the run", 2*time.Minute, r.isOver(run))
		if r.outcome(run) != job.OutcomeSucceeded || r.startsOf(run) != 1 || r.record(run).Attempt.Number != 1 {
			t.Errorf("it started %d times and is %+v", r.startsOf(run), r.record(run).Attempt)
		}
	})
}

// A run with a refused parameter fails before it starts, and a run that chooses a secret reads only
// that one.
func TestParametersOfAnAttemptAreCheckedAndChooseSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.secrets = func(_ context.Context, of work.SecretsOf) (map[string]string, error) {
			if fmt.Sprint(of.Names) != "[live]" {
				return nil, fmt.Errorf("%v is asked for", of.Names)
			}
			return map[string]string{"live": "hunter2-hunter2"}, nil
		}
		r.start()
		j := r.putText(`{name: charge, params: {rows: {type: int, default: 1}, key: {type: secret, values: [test, live], default: test}}, run: {shell: 'true', env: {A: '{{ .Param.key }}'}}, policy: {overlap: allow}}`)
		trigger := func(n byte, params map[string]string) job.ID {
			item := store.TriggerItem{ID: job.ID{n}, Job: j.Definition.UID, Kind: job.RunByHand, Session: r.self.ID, Key: fmt.Sprint(n), Params: params, Actor: "test"}
			if _, err := r.memory.Trigger(context.Background(), []store.TriggerItem{item}); err != nil {
				t.Fatal(err)
			}
			return item.ID
		}
		bad, good := trigger(1, map[string]string{"rows": "many", "key": "live"}), trigger(2, map[string]string{"rows": "5", "key": "live"})
		r.until("the end of the runs", time.Minute, func() bool { return r.isOver(bad)() && r.isOver(good)() })
		if got := r.record(bad).Attempt.Reason; got.String() != "parameter rows: many is not a whole number" || got.Code() != "param_refused" || r.startsOf(bad) != 0 || r.outcome(bad) != job.OutcomeFailed {
			t.Errorf("the reason is %q (%s), and it started %d times", got, got.Code(), r.startsOf(bad))
		}
		if r.outcome(good) != job.OutcomeSucceeded || r.startsOf(good) != 1 {
			t.Errorf("the run that chooses a secret is %+v", r.record(good).Attempt)
		}
	})
}
