package ledger

import (
	"math"
	"slices"
	"time"

	"github.com/google/btree"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// RunIndex indexes the unfinished runs that a backend keeps in memory, by session and state, in the
// order of due time and id. There may be a hundred thousand of them, so that no periodic query may
// scan them all.
type RunIndex struct {
	shares map[share]*btree.BTreeG[runEntry]
}

// share is the set of a session's runs in one state.
type share struct {
	session job.ID
	state   job.RunState
}

func shareOf(r *store.Run) share { return share{r.Session, r.State} }

// runEntry is a run with its place, so that comparing fetches no run.
type runEntry struct {
	at  store.RunRef
	run *store.Run
}

// degree makes trees of some hundred thousand runs fast: measured for etcd and Redis.
const degree = 32

// Put adds a run. One with the same session, state and place is replaced.
func (x *RunIndex) Put(r *store.Run) {
	of := shareOf(r)
	tree := x.shares[of]
	if tree == nil {
		if x.shares == nil {
			x.shares = map[share]*btree.BTreeG[runEntry]{}
		}
		tree = btree.NewG(degree, func(a, b runEntry) bool { return a.at.Compare(b.at) < 0 })
		x.shares[of] = tree
	}
	tree.ReplaceOrInsert(runEntry{r.Ref(), r})
}

// Remove removes a run, as it was put.
func (x *RunIndex) Remove(r *store.Run) {
	of := shareOf(r)
	if tree := x.shares[of]; tree != nil {
		if tree.Delete(runEntry{at: r.Ref()}); tree.Len() == 0 {
			delete(x.shares, of)
		}
	}
}

// Ready returns the result of a query for ready runs.
func (x *RunIndex) Ready(q *store.ReadyQuery) (list []store.ReadyRun) {
	found := x.page(func(s share) bool { return s.state == job.StateReady && (q.Any || s.session == q.Session) }, q.After, q.Until, q.Limit, nil)
	list = slices.Grow(list, len(found))
	for _, r := range found {
		list = append(list, r.Ready())
	}
	return list
}

// Active returns copies of the runs that match a query. If it names a Run or Job, of are its runs.
func (x *RunIndex) Active(q *store.ActiveQuery, of []*store.Run) []store.Run {
	wanted := func(r *store.Run) bool {
		return (q.Run.IsZero() || r.ID == q.Run) && (q.Job.IsZero() || r.JobUID == q.Job) && (q.Namespace == "" || r.Namespace == q.Namespace)
	}
	in := func(s share) bool {
		return (q.State == "" || s.state == q.State) && (len(q.Sessions) == 0 || slices.Contains(q.Sessions, s.session) != q.Except)
	}
	var list []*store.Run
	if q.Run.IsZero() && q.Job.IsZero() {
		list = x.page(in, q.After, engine.EndOfSlot.Due, q.Limit, wanted)
	} else {
		for _, r := range of {
			if wanted(r) && in(shareOf(r)) && r.Ref().Compare(q.After) > 0 {
				list = append(list, r)
			}
		}
		list = firstRuns(list, q.Limit)
	}
	own := slices.Grow([]store.Run(nil), len(list))
	for _, r := range list {
		own = append(own, *r)
	}
	return own
}

// ReadyOf returns the ready runs of a session.
func (x *RunIndex) ReadyOf(session job.ID) []*store.Run {
	return x.page(func(s share) bool { return s == share{session, job.StateReady} }, store.RunRef{}, engine.EndOfSlot.Due, math.MaxInt, nil)
}

// Due returns the runs that are not running and due at a moment.
func (x *RunIndex) Due(now time.Time) []*store.Run {
	return x.page(func(s share) bool { return s.state != job.StateRunning }, store.RunRef{}, now, math.MaxInt, nil)
}

// Running returns a running run of a session, or nil.
func (x *RunIndex) Running(session job.ID) *store.Run {
	if tree := x.shares[share{session, job.StateRunning}]; tree != nil {
		first, _ := tree.Min()
		return first.run
	}
	return nil
}

// Backlog returns how many ready runs of each session are due, at most a limit of each.
func (x *RunIndex) Backlog(now time.Time, limit int) map[job.ID]int {
	backlog := map[job.ID]int{}
	for s := range x.shares {
		due := x.page(func(o share) bool { return o == s && s.state == job.StateReady }, store.RunRef{}, now, limit, nil)
		if len(due) > 0 {
			backlog[s.session] = len(due)
		}
	}
	return backlog
}

// page returns the first runs of some shares after a place that are due by a moment and meet a
// condition, if it is not nil.
func (x *RunIndex) page(in func(share) bool, after store.RunRef, until time.Time, limit int, wanted func(*store.Run) bool) (list []*store.Run) {
	for s, tree := range x.shares {
		if !in(s) {
			continue
		}
		had := len(list)
		tree.AscendGreaterOrEqual(runEntry{at: after}, func(p runEntry) bool {
			if p.at.Due.After(until) || len(list)-had == limit {
				return false
			}
			if p.at.Compare(after) > 0 && (wanted == nil || wanted(p.run)) {
				list = append(list, p.run)
			}
			return true
		})
	}
	return firstRuns(list, limit)
}

// firstRuns sorts runs, and cuts them at a limit.
func firstRuns(list []*store.Run, limit int) []*store.Run {
	slices.SortFunc(list, func(a, b *store.Run) int { return a.Ref().Compare(b.Ref()) })
	return list[:min(limit, len(list))]
}
