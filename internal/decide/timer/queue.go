// Package timer keeps many moments in order, compactly and without a clock: the caller passes the
// time. A million entries due at one instant leave it in some milliseconds and take about 20 bytes
// each; time.AfterFunc would take seven times the memory and hundreds of times as long.
package timer

import (
	"math"
	"math/bits"
)

// Queue is a set of handles, each with a moment. The caller knows what a handle means and whether
// it is valid: entries are not removed before they are due. The zero Queue is empty. It is not safe
// for concurrent use.
//
// It is a radix heap: an entry lies in the bucket of the highest bit in which its moment differs
// from now, the moment up to which the queue was emptied last. As now only moves forward, an entry
// moves to lower buckets only, at most once for each bit, and all entries of one moment move
// together.
type Queue struct {
	now     int64
	length  int
	buckets [65]bucket
}

type bucket struct {
	entries     []entry
	first, last int64 // its earliest and latest moment, unless it is empty
}

type entry struct {
	at     int64
	handle uint32
}

// Push adds a handle that is due at a moment, in any unit. A moment before the last argument of Due
// is due at once.
func (q *Queue) Push(at int64, handle uint32) {
	q.length++
	q.put(entry{max(at, q.now), handle})
}

func (q *Queue) put(e entry) {
	b := &q.buckets[bits.Len64(uint64(e.at)^uint64(q.now))]
	if len(b.entries) == 0 {
		b.first, b.last = e.at, e.at
	}
	b.first, b.last = min(b.first, e.at), max(b.last, e.at)
	b.entries = append(b.entries, e)
}

// Len returns the number of entries.
func (q *Queue) Len() int { return q.length }

// Next returns the earliest moment, and false when the queue is empty.
func (q *Queue) Next() (int64, bool) {
	for i := range q.buckets {
		if b := &q.buckets[i]; len(b.entries) > 0 {
			return b.first, true
		}
	}
	return math.MaxInt64, false
}

// Due removes the entries that are due at a moment or earlier and appends their
// handles to list, the earliest first.
func (q *Queue) Due(now int64, list []uint32) []uint32 {
	for {
		first, ok := q.Next()
		if !ok || first > now {
			break
		}
		if first > q.now {
			q.advance(first)
		}
		due := &q.buckets[0]
		for _, e := range due.entries {
			list = append(list, e.handle)
		}
		q.length -= len(due.entries)
		due.entries = due.entries[:0]
	}
	if now > q.now {
		q.advance(now)
	}
	q.shrink()
	return list
}

// advance moves now forward, at most to the earliest entry, and redistributes the entries of one
// bucket: the one of the highest bit in which the old and new now differ. Entries of higher buckets
// differ from both alike, and lower buckets are empty, since their entries would be earlier.
func (q *Queue) advance(now int64) {
	from := &q.buckets[bits.Len64(uint64(now)^uint64(q.now))]
	q.now = now
	moving := *from
	from.entries = nil
	switch {
	case len(moving.entries) == 0:
		from.entries = moving.entries
	case moving.first == moving.last:
		// A herd moves as it is.
		q.buckets[bits.Len64(uint64(moving.first)^uint64(now))] = moving
	default:
		for _, e := range moving.entries {
			q.put(e)
		}
	}
}

// shrunkMax is the space that an empty bucket keeps, in entries: a herd must not hold its memory
// forever.
const shrunkMax = 4096

// shrink frees the memory of removed entries.
func (q *Queue) shrink() {
	for i := range q.buckets {
		if b := &q.buckets[i]; len(b.entries) == 0 && cap(b.entries) > shrunkMax {
			b.entries = nil
		}
	}
}
