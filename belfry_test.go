package belfry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/belfrytest"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

type cleanup struct {
	Days   int           `json:"days"`
	Table  string        `json:"table"`
	Within time.Duration `json:"within"`
}

type report struct {
	Deleted int    `json:"deleted"`
	Table   string `json:"table"`
}

func TestAHandlerTakesTheInputOfItsJobAndReturnsAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		clean := belfry.Handle(s, "cleanup", func(_ context.Context, run *belfry.Run, in cleanup) (report, error) {
			run.Log.Info("cleaning", "table", in.Table, "within", in.Within)
			return report{in.Days * 10, in.Table}, nil
		})
		s.Job("nightly", belfry.Cron("30 2 * * *"), clean.Do(cleanup{30, "orders", time.Minute}))
		belfrytest.Run(t, s)
		id, err := s.Trigger(t.Context(), "nightly")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := clean.Result(t.Context(), id); err != nil || got != (report{300, "orders"}) {
			t.Errorf("the result is %+v, %v", got, err)
		}
		if text, err := s.Output(t.Context(), id); err != nil || !strings.Contains(text, "cleaning table=orders within=1m0s") || !strings.Contains(text, `{"deleted":300,"table":"orders"}`) {
			t.Errorf("the output is %q, %v", text, err)
		}
		other, err := clean.Trigger(t.Context(), "nightly", cleanup{Days: 7, Table: "users"})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := clean.Result(t.Context(), other); err != nil || got != (report{70, "users"}) {
			t.Errorf("the result of a run with another input is %+v, %v", got, err)
		}
		// In the form of the command line.
		third, err := s.Trigger(t.Context(), "nightly", belfry.Params(map[string]string{"days": "two"}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = clean.Result(t.Context(), third)
		var failed *belfry.RunError
		if !errors.As(err, &failed) || !strings.Contains(failed.Run.Reason, `parameter days: "two" is not a value of int`) {
			t.Errorf("an input that cannot be read is answered with %v", err)
		}
	})
}

func TestAProgramThatIsStoppedWhileItStartsHasNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := belfry.New(func(ctx context.Context) (store.Store, error) {
		cancel() // a signal arrives while it connects
		return nil, fmt.Errorf("connect: %w", ctx.Err())
	})
	if err := s.Run(ctx); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestARunKnowsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		var runs []belfry.Run
		s.Job("hourly", belfry.Cron("0 * * * *"), belfry.Timezone("Asia/Shanghai"), belfry.Func(func(_ context.Context, run *belfry.Run) error {
			runs = append(runs, belfry.Run{Job: run.Job, Namespace: run.Namespace, Kind: run.Kind, Attempt: run.Attempt, Shard: run.Shard, Shards: run.Shards,
				Scheduled: run.Scheduled, Previous: run.Previous, Next: run.Next})
			return nil
		}))
		belfrytest.Run(t, s)
		belfrytest.Advance(61 * time.Minute)
		if len(runs) != 1 {
			t.Fatalf("%d runs in 61 minutes", len(runs))
		}
		r := &runs[0]
		if r.Job != "hourly" || r.Namespace != "default" || r.Kind != job.RunScheduled || r.Attempt != 1 || r.Shard != 0 || r.Shards != 1 {
			t.Errorf("the run is %+v", r)
		}
		if r.Scheduled.Format(time.RFC3339) != "2000-01-01T09:00:00+08:00" || r.Scheduled.Sub(r.Previous) != time.Hour || r.Next.Sub(r.Scheduled) != time.Hour {
			t.Errorf("scheduled %s between %s and %s", r.Scheduled, r.Previous, r.Next)
		}
	})
}

func TestFailuresAreRetriedUnlessTheyArePermanent(t *testing.T) {
	for _, c := range []struct {
		name     string
		fail     func() error
		attempts int
		reason   string
	}{
		{"an error", func() error { return errors.New("no connection") }, 3, "no connection"},
		{"a permanent error", func() error { return fmt.Errorf("order 7: %w", belfry.Permanent(errors.New("no such order"))) }, 1, "order 7: no such order"},
		{"a panic", func() error { panic("out of cheese") }, 3, "panic: out of cheese"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := belfrytest.New(t)
				h := belfry.HandleFunc(s, "fails", func(context.Context, *belfry.Run) error { return c.fail() })
				belfrytest.Run(t, s)
				call := belfrytest.Do(t, s, h, belfry.None{}, belfry.Retry(2, time.Second))
				if call.Run.Outcome != job.OutcomeFailed || call.Run.Reason != c.reason || len(call.Run.Attempts) != c.attempts {
					t.Errorf("the run has %s after %d attempts: %s", call.Run.Outcome, len(call.Run.Attempts), call.Run.Reason)
				}
				if strings.HasPrefix(c.reason, "panic") && !strings.Contains(call.Output, "belfry_test.go:") {
					t.Errorf("the output has no stack:\n%s", call.Output)
				}
			})
		})
	}
}

