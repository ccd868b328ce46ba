package belfry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/belfrytest"
	"github.com/belfry-cron/belfry/job"
)

// notes is a list that handlers write.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, fmt.Sprintf(format, args...))
}

func (n *notes) sorted() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(slices.Values(n.list))
}

func (n *notes) String() string { return strings.Join(n.sorted(), ", ") }

func newLight(t *testing.T, options ...belfry.Option) *belfry.Scheduler {
	return belfry.New(belfry.Light(), append(belfrytest.Options(t), options...)...)
}

// Each handler receives the same runs, at the same times, with and without a store.
func TestLightModeRunsTheSameDeclarations(t *testing.T) {
	started := func(t *testing.T, s *belfry.Scheduler) []string {
		var seen notes
		note := func(work time.Duration, err error) belfry.JobOption {
			return belfry.Func(func(ctx context.Context, run *belfry.Run) error {
				const at = "15:04:05 MST" // a store records ends some milliseconds later
				seen.add("%s %s attempt %d at %s for %s after %s before %s, shard %d of %d, on %s in %s", run.Job, run.Kind, run.Attempt, time.Now().UTC().Format(at),
					run.Scheduled.Format(at), run.Previous.Format(at), run.Next.Format(at), run.Shard, run.Shards, run.Node, run.Namespace)
				select {
				case <-time.After(work):
				case <-ctx.Done():
					seen.add("%s ended at %s: %v", run.Job, time.Now().Format(at), context.Cause(ctx))
				}
				return err
			})
		}
		failed := errors.New("no connection")
		none := belfry.Missed(job.MissedNone)
		s.Job("minutely", belfry.Cron("* * * * *"), belfry.Timezone("Asia/Kolkata"), none, note(0, nil))
		s.Job("hashed", belfry.Cron("H H * * *"), none, note(0, nil))
		s.Job("union", belfry.Cron("*/7 * * * *", "30 10 * * * *"), none, note(0, nil))
		s.Job("workdays", belfry.Cron("0 * * * *"), belfry.Edit(func(j *job.Job) { j.Schedule.Only = []string{"mon-fri"} }), none, note(0, nil))
		s.Job("often", belfry.Every(7*time.Second), none, note(0, nil))
		s.Job("skip", belfry.Every(10*time.Second), none, note(25*time.Second, nil))
		s.Job("queue", belfry.Every(20*time.Second), belfry.Overlap(job.OverlapQueue), none, note(21500*time.Millisecond, nil))
		s.Job("two", belfry.Every(10*time.Second), belfry.MaxParallel(2), none, note(25*time.Second, nil))
		s.Job("allow", belfry.Every(10*time.Second), belfry.Overlap(job.OverlapAllow), none, note(25*time.Second, nil))
		s.Job("retry", belfry.Every(time.Minute), belfry.Retry(3, time.Second), none, note(0, failed))
		s.Job("permanent", belfry.Every(time.Minute), belfry.Retry(3, time.Second), none, note(0, belfry.Permanent(failed)))
		s.Job("timeout", belfry.Every(time.Minute), belfry.Timeout(5*time.Second), none, note(time.Hour, nil))
		s.Job("paused", belfry.Every(time.Minute), belfry.PauseOnFailure(3), none, note(0, failed))
		s.Job("limited", belfry.Every(time.Minute), belfry.MaxRuns(4), none, note(0, nil))
		s.Job("later", belfry.Every(time.Minute), belfry.Starting(time.Now().Add(3*time.Minute)), none, note(0, nil))
		s.Job("instants", belfry.At(time.Now().Add(time.Minute), time.Now().Add(5*time.Minute)), none, note(0, nil))
		s.Job("rare", belfry.Cron("0 0 29 2 *"), none, note(0, nil))
		s.Job("by-hand", note(0, nil))
		belfrytest.Run(t, s)
		belfrytest.Advance(10*time.Minute - 3*time.Second)
		return seen.sorted()
	}
	var want, got []string
	synctest.Test(t, func(t *testing.T) { want = started(t, belfrytest.New(t)) })
	synctest.Test(t, func(t *testing.T) { got = started(t, newLight(t, belfry.WithLogger(slog.New(slog.DiscardHandler)))) })
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("light mode has no\n%s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("light mode alone has\n%s", line)
		}
	}
	if len(want) < 300 || len(want) != len(got) {
		t.Errorf("%d runs with a store, %d in light mode", len(want), len(got))
	}
}

