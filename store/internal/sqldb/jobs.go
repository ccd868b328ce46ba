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
func (s *Store) PutJob(ctx context.Context, p store.PutJob) (*store.Job, error) {
	list, err := s.PutJobs(ctx, []store.PutJob{p})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// PutJobs implements store.Jobs.
func (s *Store) PutJobs(ctx context.Context, list []store.PutJob) (out []*store.Job, err error) {
	if len(list) > store.PutMax {
		return nil, store.ErrTooMany
	}
	given := make([]definition, len(list))
	for i := range list {
		if given[i], err = s.prepareJob(list[i].Definition); err != nil {
			return nil, &store.ItemError{Item: i, Err: fmt.Errorf("put job %s: %w", list[i].Definition.FullName(), err)}
		}
	}
	err = s.write(ctx, func(t *tx) error {
		out, err = t.putJobs(list, given)
		return err
	})
	var refused *store.ItemError
	switch {
	case errors.As(err, &refused):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("put jobs: %w", err)
	}
	return out, nil
}

func (t *tx) putJobs(list []store.PutJob, given []definition) ([]*store.Job, error) {
	if err := t.lockNamed(given); err != nil {
		return nil, err
	}
	names := make([]string, len(given))
	for i := range given {
		names[i] = given[i].filled.FullName()
	}
	found := make(map[string]job.ID, len(names))
	q := t.query("select live, uid from jobs where live in (?*)", names)
	for q.Next() {
		name := q.Text()
		found[name] = q.id()
	}
	if err := q.Err(); err != nil {
		return nil, err
	}
	a := about{edits: make(map[job.ID]*engine.Policy, len(found))}
	for i, name := range names {
		if uid, ok := found[name]; ok {
			a.edits[uid] = given[i].policy
		}
	}
	st, err := t.step(a)
	if err != nil {
		return nil, err
	}
	jobs := make([]*loadedJob, len(list))
	items := make([]engine.PutItem, len(list))
	for i, name := range names {
		items[i] = engine.PutItem{Put: &list[i], Filled: given[i].filled, Policy: given[i].policy}
		uid, ok := found[name]
		if !ok {
			items[i].UID = t.s.newID()
			continue
		}
		l := st.jobs[uid]
		if l == nil || l.Deleted {
			return nil, errAgain
		}
		jobs[i], items[i].Old = l, engine.Stored{Job: l.Job, Definition: l.doc.definition, Filled: l.doc.filled}
	}
	calendars, err := t.calendars()
	if err != nil {
		return nil, err
	}
	if err := st.b.Put(items, engine.Names{Calendars: columns.Finder(calendars), Upstreams: t.upstreams}); err != nil {
		return nil, err
	}
	made := jobNames.rows(len(items))
	var changed []redefined
	for i := range items {
		j, l := items[i].Job, jobs[i]
		if !items[i].Changed {
			continue
		}
		if l == nil {
			l = &loadedJob{jobRow: &jobRow{Job: j, doc: &document{created: st.b.Now()}}, was: *j, made: true}
			jobs[i], st.jobs[j.UID] = l, l
			made.id(&j.UID).text(j.Namespace).text(j.Name)
		} else if is := given[i].policy.Broadcast; is != l.doc.policy.Broadcast {
			// Tidy looks for runs whose node is gone by it.
			if err := t.exec("update active set broadcast = ? where job = ?", toInt(is), idOf(l.UID)); err != nil {
				return nil, err
			}
		}
		changed = append(changed, redefined{l, given[i], list[i].Actor})
	}
	if err := t.writeRows(Insert, made); err != nil {
		return nil, err
	}
	if err := st.redefine(changed, calendars); err != nil {
		return nil, err
	}
	if err := st.write(); err != nil {
		return nil, err
	}
	out := make([]*store.Job, len(jobs))
	for i, l := range jobs {
		out[i] = l.storeJob()
	}
	return out, nil
}

// lockNamed takes the locks of what jobs name, in their order, and makes the pools
// that there are none of.
func (t *tx) lockNamed(given []definition) error {
	named, follows, pools := false, false, map[string]bool{}
	for i := range given {
		named = named || len(engine.Calendars(given[i].filled)) > 0
		follows = follows || len(given[i].policy.On) > 0
		if pool := given[i].policy.Pool; pool != "" {
			pools[pool] = true
		}
	}
	if named {
		if err := t.lock(calendarsLock); err != nil {
			return err
		}
	}
	if follows {
		if err := t.lock(graphLock); err != nil {
			return err
		}
	}
	b := poolNames.rows(len(pools))
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		b.text(name)
	}
	return t.writeRows(InsertNew, b)
}

