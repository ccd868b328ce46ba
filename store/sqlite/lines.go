package sqlite

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// lines are all unfinished runs by state and session, in the order of due time and
// id: what nodes ask for all the time, and what each claim changes. In the file it
// would be an index that takes a fifth of the writer's time, and more of the log.
// They say what is committed: the writer, who alone changes them, does so behind each
// commit and before it is answered. What is read by them from the file may have gone
// on a moment before or after.
type lines struct {
	mu sync.RWMutex
	of map[line]*runsInLine
}

// line is a state and a session, the zero id for runs that must be placed.
type line struct {
	state   job.RunState
	session job.ID
}

// place is where a run stands, and what a node reads of it to claim it. The zero
// place is nowhere.
type place struct {
	line
	due               int64
	attempt, priority int
}

func placeOf(r *store.Run) place {
	return place{line{r.State, r.Session}, columns.Nanos(r.Due), r.Attempt, r.Priority}
}

// move is a run that a step has moved, made or removed.
type move struct {
	id, job  job.ID
	from, to place
}

// inLine is a run in its line.
type inLine struct {
	due               int64
	id, job           job.ID
	attempt, priority int32
}

func (r *inLine) compare(due int64, id job.ID) int {
	return cmp.Or(cmp.Compare(r.due, due), bytes.Compare(r.id[:], id[:]))
}

func (r *inLine) ref() store.RunRef {
	return store.RunRef{Due: columns.FromNanos(r.due), ID: r.id}
}

// readLines reads where all runs stand.
func readLines(c *conn) (*lines, error) {
	l := &lines{of: map[line]*runsInLine{}}
	q := c.stmt("select id, job, state, session, due, attempt, priority from active")
	for q.next() {
		m := move{id: q.id(), job: q.id()}
		m.to.state, m.to.session = columns.States.Value(q.int()), q.id()
		m.to.due, m.to.attempt, m.to.priority = q.int(), int(q.int()), int(q.int())
		l.move([]move{m})
	}
	return l, q.err()
}

// move makes the moves of a call.
func (l *lines) move(moves []move) {
	if len(moves) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range moves {
		m := &moves[i]
		if from := l.of[m.from.line]; from != nil {
			from.remove(m.from.due, m.id)
			if len(from.chunks) == 0 {
				delete(l.of, m.from.line)
			}
		}
		if m.to.state == "" {
			continue
		}
		to := l.of[m.to.line]
		if to == nil {
			to = &runsInLine{}
			l.of[m.to.line] = to
		}
		to.add(inLine{m.to.due, m.id, m.job, int32(m.to.attempt), int32(m.to.priority)})
	}
}

// sessions returns those that have runs in a state, in order.
func (l *lines) sessions(state job.RunState) (ids []job.ID) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for of := range l.of {
		if of.state == state {
			ids = append(ids, of.session)
		}
	}
	slices.SortFunc(ids, func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// has tells whether there are runs in a line.
func (l *lines) has(of line) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.of[of] != nil
}

// runs returns the first runs of a line that are behind a place and due until a
// moment, at most limit.
func (l *lines) runs(of line, after store.RunRef, until int64, limit int) (list []inLine) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if of := l.of[of]; of != nil {
		list = of.behind(after, until, limit)
	}
	return list
}

// due counts the runs in a state that are due until a moment, by session, each up to a
// limit.
func (l *lines) due(state job.RunState, until int64, limit int) map[job.ID]int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	counts := map[job.ID]int{}
	for of, runs := range l.of {
		if of.state != state {
			continue
		}
		if n := min(limit, runs.until(until)); n > 0 {
			counts[of.session] = n
		}
	}
	return counts
}

// ready returns what a node reads of its runs.
func (l *lines) ready(session job.ID, after store.RunRef, until int64, limit int) []store.ReadyRun {
	runs := l.runs(line{job.StateReady, session}, after, until, limit)
	list := make([]store.ReadyRun, len(runs))
	for i := range runs {
		r := &runs[i]
		list[i] = store.ReadyRun{RunRef: r.ref(), Job: r.job, Session: session, Attempt: int(r.attempt), Priority: int(r.priority)}
	}
	return list
}

