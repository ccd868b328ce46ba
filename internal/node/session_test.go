package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// stubborn is a store that refuses to join while a test says so.
type stubborn struct {
	store.Store
	refuses atomic.Bool
	over    atomic.Bool // ends every session that is renewed
	joins   atomic.Int32
}

func (s *stubborn) Renew(ctx context.Context, session job.ID, load store.Load) error {
	if s.over.Load() {
		return store.ErrSessionOver
	}
	return s.Store.Renew(ctx, session, load)
}

func (s *stubborn) Join(ctx context.Context, session store.Session) (store.Session, error) {
	s.joins.Add(1)
	if s.refuses.Load() {
		return store.Session{}, errAway
	}
	return s.Store.Join(ctx, session)
}

// endSessions ends the sessions of all nodes without their knowledge.
func endSessions(t *testing.T, s store.Store) {
	t.Helper()
	ctx := context.Background()
	sessions, err := s.Sessions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sessions {
		runs, err := store.RunsOn(ctx, s, sessions[i].ID)
		if err != nil {
			t.Fatal(err)
		}
		for j := range runs {
			result := store.Result{Attempt: runs[j].Present(), Outcome: job.OutcomeLost}
			if _, err := s.Finish(ctx, sessions[i].ID, []store.Result{result}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Leave(ctx, sessions[i].ID); err != nil {
			t.Fatal(err)
		}
		if err := s.End(ctx, sessions[i].ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNodeBeginsANewSessionAfterItsOwnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &stubborn{Store: w.store}
		w.store, w.level = s, silent
		var cause atomic.Value
		w.exec.do = func(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
			if a.Run.Name == "long" {
				<-ctx.Done()
				cause.Store(context.Cause(ctx))
			}
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		w.apply(every10s)
		boot := w.apply(`{name: boot, schedule: {boot: true}, run: {shell: "true"}}`)
		w.apply(`{name: long, schedule: {at: ["2000-01-01T00:00:05Z"]}, run: {shell: "true"}}`)
		stop := w.start("a")
		time.Sleep(25 * time.Second)
		s.refuses.Store(true)
		endSessions(t, s.Store)
		time.Sleep(20 * time.Second)
		if c, _ := cause.Load().(error); !errors.Is(c, executor.ErrFenced) {
			t.Errorf("what ran under the session was ended because of %v", c)
		}
		before := len(w.exec.started())
		if n := s.joins.Load(); n < 5 || n > 30 {
			t.Errorf("%d tries to join in 20 s", n)
		}
		s.refuses.Store(false)
		time.Sleep(30 * time.Second)
		stop()
		if n := len(w.exec.started()) - before; n < 3 {
			t.Errorf("%d starts in the 30 s after the store has let it join again", n)
		}
		if got := w.outcomes(boot); len(got) != 1 {
			t.Errorf("the job that runs once for each process: %v", got)
		}
	})
}

func TestNodeWaitsForAStoreThatIsAwayAtItsStart(t *testing.T) {
	for _, comes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := &stubborn{Store: w.store}
			w.store, w.level = s, silent
			w.exec.do = sleeps(time.Millisecond)
			w.apply(every10s)
			s.refuses.Store(true)
			stop := w.start("a")
			time.Sleep(20 * time.Second)
			if n := s.joins.Load(); n < 5 || n > 30 {
				t.Errorf("%d tries to join in 20 s", n)
			}
			if comes {
				s.refuses.Store(false)
				time.Sleep(30 * time.Second)
				if n := len(w.exec.started()); n < 3 {
					t.Errorf("%d starts in the 30 s after the store has come", n)
				}
			}
			stop()
		})
	}
}

func TestNodeDoesNotWaitForADamagedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.store = &damaged{w.store}
		n, err := New(Config{Session: store.Session{Node: "a", Machine: "m1", DataDir: "/a"}, Log: slog.New(slog.DiscardHandler)}.On(w.store))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Run(t.Context()); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("got %v, want %v", err, store.ErrDamaged)
		}
	})
}

// damaged is a store in which no session begins.
type damaged struct{ store.Store }

func (*damaged) Join(context.Context, store.Session) (store.Session, error) {
	return store.Session{}, store.ErrDamaged
}

func TestAttemptsOfAnEndedSessionAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &stubborn{Store: w.store}
		w.store, w.level = s, silent
		w.exec.do = sleeps(time.Hour)
		j := w.apply(`{name: j, schedule: {at: ["2000-01-01T00:00:05Z"]}, run: {shell: "true"}}`)
		stop := w.start("a")
		time.Sleep(9 * time.Second)
		s.over.Store(true)
		time.Sleep(2 * time.Second)
		s.over.Store(false)
		time.Sleep(5 * time.Second)
		records, _, err := s.Attempts(context.Background(), store.HistoryQuery{Job: j.Definition.UID, Limit: 10})
		if err != nil || len(records) != 1 || records[0].Attempt.Outcome != job.OutcomeLost || records[0].Attempt.Reason.String() != executor.ErrFenced.Error() {
			t.Errorf("recorded: %+v, %v; want lost, because the node has lost touch", records, err)
		}
		stop()
	})
}

