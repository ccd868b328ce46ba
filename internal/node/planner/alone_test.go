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

	"github.com/belfry-cron/belfry/internal/node/planner"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("the store is away")

// between is a wrapper of a planner's store that records plans.
type between struct {
	store.Store
	mu       sync.Mutex
	onPlan   func(do func() ([]store.PlanOutcome, error)) ([]store.PlanOutcome, error)
	items    []store.PlanItem
	outcomes []store.PlanOutcome // outcomes of these items
	biggest  int                 // items in the largest call
	size     *int                // if set, receives the number of items of each call
	reads    int
	whole    int
	// onCursors, if set, is called at each reading of cursors.
	onCursors func() error
	cursors   [][]job.ID // jobs whose cursors were read, by call
	// failReads makes reads of jobs fail.
	failReads atomic.Bool
	// onSummary is called when jobs were counted, before the answer. May be nil.
	onSummary func() error
	// beforeRead is called with the place from which jobs are about to be read. May be nil.
	beforeRead func(since int64)
}

func (b *between) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	b.mu.Lock()
	hook := b.onPlan
	b.biggest = max(b.biggest, len(items))
	if b.size != nil {
		*b.size = len(items)
	}
	b.mu.Unlock()
	do := func() ([]store.PlanOutcome, error) {
		outcomes, _, err := b.Store.Plan(ctx, session, items)
		return outcomes, err
	}
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
	return outcomes, nil, err
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

// askedCursors returns the calls that read cursors.
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

// refused returns the number of outcomes other than Planned.
func (b *between) refused() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.outcomes {
		if o != store.Planned {
			n++
		}
	}
	return n
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
		ID: job.ID{1}, Node: "a", Machine: "m", DataDir: "/a", Roles: []string{store.RoleWorker, store.RolePlanner}, Capacity: 10,
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
		Partitions: func() store.Partitions { return *r.parts.Load() }, Wake: r.wake, Now: r.wall,
		Look: func(context.Context) error { r.looks.Add(1); return nil },
		Log:  slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.planner.Run(ctx) }()
	// The session lives, so that its runs stay placed.
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
	j, err := store.PutOne(context.Background(), r.memory, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "test"})
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
	now, err := store.JobByUID(context.Background(), r.memory, j.Definition.UID)
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

func TestOccurrencesArePlannedOnceAndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put(`{name: j, schedule: {cron: "*/5 * * * * *"}, run: {shell: x}}`)
		r.start()
		for range 4 {
			time.Sleep(10*time.Second + 10*time.Millisecond)
			// Runs due within two thirds of the look-ahead are planned.
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

func TestPlanWithALostAnswerNeitherDoublesNorLosesRuns(t *testing.T) {
	for _, isNew := range []bool{true, false} {
		t.Run(fmt.Sprintf("made=%t", isNew), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var n atomic.Int32
				r.store.onPlan = func(do func() ([]store.PlanOutcome, error)) ([]store.PlanOutcome, error) {
					if n.Add(1)%3 == 0 {
						return do()
					}
					if isNew {
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

func TestTwoPlannersOfOneJobAreHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newRig(t), newRig(t)
		b.memory, b.store = a.memory, &between{Store: a.memory}
		s, err := a.memory.Join(context.Background(), store.Session{ID: job.ID{2}, Node: "b", Machine: "m", DataDir: "/b", Roles: []string{store.RolePlanner}})
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
		refused := b.store.refused()
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

func TestOnlyThePlannerOfAJobPlacesItsRuns(t *testing.T) {
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
			run, err := store.ActiveRun(context.Background(), r.memory, job.ID{9, byte(i)})
			if err != nil || run.Session.IsZero() == mine {
				t.Errorf("a run of its own: %t; placed in session %s, %v", mine, run.Session, err)
			}
		}
		if r.looks.Load() == 0 {
			t.Error("it did not ask who is live before it placed runs: their node may have left just now")
		}
	})
}

func TestDowntimeFollowsTheMissedPolicyAndIsRecorded(t *testing.T) {
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

func TestJobWithoutFurtherOccurrencesIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put(`{name: j, schedule: {cron: "*/10 * * * * *", max_runs: 2}, run: {shell: x}}`)
		r.start()
		time.Sleep(time.Minute)
		now, err := store.JobByUID(context.Background(), r.memory, j.Definition.UID)
		if err != nil {
			t.Fatal(err)
		}
		if got := seconds(time.Unix(946684800, 0), r.due(j)); !slices.Equal(got, []int{10, 20}) || now.Definition.Status.State != job.JobCompleted {
			t.Errorf("planned %v, state %s; want two and completed", got, now.Definition.Status.State)
		}
	})
}

// No past occurrence of a new job is planned as its last one.
func TestJobThatNeverFallsDueAgainIsCompletedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t) // its clock begins with the year 2000
		state := func(j *store.Job) job.JobState {
			now, err := store.JobByUID(context.Background(), r.memory, j.Definition.UID)
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

func TestPlannerFollowsClockSteps(t *testing.T) {
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
					// Planned runs still count: the cursor does not move back.
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

func TestChangesArePlannedOnHintOrRequest(t *testing.T) {
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

func TestOneRoundAnswersAllCallersOfSync(t *testing.T) {
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

func TestSyncReportsItsFailure(t *testing.T) {
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

func TestUnplacedRunsArePlacedWhenANodeFits(t *testing.T) {
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

// The store would refuse other nodes, so that the run never started.
func TestBoundRunsFollowTheirNodeToItsNewSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx := context.Background()
		join := func(id byte, node string) store.Session {
			s, err := r.memory.Join(ctx, store.Session{ID: job.ID{id}, Node: node, Machine: "m", DataDir: "/" + node, Roles: []string{store.RoleWorker}, Capacity: 10})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		here, before := (*r.live.Load())[0], join(2, "b")
		r.live.Store(&[]store.Session{here, before})
		j := r.put(`{name: j, schedule: {cron: "*/10 * * * * *"}, run: {shell: x}, place: {strategy: last, sticky: true}}`)
		r.start()
		time.Sleep(time.Second)
		first := func() store.Run {
			active, err := r.memory.ListActive(ctx, store.ActiveQuery{Job: j.Definition.UID, Limit: 1})
			if err != nil || len(active) == 0 {
				t.Fatal(active, err)
			}
			return active[0]
		}
		if got := first(); got.Session != before.ID {
			t.Fatalf("planned for %q, want b", got.Node)
		}
		if err := r.memory.Leave(ctx, before.ID); err != nil {
			t.Fatal(err)
		}
		again, last := join(3, "b"), join(4, "c")
		r.live.Store(&[]store.Session{here, again, last})
		time.Sleep(time.Second)
		if got := first(); got.Session != again.ID {
			t.Errorf("placed on %q of node %q, want the new session of b", got.Session, got.Node)
		}
	})
}

func TestJobWithManyMissedOccurrencesDelaysNoOthers(t *testing.T) {
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

func TestUnplaceableRunsDoNotHideOthers(t *testing.T) {
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

// The planner drops paused jobs, and reads them again when they resume.
func TestHandStartedRunsOfPausedJobsArePlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var jobs []*store.Job
		for i, place := range []string{"{labels: {gpu: a}}", "{}"} {
			j := r.put(fmt.Sprintf("{name: j%d, paused: true, place: %s, run: {shell: x}}", i, place))
			jobs = append(jobs, j)
			for n := range 2 {
				items := []store.TriggerItem{{ID: job.ID{2, byte(n), byte(i)}, Job: j.Definition.UID, Kind: job.RunByHand}}
				if _, err := r.memory.Trigger(context.Background(), items); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.start()
		time.Sleep(time.Second)
		for i, node := range []string{"", "a"} {
			runs, err := r.memory.ListActive(context.Background(), store.ActiveQuery{Job: jobs[i].Definition.UID, Limit: 10})
			if err != nil || len(runs) != 2 || runs[0].Node != node || runs[1].Node != node {
				t.Errorf("%v, error %v; want two runs on the node %q", runs, err, node)
			}
		}
	})
}
