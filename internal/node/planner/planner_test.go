package planner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/planqueue"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// fake is a store that answers as a test says and records the calls.
type fake struct {
	jobs    []store.PlannedJob
	outcome func(store.PlanItem) (store.PlanOutcome, error)
	planned []store.PlanItem
	cursor  time.Time // cursor of every job that is read alone
	backlog func() (map[job.ID]int, error)
	left    []store.Run // runs of a departed node, until they are placed
	calls   []string    // calls of Plan and Place
	// unplaced is the error of reading the runs to be placed.
	unplaced error
}

func (f *fake) JobsChanged(_ context.Context, _ store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error) {
	changed := f.jobs[since:min(len(f.jobs), int(since)+limit)]
	return changed, since + int64(len(changed)), nil
}

func (f *fake) Summary(context.Context) (sums [job.Partitions]store.PartitionSummary, err error) {
	latest := map[job.ID]store.PlannedJob{}
	for _, j := range f.jobs {
		latest[j.UID] = j
	}
	for uid, j := range latest {
		if j.Active {
			sum := &sums[job.Partition(uid)]
			sum.Jobs, sum.Versions = sum.Jobs+1, sum.Versions+j.Version
		}
	}
	return sums, nil
}

func (f *fake) Cursors(_ context.Context, uids []job.ID) (list []store.JobCursor, err error) {
	for _, uid := range uids {
		list = append(list, store.JobCursor{UID: uid, Epoch: 1, Cursor: f.cursor})
	}
	return list, nil
}

func (f *fake) JobsByUID(_ context.Context, uids []job.ID) (list []*store.Job, err error) {
	for _, uid := range uids {
		list = append(list, &store.Job{Definition: &job.Job{UID: uid, Epoch: 1}, Filled: &job.Job{}, Cursor: f.cursor})
	}
	return list, nil
}

func (f *fake) Registrations(context.Context, string) ([]store.Registration, error) { return nil, nil }

func (f *fake) Documents(context.Context, ...job.Kind) ([]job.Document, error) { return nil, nil }

func (f *fake) Plan(_ context.Context, _ job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	f.calls = append(f.calls, "plan")
	outcomes := make([]store.PlanOutcome, len(items))
	for i := range items {
		if f.outcome != nil {
			var err error
			if outcomes[i], err = f.outcome(items[i]); err != nil {
				return nil, nil, err
			}
		}
		if outcomes[i] == store.Planned {
			f.planned = append(f.planned, items[i])
		}
	}
	return outcomes, nil, nil
}

func (f *fake) LookAhead() time.Duration { return 15 * time.Second }

func (f *fake) Backlog(context.Context, int) (map[job.ID]int, error) {
	if f.backlog == nil {
		return nil, nil
	}
	return f.backlog()
}

func (f *fake) Unplaced(context.Context, store.RunRef, int) ([]store.Run, error) {
	return f.left, f.unplaced
}

func (f *fake) Place(context.Context, []store.Placement) error {
	f.calls, f.left = append(f.calls, "place"), nil
	return nil
}

