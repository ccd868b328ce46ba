package planqueue

import (
	"math"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/timer"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// table holds a planner's jobs: compact, for a million jobs, and without pointers for the
// garbage collector. Jobs with equal schedules share their compiled timing; a million real
// jobs have some thousand distinct ones.
type table struct {
	entries []entry
	free    []uint32 // entries without a job
	byUID   map[job.ID]uint32
	sums    [job.Partitions]store.PartitionSummary
	timings []timing
	unused  []uint32 // timings without a job
	byText  map[string]uint32
	// due holds the entries by the moment of their next occurrence. An entry may be in it more than
	// once; only the copy at its next counts.
	due timer.Queue
	// waitForRoom are the entries that wait for room in the backlog, and are not in due.
	waitForRoom []uint32
	// catchUp is the end of the catch-up of an entry, while it takes several decisions.
	catchUp map[uint32]time.Time
	// paces are the paces of entries with serial runs during their catch-up.
	paces map[uint32]*pace
	// parked are the entries that began to wait for the end of a run, by time, and parkedNow is how
	// many still wait.
	parked    []waiter
	parkedNow int
}

type entry struct {
	uid     job.ID
	epoch   int64
	version int64
	cursor  int64 // the latest planned scheduled time, in nanoseconds
	next    int64 // the next occurrence; never if there is none
	planned uint32
	timing  uint32
}

// never is the next occurrence of a job that has none.
const never = math.MaxInt64

// timing is shared by the jobs with one text.
type timing struct {
	text   string
	jobs   int // that share it
	engine engine.Timing
	where  engine.Whereabouts
	broken string // the compile error; such jobs are not planned
}

func newTable() table {
	return table{byUID: map[job.ID]uint32{}, byText: map[string]uint32{}, catchUp: map[uint32]time.Time{}, paces: map[uint32]*pace{}}
}

// put makes the table agree with a job as the store has it.
func (t *table) put(j store.PlannedJob, compile func(text string) timing) {
	i, known := t.byUID[j.UID]
	if !j.Active || j.Deleted {
		if known {
			t.remove(i)
		}
		return
	}
	if known && t.agrees(i, j) {
		return // an entry is queued once: the queue drops none before it is due
	}
	if !known {
		i = t.add(j.UID)
		t.entries[i].timing = t.share(j.Timing, compile)
	} else if t.timings[t.entries[i].timing].text != j.Timing {
		t.release(t.entries[i].timing)
		t.entries[i].timing = t.share(j.Timing, compile)
	}
	delete(t.catchUp, i) // it may have another policy
	t.forgetPace(i)
	e := &t.entries[i]
	t.sums[job.Partition(j.UID)].Versions += j.Version - e.version
	e.epoch, e.version = j.Epoch, j.Version
	e.cursor, e.planned = j.Cursor.UnixNano(), uint32(j.Planned)
	t.schedule(i)
}

// agrees reports whether an entry is as the store has its job.
func (t *table) agrees(i uint32, j store.PlannedJob) bool {
	e := &t.entries[i]
	return e.epoch == j.Epoch && e.version == j.Version && e.cursor == j.Cursor.UnixNano() && e.planned == uint32(j.Planned) &&
		t.timings[e.timing].text == j.Timing
}

// timingOf returns the timing of an entry.
func (t *table) timingOf(i uint32) *engine.Timing { return &t.timings[t.entries[i].timing].engine }

// add makes an entry for a job.
func (t *table) add(uid job.ID) uint32 {
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = uint32(len(t.entries))
		t.entries = append(t.entries, entry{})
	}
	t.entries[i] = entry{uid: uid}
	t.byUID[uid] = i
	t.sums[job.Partition(uid)].Jobs++
	return i
}

func (t *table) remove(i uint32) {
	e := &t.entries[i]
	t.release(e.timing)
	delete(t.byUID, e.uid)
	delete(t.catchUp, i)
	t.forgetPace(i)
	sum := &t.sums[job.Partition(e.uid)]
	sum.Jobs, sum.Versions = sum.Jobs-1, sum.Versions-e.version
	t.entries[i] = entry{next: never}
	t.free = append(t.free, i)
}

// share returns the timing of a text, compiled once.
func (t *table) share(text string, compile func(string) timing) uint32 {
	if i, ok := t.byText[text]; ok {
		t.timings[i].jobs++
		return i
	}
	compiled := compile(text)
	compiled.text, compiled.jobs = text, 1
	var i uint32
	if n := len(t.unused); n > 0 {
		i, t.unused = t.unused[n-1], t.unused[:n-1]
		t.timings[i] = compiled
	} else {
		i = uint32(len(t.timings))
		t.timings = append(t.timings, compiled)
	}
	t.byText[text] = i
	return i
}

// release drops a reference to a timing.
func (t *table) release(i uint32) {
	if t.timings[i].jobs--; t.timings[i].jobs == 0 {
		delete(t.byText, t.timings[i].text)
		t.timings[i] = timing{}
		t.unused = append(t.unused, i)
	}
}

// schedule finds the next occurrence of an entry and queues it.
func (t *table) schedule(i uint32) {
	e := &t.entries[i]
	e.next = never
	tm := &t.timings[e.timing]
	if tm.broken != "" {
		return
	}
	next := tm.engine.Schedule.Next(time.Unix(0, e.cursor))
	switch most := tm.engine.MaxRuns; {
	case !next.IsZero() && (most == 0 || int(e.planned) < most):
		e.next = next.UnixNano()
	case tm.engine.Planned:
		e.next = e.cursor // reports at once that the job is completed
	default:
		return
	}
	t.due.Push(e.next, i)
}

// progress returns how far an entry is planned.
func (t *table) progress(i uint32) engine.Progress {
	e := &t.entries[i]
	return engine.Progress{Cursor: time.Unix(0, e.cursor), Planned: int(e.planned), CatchUp: t.catchUp[i]}
}

// keepCatchUp sets the end of the catch-up of an entry; the zero time removes it.
func (t *table) keepCatchUp(i uint32, until time.Time) {
	if until.IsZero() {
		delete(t.catchUp, i)
	} else {
		t.catchUp[i] = until
	}
}

// rebuild queues all entries anew. The queue only moves forward, so that it must be renewed when
// the wall clock is set back.
func (t *table) rebuild() {
	t.due, t.waitForRoom = timer.Queue{}, nil
	t.paces, t.parked, t.parkedNow = map[uint32]*pace{}, nil, 0
	for i := range t.entries {
		if e := &t.entries[i]; e.next != never {
			t.due.Push(e.next, uint32(i))
		}
	}
}
