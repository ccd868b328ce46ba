package sqlite

import (
	"context"
	"errors"
	"fmt"
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
	// What takes no transaction is done before it: there is one writer.
	prepared := make([]*written, len(list))
	for i := range list {
		if prepared[i], err = s.prepareJob(list[i].Definition); err != nil {
			return nil, &store.ItemError{Item: i, Err: fmt.Errorf("put job %s: %w", list[i].Definition.FullName(), err)}
		}
	}
	var jobs []*loadedJob
	err = s.grow(ctx, func(t *tx) error {
		return t.decide(len(list), func(st *step) error {
			jobs, err = st.put(list, prepared)
			return err
		})
	})
	var refused *store.ItemError
	switch {
	case errors.As(err, &refused):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("put jobs: %w", err)
	}
	out = make([]*store.Job, len(jobs))
	for i, l := range jobs {
		out[i] = l.storeJob()
	}
	return out, nil
}

func (st *step) put(list []store.PutJob, prepared []*written) ([]*loadedJob, error) {
	jobs := make([]*loadedJob, len(list))
	items := make([]engine.PutItem, len(list))
	broadcast := make([]bool, len(list))
	for i, w := range prepared {
		l, err := st.jobNamed(w.doc.filled.FullName())
		if err != nil {
			return nil, err
		}
		items[i] = engine.PutItem{Put: &list[i], Filled: w.doc.filled, Policy: w.doc.policy}
		if l == nil {
			items[i].UID = st.s.newID()
			continue
		}
		jobs[i], broadcast[i] = l, l.Policy.Broadcast
		items[i].Old = engine.Stored{Job: l.Job, Definition: l.doc.definition, Filled: l.doc.filled}
		if err := st.waitingRuns(l, w.doc.policy); err != nil {
			return nil, err
		}
	}
	calendars, err := st.calendars()
	if err != nil {
		return nil, err
	}
	if err := st.b.Put(items, engine.Names{Calendars: columns.Finder(calendars), Upstreams: st.upstreams}); err != nil {
		return nil, err
	}
	for i, w := range prepared {
		if !items[i].Changed {
			continue
		}
		if jobs[i] == nil {
			if jobs[i], err = st.create(items[i].Job, w.doc.filled); err != nil {
				return nil, err
			}
		} else if is := w.doc.policy.Broadcast; is != broadcast[i] {
			// Tidy looks for runs whose node is gone by it.
			if err := st.stmt("update active set broadcast = ? where job = ?").bindBool(is).bindID(jobs[i].UID).exec(); err != nil {
				return nil, err
			}
		}
		if err := st.redefine(jobs[i].jobRow, w, list[i].Actor); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// jobNamed loads the job that has a full name, nil if there is none.
func (st *step) jobNamed(full string) (*loadedJob, error) {
	var uid job.ID
	q := st.stmt("select uid from jobs where live = ?").bindText(full)
	for q.next() {
		uid = q.id()
	}
	if err := q.err(); err != nil || uid.IsZero() {
		return nil, err
	}
	return st.job(uid)
}

// upstreams returns the jobs that one follows.
func (st *step) upstreams(full string) (list []string, err error) {
	q := st.stmt("select upstream from followers where job = (select uid from jobs where live = ?) order by upstream").bindText(full)
	for q.next() {
		list = append(list, q.text())
	}
	return list, q.err()
}

// waitingRuns adds what a decision about a new policy of a job needs to know: the
// runs that wait, with the slots that they wait for now and under it.
func (st *step) waitingRuns(l *loadedJob, policy *engine.Policy) error {
	var runs []store.Run
	q := st.stmt("select " + activeColumns + " from active a where a.job = ? and a.state = ?").bindID(l.UID).bindInt(columns.States.Of(job.StateWaiting))
	for q.next() {
		var r store.Run
		scanRun(q, &r)
		runs = append(runs, r)
	}
	if err := q.err(); err != nil {
		return err
	}
	for i := range runs {
		r := &runs[i]
		if _, err := st.addRun(r); err != nil {
			return err
		}
		for _, key := range []string{r.Slot, policy.SlotKey(&r.Run, r.Node)} {
			if err := st.slot(key, r); err != nil {
				return err
			}
		}
	}
	if l.Policy.NeedsPrevious || policy.NeedsPrevious || l.Policy.MaxRuns > 0 || policy.MaxRuns > 0 || l.Policy.LateBy != policy.LateBy {
		return st.runsOf(l.UID)
	}
	return nil
}

// create adds a job that a decision has made. Its rows are written by redefine and
// write.
func (st *step) create(j *engine.Job, filled *job.Job) (*loadedJob, error) {
	// Its id is new, and so is all that has it: to ask whether there is such a row
	// already takes half as long again.
	q := st.stmt("insert into names (uid, namespace, name) values (?, ?, ?)")
	if err := q.bindID(j.UID).bindText(filled.Namespace).bindText(filled.Name).exec(); err != nil {
		return nil, err
	}
	l := &loadedJob{jobRow: &jobRow{Job: j, n: st.inserted(), created: st.now}, was: *j, made: true}
	st.jobs[j.UID] = l
	st.memory.keepJob(l.jobRow).complete = true // it has no runs yet
	return l, nil
}

// trimMax is how many definitions go when a new one comes: more than one goes
// where more were kept before.
const trimMax = 20

// redefine writes the definition of a job in its present version, with its
// revision and all that is derived from it but what announce writes.
func (st *step) redefine(r *jobRow, w *written, actor string) error {
	was, d := r.doc, w.doc
	d.version = r.Version
	d.definition.UID, d.definition.Version = r.UID, r.Version
	d.filled.UID, d.filled.Version = r.UID, r.Version
	r.doc = d

	// What has an index is named only where it changes: otherwise the index is written.
	var s *stmt
	switch boot := d.filled.Schedule.Boot; {
	case was == nil:
		s = st.stmt("insert into jobs (live, boot, definition, uid) values (?, ?, ?, ?)").bindText(d.filled.FullName()).bindBool(boot)
	case was.filled.Schedule.Boot != boot:
		s = st.stmt("update jobs set boot = ?, definition = ? where uid = ?").bindBool(boot)
	default:
		s = st.stmt("update jobs set definition = ? where uid = ?")
	}
	if err := s.bindBlob(w.text).bindID(r.UID).exec(); err != nil {
		return err
	}
	// Behind a change: if the call fails, it is forgotten.
	st.s.jobs.set(r.UID, d)
	s = st.stmt("insert or replace into revisions (job, version, changed, actor, definition) values (?, ?, ?, ?, ?)")
	if err := s.bindID(r.UID).bindInt(r.Version).bindTime(st.now).bindText(actor).bindBlob(w.text).exec(); err != nil {
		return err
	}
	if old := r.Version - int64(st.s.revisions); old > 0 {
		s = st.stmt("delete from revisions where job = ? and version <= ? and version in (select version from revisions where job = ? order by version limit ?)")
		if err := s.bindID(r.UID).bindInt(old).bindID(r.UID).bindInt(trimMax).exec(); err != nil {
			return err
		}
	}
	if namesOthers(d.filled) || was != nil && namesOthers(was.filled) {
		if err := st.link("followers", "upstream", r.UID, engine.Follows(d.filled)); err != nil {
			return err
		}
		if err := st.link("calendar_users", "calendar", r.UID, engine.Calendars(d.filled)); err != nil {
			return err
		}
	}
	if was != nil && was.timing != "" && was.timing == w.doc.timing {
		return nil // as most changes leave it
	}
	return st.time(r, w.doc.timing)
}

// namesOthers tells whether a job may name other jobs or calendars.
func namesOthers(j *job.Job) bool {
	s := &j.Schedule
	return len(s.On)+len(s.Only)+len(s.Except) > 0
}

// link replaces the names that a job has in one of the two tables of who names
// what.
func (st *step) link(table, column string, uid job.ID, names []string) error {
	var old []string
	q := st.stmt("select " + column + " from " + table + " where job = ? order by " + column).bindID(uid)
	for q.next() {
		old = append(old, q.text())
	}
	if err := q.err(); err != nil {
		return err
	}
	names = slices.Sorted(slices.Values(names))
	if slices.Equal(old, names) {
		return nil
	}
	if err := st.stmt("delete from " + table + " where job = ?").bindID(uid).exec(); err != nil {
		return err
	}
	for _, name := range slices.Compact(names) {
		q := st.stmt("insert into " + table + " (" + column + ", job) values (?, ?)").bindText(name).bindID(uid)
		if err := q.exec(); err != nil {
			return err
		}
	}
	st.memory.followed = nil
	return nil
}

// time keeps the text that decides when a job is due, which many jobs share. The
// text is "" if it is to be made by the calendars as they are.
func (st *step) time(r *jobRow, text string) error {
	if text == "" {
		calendars, err := st.calendars()
		if err != nil {
			return err
		}
		if text, err = engine.TimingText(r.doc.filled, columns.Finder(calendars)); err != nil {
			return err
		}
	}
	old := r.timing
	id, made, err := st.timingOf(text)
	if err != nil || id == old { // as most changes leave it
		return err
	}
	if !made {
		st.timed[id]++
	}
	r.timing = id
	switch {
	case old == 0:
		return nil
	case st.timed[old] > 0:
		st.timed[old]--
		return nil
	}
	clear(st.timings) // the old one goes if no job has it
	return st.dropTiming(old)
}

// timingOf returns the number of a text in timings. One that is made has a job already.
func (st *step) timingOf(text string) (id int64, made bool, err error) {
	if st.timings == nil {
		st.timings, st.timed = map[string]int64{}, map[int64]int64{}
	}
	if id = st.timings[text]; id != 0 {
		return id, false, nil
	}
	// A text that is new is looked for once so, and not twice.
	if err := st.stmt("insert or ignore into timings (text, jobs) values (?, 1)").bindText(text).exec(); err != nil {
		return 0, false, err
	}
	if made = st.changes() == 1; made {
		id = st.inserted()
	} else {
		q := st.stmt("select id from timings where text = ?").bindText(text)
		for q.next() {
			id = q.int()
		}
		if err := q.err(); err != nil {
			return 0, false, err
		}
	}
	st.timings[text] = id
	return id, made, nil
}

// dropTiming notes that a job has the text no more.
func (t *tx) dropTiming(id int64) error {
	if id == 0 {
		return nil
	}
	if err := t.stmt("update timings set jobs = jobs - 1 where id = ?").bindInt(id).exec(); err != nil {
		return err
	}
	return t.stmt("delete from timings where id = ? and jobs <= 0").bindInt(id).exec()
}

// Job implements store.Jobs.
func (s *Store) Job(ctx context.Context, namespace, name string) (*store.Job, error) {
	full := (&job.Job{Namespace: namespace, Name: name}).FullName()
	j, err := s.oneJob(ctx, jobByName, func(q *stmt) {
		q.bindText(full)
	})
	return j, wrapped(err, "job %s", full)
}

// JobsNamed implements store.Jobs.
func (s *Store) JobsNamed(ctx context.Context, names []string) (list []*store.Job, err error) {
	return s.jobsBy(ctx, jobByName, len(names), func(q *stmt, i int) { q.bindText(names[i]) })
}

// jobsBy returns so many jobs, each by what is bound for it.
func (s *Store) jobsBy(ctx context.Context, query string, n int, bind func(q *stmt, i int)) (list []*store.Job, err error) {
	if n > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	err = s.read(ctx, func(c *conn) error {
		list = make([]*store.Job, n)
		for i := range list {
			q := c.stmt(query)
			bind(q, i)
			rows, err := s.jobRows(c, q)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				list[i] = rows[0].storeJob()
			}
		}
		return nil
	})
	return list, wrapped(err, "jobs of a batch")
}

// JobByUID implements store.Jobs.
func (s *Store) JobByUID(ctx context.Context, uid job.ID) (*store.Job, error) {
	j, err := s.oneJob(ctx, stateByUID, func(q *stmt) { q.bindID(uid) })
	return j, wrapped(err, "job %s", uid)
}

// JobsByUID implements store.Jobs.
func (s *Store) JobsByUID(ctx context.Context, uids []job.ID) (list []*store.Job, err error) {
	return s.jobsBy(ctx, stateByUID, len(uids), func(q *stmt, i int) { q.bindID(uids[i]) })
}

func (s *Store) oneJob(ctx context.Context, query string, bind func(*stmt)) (*store.Job, error) {
	var rows []*jobRow
	err := s.read(ctx, func(c *conn) (err error) {
		q := c.stmt(query)
		bind(q)
		rows, err = s.jobRows(c, q)
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

// ListJobs implements store.Jobs.
func (s *Store) ListJobs(ctx context.Context, query store.JobQuery) (list []*store.Job, next string, err error) {
	from, to := query.After, "\U0010ffff"
	if query.Namespace != "" {
		// '0' is the letter behind '/'.
		from, to = max(from, query.Namespace+"/"), query.Namespace+"0"
	}
	wanted := sieveOf(&query)
	// What jobs are selected by stands in front: of most no more is read.
	text := "select j.live, s.state, " + stateColumns + " from jobs j cross join job_state s on s.uid = j.uid"
	switch {
	case wanted.all:
	case query.State != "":
		text = "select j.live, s.state, j.uid, j.definition from jobs j cross join job_state s on s.uid = j.uid"
	default:
		text = "select j.live, 0, j.uid, j.definition from jobs j"
	}
	text += " where j.live > ? and j.live < ?"
	if query.Boot {
		text += " and j.boot = 1" // has an index: each node asks when it starts
	}
	text += " order by j.live"
	err = s.read(ctx, func(c *conn) error {
		var found []*jobRow
		q := c.stmt(text).bindText(from).bindText(to)
		last := ""
		for looked := 0; q.next(); looked++ {
			if len(found) == query.Limit || looked == store.JobLookMax {
				next = last
				break
			}
			last = q.text()
			if state := columns.JobStates.Value(q.int()); query.State != "" && state != query.State {
				continue
			}
			r := &jobRow{Job: &engine.Job{}}
			if wanted.all {
				scanState(q, r)
			} else {
				r.UID = q.id()
				selected, err := wanted.has(q.view())
				if err != nil {
					q.rewind()
					return fmt.Errorf("definition of job %s: %w", r.UID, err)
				}
				if !selected {
					continue
				}
			}
			found = append(found, r)
		}
		if err := q.err(); err != nil {
			return err
		}
		for _, r := range found {
			if !wanted.all {
				q := c.stmt(stateByUID).bindID(r.UID)
				for q.next() {
					scanState(q, r)
				}
				if err := q.err(); err != nil {
					return err
				}
			}
			if err := s.define(c, r); err != nil {
				return err
			}
			list = append(list, r.storeJob())
		}
		return nil
	})
	return list, next, wrapped(err, "list jobs")
}

const jobByName = "select " + stateColumns + " from jobs j join job_state s on s.uid = j.uid where j.live = ?"

const stateByUID = "select " + stateColumns + " from job_state s where s.uid = ?"

// DeleteJob implements store.Jobs.
func (s *Store) DeleteJob(ctx context.Context, d store.DeleteJob) error {
	err := s.write(ctx, func(t *tx) error {
		st, err := t.step(1)
		if err != nil {
			return err
		}
		l, err := st.job(d.UID)
		if err != nil {
			return err
		}
		if l == nil {
			return store.ErrNotFound
		}
		return st.remove(l, d.IfVersion, d.Actor)
	})
	return wrapped(err, "delete job %s", d.UID)
}

// remove deletes a job. Its row stays as a tombstone, see Tidy.
func (st *step) remove(l *loadedJob, ifVersion int64, actor string) error {
	if err := st.b.Delete(l.Job, ifVersion, actor); err != nil || l.was.Deleted {
		return err
	}
	if err := st.unlink(l); err != nil {
		return err
	}
	return st.write()
}

// unlink gives the name of a job free, and forgets what it names.
func (st *step) unlink(l *loadedJob) error {
	if err := st.stmt("update jobs set live = null where uid = ?").bindID(l.UID).exec(); err != nil {
		return err
	}
	if err := st.link("followers", "upstream", l.UID, nil); err != nil {
		return err
	}
	return st.link("calendar_users", "calendar", l.UID, nil)
}

// Revisions implements store.Jobs.
func (s *Store) Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) (list []store.Revision, err error) {
	if beforeVersion <= 0 {
		beforeVersion = 1 << 62
	}
	err = s.read(ctx, func(c *conn) error {
		q := c.stmt("select version, changed, actor, definition from revisions where job = ? and version < ? order by version desc limit ?")
		q.bindID(uid).bindInt(beforeVersion).bindInt(int64(limit))
		for q.next() {
			r := store.Revision{Version: q.int(), Changed: q.time(), Actor: q.text()}
			if r.Definition, err = columns.DecodeJob(q.view()); err != nil {
				break
			}
			r.Definition.UID, r.Definition.Version = uid, r.Version
			list = append(list, r)
		}
		if wrong := q.err(); wrong != nil {
			return wrong
		}
		return err
	})
	return list, wrapped(err, "revisions of job %s", uid)
}

// JobsChanged implements store.Jobs.
func (s *Store) JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) (changed []store.PlannedJob, next int64, err error) {
	next = since
	err = s.read(ctx, func(c *conn) error {
		texts := map[int64]string{}
		q := c.stmt(`select s.seq, s.part, s.uid, s.epoch, s.version, s.cursor, s.planned, s.state, s.deleted, s.timing
			from job_state s where s.seq > ? order by s.seq`).bindInt(since)
		for len(changed) < limit && q.next() {
			next = q.int()
			if !partitions.Has(uint8(q.int())) {
				continue
			}
			p := store.PlannedJob{UID: q.id(), Epoch: q.int(), Version: q.int(), Cursor: q.time(), Planned: int(q.int())}
			state := columns.JobStates.Value(q.int())
			p.Deleted = q.bool()
			p.Active = state == job.JobActive && !p.Deleted
			timing := q.int()
			text, ok := texts[timing]
			if !ok {
				var err error
				if text, err = timingText(c, timing); err != nil {
					q.rewind()
					return err
				}
				texts[timing] = text
			}
			p.Timing = text
			changed = append(changed, p)
		}
		return q.err()
	})
	return changed, next, wrapped(err, "changed jobs")
}

// Cursors implements store.Jobs.
func (s *Store) Cursors(ctx context.Context, uids []job.ID) (list []store.JobCursor, err error) {
	if len(uids) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	err = s.read(ctx, func(c *conn) error {
		for _, uid := range uids {
			q := c.stmt("select epoch, cursor, planned from job_state where uid = ?").bindID(uid)
			for q.next() {
				list = append(list, store.JobCursor{UID: uid, Epoch: q.int(), Cursor: q.time(), Planned: int(q.int())})
			}
			if err := q.err(); err != nil {
				return err
			}
		}
		return nil
	})
	return list, wrapped(err, "cursors of jobs")
}

// timingText returns a text by its number, "" if there is none any more, as for
// deleted jobs.
func timingText(c *conn, id int64) (text string, err error) {
	q := c.stmt("select text from timings where id = ?").bindInt(id)
	for q.next() {
		text = q.text()
	}
	return text, q.err()
}

// Summary implements store.Jobs.
func (s *Store) Summary(ctx context.Context) (sum [job.Partitions]store.PartitionSummary, err error) {
	err = s.read(ctx, func(c *conn) error {
		q := c.stmt("select part, count(*), sum(version) from job_state where deleted = 0 and state = ? group by part").
			bindInt(columns.JobStates.Of(job.JobActive))
		for q.next() {
			sum[uint8(q.int())] = store.PartitionSummary{Jobs: int(q.int()), Versions: q.int()}
		}
		return q.err()
	})
	return sum, wrapped(err, "summary of the jobs")
}
