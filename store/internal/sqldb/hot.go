package sqldb

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// A run is planned, claimed and finished within seconds, mostly by one process. So steps cache their
// last reads and writes: the runs in the jobs' own slots and, where one process has the database to
// itself, the jobs. There the cache reflects the open transaction; after a rollback it is emptied.
// docs/decisions/0026 has the savings.
//
// On a shared database the row of a job says in cached_by which process caches its runs. Each step
// that writes runs of the job holds the lock of this row, and writes it unless the row names its own
// process. So what a process has cached under the lock is what is stored, as long as the row names the
// process when the lock is held again. What a step has written is cached before the commit, since the
// next step may have the lock before this process knows of the commit; until then other steps read the
// runs from the database.

const (
	// hotMax is how many jobs are remembered, at about a kilobyte each.
	hotMax = 32768
	// hotRuns is the number of cached started or waiting runs of a job. The store is not
	// the bottleneck of a job with more.
	hotRuns = 64
	// hotPlanned bounds all cached planned runs, at about 150 bytes each: the highest rate plans as
	// many in a look-ahead.
	hotPlanned = 400_000
	// hotLarge is for how many steps a slot with more runs is not read as a whole.
	hotLarge = 100
)

// hotJob is the cached data of a job.
type hotJob struct {
	uid    job.ID
	job    *engine.Job // nil on a shared database
	seq    int64
	stored jobBefore
	// planned and runs are unfinished runs in the slot of the job itself, all of them if complete
	// is set: planned has the unchanged planned ones, by due time and id.
	planned  []plannedRun
	runs     []*store.Run
	complete bool
	// large counts down the steps until the slot is read for the cache again, once it had too many runs.
	large int
	// writer is the step that has changed the runs and may be rolled back, on a shared database.
	writer *step
}

// plannedRun is a run as the planner made it, in a fifth of the size of [store.Run].
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

// hot is the cache of steps.
type hot struct {
	mu      sync.Mutex
	era     int64 // of the database
	jobs    map[job.ID]*hotJob
	planned int // number of cached planned runs
}

// renew empties the cache in another era.
func (h *hot) renew(era int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.jobs == nil || h.era != era {
		h.era, h.jobs, h.planned = era, map[job.ID]*hotJob{}, 0
	}
}

// keepJob remembers a job as it was read or written.
func (h *hot) keepJob(r jobRow, as jobBefore) {
	cached := h.entry(r.UID)
	if cached.job == nil {
		cached.job = &engine.Job{}
	}
	*cached.job, cached.seq, cached.stored = *r.Job, r.seq, as
}

// entry returns the entry of a job, a new one if it has none.
func (h *hot) entry(uid job.ID) *hotJob {
	cached := h.jobs[uid]
	if cached == nil {
		for other := range h.jobs {
			if len(h.jobs) < hotMax {
				break
			}
			h.dropJob(other) // any will do
		}
		cached = &hotJob{uid: uid}
		h.jobs[uid] = cached
	}
	return cached
}

func (h *hot) dropJob(uid job.ID) {
	if entry := h.jobs[uid]; entry != nil {
		h.dropRuns(entry)
		delete(h.jobs, uid)
	}
}

// forget removes jobs whose rows are removed.
func (h *hot) forget(uids []job.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, uid := range uids {
		h.dropJob(uid)
	}
}

// dropRuns forgets the runs of a job.
func (h *hot) dropRuns(entry *hotJob) {
	h.planned -= len(entry.planned)
	entry.runs, entry.planned, entry.complete, entry.writer = nil, nil, false, nil
}

// keepRun remembers a run as it was read or written.
func (h *hot) keepRun(r *store.Run) {
	entry := h.jobs[r.JobUID]
	if entry == nil {
		return
	}
	own := columns.IsOwnSlot(r.Slot, r.JobUID)
	if i := entry.started(r.ID); i >= 0 && own && !isPlanned(r) {
		*entry.runs[i] = *r
		return
	}
	h.dropRun(r)
	switch {
	case !own:
	case isPlanned(r) && h.planned < hotPlanned:
		p := plannedOf(r)
		i, _ := slices.BinarySearchFunc(entry.planned, &p, func(a plannedRun, b *plannedRun) int { return a.compare(b.due, b.id) })
		entry.planned = slices.Insert(entry.planned, i, p)
		h.planned++
	case !isPlanned(r) && len(entry.runs) < hotRuns:
		copied := *r
		entry.runs = append(entry.runs, &copied)
	default:
		entry.complete, entry.large = false, hotLarge
	}
}

