package web

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// The longest run of a quarter of an hour also ran in the quarters before; the others count where
// they ended.
func TestTheWeekShowsHowManyRunsWereRunningAtOnce(t *testing.T) {
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	buckets := []client.StatsBucket{
		// A run of 40 minutes and one of 3 end between 08:30 and 08:45.
		{Start: monday.Add(8*time.Hour + 30*time.Minute), Outcomes: map[job.Outcome]int{job.OutcomeSucceeded: 1, job.OutcomeFailed: 1, job.OutcomeWithdrawn: 5}, Seconds: 43 * 60, Longest: 40 * 60},
		{Start: monday.Add(20 * time.Hour), Outcomes: map[job.Outcome]int{job.OutcomeTimedOut: 2}, Seconds: 10 * 60, Longest: 5 * 60},
	}
	for of, want := range map[string]map[string]float64{
		weekRunning:  {"08:00": 10. / 15, "08:15": 1, "08:30": 1.2, "08:45": 0, "20:00": 10. / 15},
		weekStarts:   {"08:15": 0, "08:30": 2, "20:00": 2},
		weekFailures: {"08:15": 0, "08:30": 1, "20:00": 2},
	} {
		p := &page{zone: time.UTC, now: monday, lang: "en", r: httptest.NewRequestWithContext(t.Context(), "GET", "/timeline?view=week", nil)}
		w := p.week(monday, 7)
		if mean := w.count(of, buckets); mean != 53*time.Minute/4 {
			t.Errorf("a run takes %s on average, want %s", mean, 53*time.Minute/4)
		}
		for clock, n := range want {
			at, err := time.Parse("15:04", clock)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.cells[0][at.Hour()*4+at.Minute()/15]; got < n-1e-9 || got > n+1e-9 {
				t.Errorf("by %s the quarter of %s has %v, want %v", of, clock, got, n)
			}
		}
	}
}

func TestQuartersInWhichMoreThanOnePercentFailedAreMarked(t *testing.T) {
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	p := &page{zone: time.UTC, now: monday, lang: "en", r: httptest.NewRequestWithContext(t.Context(), "GET", "/timeline?view=week", nil)}
	w := p.week(monday, 7)
	for slot, ended := range [][2]int{{99, 1}, {98, 1}, {0, 1}, {5, 0}, {0, 0}} {
		w.count(weekStarts, []client.StatsBucket{{Start: monday.Add(time.Duration(slot) * quarter), Outcomes: map[job.Outcome]int{job.OutcomeSucceeded: ended[0], job.OutcomeFailed: ended[1], job.OutcomeWithdrawn: 9}}})
	}
	w.isRate = true
	for slot, want := range []bool{false, true, true, false, false} {
		if got := w.isMarked(0, slot); got != want {
			t.Errorf("quarter %d with %d failures of %d is marked: %t", slot, w.failed[0][slot], w.ended[0][slot], got)
		}
	}
	w.isRate = false
	if w.isMarked(0, 1) {
		t.Error("a week of failures has marks")
	}
}
