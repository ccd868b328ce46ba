package planner

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/planqueue"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// away returns jobs that are due each second and were missed for a while.
func away(t *testing.T, n int, missed job.Missed, long time.Duration) (list []store.PlannedJob) {
	t.Helper()
	text := missing(t, missed, 10_000)
	for range n {
		list = append(list, store.PlannedJob{UID: uid(len(list) + 1), Epoch: 1, Version: 1, Active: true, Cursor: time.Now().Add(-long), Timing: text})
	}
	return list
}

func TestJobsWithQueuedRunsTakeTurns(t *testing.T) {
	for _, c := range []struct {
		overlap job.Overlap
		jobs    int
		want    int
	}{
		{job.OverlapSkip, 2000, 1},
		{job.OverlapQueue, 200, 10},
		{job.OverlapSkip, 3, planqueue.CatchUpMost},
		{job.OverlapAllow, 2000, planqueue.CatchUpMost},
	} {
		t.Run(fmt.Sprint(c.overlap, c.jobs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				forever := job.Forever
				j := &job.Job{
					Name: "j", Schedule: job.Schedule{Cron: []string{"* * * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
					Policy: job.Policy{Missed: job.MissedAll, MissedLimit: 10_000, Overlap: c.overlap, LateBy: &forever},
				}
				text, err := engine.TimingText(j.WithDefaults(job.Defaults{}), nil)
				if err != nil {
					t.Fatal(err)
				}
				jobs := away(t, c.jobs, job.MissedAll, time.Hour)
				for i := range jobs {
					jobs[i].Timing = text
				}
				w := newWaiting(jobs)
				run(newPlanner(&w.fake), 300*time.Millisecond)
				if len(w.planned) == 0 {
					t.Fatal("nothing was planned")
				}
				if n := len(w.planned[0].Runs); n != c.want {
					t.Errorf("%d runs of a job were planned in its first turn, want %d", n, c.want)
				}
			})
		})
	}
}

// missing returns the text of a job that is due each second and catches up at most n.
func missing(t *testing.T, missed job.Missed, limit int) string {
	t.Helper()
	forever := job.Forever
	j := &job.Job{
		Name: "j", Schedule: job.Schedule{Cron: []string{"* * * * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
		Policy: job.Policy{Missed: missed, LateBy: &forever},
	}
	if missed == job.MissedAll {
		j.Policy.MissedLimit = limit
	}
	text, err := engine.TimingText(j.WithDefaults(job.Defaults{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// waiting is a store whose runs that are due wait until they are run, n a second.
type waiting struct {
	fake
	rate  int
	taken int
	until time.Time // time until which runs have run
	asked int       // how many wait

	seen   int         // number of plans seen
	ahead  []time.Time // due times of planned runs that are not due yet
	fallen int         // number of runs that have fallen due
}

// due returns how many of the planned runs are.
func (w *waiting) due() int {
	for ; w.seen < len(w.planned); w.seen++ {
		for _, r := range w.planned[w.seen].Runs {
			w.ahead = append(w.ahead, r.Due)
		}
	}
	before := len(w.ahead)
	w.ahead = slices.DeleteFunc(w.ahead, func(due time.Time) bool { return !due.After(time.Now()) })
	w.fallen += before - len(w.ahead)
	return w.fallen
}

// work runs what could be run since the last time, and returns how many wait.
func (w *waiting) work() int {
	waits := w.due() - w.taken
	did := min(waits, int(float64(w.rate)*time.Since(w.until).Seconds()))
	w.taken, w.until = w.taken+did, time.Now()
	return waits - did
}

func newWaiting(jobs []store.PlannedJob) *waiting {
	w := &waiting{fake: fake{jobs: jobs}, rate: math.MaxInt32, until: time.Now()}
	w.backlog = func() (map[job.ID]int, error) {
		w.asked++
		return map[job.ID]int{{1}: min(planqueue.BacklogMax, w.work())}, nil
	}
	return w
}

// jobsInTheLongest is small enough for a minute of their runs to be little beside the bounds.
const jobsInTheLongest = 30

func TestBacklogIsPlannedAsItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(away(t, jobsInTheLongest, job.MissedAll, 2*time.Hour))
		other := active(t, 1000, "* * * * * *")
		w.jobs = append(w.jobs, other)
		w.outcome = func(item store.PlanItem) (store.PlanOutcome, error) {
			if item.Job == other.UID && !item.Runs[0].Due.After(time.Now()) {
				t.Errorf("what is due now has waited: %s was planned at %s", item.Runs[0].Due, time.Now())
			}
			return store.Planned, nil
		}
		p := newPlanner(&w.fake)
		var log strings.Builder
		p.Log = slog.New(slog.NewTextHandler(&log, nil))
		const onTime = jobsInTheLongest * 60
		for _, rate := range []int{0, 200, 4000, 500} {
			w.rate = rate
			run(p, 20*time.Second) // to find out
			before, asked := w.taken, w.asked
			run(p, 10*time.Second)
			waits, did := w.work(), w.taken-before
			if asked = w.asked - asked; rate > planqueue.BacklogFew && asked > 30 {
				t.Errorf("%d a second are run, and it was counted %d times in 10 s how many wait", rate, asked)
			}
			if most := max(planqueue.BacklogMin, rate*int(planqueue.BacklogFor/time.Second)) + onTime; waits > most {
				t.Errorf("%d a second are run, and %d wait, want at most %d", rate, waits, most)
			}
			if did < 10*rate*9/10 {
				t.Errorf("%d were run, and could have been %d", did, 10*rate)
			}
			if p.Stats().Held == 0 {
				t.Errorf("%d a second are run, %d wait, and none is held", rate, waits)
			}
		}
		w.rate = math.MaxInt32
		run(p, time.Minute)
		// Each occurrence once, in order.
		latest := map[job.ID]time.Time{}
		for _, item := range w.planned {
			for _, r := range item.Runs {
				if before, ok := latest[item.Job]; ok && !r.Scheduled.Equal(before.Add(time.Second)) {
					t.Fatalf("%s was planned behind %s", r.Scheduled, before)
				}
				latest[item.Job] = r.Scheduled
			}
			if len(item.Missed) > 0 {
				t.Errorf("missed: %v", item.Missed)
			}
		}
		for i := range w.jobs {
			if ahead := time.Until(latest[w.jobs[i].UID]); ahead < 5*time.Second {
				t.Errorf("job %d is planned up to %s from now", i, ahead)
			}
		}
		if s := p.Stats(); s.Held != 0 || s.Ahead < 0 {
			t.Errorf("in the end: %+v", s)
		}
		if n := strings.Count(log.String(), "step by step"); n == 0 || n != strings.Count(log.String(), "caught up: all missed occurrences are planned") {
			t.Errorf("the log: %s", log.String())
		}
	})
}

// The backlog soon grows from few waiting runs to as many as fast nodes run.
func TestFastNodesReceiveLargerShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(away(t, jobsInTheLongest, job.MissedAll, 2*time.Hour))
		p := newPlanner(&w.fake)
		run(p, 1500*time.Millisecond)
		if n := w.due(); n < 2*planqueue.BacklogMax {
			t.Errorf("%d were planned", n)
		}
	})
}

