package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Stored is a job as a store has it.
type Stored struct {
	*Job
	Definition *job.Job // as the user wrote it
	Filled     *job.Job
}

// PutItem is a job to create or change.
type PutItem struct {
	// Old is the stored job of the name, with a nil [Job] for none. UID is the id of a new job,
	// Filled is Put.Definition with its defaults, and [Policy] the result of [CompilePolicy].
	Old    Stored
	Put    *store.PutJob
	Filled *job.Job
	Policy *Policy
	UID    job.ID
	// Job and Changed are the result.
	Job     *Job
	Changed bool
}

// Put creates and changes jobs: all of them, or it returns the error of the refused one, and
// nothing of the batch must be written.
//
// names resolves jobs outside the list.
//
// For each changed job the store writes the job, Put.Definition as its definition, and a revision.
// For an existing job the store adds its waiting runs, the members of their slots and of the slots
// of the new policy; all unfinished runs if [Job.WantsRuns].
//
// No withdrawn run starts: a change of the schedule, a pause and a resume begin a new epoch in the
// acknowledged step, and each claim compares epochs.
func (b *Batch) Put(items []PutItem, names Names) error {
	among := make(map[string]*job.Job, len(items))
	refused := func(i int, err error) error {
		return &store.ItemError{Item: i, Err: fmt.Errorf("put job %s: %w", items[i].Filled.FullName(), err)}
	}
	for i, item := range items {
		full := item.Filled.FullName()
		if among[full] != nil {
			return refused(i, fmt.Errorf("%w: it is given twice", store.ErrConflict))
		}
		among[full] = item.Filled
	}
	stored := names.Upstreams
	names.Upstreams = func(full string) ([]string, error) {
		if j := among[full]; j != nil {
			return Follows(j), nil
		}
		return stored(full)
	}
	origin := b.origin
	for i := range items {
		item := &items[i]
		b.From(cmp.Or(item.Put.Origin, origin))
		var err error
		if item.Job, item.Changed, err = b.put(item, names); err != nil {
			return refused(i, err)
		}
	}
	b.From(origin)
	return nil
}

func (b *Batch) put(item *PutItem, names Names) (j *Job, changed bool, err error) {
	old, put, filled := &item.Old, item.Put, item.Filled
	var version int64
	var before, after map[string]any // what is different
	same := false
	if old.Job != nil {
		version = old.Version
		before, after = job.Apart(old.Definition, put.Definition)
		same = len(before)+len(after) == 0 && samePause(old.Job, put)
		if put.New && old.UID != item.UID { // an equal uid means an earlier try of this step
			return nil, false, store.ErrExists
		}
	}
	if err := checkVersion(version, put.IfVersion, same); err != nil {
		return nil, false, err
	}
	if same {
		return old.Job, false, nil
	}

	if err := b.refuseCycle(filled, names.Upstreams); err != nil {
		return nil, false, err
	}
	policy := item.Policy
	if old.Job == nil {
		j = &Job{
			UID: item.UID, Namespace: filled.Namespace, Name: filled.Name, Version: 1, Epoch: 1,
			State: job.JobActive, Policy: policy, Created: b.now, Cursor: begin(item.UID, filled, names.Calendars, b.now),
		}
		b.AddJob(j)
		j.was = was{}
		b.HasWhole(j.UID) // it has no runs
		b.saveJob(j)
		if filled.Paused {
			j.setPause(b.now, put.Pause)
		} else {
			b.startChain(j)
		}
		b.audit(put.Actor, "job.create", j.FullName(), j.Version, job.Reason{})
		return j, true, nil
	}

	j = b.AddJob(old.Job)
	b.freezeFlows(j)
	j.Version++
	if policy.NeedsPrevious && !j.Policy.NeedsPrevious {
		j.Previous, j.PreviousOK = time.Time{}, false // other occurrences may have ended in the meantime
	}
	j.Policy = policy
	b.saveJob(j)
	action, detail := "job.change", job.Reason{}
	rescheduled := !job.SameSchedule(&old.Filled.Schedule, &filled.Schedule)
	if rescheduled && !job.SameSchedule(withoutBounds(old.Filled.Schedule), withoutBounds(filled.Schedule)) {
		b.countAnew(j) // by another schedule
	}
	next := plan{filled, names.Calendars}
	switch paused := j.State == job.JobPaused; {
	case filled.Paused && !paused:
		b.pause(j, put.Pause, plan{old.Filled, names.Calendars}.timing(j.UID))
		action, detail = "job.pause", put.Pause.Reason
	case filled.Paused:
		j.setPause(j.PausedAt, put.Pause)
		if rescheduled {
			b.newEpoch(j, b.now, plan{}, reason.ScheduleChanged.Of(put.Actor))
		}
	case paused:
		from := begin(j.UID, filled, names.Calendars, j.PausedAt)
		if j.Floor.After(from) {
			_, settled := b.unstarted(j)
			from = lastOf(from, settled) // begun or settled when the pause came
		}
		b.unpause(j, b.now, next, put.Actor)
		if err := b.makeUp(j, from, put.CatchUp, filled, names.Calendars); err != nil {
			return nil, false, err
		}
		action = "job.resume"
	case rescheduled:
		why := reason.ScheduleChanged.Of(put.Actor)
		b.missUnplanned(j, plan{old.Filled, names.Calendars}.timing(j.UID), why)
		j.State, j.Completed = job.JobActive, time.Time{}
		b.newEpoch(j, b.now, next, why)
	}
	b.Refit(j)
	b.audit(put.Actor, action, j.FullName(), j.Version, detail, differences(before, after)...)
	return j, true, nil
}

