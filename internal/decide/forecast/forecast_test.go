package forecast

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

var start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func schedule(t testing.TB, text string) Schedule {
	t.Helper()
	s, err := cron.ParseSchedule(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		name   string
		text   string
		jobs   int
		spread time.Duration
		step   time.Duration
		n      int
		want   string
	}{
		{"nothing", "0 12 * * *", 3, 0, time.Minute, 3, "[0 0 0]"},
		{"a moment at the beginning counts, one at the end does not", "*/2 * * * *", 1, 0, time.Minute, 2, "[1 0]"},
		{"all jobs", "*/2 * * * *", 5, 0, time.Minute, 4, "[5 0 5 0]"},
		{"each second", "* * * * * *", 1, 0, time.Minute, 2, "[60 60]"},
		{"an interval that no step is a multiple of", "@every 7s", 1, 0, time.Minute, 7, "[9 9 8 9 8 9 8]"},
		{"seconds of some minutes", "* */2 * * * *", 2, 0, time.Minute, 3, "[120 0 120]"},
		{"seconds that are unequally far apart", "0,1,2,3,4,5,6,7,8,9,30 * * * * *", 1, 0, time.Minute, 1, "[11]"},
		{"seconds of a part of an hour", "* 0-9 * * * *", 1, 0, time.Hour, 1, "[600]"},
		{"spread over some steps", "0 * * * *", 6, 3 * time.Minute, time.Minute, 4, "[2 2 2 0]"},
		{"spread from before the span", "58 * * * *", 6, 3 * time.Minute, time.Minute, 3, "[2 0 0]"},
		{"spread less than a step", "0 * * * *", 6, time.Second, time.Minute, 2, "[6 0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			counts := New(start, c.step, c.n)
			counts.Add(Timing{Schedule: schedule(t, c.text), Jobs: c.jobs, Spread: c.spread})
			if got := fmt.Sprint(counts.Starts()); got != c.want {
				t.Errorf("the starts are %s, want %s", got, c.want)
			}
		})
	}
}

func TestStartsAreSpreadOverTheStepsThatFollow(t *testing.T) {
	for _, c := range []struct {
		starts []int
		over   int
		want   string
	}{
		{[]int{6, 0, 0, 1}, 1, "[6 0 0 1]"},
		{[]int{6, 0, 0, 0}, 3, "[2 2 2 0]"},
		{[]int{6, 6, 0, 0, 0}, 3, "[2 4 4 2 0]"},
		{[]int{0, 0, 9}, 3, "[0 0 3]"},
		{nil, 3, "[]"},
	} {
		if got := fmt.Sprint(Spread(c.starts, c.over)); got != c.want {
			t.Errorf("%v over %d steps are %s, want %s", c.starts, c.over, got, c.want)
		}
	}
}

func TestScheduleWithAnEnd(t *testing.T) {
	counts := New(start, time.Minute, 3)
	counts.Add(Timing{Schedule: once(start.Add(time.Minute)), Jobs: 1})
	if got := fmt.Sprint(counts.Starts()); got != "[0 1 0]" {
		t.Errorf("the starts are %s", got)
	}
}

type once time.Time

func (o once) Next(t time.Time) time.Time {
	if t.Before(time.Time(o)) {
		return time.Time(o)
	}
	return time.Time{}
}

func BenchmarkWeek(b *testing.B) {
	for _, text := range []string{"30 2 * * *", "*/5 * * * *", "* * * * * *"} {
		b.Run(text, func(b *testing.B) {
			s := schedule(b, text)
			for b.Loop() {
				New(start, time.Minute, 7*24*60).Add(Timing{Schedule: s, Jobs: 1})
			}
		})
	}
}
