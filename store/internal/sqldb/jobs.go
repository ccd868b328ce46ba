package sqldb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// PutJob implements store.Jobs.
func (s *Store) PutJob(ctx context.Context, p store.PutJob) (out *store.Job, err error) {
	err = s.write(ctx, func(t *tx) error {
		out, err = t.putJob(&p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("put job %s: %w", p.Definition.FullName(), err)
	}
	return out, nil
}

func (t *tx) putJob(p *store.PutJob) (*store.Job, error) {
	definition := *p.Definition
	definition.UID, definition.Version, definition.Epoch, definition.Status = job.ID{}, 0, 0, nil
	filled := definition.WithDefaults(t.s.defaults)
	definition.Namespace = filled.Namespace
	policy := engine.CompilePolicy(filled)
	if len(engine.Calendars(filled)) > 0 {
		if err := t.lock(calendarsLock); err != nil {
			return nil, err
		}
	}
	if len(policy.On) > 0 {
		if err := t.lock(graphLock); err != nil {
			return nil, err
		}
	}
	if policy.Pool != "" {
		if err := t.writeRows(InsertNew, poolNames.rows(1).text(policy.Pool)); err != nil {
			return nil, err
		}
	}
	found, err := t.ids("select uid from jobs where live = ?", filled.FullName())
	if err != nil {
		return nil, err
	}
	a := about{}
	if len(found) > 0 {
		a.edits = map[job.ID]*engine.Policy{found[0]: policy}
	}
	st, err := t.step(a)
	if err != nil {
		return nil, err
	}
	var l *loadedJob
	var old engine.Stored
	uid := t.s.newID()
	if len(found) > 0 {
		if l = st.jobs[found[0]]; l == nil || l.Deleted {
			return nil, errAgain
		}
		old = engine.Stored{Job: l.Job, Definition: l.doc.definition, Filled: l.doc.filled}
	}
	calendars, err := t.calendars()
	if err != nil {
		return nil, err
	}
	j, changed, err := st.b.Put(old, p, filled, uid, engine.Names{Calendars: columns.Finder(calendars), Upstreams: t.upstreams})
	if err != nil {
		return nil, err
	}
	if !changed {
		return l.storeJob(), nil
	}
	if l == nil {
		l = &loadedJob{jobRow: &jobRow{Job: j, doc: &document{created: st.b.Now()}}, was: *j, made: true}
		st.jobs[j.UID] = l
		if err := t.writeRows(Insert, jobNames.rows(1).id(&j.UID).text(filled.Namespace).text(filled.Name)); err != nil {
			return nil, err
		}
	} else if policy.Broadcast != l.doc.policy.Broadcast {
		// Tidy looks for runs whose node is gone by it.
		if err := t.exec("update active set broadcast = ? where job = ?", toInt(policy.Broadcast), idOf(l.UID)); err != nil {
			return nil, err
		}
	}
	if err := st.redefine(l, &definition, p.Actor); err != nil {
		return nil, err
	}
	if err := st.write(); err != nil {
		return nil, err
	}
	return l.storeJob(), nil
}

var (
	jobNames  = &Table{Name: "names", Key: 1, Columns: []Column{{"uid", Blob}, {"namespace", Text}, {"name", Text}}}
	poolNames = &Table{Name: "pools", Key: 1, Columns: []Column{{"name", Text}}}
)

// upstreams returns the jobs that one follows.
func (t *tx) upstreams(full string) ([]string, error) {
	return t.texts("select f.upstream from followers f join jobs j on j.uid = f.job where j.live = ? order by f.upstream", full)
}

// redefine gives a job the definition of its present version. It is written by
// announce, but for who names what and its revision.
func (st *step) redefine(l *loadedJob, definition *job.Job, actor string) error {
	text, err := columns.EncodeJob(definition)
	if err != nil {
		return err
	}
	// What is kept is what will be read.
	d := &document{created: l.doc.created}
	if d.definition, err = columns.DecodeJob(text); err != nil {
		return err
	}
	d.definition.UID, d.definition.Version = l.UID, l.Version
	d.fill(st.s.defaults)
	l.doc, l.said, l.actor = d, text, actor

	if err := st.writeRows(Upsert, revisions.rows(1).id(&l.UID).int(l.Version).time(st.b.Now()).text(actor).text(string(text))); err != nil {
		return err
	}
	if l.Version > int64(st.s.revisions) {
		if err := st.exec("delete from revisions where job = ? and version <= ?", idOf(l.UID), l.Version-int64(st.s.revisions)); err != nil {
			return err
		}
	}
	upstreams := map[string]bool{}
	for _, up := range d.policy.On {
		upstreams[up.Job] = true
	}
	if err := st.link(followerNames, l, slices.Sorted(maps.Keys(upstreams))); err != nil {
		return err
	}
	if err := st.link(calendarNames, l, engine.Calendars(d.filled)); err != nil {
		return err
	}
	return st.time(l)
}

var revisions = &Table{Name: "revisions", Key: 2, Columns: []Column{
	{"job", Blob}, {"version", Int}, {"changed", Int}, {"actor", Text}, {"definition", Text},
}}

// The two tables of who names what.
var (
	followerNames = &Table{Name: "followers", Key: 2, Columns: []Column{{"upstream", Text}, {"job", Blob}}}
	calendarNames = &Table{Name: "calendar_users", Key: 2, Columns: []Column{{"calendar", Text}, {"job", Blob}}}
)

// link replaces the names that a job has in one of the two tables.
func (st *step) link(table *Table, l *loadedJob, names []string) error {
	if !l.made {
		if err := st.exec("delete from "+table.Name+" where job = ?", idOf(l.UID)); err != nil {
			return err
		}
	}
	b := table.rows(len(names))
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		b.text(name).id(&l.UID)
	}
	return st.writeRows(Insert, b)
}

// time makes the text that decides when a job is due.
func (st *step) time(l *loadedJob) error {
	calendars, err := st.calendars()
	if err != nil {
		return err
	}
	l.timing, err = engine.TimingText(l.doc.filled, columns.Finder(calendars))
	return err
}

// jobRows is all that a new version of a job writes.
var jobRows = &Table{Name: "jobs", Key: 1, Columns: []Column{
	{"uid", Blob}, {"seq", Int}, {"version", Int}, {"part", Int}, {"live", Text}, {"boot", Int}, {"definition", Text}, {"timing", Text},
	{"created", Int}, {"changed", Int}, {"deleted_at", Int}, {"paused_at", Int}, {"paused_until", Int}, {"paused_by", Text}, {"pause_reason", Text},
	{"remove_at", Int}, {"keep_runs", Int}, {"keep_for", Int}, {"keep_output", Int},
}}

// announcedJobs is what of it an epoch writes.
var announcedJobs = &Table{Name: "jobs", Key: 1, Columns: []Column{
	{"uid", Blob}, {"seq", Int}, {"version", Int},
	{"changed", Int}, {"deleted_at", Int}, {"paused_at", Int}, {"paused_until", Int}, {"paused_by", Text}, {"pause_reason", Text},
	{"remove_at", Int}, {"keep_runs", Int}, {"keep_for", Int}, {"keep_output", Int},
}}

var timedJobs = &Table{Name: "jobs", Key: 1, Columns: []Column{{"uid", Blob}, {"timing", Text}}}

// announce writes what rarely changes about a job, with its number in the feed of
// changes.
func (st *step) announce(l *loadedJob, seq int64) error {
	now := st.b.Now()
	d := &document{
		seq: seq, definition: l.doc.definition, filled: l.doc.filled, policy: l.doc.policy, created: l.doc.created, changed: now,
		pausedAt: l.PausedAt, pausedUntil: l.PausedUntil, pausedBy: l.PausedBy, pauseReason: l.PauseReason,
	}
	if d.definition.Version != l.Version { // it was deleted
		definition := *d.definition
		definition.Version = l.Version
		d.definition = &definition
		d.fill(st.s.defaults)
	}
	l.seq, l.doc = seq, d
	st.hint |= store.HintJobs
	var deleted int64
	if l.Deleted {
		deleted = columns.Nanos(now)
	}
	keep := d.filled.Policy.Keep
	if keep == nil {
		keep = &job.Keep{}
	}
	rarely := func(b *Batch) *Batch {
		b.time(now).int(deleted).time(l.PausedAt).time(l.PausedUntil).text(l.PausedBy).text(l.PauseReason)
		return b.time(l.removeAt()).int(int64(keep.Runs)).int(int64(keep.For)).int(int64(keep.OutputFor))
	}
	if l.said != nil {
		b := jobRows.rows(1).id(&l.UID).int(seq).int(l.Version).int(int64(job.Partition(l.UID))).text(d.filled.FullName())
		b.bool(d.filled.Schedule.Boot).text(string(l.said)).text(l.timing).time(d.created)
		if l.made {
			return st.writeRows(Insert, rarely(b))
		}
		return st.writeRows(Update, rarely(b))
	}
	b := announcedJobs.rows(1).id(&l.UID).int(seq).int(l.Version)
	if err := st.writeRows(Update, rarely(b)); err != nil || l.timing == "" {
		return err
	}
	return st.writeRows(Update, timedJobs.rows(1).id(&l.UID).text(l.timing))
}

// Job implements store.Jobs.
func (s *Store) Job(ctx context.Context, namespace, name string) (*store.Job, error) {
	full := (&job.Job{Namespace: namespace, Name: name}).FullName()
	j, err := s.oneJob(ctx, "select "+stateColumns+" from jobs j join job_state s on s.uid = j.uid where j.live = ?", full)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", full, err)
	}
	return j, nil
}

