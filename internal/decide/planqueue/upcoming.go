package planqueue

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
)

// NextAfter returns when a job first falls due at or after a moment, or the zero time and
// false.
func (t *Queue) NextAfter(uid job.ID, at time.Time) (time.Time, bool) {
	i, ok := t.byUID[uid]
	if !ok {
		return time.Time{}, false
	}
	next := t.nextAfter(i, at.UnixNano(), nil)
	if next == never {
		return time.Time{}, false
	}
	return time.Unix(0, next), true
}

// sliceMax is the number of entries in one part of a [Scan].
const sliceMax = 4096

// Scan is a search for the jobs that fall due first, in parts between which the queue may change.
// It needs no index, which keeps the table small, and memory only for its results.
type Scan struct {
	at    int64
	after upcoming
	first firsts
	memo  memo
}

// NewScan returns a search for the n jobs, at least one, that fall due first at a moment or later,
// after a place in that order; the zero Upcoming is the beginning.
func NewScan(at time.Time, after engine.Upcoming, n int) *Scan {
	s := &Scan{at: at.UnixNano(), after: upcoming{next: math.MinInt64}, first: firsts{n: n}}
	if !after.Next.IsZero() {
		s.after = upcoming{after.Next.UnixNano(), after.Job}
	}
	return s
}

// Parts returns how many parts a search has.
func (t *Queue) Parts() int { return (len(t.entries) + sliceMax - 1) / sliceMax }

// Scan searches one part of the jobs.
func (t *Queue) Scan(s *Scan, part int) {
	latest := s.first.latest()
	for i := part * sliceMax; i < min((part+1)*sliceMax, len(t.entries)); i++ {
		next := t.nextAfter(uint32(i), s.at, &s.memo)
		if next > latest {
			continue // most of them
		}
		if uid := &t.entries[i].uid; next != never && s.after.before(next, uid) {
			s.first.add(next, uid)
			latest = s.first.latest()
		}
	}
}

// Found returns the results of a search, in order.
func (s *Scan) Found() []engine.Upcoming {
	list := make([]engine.Upcoming, len(s.first.heap))
	for i, u := range s.first.heap {
		list[i] = engine.Upcoming{Next: time.Unix(0, u.next), Job: u.job}
	}
	slices.SortFunc(list, engine.Upcoming.Compare)
	return list
}

// nextAfter returns the first due time of an entry at a moment or later. The entry itself has the
// first unplanned occurrence: occurrences planned ahead may come before it, and unplanned ones may
// be past.
func (t *table) nextAfter(i uint32, at int64, memo *memo) int64 {
	if e := &t.entries[i]; e.cursor < at && e.next >= at {
		return e.next
	}
	return t.search(i, at, memo)
}

// search finds it in the schedule.
func (t *table) search(i uint32, at int64, memo *memo) int64 {
	e := &t.entries[i]
	if e.uid.IsZero() || t.timings[e.timing].broken != "" {
		return never
	}
	return memo.next(&t.timings[e.timing], e.timing, at)
}

// memo caches a timing's answer about one moment, since many jobs share it. A nil memo
// caches nothing.
type memo struct {
	known []answer // by the number of the timing
}

type answer struct {
	text string // text of the timing, whose number may be reused
	next int64
}

func (m *memo) next(t *timing, number uint32, at int64) int64 {
	if m != nil && int(number) < len(m.known) && m.known[number].text == t.text {
		return m.known[number].next
	}
	next := int64(never)
	if o := t.engine.Schedule.Next(time.Unix(0, at-1)); !o.IsZero() {
		next = o.UnixNano()
	}
	if m != nil {
		if missing := int(number) + 1 - len(m.known); missing > 0 {
			m.known = append(m.known, make([]answer, missing)...)
		}
		m.known[number] = answer{t.text, next}
	}
	return next
}

// upcoming is an [engine.Upcoming] as the table has it.
type upcoming struct {
	next int64
	job  job.ID
}

// before reports whether u comes before a job and its moment.
func (u *upcoming) before(next int64, uid *job.ID) bool {
	if u.next != next {
		return u.next < next
	}
	return bytes.Compare(u.job[:], uid[:]) < 0
}

// firsts keeps the first n of the added items, as a heap with the last of them on top.
type firsts struct {
	n    int
	heap []upcoming
}

// latest returns the moment beyond which nothing is added any more.
func (f *firsts) latest() int64 {
	if len(f.heap) < f.n {
		return never
	}
	return f.heap[0].next
}

func (f *firsts) add(next int64, uid *job.ID) {
	if len(f.heap) == f.n {
		if f.heap[0].before(next, uid) {
			return
		}
		f.heap[0] = upcoming{next, *uid}
		f.sink(0)
		return
	}
	f.heap = append(f.heap, upcoming{next, *uid})
	if len(f.heap) == f.n {
		for i := f.n/2 - 1; i >= 0; i-- {
			f.sink(i)
		}
	}
}

// sink moves an item down until none below it comes after it.
func (f *firsts) sink(i int) {
	for {
		last := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(f.heap); child++ {
			if f.heap[last].before(f.heap[child].next, &f.heap[child].job) {
				last = child
			}
		}
		if last == i {
			return
		}
		f.heap[i], f.heap[last] = f.heap[last], f.heap[i]
		i = last
	}
}
