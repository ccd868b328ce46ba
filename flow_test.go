package belfry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/belfrytest"
	"github.com/belfry-cron/belfry/job"
)

type region struct {
	Region string `json:"region"`
}

type file struct {
	Name string `json:"name"`
	Rows int    `json:"rows"`
}

type listing struct {
	Files []file `json:"files"`
	Day   string `json:"day"`
}

// nightly is a flow with the kinds of steps that run in a program.
type nightly struct {
	flow    *belfry.Flow[region]
	list    *belfry.StepOf[listing]
	load    *belfry.StepOf[[]int]
	ready   belfry.SignalOf[file]
	publish *belfry.StepOf[string]
}

func newNightly(s *belfry.Scheduler) *nightly {
	n := &nightly{flow: belfry.NewFlow[region](s, "nightly")}
	n.list = belfry.Step(n.flow, "list", func(_ context.Context, run *belfry.Run, in region) (listing, error) {
		return listing{Files: []file{{in.Region + "-a", 1}, {in.Region + "-b", 2}}, Day: run.Scheduled.Format(time.DateOnly)}, nil
	})
	n.load = belfry.ForEach(n.flow, "load", belfry.As[[]file](n.list, "files"), func(_ context.Context, run *belfry.Run, in region, f file) (int, error) {
		if !strings.HasPrefix(f.Name, in.Region) {
			return 0, fmt.Errorf("%s is not in %s", f.Name, in.Region)
		}
		return f.Rows * 10, nil
	}, belfry.MaxParallel(1))
	rest := n.flow.Wait("rest", time.Minute, belfry.Needs(n.load))
	n.ready = belfry.Signal[file](n.flow, "ready", belfry.Needs(rest), belfry.Within(time.Hour))
	ask := n.flow.Approval("ask", "publish "+n.list.Template("day")+"?", belfry.Needs(n.ready, n.list))
	n.publish = belfry.Step(n.flow, "publish", func(_ context.Context, run *belfry.Run, in region) (string, error) {
		rows, err := n.load.Result(run)
		extra, err2 := n.ready.Result(run)
		yes, err3 := ask.Result(run)
		return fmt.Sprintf("%s: %v and %s, %s", in.Region, rows, extra.Name, yes.Note), errors.Join(err, err2, err3)
	}, belfry.Needs(n.load, n.ready, ask))
	return n
}

// waitsFor lets time pass until a step of a flow is open.
func waitsFor(t *testing.T, s *belfry.Scheduler, job, step string) belfry.RunID {
	t.Helper()
	for range 600 {
		runs, err := s.Runs(t.Context(), job, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			for _, state := range r.Steps {
				if state.Name == step && state.State == "open" {
					return r.ID
				}
			}
		}
		belfrytest.Advance(time.Second)
	}
	t.Fatalf("no run of %s comes to step %s", job, step)
	return belfry.RunID{}
}

func TestAFlowOfAProgramRunsWithItsFunctionsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		n := newNightly(s)
		s.Job("nightly-eu", belfry.Cron("0 2 * * *"), n.flow.Do(region{"eu"}))
		belfrytest.Run(t, s)
		belfrytest.Advance(2 * time.Hour)
		id := waitsFor(t, s, "nightly-eu", "ready")
		if err := s.Approve(t.Context(), id, "ask", ""); !errors.Is(err, belfry.ErrConflict) {
			t.Errorf("an approval before its step is answered with %v", err)
		}
		if err := n.ready.Send(t.Context(), id, file{Name: "extra"}); err != nil {
			t.Fatal(err)
		}
		waitsFor(t, s, "nightly-eu", "ask")
		if err := s.Approve(t.Context(), id, "ask", "all is well"); err != nil {
			t.Fatal(err)
		}
		if got, err := n.publish.Wait(t.Context(), id); err != nil || got != "eu: [10 20] and extra, all is well" {
			t.Errorf("the last step returned %q, %v", got, err)
		}
		if got, err := n.load.Wait(t.Context(), id); err != nil || !slices.Equal(got, []int{10, 20}) {
			t.Errorf("the items returned %v, %v", got, err)
		}
		if got, err := belfry.As[string](n.list, "day").Wait(t.Context(), id); err != nil || len(got) != len(time.DateOnly) {
			t.Errorf("the part of a result is %q, %v", got, err)
		}
	})
}

