package planner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/store"
)

// pages returns all jobs that fall due, in pages of n.
func pages(p *Planner, at time.Time, n int) (all []engine.Upcoming) {
	var after engine.Upcoming
	for {
		page := p.Upcoming(at, after, n)
		all = append(all, page...)
		if len(page) < n {
			return all
		}
		after = page[n-1]
	}
}

func TestJobsAreOrderedByDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		f := &fake{}
		for i := range 3000 {
			// Some fall due within the look-ahead and are already planned.
			expr := fmt.Sprintf("%d %d %d * * *", random.IntN(60), random.IntN(60), random.IntN(24))
			if i%10 == 0 {
				expr = fmt.Sprintf("*/%d * * * * *", 1+random.IntN(30))
			}
			f.jobs = append(f.jobs, active(t, i+1, expr))
		}
		for i := range f.jobs {
			if i%17 == 0 {
				f.jobs[i].Timing = timingOf(t, "0 0 0 1 1 ? 2001") // never again
			}
			if i%19 == 0 {
				f.jobs[i].Active = false
			}
		}
		p := newPlanner(f)
		run(p, 20*time.Second)
		at := time.Now()

		var want []engine.Upcoming
		for _, j := range f.jobs {
			if next, ok := p.NextAfter(j.UID, at); ok {
				want = append(want, engine.Upcoming{Next: next, Job: j.UID})
			}
		}
		for _, n := range []int{0, 19} { // one never falls due, one is paused
			if next, ok := p.NextAfter(f.jobs[n].UID, at); ok || !next.IsZero() {
				t.Errorf("job %d falls due at %s", n, next)
			}
		}
		slices.SortFunc(want, engine.Upcoming.Compare)
		if len(want) < 2000 || want[0].Next.Before(at) || want[0].Next.After(at.Add(time.Second)) {
			t.Fatalf("%d jobs fall due, the first %s after now", len(want), want[0].Next.Sub(at))
		}
		for _, n := range []int{1, 7, 500, 5000} {
			if got := pages(p, at, n); !slices.Equal(got, want) {
				t.Errorf("in pages of %d there are %d jobs, want %d in another order", n, len(got), len(want))
			}
		}

		// Planning and running in between move no job to another page while the moment stays the
		// same.
		first := p.Upcoming(at, engine.Upcoming{}, 1000)
		run(p, 40*time.Second)
		rest := p.Upcoming(at, first[999], 5000)
		if got := slices.Concat(first, rest); !slices.Equal(got, want) {
			t.Errorf("40 s later there are %d jobs, want %d in another order", len(got), len(want))
		}
	})
}

// BenchmarkUpcoming lists a page of 100 out of a million jobs: spread over the week, all due within
// the look-ahead, and in the worst order for the heap.
func BenchmarkUpcoming(b *testing.B) {
	herd := make([]store.PlannedJob, aMillion())
	minutely := timingOf(b, "* * * * *")
	for i := range herd {
		herd[i] = store.PlannedJob{UID: uid(i), Epoch: 1, Active: true, Cursor: time.Now().Add(time.Minute), Timing: minutely}
	}
	backwards := million(b, aMillion())
	for i := range backwards {
		backwards[i].UID = uid(len(backwards) - i)
		backwards[i].Timing = minutely
	}
	for name, jobs := range map[string][]store.PlannedJob{"spread": million(b, aMillion()), "herd": herd, "backwards": backwards} {
		b.Run(name, func(b *testing.B) {
			p := newPlanner(&fake{jobs: jobs})
			if err := p.refresh(context.Background()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if list := p.Upcoming(time.Now(), engine.Upcoming{}, 100); len(list) != 100 {
					b.Fatalf("%d jobs", len(list))
				}
			}
		})
	}
}