func TestTheContextOfAHandlerEndsWithTheReason(t *testing.T) {
	for _, c := range []struct {
		name    string
		end     func(ctx context.Context, s *belfry.Scheduler, id belfry.RunID) error
		options []belfry.JobOption
		cause   error
		outcome job.Outcome
	}{
		{"a timeout", nil, []belfry.JobOption{belfry.Timeout(5 * time.Second)}, belfry.ErrTimeout, job.OutcomeTimedOut},
		{"a cancel", func(ctx context.Context, s *belfry.Scheduler, id belfry.RunID) error {
			return s.Cancel(ctx, id, "not needed any more")
		}, nil, belfry.ErrCancelled, job.OutcomeCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := belfrytest.New(t)
				var cause error
				h := belfry.HandleFunc(s, "waits", func(ctx context.Context, _ *belfry.Run) error {
					<-ctx.Done()
					cause = context.Cause(ctx)
					return ctx.Err()
				})
				s.Job("wait", append(c.options, h.Do(belfry.None{}))...)
				belfrytest.Run(t, s)
				id, err := s.Trigger(t.Context(), "wait")
				if err != nil {
					t.Fatal(err)
				}
				belfrytest.Advance(2 * time.Second)
				if c.end != nil {
					if err := c.end(t.Context(), s, id); err != nil {
						t.Fatal(err)
					}
				}
				run, err := s.Wait(t.Context(), id)
				if err != nil || run.Outcome != c.outcome || !errors.Is(cause, c.cause) {
					t.Errorf("the run is %s: %s; the cause was %v, %v", run.Outcome, run.Reason, cause, err)
				}
			})
		})
	}
}

func TestHandlerThatIgnoresItsContextKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		var now, most atomic.Int32
		s.Job("stubborn", belfry.Every(10*time.Second), belfry.Timeout(2*time.Second), belfry.Edit(func(j *job.Job) {
			j.Policy.KillGrace = new(job.Duration(time.Second))
		}), belfry.Func(func(context.Context, *belfry.Run) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(25 * time.Second)
			now.Add(-1)
			return errors.New("late")
		}))
		belfrytest.Run(t, s)
		belfrytest.Advance(2 * time.Minute)
		if most.Load() != 1 {
			t.Errorf("%d ran side by side", most.Load())
		}
		outcomes := map[job.Outcome]int{}
		for _, run := range belfrytest.Ended(t, s, "stubborn") {
			outcomes[run.Outcome]++
		}
		if outcomes[job.OutcomeTimedOut] != 3 || outcomes[job.OutcomeSkipped] < 6 {
			t.Errorf("the runs have ended as %v", outcomes)
		}
	})
}

func TestMiddlewareIsAroundEveryHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		around := func(name string) belfry.Middleware {
			return func(next belfry.HandlerFunc) belfry.HandlerFunc {
				return func(ctx context.Context, run *belfry.Run) error {
					order = append(order, name+" before "+run.Job)
					err := next(ctx, run)
					order = append(order, fmt.Sprint(name, " after ", err))
					return err
				}
			}
		}
		s := belfrytest.New(t, belfry.WithMiddleware(around("outer"), around("inner")))
		s.Job("panics", belfry.Func(func(context.Context, *belfry.Run) error { panic("no") }))
		belfrytest.Run(t, s)
		id, err := s.Trigger(t.Context(), "panics")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		want := "outer before panics, inner before panics, inner after panic: no, outer after panic: no"
		if got := strings.Join(order, ", "); got != want {
			t.Errorf("the order was %s", got)
		}
	})
}