func TestARejectedStepFailsItsFlowAndFinallyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		f := belfry.NewFlow[belfry.None](s, "deploy")
		build := belfry.Step(f, "build", func(context.Context, *belfry.Run, belfry.None) (string, error) { return "v7", nil })
		ask := f.Approval("ask", "deploy?", belfry.Needs(build), belfry.Within(time.Hour))
		deploy := belfry.Step(f, "deploy", func(context.Context, *belfry.Run, belfry.None) (belfry.None, error) {
			t.Error("it was deployed")
			return belfry.None{}, nil
		}, belfry.Needs(ask))
		clean := belfry.Step(f, "clean", func(_ context.Context, run *belfry.Run, _ belfry.None) (string, error) {
			version, err := build.Result(run)
			return fmt.Sprintf("%s %s %s", version, ask.Outcome(run), deploy.Outcome(run)), err
		}, belfry.Finally())
		s.Job("deploy", f.Do(belfry.None{}))
		belfrytest.Run(t, s)
		id, err := f.Trigger(t.Context(), "deploy", belfry.None{})
		if err != nil {
			t.Fatal(err)
		}
		waitsFor(t, s, "deploy", "ask")
		if err := s.Reject(t.Context(), id, "ask", "not on a Friday"); err != nil {
			t.Fatal(err)
		}
		run, err := s.Wait(t.Context(), id)
		if err != nil || run.Outcome != job.OutcomeFailed || !strings.Contains(run.Reason, "not on a Friday") {
			t.Errorf("the flow ended as %s: %s, %v", run.Outcome, run.Reason, err)
		}
		if got, err := clean.Wait(t.Context(), id); err != nil || got != "v7 failed skipped" {
			t.Errorf("finally found %q, %v", got, err)
		}
		if _, err := deploy.Wait(t.Context(), id); !errors.Is(err, belfry.ErrNoResult) {
			t.Errorf("the result of a step that did not run is %v", err)
		}
		if _, err := ask.Wait(t.Context(), id); !errors.Is(err, belfry.ErrNoResult) || !strings.Contains(fmt.Sprint(err), "failed") {
			t.Errorf("the result of a step that was rejected is %v", err)
		}
	})
}

func TestStepOptionsMatchJobOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		f := belfry.NewFlow[region](s, "tries", belfry.Retry(2, time.Second))
		var flaky, stubborn atomic.Int32
		first := belfry.Step(f, "flaky", func(_ context.Context, run *belfry.Run, _ region) (int, error) {
			if flaky.Add(1); run.Attempt < 3 {
				return 0, errors.New("not yet")
			}
			return run.Attempt, nil
		})
		belfry.Step(f, "stubborn", func(context.Context, *belfry.Run, region) (belfry.None, error) {
			stubborn.Add(1)
			return belfry.None{}, errors.New("never")
		}, belfry.Retry(0, 0), belfry.AllowFailure())
		slow := belfry.Step(f, "slow", func(ctx context.Context, run *belfry.Run, _ region) (belfry.None, error) {
			<-ctx.Done()
			return belfry.None{}, context.Cause(ctx)
		}, belfry.Timeout(time.Second), belfry.Retry(0, 0), belfry.AllowFailure())
		each := belfry.ForEach(f, "each", belfry.List[region]{{"a {{ b }}"}, {"c"}}, func(_ context.Context, _ *belfry.Run, _, item region) (string, error) {
			return item.Region, nil
		})
		last := belfry.Step(f, "last", func(_ context.Context, run *belfry.Run, _ region) (string, error) {
			_, err := first.Result(run)
			return fmt.Sprint(slow.Outcome(run), err, belfry.IsPermanent(err)), nil
		}, belfry.Needs(slow), belfry.If(`{{ eq .Steps.slow.Outcome "timed_out" }}`))
		s.Job("tries", f.Do(region{}))
		belfrytest.Run(t, s)
		id, err := s.Trigger(t.Context(), "tries")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := first.Wait(t.Context(), id); err != nil || got != 3 || flaky.Load() != 3 {
			t.Errorf("the step ended with %v, %v after %d calls", got, err, flaky.Load())
		}
		if n := stubborn.Load(); n != 1 {
			t.Errorf("a step without retries was called %d times", n)
		}
		if got, err := each.Wait(t.Context(), id); err != nil || !slices.Equal(got, []string{"a {{ b }}", "c"}) {
			t.Errorf("the items returned %q, %v", got, err)
		}
		if got, err := last.Wait(t.Context(), id); err != nil || !strings.Contains(got, `timed_outstep "last" does not need step "flaky"`) || !strings.HasSuffix(got, "true") {
			t.Errorf("what is not needed is read as %q, %v", got, err)
		}
	})
}