func TestLightModeSaysWhatItLacks(t *testing.T) {
	s := newLight(t, belfry.WithSpool(t.TempDir()))
	work := belfry.Func(func(context.Context, *belfry.Run) error { return nil })
	flow := belfry.NewFlow[belfry.None](s, "flow")
	belfry.Step(flow, "a", func(context.Context, *belfry.Run, belfry.None) (belfry.None, error) { return belfry.None{}, nil })
	for what, option := range map[string]belfry.JobOption{
		"a flow": flow.Do(belfry.None{}), "On": belfry.On("other"), "Pool": belfry.Pool("db"), "Keep": belfry.Keep(job.Keep{Runs: 1}), "Missed": belfry.Missed(job.MissedAll),
		"Shards": belfry.Shards(2), "Strategy": belfry.Broadcast(), "PlaceOn": belfry.PlaceOn(map[string]string{"zone": "a"}), "Priority": belfry.Priority(3),
		"calendars": belfry.Edit(func(j *job.Job) {
			j.Schedule.Every, j.Schedule.Only = job.Duration(time.Hour), []string{"holidays"}
		}),
	} {
		s := newLight(t)
		s.Job("night", work, option)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), `light_test.go:`) || !strings.Contains(err.Error(), `job "night": `+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "WithSpool") {
		t.Errorf("a spool: %v", err)
	}
	s = newLight(t)
	s.Job("other", belfry.Do("nothing", belfry.None{}), belfry.Every(time.Second))
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `the handler "nothing" is not registered`) {
		t.Errorf("a handler of another program: %v", err)
	}
	s = belfrytest.New(t)
	s.Job("own", work, belfry.Schedule(odd{}))
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "Schedule is for light mode") {
		t.Errorf("a schedule of the program in a store: %v", err)
	}
}

// odd is a schedule of a program: the odd seconds.
type odd struct{}

func (odd) Next(t time.Time) time.Time {
	t = t.Truncate(time.Second).Add(time.Second)
	return t.Add(time.Duration(1-t.Second()%2) * time.Second)
}

func TestLightModeAnswersCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLight(t)
		ctx := t.Context()
		var seen notes
		double := belfry.Handle(s, "double", func(ctx context.Context, run *belfry.Run, in struct{ N int }) (int, error) {
			seen.add("%d at %s", in.N, time.Now().Format("04:05"))
			select {
			case <-time.After(time.Second):
				return 2 * in.N, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		})
		s.Job("twice", double.Do(struct{ N int }{7}))
		belfrytest.Run(t, s)
		id, err := double.Trigger(ctx, "twice", struct{ N int }{21})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := double.Result(ctx, id); err != nil || got != 42 {
			t.Errorf("the result is %d, %v", got, err)
		}
		if got, err := double.Result(ctx, id); err != nil || got != 42 {
			t.Errorf("after its end the result is %d, %v", got, err)
		}
		id, err = s.Trigger(ctx, "twice")
		synctest.Wait()
		if err := errors.Join(err, s.Cancel(ctx, id, "not needed")); err != nil {
			t.Fatal(err)
		}
		if run, err := s.Wait(ctx, id); err != nil || run.Outcome != job.OutcomeCancelled || !strings.Contains(run.Reason, "not needed") {
			t.Errorf("a cancelled run has %s (%s), %v", run.Outcome, run.Reason, err)
		}
		if err := s.Cancel(ctx, id, "again"); !errors.Is(err, belfry.ErrNotFound) {
			t.Errorf("a second cancel: %v", err)
		}
		if _, err := s.Trigger(ctx, "twice", belfry.Params(map[string]string{"M": "1"})); !errors.Is(err, belfry.ErrInvalid) {
			t.Errorf("an unknown parameter: %v", err)
		}
		if _, err := s.Trigger(ctx, "thrice"); !errors.Is(err, belfry.ErrNotFound) {
			t.Errorf("an unknown job: %v", err)
		}
		if _, err := s.Output(ctx, id); err == nil || !strings.Contains(err.Error(), "light mode keeps no history") {
			t.Errorf("its output: %v", err)
		}

		every := []belfry.JobOption{belfry.Every(10 * time.Second), double.Do(struct{ N int }{1})}
		if err := s.Add(ctx, "customer", every...); err != nil {
			t.Fatal(err)
		}
		if err := s.Add(ctx, "customer", every...); !errors.Is(err, belfry.ErrExists) {
			t.Errorf("a second Add: %v", err)
		}
		if err := s.Update(ctx, "client", every...); !errors.Is(err, belfry.ErrNotFound) {
			t.Errorf("an Update of nothing: %v", err)
		}
		if err := s.Add(ctx, "wrong", belfry.Every(time.Millisecond), double.Do(struct{ N int }{1})); !errors.Is(err, belfry.ErrInvalid) {
			t.Errorf("a wrong option: %v", err)
		}
		if err := s.Add(ctx, "once", belfry.After(15*time.Second), belfry.Func(func(context.Context, *belfry.Run) error { seen.add("once"); return nil })); err != nil {
			t.Fatal(err)
		}
		seen.mu.Lock()
		seen.list = nil
		seen.mu.Unlock()
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 25*time.Second)))
		if err := s.Pause(ctx, "customer", "maintenance", time.Now().Add(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		belfrytest.Advance(30 * time.Second) // 01:55, since it was resumed at 01:45
		if err := s.Update(ctx, "customer", belfry.Every(20*time.Second), double.Do(struct{ N int }{5})); err != nil {
			t.Fatal(err)
		}
		belfrytest.Advance(20 * time.Second)
		if next, err := s.Next(ctx, "customer", 2); err != nil || len(next) != 2 || next[1].Sub(next[0]) != 20*time.Second {
			t.Errorf("next at %v, %v", next, err)
		}
		runs, err := s.Runs(ctx, "customer", 5)
		if err != nil || len(runs) != 1 || runs[0].Outcome != job.OutcomeSucceeded || runs[0].Ended.Sub(runs[0].Started) != time.Second {
			t.Errorf("its runs are %+v, %v", runs, err)
		}
		if c, err := s.Counts("customer"); err != nil || c.Succeeded < 5 || c.Failed != 0 {
			t.Errorf("it has %+v, %v", c, err)
		}
		if err := s.Remove(ctx, "customer"); err != nil {
			t.Fatal(err)
		}
		belfrytest.Advance(2 * time.Hour)
		if text := seen.String(); !strings.Contains(text, "1 at 01:20, 1 at 01:50, 5 at 02:00, once") || strings.Contains(text, "5 at 02:20") {
			t.Errorf("ran %s", text)
		}
		if _, err := s.Next(ctx, "once", 1); !errors.Is(err, belfry.ErrNotFound) {
			t.Errorf("a job of After is there for ever: %v", err)
		}
	})
}

func TestLightModeReplacesARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLight(t)
		var seen notes
		s.Job("newest", belfry.Every(10*time.Second), belfry.Overlap(job.OverlapReplace), belfry.Func(func(ctx context.Context, run *belfry.Run) error {
			<-ctx.Done()
			seen.add("%s until %s: %v", run.Scheduled.Format("05"), time.Now().Format("05"), errors.Is(context.Cause(ctx), belfry.ErrCancelled))
			return ctx.Err()
		}))
		s.Job("chain", belfry.AfterEnd(10*time.Second), belfry.Func(func(_ context.Context, run *belfry.Run) error {
			seen.add("chain %s", time.Now().Format("05"))
			time.Sleep(5 * time.Second)
			return nil
		}))
		s.Job("boot", belfry.Boot(), belfry.Func(func(context.Context, *belfry.Run) error { seen.add("boot"); return nil }))
		s.Job("jitter", belfry.Every(10*time.Second), belfry.Jitter(5*time.Second), belfry.Func(func(_ context.Context, run *belfry.Run) error {
			if late := time.Since(run.Scheduled); late >= 5*time.Second {
				seen.add("late by %s", late)
			}
			return nil
		}))
		stop := belfrytest.Run(t, s)
		belfrytest.Advance(32 * time.Second)
		if c, err := s.Counts("jitter"); err != nil || c.Succeeded != 3 && c.Succeeded != 2 {
			t.Errorf("the runs with jitter are %+v, %v", c, err)
		}
		if want := "10 until 20: true, 20 until 30: true, boot, chain 10, chain 25"; seen.String() != want {
			t.Errorf("ran %s, want %s", &seen, want)
		}
		stop()
		if !strings.Contains(seen.String(), "30 until 02: false") { // after the drain timeout
			t.Errorf("after the stop: %s", &seen)
		}
	})
}