// Runs on time that are planned with missed ones do not count as run.
func TestTailOfTheBacklogIsPlannedAsItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs, rate = 100, 200
		w := newWaiting(away(t, jobs, job.MissedAll, engine.OnTime+5*time.Second))
		w.rate = rate
		p := newPlanner(&w.fake)
		most := 0
		w.outcome = func(store.PlanItem) (store.PlanOutcome, error) {
			most = max(most, w.work())
			return store.Planned, nil
		}
		run(p, 2*time.Minute) // twice as many runs run as fall due
		if p.Stats().Held > 0 || w.work() > jobs {
			t.Errorf("%d are held, %d runs wait", p.Stats().Held, w.work())
		}
		if limit := rate*int(planqueue.BacklogFor/time.Second) + 5*jobs; most > limit {
			t.Errorf("up to %d waited, want at most %d", most, limit)
		}
	})
}

// Nodes that catch up on one job together take turns.
func TestOneCatchUpDecisionGoesToOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(away(t, jobsInTheLongest, job.MissedAll, 2*time.Hour))
		p := newPlanner(&w.fake)
		p.Session = func() job.ID { return job.ID{3} } // which runs nothing
		live := twoWorkers()
		p.Live = func() []store.Session { return live }
		run(p, time.Second)
		decisions := map[job.ID]int{}
		for _, item := range w.planned {
			for _, r := range item.Runs {
				if r.Session != item.Runs[0].Session {
					t.Fatalf("runs of one decision go to %s and %s", item.Runs[0].Session, r.Session)
				}
			}
			decisions[item.Runs[0].Session]++
		}
		if a, b := decisions[job.ID{1}], decisions[job.ID{2}]; a < len(w.planned)/4 || b < len(w.planned)/4 {
			t.Errorf("the nodes got %d and %d of %d decisions: %v", a, b, len(w.planned), decisions)
		}
	})
}

// So the calls of a job's planning node and of its running node do not wait for each other.
func TestCatchUpRunsGoToTheirPlanner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(append(away(t, jobsInTheLongest, job.MissedAll, 2*time.Hour), active(t, 1000, "* * * * * *")))
		p := newPlanner(&w.fake)
		live := twoWorkers()
		p.Live = func() []store.Session { return live }
		run(p, time.Second)
		late, onTime := map[job.ID]int{}, map[job.ID]int{}
		for _, item := range w.planned {
			for _, r := range item.Runs {
				if r.Due.Before(time.Now().Add(-time.Minute)) {
					late[r.Session]++
				} else {
					onTime[r.Session]++
				}
			}
		}
		if late[job.ID{1}] == 0 || len(late) != 1 {
			t.Errorf("what was missed goes to %v", late)
		}
		if len(onTime) != 2 {
			t.Errorf("what falls due now goes to %v", onTime)
		}
	})
}