// JobByUID implements store.Jobs.
func (s *Store) JobByUID(ctx context.Context, uid job.ID) (*store.Job, error) {
	j, err := s.oneJob(ctx, "select "+stateColumns+" from job_state s where s.uid = ?", idOf(uid))
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", uid, err)
	}
	return j, nil
}

func (s *Store) oneJob(ctx context.Context, query string, arg any) (*store.Job, error) {
	var rows []*jobRow
	err := s.read(ctx, func(t *tx) (err error) {
		rows, err = t.jobRows(query, arg)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, store.ErrNotFound
	}
	return rows[0].storeJob(), nil
}

// listChunk is the most jobs, and records, that are read at once for a list: of a
// query that selects many no more is read than it returns.
const listChunk = 500

// ListJobs implements store.Jobs.
func (s *Store) ListJobs(ctx context.Context, query store.JobQuery) (list []*store.Job, next string, err error) {
	err = s.read(ctx, func(t *tx) error {
		var found []*jobRow
		found, next, err = t.listJobs(&query)
		list = nil
		for _, r := range found {
			list = append(list, r.storeJob())
		}
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list jobs: %w", err)
	}
	return list, next, nil
}

func (t *tx) listJobs(query *store.JobQuery) (found []*jobRow, next string, err error) {
	from, to := query.After, "\U0010ffff"
	if query.Namespace != "" {
		// '0' is the letter behind '/'.
		from, to = max(from, query.Namespace+"/"), query.Namespace+"0"
	}
	text := "select j.live, " + stateColumns + " from jobs j join job_state s on s.uid = j.uid where j.live > ? and j.live < ?"
	if query.Boot {
		text += " and j.boot = 1" // has an index: each node asks when it starts
	}
	text += " order by j.live limit ?"
	looked := 0
	for {
		limit := min(listChunk, store.JobLookMax+1-looked)
		var names []string
		var rows []*jobRow
		seqs := map[job.ID]int64{}
		q := t.query(text, from, to, int64(limit))
		for q.Next() {
			names = append(names, q.Text())
			r := scanState(q)
			rows, seqs[r.UID] = append(rows, r), r.seq
		}
		if err := q.Err(); err != nil {
			return nil, "", err
		}
		docs, err := t.documents(seqs)
		if err != nil {
			return nil, "", err
		}
		for i, r := range rows {
			if len(found) == query.Limit || looked == store.JobLookMax {
				return found, from, nil
			}
			looked, from = looked+1, names[i]
			if r.define(docs[r.UID]); (query.State == "" || r.State == query.State) && query.Matches(r.doc.definition) {
				found = append(found, r)
			}
		}
		if len(rows) < limit {
			return found, "", nil
		}
	}
}

// DeleteJob implements store.Jobs.
func (s *Store) DeleteJob(ctx context.Context, d store.DeleteJob) error {
	err := s.write(ctx, func(t *tx) error {
		st, err := t.step(about{jobs: []job.ID{d.UID}, whole: []job.ID{d.UID}})
		if err != nil {
			return err
		}
		l := st.jobs[d.UID]
		if l == nil {
			return store.ErrNotFound
		}
		if err := st.b.Delete(l.Job, d.IfVersion, d.Actor); err != nil || l.was.Deleted {
			return err
		}
		if err := st.unlink(l); err != nil {
			return err
		}
		return st.write()
	})
	return wrapped(err, "delete job %s", d.UID)
}

// unlink gives the name of a job free, and forgets what it names.
func (st *step) unlink(l *loadedJob) error {
	if err := st.exec("update jobs set live = null where uid = ?", idOf(l.UID)); err != nil {
		return err
	}
	if err := st.link(followerNames, l, nil); err != nil {
		return err
	}
	return st.link(calendarNames, l, nil)
}

// Revisions implements store.Jobs.
func (s *Store) Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) (list []store.Revision, err error) {
	if beforeVersion <= 0 {
		beforeVersion = 1 << 62
	}
	err = s.read(ctx, func(t *tx) error {
		list = nil
		q := t.query("select version, changed, actor, definition from revisions where job = ? and version < ? order by version desc limit ?",
			idOf(uid), beforeVersion, int64(limit))
		for q.Next() {
			r := store.Revision{Version: q.Int(), Changed: q.time(), Actor: q.Text()}
			var err error
			if r.Definition, err = columns.DecodeJob(q.View()); err != nil {
				q.Close()
				return err
			}
			r.Definition.UID, r.Definition.Version = uid, r.Version
			list = append(list, r)
		}
		return q.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("revisions of job %s: %w", uid, err)
	}
	return list, nil
}

// JobsChanged implements store.Jobs.
func (s *Store) JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) (changed []store.PlannedJob, next int64, err error) {
	var parts []int64
	for n := range job.Partitions {
		if partitions.Has(uint8(n)) {
			parts = append(parts, int64(n))
		}
	}
	err = s.read(ctx, func(t *tx) error {
		changed, next = nil, since
		last, err := t.number("select value from counters where name = 'change'")
		if err != nil {
			return err
		}
		q := t.query(`select j.seq, s.uid, s.epoch, s.version, s.cursor_at, s.planned, s.state, s.deleted, j.timing
			from jobs j join job_state s on s.uid = j.uid where j.seq > ? and j.part in (?*) order by j.seq limit ?`, since, parts, int64(limit))
		texts := map[string]string{} // jobs with the same share it
		for q.Next() {
			seq := q.Int()
			p := store.PlannedJob{UID: q.id(), Epoch: q.Int(), Version: q.Int(), Cursor: q.time(), Planned: int(q.Int())}
			state := columns.JobStates.Value(q.Int())
			p.Deleted = q.bool()
			p.Active = state == job.JobActive && !p.Deleted
			view := q.View()
			text, ok := texts[string(view)]
			if !ok {
				text = string(view)
				texts[text] = text
			}
			p.Timing = text
			changed, next = append(changed, p), seq
		}
		if len(changed) < limit {
			next = max(next, last) // in the others there is nothing
		}
		return q.Err()
	})
	if err != nil {
		return nil, since, fmt.Errorf("changed jobs: %w", err)
	}
	return changed, next, nil
}

// Summary implements store.Jobs.
func (s *Store) Summary(ctx context.Context) (sum [job.Partitions]store.PartitionSummary, err error) {
	err = s.read(ctx, func(t *tx) error {
		q := t.query("select part, count(*), sum(version) from jobs where deleted_at = 0 group by part")
		for q.Next() {
			sum[uint8(q.Int())] = store.PartitionSummary{Jobs: int(q.Int()), Versions: q.Int()}
		}
		return q.Err()
	})
	return sum, wrapped(err, "summary of the jobs")
}

// gone is for calls that remove something: if it is not there any more because
// an earlier try was committed, that is well.
func (t *tx) gone(err error) error {
	if t.again && errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
