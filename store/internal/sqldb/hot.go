package sqldb

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// Where one process has the database to itself, a run is planned, claimed and finished by the same
// process within seconds. So steps cache their last reads and writes: jobs, and the runs in the
// jobs' own slots. The cache reflects the open transaction; after a rollback it is emptied.
// docs/decisions/0026 has the savings.

const (
	// hotMax is how many jobs are remembered, at about a kilobyte each.
	hotMax = 32768
	// hotRuns is the number of cached started or waiting runs of a job. The store is not
	// the bottleneck of a job with more.
	hotRuns = 64
	// hotPlanned bounds all cached planned runs, at about 150 bytes each: the highest rate plans as
	// many in a look-ahead.
	hotPlanned = 400_000
)

// hotJob is the cached data of a job.
type hotJob struct {
	job    engine.Job
	seq    int64
	stored jobBefore
	// planned and runs are unfinished runs in the slot of the job itself, all of them if complete
	// is set: planned has the unchanged planned ones, by due time and id.
	planned  []plannedRun
	runs     []*store.Run
	complete bool
}

// plannedRun is a run as the planner made it, in a fifth of the size of store.Run.
type plannedRun struct {
	id, session               job.ID
	node                      string
	scheduled, due, lateAfter int64
	nextDue                   int64
	epoch, version            int64
	priority                  int
}

// isPlanned reports whether a plannedRun can represent a run.
func isPlanned(r *store.Run) bool {
	return r.Kind == job.RunScheduled && r.State == job.StateReady && r.Attempt == 1 && !r.HoldsSlot && r.First.IsZero() &&
		r.Token.IsZero() && r.Claimed.IsZero() && r.Shards == 0 && r.Overlap == "" && !r.AwaitsPrevious && r.Reason.IsZero() &&
		r.Params == nil && r.Parent.IsZero() && r.Last == "" && r.CancelBy == "" && r.CancelReason.IsZero() &&
		r.FirstDue.IsZero() && r.AlertAt.IsZero() && r.Others == "" &&
		r.FloorBefore.IsZero() && r.LostAfter == 0
}

func plannedOf(r *store.Run) plannedRun {
	return plannedRun{
		id: r.ID, session: r.Session, node: r.Node,
		scheduled: columns.Nanos(r.Scheduled), due: columns.Nanos(r.Due), lateAfter: columns.Nanos(r.LateAfter), nextDue: columns.Nanos(r.NextDue),
		epoch: r.Epoch, version: r.Version, priority: r.Priority,
	}
}

func (p *plannedRun) run(uid job.ID) store.Run {
	r := store.Run{
		Run: job.Run{
			ID: p.id, JobUID: uid, Kind: job.RunScheduled, State: job.StateReady, Attempt: 1, Node: p.node,
			Epoch: p.epoch, Version: p.version, Scheduled: columns.FromNanos(p.scheduled), Due: columns.FromNanos(p.due),
		},
		Session: p.session, Slot: uid.String(), Priority: p.priority, LateAfter: columns.FromNanos(p.lateAfter), NextDue: columns.FromNanos(p.nextDue),
	}
	r.Key = columns.Key(&r.Run)
	return r
}

func (p *plannedRun) compare(due int64, id job.ID) int {
	return cmp.Or(cmp.Compare(p.due, due), bytes.Compare(p.id[:], id[:]))
}

// hot is the cache of steps. It belongs to the current step.
type hot struct {
	era     int64 // of the database
	jobs    map[job.ID]*hotJob
	runs    map[job.ID]*store.Run // cached runs by id
	planned map[job.ID]*hotJob    // the jobs of cached planned runs, by run
}

