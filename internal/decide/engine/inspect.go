package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Damage is an inconsistency in a store, or a state that no step produces.
type Damage struct {
	Check  string `json:"check"`
	Object string `json:"object"` // a job, or a run
	Found  string `json:"found"`
	// Mend describes the repair; "" if only a person can decide.
	Mend   string `json:"mend,omitempty"`
	Mended bool   `json:"mended,omitempty"`
}

// The checks of a store.
const (
	CheckStore    = "store"    // all values are readable
	CheckRuns     = "runs"     // each unfinished run belongs to a job, exists once and has not ended
	CheckCursors  = "cursors"  // planned runs are behind the cursor, which is not far ahead
	CheckSlots    = "slots"    // no run waits for a free slot
	CheckNames    = "names"    // names lead to their jobs
	CheckIndexes  = "indexes"  // the indexes of followers and calendars are complete
	CheckFeed     = "feed"     // planners receive the current state of each job
	CheckVersions = "versions" // the latest revision is the definition
	CheckAudit    = "audit"    // numbers have no gaps
	CheckHistory  = "history"  // records have the current names of jobs
)

// cursorAheadMax is how far in the future a cursor may be: no planner exceeds the look-ahead, and a
// clock set back by more needs a check.
const cursorAheadMax = time.Hour

// Inspect finds damage in jobs and their unfinished runs, and mends it if Fix is set. It examines
// and mends each job in one step, so it may run beside live nodes.
type Inspect struct {
	Jobs  []job.ID
	Runs  []RunRef // the jobs of these may be missing
	Fix   bool
	Found []Damage
}

// Need requests the jobs with their runs, and the data that refers to them.
func (o *Inspect) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	for _, ref := range o.Runs {
		b.lookWithAround(n, ref)
	}
	for _, uid := range o.Jobs {
		j, _ := b.lookJob(n, uid)
		if j == nil || j.Deleted {
			continue
		}
		b.lookName(n, j.FullName())
		b.lookCalendars(n, j.Document)
		for _, up := range Follows(j.Document.Filled) {
			if !b.facts.upstreams[up] {
				ask(&n.asked.upstreams, &n.Upstreams, up, up)
			}
		}
		for _, full := range j.Document.Calendars {
			if !b.facts.naming[full] {
				ask(&n.asked.naming, &n.Naming, full, full)
			}
		}
		if !b.lookWhole(n, uid) {
			continue
		}
		for _, m := range b.byJob[uid] {
			b.lookAround(n, m, "")
			b.lookRecords(n, RunRef{Run: m.ID, Job: uid})
		}
	}
}