// all returns the first runs of several lines that are behind a place, at most
// limit.
func (l *lines) all(of []line, after store.RunRef, limit int) (list []inLine) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, of := range of {
		if of := l.of[of]; of != nil {
			list = append(list, of.behind(after, math.MaxInt64, limit)...)
		}
	}
	if len(of) > 1 {
		slices.SortFunc(list, func(a, b inLine) int { return a.compare(b.due, b.id) })
	}
	return list[:min(limit, len(list))]
}

// chunkMax is how many runs lie together: moving half of so many makes room for one
// in a hundred nanoseconds, and a line of 400,000 has some thousand chunks.
const chunkMax = 256

// runsInLine are the runs of a line, in chunks that are never empty.
type runsInLine struct {
	chunks [][]inLine
}

// find returns where a run is, or would be.
func (l *runsInLine) find(due int64, id job.ID) (chunk, i int, found bool) {
	chunk = sort.Search(len(l.chunks), func(i int) bool {
		c := l.chunks[i]
		return c[len(c)-1].compare(due, id) >= 0
	})
	if chunk < len(l.chunks) {
		i, found = sort.Find(len(l.chunks[chunk]), func(i int) int { return -l.chunks[chunk][i].compare(due, id) })
	}
	return chunk, i, found
}

func (l *runsInLine) add(r inLine) {
	chunk, i, found := l.find(r.due, r.id)
	if found {
		l.chunks[chunk][i] = r
		return
	}
	if chunk == len(l.chunks) && chunk > 0 && len(l.chunks[chunk-1]) < chunkMax {
		chunk--
		i = len(l.chunks[chunk])
	}
	if chunk == len(l.chunks) {
		l.chunks = append(l.chunks, append(make([]inLine, 0, chunkMax), r))
		return
	}
	if c := l.chunks[chunk]; len(c) == chunkMax {
		const half = chunkMax / 2
		l.chunks = slices.Insert(l.chunks, chunk+1, append(make([]inLine, 0, chunkMax), c[half:]...))
		l.chunks[chunk] = c[:half]
		if i > half {
			chunk, i = chunk+1, i-half
		}
	}
	l.chunks[chunk] = slices.Insert(l.chunks[chunk], i, r)
}

func (l *runsInLine) remove(due int64, id job.ID) {
	chunk, i, found := l.find(due, id)
	if !found {
		return
	}
	c := slices.Delete(l.chunks[chunk], i, i+1)
	l.chunks[chunk] = c
	if len(c) == 0 {
		l.chunks = slices.Delete(l.chunks, chunk, chunk+1)
	} else if next := chunk + 1; next < len(l.chunks) && len(c)+len(l.chunks[next]) <= chunkMax/2 {
		l.chunks[chunk] = append(c, l.chunks[next]...)
		l.chunks = slices.Delete(l.chunks, next, next+1)
	}
}

// until returns how many runs are due until a moment.
func (l *runsInLine) until(moment int64) (n int) {
	for _, c := range l.chunks {
		if c[len(c)-1].due > moment {
			return n + sort.Search(len(c), func(i int) bool { return c[i].due > moment })
		}
		n += len(c)
	}
	return n
}

// behind returns the first runs behind a place and due until a moment.
func (l *runsInLine) behind(after store.RunRef, until int64, limit int) (list []inLine) {
	due := int64(math.MinInt64)
	if !after.Due.IsZero() {
		due = columns.Nanos(after.Due)
	}
	chunk, i, found := l.find(due, after.ID)
	if found {
		i++
	}
	for ; chunk < len(l.chunks) && len(list) < limit; chunk, i = chunk+1, 0 {
		c := l.chunks[chunk][i:]
		c = c[:min(len(c), limit-len(list))]
		if n := len(c); n > 0 && c[n-1].due > until {
			end := sort.Search(n, func(i int) bool { return c[i].due > until })
			return append(list, c[:end]...)
		}
		list = append(list, c...)
	}
	return list
}
