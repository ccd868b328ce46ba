package sqlite

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

// documentsMax is how many decoded definitions are kept: enough for all the jobs
// that fall due within a look-ahead on a busy node, at some kilobytes each.
const documentsMax = 16384

// document is a decoded version of a job. What is behind the pointers is never
// changed.
type document struct {
	version    int64
	definition *job.Job
	filled     *job.Job
	policy     *engine.Policy
	// timing is the text that decides when the job is due, "" if calendars may too, or
	// if it was not made yet. The row of a job with one has its number.
	timing string

	// view is the definition with what the server says, as it was last asked
	// for. Many claims share it.
	view atomic.Pointer[view]
}

// view is a definition as callers get it, at a place in the feed of changes.
type view struct {
	seq                int64
	definition, filled *job.Job
}

// jobCache keeps decoded definitions by the uid of the job.
type jobCache struct {
	mu        sync.Mutex
	documents map[job.ID]*document
	// generation counts what was forgotten: what was read before must not be
	// kept after.
	generation int
}

func newJobCache() *jobCache { return &jobCache{documents: map[job.ID]*document{}} }

// forget drops everything, after something was undone that may be in it.
func (c *jobCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.documents)
	c.generation++
}

func (c *jobCache) get(uid job.ID, version int64) (d *document, generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d = c.documents[uid]; d != nil && d.version != version {
		d = nil
	}
	return d, c.generation
}

func (c *jobCache) put(uid job.ID, d *document, generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation == c.generation {
		c.keep(uid, d)
	}
}

// set is put for the writer, who alone lets things be forgotten.
func (c *jobCache) set(uid job.ID, d *document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(uid, d)
}

func (c *jobCache) keep(uid job.ID, d *document) {
	if len(c.documents) >= documentsMax {
		for old := range c.documents { // any will do
			delete(c.documents, old)
			break
		}
	}
	c.documents[uid] = d
}

// document returns the definition of a job in the version that the connection
// sees.
func (s *Store) document(c *conn, uid job.ID, version int64) (*document, error) {
	d, generation := s.jobs.get(uid, version)
	if d != nil {
		return d, nil
	}
	var text []byte
	d = &document{version: version}
	q := c.stmt("select definition from jobs where uid = ?").bindID(uid)
	for q.next() {
		text = q.blob()
	}
	if err := q.err(); err != nil {
		return nil, err
	}
	var err error
	if d.definition, err = columns.DecodeJob(text); err != nil {
		return nil, fmt.Errorf("definition of job %s: %w", uid, err)
	}
	d.definition.UID, d.definition.Version = uid, version
	d.fill(s.defaults)
	s.jobs.put(uid, d, generation)
	return d, nil
}

func (d *document) fill(defaults job.Defaults) {
	d.filled = d.definition.WithDefaults(defaults)
	d.policy = engine.CompilePolicy(d.filled)
}

// written is a definition as it is to be written: by one step, which gives it its
// version.
type written struct {
	doc  *document
	text []byte
}

// prepareJob makes what is written of a definition. What is kept is what will be read.
func (s *Store) prepareJob(given *job.Job) (*written, error) {
	w := &written{doc: &document{}}
	var err error
	if w.text, w.doc.definition, err = columns.EncodeJob(given); err != nil {
		return nil, err
	}
	w.doc.fill(s.defaults)
	if days := &w.doc.filled.Schedule; len(days.Only)+len(days.Except) == 0 {
		w.doc.timing, err = engine.TimingText(w.doc.filled, nil)
	}
	return w, err
}

// jobRow is a job with what the database adds to it.
type jobRow struct {
	*engine.Job
	n, seq, timing   int64
	created, changed time.Time
	doc              *document
}

// storeJob returns the job as callers get it.
func (r *jobRow) storeJob() *store.Job {
	v := r.doc.view.Load()
	if v == nil || v.seq != r.seq {
		definition, filled := *r.doc.definition, *r.doc.filled
		definition.Epoch, filled.Epoch = r.Epoch, r.Epoch
		definition.Status = r.Status(r.created, r.changed)
		filled.Status = definition.Status
		v = &view{r.seq, &definition, &filled}
		r.doc.view.Store(v)
	}
	return &store.Job{
		Definition: v.definition, Filled: v.filled,
		Cursor: r.Cursor, Planned: r.Planned, Deleted: r.Deleted,
	}
}

const stateColumns = `s.uid, s.n, s.seq, s.timing, s.created, s.changed, s.version, s.epoch, s.state, s.deleted, s.cursor, s.floor,
	s.planner, s.planned, s.failures, s.previous, s.previous_ok, s.previous_failed, s.paused_at, s.paused_until, s.paused_by, s.pause_reason, s.completed`

// scanState reads what changes about a job while it runs.
func scanState(s *stmt, r *jobRow) {
	r.UID = s.id()
	r.n, r.seq, r.timing = s.int(), s.int(), s.int()
	r.created, r.changed = s.time(), s.time()
	r.Version, r.Epoch = s.int(), s.int()
	r.State = columns.JobStates.Value(s.int())
	r.Deleted = s.bool()
	r.Cursor, r.Floor = s.time(), s.time()
	r.Planner = s.id()
	r.Planned, r.Failures = int(s.int()), int(s.int())
	r.Previous, r.PreviousOK, r.PreviousFailed = s.time(), s.bool(), engine.Shards(s.text())
	r.PausedAt, r.PausedUntil = s.time(), s.time()
	r.PausedBy, r.PauseReason = s.text(), s.text()
	r.Completed = s.time()
}

// jobRows returns the jobs of a query, with their definitions.
func (s *Store) jobRows(c *conn, q *stmt) ([]*jobRow, error) {
	var rows []*jobRow
	for q.next() {
		r := &jobRow{Job: &engine.Job{}}
		scanState(q, r)
		rows = append(rows, r)
	}
	if err := q.err(); err != nil {
		return nil, err
	}
	for _, r := range rows {
		if err := s.define(c, r); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// define adds the definition of a job to its row.
func (s *Store) define(c *conn, r *jobRow) (err error) {
	if r.doc, err = s.document(c, r.UID, r.Version); err != nil {
		return err
	}
	r.Namespace, r.Name, r.Policy = r.doc.filled.Namespace, r.doc.filled.Name, r.doc.policy
	return nil
}