func TestAHandlerThatBlocksKeepsNoOtherFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLight(t, belfry.WithCapacity(60))
		var seen notes
		for i := range 100 {
			s.Job(fmt.Sprintf("job-%02d", i), belfry.Every(time.Minute), belfry.LateBy(time.Minute), belfry.Func(func(_ context.Context, run *belfry.Run) error {
				seen.add("%02d", time.Now().Second())
				switch i {
				case 10:
					runtime.Goexit()
				case 20:
					panic("out of cheese")
				}
				time.Sleep(10 * time.Second)
				return nil
			}))
		}
		belfrytest.Run(t, s)
		belfrytest.Advance(80 * time.Second)
		want := slices.Concat(slices.Repeat([]string{"00"}, 62), slices.Repeat([]string{"10"}, 38)) // slots of two ended runs were free again
		if got := seen.sorted(); !slices.Equal(got, want) {
			t.Errorf("started at %v", got)
		}
		for name, failed := range map[string]int{"job-10": 1, "job-20": 1, "job-30": 0} {
			if c, err := s.Counts(name); err != nil || c.Failed != failed || c.Succeeded != 1-failed {
				t.Errorf("%s has %+v, %v", name, c, err)
			}
		}
	})
}

// Runs due before a stop still start, as in robfig/cron, even if they must wait for capacity.
func TestWhatIsDueBeforeAStopStillStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLight(t, belfry.WithCapacity(1))
		var seen notes
		for i := range 3 {
			s.Job(fmt.Sprintf("job-%d", i), belfry.Every(time.Minute), belfry.LateBy(time.Minute), belfry.Func(func(context.Context, *belfry.Run) error {
				seen.add("%02d", time.Now().Second())
				time.Sleep(4 * time.Second)
				return nil
			}))
		}
		stop := belfrytest.Run(t, s)
		belfrytest.Advance(61 * time.Second)
		stop()
		if got := seen.sorted(); !slices.Equal(got, []string{"00", "04", "08"}) {
			t.Errorf("started at %v", got)
		}
	})
}

func TestLightModeLogsWhatItDoesNotKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := newLight(t, belfry.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		s.Job("talks", belfry.Every(time.Minute), belfry.Retry(1, time.Second), belfry.Func(func(_ context.Context, run *belfry.Run) error {
			run.Log.Debug("nothing")
			run.Log.With("shop", 7).WithGroup("row").Info("said", "n", 1)
			fmt.Fprintln(run, "written")
			panic("out of cheese")
		}))
		stop := belfrytest.Run(t, s)
		belfrytest.Advance(62 * time.Second)
		stop()
		text := out.String()
		for _, want := range []string{
			"msg=said job=talks run=", "shop=7 row.n=1", "msg=written job=talks", `msg="panic: out of cheese`, "light_test.go:",
			`msg="a run has failed; it is tried again" job=talks attempt=1`, `level=ERROR msg="a run has failed" job=talks outcome=failed reason="panic: out of cheese" attempt=2`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the log has no %q:\n%s", want, text)
			}
		}
		if strings.Contains(text, "nothing") {
			t.Errorf("the log has what is below its level:\n%s", text)
		}
	})
}

// A caller that waits from the first attempt on receives the result of the last.
func TestWaitSeesTheLastAttemptOfALightRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLight(t)
		h := belfry.Handle(s, "flaky", func(_ context.Context, run *belfry.Run, _ belfry.None) (int, error) {
			if time.Sleep(time.Second); run.Attempt < 3 {
				return 0, errors.New("no connection")
			}
			return run.Attempt, nil
		})
		s.Job("flaky", belfry.Retry(5, time.Second), h.Do(belfry.None{}))
		belfrytest.Run(t, s)
		id, err := s.Trigger(t.Context(), "flaky")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Result(t.Context(), id); err != nil || got != 3 {
			t.Errorf("the result is %d, %v", got, err)
		}
		if run, err := s.Wait(t.Context(), id); err != nil || run.Attempt != 3 || run.Ended.Sub(run.Started) != 6*time.Second {
			t.Errorf("the run is %+v, %v", run, err)
		}
	})
}

// The context that an abandoned handler uses ends with its run.
func TestTheContextOfALightRunEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLight(t)
		var left context.Context
		s.Job("leaves", belfry.Every(time.Minute), belfry.Func(func(ctx context.Context, _ *belfry.Run) error {
			left = ctx //nolint:fatcontext // it is what a handler may leave behind
			return nil
		}))
		belfrytest.Run(t, s)
		belfrytest.Advance(time.Minute)
		if left.Err() == nil {
			t.Error("it has not ended")
		}
	})
}

func ExampleLight() {
	s := belfry.New(belfry.Light())
	s.Job("heartbeat", belfry.Every(10*time.Millisecond), belfry.Func(func(context.Context, *belfry.Run) error {
		return nil
	}))
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	fmt.Println(s.Run(ctx))
	// Output: <nil>
}