func TestMetadataTravelsToFollowers(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t, belfry.WithMetadata(func(ctx context.Context, metadata map[string]string) {
			metadata["trace"], _ = ctx.Value(key{}).(string)
		}))
		seen := map[string]string{}
		note := func(_ context.Context, run *belfry.Run) error {
			seen[run.Job] = run.Metadata["trace"]
			return nil
		}
		s.Job("first", belfry.Func(note))
		s.Job("second", belfry.On("first"), belfry.Func(note))
		belfrytest.Run(t, s)
		ctx := context.WithValue(t.Context(), key{}, "4bf92f35")
		id, err := s.Trigger(ctx, "first", belfry.Key("order-7"))
		if err != nil {
			t.Fatal(err)
		}
		// The same request in another trace is the same run.
		if again, err := s.Trigger(t.Context(), "first", belfry.Key("order-7")); err != nil || again != id {
			t.Errorf("the request that was repeated made run %s, %v", again, err)
		}
		belfrytest.Advance(5 * time.Second)
		if seen["first"] != "4bf92f35" || seen["second"] != "4bf92f35" {
			t.Errorf("the metadata of the runs is %v", seen)
		}
	})
}

func TestAJobCanBePausedAndResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		ran := 0
		s.Job("tick", belfry.Every(time.Second), belfry.Func(func(context.Context, *belfry.Run) error { ran++; return nil }))
		belfrytest.Run(t, s)
		belfrytest.Advance(10*time.Second + 500*time.Millisecond)
		if err := s.Pause(t.Context(), "tick", "maintenance", time.Time{}); err != nil {
			t.Fatal(err)
		}
		before := ran
		belfrytest.Advance(10 * time.Second)
		if ran != before || before != 10 {
			t.Errorf("ran %d times before the pause and %d during it", before, ran-before)
		}
		if err := s.Resume(t.Context(), "tick"); err != nil {
			t.Fatal(err)
		}
		belfrytest.Advance(10 * time.Second)
		if ran-before != 10 {
			t.Errorf("ran %d times in the 10 s after the pause", ran-before)
		}
	})
}

func TestAddedJobsStayUntilTheyAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		var got []string
		greet := belfry.Handle(s, "greet", func(_ context.Context, run *belfry.Run, name string) (belfry.None, error) {
			got = append(got, name)
			return belfry.None{}, nil
		})
		belfrytest.Run(t, s)
		if err := s.Add(t.Context(), "once", greet.Do("Ada"), belfry.After(90*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := s.Add(t.Context(), "minutely", greet.Do("Bob"), belfry.Every(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := s.Add(t.Context(), "once", greet.Do("Eve")); !errors.Is(err, belfry.ErrExists) {
			t.Errorf("a second job of the name was answered with %v", err)
		}
		if next, err := s.Next(t.Context(), "minutely", 2); err != nil || len(next) != 2 || next[1].Sub(next[0]) != time.Minute {
			t.Errorf("the next moments are %v, %v", next, err)
		}
		belfrytest.Advance(2*time.Minute + 30*time.Second)
		if fmt.Sprint(got) != "[Bob Ada Bob]" {
			t.Errorf("greeted %v", got)
		}
		if err := s.Remove(t.Context(), "minutely"); err != nil {
			t.Fatal(err)
		}
		belfrytest.Advance(2 * time.Hour)
		if len(got) != 3 {
			t.Errorf("greeted %v after the job was removed", got)
		}
		if _, err := s.Trigger(t.Context(), "once"); !errors.Is(err, belfry.ErrNotFound) {
			t.Errorf("two hours later a job of one run is still there: %v", err)
		}
	})
}

func TestAddedJobsCanBeUpdatedAndLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		var mu sync.Mutex
		var got []string
		greeted := func() string {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(got)
		}
		greet := belfry.Handle(s, "greet", func(_ context.Context, _ *belfry.Run, name string) (belfry.None, error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, name)
			return belfry.None{}, nil
		})
		belfrytest.Run(t, s)
		if err := s.Update(t.Context(), "minutely", greet.Do("Ada")); !errors.Is(err, belfry.ErrNotFound) {
			t.Errorf("an unknown job was answered with %v", err)
		}
		if err := s.Add(t.Context(), "minutely", greet.Do("Ada"), belfry.Every(time.Minute)); err != nil {
			t.Fatal(err)
		}
		belfrytest.Advance(time.Minute + time.Second)
		if err := s.Update(t.Context(), "minutely", greet.Do("Bob"), belfry.Every(time.Second), belfry.Starting(time.Now().Add(time.Hour)), belfry.MaxRuns(2)); err != nil {
			t.Fatal(err)
		}
		belfrytest.Advance(59 * time.Minute)
		if all := greeted(); all != "[Ada]" {
			t.Errorf("before its start greeted %s", all)
		}
		belfrytest.Advance(2 * time.Minute)
		if all := greeted(); all != "[Ada Bob Bob]" {
			t.Errorf("greeted %s", all)
		}
		if err := s.Update(t.Context(), "minutely", greet.Do("Bob"), belfry.Every(-1)); !errors.Is(err, belfry.ErrInvalid) {
			t.Errorf("an interval below zero was answered with %v", err)
		}
	})
}

