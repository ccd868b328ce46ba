package sqldb

import (
	"bytes"
	"maps"
	"slices"
	"sync"

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
	mu   sync.Mutex
	runs map[job.ID]knownRun
}

// knownRun is a run in the slot of its job itself.
type knownRun struct {
	job job.ID
	due int64 // as it was
}

func (k *knownRuns) put(id, uid job.ID, due int64) {
	if k.runs == nil {
		k.runs = map[job.ID]knownRun{}
	}
	for old := range k.runs { // any will do
		if len(k.runs) < knownMax {
			break
		}
		delete(k.runs, old)
	}
	k.runs[id] = knownRun{uid, due}
}

// learn remembers runs as a step leaves them.
func (k *knownRuns) learn(lists ...[]*store.Run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, list := range lists {
		for _, r := range list {
			if columns.IsOwnSlot(r.Slot, r.JobUID) {
				k.put(r.ID, r.JobUID, columns.Nanos(r.Due))
			} else {
				delete(k.runs, r.ID)
			}
		}
	}
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
	until int64             // the latest due time of the runs
	runs  []job.ID          // those to read besides
}

// foresee returns nil if it has to be looked for what a step is about.
func (s *Store) foresee(a *about) *foreseen {
	if len(a.edits) > 0 || len(a.pools) > 0 || a.reaps {
		return nil
	}
	uids := make(map[job.ID]bool, len(a.jobs)+len(a.runs))
	for _, uid := range a.jobs {
		uids[uid] = true
	}
	f := &foreseen{}
	if len(a.runs) > 0 && !s.foreseeRuns(a, f, uids) {
		return nil
	}
	f.jobs = slices.AppendSeq(make([]job.ID, 0, len(uids)), maps.Keys(uids))
	slices.SortFunc(f.jobs, func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
	return f
}

func (s *Store) foreseeRuns(a *about, f *foreseen, uids map[job.ID]bool) bool {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	slots := make(map[job.ID]bool, len(a.runs))
	for _, id := range a.runs {
		run, ok := s.known.runs[id]
		if !ok {
			return false
		}
		uids[run.job] = true
		if d := s.jobs.documents[run.job]; d != nil && readsSlot(d.policy) {
			slots[run.job] = true
			f.until = max(f.until, run.due)
		} else {
			f.runs = append(f.runs, id)
		}
	}
	f.named = make(map[string]job.ID, len(uids))
	for uid := range uids {
		d := s.jobs.documents[uid]
		if d == nil || d.policy.Pool != "" || s.jobs.followed[uid] {
			return false
		}
		f.named[d.filled.FullName()] = uid
	}
	f.few = !s.jobs.many
	f.slots = slices.Collect(maps.Keys(slots))
	return true
}

// readsSlot tells whether the runs of a job are read with all in its slot.
func readsSlot(p *engine.Policy) bool { return p.Overlap != job.OverlapAllow && !p.Broadcast }
