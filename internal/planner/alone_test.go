package planner_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/internal/planner"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("the store is away")

// between stands between a planner and a store, and keeps what was planned.
type between struct {
	store.Store
	mu       sync.Mutex
	onPlan   func(do func() ([]store.PlanOutcome, error)) ([]store.PlanOutcome, error)
	items    []store.PlanItem
	outcomes []store.PlanOutcome // of the items that were answered
	biggest  int                 // items in one call
	size     *int                // if it is set, it is told how many are in each
	reads    int
	whole    int
	// onCursors, if it is set, answers who asks how far jobs are planned.
	onCursors func() error
	cursors   [][]job.ID // of jobs that were asked for, by call
	// failReads makes reads of jobs fail.
	failReads atomic.Bool
	// onSummary is called when jobs were counted, before the answer. May be nil.
	onSummary func() error
	// beforeRead is told from where jobs are about to be read. May be nil.
	beforeRead func(since int64)
}

func (b *between) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, error) {
	b.mu.Lock()
	hook := b.onPlan
	b.biggest = max(b.biggest, len(items))
	if b.size != nil {
		*b.size = len(items)
	}
	b.mu.Unlock()
	do := func() ([]store.PlanOutcome, error) { return b.Store.Plan(ctx, session, items) }
	var outcomes []store.PlanOutcome
	var err error
	if hook != nil {
		outcomes, err = hook(do)
	} else {
		outcomes, err = do()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items = append(b.items, items...)
	b.outcomes = append(b.outcomes, outcomes...)
	return outcomes, err
}

func (b *between) JobsChanged(ctx context.Context, p store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error) {
	b.mu.Lock()
	b.reads++
	if since == 0 {
		b.whole++
	}
	b.mu.Unlock()
	if b.failReads.Load() {
		return nil, 0, errAway
	}
	if b.beforeRead != nil {
		b.beforeRead(since)
	}
	return b.Store.JobsChanged(ctx, p, since, limit)
}

func (b *between) Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error) {
	if b.failReads.Load() {
		return nil, errAway
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.onCursors != nil {
		return nil, b.onCursors()
	}
	b.cursors = append(b.cursors, uids)
	return b.Store.Cursors(ctx, uids)
}

func (b *between) Summary(ctx context.Context) ([job.Partitions]store.PartitionSummary, error) {
	sums, err := b.Store.Summary(ctx)
	if b.onSummary != nil && err == nil {
		err = b.onSummary()
	}
	return sums, err
}

// askedCursors returns the calls that were made for cursors.
func (b *between) askedCursors() [][]job.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cursors
}

// readWhole returns how often jobs were read from the beginning.
func (b *between) readWhole() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.whole
}

// planned returns how many calls were answered with Planned and otherwise.
func (b *between) planned() (yes, no int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.outcomes {
		if o == store.Planned {
			yes++
		} else {
			no++
		}
	}
	return yes, no
}

