package sqldb

import (
	"bytes"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// activeColumns are the columns of a run, in the order of scanRun.
const activeColumns = `a.id, a.job, a.state, a.session, a.due, a.slot, a.holds, a.attempt, a.kind, a.run_key, a.shard, a.shards,
	a.epoch, a.version, a.scheduled, a.node, a.token, a.overlap, a.awaits, a.priority, a.late_after, a.first_claimed, a.claimed,
	a.params, a.parent, a.last_outcome, a.reason, a.cancel_by, a.cancel_reason, a.first_due, a.alert_at, a.others,
	a.next_due, a.floor_before, a.lost_after, a.flow`

// scanRun reads a run without the names of its job.
func scanRun(q reader, r *store.Run) {
	r.ID, r.JobUID = q.id(), q.id()
	r.State = columns.States.Value(q.Int())
	r.Session = q.id()
	r.Due = q.time()
	if r.Slot = q.Text(); r.Slot == "" {
		r.Slot = r.JobUID.String()
	}
	r.HoldsSlot = q.bool()
	r.Attempt = int(q.Int())
	r.Kind = columns.Kinds.Value(q.Int())
	r.Key = q.Text()
	r.Shard, r.Shards = int(q.Int()), int(q.Int())
	r.Epoch, r.Version = q.Int(), q.Int()
	r.Scheduled = q.time()
	r.Node = q.Text()
	r.Token = q.id()
	r.Overlap = columns.Overlaps.Value(q.Int())
	r.AwaitsPrevious = q.bool()
	r.Priority = int(q.Int())
	r.LateAfter, r.First, r.Claimed = q.time(), q.time(), q.time()
	r.Params = columns.Params(q.View())
	r.Parent = q.id()
	r.Last = columns.Outcomes.Value(q.Int())
	r.Reason, r.CancelBy, r.CancelReason = q.reason(), q.Text(), q.reason()
	r.FirstDue, r.AlertAt = q.time(), q.time()
	r.Others = columns.Outcomes.Value(q.Int())
	r.NextDue, r.FloorBefore = q.time(), q.time()
	r.LostAfter, r.Unfenced = columns.LostAfter(q.Int())
	r.Flow = columns.Flow(q.View())
	r.Key = columns.Key(&r.Run)
}

// runs returns the runs of a query, but for the names of their jobs.
func (t *tx) runs(text string, args ...any) (list []store.Run, err error) {
	q := t.query(text, args...)
	list = scanRuns(q, 0)
	return list, q.Err()
}

// scanRuns reads about n runs.
func scanRuns(q reader, room int) []store.Run {
	list := make([]store.Run, 0, room)
	for q.Next() {
		list = append(list, store.Run{})
		scanRun(q, &list[len(list)-1])
	}
	return list
}

// selectRuns reads runs with the names of their jobs, for namedRuns.
const selectRuns = "select " + activeColumns + ", n.namespace, n.name from active a join names n on n.uid = a.job "

func (t *tx) namedRuns(text string, args ...any) (list []store.Run, err error) {
	q := t.query(text, args...)
	for q.Next() {
		list = append(list, store.Run{})
		r := &list[len(list)-1]
		scanRun(q, r)
		r.Namespace, r.Name = q.Text(), q.Text()
	}
	return list, q.Err()
}

// newRuns has the columns of a new run.
var newRuns = &Table{Name: "active", Key: 1, Columns: slices.Concat(
	savedRuns.Columns[:1], []Column{
		{"job", Blob}, {"kind", Int}, {"run_key", Text}, {"shard", Int}, {"shards", Int}, {"scheduled", Int}, {"params", Text}, {"parent", Blob},
		{"broadcast", Int},
	}, savedRuns.Columns[1:], placeColumns,
)}

// savedRuns are the columns of a run that change, and movedRuns add the indexed ones, which rarely
// do: SQLite writes the entries of all indexes of a named column.
var (
	savedRuns = &Table{Name: "active", Key: 1, Columns: []Column{
		{"id", Blob},
		{"state", Int}, {"holds", Int}, {"attempt", Int}, {"epoch", Int}, {"version", Int},
		{"node", Text}, {"token", Blob}, {"overlap", Int}, {"awaits", Int}, {"priority", Int}, {"late_after", Int},
		{"first_claimed", Int}, {"claimed", Int}, {"last_outcome", Int}, {"reason", Text}, {"cancel_by", Text}, {"cancel_reason", Text},
		{"first_due", Int}, {"others", Int}, {"next_due", Int}, {"floor_before", Int}, {"lost_after", Int}, {"flow", Text},
	}}
	placeColumns = []Column{{"session", Blob}, {"due", Int}, {"slot", Text}, {"alert_at", Int}}
	movedRuns    = &Table{Name: "active", Key: 1, Columns: slices.Concat(savedRuns.Columns, placeColumns)}
)

var removedRuns = &Table{Name: "active", Key: 1, Columns: []Column{{"id", Blob}}}

// insertRun inserts a new run. A broadcast run belongs to its node.
func (b *Batch) insertRun(r *store.Run, broadcast bool) error {
	params, err := columns.EncodeParams(r.Params)
	if err != nil {
		return err
	}
	b.id(&r.ID).id(&r.JobUID).int(columns.Kinds.Of(r.Kind)).text(columns.StoredKey(&r.Run)).int(int64(r.Shard)).int(int64(r.Shards))
	b.time(r.Scheduled).text(string(params)).id(&r.Parent).bool(broadcast)
	b.changeable(r)
	b.place(r)
	return nil
}

func (b *Batch) changeable(r *store.Run) {
	b.int(columns.States.Of(r.State)).bool(r.HoldsSlot).int(int64(r.Attempt)).int(r.Epoch).int(r.Version)
	b.text(r.Node).id(&r.Token).int(columns.Overlaps.Of(r.Overlap)).bool(r.AwaitsPrevious).int(int64(r.Priority)).time(r.LateAfter)
	b.time(r.First).time(r.Claimed).int(columns.Outcomes.Of(r.Last)).text(r.Reason.Stored()).text(r.CancelBy).text(r.CancelReason.Stored())
	b.time(r.FirstDue).int(columns.Outcomes.Of(r.Others)).time(r.NextDue).time(r.FloorBefore).int(columns.StoredLostAfter(r)).text(string(r.Flow))
}

// place adds placeColumns.
func (b *Batch) place(r *store.Run) {
	slot := r.Slot
	if columns.IsOwnSlot(slot, r.JobUID) {
		slot = ""
	}
	b.id(&r.Session).time(r.Due).text(slot).time(r.AlertAt)
}

// indexKey has the fields of a run that are in indexes.
type indexKey struct {
	session job.ID
	due     time.Time
	slot    string
	alert   time.Time
}

func placeOf(r *store.Run) indexKey { return indexKey{r.Session, r.Due, r.Slot, r.AlertAt} }

// sessionsWith returns the sessions that have runs, the zero id for runs that
// must be placed among them.
func (t *tx) sessionsWith() (list []job.ID, err error) {
	// It queries one session after the other: they are few, with many runs, and MariaDB reads all
	// of those for a combined query. Reading from the end meets the runs due last, not ended runs
	// that are still in the index.
	const before = "select a.session from active a where a.session < ? order by a.session desc limit 1"
	for next := bytes.Repeat([]byte{0xff}, len(job.ID{})+1); ; {
		found, err := t.ids(before, next)
		if err != nil || len(found) == 0 {
			return list, err
		}
		list = append(list, found[0])
		if next = idOf(found[0]); len(next) == 0 {
			return list, nil // the zero id sorts first
		}
	}
}