func TestStepsOfOtherKindsAreInTheDefinition(t *testing.T) {
	s := belfrytest.New(t)
	f := belfry.NewFlow[region](s, "kinds", belfry.Timeout(time.Minute), belfry.PlaceOn(map[string]string{"disk": "ssd"}))
	f.Edit(func(f *job.Flow) { f.MaxParallel, f.FailFast = 8, true })
	list := f.Shell("list", "./list.sh {{ .Param.region }}")
	files := belfry.As[[]string](list, "files")
	f.HTTP("check", job.HTTP{URL: "https://quality/check?files=" + list.Template("files")}, belfry.Needs(list), belfry.AllowFailure())
	belfry.ForEach(f, "each", files, func(_ context.Context, _ *belfry.Run, in region, name string) (belfry.None, error) {
		return belfry.None{}, nil
	}, belfry.FailFast())
	f.Job("publish", "publish-report", map[string]string{"region": "{{ .Param.region }}"}, belfry.Needs(files), belfry.When(job.OnFinished))
	f.WaitUntil("morning", "2030-01-01T06:00:00Z")
	f.Run("resize", job.RunSpec{Handler: &job.Handler{Name: "resize"}}, belfry.Strategy(job.StrategyHash), belfry.Finally())
	s.Job("kinds", f.Do(region{"eu"}))
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	var encoded strings.Builder
	if err := job.Encode(&encoded, []job.Document{{Kind: job.KindJob, Job: &s.Jobs()[0]}}, job.YAML); err != nil {
		t.Fatal(err)
	}
	text := encoded.String()
	for _, want := range []string{
		"max_parallel: 8", "fail_fast: true", "timeout: 1m", "disk: ssd", "shell: ./list.sh {{ .Param.region }}",
		"url: https://quality/check?files={{ .Steps.list.Result.files }}", "allow_failure: true",
		"for_each: '{{ .Steps.list.Result.files }}'", "handler: kinds.each", "job: publish-report", "when: finished",
		`until: "2030-01-01T06:00:00Z"`, "finally:", "strategy: hash",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the document lacks %q:\n%s", want, text)
		}
	}
	if got := f.Definition(); len(got.Steps) != 5 || len(got.Finally) != 1 {
		t.Errorf("the definition has %d steps and %d in finally", len(got.Steps), len(got.Finally))
	}
}