// rig is one planner on a store in memory.
type rig struct {
	t       *testing.T
	memory  *memory.Store
	store   *between
	planner *planner.Planner
	wake    chan store.Hint
	set     atomic.Int64 // by how much the wall clock was set
	live    atomic.Pointer[[]store.Session]
	self    job.ID
	parts   atomic.Pointer[store.Partitions] // that it plans
	looks   atomic.Int64
	halt    func()
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, wake: make(chan store.Hint, 1), halt: func() {}}
	r.parts.Store(&store.AllPartitions)
	r.memory = memory.New(memory.Options{Now: r.wall})
	r.store = &between{Store: r.memory}
	s, err := r.memory.Join(context.Background(), store.Session{
		ID: job.ID{1}, Node: "a", Machine: "m", DataDir: "/a", Roles: []string{placement.RoleWorker, placement.RolePlanner}, Capacity: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.self = s.ID
	r.live.Store(&[]store.Session{s})
	t.Cleanup(func() { r.halt() })
	return r
}

func (r *rig) wall() time.Time { return time.Now().Add(time.Duration(r.set.Load())).Round(0) }

func (r *rig) start() {
	r.planner = planner.New(planner.Config{
		Store: r.store, Session: func() job.ID { return r.self }, Live: func() []store.Session { return *r.live.Load() },
		Partitions: func() store.Partitions { return *r.parts.Load() }, LookAhead: 15 * time.Second, Wake: r.wake, Now: r.wall,
		Look: func(context.Context) error { r.looks.Add(1); return nil },
		Log:  slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.planner.Run(ctx) }()
	// The session lives, so that its runs stay where they were placed.
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		for ctx.Err() == nil {
			_ = r.memory.Renew(ctx, r.self, store.Load{})
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
	}()
	r.halt = func() { cancel(); <-done; <-renewed }
}

func (r *rig) put(text string) *store.Job {
	r.t.Helper()
	docs, err := job.Decode("test.yaml", []byte(text))
	if err != nil {
		r.t.Fatal(err)
	}
	j, err := r.memory.PutJob(context.Background(), store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	return j
}

// due returns when the planned runs of a job are due, from now on.
func (r *rig) due(j *store.Job) (list []time.Time) {
	r.t.Helper()
	active, err := r.memory.ListActive(context.Background(), store.ActiveQuery{Job: j.Definition.UID, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	now, err := r.memory.JobByUID(context.Background(), j.Definition.UID)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range active {
		if active[i].Epoch == now.Definition.Epoch {
			list = append(list, active[i].Due)
		}
	}
	return list
}

// seconds returns moments by their seconds after the first.
func seconds(from time.Time, list []time.Time) (s []int) {
	for _, at := range list {
		s = append(s, int(at.Sub(from).Round(time.Second)/time.Second))
	}
	return s
}

func TestEachOccurrenceIsPlannedOnceAndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put(`{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.start()
		for range 4 {
			time.Sleep(10*time.Second + 10*time.Millisecond)
			// What is due within two thirds of the look-ahead is there.
			now := time.Now()
			due := r.due(j)
			if latest := due[len(due)-1]; latest.Before(now.Add(5*time.Second)) || latest.After(now.Add(16*time.Second)) {
				t.Errorf("at %s it is planned to %s", now, latest)
			}
		}
		if got := seconds(time.Unix(946684800, 0), r.due(j)); !slices.Equal(got, []int{5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55}) {
			t.Errorf("planned: %v", got)
		}
	})
}

func TestAPlanWhoseAnswerWasLostDoublesAndLosesNothing(t *testing.T) {
	for _, made := range []bool{true, false} {
		t.Run(fmt.Sprintf("made=%t", made), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var n atomic.Int32
				r.store.onPlan = func(do func() ([]store.PlanOutcome, error)) ([]store.PlanOutcome, error) {
					if n.Add(1)%3 == 0 {
						return do()
					}
					if made {
						_, _ = do()
					}
					return nil, errAway
				}
				j := r.put(`{name: j, schedule: {cron: "*/5 * * * * *", max_runs: 9}, run: {shell: x}}`)
				r.start()
				time.Sleep(2 * time.Minute)
				if got := seconds(time.Unix(946684800, 0), r.due(j)); !slices.Equal(got, []int{5, 10, 15, 20, 25, 30, 35, 40, 45}) {
					t.Errorf("planned: %v", got)
				}
			})
		})
	}
}

func TestTwoPlannersOfOneJobDoNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newRig(t), newRig(t)
		b.memory, b.store = a.memory, &between{Store: a.memory}
		s, err := a.memory.Join(context.Background(), store.Session{ID: job.ID{2}, Node: "b", Machine: "m", DataDir: "/b", Roles: []string{placement.RolePlanner}})
		if err != nil {
			t.Fatal(err)
		}
		b.self = s.ID
		j := a.put(`{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		a.start()
		time.Sleep(100 * time.Millisecond)
		b.start()
		time.Sleep(time.Minute)
		a.halt()
		a.halt = func() {}
		_, refused := b.store.planned()
		b.store.mu.Lock()
		before := len(b.store.items)
		b.store.mu.Unlock()
		time.Sleep(time.Minute + 300*time.Millisecond)
		b.halt()
		b.halt = func() {}
		want := make([]int, 0, 27)
		for i := 5; i <= 120+15; i += 5 {
			want = append(want, i)
		}
		if got := seconds(time.Unix(946684800, 0), a.due(j)); !slices.Equal(got, want) {
			t.Errorf("planned: %v, want %v", got, want)
		}
		if refused == 0 || len(b.store.items) == before {
			t.Errorf("the second planner was refused %d times, and has planned %d afterwards: this shows nothing", refused, len(b.store.items)-before)
		}
	})
}

func TestChangesOfJobsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		text := `{name: j, paused: %t, schedule: {cron: "*/%d * * * * *"}, run: {shell: x}}`
		r.put(fmt.Sprintf(text, false, 10))
		r.start()
		planned := func() int {
			synctest.Wait()
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			return len(r.store.items)
		}
		time.Sleep(time.Second)
		j := r.put(fmt.Sprintf(text, false, 7))
		time.Sleep(time.Second)
		if got := seconds(time.Unix(946684800, 0), r.due(j)); !slices.Equal(got, []int{7, 14}) {
			t.Errorf("after another schedule: %v", got)
		}
		r.put(fmt.Sprintf(text, true, 7))
		time.Sleep(time.Second)
		n := planned()
		time.Sleep(time.Minute)
		if got := planned(); got != n {
			t.Errorf("%d items for a job that is paused", got-n)
		}
		j = r.put(fmt.Sprintf(text, false, 7))
		time.Sleep(time.Second)
		if len(r.due(j)) == 0 {
			t.Error("nothing is planned after the resume")
		}
		if err := r.memory.DeleteJob(context.Background(), store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		n = planned()
		time.Sleep(time.Minute)
		if got := planned(); got != n {
			t.Errorf("%d items for a job that was deleted", got-n)
		}
		if _, ok := r.planner.NextAfter(j.Definition.UID, time.Now()); ok {
			t.Error("a job that was deleted falls due")
		}
	})
}

// A node that cannot read for longer than the store remembers what was deleted finds out
// by counting.
func TestAJobThatWasDeletedLongAgoIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		gone := r.put(`{name: gone, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.put(`{name: stays, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.put(`{name: paused, paused: true, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.start()
		time.Sleep(5 * time.Minute)
		if n := r.store.readWhole(); n != 1 {
			t.Errorf("all jobs were read %d times, and nothing has changed", n)
		}
		r.store.failReads.Store(true)
		if err := r.memory.DeleteJob(context.Background(), store.DeleteJob{UID: gone.Definition.UID, IfVersion: store.AnyVersion, Actor: "test"}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(time.Hour)
			if _, err := r.memory.Tidy(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		r.store.failReads.Store(false)
		time.Sleep(2 * time.Minute)
		if n := r.planner.Stats().Jobs; n != 1 {
			t.Errorf("the planner has %d jobs, want 1", n)
		}
		if _, ok := r.planner.NextAfter(gone.Definition.UID, time.Now()); ok {
			t.Error("a job that was deleted falls due")
		}
		if n := r.store.readWhole(); n != 2 {
			t.Errorf("jobs were read as a whole %d times, want once more", n)
		}
	})
}

func TestPlanningDoesNotWaitForTheStoreToCount(t *testing.T) {
	for _, err := range []error{nil, errAway} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				const text = `{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x%d}}`
				j := r.put(fmt.Sprintf(text, 0))
				counts := 0
				r.store.onSummary = func() error {
					counts++
					r.put(fmt.Sprintf(text, counts)) // what was counted is not what there is
					time.Sleep(45 * time.Second)
					return err
				}
				r.start()
				time.Sleep(time.Second)
				for range 10 * 60 {
					time.Sleep(time.Second)
					if r.ahead(j) < 5*time.Second {
						t.Fatalf("after %d counts it is planned %s ahead", counts, r.ahead(j))
					}
				}
				if counts < 5 {
					t.Errorf("jobs are counted %d times in ten minutes", counts)
				}
			})
		})
	}
}

func TestJobsThatChangeWhileTheyAreCountedAreNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const text = `{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x%d}}`
		r.put(fmt.Sprintf(text, 0))
		counts := 0
		r.store.onSummary = func() error {
			if counts++; counts%2 == 1 {
				r.put(fmt.Sprintf(text, counts))
				time.Sleep(5 * time.Second)
			}
			return nil
		}
		r.start()
		time.Sleep(10 * time.Minute)
		if n := r.store.readWhole(); n != 1 || counts < 15 {
			t.Errorf("jobs were counted %d times and read as a whole %d times, want once", counts, n)
		}
	})
}

func TestAnEditThatLeavesTheScheduleAloneLeavesThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		text := `{name: j, schedule: {cron: "*/5 * * * * *", max_runs: 12}, run: {shell: x%d}}`
		j := r.put(fmt.Sprintf(text, 0))
		r.start()
		for i := range 30 {
			time.Sleep(time.Second)
			r.put(fmt.Sprintf(text, i))
		}
		time.Sleep(30 * time.Second)
		if got := seconds(time.Unix(946684800, 0), r.due(j)); !slices.Equal(got, []int{5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60}) {
			t.Errorf("planned: %v", got)
		}
	})
}

func TestACalendarIsReadAgainWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		calendar := func(dates string) {
			docs, err := job.Decode("test.yaml", []byte(`{kind: calendar, name: c, calendar: {include: [`+dates+`]}}`))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.memory.PutCalendar(context.Background(), docs[0].Calendar, store.AnyVersion, "test"); err != nil {
				t.Fatal(err)
			}
		}
		calendar(`"1999-01-01"`)
		j := r.put(`{name: j, schedule: {cron: "*/5 * * * * *", except: [c]}, run: {shell: x}}`)
		r.start()
		time.Sleep(time.Second)
		if len(r.due(j)) != 3 {
			t.Fatalf("planned: %v", r.due(j))
		}
		calendar(`"2000-01-01"`) // today
		time.Sleep(time.Minute)
		if got := r.due(j); len(got) != 0 {
			t.Errorf("planned on a day that is left out: %v", got)
		}
		calendar(`"1999-01-01"`)
		time.Sleep(time.Second)
		if len(r.due(j)) != 3 {
			t.Errorf("planned when it is not left out any more: %v", r.due(j))
		}
	})
}

func TestACalendarThatIsMadeAgainIsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		calendar := func(date string) {
			c := &job.Calendar{Name: "c", Days: job.Days{Include: []string{date}}}
			if _, err := r.memory.PutCalendar(context.Background(), c, 0, "test"); err != nil {
				t.Fatal(err)
			}
		}
		const text = `{name: j, schedule: {cron: "*/5 * * * * *", except: [c]}, run: {shell: x}}`
		calendar("1999-01-01")
		j := r.put(text)
		r.start()
		time.Sleep(time.Second)
		if len(r.due(j)) != 3 {
			t.Fatalf("planned: %v", r.due(j))
		}
		// All of it between two looks of the planner.
		r.put(`{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		if err := r.memory.DeleteCalendar(context.Background(), "default", "c", "test"); err != nil {
			t.Fatal(err)
		}
		calendar("2000-01-01") // today
		j = r.put(text)
		time.Sleep(time.Minute)
		if got := r.due(j); len(got) != 0 {
			t.Errorf("planned on a day that is left out: %v", got)
		}
	})
}

func TestACalendarThatChangesBetweenTwoPagesIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		calendar := func(date string) {
			c := &job.Calendar{Name: "c", Days: job.Days{Include: []string{date}}}
			if _, err := r.memory.PutCalendar(context.Background(), c, store.AnyVersion, "test"); err != nil {
				t.Error(err)
			}
		}
		calendar("1999-01-01")
		for i := range 6000 { // more than a planner reads at a time
			r.put(fmt.Sprintf(`{name: j%d, schedule: {cron: "0 0 1 1 *"}, run: {shell: x}}`, i))
		}
		last := r.put(`{name: last, schedule: {cron: "*/5 * * * * *", except: [c]}, run: {shell: x}}`)
		changed := false
		r.store.beforeRead = func(since int64) {
			if since > 0 && !changed {
				changed = true
				calendar("2000-01-01") // today
			}
		}
		r.start()
		time.Sleep(time.Minute)
		if got := r.due(last); !changed || len(got) != 0 {
			t.Errorf("planned on a day that is left out: %v", got)
		}
	})
}

func TestAllPagesOfChangesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		// A planner reads some thousand at a time.
		const n = 6000
		for i := range n {
			r.put(fmt.Sprintf(`{name: j%d, schedule: {cron: "0 0 1 1 *"}, run: {shell: x}}`, i))
		}
		last := r.put(`{name: last, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.start()
		<-r.planner.Ready()
		if _, ok := r.planner.NextAfter(last.Definition.UID, time.Now()); !ok {
			t.Error("the planner says that it has read all jobs, and has not")
		}
		time.Sleep(time.Second)
		if len(r.due(last)) != 3 {
			t.Errorf("the job behind %d others has planned %v", n, r.due(last))
		}
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		if r.store.reads > 10 {
			t.Errorf("%d reads in a second", r.store.reads)
		}
	})
}

// partitionsOf returns the partitions of jobs.
func partitionsOf(jobs ...*store.Job) *store.Partitions {
	var p store.Partitions
	for _, j := range jobs {
		p.Add(job.Partition(j.Definition.UID))
	}
	return &p
}

// inTwoPartitions makes two jobs that are due every second, in two partitions.
func (r *rig) inTwoPartitions() (a, b *store.Job) {
	a = r.put(`{name: a, schedule: {cron: "* * * * * *"}, run: {shell: x}}`)
	for i := 0; b == nil || job.Partition(a.Definition.UID) == job.Partition(b.Definition.UID); i++ {
		b = r.put(fmt.Sprintf(`{name: b%d, schedule: {cron: "* * * * * *"}, run: {shell: x}}`, i))
	}
	return a, b
}

// ahead returns how far ahead a job is planned.
func (r *rig) ahead(j *store.Job) time.Duration {
	now, err := r.memory.JobByUID(context.Background(), j.Definition.UID)
	if err != nil {
		r.t.Fatal(err)
	}
	return now.Cursor.Sub(r.wall())
}

func TestOnlyItsPartitionsArePlannedAndAllAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.inTwoPartitions()
		r.parts.Store(partitionsOf(a))
		r.start()
		time.Sleep(3 * time.Second)
		if r.ahead(a) < 9*time.Second || r.ahead(b) > 0 {
			t.Errorf("its own job is planned %s ahead, the other's %s", r.ahead(a), r.ahead(b))
		}
		if next, ok := r.planner.NextAfter(b.Definition.UID, r.wall()); !ok || next.Sub(r.wall()) > time.Second {
			t.Errorf("it says that the other's is due at %s, %t", next, ok)
		}
	})
}

func TestPartitionsThatAreGainedArePlannedFromWhereTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.inTwoPartitions()
		r.parts.Store(partitionsOf(a))
		r.start()
		time.Sleep(3 * time.Second)
		// Another planner has planned the other job, in a session of its own.
		item := store.PlanItem{Job: b.Definition.UID, Epoch: 1, From: b.Cursor, To: r.wall().Add(4 * time.Second).Truncate(time.Second)}
		if out, err := r.memory.Plan(context.Background(), r.self, []store.PlanItem{item}); err != nil || out[0] != store.Planned {
			t.Fatal(out, err)
		}
		r.parts.Store(partitionsOf(b))
		time.Sleep(time.Second)
		if r.ahead(b) < 9*time.Second {
			t.Errorf("what it has got is planned %s ahead after a second", r.ahead(b))
		}
		if _, refused := r.store.planned(); refused > 0 {
			t.Errorf("%d items were refused: it did not know how far the other had planned", refused)
		}
		before := r.ahead(a)
		time.Sleep(3 * time.Second)
		if r.ahead(a) > before-2*time.Second {
			t.Errorf("it goes on planning what it has given up: %s ahead", r.ahead(a))
		}
	})
}

// plans moves the cursor of a job as another planner does.
func (r *rig) plans(j *store.Job, to time.Time) {
	r.t.Helper()
	now, err := r.memory.JobByUID(context.Background(), j.Definition.UID)
	if err != nil {
		r.t.Fatal(err)
	}
	other, err := r.memory.Join(context.Background(), store.Session{ID: job.ID{2}, Node: "b", Machine: "m", DataDir: "/b", Roles: []string{placement.RolePlanner}})
	if err != nil {
		r.t.Fatal(err)
	}
	item := store.PlanItem{Job: j.Definition.UID, Epoch: now.Definition.Epoch, From: now.Cursor, To: to, Planned: now.Planned}
	if out, err := r.memory.Plan(context.Background(), other.ID, []store.PlanItem{item}); err != nil || out[0] != store.Planned {
		r.t.Fatal(out, err)
	}
}

// minutes are jobs that fall due some minutes after the full hour, the last first.
func (r *rig) minutes(n int) (jobs []*store.Job) {
	for i := range n {
		jobs = append(jobs, r.put(fmt.Sprintf(`{name: m%d, schedule: {cron: "%d * * * *"}, run: {shell: x}}`, i, n-i)))
	}
	return jobs
}

// atMinute returns the moment at which one of them falls due.
func atMinute(n int) time.Time { return time.Date(2000, 1, 1, 0, n, 0, 0, time.UTC) }

// plannedUpTo checks how far a job is planned.
func (r *rig) plannedUpTo(j *store.Job, want time.Time) {
	r.t.Helper()
	if got := r.wall().Add(r.ahead(j)); !got.Equal(want) {
		r.t.Errorf("job %s is planned up to %s, want %s", j.Definition.Name, got, want)
	}
}

func TestOfPartitionsThatAreGainedOnlyWhatMayHaveMovedIsReadAndTheMostUrgentFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t) // its clock begins at midnight
		jobs := r.minutes(20)
		r.parts.Store(&store.Partitions{})
		r.start()
		// The first three have fallen due, and another one has planned them.
		time.Sleep(3*time.Minute + 20*time.Second)
		for i, j := range jobs[17:] {
			r.plans(j, atMinute(3-i))
		}
		soon := r.put(`{name: soon, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		time.Sleep(30 * time.Second)
		r.plans(soon, r.wall().Truncate(5*time.Second))
		r.plans(jobs[16], atMinute(4)) // ahead
		r.parts.Store(&store.AllPartitions)
		time.Sleep(time.Second)
		asked := r.store.askedCursors()
		if want := []job.ID{soon.Definition.UID, jobs[16].Definition.UID, jobs[19].Definition.UID, jobs[18].Definition.UID, jobs[17].Definition.UID}; len(asked) != 1 || !slices.Equal(asked[0], want) {
			t.Errorf("cursors were read of %v, want once, of %v", asked, want)
		}
		if r.ahead(soon) < 9*time.Second {
			t.Errorf("what it has got is planned %s ahead", r.ahead(soon))
		}
		time.Sleep(17 * time.Minute)
		if _, refused := r.store.planned(); refused > 0 {
			t.Errorf("%d items were refused: it did not know how far the other had planned", refused)
		}
		for i, j := range jobs {
			r.plannedUpTo(j, atMinute(20-i))
		}
	})
}

