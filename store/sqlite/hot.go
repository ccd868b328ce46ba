package sqlite

import (
	"slices"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A run is planned, claimed and finished by the same process within seconds, so
// that the writer remembers what it wrote last: rows of job_state, and the runs
// in the jobs' own slots. It spares a third of the time of a run's life. What is
// here is as it is in the open transaction; after anything was undone, all is
// forgotten.

const (
	// hotMax is how many jobs are remembered, at about a kilobyte each.
	hotMax = 16384
	// hotRuns is how many runs of a job are remembered. One with more waits
	// for other things than the store.
	hotRuns = 8
)

// hotJob is what is remembered of a job.
type hotJob struct {
	row jobRow
	job engine.Job
	// runs are unfinished runs in the slot of the job itself, all of them if
	// complete is set.
	runs     []*store.Run
	complete bool
}

// hot is what the writer remembers.
type hot struct {
	jobs map[job.ID]*hotJob
	runs map[job.ID]*store.Run // those of the jobs, by id
}

// keepJob remembers a job as it was read or written.
func (h *hot) keepJob(r *jobRow) *hotJob {
	if h.jobs == nil {
		h.jobs, h.runs = map[job.ID]*hotJob{}, map[job.ID]*store.Run{}
	}
	kept := h.jobs[r.UID]
	if kept == nil {
		for uid := range h.jobs {
			if len(h.jobs) < hotMax {
				break
			}
			h.dropJob(uid) // any will do
		}
		kept = &hotJob{}
		h.jobs[r.UID] = kept
	}
	kept.row, kept.job = *r, stateOf(r.Job)
	return kept
}

func (h *hot) dropJob(uid job.ID) {
	if kept := h.jobs[uid]; kept != nil {
		for _, r := range kept.runs {
			delete(h.runs, r.ID)
		}
		delete(h.jobs, uid)
	}
}

// rowOf returns a copy of the row of a job, nil if it is not remembered.
func (h *hot) rowOf(uid job.ID) *jobRow {
	kept := h.jobs[uid]
	if kept == nil {
		return nil
	}
	both := &struct {
		row jobRow
		job engine.Job
	}{kept.row, kept.job}
	both.row.Job = &both.job
	return &both.row
}

// stateOf copies a job without the marks of the batch that it was in.
func stateOf(j *engine.Job) engine.Job {
	return engine.Job{
		UID: j.UID, Namespace: j.Namespace, Name: j.Name,
		Version: j.Version, Epoch: j.Epoch, State: j.State, Deleted: j.Deleted, Policy: j.Policy,
		Cursor: j.Cursor, Floor: j.Floor, Planner: j.Planner, Planned: j.Planned,
		PausedAt: j.PausedAt, PausedUntil: j.PausedUntil, PausedBy: j.PausedBy, PauseReason: j.PauseReason, Completed: j.Completed,
		Failures: j.Failures, Previous: j.Previous, PreviousOK: j.PreviousOK,
	}
}

// keepRun remembers a run as it was read or written.
func (h *hot) keepRun(r *store.Run) {
	kept := h.jobs[r.JobUID]
	if kept == nil {
		return
	}
	own := isOwnSlot(r.Slot, r.JobUID)
	if known := h.runs[r.ID]; known != nil && own {
		*known = *r
		return
	}
	h.dropRun(r)
	switch {
	case !own:
	case len(kept.runs) == hotRuns:
		kept.complete = false
	default:
		copied := *r
		kept.runs = append(kept.runs, &copied)
		h.runs[r.ID] = &copied
	}
}

func (h *hot) dropRun(r *store.Run) {
	if kept := h.jobs[r.JobUID]; kept != nil && h.runs[r.ID] != nil {
		kept.runs = slices.DeleteFunc(kept.runs, func(o *store.Run) bool { return o.ID == r.ID })
		delete(h.runs, r.ID)
	}
}

// ownSlot returns the runs in the slot of a job, by due time and id, and whether
// they are remembered.
func (h *hot) ownSlot(uid job.ID) ([]*store.Run, bool) {
	kept := h.jobs[uid]
	if kept == nil || !kept.complete {
		return nil, false
	}
	slices.SortFunc(kept.runs, func(a, b *store.Run) int { return compareRuns(*a, *b) })
	return kept.runs, true
}

// keepSlot remembers that runs are all that there are in the slot of a job.
func (h *hot) keepSlot(uid job.ID, runs []store.Run) {
	kept := h.jobs[uid]
	if kept == nil || len(runs) > hotRuns {
		return
	}
	for _, r := range kept.runs {
		delete(h.runs, r.ID)
	}
	kept.runs, kept.complete = nil, true
	for i := range runs {
		h.keepRun(&runs[i])
	}
}