// timingOf returns the text of a job that is due by an expression.
func timingOf(t testing.TB, expr string) string {
	t.Helper()
	j := &job.Job{Name: "j", Schedule: job.Schedule{Cron: []string{expr}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
	text, err := engine.TimingText(j.WithDefaults(job.Defaults{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func uid(n int) job.ID {
	var id job.ID
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func newPlanner(f *fake) *Planner {
	live := []store.Session{{ID: job.ID{1}, Node: "a", Roles: []string{store.RoleWorker}, Capacity: 10}}
	return New(Config{
		Store: f, Session: func() job.ID { return job.ID{1} }, Live: func() []store.Session { return live },
		Partitions: func() store.Partitions { return store.AllPartitions },
		Now:        time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

// run runs a planner for some time.
func run(p *Planner, d time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = p.Run(ctx); close(done) }()
	time.Sleep(d)
	cancel()
	<-done
}

func active(t testing.TB, n int, expr string) store.PlannedJob {
	return store.PlannedJob{UID: uid(n), Epoch: 1, Version: 1, Active: true, Cursor: time.Now(), Timing: timingOf(t, expr)}
}

func TestRunsOfAGoneNodeArePlacedBeforeItsBacklogIsPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{jobs: []store.PlannedJob{active(t, 1, "* * * * *")}}
		f.jobs[0].Cursor = time.Now().Add(-time.Hour)
		f.left = []store.Run{{Run: job.Run{ID: uid(1), JobUID: uid(1), Attempt: 1}}}
		run(newPlanner(f), time.Second)
		if got := fmt.Sprint(f.calls); got != "[place plan]" {
			t.Errorf("the calls were %s", got)
		}
	})
}

// hanging is a store of which one call never ends by itself.
type hanging struct {
	*fake
	hangs atomic.Bool
	plans []time.Time
}

func (h *hanging) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	h.plans = append(h.plans, time.Now())
	if h.hangs.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return h.fake.Plan(ctx, session, items)
}

func TestACallThatHangsEndsBeforeThePlannedRunsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{fake: &fake{jobs: []store.PlannedJob{active(t, 1, "* * * * * *")}}}
		p := newPlanner(h.fake)
		p.Store = New(Config{Store: h}).Store
		go func() {
			time.Sleep(time.Minute)
			h.hangs.Store(true)
		}()
		run(p, 2*time.Minute)
		for i, at := range append(h.plans, time.Now())[1:] {
			if wait := at.Sub(h.plans[i]); wait >= h.LookAhead() {
				t.Errorf("nothing was planned for %s: runs are planned for %s ahead", wait, h.LookAhead())
			}
		}
		if h.hangs.Load() || len(h.plans) < 2 {
			t.Error("no call has hung")
		}
	})
}

func TestUnplaceableRunsBlockNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{jobs: []store.PlannedJob{active(t, 1, "* * * * *")}, unplaced: errors.New("unreadable")}
		run(newPlanner(f), 2*time.Minute)
		if len(f.planned) == 0 {
			t.Error("nothing was planned")
		}
	})
}

func TestJobIsCompletedAtOnceAfterItsMaxRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &job.Job{Name: "j", Schedule: job.Schedule{Every: job.Duration(24 * time.Hour), MaxRuns: 2}, Run: job.RunSpec{Handler: &job.Handler{Name: "h"}}}
		text, err := engine.TimingText(j.WithDefaults(job.Defaults{}), nil)
		if err != nil {
			t.Fatal(err)
		}
		f := &fake{}
		for n := range 3 { // a job may have planned more under a larger limit
			f.jobs = append(f.jobs, store.PlannedJob{UID: uid(n + 1), Epoch: 1, Version: 1, Active: true, Cursor: time.Now(), Planned: n + 1, Timing: text})
		}
		run(newPlanner(f), time.Second)
		if len(f.planned) != 2 {
			t.Fatalf("planned %v, want two", f.planned)
		}
		for _, item := range f.planned {
			if !item.Complete || len(item.Runs) > 0 || item.Job == uid(1) {
				t.Errorf("planned %+v", item)
			}
		}
	})
}

func TestRunsArePlannedAheadOnceAndPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{jobs: []store.PlannedJob{active(t, 1, "*/10 * * * * *")}}
		cursor := time.Now()
		run(newPlanner(f), 60*time.Second)
		n := 0
		for _, item := range f.planned {
			if !item.From.Equal(cursor) {
				t.Errorf("an item moves the cursor from %s, want %s", item.From, cursor)
			}
			cursor = item.To
			for _, r := range item.Runs {
				n++
				if r.Session != (job.ID{1}) || r.ID.IsZero() || !r.Due.Equal(r.Scheduled) {
					t.Errorf("run %+v", r)
				}
			}
		}
		if n != 7 { // 60 s and the look-ahead
			t.Errorf("%d runs planned, want 7", n)
		}
	})
}

func TestRefusedItemIsReplannedFromTheCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{jobs: []store.PlannedJob{active(t, 1, "*/10 * * * * *")}}
		f.cursor = time.Now().Add(30 * time.Second)
		refused := 0
		f.outcome = func(item store.PlanItem) (store.PlanOutcome, error) {
			if item.From.Before(f.cursor) {
				refused++
				return store.Moved, nil
			}
			return store.Planned, nil
		}
		run(newPlanner(f), 40*time.Second)
		if refused != 1 || len(f.planned) == 0 || !f.planned[0].From.Equal(f.cursor) {
			t.Errorf("refused %d times, planned %v", refused, f.planned)
		}
	})
}

func TestRejectedItemsAreReplanned(t *testing.T) {
	for name, refuse := range map[string]func() (store.PlanOutcome, error){
		"the store fails":     func() (store.PlanOutcome, error) { return 0, errors.New("away") },
		"its clock is behind": func() (store.PlanOutcome, error) { return store.TooFar, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{jobs: []store.PlannedJob{active(t, 1, "*/10 * * * * *")}}
				until := time.Now().Add(5 * time.Second)
				asked := 0
				f.outcome = func(store.PlanItem) (store.PlanOutcome, error) {
					if time.Now().Before(until) {
						asked++
						return refuse()
					}
					return store.Planned, nil
				}
				run(newPlanner(f), 8*time.Second)
				if len(f.planned) == 0 {
					t.Error("nothing was planned afterwards")
				}
				if asked > 30 {
					t.Errorf("asked %d times in 5 s: it spins", asked)
				}
			})
		})
	}
}

// A standby that takes over may lack the last acknowledged steps.
func TestStepsLostInAnOutageAreReplanned(t *testing.T) {
	for name, fails := range map[string]bool{"a call fails": true, "the store says so": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{jobs: []store.PlannedJob{active(t, 1, "0 * * * * *"), active(t, 2, "* * * * * *")}}
				begun := time.Now()
				f.cursor = begun
				f.outcome = func(item store.PlanItem) (store.PlanOutcome, error) {
					if after := time.Since(begun); fails && item.Job == uid(2) && 53*time.Second <= after && after < 55*time.Second {
						return 0, errors.New("away")
					}
					return store.Planned, nil
				}
				p := newPlanner(f)
				wake := make(chan store.Hint, 1)
				p.Wake = wake
				if !fails {
					time.AfterFunc(54*time.Second, func() { wake <- store.HintLost })
				}
				run(p, 58*time.Second)
				times := 0
				for _, item := range f.planned {
					if item.Job == uid(1) {
						times++
					}
				}
				if times != 2 {
					t.Errorf("what was lost was planned %d times, want 2", times)
				}
			})
		})
	}
}

func TestGainedJobsAreReadWithoutBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2*page + 1
		f := &fake{}
		for i := range n {
			f.jobs = append(f.jobs, active(t, i+1, "* * * * *"))
		}
		f.cursor = time.Now().Add(time.Hour)
		var mine store.Partitions
		var mu sync.Mutex
		p := newPlanner(f)
		p.Partitions = func() store.Partitions {
			mu.Lock()
			defer mu.Unlock()
			return mine
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { _ = p.Run(ctx); close(done) }()
		time.Sleep(time.Minute + planqueue.Every/2)
		mu.Lock()
		mine = store.AllPartitions
		mu.Unlock()
		time.Sleep(planqueue.Every)
		if got := p.Stats().Jobs; got != n || len(f.planned) > 0 {
			t.Errorf("after a look it plans %d of %d jobs, %d from where they were", got, n, len(f.planned))
		}
		cancel()
		<-done
	})
}

// batches is a store that records the jobs of each call.
type batches struct {
	fake
	calls [][]job.ID
}

func (b *batches) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	var jobs []job.ID
	for i := range items {
		jobs = append(jobs, items[i].Job)
	}
	b.calls = append(b.calls, jobs)
	return b.fake.Plan(ctx, session, items)
}