// checkVersion reports whether a document of a version, 0 for none, may be changed by a caller who
// expects ifVersion. same is set if it already has the requested content: then an earlier call has
// changed it and its answer was lost.
func checkVersion(version, ifVersion int64, same bool) error {
	switch {
	case ifVersion == store.AnyVersion || version == ifVersion || same && version == ifVersion+1:
		return nil
	case version == 0:
		return store.ErrNotFound
	case ifVersion == 0:
		return store.ErrExists
	}
	return store.ErrConflict
}

func samePause(j *Job, put *store.PutJob) bool {
	p := put.Pause
	return !put.Definition.Paused || p == store.Pause{} ||
		p.By == j.PausedBy && p.Reason == j.PauseReason && p.Until.Equal(j.PausedUntil)
}

// withoutBounds is the schedule without its end and its number of runs.
func withoutBounds(s job.Schedule) *job.Schedule {
	s.MaxRuns, s.End, s.DeleteAfter = 0, time.Time{}, nil
	return &s
}

func (j *Job) setPause(since time.Time, p store.Pause) {
	j.State, j.PausedAt, j.Completed = job.JobPaused, since, time.Time{}
	if p != (store.Pause{}) {
		j.PausedBy, j.PauseReason, j.PausedUntil = p.By, p.Reason, p.Until
	}
}

// begin returns the cursor for planning a job from a moment on.
//
// An occurrence delayed by spread and jitter may be due after the edit, which withdraws it like all
// planned ones: it falls due in the new epoch.
func begin(uid job.ID, filled *job.Job, calendars job.Calendars, at time.Time) time.Time {
	if filled.Schedule.Spread == 0 && filled.Schedule.Jitter == 0 {
		return at // as most are
	}
	timing, err := TimingOf(filled, uid, calendars)
	if err != nil || !timing.Planned {
		return at // no node plans it before another change
	}
	return timing.Begin(at)
}

// plan is the planning data of a job from a new epoch on. The zero value is for a job that
// is not planned.
type plan struct {
	filled    *job.Job
	calendars job.Calendars
}

// timing returns the timing of a job, nil if it is not planned.
func (p plan) timing(uid job.ID) *Timing {
	if p.filled == nil {
		return nil
	}
	timing, err := TimingOf(p.filled, uid, p.calendars)
	if err != nil {
		return nil // no node plans it before another change
	}
	return &timing
}

// newEpoch withdraws planned runs, by comparison alone, and gives the reason. The cursor becomes
// the later of the given moment and the latest scheduled time ever claimed or settled: no
// occurrence is planned twice, whatever a clock shows. Claimed, unstarted runs may pass into the
// new epoch.
func (b *Batch) newEpoch(j *Job, at time.Time, next plan, why job.Reason) {
	b.uncount(j)
	j.Epoch++
	j.EpochWhy = why
	from := at
	if next.filled != nil {
		from = begin(j.UID, next.filled, next.calendars, at)
	}
	var timing *Timing
	if j.Floor.After(from) {
		timing = next.timing(j.UID)
	}
	j.Cursor = b.takeOver(j, from, timing)
	j.Planner = job.ID{}
	b.saveJob(j)
	if j.State == job.JobActive && !j.Deleted {
		b.startChain(j)
	}
}