// Decide examines, and mends.
func (o *Inspect) Decide(b *Batch) error {
	o.Found = nil
	for _, ref := range o.Runs {
		if m := b.run(ref.Run); m != nil && b.job(m.JobUID) == nil {
			o.damage(CheckRuns, "run "+m.ID.String(), fmt.Sprintf("its job %s/%s (%s) does not exist", m.Namespace, m.Name, m.JobUID), "end it as withdrawn", func() { b.conclude(m, job.OutcomeWithdrawn, reason.JobGone.Of()) })
		}
	}
	for _, uid := range o.Jobs {
		if j := b.job(uid); j != nil && !j.Deleted {
			if err := o.job(b, j); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Inspect) damage(check, object, found, mend string, fix func()) {
	d := Damage{Check: check, Object: object, Found: found, Mend: mend}
	if o.Fix && fix != nil {
		fix()
		d.Mended = true
	}
	o.Found = append(o.Found, d)
}

func (o *Inspect) job(b *Batch, j *Job) error {
	full := "job " + j.FullName()
	uid, known := b.facts.names[j.FullName()]
	b.missing(known, "the job named", j.FullName())
	if uid != j.UID {
		found := "its name leads nowhere"
		if !uid.IsZero() {
			found = fmt.Sprintf("its name leads to another job, %s, than itself, %s", uid, j.UID)
		}
		o.damage(CheckNames, full, found, "", nil)
	}
	rewritten := false
	rewrite := func() {
		if !rewritten {
			rewritten = true
			b.rewrite(j)
		}
	}
	const anew = "write a new version of it that says the same"
	for _, up := range Follows(j.Document.Filled) {
		b.missing(b.facts.upstreams[up], "who follows job", up)
		if !slices.Contains(b.followers[up], j) {
			o.damage(CheckIndexes, full, fmt.Sprintf("it follows job %s, whose end does not start it", up), anew, rewrite)
		}
	}
	for _, calendar := range j.Document.Calendars {
		if !slices.Contains(b.naming(calendar), j) {
			o.damage(CheckIndexes, full, fmt.Sprintf("it names calendar %s, whose changes do not reach it", calendar), anew, rewrite)
		}
	}
	if timing, err := TimingText(j.Document.Filled, b.calendarsOf(j.Document)); err == nil && timing != j.Document.Timing {
		o.damage(CheckFeed, full, "planners go by another schedule than its definition has", anew, rewrite)
	}
	o.runs(b, j)
	return o.cursor(b, j)
}

// rewrite gives a job a new version of the same content, so that a store writes all derived data
// again.
func (b *Batch) rewrite(j *Job) {
	j.Version++
	if b.retime(j) != nil {
		j.Document = j.Document.with(func(*Document) {})
	}
	j.Document.Actor = System
	b.saveJob(j)
	b.audit(System, "job.mend", j.FullName(), j.Version, reason.WrittenAgain.Of())
}

// runs examines the unfinished runs of a job.
func (o *Inspect) runs(b *Batch, j *Job) {
	type occurrence struct {
		Identity
		epoch int64
	}
	seen := map[occurrence]*member{}
	for _, m := range b.unfinishedInOrder(j.UID) {
		object := fmt.Sprintf("run %s of job %s", m.ID, j.FullName())
		if final := b.finalRecord(m.ID); final != nil {
			o.damage(CheckRuns, object, fmt.Sprintf("it is %s, and history says that it has ended: %s", m.State, final.Attempt.Outcome), "remove it and hand on its slot", func() {
				b.remove(m)
				b.fill(m.Slot)
			})
			continue
		}
		id := occurrence{Identity{m.JobUID, m.Kind, m.Key, m.Shard}, m.Epoch}
		if first := seen[id]; first != nil && m.Kind != job.RunOn && m.Kind != job.RunAfterEnd {
			mend, fix := "", (func())(nil)
			if m.State != job.StateRunning {
				mend, fix = "end this one as withdrawn", func() { b.conclude(m, job.OutcomeWithdrawn, reason.Twice.Of(first.ID, first.Scheduled)) }
			}
			o.damage(CheckRuns, object, fmt.Sprintf("run %s stands for the same occurrence", first.ID), mend, fix)
			continue
		}
		seen[id] = m
		if m.State != job.StateWaiting || m.AwaitsPrevious {
			continue
		}
		if m.HoldsSlot {
			o.damage(CheckSlots, object, "it waits for a slot that it holds", "let it run", func() {
				m.State, m.Reason = job.StateReady, job.Reason{}
				b.save(m)
				b.done.Hints |= store.HintRuns
			})
		} else if j.Policy.Contends(&m.Run) && b.waits(m) && b.free(&m.Run) > 0 && !b.moves(m.Slot) {
			o.damage(CheckSlots, object, "it waits, and its slot is free", "hand the slot to the run that is due first", func() { b.fill(m.Slot) })
		}
	}
}

// unfinishedInOrder returns the unfinished runs of a job: running ones first, then by due
// time and id.
func (b *Batch) unfinishedInOrder(uid job.ID) []*member {
	list := slices.Clone(b.unfinished(uid))
	slices.SortFunc(list, func(x, y *member) int {
		if xr, yr := x.State == job.StateRunning, y.State == job.StateRunning; xr != yr {
			if xr {
				return -1
			}
			return 1
		}
		if before(&x.Run, &y.Run) {
			return -1
		}
		return 1
	})
	return list
}

// finalRecord returns the record that ended a run, or nil.
func (b *Batch) finalRecord(run job.ID) *store.Record {
	b.missing(b.facts.records[run], "the records of run", run)
	for key, r := range b.recordsOf(run) {
		if key.run == run && r.Final {
			return r
		}
	}
	return nil
}

// cursor compares the cursor of a job with its planned runs, and with the clock.
func (o *Inspect) cursor(b *Batch, j *Job) error {
	full := "job " + j.FullName()
	planned := j.Cursor
	for _, m := range b.unfinished(j.UID) {
		if m.Kind == job.RunScheduled && m.Epoch == j.Epoch && !m.removed && m.Scheduled.After(planned) {
			planned = m.Scheduled
		}
	}
	if planned.After(j.Cursor) {
		o.damage(CheckCursors, full, fmt.Sprintf("the occurrence of %s is planned and would be planned again, since the cursor is at %s", inUTC(planned), inUTC(j.Cursor)), "move the cursor there", func() {
			j.Cursor, j.Planner = planned, job.ID{}
			b.saveJob(j)
		})
	}
	if limit := b.now.Add(cursorAheadMax); j.State == job.JobActive && j.Policy.Planned && j.Cursor.After(limit) {
		o.damage(CheckCursors, full, fmt.Sprintf("nothing is planned before %s, where the cursor is", inUTC(j.Cursor)), "begin a new epoch now", func() {
			if j.Floor.After(b.now) {
				j.Floor = b.now
			}
			b.Reschedule(j, j.Document.Filled, b.calendarsOf(j.Document), reason.CursorMoved.Of())
		})
	}
	return nil
}

func inUTC(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Rewrite writes jobs again, with all data derived from their definitions.
type Rewrite struct{ Jobs []job.ID }

// Need requests the jobs.
func (o *Rewrite) Need(b *Batch, n *Need) {
	for _, uid := range o.Jobs {
		if j, _ := b.lookJob(n, uid); j != nil {
			b.lookCalendars(n, j.Document)
		}
	}
}

// Decide gives each job a new version.
func (o *Rewrite) Decide(b *Batch) error {
	for _, uid := range o.Jobs {
		if j := b.job(uid); j != nil && !j.Deleted {
			b.rewrite(j)
		}
	}
	return nil
}
