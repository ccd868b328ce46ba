package ledger

import (
	"github.com/google/btree"

	"github.com/belfry-cron/belfry/store"
)

// RecordIndex sorts the records of a backend that keeps history in memory.
type RecordIndex struct{ tree, failed *btree.BTreeG[recordEntry] }

// recordEntry is a record with its place, so that comparing fetches no record.
type recordEntry struct {
	at     store.RecordRef
	record *store.Record
}

// NewRecordIndex returns an empty index.
func NewRecordIndex() *RecordIndex {
	less := func(a, b recordEntry) bool { return a.at.Compare(b.at) < 0 }
	return &RecordIndex{btree.NewG(degree, less), btree.NewG(degree, less)}
}

// Len returns the number of records.
func (x *RecordIndex) Len() int { return x.tree.Len() }

// Put adds a record.
func (x *RecordIndex) Put(r *store.Record) {
	x.tree.ReplaceOrInsert(recordEntry{r.Ref(), r})
	if r.HasFailed() {
		x.failed.ReplaceOrInsert(recordEntry{r.Ref(), r})
	} else {
		x.failed.Delete(recordEntry{at: r.Ref()})
	}
}

// Remove removes a record.
func (x *RecordIndex) Remove(r *store.Record) {
	x.tree.Delete(recordEntry{at: r.Ref()})
	x.failed.Delete(recordEntry{at: r.Ref()})
}

// Oldest passes the records to each, the oldest first, until it returns false.
func (x *RecordIndex) Oldest(each func(*store.Record) bool) {
	x.tree.Ascend(func(r recordEntry) bool { return each(r.record) })
}

// Latest passes the records to each, the latest first, until it returns false.
func (x *RecordIndex) Latest(each func(*store.Record) bool) {
	x.tree.Descend(func(r recordEntry) bool { return each(r.record) })
}

// Attempts implements [store.History].
func (x *RecordIndex) Attempts(q *store.HistoryQuery) (list []store.Record, next store.RecordRef) {
	looked, last := 0, store.RecordRef{}
	each := func(r recordEntry) bool {
		switch {
		case q.Before != (store.RecordRef{}) && r.at.Compare(q.Before) >= 0, !q.To.IsZero() && !r.at.Ended.Before(q.To):
			return true
		case !q.From.IsZero() && r.at.Ended.Before(q.From):
			return false
		case !q.Job.IsZero() && r.record.Run.JobUID != q.Job:
			return true
		case len(list) == q.Limit || looked == store.LookMax:
			next = last
			return false
		}
		looked, last = looked+1, r.at
		if q.Matches(r.record) {
			list = append(list, *r.record)
		}
		return true
	}
	tree := x.tree
	if q.Failed {
		tree = x.failed
	}
	switch {
	case q.Before != (store.RecordRef{}):
		tree.DescendLessOrEqual(recordEntry{at: q.Before}, each)
	case !q.To.IsZero():
		tree.DescendLessOrEqual(recordEntry{at: store.RecordRef{Ended: q.To}}, each)
	default:
		tree.Descend(each)
	}
	return list, next
}

// Aggregate implements [store.History].
func (x *RecordIndex) Aggregate(q *store.AggregateQuery) []store.Aggregate {
	c := q.Counter()
	x.tree.AscendGreaterOrEqual(recordEntry{at: store.RecordRef{Ended: q.From}}, func(r recordEntry) bool {
		if !q.To.IsZero() && !r.at.Ended.Before(q.To) {
			return false
		}
		if q.Matches(r.record) {
			c.Record(r.record)
		}
		return true
	})
	return c.List()
}