// uncount subtracts from the count for max_runs the occurrences that a new epoch
// withdraws before any of their shards has started. It needs the unfinished runs of a job
// with max_runs.
func (b *Batch) uncount(j *Job) {
	if j.Policy.MaxRuns == 0 || j.Deleted {
		return
	}
	unstarted := map[string]int{} // shards by key
	for _, m := range b.unfinished(j.UID) {
		if m.removed || !counts(m.Kind) || m.Epoch != j.Epoch || m.State == job.StateRunning || !m.First.IsZero() {
			continue
		}
		if unstarted[m.Key]++; unstarted[m.Key] == max(1, m.Shards) {
			j.Planned = max(0, j.Planned-1)
		}
	}
}

// counts reports whether runs of a kind count for max_runs.
func counts(k job.RunKind) bool { return k == job.RunScheduled || k == job.RunAfterEnd }

// countsShards reports whether the shards of a run remember whether any has started: then the
// occurrence counts.
func (p *Policy) countsShards(r *store.Run) bool {
	return p.MaxRuns > 0 && r.Shards > 0 && counts(r.Kind)
}

// uncountReleased uncounts an occurrence that was withdrawn while claimed, and did not start: a
// split one with its last claimed shard, if no shard has started or ended otherwise. The count may
// have completed the job.
func (b *Batch) uncountReleased(j *Job, r *store.Run) {
	if j.Policy.MaxRuns == 0 || !counts(r.Kind) || r.Attempt > 1 || isCounted(r) || j.Planned == 0 {
		return
	}
	for _, m := range b.shardsBeside(r) {
		if isOther(m, r) && (!m.First.IsZero() || isCounted(&m.Run)) {
			return
		}
	}
	j.Planned--
	b.saveJob(j)
	if j.State == job.JobCompleted {
		j.State, j.Completed = job.JobActive, time.Time{}
		if !j.Deleted {
			b.startChain(j)
		}
	}
}

// isCounted reports whether an occurrence counts for max_runs regardless of this run, or
// must not be uncounted because the count was reset since.
func isCounted(r *store.Run) bool { return r.Others != "" && r.Others != job.OutcomeWithdrawn }

// countAnew resets the count for max_runs. Runs released later were counted before.
func (b *Batch) countAnew(j *Job) {
	j.Planned = 0
	if j.Policy.MaxRuns == 0 {
		return
	}
	for _, m := range b.unfinished(j.UID) {
		if !m.removed && counts(m.Kind) && m.State == job.StateRunning && !isCounted(&m.Run) {
			m.Others = together(m.Others, job.OutcomeSucceeded)
			b.save(m)
		}
	}
}

// pause pauses a job that was planned so until now.
func (b *Batch) pause(j *Job, p store.Pause, was *Timing) {
	why := reason.JobPaused.Of(p.By, job.Reason{})
	b.missUnplanned(j, was, why)
	j.PausedBy, j.PauseReason, j.PausedUntil = "", job.Reason{}, time.Time{}
	j.setPause(b.now, p)
	b.newEpoch(j, b.now, plan{}, why)
}

// unpause makes a job active again, from a moment on. Occurrences that fell due during the
// pause do not run.
func (b *Batch) unpause(j *Job, from time.Time, next plan, actor string) {
	j.State = job.JobActive
	j.PausedAt, j.PausedUntil, j.PausedBy, j.PauseReason = time.Time{}, time.Time{}, "", job.Reason{}
	j.Failures = 0
	b.newEpoch(j, from, next, reason.JobResumed.Of(actor))
}

