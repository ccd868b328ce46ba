package planner_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestPlannerPlansItsOwnPartitionsAndKnowsAll(t *testing.T) {
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

func TestGainedPartitionsContinueFromTheirCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.inTwoPartitions()
		r.parts.Store(partitionsOf(a))
		r.start()
		time.Sleep(3 * time.Second)
		// Another planner has planned the other job, in its own session.
		item := store.PlanItem{Job: b.Definition.UID, Epoch: 1, From: b.Cursor, To: r.wall().Add(4 * time.Second).Truncate(time.Second)}
		if out, _, err := r.memory.Plan(context.Background(), r.self, []store.PlanItem{item}); err != nil || out[0] != store.Planned {
			t.Fatal(out, err)
		}
		r.parts.Store(partitionsOf(b))
		time.Sleep(time.Second)
		if r.ahead(b) < 9*time.Second {
			t.Errorf("what it has got is planned %s ahead after a second", r.ahead(b))
		}
		if refused := r.store.refused(); refused > 0 {
			t.Errorf("%d items were refused: it did not know how far the other had planned", refused)
		}
		before := r.ahead(a)
		time.Sleep(3 * time.Second)
		if r.ahead(a) > before-2*time.Second {
			t.Errorf("it still plans what it has given up: %s ahead", r.ahead(a))
		}
	})
}

// plans moves the cursor of a job like another planner.
func (r *rig) plans(j *store.Job, to time.Time) {
	r.t.Helper()
	now, err := store.JobByUID(context.Background(), r.memory, j.Definition.UID)
	if err != nil {
		r.t.Fatal(err)
	}
	other, err := r.memory.Join(context.Background(), store.Session{ID: job.ID{2}, Node: "b", Machine: "m", DataDir: "/b", Roles: []string{store.RolePlanner}})
	if err != nil {
		r.t.Fatal(err)
	}
	item := store.PlanItem{Job: j.Definition.UID, Epoch: now.Definition.Epoch, From: now.Cursor, To: to, Planned: now.Planned}
	if out, _, err := r.memory.Plan(context.Background(), other.ID, []store.PlanItem{item}); err != nil || out[0] != store.Planned {
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

// atMinute returns the moment at which a job falls due.
func atMinute(n int) time.Time { return time.Date(2000, 1, 1, 0, n, 0, 0, time.UTC) }

// plannedUpTo checks how far a job is planned.
func (r *rig) plannedUpTo(j *store.Job, want time.Time) {
	r.t.Helper()
	if got := r.wall().Add(r.ahead(j)); !got.Equal(want) {
		r.t.Errorf("job %s is planned up to %s, want %s", j.Definition.Name, got, want)
	}
}

func TestGainedPartitionsReadOnlyMovedJobsMostUrgentFirst(t *testing.T) {
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
		if refused := r.store.refused(); refused > 0 {
			t.Errorf("%d items were refused: it did not know how far the other had planned", refused)
		}
		for i, j := range jobs {
			r.plannedUpTo(j, atMinute(20-i))
		}
	})
}

// The store's clock was set back after entries had left the queue, and no node of this machine has
// noticed.
func TestPartitionsGainedAfterTheClockWentBackArePlanned(t *testing.T) {
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

func TestSyncWaitsForTheCursorOfAJob(t *testing.T) {
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

func TestPartitionsMayMoveBeforeTheyAreRead(t *testing.T) {
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

// Another planner has planned many of its jobs, as after a time without a session.
func TestMovedJobsAreReadInOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var jobs []*store.Job
		for i := range 100 {
			jobs = append(jobs, r.put(fmt.Sprintf(`{name: j%d, schedule: {cron: "2 * * * *"}, run: {shell: x}}`, i)))
		}
		r.start()
		time.Sleep(time.Minute + 100*time.Millisecond) // between two looks
		r.set.Store(int64(time.Minute))                // the other planner plans earlier by it
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

func TestFailedReadsOfPartitionsAreRepeated(t *testing.T) {
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