var (
	jobNames  = &Table{Name: "names", Key: 1, Columns: []Column{{"uid", Blob}, {"namespace", Text}, {"name", Text}}}
	poolNames = &Table{Name: "pools", Key: 1, Columns: []Column{{"name", Text}}}
)

// upstreams returns the jobs that one follows.
func (t *tx) upstreams(full string) ([]string, error) {
	return t.texts("select f.upstream from followers f join jobs j on j.uid = f.job where j.live = ? order by f.upstream", full)
}

// definition is one as it is to be written. What is kept is what will be read.
type definition struct {
	*document
	text []byte
}

// prepareJob makes what is written of a definition.
func (s *Store) prepareJob(given *job.Job) (definition, error) {
	text, read, err := columns.EncodeJob(given)
	if err != nil {
		return definition{}, err
	}
	d := definition{&document{definition: read}, text}
	d.fill(s.defaults)
	return d, nil
}

// redefined is a job with the definition of its present version, and by whom it is.
type redefined struct {
	*loadedJob
	given definition
	by    string
}

// redefine gives jobs the definitions of their present versions. They are written by
// announce, but for who names what and the revisions.
func (st *step) redefine(list []redefined, calendars map[string]*job.Calendar) error {
	written := revisions.rows(len(list))
	var old []job.ID // whose names go
	followers, users := followerNames.rows(0), calendarNames.rows(0)
	for i := range list {
		l, given := list[i].loadedJob, &list[i].given
		// The transaction may be made again, with other versions.
		d := &document{created: l.doc.created, policy: given.policy}
		said, filled := *given.definition, *given.filled
		said.UID, said.Version = l.UID, l.Version
		filled.UID, filled.Version = l.UID, l.Version
		d.definition, d.filled = &said, &filled
		l.doc, l.said = d, given.text
		written.id(&l.UID).int(l.Version).time(st.b.Now()).text(list[i].by).text(string(l.said))
		if !l.made {
			old = append(old, l.UID)
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
		for _, name := range slices.Sorted(maps.Keys(upstreams)) {
			followers.text(name).id(&l.UID)
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(engine.Calendars(d.filled)))) {
			users.text(name).id(&l.UID)
		}
		if err := l.time(calendars); err != nil {
			return err
		}
	}
	if err := st.writeRows(Upsert, written); err != nil {
		return err
	}
	for _, b := range []*Batch{followers, users} {
		if len(old) > 0 {
			if err := st.exec("delete from "+b.Name+" where job in (?*)", set(old)); err != nil {
				return err
			}
		}
		if err := st.writeRows(Insert, b); err != nil {
			return err
		}
	}
	return nil
}

var revisions = &Table{Name: "revisions", Key: 2, Columns: []Column{
	{"job", Blob}, {"version", Int}, {"changed", Int}, {"actor", Text}, {"definition", Text},
}}

// The two tables of who names what.
var (
	followerNames = &Table{Name: "followers", Key: 2, Columns: []Column{{"upstream", Text}, {"job", Blob}}}
	calendarNames = &Table{Name: "calendar_users", Key: 2, Columns: []Column{{"calendar", Text}, {"job", Blob}}}
)

