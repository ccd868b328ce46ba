package sqldb

import (
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// definitionsMax is the number of cached definitions, at some kilobytes each: the jobs due
// within a look-ahead on a busy cluster.
const definitionsMax = 32768

// definition is the decoded row of a job, which rarely changes. Each change gets a number in the
// feed of changes: a definition with the number of the row is current. It is immutable.
type definition struct {
	seq, version          int64
	document              *engine.Document
	created, changed      time.Time
	pausedAt, pausedUntil time.Time
	pausedBy              string
	pauseReason           job.Reason
}

// definitionOf returns the parts of a job that rarely change, with a number in the feed.
func definitionOf(j *engine.Job, seq int64) *definition {
	return &definition{
		seq: seq, version: j.Version, document: j.Document, created: j.Created, changed: j.Changed,
		pausedAt: j.PausedAt, pausedUntil: j.PausedUntil, pausedBy: j.PausedBy, pauseReason: j.PauseReason,
	}
}

// jobRow is a job with its place in the feed of changes.
type jobRow struct {
	*engine.Job
	seq int64
	// cachedBy is the process that caches the runs of the job, 0 for none. Only locked rows have it.
	cachedBy int64
}

// stateColumns are the columns that change while a job runs, in the order of scanState.
const stateColumns = `s.uid, s.seq, s.version, s.epoch, s.state, s.deleted, s.cursor_at, s.floor_at, s.planner, s.planned,
	s.failures, s.previous, s.previous_ok, s.previous_failed, s.completed, s.epoch_why`

func scanState(q reader) jobRow {
	r := jobRow{Job: &engine.Job{}}
	r.UID = q.id()
	r.seq, r.Version, r.Epoch = q.Int(), q.Int(), q.Int()
	r.State = columns.JobStates.Value(q.Int())
	r.Deleted = q.bool()
	r.Cursor, r.Floor = q.time(), q.time()
	r.Planner = q.id()
	r.Planned, r.Failures = int(q.Int()), int(q.Int())
	r.Previous, r.PreviousOK, r.PreviousFailed = q.time(), q.bool(), engine.Shards(q.Text())
	r.Completed = q.time()
	r.EpochWhy = q.reason()
	return r
}

// define adds to a row what rarely changes.
func (r jobRow) define(d *definition) {
	r.Document, r.Policy, r.Created, r.Changed = d.document, d.document.Policy, d.created, d.changed
	r.Namespace, r.Name = d.document.Filled.Namespace, d.document.Filled.Name
	r.PausedAt, r.PausedUntil, r.PausedBy, r.PauseReason = d.pausedAt, d.pausedUntil, d.pausedBy, d.pauseReason
}

// jobRows returns the jobs of a query for stateColumns.
func (t *tx) jobRows(text string, args ...any) ([]jobRow, error) {
	q := t.query(text, args...)
	rows := scanStates(q)
	if err := q.Err(); err != nil {
		return nil, err
	}
	return rows, t.defineAll(rows)
}

func scanStates(q reader) (rows []jobRow) { return scanLocked(q, false) }

// scanLocked reads the states of jobs, and which process caches their runs.
func scanLocked(q reader, cached bool) (rows []jobRow) {
	for q.Next() {
		r := scanState(q)
		if cached {
			r.cachedBy = q.Int()
		}
		rows = append(rows, r)
	}
	return rows
}

const definitionColumns = `j.uid, j.seq, j.version, j.definition, j.timing, j.created, j.changed, j.paused_at, j.paused_until, j.paused_by, j.pause_reason`

// defineAll adds to rows what rarely changes.
func (t *tx) defineAll(rows []jobRow) error {
	var missing [][]byte
	for _, r := range rows {
		d := t.fresh[r.UID]
		if d == nil || d.seq != r.seq {
			d, _ = t.s.definitions.Get(r.UID)
		}
		if d != nil && d.seq == r.seq {
			r.define(d)
		} else {
			missing = append(missing, idOf(r.UID))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	read := make(map[job.ID]*definition, len(missing))
	q := t.query("select "+definitionColumns+" from jobs j where j.uid in (?*)", missing)
	for q.Next() {
		uid, d, err := t.s.scanDefinition(q)
		if err != nil {
			q.Close()
			return err
		}
		read[uid] = d
		if t.reads || !t.s.db.Alone() {
			t.s.definitions.Put(uid, d, definitionsMax)
		} else {
			t.remember(uid, d) // an earlier call in the transaction may have written it
		}
	}
	if err := q.Err(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Document != nil {
			continue
		}
		d := read[r.UID]
		if d == nil {
			return fmt.Errorf("job %s has a state and no definition", r.UID)
		}
		r.define(d)
	}
	return nil
}

// remember caches a definition once the transaction is committed.
func (t *tx) remember(uid job.ID, d *definition) {
	if t.fresh == nil {
		t.fresh = map[job.ID]*definition{}
	}
	t.fresh[uid] = d
}

func (s *backend) scanDefinition(q reader) (uid job.ID, d *definition, err error) {
	uid = q.id()
	d = &definition{seq: q.Int(), version: q.Int()}
	doc, err := columns.DecodeJob(q.View())
	if err != nil {
		return uid, nil, fmt.Errorf("definition of job %s: %w", uid, err)
	}
	d.document = engine.NewDocument(doc, doc.WithDefaults(s.defaults))
	d.document.Timing = q.Text()
	d.created, d.changed = q.time(), q.time()
	d.pausedAt = q.time()
	until := q.Int()
	d.pausedUntil = columns.FromNanos(max(until, -until)) // see overTerms
	d.pausedBy, d.pauseReason = q.Text(), q.reason()
	return uid, d, nil
}
