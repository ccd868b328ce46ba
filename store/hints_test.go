package store

import (
	"testing"

	"github.com/belfry-cron/belfry/job"
)

func TestHintConcernsItsSubjects(t *testing.T) {
	a, b, c := job.ID{1}, job.ID{2}, job.ID{3}
	about := func(ids ...job.ID) (h Hint) {
		for _, id := range ids {
			h = h.With(HintCancels | HintAbout(id))
		}
		return h
	}
	for _, row := range []struct {
		what    string
		hint    Hint
		a, b, c bool
	}{
		{"a kind alone", HintCancels, true, true, true},
		{"any", HintJobs | HintAny, true, true, true},
		{"one", about(a), true, false, false},
		{"two", about(a, b), true, true, false},
		{"one, with another kind", about(a).With(HintRuns), true, false, false},
		{"one, with a kind alone that may be about any", about(a).With(HintJobs), true, true, true},
		{"a kind alone that may be about any, with one", HintJobs.With(about(a)), true, true, true},
	} {
		if got := [3]bool{row.hint.MayConcern(a), row.hint.MayConcern(b), row.hint.MayConcern(c)}; got != [3]bool{row.a, row.b, row.c} {
			t.Errorf("%s: %v, want %v", row.what, got, [3]bool{row.a, row.b, row.c})
		}
	}
	if h := about(a); h&^HintAny != HintCancels {
		t.Errorf("a hint about a run has the kinds %b", h&^HintAny)
	}
}

// A few hints at once must not match many other names.
func TestHintFalsePositivesAreRare(t *testing.T) {
	id := func(n int) job.ID { return job.ID{0: 1, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)} }
	const n = 20_000
	for _, c := range []struct{ at, most int }{{1, 10}, {4, 2 * n / 200}} {
		var hint Hint
		for i := range c.at {
			hint |= HintJobs | HintAbout(id(i))
		}
		wrong := 0
		for i := c.at; i < n; i++ {
			if hint.MayConcern(id(i)) {
				wrong++
			}
		}
		if wrong > c.most {
			t.Errorf("a hint about %d jobs is taken for one about %d others of %d", c.at, wrong, n)
		}
	}
}
