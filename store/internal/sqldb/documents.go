package sqldb

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// documentsMax is how many jobs are kept in memory, at some kilobytes each:
// those that fall due within a look-ahead on a busy cluster.
const documentsMax = 32768

// document is what rarely changes about a job: the row of jobs, decoded. Each of
// its changes has a number in the feed of changes, so that one with the number
// of a row is as the database has it. What is behind the pointers is never
// changed.
type document struct {
	seq        int64
	definition *job.Job
	filled     *job.Job
	policy     *engine.Policy

	created, changed      time.Time
	pausedAt, pausedUntil time.Time
	pausedBy, pauseReason string

	// view is the definition with what the server says, as it was last asked
	// for. Many claims share it.
	view atomic.Pointer[view]
}

// view is a definition as callers get it, of a state.
type view struct {
	state              job.JobState
	completed          time.Time
	definition, filled *job.Job
}

// jobCache keeps documents that were committed, by the uid of the job. The zero
// value is ready for use.
type jobCache struct {
	mu        sync.Mutex
	documents map[job.ID]*document
	// followed are those that others were seen to follow, and many is set if too many
	// follow others for all of them to be read.
	followed map[job.ID]bool
	many     bool
}

func (c *jobCache) get(uid job.ID, seq int64) *document {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.documents[uid]; d != nil && d.seq == seq {
		return d
	}
	return nil
}

func (c *jobCache) put(uid job.ID, d *document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.documents == nil {
		c.documents = map[job.ID]*document{}
	}
	for old := range c.documents { // any will do
		if len(c.documents) < documentsMax {
			break
		}
		delete(c.documents, old)
		delete(c.followed, old)
	}
	c.documents[uid] = d
}

// follow remembers that others follow a job.
func (c *jobCache) follow(uid job.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followed == nil {
		c.followed = map[job.ID]bool{}
	}
	c.followed[uid] = true
}

// lookUp remembers that many follow others.
func (c *jobCache) lookUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.many = true
}

const documentColumns = `j.uid, j.seq, j.version, j.definition, j.created, j.changed, j.paused_at, j.paused_until, j.paused_by, j.pause_reason`