// The store's clock was put back after entries had left the queue by it, and nobody has
// noticed on this machine.
func TestPartitionsThatAreGainedAfterTheClockWasPutBackArePlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		jobs := r.minutes(3)
		r.parts.Store(&store.Partitions{})
		r.set.Store(int64(10 * time.Minute))
		r.start()
		time.Sleep(time.Second)
		r.set.Store(0)
		r.parts.Store(&store.AllPartitions)
		time.Sleep(time.Second)
		if n := r.planner.Stats().Jobs; n != len(jobs) {
			t.Errorf("%d jobs are planned, want %d", n, len(jobs))
		}
		time.Sleep(4 * time.Minute)
		for i, j := range jobs {
			r.plannedUpTo(j, atMinute(3-i))
		}
	})
}

func TestAJobIsNotSaidToBePlannedBeforeItIsKnownHowFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.inTwoPartitions()
		r.parts.Store(partitionsOf(a))
		r.start()
		time.Sleep(time.Second)
		r.store.mu.Lock()
		r.store.onCursors = func() error { return errAway }
		r.store.mu.Unlock()
		r.parts.Store(&store.AllPartitions)
		time.Sleep(3 * time.Second)
		if n := r.planner.Stats().Jobs; n != 1 {
			t.Errorf("%d jobs are planned, want the one that is known", n)
		}
		r.store.mu.Lock()
		r.store.onCursors = nil
		r.store.mu.Unlock()
		time.Sleep(3 * time.Second)
		if n := r.planner.Stats().Jobs; n != 2 || r.ahead(b) < 9*time.Second {
			t.Errorf("%d jobs are planned, the one that was gained %s ahead", n, r.ahead(b))
		}
	})
}