// makeUp catches up on occurrences since a pause began, by a policy other than the job's. The step
// that ends the pause calls it, so it happens once.
func (b *Batch) makeUp(j *Job, since time.Time, policy job.Missed, filled *job.Job, calendars job.Calendars) error {
	if policy != job.MissedLatest && policy != job.MissedAll || !j.Policy.Planned {
		return nil
	}
	timing, err := TimingOf(filled, j.UID, calendars)
	if err != nil {
		return err
	}
	d := timing.Resume(policy, Progress{Cursor: since, Planned: j.Planned}, b.now)
	for _, o := range d.Due {
		r := store.Run{Run: job.Run{Kind: job.RunScheduled, Key: KeyOf(o.Scheduled), Scheduled: o.Scheduled, Due: o.Due}}
		if _, absent := absenceAt(o.Due, b.absences()); absent {
			r.Overlap = j.Policy.Overlap // the job's policy for an absence does not apply
		}
		if policy == job.MissedAll {
			r.Overlap = cmp.Or(j.Policy.caughtUp(), r.Overlap)
		}
		b.spawn(j, r)
	}
	for _, s := range d.Missed {
		id := b.newID("missed "+KeyOf(s.First), job.ID{}, j.UID, 0)
		b.miss(j, store.MissedSpan{ID: id, First: s.First, Last: s.Last, Count: s.Count, Reason: s.Reason})
	}
	j.Planned += len(d.Due)
	return nil
}

// Unpause ends an expired pause, and reports whether it did. The store writes the definition
// without the pause. Occurrences since the planned end of the pause are planned late, or missed
// like any that were not planned in time.
func (b *Batch) Unpause(j *Job, filled *job.Job, calendars job.Calendars) bool {
	if j.Deleted || j.State != job.JobPaused || j.PausedUntil.IsZero() || b.now.Before(j.PausedUntil) {
		return false
	}
	j = b.AddJob(j)
	j.Version++
	from := j.PausedUntil.Add(-1) // the pause does not cover that moment
	if from.Before(j.PausedAt) {
		from = j.PausedAt
	}
	b.unpause(j, from, plan{filled, calendars}, System)
	b.audit(System, "job.resume", j.FullName(), j.Version, reason.PauseEnded.Of())
	return true
}

// Reschedule begins a new epoch, with a reason, for a job whose schedule has changed its meaning.
// The store adds the unfinished runs if [Job.WantsRuns].
func (b *Batch) Reschedule(j *Job, filled *job.Job, calendars job.Calendars, why job.Reason) {
	if j = b.AddJob(j); !j.Deleted {
		if j.State == job.JobCompleted {
			j.State, j.Completed = job.JobActive, time.Time{}
		}
		b.newEpoch(j, b.now, plan{filled, calendars}, why)
	}
}

// Delete decides about the removal of a job. Its runs are withdrawn by comparison. The store keeps
// it as a tombstone at least until its last run has ended.
func (b *Batch) Delete(j *Job, ifVersion int64, actor string, detail job.Reason) error {
	j = b.AddJob(j)
	switch {
	case j.Deleted:
		return nil // its answer was lost
	case ifVersion != store.AnyVersion && ifVersion != j.Version:
		return store.ErrConflict
	}
	why := reason.JobDeleted.Of(actor)
	b.missUnplanned(j, b.timingOf(j), why)
	b.uncount(j)
	j.Deleted = true
	j.Version++
	b.newEpoch(j, b.now, plan{}, why)
	b.audit(actor, "job.delete", j.FullName(), j.Version, detail, store.Change{Path: store.DeletedUID, Before: j.UID.String()})
	return nil
}

// restore decides about the return of a deleted job, whose name is free. Its calendars and the jobs
// that it follows may have changed meanwhile.
func (b *Batch) restore(j *Job, actor string) error {
	d, calendars := j.Document, b.calendarsOf(j.Document)
	timing, err := TimingText(d.Filled, calendars)
	if err == nil {
		_, err = TimingOf(d.Filled, j.UID, calendars)
	}
	if err != nil {
		return err
	}
	if err := b.refuseCycle(d.Filled, b.follows); err != nil {
		return err
	}
	j = b.AddJob(j)
	j.Document = d.with(func(own *Document) { own.Timing, own.Actor = timing, actor })
	j.Deleted = false
	j.Version++
	if j.State == job.JobCompleted {
		j.Completed = b.now // its removal is due anew
	}
	b.newEpoch(j, b.now, plan{d.Filled, calendars}, j.EpochWhy)
	b.settleDocument(j)
	b.audit(actor, "job.restore", j.FullName(), j.Version, job.Reason{})
	return nil
}