func (h *hot) dropRun(r *store.Run) {
	entry := h.jobs[r.JobUID]
	if entry == nil {
		return
	}
	if i := entry.started(r.ID); i >= 0 {
		entry.runs = slices.Delete(entry.runs, i, i+1)
	}
	switch i := entry.plannedAt(r.ID); {
	case i == 0:
		entry.planned = entry.planned[1:]
		h.planned--
	case i > 0:
		entry.planned = slices.Delete(entry.planned, i, i+1)
		h.planned--
	}
}

// started and plannedAt return the place of a run among the others, -1 for none. A claim is about the
// first of the planned ones, or close to it.
func (k *hotJob) started(id job.ID) int {
	return slices.IndexFunc(k.runs, func(r *store.Run) bool { return r.ID == id })
}

func (k *hotJob) plannedAt(id job.ID) int {
	for i := range k.planned {
		if k.planned[i].id == id {
			return i
		}
	}
	return -1
}

// run returns a run that is remembered.
func (h *hot) run(ref *engine.RunRef) (r store.Run, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry := h.jobs[ref.Job]
	if entry == nil {
		return r, false
	}
	if i := entry.started(ref.Run); i >= 0 {
		return *entry.runs[i], true
	}
	if i := entry.plannedAt(ref.Run); i >= 0 {
		return entry.planned[i].run(entry.uid), true
	}
	return r, false
}

// hasSlot reports whether all runs in the slot of a job are remembered.
func (h *hot) hasSlot(uid job.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry := h.jobs[uid]
	return entry != nil && entry.complete
}

// isLarge reports whether a slot has too many runs to read all of them.
func (h *hot) isLarge(uid job.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry := h.jobs[uid]
	if entry == nil || entry.large == 0 {
		return false
	}
	entry.large--
	return true
}

// ownSlot returns the cached runs in a job's own slot that matter to an attempt of a run due at
// until, which later planned runs do not. It leaves out runs in the batch.
func (h *hot) ownSlot(uid job.ID, until store.RunRef, b *engine.Batch) (list []store.Run, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry, due := h.jobs[uid], columns.Nanos(until.Due)
	if entry == nil || !entry.complete {
		return nil, false
	}
	for i := range entry.planned {
		p := &entry.planned[i]
		if p.compare(due, until.ID) > 0 {
			break
		}
		if !b.HasRun(p.id) {
			list = append(list, p.run(uid))
		}
	}
	for _, r := range entry.runs {
		if !b.HasRun(r.ID) {
			list = append(list, *r)
		}
	}
	return list, true
}

// keepSlot remembers all runs in the slot of a job, or that there are too many.
func (h *hot) keepSlot(uid job.ID, runs []store.Run, tooMany bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cached := h.entry(uid)
	h.dropRuns(cached)
	if tooMany {
		cached.large = hotLarge
		return
	}
	cached.complete = true
	for i := range runs {
		h.keepRun(&runs[i])
	}
}

// wrote remembers what a step has written.
func (h *hot) wrote(c *engine.Changes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range c.Removed {
		h.dropRun(r)
	}
	for _, list := range [...][]*store.Run{c.Saved, c.Made} {
		for _, r := range list {
			h.keepRun(r)
		}
	}
}

// admit forgets the cached runs of locked jobs that are not right: another process has written some
// since, or a step of this process has and it is unknown whether it has committed.
func (h *hot) admit(locked []job.ID, isOwn func(uid job.ID) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, uid := range locked {
		if entry := h.jobs[uid]; entry != nil && (entry.writer != nil || !isOwn(uid)) {
			h.dropRuns(entry)
		}
	}
}

// wroteOf is wrote for a step on a shared database, whose commit is to follow, about the runs of
// some jobs that it has locked. It reports which of them are cached.
func (h *hot) wroteOf(st *step, uids []job.ID, c *engine.Changes) map[job.ID]bool {
	h.mu.Lock()
	for _, uid := range uids {
		if entry := h.jobs[uid]; entry != nil && (!entry.complete || h.era != st.era) {
			h.dropRuns(entry)
		}
	}
	h.mu.Unlock()
	h.wrote(c)
	h.mu.Lock()
	defer h.mu.Unlock()
	cached := make(map[job.ID]bool, len(uids))
	for _, uid := range uids {
		switch entry := h.jobs[uid]; {
		case entry == nil:
		case entry.complete:
			entry.writer, cached[uid] = st, true
		default:
			h.dropRuns(entry)
		}
	}
	return cached
}

// settle says whether a step has committed.
func (h *hot) settle(st *step, committed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, uid := range st.uncertain {
		if entry := h.jobs[uid]; entry != nil && entry.writer == st {
			if entry.writer = nil; !committed {
				h.dropRuns(entry)
			}
		}
	}
	st.uncertain = st.uncertain[:0]
}