func TestWhatIsGainedOrGivenUpBeforeAllIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.inTwoPartitions()
		r.parts.Store(&store.Partitions{})
		r.start()
		time.Sleep(time.Second)
		r.store.mu.Lock()
		r.store.onCursors = func() error { return errAway }
		r.store.mu.Unlock()
		without := store.AllPartitions.Without(*partitionsOf(b))
		for _, parts := range []*store.Partitions{partitionsOf(a), &store.AllPartitions, &without} {
			r.parts.Store(parts)
			time.Sleep(2 * time.Second)
		}
		r.store.mu.Lock()
		r.store.onCursors = nil
		r.store.mu.Unlock()
		time.Sleep(2 * time.Second)
		if asked := r.store.askedCursors(); len(asked) != 1 || !slices.Equal(asked[0], []job.ID{a.Definition.UID}) || r.ahead(a) < 9*time.Second {
			t.Errorf("cursors were read of %v, want of what it has, which is planned %s ahead", asked, r.ahead(a))
		}
	})
}

// Where another one has planned many of its jobs, as after a time without a session.
func TestJobsThatHaveMovedAreReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var jobs []*store.Job
		for i := range 100 {
			jobs = append(jobs, r.put(fmt.Sprintf(`{name: j%d, schedule: {cron: "2 * * * *"}, run: {shell: x}}`, i)))
		}
		r.start()
		time.Sleep(time.Minute + 100*time.Millisecond) // between two looks
		r.set.Store(int64(time.Minute))                // by it the other one plans earlier
		for _, j := range jobs {
			r.plans(j, atMinute(2))
		}
		r.set.Store(0)
		time.Sleep(62 * time.Minute)
		if asked := r.store.askedCursors(); len(asked) != 1 || len(asked[0]) != len(jobs) {
			t.Errorf("%d calls for cursors, want one for all of them", len(asked))
		}
		for _, j := range jobs {
			r.plannedUpTo(j, atMinute(62))
		}
	})
}

func TestPartitionsThatCouldNotBeReadAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.inTwoPartitions()
		r.parts.Store(partitionsOf(a))
		r.start()
		time.Sleep(3 * time.Second)
		r.store.failReads.Store(true)
		r.parts.Store(partitionsOf(b))
		time.Sleep(2 * time.Second)
		r.store.failReads.Store(false)
		time.Sleep(2 * time.Second)
		if r.ahead(b) < 9*time.Second {
			t.Errorf("what it has got is planned %s ahead", r.ahead(b))
		}
	})
}

func TestRunsAreNotPlacedByWhoDoesNotPlanTheirJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.inTwoPartitions()
		r.parts.Store(partitionsOf(a))
		for i, j := range []*store.Job{a, b} {
			item := store.TriggerItem{ID: job.ID{9, byte(i)}, Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Actor: "ann"}
			if _, err := r.memory.Trigger(context.Background(), []store.TriggerItem{item}); err != nil {
				t.Fatal(err)
			}
		}
		r.start()
		time.Sleep(time.Second)
		for i, mine := range []bool{true, false} {
			run, err := r.memory.Active(context.Background(), job.ID{9, byte(i)})
			if err != nil || run.Session.IsZero() == mine {
				t.Errorf("a run of its own: %t; placed in session %s, %v", mine, run.Session, err)
			}
		}
		if r.looks.Load() == 0 {
			t.Error("it did not ask who is live before it placed runs: their node may have left just now")
		}
	})
}

