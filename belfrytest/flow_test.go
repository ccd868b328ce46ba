package belfrytest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/belfrytest"
	"github.com/belfry-cron/belfry/job"
)

type order struct {
	ID string `json:"id"`
}

func TestStepsOfAFlowRunAloneAndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		f := belfry.NewFlow[order](s, "ship", belfry.Retry(1, time.Minute))
		reserved := 0
		reserve := belfry.Step(f, "reserve", func(_ context.Context, run *belfry.Run, in order) (int, error) {
			reserved++
			return len(in.ID), nil
		})
		parcels := belfry.ForEach(f, "pack", belfry.List[string]{"a", "b"}, func(_ context.Context, run *belfry.Run, in order, box string) (string, error) {
			if in.ID == "" {
				return "", errors.New("no order")
			}
			run.Log.Info("packing", "box", box, "attempt", run.Attempt)
			return in.ID + "/" + box, nil
		})
		send := belfry.Step(f, "send", func(_ context.Context, run *belfry.Run, in order) (string, error) {
			n, err := reserve.Result(run)
			boxes, err2 := parcels.Result(run)
			return fmt.Sprint(in.ID, n, boxes), errors.Join(err, err2)
		}, belfry.Needs(reserve, parcels))
		belfrytest.Run(t, s)

		alone := belfrytest.DoStep(t, s, f, send, order{"7"}, belfrytest.Result(reserve, 3), belfrytest.Result(parcels, []string{"x"}))
		if alone.Result != "73 [x]" || alone.Run.Outcome != job.OutcomeSucceeded || reserved != 0 {
			t.Errorf("the step alone returned %q, %s: %s, and what it needs ran %d times", alone.Result, alone.Run.Outcome, alone.Run.Reason, reserved)
		}
		if less := belfrytest.DoStep(t, s, f, send, order{"7"}, belfrytest.Result(reserve, 3)); less.Run.Outcome != job.OutcomeFailed || !strings.Contains(less.Run.Reason, `does not need step "pack"`) {
			t.Errorf("a result that was not given is read as %q, %s: %s", less.Result, less.Run.Outcome, less.Run.Reason)
		}
		items := belfrytest.DoStep(t, s, f, parcels, order{"8"})
		if fmt.Sprint(items.Result) != "[8/a 8/b]" || !strings.Contains(items.Output, "box=a") || !strings.Contains(items.Output, "box=b") {
			t.Errorf("the items returned %v, and wrote %s", items.Result, items.Output)
		}
		began := time.Now()
		if failed := belfrytest.DoStep(t, s, f, parcels, order{}); failed.Run.Outcome != job.OutcomeFailed || time.Since(began) < time.Minute {
			t.Errorf("it ended as %s after %s", failed.Run.Outcome, time.Since(began))
		}
		whole := belfrytest.RunFlow(t, s, f, order{"9"})
		if got, err := send.Wait(t.Context(), whole.ID); err != nil || got != "91 [9/a 9/b]" || reserved != 1 {
			t.Errorf("the flow returned %q, %v", got, err)
		}
	})
}