func TestCheckReportsAllMistakesWithTheirPlaces(t *testing.T) {
	s := belfry.New(nil)
	h := belfry.Handle(s, "cleanup", func(context.Context, *belfry.Run, cleanup) (belfry.None, error) { return belfry.None{}, nil })
	belfry.HandleFunc(s, "cleanup", func(context.Context, *belfry.Run) error { return nil })
	s.Job("a", belfry.Cron("61 * * * *"), h.Do(cleanup{}))
	s.Job("a", h.Do(cleanup{}))
	s.Job("B", h.Do(cleanup{}))
	s.Job("c")
	s.Job("d", belfry.Do("cleanup", "thirty days"))
	s.Job("e", h.Do(cleanup{}), belfry.After(time.Minute))
	err := s.Check()
	if err == nil {
		t.Fatal("there are no mistakes")
	}
	for _, want := range []string{
		"belfry.New: the store is missing",
		`handler "cleanup" is registered twice`,
		`job "a": schedule.cron`,
		`job "a" is declared twice`,
		`job "B": name`,
		`job "c": calls nothing: add Do or Func`,
		`job "d": Do gives string to the handler "cleanup", which takes belfry_test.cleanup`,
		`job "e": After counts from now`,
	} {
		found := false
		for line := range strings.Lines(err.Error()) {
			found = found || strings.Contains(line, want) && strings.HasPrefix(line, "belfry_test.go:")
		}
		if !found {
			t.Errorf("no line says %s:\n%v", want, err)
		}
	}
	if got := s.Run(t.Context()); got == nil || got.Error() != err.Error() {
		t.Errorf("Run says %v", got)
	}
}

// Calls that are the same make one run, and a debounced one starts when they end.
func TestTheSameCallsMakeOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		var mu sync.Mutex
		var ran []string
		type change struct {
			Shop  string `json:"shop"`
			Price string `json:"price"`
		}
		index := belfry.Handle(s, "index", func(_ context.Context, _ *belfry.Run, of change) (belfry.None, error) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, of.Shop+" "+of.Price)
			return belfry.None{}, nil
		})
		s.Job("index", index.Do(change{}))
		belfrytest.Run(t, s)
		call := func(price string, option belfry.TriggerOption) belfry.RunID {
			id, err := s.Trigger(t.Context(), "index", belfry.Params(map[string]string{"shop": "7", "price": price}), option)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := call("1", belfry.Debounce(10*time.Second, "shop"))
		belfrytest.Advance(7 * time.Second)
		if again := call("2", belfry.Debounce(10*time.Second, "shop")); again != first {
			t.Errorf("the second call made run %s beside %s", again, first)
		}
		belfrytest.Advance(7 * time.Second)
		mu.Lock()
		if len(ran) > 0 {
			t.Errorf("it has started: %q", ran)
		}
		mu.Unlock()
		belfrytest.Advance(5 * time.Second)
		call("3", belfry.Unique(time.Minute, "shop"))
		belfrytest.Advance(30 * time.Second)
		call("4", belfry.Unique(time.Minute, "shop"))
		call("5", belfry.In(time.Hour))
		call("6", belfry.AtTime(time.Now().Add(-time.Hour)))
		belfrytest.Advance(59 * time.Minute)
		mu.Lock()
		if want := []string{"7 2", "7 3", "7 6"}; !slices.Equal(ran, want) {
			t.Errorf("in less than an hour it ran for %q, want %q", ran, want)
		}
		mu.Unlock()
		belfrytest.Advance(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"7 2", "7 3", "7 6", "7 5"}; !slices.Equal(ran, want) {
			t.Errorf("it ran for %q, want %q", ran, want)
		}
	})
}
