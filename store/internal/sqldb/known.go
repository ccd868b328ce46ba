package sqldb

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// knownMax is how many runs are remembered, at about a hundred bytes each: those
// that a busy node plans within a look-ahead.
const knownMax = 1 << 17

// knownRuns remembers the jobs of runs that were read or written. Nothing is decided
// by it: it only says what to lock and read. The zero value is ready for use.
type knownRuns struct {
	mu      sync.Mutex
	runs    map[job.ID]knownRun
	written map[job.ID]writtenRun
	// rests is until when what is ready is not guessed.
	rests time.Time
}

// knownRun is a run in the slot of its job itself.
type knownRun struct {
	job job.ID
	due int64 // as it was
}

// writtenMax is how many runs are remembered as this process has written them, at about
// 700 bytes each: those that a busy node has running, and plans for itself within a
// look-ahead.
const writtenMax = 1 << 15

// writtenRun is a run as it was written, if that was committed, until somebody writes it
// again.
type writtenRun struct {
	run *store.Run // not changed any more
	stamp
}

// guessRest is how long nothing that is ready is guessed after a guess was wrong: others
// claim what is this node's, and a wrong guess costs as much as some right ones save.
const guessRest = 2 * time.Second

// rest is for a guess that was wrong.
func (k *knownRuns) rest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rests = time.Now().Add(guessRest)
}

// asWritten reads ids of runs with the stamps that are on them. It returns those that are
// as this process has written them, and the others.
func (k *knownRuns) asWritten(q reader, era int64) (list []*store.Run, others []job.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for q.Next() {
		id, number := q.id(), uint32(q.Int())
		if w, ok := k.written[id]; ok && w.stamp == (stamp{number, era}) {
			r := *w.run
			list = append(list, &r)
		} else {
			others = append(others, id)
		}
	}
	return list, others
}

// readStamped reads the other runs in slots, and remembers them: who waits, or goes on, is
// there when the next of its job is claimed.
func (st *step) readStamped(ids []job.ID, left string) error {
	q := st.query("select "+activeColumns+", "+left+" from active a where a.id in (?*)", set(ids))
	list, numbers := make([]*store.Run, 0, len(ids)), make([]uint32, 0, len(ids))
	for q.Next() {
		r := &store.Run{}
		scanRun(q, r)
		list, numbers = append(list, r), append(numbers, uint32(q.Int()))
	}
	st.ahead.runs = append(st.ahead.runs, list...)
	k := &st.s.known
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range list {
		if isPlain(r) {
			was := *r
			k.remember(&was, stamp{numbers[i], st.stamp.era})
		}
	}
	return q.Err()
}

// stamp is that of a transaction. The zero value is none.
type stamp struct {
	number uint32
	era    int64
}

// remember keeps a run as it was written.
func (k *knownRuns) remember(r *store.Run, s stamp) {
	if k.written == nil {
		k.written = map[job.ID]writtenRun{}
	}
	makeRoomIn(k.written, writtenMax)
	k.written[r.ID] = writtenRun{r, s}
}

// doubt is for runs of which some may be otherwise than they were written.
func (k *knownRuns) doubt(ids []job.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		delete(k.written, id)
	}
}

// makeRoomIn sees to it that there is room for one more, any for any. A map that is not
// full is not gone through: to begin that takes longer than to add something.
func makeRoomIn[V any](m map[job.ID]V, most int) {
	if len(m) < most {
		return
	}
	for old := range m {
		delete(m, old)
		return
	}
}

func (k *knownRuns) put(id, uid job.ID, due int64) {
	if k.runs == nil {
		k.runs = map[job.ID]knownRun{}
	}
	makeRoomIn(k.runs, knownMax)
	k.runs[id] = knownRun{uid, due}
}

// learn remembers runs as a step leaves them: as a whole those that were written with a
// stamp and are for the session that the step is for.
func (st *step) learn(lists ...[]*store.Run) {
	k := &st.s.known
	stamped := st.stamp.number != 0 && !st.by.IsZero()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, list := range lists {
		for _, r := range list {
			own := columns.IsOwnSlot(r.Slot, r.JobUID)
			if own {
				k.put(r.ID, r.JobUID, columns.Nanos(r.Due))
			} else {
				delete(k.runs, r.ID)
			}
			if stamped && own && r.Session == st.by && isPlain(r) && st.jobs[r.JobUID] != nil {
				k.remember(asRead(r), st.stamp)
			} else {
				delete(k.written, r.ID)
			}
		}
	}
}

// isPlain tells whether a run has nothing that is changed a little by being written and
// read: texts that somebody else wrote, and parameters. Most have not.
func isPlain(r *store.Run) bool {
	return r.Kind == job.RunScheduled && len(r.Params) == 0 && r.Reason == "" && r.CancelBy == "" && r.CancelReason == ""
}

