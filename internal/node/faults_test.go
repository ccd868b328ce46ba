package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// silent is the level of a log in which nothing appears: the faults of these
// tests are meant.
const silent = slog.LevelError + 1

var errAway = fmt.Errorf("%w in this test", store.ErrAway)

// faulty is a store that fails when a test says so.
type faulty struct {
	store.Store
	away       atomic.Bool          // nothing is reached
	loseClaims atomic.Int32         // number of claims to make without an answer
	loseEnds   atomic.Int32         // likewise for results
	takes      func() time.Duration // duration of a claim
}

func (f *faulty) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	if f.away.Load() {
		return nil, errAway
	}
	if f.takes != nil {
		time.Sleep(f.takes())
	}
	outcomes, err := f.Store.Claim(ctx, session, attempts)
	if f.loseClaims.Add(-1) >= 0 {
		return nil, errAway
	}
	return outcomes, err
}

func (f *faulty) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	if f.away.Load() {
		return nil, errAway
	}
	outcomes, err := f.Store.Finish(ctx, session, results)
	if f.loseEnds.Add(-1) >= 0 {
		return nil, errAway
	}
	return outcomes, err
}

func (f *faulty) Renew(ctx context.Context, session job.ID, load store.Load) error {
	if f.away.Load() {
		return errAway
	}
	return f.Store.Renew(ctx, session, load)
}

func (f *faulty) ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error) {
	if f.away.Load() {
		return nil, errAway
	}
	return f.Store.ListActive(ctx, q)
}

// withFaults puts faults between a world and its store.
func (w *world) withFaults() *faulty {
	f := &faulty{Store: w.store}
	w.store = f
	w.level = silent
	return f
}

func TestLostAnswersNeitherDoubleNorLoseStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.withFaults()
		f.loseClaims.Store(3)
		f.loseEnds.Store(2)
		j := w.apply(every10s)
		stop := w.start("a")
		time.Sleep(65 * time.Second)
		stop()
		if got := w.outcomes(j); len(w.exec.started()) != 6 || count(got, "succeeded") != 6 || len(got) != 6 {
			t.Errorf("%d starts in 65 s, history %v; want 6", len(w.exec.started()), got)
		}
	})
}

func TestResultsSurviveAStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.withFaults()
		w.exec.do = sleeps(2 * time.Second)
		j := w.apply(every10s + "policy: {overlap: allow}\n")
		stop := w.start("a")
		time.Sleep(11 * time.Second) // one runs
		f.away.Store(true)
		time.Sleep(25 * time.Second)
		f.away.Store(false)
		time.Sleep(30 * time.Second)
		stop()
		seen := map[time.Time]int{}
		for _, s := range w.exec.started() {
			seen[s.scheduled]++
		}
		got := w.outcomes(j)
		if len(seen) != len(w.exec.started()) || count(got, "succeeded") != len(w.exec.started()) || len(seen) != 6 {
			t.Errorf("starts %v, history %v", w.exec.started(), got)
		}
	})
}

func TestIsolatedNodeEndsAttemptsThatOthersMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.withFaults()
		var ended atomic.Int64
		var cause atomic.Value
		began := time.Now()
		w.exec.do = func(ctx context.Context, _ executor.Attempt, _ executor.Output) executor.Result {
			<-ctx.Done()
			ended.Store(int64(time.Since(began)))
			cause.Store(context.Cause(ctx))
			outcome, reason := executor.ByCause(ctx)
			return executor.Result{Outcome: outcome, Reason: reason}
		}
		w.apply(`{name: j, schedule: {at: ["2000-01-01T00:00:10Z"]}, run: {shell: "true"}, policy: {lost_after: 30s, kill_grace: 5s}}`)
		stop := w.start("a")
		time.Sleep(20 * time.Second)
		f.away.Store(true)
		time.Sleep(40 * time.Second)
		// The last renewal was at 20 s at the latest. 30 s later others may count the run as lost,
		// and its end takes 5 s and a margin.
		if at := time.Duration(ended.Load()); at == 0 || at > 45*time.Second || at < 35*time.Second {
			t.Errorf("ended after %s, want about 42 s", at)
		}
		if c, _ := cause.Load().(error); !errors.Is(c, executor.ErrFenced) {
			t.Errorf("ended because %v", c)
		}
		f.away.Store(false)
		time.Sleep(5 * time.Second)
		stop()
	})
}

func TestCapacityBoundsRunsAndPriorityOrdersThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.capacity = 3
		var now, most atomic.Int32
		w.exec.do = func(context.Context, executor.Attempt, executor.Output) executor.Result {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		for i := range 12 {
			w.apply(fmt.Sprintf(`{name: j%02d, schedule: {at: ["2000-01-01T00:00:10Z"]}, run: {shell: "true"}, policy: {priority: %d}}`, i, i))
		}
		stop := w.start("a")
		time.Sleep(20 * time.Second)
		stop()
		if most.Load() != 3 || len(w.exec.started()) != 12 {
			t.Errorf("%d at once, %d in all; want 3 and 12", most.Load(), len(w.exec.started()))
		}
		for i, s := range w.exec.started()[:3] {
			if s.name < "j09" {
				t.Errorf("start %d is of %s, want one of the highest priority", i, s.name)
			}
		}
	})
}

// herd would take several batches if claims were faster.
const herd = 100

func TestHerdStartsAtItsInstantOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.withFaults()
		w.capacity = 5000
		f.takes = func() time.Duration { return 20 * time.Millisecond }
		for i := range herd {
			w.apply(fmt.Sprintf(`{name: j%d, schedule: {cron: "*/10 * * * * *"}, run: {shell: "true"}}`, i))
		}
		stop := w.start("a")
		time.Sleep(61 * time.Second)
		stop()
		if len(w.exec.started()) != 6*herd {
			t.Fatalf("%d starts, want %d", len(w.exec.started()), 6*herd)
		}
		// The first herds teach the worker the duration of claims.
		var worst time.Duration
		for _, s := range w.exec.started()[4*herd:] {
			worst = max(worst, s.at.Sub(s.scheduled))
			if s.at.Before(s.scheduled) {
				t.Fatalf("%s has started before its time", s.name)
			}
		}
		if worst > 5*time.Millisecond {
			t.Errorf("claims take 20 ms, and the latest start is %s late", worst)
		}
	})
}

// TestEarlyClaimsAreRecalled pauses jobs in the moment between their
// claim and their start.
func TestEarlyClaimsAreRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.withFaults()
		f.takes = func() time.Duration { return 50 * time.Millisecond } // so claims are sent 100 ms ahead
		definition := `{name: j%d, %s schedule: {cron: "*/10 * * * * *"}, run: {shell: "true"}}`
		for i := range 3 {
			w.apply(fmt.Sprintf(definition, i, ""))
		}
		stop := w.start("a")
		time.Sleep(59*time.Second + 990*time.Millisecond)
		claimed := 0
		active, err := w.store.ListActive(context.Background(), store.ActiveQuery{State: job.StateRunning, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		claimed = len(active)
		before := len(w.exec.started())
		for i := range 3 {
			w.apply(fmt.Sprintf(definition, i, "paused: true,"))
		}
		time.Sleep(20 * time.Second)
		stop()
		if claimed != 3 || len(w.exec.started()) != before {
			t.Errorf("%d were claimed 10 ms ahead, want 3; %d have started after the pause", claimed, len(w.exec.started())-before)
		}
	})
}

func TestOverdueRunsAreStolenByAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		// A node that has joined and does nothing, first by name.
		id, err := job.NewID(time.Now(), zeros{})
		if err != nil {
			t.Fatal(err)
		}
		dead := store.Session{ID: id, Node: "0", Machine: "m0", Roles: []string{store.RoleWorker}, Capacity: 1}
		if _, err := w.store.Join(context.Background(), dead); err != nil {
			t.Fatal(err)
		}
		w.apply(`{name: j, schedule: {at: ["2000-01-01T00:00:03Z"]}, run: {shell: "true"}, place: {strategy: first}}`)
		w.apply(`{name: bound, schedule: {at: ["2000-01-01T00:00:03Z"]}, run: {shell: "true"}, place: {strategy: first, sticky: true}}`)
		stop := w.start("a")
		time.Sleep(6 * time.Second)
		stop()
		if len(w.exec.started()) != 1 || w.exec.started()[0].name != "j" {
			t.Fatalf("starts: %v, want the one that is not sticky", w.exec.started())
		}
		if late := w.exec.started()[0].at.Sub(w.exec.started()[0].scheduled); late < time.Second || late > 1500*time.Millisecond {
			t.Errorf("taken over %s late, want about a second", late)
		}
	})
}

func TestRunsOfADeadProcessAreSettledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.level = silent
		ctx := context.Background()
		id, err := job.NewID(time.Now(), zeros{})
		if err != nil {
			t.Fatal(err)
		}
		// The process before claims a run and dies.
		before := store.Session{ID: id, Node: "a", Machine: "m1", DataDir: "/a", Roles: []string{store.RoleWorker}, Capacity: 1}
		if _, err := w.store.Join(ctx, before); err != nil {
			t.Fatal(err)
		}
		j := w.apply(`{name: j, run: {shell: "true"}, policy: {retry: {attempts: 1, backoff: 1s, on: [lost]}}}`)
		results, err := w.store.Trigger(ctx, []store.TriggerItem{{ID: job.ID{1}, Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Session: id, Actor: "test"}})
		if err != nil || results[0].Err != nil {
			t.Fatal(err, results)
		}
		claim := []store.Attempt{{Run: job.ID{1}, Number: 1, Token: job.ID{2}}}
		if got, err := w.store.Claim(ctx, id, claim); err != nil || got[0].Verdict != store.Started {
			t.Fatal(got, err)
		}
		time.Sleep(time.Second)
		stop := w.start("a")
		time.Sleep(3 * time.Second)
		stop()
		if got := w.outcomes(j); len(got) != 2 || got[0] != "lost" || got[1] != "succeeded" {
			t.Errorf("history %v, want lost, then the retry", got)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestPanicFailsOnlyItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.level = silent
		var once sync.Once
		w.exec.do = func(context.Context, executor.Attempt, executor.Output) executor.Result {
			once.Do(func() { panic("bad executor") })
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		j := w.apply(every10s)
		stop := w.start("a")
		time.Sleep(25 * time.Second)
		stop()
		if got := w.outcomes(j); len(got) != 2 || got[0] != "failed" || got[1] != "succeeded" {
			t.Errorf("history %v, want failed, succeeded", got)
		}
	})
}
