package sqlite

import (
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// activeColumns are those of a run, in the order of scanRun.
const activeColumns = `a.id, a.job, a.state, a.session, a.due, a.slot, a.holds, a.attempt, a.kind, a.key, a.shard, a.shards,
	a.epoch, a.version, a.scheduled, a.node, a.token, a.overlap, a.awaits, a.priority, a.late_after, a.first, a.claimed,
	a.params, a.parent, a.last, a.reason, a.cancel_by, a.cancel_reason, a.first_due, a.alert_at, a.others`

// scanRun reads a run but for the names of its job.
func scanRun(s *stmt, r *store.Run) {
	r.ID, r.JobUID = s.id(), s.id()
	r.State = columns.States.Value(s.int())
	r.Session = s.id()
	r.Due = s.time()
	if s.null() {
		s.skip()
		r.Slot = r.JobUID.String()
	} else {
		r.Slot = s.text()
	}
	r.HoldsSlot = s.bool()
	r.Attempt = int(s.int())
	r.Kind = columns.Kinds.Value(s.int())
	r.Key = s.text()
	r.Shard, r.Shards = int(s.int()), int(s.int())
	r.Epoch, r.Version = s.int(), s.int()
	r.Scheduled = s.time()
	r.Node = s.text()
	r.Token = s.id()
	r.Overlap = columns.Overlaps.Value(s.int())
	r.AwaitsPrevious = s.bool()
	r.Priority = int(s.int())
	r.LateAfter, r.First, r.Claimed = s.time(), s.time(), s.time()
	r.Params = columns.Params(s.view())
	r.Parent = s.id()
	r.Last = columns.Outcomes.Value(s.int())
	r.Reason, r.CancelBy, r.CancelReason = s.text(), s.text(), s.text()
	r.FirstDue, r.AlertAt = s.time(), s.time()
	r.Others = columns.Outcomes.Value(s.int())
	r.Key = columns.Key(&r.Run)
}

// scanRuns reads runs but for the names of their jobs.
func scanRuns(q *stmt) (list []store.Run, err error) {
	for q.next() {
		list = append(list, store.Run{})
		scanRun(q, &list[len(list)-1])
	}
	return list, q.err()
}

const insertRun = `insert into active (id, job, state, session, due, slot, holds, attempt, kind, key, shard, shards,
	epoch, version, scheduled, node, token, overlap, awaits, priority, late_after, first, claimed,
	params, parent, broadcast, last, reason, cancel_by, cancel_reason)
	values (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`

// insertRun writes a new run. A broadcast run belongs to its node.
func (c *conn) insertRun(r *store.Run, broadcast bool) error {
	s := c.stmt(insertRun).bindID(r.ID).bindID(r.JobUID).bindInt(columns.States.Of(r.State)).bindID(r.Session).bindTime(r.Due)
	s.bindSlot(r).bindBool(r.HoldsSlot).bindInt(int64(r.Attempt)).bindInt(columns.Kinds.Of(r.Kind)).bindKey(&r.Run)
	s.bindInt(int64(r.Shard)).bindInt(int64(r.Shards)).bindInt(r.Epoch).bindInt(r.Version).bindTime(r.Scheduled)
	s.bindText(r.Node).bindID(r.Token).bindInt(columns.Overlaps.Of(r.Overlap)).bindBool(r.AwaitsPrevious).bindInt(int64(r.Priority))
	s.bindTime(r.LateAfter).bindTime(r.First).bindTime(r.Claimed).bindParams(r.Params).bindID(r.Parent).bindBool(broadcast)
	if err := s.bindInt(columns.Outcomes.Of(r.Last)).bindText(r.Reason).bindText(r.CancelBy).bindText(r.CancelReason).exec(); err != nil {
		return err
	}
	return c.alertRun(r, time.Time{})
}

const alertRun = "update active set alert_at = ? where id = ?"

// alertRun writes when the next expectation of a run is not met, if that is
// another moment than before: most jobs expect nothing.
func (c *conn) alertRun(r *store.Run, was time.Time) error {
	if r.AlertAt.Equal(was) {
		return nil
	}
	return c.stmt(alertRun).bindTime(r.AlertAt).bindID(r.ID).exec()
}

const updateRun = `update active set state = ?, holds = ?, attempt = ?, epoch = ?, version = ?, node = ?, token = ?,
	overlap = ?, awaits = ?, priority = ?, late_after = ?, first = ?, claimed = ?, last = ?, reason = ?, cancel_by = ?, cancel_reason = ?
	where id = ?`

const moveRun = "update active set session = ?, due = ?, slot = ?, first_due = ? where id = ?"

const othersRun = "update active set others = ? where id = ?"

// steady is what of a run is in indexes, or rarely changes, and where it stands.
type steady struct {
	place
	slot   string
	alert  time.Time
	others job.Outcome
}

// updateRun writes all of a run but its identity and what it was made with. SQLite writes the entries of all
// indexes with a column that is named, so that those which stay are not.
func (c *conn) updateRun(r *store.Run, was steady) error {
	s := c.stmt(updateRun).bindInt(columns.States.Of(r.State)).bindBool(r.HoldsSlot)
	s.bindInt(int64(r.Attempt)).bindInt(r.Epoch).bindInt(r.Version).bindText(r.Node).bindID(r.Token)
	s.bindInt(columns.Overlaps.Of(r.Overlap)).bindBool(r.AwaitsPrevious).bindInt(int64(r.Priority)).bindTime(r.LateAfter)
	s.bindTime(r.First).bindTime(r.Claimed).bindInt(columns.Outcomes.Of(r.Last)).bindText(r.Reason)
	if err := s.bindText(r.CancelBy).bindText(r.CancelReason).bindID(r.ID).exec(); err != nil {
		return err
	}
	if err := c.alertRun(r, was.alert); err != nil {
		return err
	}
	if r.Others != was.others {
		if err := c.stmt(othersRun).bindInt(columns.Outcomes.Of(r.Others)).bindID(r.ID).exec(); err != nil {
			return err
		}
	}
	if r.Session == was.session && columns.Nanos(r.Due) == was.due && r.Slot == was.slot {
		return nil
	}
	return c.stmt(moveRun).bindID(r.Session).bindTime(r.Due).bindSlot(r).bindTime(r.FirstDue).bindID(r.ID).exec()
}

const deleteRun = "delete from active where id = ?"

func (c *conn) deleteRun(id job.ID) error { return c.stmt(deleteRun).bindID(id).exec() }

// bindSlot binds the key of a slot: null for that of the job itself.
func (s *stmt) bindSlot(r *store.Run) *stmt {
	if columns.IsOwnSlot(r.Slot, r.JobUID) {
		return s.bindNull()
	}
	return s.bindText(r.Slot)
}

// bindKey binds the key of a run: nothing where it is the scheduled time.
func (s *stmt) bindKey(r *job.Run) *stmt {
	return s.bindText(columns.StoredKey(r))
}

// bindParams binds parameters as JSON, nothing where there are none.
func (s *stmt) bindParams(p map[string]string) *stmt {
	text, err := columns.EncodeParams(p)
	if err != nil && s.wrong == nil {
		s.wrong = err
	}
	return s.bindBlob(text)
}
