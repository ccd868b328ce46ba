package belfry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/belfrytest"
	"github.com/belfry-cron/belfry/store"
)

// deployment is instances of a program, in several versions, on one store.
type deployment struct {
	t     *testing.T
	open  store.Opener
	mu    sync.Mutex
	ran   map[string]int // runs by job and scheduled time
	count int            // number of instances so far
}

func newDeployment(t *testing.T) *deployment {
	return &deployment{t: t, open: belfrytest.Shared(), ran: map[string]int{}}
}

// start runs an instance of the version that declares some jobs: a name, and perhaps the
// seconds between its runs.
func (d *deployment) start(jobs string, options ...belfry.Option) (stop func()) {
	d.t.Helper()
	d.count++
	options = append(belfrytest.Options(d.t), append([]belfry.Option{belfry.WithNodeName(fmt.Sprint("n", d.count))}, options...)...)
	s := belfry.New(d.open, options...)
	for _, text := range strings.Fields(jobs) {
		name, every, _ := strings.Cut(text, ":")
		seconds, err := time.ParseDuration(every + "s")
		if every == "" {
			seconds, err = time.Second, nil
		}
		if err != nil {
			d.t.Fatal(err)
		}
		s.Job(name, belfry.Every(seconds), belfry.Func(func(_ context.Context, run *belfry.Run) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.ran[run.Job+" "+run.Scheduled.Format(time.TimeOnly)]++
			return nil
		}))
	}
	return belfrytest.Run(d.t, s)
}

// jobs returns the jobs in the store with the seconds between their runs.
func (d *deployment) jobs() string {
	d.t.Helper()
	st, err := d.open(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	list, _, err := st.ListJobs(d.t.Context(), store.JobQuery{Limit: 100})
	if err != nil {
		d.t.Fatal(err)
	}
	var names []string
	for _, j := range list {
		names = append(names, fmt.Sprintf("%s:%d", j.Definition.Name, time.Duration(j.Definition.Schedule.Every)/time.Second))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (d *deployment) want(when, jobs string) {
	d.t.Helper()
	if got := d.jobs(); got != jobs {
		d.t.Errorf("%s the jobs are %s, want %s", when, got, jobs)
	}
}

func TestUndeclaredJobsAreWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		stop := d.start("a b")
		d.want("after the first start", "a:1 b:1")
		stop()
		d.start("a:2 c")
		d.want("after another version was deployed", "a:2 c:1")
	})
}

func TestTwoVersionsInARollingDeploymentDoNotFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		const older, newer = "a b", "a c:2"
		d.start(older)
		stopOther := d.start(older)
		belfrytest.Advance(20 * time.Second)
		stopNew := d.start(newer)
		d.want("when the first instance of the newer version is there", "a:1 c:2")
		for range 5 {
			// Instances of the older version are restarted, and so is the only newer one.
			stopOther()
			belfrytest.Advance(3 * time.Second)
			stopOther = d.start(older)
			d.want("after an older instance was restarted", "a:1 c:2")
			belfrytest.Advance(10 * time.Second)
			stopNew()
			belfrytest.Advance(4 * time.Second)
			d.want("while the newer instance is restarted", "a:1 c:2")
			stopNew = d.start(newer)
			belfrytest.Advance(30 * time.Second)
			d.want("while both run", "a:1 c:2")
		}
		stopNew()
		belfrytest.Advance(25 * time.Second)
		d.want("shortly after the newer version is gone", "a:1 c:2")
		belfrytest.Advance(time.Minute)
		d.want("after a rollback", "a:1 b:1")

		// The job that both declare has lost nothing and done nothing twice.
		began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		for at := began.Add(time.Second); at.Before(time.Now().Add(-time.Second)); at = at.Add(time.Second) {
			if n := d.ran["a "+at.Format(time.TimeOnly)]; n != 1 {
				t.Errorf("a ran %d times for %s", n, at.Format(time.TimeOnly))
			}
		}
	})
}

func TestARollbackOfAllInstancesTakesEffectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		d.start("a b")()
		d.start("a c")()
		belfrytest.Advance(10 * time.Second)
		d.start("a b")
		d.want("after all were stopped and the older version was started", "a:1 b:1")
	})
}

func TestProgramsAndNamespacesDoNotTouchEachOthersJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		d.start("a", belfry.WithOwner("billing"))
		d.start("b", belfry.WithOwner("mail"))
		d.start("a c", belfry.WithNamespace("staging"), belfry.WithOwner("billing"))
		d.want("with three programs", "a:1 a:1 b:1 c:1")
		d.start("d", belfry.WithNamespace("staging"), belfry.WithOwner("billing"))
		d.want("after one has withdrawn its jobs", "a:1 b:1 d:1")

		// A job name of another program is refused before any job runs.
		s := belfry.New(d.open, append(belfrytest.Options(t), belfry.WithOwner("mail"))...)
		s.Job("a", belfry.Func(func(context.Context, *belfry.Run) error { return nil }))
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `job default/a belongs to the owner "billing"`) {
			t.Errorf("a job of another program was answered with %v", err)
		}
		d.want("after that", "a:1 b:1 d:1")
	})
}

func TestAPauseByHandOutlivesADeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		stop := d.start("a")
		other := belfry.New(d.open, belfrytest.Options(t)...)
		if err := other.Pause(t.Context(), "a", "an incident", time.Time{}); err != nil {
			t.Fatal(err)
		}
		stop()
		clear(d.ran)
		d.start("a b")
		belfrytest.Advance(10 * time.Second)
		if n := d.ran["a 00:00:05"]; n != 0 || d.ran["b 00:00:05"] != 1 {
			t.Errorf("after the deployment the paused job ran %d times, the other %d", n, d.ran["b 00:00:05"])
		}
	})
}

func TestAProgramWithHandlersOnlyRunsTheJobsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(t)
		planner := belfry.New(d.open, append(belfrytest.Options(t), belfry.WithNodeName("planner"))...)
		planner.Job("resize", belfry.Every(time.Second), belfry.Do("resize", map[string]int{"width": 80}))
		belfrytest.Run(t, planner)
		worker := belfry.New(d.open, append(belfrytest.Options(t), belfry.WithNodeName("worker"), belfry.WithHandlersOnly())...)
		ran := 0
		belfry.Handle(worker, "resize", func(_ context.Context, run *belfry.Run, in map[string]int) (belfry.None, error) {
			if ran++; run.Node != "worker" || in["width"] != 80 {
				t.Errorf("it ran on %s with %v", run.Node, in)
			}
			return belfry.None{}, nil
		})
		belfrytest.Run(t, worker)
		belfrytest.Advance(10 * time.Second)
		if ran < 8 {
			t.Errorf("it ran %d times in 10 s", ran)
		}
	})
}

// If an instance of an earlier version may have written at the same time, a program soon declares
// again. On a store in its own process there is no other instance.
func TestAProgramAloneDeclaresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := belfrytest.New(t)
		s.Job("nightly", belfry.Cron("30 2 * * *"), belfry.Func(func(context.Context, *belfry.Run) error { return nil }))
		belfrytest.Run(t, s)
		if err := s.Remove(t.Context(), "nightly"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(t.Context(), "nightly", 1); !errors.Is(err, belfry.ErrNotFound) {
			t.Fatalf("it is not removed: %v", err)
		}
		belfrytest.Advance(4 * time.Minute)
		if _, err := s.Next(t.Context(), "nightly", 1); !errors.Is(err, belfry.ErrNotFound) {
			t.Errorf("after four minutes it has been declared again: %v", err)
		}
		belfrytest.Advance(2 * time.Minute)
		if _, err := s.Next(t.Context(), "nightly", 1); err != nil {
			t.Errorf("after six minutes it has not been declared again: %v", err)
		}
	})
}
