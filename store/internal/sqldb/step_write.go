package sqldb

import (
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// write writes what the decisions have changed.
func (st *step) write() error {
	c := st.b.Changes()
	// What was decided by a guess is known to be right when the run is written.
	if st.numberGuessed(c.Removed)+st.numberGuessed(c.Saved) < len(st.guessed) {
		return errAgain
	}
	if err := st.writeRuns(Delete, removedRuns, c.Removed, func(b *Batch, r *store.Run) { b.id(&r.ID) }); err != nil {
		return err
	}
	if err := st.writeRuns(Update, savedRuns, c.Saved, (*Batch).saved); err != nil {
		return err
	}
	made := newRuns.rows(len(c.Made))
	for _, r := range c.Made {
		l := st.jobs[r.JobUID]
		if err := made.made(r, l != nil && l.Policy.Broadcast); err != nil {
			return err
		}
	}
	if err := st.writeRows(Insert, made); err != nil {
		return err
	}
	st.ended.Count(c.Records)
	for _, r := range c.Replaced {
		if err := st.exec("delete from history where run = ? and attempt = ?", idOf(r.Run.ID), int64(r.Attempt.Number)); err != nil {
			return err
		}
	}
	if err := st.insertRecords(append(c.Records, c.Replaced...)); err != nil {
		return err
	}
	keys := requestKeys.rows(len(c.Keys))
	for i := range c.Keys {
		k := &c.Keys[i]
		keys.id(&k.Job).int(columns.Kinds.Of(k.Kind)).text(k.Key).int(int64(k.Shard)).id(&k.Run).time(k.Expires)
	}
	if err := st.writeRows(Upsert, keys); err != nil {
		return err
	}
	st.learn(c.Made, c.Saved)
	st.s.known.forget(c.Removed)
	if len(c.Reaped) > 0 {
		if err := st.exec("update sessions set reaped = 1 where id in (?*)", set(c.Reaped)); err != nil {
			return err
		}
	}
	st.hint |= c.Hints
	if st.s.feed.Wanted() {
		st.events = append(st.events, st.b.Events(&c)...)
	}
	return st.writeFeeds(c.Jobs, c.Audit)
}

// numberGuessed returns how many of some runs were not read.
func (st *step) numberGuessed(runs []*store.Run) (n int) {
	for _, r := range runs {
		if _, guessed := st.guessed[r.ID]; guessed {
			n++
		}
	}
	return n
}

// writeRuns writes runs that are there: those that were not read must still be as this
// process has written them.
func (st *step) writeRuns(op Op, t *Table, runs []*store.Run, add func(*Batch, *store.Run)) error {
	n := st.numberGuessed(runs)
	read, guessed := t.rows(len(runs)-n), t.rows(n)
	for _, r := range runs {
		if w, ok := st.guessed[r.ID]; ok {
			add(guessed, r)
			guessed.Stamps = append(guessed.Stamps, w.number)
		} else {
			add(read, r)
		}
	}
	if err := st.writeRows(op, read); err != nil {
		return err
	}
	return st.writeRows(op, guessed)
}

var requestKeys = &Table{Name: "request_keys", Key: 4, Columns: []Column{
	{"job", Blob}, {"kind", Int}, {"request", Text}, {"shard", Int}, {"run", Blob}, {"expires", Int},
}}

// writeFeeds writes the state of jobs and what was audited. What planners or users
// must be told goes into the feed of changes; a version that a decision has made,
// a pause or the end of one, gets its definition and revision.
func (st *step) writeFeeds(jobs []*engine.Job, audit []store.AuditRecord) error {
	announced := st.touched
	var changed []redefined // by the decisions
	for _, l := range st.touched {
		jobs = append(jobs, l.Job)
	}
	for _, j := range jobs {
		l := st.jobs[j.UID]
		if l == nil || l.Job != j {
			return fmt.Errorf("job %s was changed and is not locked", j.UID)
		}
		if l.Version != l.was.Version && l.said == nil && !l.Deleted {
			said := *l.doc.definition
			said.Paused = l.State == job.JobPaused
			given, err := st.s.prepareJob(&said)
			if err != nil {
				return err
			}
			l.said = given.text
			changed = append(changed, redefined{l, given, engine.System})
		}
		if l.isNews() && !slices.Contains(announced, l) {
			announced = append(announced, l)
		}
	}
	if len(changed) > 0 {
		calendars, err := st.calendars()
		if err != nil {
			return err
		}
		if err := st.redefine(changed, calendars); err != nil {
			return err
		}
	}
	change, entry, err := st.nextNumbers(len(announced), len(audit))
	if err != nil {
		return err
	}
	if err := st.announce(announced, change); err != nil {
		return err
	}
	saved := states.rows(len(jobs))
	for _, j := range jobs {
		l := st.jobs[j.UID]
		saved.state(l.jobRow)
		if l.PreviousFailed != l.was.PreviousFailed {
			if err := st.exec("update job_state set previous_failed = ? where uid = ?", string(l.PreviousFailed), idOf(l.UID)); err != nil {
				return err
			}
		}
		if l.Completed.Equal(l.was.Completed) || l.isNews() {
			continue
		}
		if err := st.exec("update jobs set remove_at = ? where uid = ?", columns.Nanos(l.RemoveAt()), idOf(l.UID)); err != nil {
			return err
		}
	}
	op := Update
	if slices.ContainsFunc(announced, func(l *loadedJob) bool { return l.made }) {
		op = Upsert
	}
	if err := st.writeRows(op, saved); err != nil {
		return err
	}
	return st.insertAudit(audit, entry)
}

// isNews tells whether a step has changed what planners or users must be told.
func (l *loadedJob) isNews() bool {
	return l.made || l.said != nil || l.timing != "" ||
		l.Version != l.was.Version || l.Epoch != l.was.Epoch || l.State != l.was.State || l.Deleted != l.was.Deleted
}

// nextNumbers returns the first of so many numbers in the feed of changes and in
// the audit. The counters stay locked until the commit, so that numbers become
// visible in their order. Those of changes go by the clock as well: a database that has
// lost its last moments in a failover does not give them twice, and who knows what was
// lost by its number reads what is there instead.
func (t *tx) nextNumbers(changes, entries int) (change, entry int64, err error) {
	if changes+entries == 0 {
		return 0, 0, nil
	}
	names := []string{"audit", "change"}
	if changes == 0 {
		names = names[:1]
	} else if entries == 0 {
		names = names[1:]
	}
	q := t.query("select name, value from counters where name in (?*) order by name for update", names)
	for q.Next() {
		if name, value := q.Text(), q.Int(); name == "audit" {
			entry = value + 1
		} else {
			change = value + 1
		}
	}
	if err := q.Err(); err != nil {
		return 0, 0, err
	}
	now, err := t.now()
	if err != nil {
		return 0, 0, err
	}
	change = max(change, now.UnixMicro())
	if entries > 0 {
		err = t.exec("update counters set value = ? where name = 'audit'", entry+int64(entries)-1)
	}
	if err == nil && changes > 0 {
		err = t.exec("update counters set value = ? where name = 'change'", change+int64(changes)-1)
	}
	return change, entry, err
}