func TestMistakesInFlowsNameTheStepAndItsPlace(t *testing.T) {
	s := belfrytest.New(t)
	other := belfry.NewFlow[belfry.None](s, "other")
	foreign := other.Wait("foreign", time.Minute)
	f := belfry.NewFlow[region](s, "wrong", belfry.MaxParallel(2))
	list := belfry.Step(f, "list", func(context.Context, *belfry.Run, region) (listing, error) { return listing{}, nil },
		belfry.Cron("* * * * *"), belfry.Overlap(job.OverlapQueue), belfry.FailFast())
	belfry.As[[]file](list, "file")
	belfry.As[int](list, "day", "month")
	list.Template("rows")
	f.Wait("list", time.Minute)
	f.Wait("rest", time.Minute, belfry.Needs(foreign), belfry.Within(time.Second), belfry.Retry(1, time.Second))
	f.Shell("tell", "echo {{ .Steps.rest.Result.x }}", belfry.Within(time.Second))
	f.Shell("a b", "true", belfry.Do("x", nil))
	s.Job("wrong", f.Do(region{}), belfry.Retry(1, time.Second))
	err := s.Check()
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	text := err.Error()
	for _, want := range []string{
		`flow "wrong": step "defaults": max_parallel is of a single step`,
		`flow "wrong": step "list": an option sets schedule, which jobs have and steps have not`,
		`flow "wrong": step "list": an option sets overlap, which jobs have and steps have not`,
		`flow "wrong": step "list": fail_fast: is only valid with for_each`,
		`step "list": its result belfry_test.listing has no field "file": give its name in JSON`,
		`step "list": its result string has no field "month"`,
		`step "list": its result belfry_test.listing has no field "rows"`,
		`flow "wrong": step "list": is added twice`,
		`step "rest": needs step "foreign", which is of another flow`,
		`step "rest": retry: is not for a step that waits`,
		`step "tell": Within is for Approval and Signal: use Timeout`,
		`step "tell": run.shell.command: .Steps.rest.Result.x: step "rest" is not surely over when this starts`,
		`step "a b": Do and Func are for jobs`,
		`step "a b": name: "a b" is not the name of a step`,
		`job "wrong": policy.retry: is not for a flow`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the mistakes lack %q", want)
		}
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "flow_test.go:") {
			t.Errorf("a mistake has no place: %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestHandlersReadResultsInFlowsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		sum := belfry.Handle(s, "sum", func(_ context.Context, run *belfry.Run, in region) (int, error) {
			all, err := belfry.StepResult[[]int](run, "double")
			total := 0
			for _, n := range all {
				total += n
			}
			return total, err
		})
		double := belfry.HandleFunc(s, "double", func(_ context.Context, run *belfry.Run) error {
			n, err := belfry.ItemOf[int](run)
			if err == nil && run.Flow == (belfry.RunID{}) {
				err = errors.New("the flow is not known")
			}
			run.Log.Info("doubled", "n", 2*n)
			return err
		})
		f := belfry.NewFlow[region](s, "of-others")
		f.Edit(func(f *job.Flow) {
			f.Steps = []job.Step{
				{Name: "double", ForEach: []string{"1", "20"}, Run: job.RunSpec{Handler: &job.Handler{Name: double.Name()}}},
				{Name: "sum", Needs: []string{"double"}, Run: job.RunSpec{Handler: &job.Handler{Name: sum.Name()}}},
			}
		})
		s.Job("of-others", f.Do(region{}))
		s.Job("alone", sum.Do(region{}))
		belfrytest.Run(t, s)
		id, err := s.Trigger(t.Context(), "of-others")
		if err != nil {
			t.Fatal(err)
		}
		run, err := s.Wait(t.Context(), id)
		if err != nil || run.Outcome != job.OutcomeSucceeded {
			t.Errorf("it ended as %s: %s, %v", run.Outcome, run.Reason, err)
		}
		if want := json.RawMessage("0"); !slices.Equal(run.Steps[1].Result, want) {
			t.Errorf("the sum of no results is %s", run.Steps[1].Result)
		}
		if id, err = s.Trigger(t.Context(), "alone"); err != nil {
			t.Fatal(err)
		}
		if _, err := sum.Result(t.Context(), id); err == nil || !strings.Contains(err.Error(), "is no step of a flow") {
			t.Errorf("outside of a flow a result is read with %v", err)
		}
	})
}