func TestDowntimeIsPlannedByThePolicyAndRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put(`{name: j, schedule: {cron: "*/10 * * * * *"}, run: {shell: x}, policy: {missed: latest, late_by: 1h}}`)
		time.Sleep(10*time.Minute + time.Second)
		r.start()
		time.Sleep(time.Second)
		records, _, err := r.memory.Attempts(context.Background(), store.HistoryQuery{Job: j.Definition.UID, Limit: 100})
		if err != nil || len(records) != 1 || records[0].Run.Outcome != job.OutcomeMissed {
			t.Fatalf("recorded: %+v, %v; want one record of all that were missed", records, err)
		}
		// The last seconds are no downtime, and before them the latest runs.
		got := seconds(time.Unix(946684800, 0), r.due(j))
		if missed := records[0].Count; missed < 50 || missed+len(got) != 61 || got[0] != 10*(missed+1) || got[len(got)-1] != 610 {
			t.Errorf("%d missed, planned %v; want each of the 61 once", missed, got)
		}
	})
}

func TestAJobWithoutAnyMoreOccurrencesIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put(`{name: j, schedule: {cron: "*/10 * * * * *", max_runs: 2}, run: {shell: x}}`)
		r.start()
		time.Sleep(time.Minute)
		now, err := r.memory.JobByUID(context.Background(), j.Definition.UID)
		if err != nil {
			t.Fatal(err)
		}
		if got := seconds(time.Unix(946684800, 0), r.due(j)); !slices.Equal(got, []int{10, 20}) || now.Definition.Status.State != job.JobCompleted {
			t.Errorf("planned %v, state %s; want two and completed", got, now.Definition.Status.State)
		}
	})
}

// Of what is past when a job is put no occurrence is planned that would be the last.
func TestAJobThatNeverFallsDueAnyMoreIsCompletedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t) // its clock begins with the year 2000
		state := func(j *store.Job) job.JobState {
			now, err := r.memory.JobByUID(context.Background(), j.Definition.UID)
			if err != nil {
				t.Fatal(err)
			}
			return now.Definition.Status.State
		}
		over := []*store.Job{
			r.put(`{name: past, schedule: {at: "1999-12-31T00:00:00Z"}, run: {shell: x}}`),
			r.put(`{name: ended, schedule: {cron: "* * * * *", end: "1999-12-31T00:00:00Z"}, run: {shell: x}}`),
		}
		others := []*store.Job{
			r.put(`{name: by-hand, run: {shell: x}}`),
			r.put(`{name: follower, schedule: {on: past}, run: {shell: x}}`),
			r.put(`{name: chain, schedule: {after_end: 1h}, run: {shell: x}}`),
			r.put(`{name: hourly, schedule: {every: 1h, max_runs: 1}, run: {shell: x}}`),
		}
		r.start()
		time.Sleep(time.Second)
		for _, j := range over {
			if got := state(j); got != job.JobCompleted {
				t.Errorf("job %s is %s", j.Definition.Name, got)
			}
		}
		for _, j := range others {
			if got := state(j); got != job.JobActive {
				t.Errorf("job %s is %s", j.Definition.Name, got)
			}
		}
	})
}