func TestCrowdIsPlannedLaneByLaneWithoutLongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3 * planqueue.LaneEntries
		b := &batches{}
		j := active(t, 0, "*/10 * * * * *")
		j.Cursor = j.Cursor.Add(-time.Hour)
		for i := range n { // the first one is due first
			j.UID = uid(i + 1)
			b.jobs = append(b.jobs, j)
			j.Cursor = j.Cursor.Add(time.Second / 10)
		}
		p := newPlanner(&b.fake)
		p.Store = b
		p.Stripes = &stripes.Stripes{}
		var busy stripes.Set
		busy.Add(stripes.Of(uid(1)))
		p.Stripes.Enter(func(stripes.Set) stripes.Set { return busy }) // another call
		run(p, time.Nanosecond)
		planned := map[job.ID]bool{}
		for i, call := range b.calls {
			var within stripes.Set
			for _, uid := range call {
				within.Add(stripes.Of(uid))
				planned[uid] = true
			}
			if bits.OnesCount8(uint8(within)) > 1 {
				t.Fatalf("call %d of %d is within stripes %b", i, len(b.calls), within)
			}
			if within == busy && len(planned) < planqueue.LaneEntries/2 {
				t.Fatalf("call %d is in the stripe that is busy", i)
			}
			if len(planned) > 2*planqueue.LaneEntries {
				break
			}
		}
		for i := range store.MaxBatch {
			if uid := uid(i + 1); !busy.Has(stripes.Of(uid)) && !planned[uid] {
				t.Fatalf("job %d waits for those that are due later", i)
			}
		}
		if len(b.planned) < n {
			t.Errorf("%d of %d jobs were planned", len(b.planned), n)
		}
	})
}

func TestUnreadableScheduleDelaysNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := active(t, 1, "* * * * * *")
		bad.Timing = `{"schedule":{"cron":["nonsense"]}}`
		f := &fake{jobs: []store.PlannedJob{bad, active(t, 2, "*/10 * * * * *")}}
		run(newPlanner(f), 5*time.Second)
		if len(f.planned) == 0 || f.planned[0].Job != uid(2) {
			t.Errorf("planned %v", f.planned)
		}
	})
}

// million returns jobs with about the distinct schedules of a million real ones.
func million(tb testing.TB, n int) []store.PlannedJob {
	tb.Helper()
	var texts []string
	for i := range 2000 {
		texts = append(texts, timingOf(tb, fmt.Sprintf("%d %d * * %d", i%60, i/60%24, i%7)))
	}
	jobs := make([]store.PlannedJob, n)
	now := time.Now()
	for i := range jobs {
		jobs[i] = store.PlannedJob{UID: uid(i), Epoch: 1, Version: 1, Active: true, Cursor: now, Timing: texts[i%len(texts)]}
	}
	return jobs
}

func TestPlannedJobUsesAbout120Bytes(t *testing.T) {
	const n = 200_000
	jobs := million(t, n)
	before := heap()
	p := newPlanner(&fake{jobs: jobs})
	if err := p.refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	if each := int64(heap()-before) / n; each > 160 { // other tests may have left garbage
		t.Errorf("%d bytes for each job", each)
	}
	runtime.KeepAlive(p)
	runtime.KeepAlive(jobs)
}

func heap() uint64 {
	for range 2 { // what has a finalizer is freed by the second one
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// aMillion is the number of jobs in benchmarks, or few with testing.Short, which only checks that
// they run.
func aMillion() int {
	if testing.Short() {
		return 1000
	}
	return 1_000_000
}

func BenchmarkLoadAMillionJobs(b *testing.B) {
	jobs := million(b, aMillion())
	for b.Loop() {
		if err := newPlanner(&fake{jobs: jobs}).refresh(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTickWithNothingDue(b *testing.B) {
	p := newPlanner(&fake{jobs: million(b, aMillion())})
	p.queue.LookAhead = 0
	if err := p.round(context.Background()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := p.round(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