func TestUnstartedRunsOfALeavingNodeMoveInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.exec.do = func(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
			if a.Run.Name == "long" {
				return sleeps(20*time.Second)(ctx, a, out)
			}
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		w.apply(`{name: short, schedule: {cron: "* * * * * *"}, run: {shell: "true"}, place: {strategy: first}}`)
		w.apply(`{name: long, schedule: {at: ["2000-01-01T00:00:10Z"]}, run: {shell: "true"}, place: {strategy: first}}`)
		stopA := w.start("a")
		time.Sleep(3 * time.Second)
		stopB := w.start("b")
		time.Sleep(9*time.Second + 300*time.Millisecond)
		left := time.Now()
		stopA() // it takes as long as the long run
		if took := time.Since(left); took < 15*time.Second {
			t.Errorf("it has left after %s, and did not wait", took)
		}
		stopB()
		n := 0
		for _, s := range w.exec.started() {
			// The other node learns of it with its next renewal.
			if s.scheduled.After(left.Add(2500 * time.Millisecond)) {
				n++
				if late := s.at.Sub(s.scheduled); late > 20*time.Millisecond {
					t.Errorf("the run of %s has started %s after its time", s.scheduled, late)
				}
			}
		}
		if n < 12 {
			t.Errorf("%d runs have started while the node was leaving", n)
		}
	})
}

func TestStoppingWithoutASessionSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &stubborn{Store: w.store}
		w.store, w.level = s, silent
		stop := w.start("a")
		time.Sleep(5 * time.Second)
		s.refuses.Store(true)
		endSessions(t, s.Store)
		time.Sleep(5 * time.Second)
		stop()
	})
}

func TestDuplicateNodeNameIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.start("a")()
		time.Sleep(time.Second)
		for _, c := range []struct {
			name, machine string // the second node, in the first one's directory
			want          int
		}{{"b", "m2", 0}, {"a", "m2", 1}, {"a", "m1", 0}} {
			log := &logtest.Log{}
			n, err := New(Config{
				Session:   store.Session{Node: c.name, Machine: c.machine, DataDir: "/a", Roles: []string{store.RolePlanner}, Capacity: 1},
				Executors: func(*job.Job) executor.Executor { return w.exec },
				Now:       w.now, Boot: func() time.Duration { return time.Since(w.boot) },
				Log: slog.New(slog.NewTextHandler(log, nil)),
			}.On(w.store))
			if err != nil {
				t.Fatal(err)
			}
			if err := n.join(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := log.Count("another node has the same name"); got != c.want {
				t.Errorf("node %s on %s says it %d times, want %d", c.name, c.machine, got, c.want)
			}
			if err := w.store.Leave(t.Context(), n.member.Load().ID()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestBootJobsRunOncePerProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		boot := w.apply(`{name: boot, schedule: {boot: true}, run: {shell: "true"}}`)
		elsewhere := w.apply(`{name: elsewhere, schedule: {boot: true}, run: {shell: "true"}, place: {labels: {zone: b}}}`)
		for range 3 {
			stop := w.start("a")
			time.Sleep(5 * time.Second)
			stop()
		}
		if got := w.outcomes(boot); len(got) != 3 || len(w.exec.started()) != 3 {
			t.Errorf("three processes have run it %d times: %v", len(w.exec.started()), got)
		}
		left, err := w.store.ListActive(context.Background(), store.ActiveQuery{Job: elsewhere.Definition.UID, Limit: 10})
		if err != nil || len(left) != 0 {
			t.Errorf("nodes that do not fit have made the runs %v, %v", left, err)
		}
	})
}

func TestRollingRestartNeitherLosesNorDoublesRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.exec.do = sleeps(1500 * time.Millisecond)
		j := w.apply(`{name: j, schedule: {cron: "* * * * * *"}, run: {shell: "true"}, policy: {overlap: allow}}`)
		stopA := w.start("a")
		stopB := w.start("b")
		time.Sleep(10*time.Second + 300*time.Millisecond)
		for range 3 {
			stopA()
			stopA = w.start("a")
			time.Sleep(7700 * time.Millisecond)
			stopB()
			stopB = w.start("b")
			time.Sleep(7300 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		stopA()
		stopB()
		seen := map[time.Time]bool{}
		for _, s := range w.exec.started() {
			// Runs left behind are taken over within a second and a half.
			if late := s.at.Sub(s.scheduled); late > 1500*time.Millisecond || late < 0 {
				t.Errorf("the run of %s has started %s after its time", s.scheduled, late)
			}
			if seen[s.scheduled] {
				t.Errorf("the run of %s has started twice", s.scheduled)
			}
			seen[s.scheduled] = true
		}
		if got := w.outcomes(j); count(got, "succeeded") != len(got) || len(got) < 60 {
			t.Errorf("%d of %d succeeded", count(got, "succeeded"), len(got))
		}
	})
}

func TestStopEndsOverlongAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.level = silent
		w.exec.do = sleeps(time.Hour)
		j := w.apply(every10s)
		stop := w.start("a")
		time.Sleep(15 * time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took < DefaultDrainTimeout || took > DefaultDrainTimeout+time.Second {
			t.Errorf("it took %s, want the %s that a stop waits", took, DefaultDrainTimeout)
		}
		if got := w.outcomes(j); len(got) == 0 || got[0] != "lost" {
			t.Errorf("history %v, want lost", got)
		}
		if sessions, err := w.store.Sessions(context.Background()); err != nil || len(sessions) != 0 {
			t.Errorf("sessions left: %v, %v", sessions, err)
		}
	})
}

func TestAttemptsOfASilentNodeAreLostAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.level = silent
		ctx := context.Background()
		stop := w.start("a")
		time.Sleep(90 * time.Second) // it is steady
		// Another machine claims and dies.
		dead, err := w.store.Join(ctx, store.Session{ID: job.ID{1}, Node: "d", Machine: "m2", DataDir: "/d", Roles: []string{store.RoleWorker}, Capacity: 1})
		if err != nil {
			t.Fatal(err)
		}
		j := w.apply(`{name: j, run: {shell: "true"}, policy: {lost_after: 30s, kill_grace: 1s, retry: {attempts: 1, backoff: 1s, on: [lost]}}}`)
		run := job.ID{1, 1}
		item := store.TriggerItem{ID: run, Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Session: dead.ID, Actor: "test"}
		if results, err := w.store.Trigger(ctx, []store.TriggerItem{item}); err != nil || results[0].Err != nil {
			t.Fatal(results, err)
		}
		if got, err := w.store.Claim(ctx, dead.ID, []store.Attempt{{Run: run, Number: 1, Token: run}}); err != nil || got[0].Verdict != store.Started {
			t.Fatal(got, err)
		}
		claimed := time.Now()
		for len(w.outcomes(j)) == 0 && time.Since(claimed) < 2*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if after := time.Since(claimed); after < 30*time.Second || after > 31*time.Second {
			t.Errorf("lost after %s, want 30 s", after)
		}
		time.Sleep(5 * time.Second)
		stop()
		if got := w.outcomes(j); !slices.Equal(got, []string{"lost", "succeeded"}) {
			t.Errorf("history %v", got)
		}
	})
}

func TestNodeBackFromSilenceReapsNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		healthy := w.store
		f := w.withFaults() // the store is away for both nodes
		w.exec.do = sleeps(10 * time.Minute)
		stopA := w.start("a")
		stopB := w.start("b")
		time.Sleep(2 * time.Minute)
		// Its loss would free nothing, so that it may continue.
		for i := range 4 {
			w.apply(fmt.Sprintf(`{name: j%d, schedule: {at: ["2000-01-01T00:02:05Z"]}, run: {shell: "true"}, policy: {lost_after: 30s, kill_grace: 1s}, place: {strategy: round_robin}}`, i))
		}
		time.Sleep(10 * time.Second)
		f.away.Store(true)
		time.Sleep(20 * time.Second)
		f.away.Store(false)
		time.Sleep(2 * time.Minute)
		runs, err := healthy.ListActive(context.Background(), store.ActiveQuery{State: job.StateRunning, Limit: 10})
		if err != nil || len(runs) != 4 {
			t.Errorf("%d of 4 attempts are left after an outage of the store that was shorter than lost_after: %v", len(runs), err)
		}
		time.Sleep(10 * time.Minute)
		stopA()
		stopB()
	})
}

func TestOutputOfARunningAttemptIsStoredWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var run atomic.Value
		w.exec.do = func(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
			run.Store(a.Run.ID)
			fmt.Fprintln(out.Stdout, "it has begun")
			time.Sleep(5 * time.Second)
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		w.apply(every10s)
		stop := w.start("a")
		time.Sleep(11*time.Second + 10*time.Millisecond)
		id, _ := run.Load().(job.ID)
		if chunks, err := w.store.Output(context.Background(), id, 1, 0, 10); err != nil || len(chunks) != 1 {
			t.Errorf("%d chunks a second after it was written: %v", len(chunks), err)
		}
		stop()
	})
}

func TestAttemptReceivesItsNeighboursInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var data atomic.Value
		w.exec.do = func(_ context.Context, a executor.Attempt, _ executor.Output) executor.Result {
			data.Store(a.Data)
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		w.apply(`{name: j, schedule: {cron: "10,15,40 0 0 1 1 *", timezone: Asia/Shanghai}, run: {shell: "true"}, params: {who: {default: ada}}}`)
		w.apply(`{name: k, schedule: {cron: "10,15,40 0 8 1 1 *", timezone: Asia/Shanghai}, run: {shell: "true"}, params: {who: {default: ada}}}`)
		stop := w.start("a")
		time.Sleep(17 * time.Second)
		stop()
		d, _ := data.Load().(job.TemplateData)
		at := time.Date(2000, 1, 1, 0, 0, 15, 0, time.UTC)
		if !d.Scheduled.Equal(at) || !d.Previous.Equal(at.Add(-5*time.Second)) || !d.Next.Equal(at.Add(25*time.Second)) || d.Scheduled.Hour() != 8 {
			t.Errorf("previous %s, scheduled %s, next %s", d.Previous, d.Scheduled, d.Next)
		}
		if d.Params["who"] != "ada" || d.Node != "a" || d.Name != "k" || d.Attempt != 1 || d.Shards != 1 {
			t.Errorf("data %+v", d)
		}
	})
}

// slowToListen is a store whose hints begin late.
type slowToListen struct {
	store.Store
	t     *testing.T
	heard atomic.Bool
	plans atomic.Int32
}

func (s *slowToListen) Hints(ctx context.Context) <-chan store.Hint {
	time.Sleep(10 * time.Millisecond)
	defer s.heard.Store(true)
	return s.Store.Hints(ctx)
}

func (s *slowToListen) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	if s.plans.Add(1); !s.heard.Load() {
		s.t.Error("runs are planned before anybody hears of them")
	}
	return s.Store.Plan(ctx, session, items)
}

// A lost hint costs the first runs of a node a second.
func TestNodeSubscribesToHintsBeforeItPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		slow := &slowToListen{Store: w.store, t: t}
		w.store = slow
		w.apply(every10s)
		stop := w.start("a")
		time.Sleep(5 * time.Second)
		stop()
		if slow.plans.Load() == 0 {
			t.Error("nothing was planned")
		}
	})
}

func TestPendingHintsAreMerged(t *testing.T) {
	c := make(chan store.Hint, 1)
	for _, hint := range []store.Hint{store.HintJobs, store.HintRuns, store.HintCancels} {
		pass(c, hint)
	}
	if got := <-c; got != store.HintJobs|store.HintRuns|store.HintCancels {
		t.Errorf("got %b, want all that was passed", got)
	}
}

// An outage of the store is no silence of the nodes: runs of a node wait for it, and runs that fall
// due are planned for all nodes.
func TestBroadcastRunsOutliveAnOutageOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sky := &weather{
			Store: w.store, random: rand.New(rand.NewPCG(1, 2)),
			acked: map[store.Attempt]job.Outcome{}, claimed: map[attempt]time.Time{},
		}
		w.store, w.level = sky, silent
		j := w.apply(`{name: j, schedule: {every: 5s}, run: {shell: "true"}, place: {strategy: broadcast}, policy: {overlap: allow, missed: all, late_by: forever}}`)
		for _, name := range []string{"a", "b", "c"} {
			defer w.start(name)()
			time.Sleep(700 * time.Millisecond) // so that one of them returns first
		}
		time.Sleep(30 * time.Second)
		sky.set(0, 0, true)
		time.Sleep(75 * time.Second)
		sky.set(0, 0, false)
		back := time.Now()
		time.Sleep(60 * time.Second)
		records, _, err := sky.Attempts(t.Context(), store.HistoryQuery{Job: j.Definition.UID, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		nodes := map[time.Time][]string{}
		for _, r := range records {
			if r.Attempt.Outcome != job.OutcomeSucceeded {
				t.Errorf("the run of %s on %s is %s: %s", r.Run.Scheduled.Format(time.TimeOnly), r.Run.Node, r.Attempt.Outcome, r.Attempt.Reason)
			}
			at := r.Run.Scheduled.UTC()
			nodes[at] = append(nodes[at], r.Attempt.Node)
		}
		for at := back.UTC().Add(-80 * time.Second).Truncate(5 * time.Second); at.Before(back.Add(50 * time.Second)); at = at.Add(5 * time.Second) {
			if slices.Sort(nodes[at]); !slices.Equal(nodes[at], []string{"a", "b", "c"}) {
				t.Errorf("the occurrence of %s, %s after the store was back, ran on %v", at.Format(time.TimeOnly), at.Sub(back), nodes[at])
			}
		}
	})
}
