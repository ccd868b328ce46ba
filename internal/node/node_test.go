package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/server/callback"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// fake is an executor whose attempts run functions of the test.
type fake struct {
	mu     sync.Mutex
	starts []start
	do     func(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result
}

type start struct {
	name      string
	scheduled time.Time
	at        time.Time
	number    int
	kind      job.RunKind
}

func (f *fake) Run(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	if err := a.Start(); err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	f.mu.Lock()
	f.starts = append(f.starts, start{a.Run.Name, a.Run.Scheduled, time.Now(), a.Number, a.Run.Kind})
	f.mu.Unlock()
	if f.do == nil {
		return executor.Result{Outcome: job.OutcomeSucceeded}
	}
	return f.do(ctx, a, out)
}

// started returns what has started so far.
func (f *fake) started() []start {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.starts)
}

// sleeps returns an attempt that takes some time, unless it is ended earlier.
func sleeps(d time.Duration) func(context.Context, executor.Attempt, executor.Output) executor.Result {
	return func(ctx context.Context, _ executor.Attempt, _ executor.Output) executor.Result {
		select {
		case <-time.After(d):
			return executor.Result{Outcome: job.OutcomeSucceeded}
		case <-ctx.Done():
			outcome, reason := executor.ByCause(ctx)
			return executor.Result{Outcome: outcome, Reason: reason}
		}
	}
}

func fails(context.Context, executor.Attempt, executor.Output) executor.Result {
	return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text("exit status 1")}
}

// world is a store and the nodes on it, in a bubble of fake time.
type world struct {
	t     *testing.T
	store store.Store
	exec  *fake
	boot  time.Time
	now   func() time.Time

	capacity int
	level    slog.Level
	wrote    func(run job.ID)
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, exec: &fake{}, boot: time.Now(), now: time.Now, level: slog.LevelError}
	w.store = memory.New(memory.Options{Now: func() time.Time { return w.now() }})
	return w
}

// start runs a node until the returned function is called, which stops it gently
// and waits.
func (w *world) start(name string) (stop func()) {
	w.t.Helper()
	n, err := New(Config{
		Session:   store.Session{Node: name, Machine: "m1", DataDir: "/" + name, Roles: []string{store.RolePlanner, store.RoleWorker}, Capacity: 100},
		Executors: func(*job.Job) executor.Executor { return w.exec },
		Keepers:   []Keeper{callback.New(w.store, func() time.Duration { return time.Since(w.boot) })},
		Capacity:  w.capacity,
		Wrote:     w.wrote,
		Now:       func() time.Time { return w.now() },
		Boot:      func() time.Duration { return time.Since(w.boot) },
		Log:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: w.level})),
	}.On(w.store))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.run(n)
}

// run runs a node until stop is called, which stops it gently and waits.
func (w *world) run(n *Node) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return func() {
		w.t.Helper()
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

// Followers of output depend on this.
func TestNodeAnnouncesStoredOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var told []job.ID
		w.wrote = func(run job.ID) {
			if list, err := w.store.Output(t.Context(), run, 1, 0, 10); err != nil || len(list) != len(told)+1 {
				t.Errorf("after the notice of more there are %d chunks, %v", len(list), err)
			}
			told = append(told, run)
		}
		var run job.ID
		w.exec.do = func(_ context.Context, a executor.Attempt, out executor.Output) executor.Result {
			run = a.Run.ID
			for range 3 {
				_, _ = fmt.Fprintln(out.Stdout, "hello")
				time.Sleep(2 * time.Second)
			}
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		stop := w.start("a")
		w.apply("{name: a, schedule: {every: 1h, start: " + time.Now().UTC().Add(10*time.Second).Format(time.RFC3339) + ", align: start}, run: {shell: \"true\"}}")
		time.Sleep(time.Minute)
		stop()
		if want := []job.ID{run, run, run}; !slices.Equal(told, want) {
			t.Errorf("told was %v, want %v", told, want)
		}
	})
}

// apply creates or changes a job given in YAML.
func (w *world) apply(yaml string) *store.Job {
	w.t.Helper()
	return put(w.t, w.store, yaml)
}