// documents returns what rarely changes about jobs, of which the numbers in the
// feed are known. In a step without locks it may be newer than those.
func (t *tx) documents(seqs map[job.ID]int64) (map[job.ID]*document, error) {
	found := make(map[job.ID]*document, len(seqs))
	var missing [][]byte
	for uid, seq := range seqs {
		if d := t.s.jobs.get(uid, seq); d != nil {
			found[uid] = d
		} else {
			missing = append(missing, idOf(uid))
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	q := t.query("select "+documentColumns+" from jobs j where j.uid in (?*)", missing)
	for q.Next() {
		uid, d, err := t.s.scanDocument(q)
		if err != nil {
			q.Close()
			return nil, err
		}
		t.s.jobs.put(uid, d)
		found[uid] = d
	}
	return found, q.Err()
}

func (s *Store) scanDocument(q reader) (uid job.ID, d *document, err error) {
	uid = q.id()
	d = &document{seq: q.Int()}
	version := q.Int()
	if d.definition, err = columns.DecodeJob(q.View()); err != nil {
		return uid, nil, fmt.Errorf("definition of job %s: %w", uid, err)
	}
	d.definition.UID, d.definition.Version = uid, version
	d.created, d.changed = q.time(), q.time()
	d.pausedAt, d.pausedUntil, d.pausedBy, d.pauseReason = q.time(), q.time(), q.Text(), q.Text()
	d.fill(s.defaults)
	return uid, d, nil
}

func (d *document) fill(defaults job.Defaults) {
	d.filled = d.definition.WithDefaults(defaults)
	d.policy = engine.CompilePolicy(d.filled)
}

// jobRow is a job with what the database adds to it.
type jobRow struct {
	*engine.Job
	seq int64
	doc *document
}

// storeJob returns the job as callers get it.
func (r *jobRow) storeJob() *store.Job {
	v := r.doc.view.Load()
	if v == nil || v.state != r.State || !v.completed.Equal(r.Completed) {
		definition, filled := *r.doc.definition, *r.doc.filled
		definition.Epoch, filled.Epoch = r.Epoch, r.Epoch
		definition.Status = r.Status(r.doc.created, r.doc.changed)
		filled.Status = definition.Status
		v = &view{r.State, r.Completed, &definition, &filled}
		r.doc.view.Store(v)
	}
	return &store.Job{
		Definition: v.definition, Filled: v.filled,
		Cursor: r.Cursor, Planned: r.Planned, Deleted: r.Deleted,
	}
}

// stateColumns are those that change while a job runs, in the order of scanState.
const stateColumns = `s.uid, s.seq, s.version, s.epoch, s.state, s.deleted, s.cursor_at, s.floor_at, s.planner, s.planned,
	s.failures, s.previous, s.previous_ok, s.previous_failed, s.completed`

func scanState(q reader) *jobRow {
	r := &jobRow{Job: &engine.Job{}}
	r.UID = q.id()
	r.seq, r.Version, r.Epoch = q.Int(), q.Int(), q.Int()
	r.State = columns.JobStates.Value(q.Int())
	r.Deleted = q.bool()
	r.Cursor, r.Floor = q.time(), q.time()
	r.Planner = q.id()
	r.Planned, r.Failures = int(q.Int()), int(q.Int())
	r.Previous, r.PreviousOK, r.PreviousFailed = q.time(), q.bool(), engine.Shards(q.Text())
	r.Completed = q.time()
	return r
}

// define adds to a row what rarely changes.
func (r *jobRow) define(d *document) {
	r.doc = d
	r.Namespace, r.Name, r.Policy = d.filled.Namespace, d.filled.Name, d.policy
	r.PausedAt, r.PausedUntil, r.PausedBy, r.PauseReason = d.pausedAt, d.pausedUntil, d.pausedBy, d.pauseReason
}

// jobRows returns the jobs of a query for stateColumns.
func (t *tx) jobRows(text string, args ...any) ([]*jobRow, error) {
	q := t.query(text, args...)
	rows := scanStates(q)
	if err := q.Err(); err != nil {
		return nil, err
	}
	return rows, t.defineAll(rows)
}

func scanStates(q reader) (rows []*jobRow) {
	for q.Next() {
		rows = append(rows, scanState(q))
	}
	return rows
}

// defineAll adds to rows what rarely changes.
func (t *tx) defineAll(rows []*jobRow) error {
	seqs := make(map[job.ID]int64, len(rows))
	for _, r := range rows {
		seqs[r.UID] = r.seq
	}
	docs, err := t.documents(seqs)
	if err != nil {
		return err
	}
	for _, r := range rows {
		d := docs[r.UID]
		if d == nil {
			return fmt.Errorf("job %s has a state and no definition", r.UID)
		}
		r.define(d)
	}
	return nil
}

// states is what of a job is written by each step that changes it.
var states = &Table{Name: "job_state", Key: 1, Columns: []Column{
	{"uid", Blob}, {"seq", Int}, {"version", Int}, {"epoch", Int}, {"state", Int}, {"deleted", Int}, {"cursor_at", Int}, {"floor_at", Int},
	{"planner", Blob}, {"planned", Int}, {"failures", Int}, {"previous", Int}, {"previous_ok", Int}, {"completed", Int},
}}

func (b *Batch) state(r *jobRow) {
	b.id(&r.UID).int(r.seq).int(r.Version).int(r.Epoch).int(columns.JobStates.Of(r.State)).bool(r.Deleted).time(r.Cursor).time(r.Floor)
	b.id(&r.Planner).int(int64(r.Planned)).int(int64(r.Failures)).time(r.Previous).bool(r.PreviousOK).time(r.Completed)
}