// keepJob remembers a job as it was read or written.
func (h *hot) keepJob(r jobRow, as jobBefore) {
	if h.jobs == nil {
		h.jobs, h.runs, h.planned = map[job.ID]*hotJob{}, map[job.ID]*store.Run{}, map[job.ID]*hotJob{}
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
	kept.job, kept.seq, kept.stored = *r.Job, r.seq, as
}

func (h *hot) dropJob(uid job.ID) {
	if kept := h.jobs[uid]; kept != nil {
		h.dropRuns(kept)
		delete(h.jobs, uid)
	}
}

// dropRuns forgets the runs of a job.
func (h *hot) dropRuns(kept *hotJob) {
	for _, r := range kept.runs {
		delete(h.runs, r.ID)
	}
	for i := range kept.planned {
		delete(h.planned, kept.planned[i].id)
	}
	kept.runs, kept.planned, kept.complete = nil, nil, false
}

// keepRun remembers a run as it was read or written.
func (h *hot) keepRun(r *store.Run) {
	kept := h.jobs[r.JobUID]
	if kept == nil {
		return
	}
	own := columns.IsOwnSlot(r.Slot, r.JobUID)
	if known := h.runs[r.ID]; known != nil && own && !isPlanned(r) {
		*known = *r
		return
	}
	h.dropRun(r)
	switch {
	case !own:
	case isPlanned(r) && len(h.planned) < hotPlanned:
		p := plannedOf(r)
		i, _ := slices.BinarySearchFunc(kept.planned, &p, func(a plannedRun, b *plannedRun) int { return a.compare(b.due, b.id) })
		kept.planned = slices.Insert(kept.planned, i, p)
		h.planned[r.ID] = kept
	case !isPlanned(r) && len(kept.runs) < hotRuns:
		copied := *r
		kept.runs = append(kept.runs, &copied)
		h.runs[r.ID] = &copied
	default:
		kept.complete = false
	}
}

func (h *hot) dropRun(r *store.Run) {
	kept := h.jobs[r.JobUID]
	if kept == nil {
		return
	}
	if h.runs[r.ID] != nil {
		kept.runs = slices.DeleteFunc(kept.runs, func(o *store.Run) bool { return o.ID == r.ID })
		delete(h.runs, r.ID)
	}
	if h.planned[r.ID] != nil {
		// It is the first or close to it.
		i := slices.IndexFunc(kept.planned, func(p plannedRun) bool { return p.id == r.ID })
		if i == 0 {
			kept.planned = kept.planned[1:]
		} else {
			kept.planned = slices.Delete(kept.planned, i, i+1)
		}
		delete(h.planned, r.ID)
	}
}

// run returns a run that is remembered.
func (h *hot) run(id job.ID) (r store.Run, ok bool) {
	if known := h.runs[id]; known != nil {
		return *known, true
	}
	kept := h.planned[id]
	if kept == nil {
		return r, false
	}
	i := slices.IndexFunc(kept.planned, func(p plannedRun) bool { return p.id == id })
	return kept.planned[i].run(kept.job.UID), true
}

// hasSlot reports whether all runs in the slot of a job are remembered.
func (h *hot) hasSlot(uid job.ID) bool {
	kept := h.jobs[uid]
	return kept != nil && kept.complete
}

// ownSlot returns the cached runs in a job's own slot that matter to an attempt of a run due at
// until, which later planned runs do not. It leaves out runs in the batch.
func (h *hot) ownSlot(uid job.ID, until store.RunRef, b *engine.Batch) (list []store.Run) {
	kept, due := h.jobs[uid], columns.Nanos(until.Due)
	for i := range kept.planned {
		p := &kept.planned[i]
		if p.compare(due, until.ID) > 0 {
			break
		}
		if !b.HasRun(p.id) {
			list = append(list, p.run(uid))
		}
	}
	for _, r := range kept.runs {
		if !b.HasRun(r.ID) {
			list = append(list, *r)
		}
	}
	return list
}

// keepSlot remembers all runs in the slot of a job.
func (h *hot) keepSlot(uid job.ID, runs []store.Run) {
	kept := h.jobs[uid]
	if kept == nil {
		return
	}
	h.dropRuns(kept)
	kept.complete = true
	for i := range runs {
		h.keepRun(&runs[i])
	}
}

// wrote remembers what a step has written.
func (h *hot) wrote(c *engine.Changes) {
	for _, r := range c.Removed {
		h.dropRun(r)
	}
	for _, list := range [...][]*store.Run{c.Saved, c.Made} {
		for _, r := range list {
			h.keepRun(r)
		}
	}
}