func twoWorkers() []store.Session {
	return []store.Session{
		{ID: job.ID{1}, Node: "a", Roles: []string{store.RoleWorker}, Capacity: 10},
		{ID: job.ID{2}, Node: "b", Roles: []string{store.RoleWorker}, Capacity: 10},
	}
}

// Other policies than missed: all run at most one occurrence per gap, however long: waiting would
// make two gaps one.
func TestOnlyFullCatchUpsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(away(t, 10, job.MissedLatest, time.Hour))
		w.backlog = func() (map[job.ID]int, error) { return map[job.ID]int{{1}: planqueue.BacklogMax}, nil }
		p := newPlanner(&w.fake)
		run(p, time.Second)
		if len(w.planned) < 10 || p.Stats().Held > 0 {
			t.Errorf("%d decisions, %d are held", len(w.planned), p.Stats().Held)
		}
	})
}

// A catch-up is decided once, however long its rest waits, unless the job is changed.
func TestCatchUpIsDecidedOnce(t *testing.T) {
	const limit = 3 * planqueue.CatchUpMost
	for _, c := range []struct {
		name         string
		edit         job.Missed // meanwhile
		runs, missed int
	}{
		{"the job stays", "", limit, 7200 - 30 - limit},
		{"its policy is none now", job.MissedNone, planqueue.CatchUpMost, 7200 - 30 - planqueue.CatchUpMost},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWaiting(away(t, 1, job.MissedAll, 2*time.Hour))
				w.jobs[0].Timing = missing(t, job.MissedAll, limit)
				began := time.Now()
				waiting := planqueue.BacklogMin - 1
				w.backlog = func() (map[job.ID]int, error) { return map[job.ID]int{{1}: waiting}, nil }
				p := newPlanner(&w.fake)
				run(p, time.Nanosecond)
				if p.Stats().Held != 1 {
					t.Fatal("it does not wait")
				}
				waiting = planqueue.BacklogMax
				run(p, 250*time.Second)
				if len(w.planned) != 1 || p.Stats().Held != 1 {
					t.Fatalf("%d decisions, %d are held", len(w.planned), p.Stats().Held)
				}
				if c.edit != "" {
					edited := w.jobs[0]
					edited.Version, edited.Timing, edited.Cursor, edited.Planned = 2, missing(t, c.edit, limit), w.planned[0].To, len(w.planned[0].Runs)
					w.jobs = append(w.jobs, edited)
				}
				waiting = 0
				run(p, 10*time.Second)
				runs, missed := 0, 0
				for _, item := range w.planned {
					for _, r := range item.Runs {
						if r.Due.Before(began.Add(-engine.OnTime)) {
							runs++
						}
					}
					for _, s := range item.Missed {
						for at := s.First; !at.After(s.Last); at = at.Add(time.Second) {
							if at.Before(began.Add(-engine.OnTime)) {
								missed++
							}
						}
					}
				}
				if runs != c.runs || missed < c.missed-1 || missed > c.missed+1 {
					t.Errorf("%d were caught up and %d missed, want %d and %d", runs, missed, c.runs, c.missed)
				}
			})
		})
	}
}

func TestFailedCountDoesNotBlockTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(away(t, 3, job.MissedAll, time.Hour))
		fails := true
		count := w.backlog
		w.backlog = func() (map[job.ID]int, error) {
			if fails {
				return nil, errors.New("the store is away")
			}
			return count()
		}
		w.jobs = append(w.jobs, active(t, 1000, "* * * * * *"))
		p := newPlanner(&w.fake)
		run(p, 10*time.Second)
		if len(w.planned) > 0 {
			t.Fatalf("planned without a count: %d", len(w.planned))
		}
		fails = false
		run(p, 10*time.Second)
		if slots := p.Stats().Held; slots > 0 || w.due() < 3*3600 {
			t.Errorf("%d are held, %d runs are due", slots, w.due())
		}
	})
}

func TestEditsAndClockStepsKeepTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(away(t, jobsInTheLongest, job.MissedAll, 2*time.Hour))
		p := newPlanner(&w.fake)
		run(p, time.Second)
		if p.Stats().Held == 0 {
			t.Fatal("nothing is held")
		}
		cursor := map[job.ID]time.Time{}
		for _, item := range w.planned {
			cursor[item.Job] = item.To
		}
		edited := w.jobs[0]
		edited.Version, edited.Cursor = 2, cursor[edited.UID]
		gone := w.jobs[1]
		gone.Version, gone.Active, gone.Cursor = 2, false, cursor[gone.UID]
		w.jobs = append(w.jobs, edited, gone)
		p.ClockStepped()
		w.planned = nil
		run(p, time.Minute)
		for _, item := range w.planned {
			if to := cursor[item.Job]; !item.From.Equal(to) {
				t.Fatalf("job %v was planned from %s, behind %s", item.Job, item.From, to)
			}
			cursor[item.Job] = item.To
		}
		for uid, to := range cursor {
			if ahead := time.Until(to); (ahead < 5*time.Second) != (uid == gone.UID) {
				t.Errorf("job %v is planned up to %s from now", uid, ahead)
			}
		}
	})
}