// refuseCycle refuses a job that would follow itself through others.
func (b *Batch) refuseCycle(filled *job.Job, upstreams func(full string) ([]string, error)) error {
	way, err := Cycle(filled.FullName(), Follows(filled), upstreams)
	if err == nil && way != nil {
		err = fmt.Errorf("%w: %w", store.ErrCycle, phrase.Mistake(phrase.GoesRound.Of(CycleInWords(way))))
	}
	return err
}

// missUnplanned records due occurrences that no node has planned, before a change that ends a
// timing of a job, nil if the job was not planned. They must be accounted for here: no planner sees
// them again, since the cursor passes them.
func (b *Batch) missUnplanned(j *Job, was *Timing, why job.Reason) {
	if j.State != job.JobActive || j.Deleted || was == nil || !was.Planned || was.MaxRuns > 0 && j.Planned >= was.MaxRuns {
		return
	}
	first := was.Schedule.Next(j.Cursor)
	if first.IsZero() {
		return
	}
	if span, ok := was.span(first, was.Begin(b.now)); ok {
		b.miss(j, store.MissedSpan{ID: b.newID("missed "+KeyOf(span.First), job.ID{}, j.UID, 0), First: span.First, Last: span.Last, Count: span.Count, Reason: reason.Unplanned.Of(why)})
	}
}

// timingOf returns the timing of a job in this batch, nil if it is not planned.
func (b *Batch) timingOf(j *Job) *Timing {
	if j.State != job.JobActive || !j.Policy.Planned {
		return nil
	}
	return plan{j.Document.Filled, b.calendarsOf(j.Document)}.timing(j.UID)
}

// Expired reports whether a completed job is due for removal.
func (b *Batch) Expired(j *Job) bool {
	at := j.RemoveAt()
	return !at.IsZero() && !b.now.Before(at)
}

// RemoveAt returns the time of a completed job's removal, zero for never.
func (j *Job) RemoveAt() time.Time {
	if after := j.Policy.DeleteAfter; j.State == job.JobCompleted && after >= 0 && !j.Deleted {
		return j.Completed.Add(after)
	}
	return time.Time{}
}

// startChain creates the first run of a chain with a fixed delay.
func (b *Batch) startChain(j *Job) {
	if j.Policy.AfterEnd > 0 {
		b.chain(j, "epoch "+itoa(j.Epoch), job.ID{}, b.now.Add(j.Policy.AfterEnd))
	}
}

// Refit applies a changed policy to the unfinished runs of a job: their latest start and
// their slot. The store adds the same data as for Put.
func (b *Batch) Refit(j *Job) {
	slots := map[string]bool{}
	for _, m := range slices.Clone(b.waiting(j.UID)) {
		if m.removed || isStep(&m.Run.Run) || isFlow(&m.Run) {
			continue
		}
		// Including running ones, which may be released.
		if late := j.Policy.LateAfter(m.Kind, m.Due); m.Attempt == 1 && !isReportedStart(j, m) && !late.Equal(m.LateAfter) {
			m.LateAfter = late
			b.save(m)
		}
		if m.State != job.StateWaiting || m.AwaitsPrevious {
			continue
		}
		b.moveSlot(m, j.Policy.SlotKey(&m.Run.Run, m.Node))
		slots[m.Slot] = true
	}
	for _, key := range slices.Sorted(maps.Keys(slots)) {
		b.fill(key)
	}
	b.resume(j)
}

// Refill gives the new slots of an enlarged pool to waiting runs. The store adds the
// members of the slot.
func (b *Batch) Refill(pool string) {
	b.fill(PoolSlot(pool))
	b.redate(PoolSlot(inLine + pool))
	b.fill(PoolSlot(inLine + pool))
}

// PoolSlot returns the slot key of a pool, and [PoolOfSlot] its inverse.
func PoolSlot(pool string) string { return poolSlot + pool }

// Slots returns the declared limits of a pool or of the line of its rate, nil for none: its own, or
// those of a pool whose limits count for each key.
func (d Documents) Slots(name string) *job.Slots {
	pools, full := d[job.KindPool], strings.TrimPrefix(name, inLine)
	if own, ok := pools[full]; ok {
		return &own.Pool.Slots
	}
	for end := len(full) - 1; end > 0 && full[end] != '/'; end-- {
		if !strings.ContainsRune("-._", rune(full[end])) {
			continue
		}
		if of, ok := pools[full[:end]]; ok && of.Pool.Slots.PerKey {
			return &of.Pool.Slots
		}
	}
	return nil
}