// asRead makes of a plain run, which a step has done with, what is read of it.
func asRead(r *store.Run) *store.Run {
	for _, t := range []*time.Time{&r.Scheduled, &r.Due, &r.LateAfter, &r.First, &r.Claimed, &r.FirstDue, &r.AlertAt} {
		*t = columns.FromNanos(columns.Nanos(*t))
	}
	return r
}

// learnReady remembers runs that somebody will claim.
func (k *knownRuns) learnReady(list []store.ReadyRun) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range list {
		k.put(list[i].ID, list[i].Job, columns.Nanos(list[i].Due))
	}
}

// forget is for runs that are over.
func (k *knownRuns) forget(list []*store.Run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range list {
		delete(k.runs, r.ID)
		delete(k.written, r.ID)
	}
}

// foreseen is what a step will lock and read, as far as this process remembers: so
// it can ask for all of it in one message. Where that was wrong the step is made
// again, and looks first.
type foreseen struct {
	jobs  []job.ID          // to lock, in order
	named map[string]job.ID // the same by full names, if runs may end
	few   bool              // all that is followed is read, and not looked up
	slots []job.ID          // those of them whose own slots are read
	// stamped is set when all runs of those are remembered: only the stamps are read of
	// what is in the slots.
	stamped bool
	until   int64    // the latest due time of the runs
	runs    []job.ID // those to read besides
	// guessed are those that need not be read: they are taken to be as this process has
	// written them, which is seen when they are written again.
	guessed map[job.ID]writtenRun
}

// foresee returns nil if it has to be looked for what a step is about. What was written
// in another era is not guessed.
func (t *tx) foresee(a *about, era int64) (*foreseen, error) {
	if t.looks || len(a.edits) > 0 || len(a.pools) > 0 || a.reaps {
		return nil, nil
	}
	f, unknown := t.s.foreseeKnown(a, era)
	if len(unknown) == 0 {
		return f, nil
	}
	// Their definitions are one message more. To look would be several.
	if _, err := t.documents(unknown); err != nil {
		return nil, err
	}
	f, _ = t.s.foreseeKnown(a, era)
	return f, nil
}

// foreseeKnown returns nil if too little is known: for lack of the definitions of some jobs,
// which it returns without their numbers, or of something else.
func (s *Store) foreseeKnown(a *about, era int64) (_ *foreseen, unknown map[job.ID]int64) {
	uids := make(map[job.ID]bool, len(a.jobs)+len(a.runs))
	for _, uid := range a.jobs {
		uids[uid] = true
	}
	f := &foreseen{}
	if len(a.runs) > 0 {
		if known, unknown := s.foreseeRuns(a, f, uids, era); !known {
			return nil, unknown
		}
	}
	f.jobs = slices.AppendSeq(make([]job.ID, 0, len(uids)), maps.Keys(uids))
	slices.SortFunc(f.jobs, func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
	return f, nil
}

func (s *Store) foreseeRuns(a *about, f *foreseen, uids map[job.ID]bool, era int64) (known bool, unknown map[job.ID]int64) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	slots := make(map[job.ID]bool, len(a.runs))
	f.guessed = make(map[job.ID]writtenRun, len(a.runs))
	f.stamped = true
	rests := time.Now().Before(s.known.rests)
	for _, id := range a.runs {
		run, ok := s.known.runs[id]
		if !ok {
			return false, nil
		}
		uids[run.job] = true
		w, ok := s.known.written[id]
		ok = ok && w.era == era
		if d := s.jobs.documents[run.job]; d != nil && readsSlot(d.policy) {
			slots[run.job] = true
			f.until = max(f.until, run.due)
			f.stamped = f.stamped && ok
		} else if ok && (w.run.State == job.StateRunning || !rests) {
			f.guessed[id] = w
		} else {
			f.runs = append(f.runs, id)
		}
	}
	f.named = make(map[string]job.ID, len(uids))
	for uid := range uids {
		switch d := s.jobs.documents[uid]; {
		case d == nil:
			if unknown == nil {
				unknown = map[job.ID]int64{}
			}
			unknown[uid] = 0
		case d.policy.Pool != "" || s.jobs.followed[uid]:
			return false, nil
		default:
			f.named[d.filled.FullName()] = uid
		}
	}
	f.few = !s.jobs.many
	f.slots = slices.Collect(maps.Keys(slots))
	return len(unknown) == 0, unknown
}

// readsSlot tells whether the runs of a job are read with all in its slot.
func readsSlot(p *engine.Policy) bool { return p.Overlap != job.OverlapAllow && !p.Broadcast }