func TestTheClockMayBeSet(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				j := r.put(`{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
				r.start()
				time.Sleep(30*time.Second + 10*time.Millisecond)
				before := len(r.due(j))
				r.set.Store(int64(step))
				r.planner.ClockStepped()
				time.Sleep(30 * time.Second)
				if step < 0 {
					// What is planned goes on counting: the cursor does not go back.
					if got := len(r.due(j)); got != before {
						t.Errorf("%d runs planned an hour ago", got-before)
					}
					other := r.put(`{name: other, schedule: {cron: "*/10 * * * * *"}, run: {shell: x}}`)
					time.Sleep(time.Second)
					if got := len(r.due(other)); got < 1 || got > 2 {
						t.Errorf("%d runs of a new job are planned by the clock as it is", got)
					}
					return
				}
				due := r.due(j)
				if latest := due[len(due)-1]; latest.Before(r.wall().Add(5 * time.Second)) {
					t.Errorf("by the new clock, %s, it is planned to %s", r.wall(), latest)
				}
			})
		})
	}
}

func TestAChangeIsPlannedWhenItIsHintedAtOrAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		time.Sleep(1010 * time.Millisecond)
		j := r.put(`{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.wake <- store.HintJobs
		synctest.Wait()
		if len(r.due(j)) != 3 {
			t.Error("nothing is planned after a hint")
		}
		k := r.put(`{name: k, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		if err := r.planner.Sync(context.Background()); err != nil || len(r.due(k)) != 3 {
			t.Errorf("nothing is planned when it was asked for: %v", err)
		}
	})
}

func TestOneRoundAnswersAllWhoAskForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		time.Sleep(1010 * time.Millisecond) // behind a look
		r.store.mu.Lock()
		before := r.store.reads
		r.store.onPlan = func(do func() ([]store.PlanOutcome, error)) ([]store.PlanOutcome, error) {
			time.Sleep(100 * time.Millisecond)
			return do()
		}
		r.store.mu.Unlock()
		r.put(`{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		var asked sync.WaitGroup
		ask := func() {
			if err := r.planner.Sync(context.Background()); err != nil {
				t.Error(err)
			}
		}
		asked.Go(ask)
		time.Sleep(50 * time.Millisecond) // its round has begun
		for range 10 {
			asked.Go(ask)
		}
		r.wake <- store.HintJobs
		asked.Wait()
		synctest.Wait()
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		if rounds := r.store.reads - before; rounds != 2 {
			t.Errorf("%d rounds for one who asked, and ten and a hint that came during its round; want 2", rounds)
		}
	})
}

func TestSyncSaysThatItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		time.Sleep(time.Second)
		r.store.mu.Lock()
		r.store.onPlan = func(func() ([]store.PlanOutcome, error)) ([]store.PlanOutcome, error) { return nil, errAway }
		r.store.mu.Unlock()
		r.put(`{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		if err := r.planner.Sync(context.Background()); !errors.Is(err, errAway) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		r.halt()
		r.halt = func() {}
		cancel()
		if err := r.planner.Sync(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("without a planner that runs: %v", err)
		}
	})
}

func TestRunsWithoutANodeArePlacedWhenThereIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		sessions := *r.live.Load()
		r.live.Store(&[]store.Session{})
		j := r.put(`{name: j, schedule: {cron: "*/10 * * * * *"}, run: {shell: x}}`)
		r.start()
		time.Sleep(time.Second)
		session := func() job.ID {
			active, err := r.memory.ListActive(context.Background(), store.ActiveQuery{Job: j.Definition.UID, Limit: 1})
			if err != nil || len(active) == 0 {
				t.Fatal(active, err)
			}
			return active[0].Session
		}
		if got := session(); !got.IsZero() {
			t.Errorf("placed on %s although no node is live", got)
		}
		r.live.Store(&sessions)
		time.Sleep(time.Second)
		if got := session(); got != r.self {
			t.Errorf("placed on %q, want the node that is there", got)
		}
	})
}

func TestAManyTimesMissedJobDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var long []*store.Job
		for i := range 1500 {
			long = append(long, r.put(fmt.Sprintf(`{name: long%d, schedule: {cron: "* * * * * *"}, run: {shell: x}, policy: {missed: all, late_by: 24h}}`, i)))
		}
		time.Sleep(20 * time.Second)
		plans := 0
		var n int // items in the call
		r.store.onPlan = func(func() ([]store.PlanOutcome, error)) ([]store.PlanOutcome, error) {
			plans++
			time.Sleep(50 * time.Millisecond)
			return make([]store.PlanOutcome, n), nil // all are planned
		}
		r.store.size = &n
		r.start()
		time.Sleep(1500 * time.Millisecond)
		planned := map[job.ID]bool{}
		r.store.mu.Lock()
		for i := range r.store.items {
			planned[r.store.items[i].Job] = true
		}
		r.store.mu.Unlock()
		if len(planned) < len(long) {
			t.Errorf("after %d calls %d of %d jobs have nothing planned, while others are planned to the end", plans, len(long)-len(planned), len(long))
		}
		r.store.mu.Lock()
		biggest := r.store.biggest
		r.store.mu.Unlock()
		if biggest > store.MaxBatch {
			t.Errorf("a call has %d items", biggest)
		}
	})
}

func TestRunsThatFitNoNodeDoNotHideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		trigger := func(j *store.Job, first, n int) {
			for i := range n {
				id := job.ID{2}
				binary.BigEndian.PutUint32(id[12:], uint32(first+i))
				items := []store.TriggerItem{{ID: id, Job: j.Definition.UID, Kind: job.RunByHand}}
				if _, err := r.memory.Trigger(context.Background(), items); err != nil {
					t.Fatal(err)
				}
			}
		}
		trigger(r.put(`{name: nowhere, place: {labels: {gpu: a}}, run: {shell: x}}`), 0, 2*store.MaxBatch)
		time.Sleep(time.Second)
		j := r.put(`{name: here, run: {shell: x}}`)
		trigger(j, 10_000, 1)
		r.start()
		time.Sleep(time.Second)
		runs, err := r.memory.ListActive(context.Background(), store.ActiveQuery{Job: j.Definition.UID, Limit: 10})
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		if runs[0].Node != "a" {
			t.Error("a run behind a thousand that fit no node was not placed")
		}
	})
}
