package planner

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
)

// sliceMax is how many entries are looked at while the lock is held: planning
// waits for some ten microseconds at a time, however many jobs there are.
const sliceMax = 4096

// NextAfter returns when a job falls due first at a moment or after it, as far as
// this node plans it; the zero time and false if it does not.
func (p *Planner) NextAfter(uid job.ID, at time.Time) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.table.byUID[uid]
	if !ok {
		return time.Time{}, false
	}
	next := p.table.nextAfter(i, at.UnixNano(), nil)
	if next == never {
		return time.Time{}, false
	}
	return time.Unix(0, next), true
}

// Upcoming returns the jobs that fall due first at a moment or after it: at most
// n of them, which is positive, in order, of those that come after a place in it;
// the zero Upcoming is the beginning. With one moment for all pages a job that
// does not change is on one of them. Those that fall due at no known time are not
// among them.
//
// It looks at all entries, but keeps no more than n and no index: the table stays
// as small as it is.
func (p *Planner) Upcoming(at time.Time, after engine.Upcoming, n int) []engine.Upcoming {
	place := upcoming{next: math.MinInt64}
	if !after.Next.IsZero() {
		place = upcoming{after.Next.UnixNano(), after.Job}
	}
	p.mu.Lock()
	parts := (len(p.table.entries) + sliceMax - 1) / sliceMax
	p.mu.Unlock()
	first := firsts{n: n}
	memo := &memo{}
	// By chance, since tables are often in some order: in the opposite one each
	// entry would be among the first when it is looked at.
	for _, i := range rand.Perm(parts) {
		p.scan(i*sliceMax, at.UnixNano(), place, &first, memo)
	}
	list := make([]engine.Upcoming, len(first.heap))
	for i, u := range first.heap {
		list[i] = engine.Upcoming{Next: time.Unix(0, u.next), Job: u.job}
	}
	slices.SortFunc(list, engine.Upcoming.Compare)
	return list
}

// scan looks at a slice of the entries.
func (p *Planner) scan(from int, at int64, after upcoming, first *firsts, memo *memo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	latest := first.latest()
	for i := from; i < min(from+sliceMax, len(p.table.entries)); i++ {
		next := p.table.nextAfter(uint32(i), at, memo)
		if next > latest {
			continue // most of them
		}
		if uid := &p.table.entries[i].uid; next != never && after.before(next, uid) {
			first.add(next, uid)
			latest = first.latest()
		}
	}
}

// nextAfter returns when an entry falls due first at a moment or after it. What it
// has is the first that is not planned yet: what is planned ahead is still to
// come, and what was not planned in time is over.
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

// memo remembers what a timing has answered about one moment, since many jobs
// share it. A nil memo remembers nothing.
type memo struct {
	known []answer // by the number of the timing
}

type answer struct {
	text string // of the timing: its number may be given to another one
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

// upcoming is an engine.Upcoming as the table has it.
type upcoming struct {
	next int64
	job  job.ID
}

// before tells whether u comes before a job and its moment.
func (u *upcoming) before(next int64, uid *job.ID) bool {
	if u.next != next {
		return u.next < next
	}
	return bytes.Compare(u.job[:], uid[:]) < 0
}

// firsts keeps the first n of what is added, as a heap with the last of them on
// top.
type firsts struct {
	n    int
	heap []upcoming
}

// latest returns the moment behind which nothing is added any more.
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

// sink moves an item down to where none below it comes after it.
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
