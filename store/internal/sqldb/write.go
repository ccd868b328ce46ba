package sqldb

import (
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// Write implements ledger.Tx.
func (st *step) Write(c *engine.Changes) error {
	st.hint = st.hint.With(c.Hints)
	for _, part := range [...]func(*engine.Changes) error{
		st.writeRuns, st.writeRecords, st.writeKeys, st.writeDocuments, st.writeMembers, st.writeHandovers, st.writeJobs,
	} {
		if err := part(c); err != nil {
			return err
		}
	}
	if !st.s.caches() {
		st.s.dues.wrote(c)
		return nil
	}
	return st.cache(c)
}

func (st *step) writeRuns(c *engine.Changes) error {
	removed := st.rows(removedRuns, len(c.Removed))
	for _, r := range c.Removed {
		removed.id(&r.ID)
	}
	saved, moved := st.rows(savedRuns, len(c.Saved)), st.rows(movedRuns, 0)
	for _, r := range c.Saved {
		if was, ok := st.places[r.ID]; ok && was == placeOf(r) {
			saved.id(&r.ID)
			saved.changeable(r)
		} else {
			moved.id(&r.ID)
			moved.changeable(r)
			moved.place(r)
		}
	}
	newRows := st.rows(newRuns, len(c.Made))
	for _, r := range c.Made {
		if err := newRows.insertRun(r, st.jobs[r.JobUID].isBroadcast()); err != nil {
			return err
		}
	}
	if err := st.writeRows(Delete, removed); err != nil {
		return err
	}
	for _, b := range []*Batch{saved, moved} {
		if err := st.writeRows(Update, b); err != nil {
			return err
		}
	}
	for _, r := range c.Given {
		params, err := columns.EncodeParams(r.Params)
		if err != nil {
			return err
		}
		if err := st.exec("update active set params = ? where id = ?", string(params), idOf(r.ID)); err != nil {
			return err
		}
	}
	return st.writeRows(Insert, newRows)
}

func (r jobRow) isBroadcast() bool { return r.Job != nil && r.Policy.Broadcast }

func (st *step) writeRecords(c *engine.Changes) error {
	for _, r := range c.Replaced {
		if err := st.uncount(r.Run.ID, r.Attempt.Number); err != nil {
			return err
		}
		if err := st.exec("delete from history where run = ? and attempt = ?", idOf(r.Run.ID), int64(r.Attempt.Number)); err != nil {
			return err
		}
	}
	records := append(c.Records, c.Replaced...)
	if err := st.insertRecords(records); err != nil {
		return err
	}
	fed := c.Records
	for _, r := range c.Replaced {
		if r.Replaces { // other replacements change words only
			fed = append(slices.Clip(fed), r)
		}
	}
	if err := st.feed(fed); err != nil {
		return err
	}
	return st.appendOutput(c.Output)
}

var requestKeys = &Table{Name: "request_keys", Key: 4, Columns: []Column{
	{"job", Blob}, {"kind", Int}, {"request", Text}, {"shard", Int}, {"run", Blob}, {"expires", Int},
}}

func (st *step) writeKeys(c *engine.Changes) error {
	keys := st.rows(requestKeys, len(c.Keys))
	for i := range c.Keys {
		k := &c.Keys[i]
		keys.id(&k.Job).int(columns.Kinds.Of(k.Kind)).text(k.Key).int(int64(k.Shard)).id(&k.Run).time(k.Expires)
	}
	return st.writeRows(Upsert, keys)
}

func (st *step) writeMembers(c *engine.Changes) error {
	if err := st.writeSessions(c.Sessions); err != nil {
		return err
	}
	if err := st.writeDrains(c.Drains); err != nil {
		return err
	}
	if len(c.Reaped) > 0 {
		if err := st.exec("update sessions set reaped = 1 where id in (?*)", set(c.Reaped)); err != nil {
			return err
		}
	}
	if len(c.Ended) > 0 {
		if err := st.exec("delete from sessions where id in (?*)", set(c.Ended)); err != nil {
			return err
		}
	}
	if !st.s.db.Alone() {
		st.handsOn = c.HandOn
		return nil
	}
	for _, session := range c.HandOn {
		if err := st.exec("update active set session = ? where session = ? and state = ?", none, idOf(session), columns.States.Of(job.StateReady)); err != nil {
			return err
		}
	}
	return nil
}

// writeJobs writes the state of jobs and the audit. Changes for planners or users go into
// the feed of changes; a version with a definition gets its revision.
func (st *step) writeJobs(c *engine.Changes) error {
	var news []*engine.Job
	for _, j := range c.Jobs {
		if j.News() || st.k.refits {
			news = append(news, j)
		}
	}
	change, entry, err := st.nextNumbers(len(news), len(c.Audit))
	if err != nil {
		return err
	}
	numbers := make(map[*engine.Job]int64, len(news))
	for i, j := range news {
		numbers[j] = change + int64(i)
	}
	if len(news) > 0 {
		for _, j := range news {
			st.hint = st.hint.With(store.HintJobs | store.HintAbout(j.UID))
		}
		if err := st.writeNews(news, numbers); err != nil {
			return err
		}
	}
	newRows, saved := st.rows(states, 0), st.rows(states, len(c.Jobs))
	for _, j := range c.Jobs {
		seq, isNews := numbers[j]
		if !isNews {
			seq = st.jobs[j.UID].seq
			if removeAt := j.RemoveAt(); !removeAt.Equal(st.jobs[j.UID].was.removeAt) {
				if err := st.exec("update jobs set remove_at = ? where uid = ?", columns.Nanos(removeAt), idOf(j.UID)); err != nil {
					return err
				}
			}
		}
		if j.Made() {
			newRows.state(j, seq)
		} else {
			saved.state(j, seq)
		}
		if st.s.db.Alone() && !j.Made() {
			st.s.hot.keepJob(jobRow{Job: j, seq: seq}, jobBefore{j.Document, j.RemoveAt()})
		}
	}
	if err := st.writeRows(Insert, newRows); err != nil {
		return err
	}
	if err := st.writeRows(Update, saved); err != nil {
		return err
	}
	return st.insertAudit(c.Audit, entry)
}

// states has the columns of a job that each step about it writes.
var states = &Table{Name: "job_state", Key: 1, Columns: []Column{
	{"uid", Blob}, {"seq", Int}, {"version", Int}, {"epoch", Int}, {"state", Int}, {"deleted", Int}, {"cursor_at", Int}, {"floor_at", Int},
	{"planner", Blob}, {"planned", Int}, {"failures", Int}, {"previous", Int}, {"previous_ok", Int}, {"previous_failed", Text}, {"completed", Int},
	{"epoch_why", Text},
}}

func (b *Batch) state(j *engine.Job, seq int64) {
	b.id(&j.UID).int(seq).int(j.Version).int(j.Epoch).int(columns.JobStates.Of(j.State)).bool(j.Deleted).time(j.Cursor).time(j.Floor)
	b.id(&j.Planner).int(int64(j.Planned)).int(int64(j.Failures)).time(j.Previous).bool(j.PreviousOK).text(string(j.PreviousFailed)).time(j.Completed)
	b.text(j.EpochWhy.Stored())
}

// jobRows has all columns that a new job writes.
var jobRows = &Table{Name: "jobs", Key: 1, Columns: []Column{
	{"uid", Blob}, {"live", Text}, {"part", Int}, {"created", Int}, {"boot", Int}, {"definition", Text},
	{"seq", Int}, {"version", Int}, {"changed", Int}, {"deleted_at", Int}, {"paused_at", Int}, {"paused_until", Int}, {"paused_by", Text}, {"pause_reason", Text},
	{"remove_at", Int}, {"keep_runs", Int}, {"keep_for", Int}, {"keep_output", Int}, {"timing", Text},
}}

// revisedJobs has the columns that a new version writes, and announcedJobs the columns that an
// epoch writes.
var (
	revisedJobs   = &Table{Name: "jobs", Key: 1, Columns: slices.Concat(jobRows.Columns[:1], jobRows.Columns[4:])}
	announcedJobs = &Table{Name: "jobs", Key: 1, Columns: slices.Concat(jobRows.Columns[:1], jobRows.Columns[6:])}
)

var (
	jobNames  = &Table{Name: "names", Key: 1, Columns: []Column{{"uid", Blob}, {"namespace", Text}, {"name", Text}}}
	revisions = &Table{Name: "revisions", Key: 2, Columns: []Column{
		{"job", Blob}, {"version", Int}, {"changed", Int}, {"actor", Text}, {"definition", Text},
	}}
	// The two tables of who names what.
	followerNames = &Table{Name: "followers", Key: 2, Columns: []Column{{"upstream", Text}, {"job", Blob}}}
	calendarNames = &Table{Name: "calendar_users", Key: 2, Columns: []Column{{"calendar", Text}, {"job", Blob}}}
)

// writeNews writes what rarely changes about jobs, with their numbers in the feed of changes.
func (st *step) writeNews(list []*engine.Job, numbers map[*engine.Job]int64) error {
	n := len(list)
	named, newRows, revised, announced := st.rows(jobNames, n), st.rows(jobRows, n), st.rows(revisedJobs, n), st.rows(announcedJobs, n)
	versions, followers, users := st.rows(revisions, n), st.rows(followerNames, 0), st.rows(calendarNames, 0)
	var unnamed []job.ID // jobs that lose their references
	pools := map[string]bool{}
	for _, j := range list {
		seq, d := numbers[j], j.Document
		if !j.Made() { // most new jobs are not due soon
			st.remember(j.UID, definitionOf(j, seq))
		}
		boot, text := d.Filled.Schedule.Boot, string(d.Text)
		was := st.jobs[j.UID].was.document
		switch {
		case j.Made():
			named.id(&j.UID).text(j.Namespace).text(j.Name)
			newRows.id(&j.UID).text(j.FullName()).int(int64(job.Partition(j.UID))).time(j.Created).bool(boot).text(text)
			newRows.announced(j, seq)
		case j.Revised():
			revised.id(&j.UID).bool(boot).text(text)
			revised.announced(j, seq)
		default:
			announced.id(&j.UID)
			announced.announced(j, seq)
		}
		if j.Deleted {
			if err := st.exec("update jobs set live = null where uid = ?", idOf(j.UID)); err != nil {
				return err
			}
			unnamed = append(unnamed, j.UID)
		}
		if j.Restored() {
			if err := st.exec("update jobs set live = ? where uid = ?", j.FullName(), idOf(j.UID)); err != nil {
				return err
			}
		}
		if !j.Revised() {
			continue
		}
		versions.id(&j.UID).int(j.Version).time(j.Changed).text(d.Actor).text(text)
		if old := j.Version - int64(st.s.revisions); old > 0 {
			if err := st.exec("delete from revisions where job = ? and version <= ?", idOf(j.UID), old); err != nil {
				return err
			}
		}
		if was != nil && was.Policy.Broadcast != d.Policy.Broadcast {
			// Tidy finds runs without a node by it.
			if err := st.exec("update active set broadcast = ? where job = ?", toInt(d.Policy.Broadcast), idOf(j.UID)); err != nil {
				return err
			}
		}
		if was != nil && len(was.Calendars)+len(was.Policy.On) > 0 {
			unnamed = append(unnamed, j.UID)
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(engine.Follows(d.Filled)))) {
			followers.text(name).id(&j.UID)
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(d.Calendars))) {
			users.text(name).id(&j.UID)
		}
		if d.Policy.Pool != "" {
			pools[d.Policy.Pool] = true
		}
	}
	if len(unnamed) > 0 {
		for _, table := range []*Table{followerNames, calendarNames} {
			if err := st.exec("delete from "+table.Name+" where job in (?*)", set(unnamed)); err != nil {
				return err
			}
		}
	}
	locked := st.rows(poolNames, len(pools))
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		locked.text(name)
	}
	for _, w := range []struct {
		op Op
		b  *Batch
	}{
		{InsertNew, named}, {Insert, newRows}, {Update, revised}, {Update, announced}, {Upsert, versions}, {Insert, followers}, {Insert, users}, {InsertNew, locked},
	} {
		if err := st.writeRows(w.op, w.b); err != nil {
			return err
		}
	}
	return nil
}

// announced adds the last columns of the three tables.
func (b *Batch) announced(j *engine.Job, seq int64) {
	var deleted int64
	until := columns.Nanos(j.PausedUntil)
	if j.Deleted {
		deleted, until = columns.Nanos(j.Changed), -until // then Tidy does not return it again
	}
	keep := keepOf(j.Document)
	b.int(seq).int(j.Version).time(j.Changed).int(deleted).time(j.PausedAt).int(until).text(j.PausedBy).text(j.PauseReason.Stored())
	b.time(j.RemoveAt()).int(int64(keep.Runs)).int(int64(keep.For)).int(int64(keep.OutputFor)).text(j.Document.Timing)
}

// keepOf returns a job's own settings for how long its history is kept.
func keepOf(d *engine.Document) job.Keep {
	if keep := d.Filled.Policy.Keep; keep != nil {
		return *keep
	}
	return job.Keep{}
}

// nextNumbers reserves numbers in the feed of changes and in the audit and returns the
// first of each. The counters stay locked until the commit, so that numbers become visible
// in order. Numbers of changes also follow the clock: a database that lost its last moments
// in a failover does not assign them twice, and a reader that has seen lost numbers reads
// the new ones instead.
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