func put(t *testing.T, s store.Store, yaml string) *store.Job {
	t.Helper()
	docs, err := job.Decode("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	j, err := store.PutOne(context.Background(), s, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// outcomes returns what became of the runs of a job, in the order of their end.
func (w *world) outcomes(j *store.Job) []string {
	w.t.Helper()
	records, _, err := w.store.Attempts(context.Background(), store.HistoryQuery{Job: j.Definition.UID, Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Reverse(records)
	var list []string
	for _, r := range records {
		list = append(list, string(r.Attempt.Outcome))
	}
	return list
}

func count(list []string, value string) int {
	n := 0
	for _, v := range list {
		if v == value {
			n++
		}
	}
	return n
}

const every10s = `
name: tick
schedule: {cron: "*/10 * * * * *"}
run: {shell: "true"}
`

func TestOccurrencesStartAtTheirInstantOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.start("a")
		j := w.apply(every10s)
		time.Sleep(61 * time.Second)
		stop()
		if len(w.exec.started()) != 6 {
			t.Fatalf("%d starts in a minute, want 6: %v", len(w.exec.started()), w.exec.started())
		}
		for _, s := range w.exec.started() {
			if late := s.at.Sub(s.scheduled); late < 0 || late > 2*time.Millisecond {
				t.Errorf("the run of %s has started %s late", s.scheduled, late)
			}
		}
		if got := w.outcomes(j); count(got, "succeeded") != 6 {
			t.Errorf("history has %v", got)
		}
	})
}

func TestPoliciesOnOneNode(t *testing.T) {
	for _, c := range []struct {
		name string
		yaml string
		do   func(context.Context, executor.Attempt, executor.Output) executor.Result
		took time.Duration
		want map[string]int
	}{
		{
			name: "an overlapping run is skipped",
			yaml: `{name: j, schedule: {cron: "*/10 * * * * *"}, run: {shell: "true"}}`,
			do:   sleeps(15 * time.Second), took: 46 * time.Second,
			want: map[string]int{"succeeded": 2, "skipped": 2},
		},
		{
			name: "one waits in the queue",
			yaml: `{name: j, schedule: {cron: "*/10 * * * * *"}, run: {shell: "true"}, policy: {overlap: queue}}`,
			do:   sleeps(15 * time.Second), took: 56 * time.Second,
			want: map[string]int{"succeeded": 3},
		},
		{
			name: "the newer one replaces",
			yaml: `{name: j, schedule: {cron: "*/10 * * * * *"}, run: {shell: "true"}, policy: {overlap: replace}}`,
			do:   sleeps(15 * time.Second), took: 35 * time.Second,
			want: map[string]int{"cancelled": 2},
		},
		{
			name: "all run beside each other",
			yaml: `{name: j, schedule: {cron: "*/10 * * * * *"}, run: {shell: "true"}, policy: {overlap: allow}}`,
			do:   sleeps(15 * time.Second), took: 48 * time.Second,
			want: map[string]int{"succeeded": 3},
		},
		{
			name: "retries follow with backoff",
			yaml: `{name: j, schedule: {cron: "0 * * * * *"}, run: {shell: "true"}, policy: {retry: {attempts: 2, backoff: 5s}}}`,
			do:   fails, took: 100 * time.Second,
			want: map[string]int{"failed": 3},
		},
		{
			name: "a timeout ends an attempt",
			yaml: `{name: j, schedule: {cron: "0 * * * * *"}, run: {shell: "true"}, policy: {timeout: 5s}}`,
			do:   sleeps(time.Hour), took: 70 * time.Second,
			want: map[string]int{"timed_out": 1},
		},
		{
			name: "a job pauses after failures in a row",
			yaml: `{name: j, schedule: {cron: "*/10 * * * * *"}, run: {shell: "true"}, policy: {pause_on_failure: 2}}`,
			do:   fails, took: 65 * time.Second,
			want: map[string]int{"failed": 2},
		},
		{
			name: "a fixed delay after the end",
			yaml: `{name: j, schedule: {after_end: 10s}, run: {shell: "true"}}`,
			do:   sleeps(5 * time.Second), took: 47 * time.Second,
			want: map[string]int{"succeeded": 3},
		},
		{
			name: "at most so many runs",
			yaml: `{name: j, schedule: {cron: "*/10 * * * * *", max_runs: 3}, run: {shell: "true"}}`,
			took: 65 * time.Second,
			want: map[string]int{"succeeded": 3},
		},
		{
			name: "single instants",
			yaml: `{name: j, schedule: {at: ["2000-01-01T00:00:07Z", "2000-01-01T00:00:09Z"]}, run: {shell: "true"}}`,
			took: 30 * time.Second,
			want: map[string]int{"succeeded": 2},
		},
		{
			name: "once for each start of a node",
			yaml: `{name: j, schedule: {boot: true}, run: {shell: "true"}}`,
			took: 30 * time.Second,
			want: map[string]int{"succeeded": 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.exec.do = c.do
				j := w.apply(c.yaml)
				stop := w.start("a")
				time.Sleep(c.took)
				got := w.outcomes(j)
				for outcome, want := range c.want {
					if n := count(got, outcome); n != want {
						t.Errorf("%s: got %d, want %d; history: %v", outcome, n, want, got)
					}
				}
				stop()
			})
		})
	}
}

func TestOneOffJobIsRemovedAfterItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.apply(`{name: once, schedule: {at: ["2000-01-01T00:00:10Z"], delete_after: 0s}, run: {shell: "true"}}`)
		stop := w.start("a")
		time.Sleep(9 * time.Second)
		if _, err := store.JobNamed(context.Background(), w.store, "default", "once"); err != nil {
			t.Errorf("before it has run: %v", err)
		}
		time.Sleep(6 * time.Second)
		if got := w.outcomes(j); len(got) != 1 || got[0] != "succeeded" {
			t.Errorf("history %v, want one that succeeded", got)
		}
		if _, err := store.JobNamed(context.Background(), w.store, "default", "once"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("afterwards: %v, want it to be gone", err)
		}
		stop()
	})
}

func TestFollowersRunAfterTheirJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.apply(every10s)
		w.apply(`{name: after, schedule: {on: [{job: tick, outcome: succeeded}]}, run: {shell: "true"}}`)
		stop := w.start("a")
		time.Sleep(35 * time.Second)
		stop()
		n := 0
		for _, s := range w.exec.started() {
			if s.name == "after" {
				n++
				if late := s.at.Sub(s.scheduled); late > time.Second {
					t.Errorf("the follower of %s has started %s later", s.scheduled, late)
				}
			}
		}
		if n != 3 {
			t.Errorf("%d followers in 35 s, want 3", n)
		}
	})
}

func TestPausedJobStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.apply(every10s)
		stop := w.start("a")
		time.Sleep(25 * time.Second)
		w.apply(strings.Replace(every10s, "name: tick", "name: tick\npaused: true", 1))
		before := len(w.exec.started())
		time.Sleep(time.Minute)
		if got := len(w.exec.started()); got != before {
			t.Errorf("%d starts after the pause", got-before)
		}
		w.apply(every10s)
		time.Sleep(21 * time.Second)
		if got := len(w.exec.started()) - before; got != 2 {
			t.Errorf("%d starts in 21 s after the resume, want 2", got)
		}
		stop()
	})
}

func TestRestartNeitherLosesNorDoublesRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.apply(every10s)
		for range 5 {
			stop := w.start("a")
			time.Sleep(23 * time.Second)
			stop()
		}
		got := w.outcomes(j)
		if count(got, "succeeded") != 11 || len(got) != 11 {
			t.Errorf("in 115 s with five restarts: %v, want 11 succeeded", got)
		}
	})
}

func TestDowntimeFollowsTheMissedPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.apply(every10s)
		stop := w.start("a")
		time.Sleep(25 * time.Second)
		stop()
		time.Sleep(10 * time.Minute)
		stop = w.start("a")
		time.Sleep(time.Second)
		stop()
		// Occurrences planned ahead before the stop, then one caught up after the downtime, then
		// three that are at most 30 s old.
		records, _, err := w.store.Attempts(context.Background(), store.HistoryQuery{Job: j.Definition.UID, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		accounted := 0
		for _, r := range records {
			accounted += max(1, r.Count)
		}
		if want := int((25*time.Second + 10*time.Minute) / (10 * time.Second)); accounted < want-1 || accounted > want+1 {
			t.Errorf("%d occurrences are accounted for, %d fell due", accounted, want)
		}
	})
}

func TestClockStepDoublesNothing(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var offset time.Duration
			var mu sync.Mutex
			w.now = func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(offset).Round(0)
			}
			w.apply(every10s)
			stop := w.start("a")
			time.Sleep(25 * time.Second)
			mu.Lock()
			offset = step
			mu.Unlock()
			time.Sleep(65 * time.Second)
			stop()
			seen := map[time.Time]bool{}
			for _, s := range w.exec.started() {
				if seen[s.scheduled] {
					t.Errorf("step %s: the occurrence of %s has started twice", step, s.scheduled)
				}
				seen[s.scheduled] = true
			}
			if step > 0 && len(seen) < 2+6 {
				t.Errorf("step %s: only %d occurrences in 90 s", step, len(seen))
			}
		})
	}
}

func TestCancelEndsARunningAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.exec.do = sleeps(time.Hour)
		j := w.apply(every10s)
		stop := w.start("a")
		time.Sleep(12 * time.Second)
		running, err := w.store.ListActive(context.Background(), store.ActiveQuery{Job: j.Definition.UID, State: job.StateRunning, Limit: 10})
		if err != nil || len(running) != 1 {
			t.Fatalf("running: %v, %v", running, err)
		}
		if _, err := w.store.Cancel(context.Background(), running[0].ID, "ada", "not today"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		records, err := w.store.AttemptsOf(context.Background(), running[0].ID)
		if err != nil || len(records) != 1 || records[0].Attempt.Outcome != job.OutcomeCancelled || !strings.Contains(records[0].Attempt.Reason.String(), "not today") {
			t.Errorf("history has %v, %v", records, err)
		}
		stop()
	})
}
