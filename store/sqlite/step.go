package sqlite

import (
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// step is a batch of decisions inside a transaction: it loads what they need to
// know, and writes what they have changed.
type step struct {
	*tx
	b    *engine.Batch
	jobs map[job.ID]*loadedJob
	// slots says until which place in their order the runs of a slot are in the
	// batch. wholeJobs are those whose runs are.
	slots     map[string]store.RunRef
	wholeJobs map[job.ID]bool
	// waiting counts the added runs of each slot that wait for it by the policy
	// of their job.
	waiting map[string]int
	was     map[job.ID]steady // of the runs that were added
	// change is the last number that the step has given in the feed of changes, 0
	// for none. There is one writer, so that numbers become visible in their order.
	change int64
	// timed is how many jobs more have a text in timings than it says there: many
	// jobs of a batch may have the same.
	timed map[int64]int64
	// timings are the numbers of texts in timings that the step has found or made.
	timings map[string]int64
}

// loadedJob is a job in a step, with what it was before.
type loadedJob struct {
	*jobRow
	was  engine.Job
	made bool // by the step: it has no row in job_state yet
}

// reschedule begins a new epoch for a job.
func (st *step) reschedule(l *loadedJob) error {
	calendars, err := st.calendars()
	if err == nil {
		st.b.Reschedule(l.Job, l.doc.filled, columns.Finder(calendars))
	}
	return err
}

// before returns the job as callers get it, as it was before the step.
func (l *loadedJob) before() *store.Job {
	r := *l.jobRow
	r.Job = &l.was
	return r.storeJob()
}

// step begins a batch of decisions about so many things. All of them may need the
// sessions.
func (t *tx) step(items int) (*step, error) {
	st := t.memory.spare
	if st != nil && items >= spareMin {
		t.memory.spare, st.tx = nil, t
		st.b.Reset(t.now)
	} else {
		st = &step{
			tx: t, b: engine.NewBatch(t.now, t.s.lookAhead, items),
			jobs: make(map[job.ID]*loadedJob, items), slots: make(map[string]store.RunRef, items), wholeJobs: map[job.ID]bool{},
			waiting: map[string]int{}, was: make(map[job.ID]steady, items),
		}
	}
	list, err := t.sessions()
	if err != nil {
		return nil, err
	}
	for i := range list {
		st.b.AddSession(&list[i].Session)
	}
	return st, nil
}

// spareMin and spareMax are between how many items a step had whose space is used
// again: for few it costs more to empty than to make anew, and after many it is not kept.
const (
	spareMin = store.MaxBatch / 5
	spareMax = 2 * store.MaxBatch
)

// over gives the space of a step to the next one.
func (st *step) over(items int) {
	if items < spareMin || len(st.was) > spareMax {
		return
	}
	clear(st.jobs)
	clear(st.slots)
	clear(st.wholeJobs)
	clear(st.waiting)
	clear(st.was)
	st.b.Reset(time.Time{})
	memory := st.memory
	*st = step{b: st.b, jobs: st.jobs, slots: st.slots, wholeJobs: st.wholeJobs, waiting: st.waiting, was: st.was}
	memory.spare = st
}
