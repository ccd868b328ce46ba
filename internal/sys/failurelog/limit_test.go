package failurelog_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/failurelog"
)

func TestLimitCountsTheLinesThatItHoldsBack(t *testing.T) {
	limit := failurelog.Limit{Every: time.Minute}
	began := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after time.Duration
		left  int
		ok    bool
	}{
		{0, 0, true},
		{time.Second, 0, false},
		{59 * time.Second, 0, false},
		{time.Minute, 2, true},
		{90 * time.Second, 0, false},
		{3 * time.Minute, 1, true},
	} {
		if left, ok := limit.Allow(began.Add(step.after)); left != step.left || ok != step.ok {
			t.Errorf("after %v: %d left out, allowed %v; want %d, %v", step.after, left, ok, step.left, step.ok)
		}
	}
	limit.Allow(began.Add(3 * time.Minute))
	if _, over := limit.LeftOut(began.Add(3*time.Minute + time.Second)); over {
		t.Error("the span is over after a second")
	}
	if n, over := limit.LeftOut(began.Add(4 * time.Minute)); n != 1 || !over {
		t.Errorf("at the end of the span: %d left out, over %v; want 1, true", n, over)
	}
	if n, _ := limit.LeftOut(began.Add(4 * time.Minute)); n != 0 {
		t.Errorf("%d lines are counted a second time", n)
	}
}
