package planqueue

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// serialText is the timing of a job that catches up on everything and runs one run at a time.
func serialText(t *testing.T, every time.Duration) string {
	t.Helper()
	forever, interval := job.Forever, job.Duration(every)
	j := &job.Job{
		Name: "j", Schedule: job.Schedule{Every: interval}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
		Policy: job.Policy{Missed: job.MissedAll, MissedLimit: 10_000, LateBy: &forever},
	}
	text, err := engine.TimingText(j.WithDefaults(job.Defaults{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// paceRig plans one serial job on its own node.
type paceRig struct {
	t     *testing.T
	queue *Queue
	at    time.Time // the process clock and the store's clock
	view  View
	ids   int
	out   int // unfinished runs
}

func newPaceRig(t *testing.T, every time.Duration, live ...store.Session) *paceRig {
	self := store.Session{ID: job.ID{1}, Node: "a", Roles: []string{store.RoleWorker}, Capacity: 1000}
	r := &paceRig{t: t, queue: New(15*time.Second, stripes.Of), at: now, view: View{Self: self.ID, Live: append(live, self), Paced: true}}
	r.queue.Put([]store.PlannedJob{{UID: uid(1), Epoch: 1, Active: true, Cursor: now.Add(-2 * time.Hour), Timing: serialText(t, every)}})
	r.queue.Take(store.AllPartitions, now)
	return r
}

// round makes turns until nothing more can be planned, and returns how many runs it has planned and how
// many of them at most at once. As long as fewer than slots run, they start.
func (r *paceRig) round(slots int) (planned, most int) {
	r.t.Helper()
	for {
		if r.queue.Collect(r.at, r.at) {
			r.queue.Room(nil, r.view.Live, r.at)
		}
		if r.queue.Admit() == 0 {
			return planned, most
		}
		for r.queue.Left() > 0 {
			v := r.view
			v.Now = r.at
			b, _, err := r.queue.Next(v, func(choose func(runqueue.Set) runqueue.Set) runqueue.Set { return choose(0) },
				func() (job.ID, error) { r.ids++; return uid(r.ids), nil })
			if err != nil {
				r.t.Fatal(err)
			}
			_, own := b.Own(v.Self, v.Now)
			var claims []store.ClaimOutcome
			for range own {
				verdict := store.Waiting
				if r.out++; r.out <= slots {
					verdict = store.Started
				}
				claims = append(claims, store.ClaimOutcome{Verdict: verdict})
			}
			b.Claimed(own, claims)
			n := 0
			for i := range b.Items {
				n += len(b.Items[i].Runs)
			}
			planned, most = planned+n, max(most, n)
			r.queue.Answered(&b, slices.Repeat([]store.PlanOutcome{store.Planned}, len(b.Items)), r.at, r.at)
		}
	}
}

func (r *paceRig) pace() *pace { return r.queue.paces[r.queue.byUID[uid(1)]] }

// end ends a run, and returns whether more may be planned.
func (r *paceRig) end() bool {
	r.out--
	return r.queue.Ended([]store.Result{{Attempt: store.Attempt{Job: uid(1)}}})
}

func TestSerialJobIsPlannedAtThePaceOfItsRuns(t *testing.T) {
	r := newPaceRig(t, time.Second)
	if n, _ := r.round(1); n != 2 || r.queue.Held() != 1 {
		t.Fatalf("%d are planned at first and %d jobs held, want one that starts and one to see whether more may", n, r.queue.Held())
	}
	if r.end() {
		t.Error("more is planned while the one that has waited runs")
	}
	for range 100 {
		if !r.end() {
			t.Fatal("the end of the last run lets none be planned")
		}
		r.at = r.at.Add(10 * time.Millisecond)
		if n, _ := r.round(1); n != 1 {
			t.Fatalf("%d are planned after an end, want 1", n)
		}
	}
}

func TestPaceFindsHowManyRunsStartTogether(t *testing.T) {
	for _, slots := range []int{2, 3, 8} {
		r := newPaceRig(t, time.Second)
		r.round(slots)
		for r.out > slots { // waiting runs
			r.end()
		}
		for range 20 {
			r.end()
			r.at = r.at.Add(10 * time.Millisecond)
			if r.round(slots); r.out != slots || r.pace().width != slots {
				t.Fatalf("%d runs are out with %d slots, by the pace %+v", r.out, slots, *r.pace())
			}
		}
	}
}

// A job whose runs take long, or longer than its interval, is planned in portions: at its pace,
// occurrences on time would be missed instead of skipped.
func TestSlowRunsArePlannedInPortions(t *testing.T) {
	t.Run("no end comes", func(t *testing.T) {
		r := newPaceRig(t, time.Second)
		r.round(1)
		r.at = r.at.Add(paceWait)
		if n, _ := r.round(1); n < CatchUpMost {
			t.Errorf("%d are planned after %s without an end", n, paceWait)
		}
	})
	t.Run("ends come no faster than occurrences", func(t *testing.T) {
		r := newPaceRig(t, time.Second/2)
		r.round(1)
		r.end()
		most := 0
		for range 20 {
			r.end()
			r.at = r.at.Add(paceWait - time.Millisecond)
			_, n := r.round(1)
			most = max(most, n)
		}
		if most < CatchUpMost {
			t.Errorf("at most %d are planned at once while the clock is as fast as the job", most)
		}
	})
	t.Run("others run them", func(t *testing.T) {
		r := newPaceRig(t, time.Second, store.Session{ID: job.ID{2}, Node: "b", Roles: []string{store.RoleWorker}, Capacity: 1000})
		r.view.Live = r.view.Live[:1]
		if n, _ := r.round(1); n < CatchUpMost || !r.pace().slow {
			t.Errorf("%d are planned, at the pace %+v of runs that others report", n, *r.pace())
		}
	})
	t.Run("nobody says what has become of them", func(t *testing.T) {
		r := newPaceRig(t, time.Second)
		r.view.Paced = false
		if n, _ := r.round(1); n < CatchUpMost || r.pace() != nil {
			t.Errorf("%d are planned at the pace %+v", n, r.pace())
		}
	})
}

func TestPaceEndsWithAnEditOrTheClock(t *testing.T) {
	for name, change := range map[string]func(r *paceRig){
		"edit": func(r *paceRig) {
			r.queue.Put([]store.PlannedJob{{UID: uid(1), Epoch: 2, Version: 2, Active: true, Cursor: now.Add(-time.Hour), Timing: serialText(t, time.Second)}})
		},
		"pause": func(r *paceRig) { r.queue.Put([]store.PlannedJob{{UID: uid(1), Epoch: 2, Version: 2}}) },
		"clock": func(r *paceRig) { r.queue.ClockStepped() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newPaceRig(t, time.Second)
			r.round(1)
			change(r)
			if n := r.queue.Held(); n != 0 || len(r.queue.paces) != 0 {
				t.Errorf("%d jobs are held, the paces are %v", n, r.queue.paces)
			}
			want := 1 // all slots are taken
			if name == "pause" {
				want = 0
			}
			if n, _ := r.round(1); n != want {
				t.Errorf("%d runs are planned, want %d", n, want)
			}
			r.at = r.at.Add(paceWait / 2)
			if r.round(1); r.queue.Held() != want {
				t.Errorf("%d jobs are held", r.queue.Held())
			}
		})
	}
}