// time makes the text that decides when the job is due.
func (l *loadedJob) time(calendars map[string]*job.Calendar) (err error) {
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

// announce writes what rarely changes about jobs, with their numbers in the feed of
// changes, from first on.
func (st *step) announce(list []*loadedJob, first int64) error {
	n := len(list)
	made, redefined, announced, timed := jobRows.rows(n), jobRows.rows(n), announcedJobs.rows(n), timedJobs.rows(0)
	for i, l := range list {
		st.renew(l, first+int64(i))
		switch {
		case l.made:
			l.redefinedRow(made)
		case l.said != nil:
			l.redefinedRow(redefined)
		default:
			l.rarely(announced.id(&l.UID).int(l.seq).int(l.Version))
			if l.timing != "" {
				timed.id(&l.UID).text(l.timing)
			}
		}
	}
	if err := st.writeRows(Insert, made); err != nil {
		return err
	}
	for _, b := range []*Batch{redefined, announced, timed} {
		if err := st.writeRows(Update, b); err != nil {
			return err
		}
	}
	return nil
}

// renew makes the document of a job that has changed.
func (st *step) renew(l *loadedJob, seq int64) {
	d := &document{
		seq: seq, definition: l.doc.definition, filled: l.doc.filled, policy: l.doc.policy, created: l.doc.created, changed: st.b.Now(),
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
}

// redefinedRow adds all that a new version of the job writes.
func (l *loadedJob) redefinedRow(b *Batch) {
	b.id(&l.UID).int(l.seq).int(l.Version).int(int64(job.Partition(l.UID))).text(l.doc.filled.FullName())
	b.bool(l.doc.filled.Schedule.Boot).text(string(l.said)).text(l.timing).time(l.doc.created)
	l.rarely(b)
}

// rarely adds the last columns of both tables.
func (l *loadedJob) rarely(b *Batch) {
	var deleted int64
	if l.Deleted {
		deleted = columns.Nanos(l.doc.changed)
	}
	keep := l.doc.filled.Policy.Keep
	if keep == nil {
		keep = &job.Keep{}
	}
	b.time(l.doc.changed).int(deleted).time(l.PausedAt).time(l.PausedUntil).text(l.PausedBy).text(l.PauseReason)
	b.time(l.RemoveAt()).int(int64(keep.Runs)).int(int64(keep.For)).int(int64(keep.OutputFor))
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

// JobsNamed implements store.Jobs.
func (s *Store) JobsNamed(ctx context.Context, names []string) ([]*store.Job, error) {
	return jobsBy(ctx, s, "select "+stateColumns+" from jobs j join job_state s on s.uid = j.uid where j.live in (?*)", names, names,
		func(r *jobRow) string { return r.FullName() })
}

// JobByUID implements store.Jobs.
func (s *Store) JobByUID(ctx context.Context, uid job.ID) (*store.Job, error) {
	j, err := s.oneJob(ctx, "select "+stateColumns+" from job_state s where s.uid = ?", idOf(uid))
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", uid, err)
	}
	return j, nil
}

// JobsByUID implements store.Jobs.
func (s *Store) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	return jobsBy(ctx, s, "select "+stateColumns+" from job_state s "+byKey+"where s.uid in (?*)", uids, set(uids),
		func(r *jobRow) job.ID { return r.UID })
}

// jobsBy returns the jobs of some keys, for which the query takes a set.
func jobsBy[K comparable](ctx context.Context, s *Store, query string, keys []K, set any, keyOf func(*jobRow) K) (list []*store.Job, err error) {
	if len(keys) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	err = s.read(ctx, func(t *tx) error {
		rows, err := t.jobRows(query, set)
		if err != nil {
			return err
		}
		found := make(map[K]*jobRow, len(rows))
		for _, r := range rows {
			found[keyOf(r)] = r
		}
		list = make([]*store.Job, len(keys))
		for i, key := range keys {
			if r := found[key]; r != nil {
				list[i] = r.storeJob()
			}
		}
		return nil
	})
	return list, wrapped(err, "jobs of a batch")
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
	for _, table := range []*Table{followerNames, calendarNames} {
		if err := st.exec("delete from "+table.Name+" where job = ?", idOf(l.UID)); err != nil {
			return err
		}
	}
	return nil
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

// Cursors implements store.Jobs.
func (s *Store) Cursors(ctx context.Context, uids []job.ID) (list []store.JobCursor, err error) {
	if len(uids) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	err = s.read(ctx, func(t *tx) error {
		list = make([]store.JobCursor, 0, len(uids))
		q := t.query("select uid, epoch, cursor_at, planned from job_state where uid in (?*)", set(uids))
		for q.Next() {
			list = append(list, store.JobCursor{UID: q.id(), Epoch: q.Int(), Cursor: q.time(), Planned: int(q.Int())})
		}
		return q.Err()
	})
	return list, wrapped(err, "cursors of jobs")
}

// Summary implements store.Jobs.
func (s *Store) Summary(ctx context.Context) (sum [job.Partitions]store.PartitionSummary, err error) {
	err = s.read(ctx, func(t *tx) error {
		t.Whole() // some seconds of a million jobs; by an index it is half a minute
		q := t.query("select j.part, count(*), sum(s.version) from jobs j join job_state s on s.uid = j.uid where s.deleted = 0 and s.state = ? group by j.part",
			columns.JobStates.Of(job.JobActive))
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
