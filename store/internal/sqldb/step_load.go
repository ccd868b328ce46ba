package sqldb

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// load reads the runs that a step is about, and those around them, and adds them.
func (st *step) load(a *about) error {
	if err := st.addPools(); err != nil {
		return err
	}
	w := &wanted{keys: map[string]bool{}, own: map[job.ID]bool{}, whole: map[job.ID]bool{}}
	for _, name := range a.pools {
		w.keys[engine.PoolSlot(name)] = true
	}
	for _, uid := range a.whole {
		if l := st.jobs[uid]; l != nil && (l.Policy.MaxRuns > 0 || l.Policy.DeleteAfter >= 0) {
			w.whole[uid] = true
		}
	}
	given, err := st.given(a.runs)
	if err != nil {
		return err
	}
	if len(a.edits) > 0 {
		list, err := st.tx.runs("select "+activeColumns+" from active a where a.job in (?*) and a.state = ? order by a.due, a.id",
			set(slices.Collect(maps.Keys(a.edits))), columns.States.Of(job.StateWaiting))
		if err != nil {
			return err
		}
		given = append(given, pointers(list)...)
	}
	for _, r := range given {
		l, locked := st.jobs[r.JobUID]
		if !locked {
			continue // made since: it was not there when the step began
		}
		if l == nil {
			if err := st.nameOf(r); err != nil {
				return err
			}
			w.slot(r.Slot, r)
		} else {
			w.around(r, l, cmp.Or(a.node, r.Node))
			if policy := a.edits[r.JobUID]; policy != nil {
				w.slot(r.Slot, r)
				w.slot(policy.SlotKey(&r.Run, r.Node), r)
			}
		}
		st.addRun(r)
		st.runs[r.ID] = r
	}
	for uid, policy := range a.edits {
		if l := st.jobs[uid]; l != nil && (l.Policy.NeedsPrevious || policy.NeedsPrevious || l.Policy.MaxRuns > 0 || policy.MaxRuns > 0 ||
			l.Policy.LateBy != policy.LateBy) {
			w.whole[uid] = true
		}
	}
	return st.loadWanted(w)
}

const selectGiven = "select " + activeColumns + " from active a " + byKey + "where a.id in (?*)"

// given returns the runs that a step is about, by due time and id. Those that were
// read with the locks are not read again.
func (st *step) given(ids []job.ID) ([]*store.Run, error) {
	missing := make(map[job.ID]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}
	list := make([]*store.Run, 0, len(ids))
	others := st.ahead.runs[:0]
	for _, r := range st.ahead.runs {
		if missing[r.ID] {
			list = append(list, r)
			delete(missing, r.ID)
		} else {
			others = append(others, r)
		}
	}
	sortRuns(others)
	st.ahead.runs = others
	if len(missing) > 0 {
		more, err := st.tx.runs(selectGiven, set(slices.Collect(maps.Keys(missing))))
		if err != nil {
			return nil, err
		}
		list = append(list, pointers(more)...)
	}
	sortRuns(list)
	return list, nil
}

func sortRuns(list []*store.Run) {
	slices.SortFunc(list, func(a, b *store.Run) int { return cmp.Or(a.Due.Compare(b.Due), bytes.Compare(a.ID[:], b.ID[:])) })
}

// addPools adds the sizes of the pools that are locked.
func (st *step) addPools() error {
	if len(st.pools) == 0 {
		return nil
	}
	list, err := documentsOf[job.Pool](st.tx, job.KindPool)
	if err != nil {
		return err
	}
	for _, p := range list {
		st.b.AddPool(p.FullName(), p.Slots.Size)
	}
	return nil
}

// wanted is what must be read because of the runs that a step is about.
type wanted struct {
	keys  map[string]bool // slots that are not those of jobs themselves
	own   map[job.ID]bool // jobs whose own slots are wanted
	whole map[job.ID]bool // jobs all of whose runs are
	until time.Time       // the latest due time of the runs
}

func (w *wanted) slot(key string, r *store.Run) {
	if columns.IsOwnSlot(key, r.JobUID) {
		w.own[r.JobUID] = true
	} else {
		w.keys[key] = true
	}
	if r.Due.After(w.until) {
		w.until = r.Due
	}
}

// around adds what a decision that may end a run needs to know besides.
func (w *wanted) around(r *store.Run, l *loadedJob, node string) {
	p := l.Policy
	if p.Contends(r) {
		w.slot(r.Slot, r)
		w.slot(p.SlotKey(&r.Run, node), r)
	}
	if p.NeedsPrevious || p.DeleteAfter >= 0 || p.MaxRuns > 0 && p.PauseOnFailure > 0 {
		w.whole[r.JobUID] = true
	}
}

const (
	// slotMax is how many runs of slots are read at once, and slotShare how many
	// more for each of several: more than a job that is due each second has
	// planned. Of slots with more only those runs are read that decisions look
	// at.
	slotMax   = 4 * store.MaxBatch
	slotShare = 40

	ofOwnSlots = " from active a where a.slot = '' and a.job in (?*)"
	ofSlots    = " from active a where a.slot in (?*)"
	inOrder    = " order by a.due, a.id limit ?"
	// mayMatter leaves out what is planned for later: a run that was not claimed
	// yet, and is due after those that the step is about.
	mayMatter = " and (a.holds = 1 or a.state <> ? or a.due <= ?)"
)

func (st *step) loadWanted(w *wanted) error {
	for key := range w.keys {
		if pool, ok := strings.CutPrefix(key, engine.PoolSlot("")); ok && !st.pools[pool] {
			return errAgain
		}
	}
	if err := st.loadWhole(w.whole); err != nil {
		return err
	}
	if err := st.addRuns(st.ahead.runs...); err != nil {
		return err
	}
	st.ahead.runs = nil
	if !w.until.After(st.ahead.until) {
		for uid := range st.ahead.slots {
			delete(w.own, uid)
		}
	}
	uids, keys := slices.Collect(maps.Keys(w.own)), slices.Collect(maps.Keys(w.keys))
	if len(uids) > 0 {
		whole, err := st.loadSlots(ofOwnSlots, set(uids), len(uids), w.until)
		if err != nil {
			return err
		}
		for i := 0; !whole && i < len(uids); i++ {
			if err := st.loadLongSlot(ofOwnSlots, set(uids[i:i+1]), uids[i].String()); err != nil {
				return err
			}
		}
	}
	if len(keys) > 0 {
		whole, err := st.loadSlots(ofSlots, keys, len(keys), w.until)
		if err != nil {
			return err
		}
		for i := 0; !whole && i < len(keys); i++ {
			if err := st.loadLongSlot(ofSlots, keys[i:i+1], keys[i]); err != nil {
				return err
			}
		}
	}
	for uid := range w.whole {
		delete(st.split, uid)
	}
	return st.loadWhole(st.split)
}

// loadWhole adds all unfinished runs of jobs.
func (st *step) loadWhole(jobs map[job.ID]bool) error {
	if len(jobs) == 0 {
		return nil
	}
	list, err := st.tx.runs("select "+activeColumns+" from active a where a.job in (?*) order by a.due, a.id", set(slices.Collect(maps.Keys(jobs))))
	if err != nil {
		return err
	}
	return st.addRuns(pointers(list)...)
}

// loadSlots adds the runs that hold slots, wait for them, or are ready for them
// before the runs that the step is about. It tells whether that were all.
func (st *step) loadSlots(from string, slots any, n int, until time.Time) (whole bool, err error) {
	limit := slotMax + slotShare*n
	list, err := st.tx.runs("select "+activeColumns+from+mayMatter+inOrder, slots, columns.States.Of(job.StateReady), columns.Nanos(until), int64(limit))
	if err != nil || len(list) == limit {
		return false, err
	}
	return true, st.addRuns(pointers(list)...)
}

// loadLongSlot adds of a slot all runs that hold it, and the first of those that
// wait for it or are ready.
func (st *step) loadLongSlot(from string, slot any, key string) error {
	list, err := st.tx.runs("select "+activeColumns+from+" and a.holds = 1", slot)
	if err != nil {
		return err
	}
	if err := st.addRuns(pointers(list)...); err != nil {
		return err
	}
	for _, state := range []job.RunState{job.StateWaiting, job.StateReady} {
		list, err := st.tx.runs("select "+activeColumns+from+" and a.state = ? and a.holds = 0"+inOrder, slot, columns.States.Of(state), int64(store.MaxBatch))
		if err != nil {
			return err
		}
		if err := st.addRuns(pointers(list)...); err != nil {
			return err
		}
	}
	waiting, err := st.number("select count(*)"+from+" and a.state = ? and a.holds = 0 and a.awaits = 0 and a.overlap = 0", slot, columns.States.Of(job.StateWaiting))
	if err != nil {
		return err
	}
	st.b.MoreWaiting(key, int(waiting)-st.waiting[key])
	return nil
}

// addRuns adds runs around those that the step is about. One of a job that is not
// locked was made in a pool since, and can only be ready; if it is more than that,
// the step has to be made again with its job.
func (st *step) addRuns(list ...*store.Run) error {
	for _, r := range list {
		l, locked := st.jobs[r.JobUID]
		switch {
		case !locked && (r.HoldsSlot || r.State != job.StateReady):
			return errAgain
		case !locked:
			continue
		case l == nil:
			if err := st.nameOf(r); err != nil {
				return err
			}
		}
		st.addRun(r)
	}
	return nil
}

func (st *step) addRun(r *store.Run) {
	l := st.jobs[r.JobUID]
	if l != nil {
		r.Namespace, r.Name = l.Namespace, l.Name
	}
	if st.b.HasRun(r.ID) {
		return
	}
	if l != nil && r.Shards > 0 && l.Policy.WantsShards(st.followed[l.FullName()]) {
		st.split[l.UID] = true
	}
	if r.State == job.StateWaiting && r.Overlap == "" && !r.AwaitsPrevious && !r.HoldsSlot {
		st.waiting[r.Slot]++
	}
	st.b.AddRun(r)
}

// nameOf gives a run the name of its job, which is not there, from the list of
// names.
func (st *step) nameOf(r *store.Run) error {
	name, known := st.names[r.JobUID]
	if !known {
		q := st.query("select namespace, name from names where uid = ?", idOf(r.JobUID))
		for q.Next() {
			name = [2]string{q.Text(), q.Text()}
		}
		if err := q.Err(); err != nil {
			return err
		}
		st.names[r.JobUID] = name
	}
	r.Namespace, r.Name = name[0], name[1]
	return nil
}

// addKeys adds those identities to the batch that are taken.
func (st *step) addKeys(list []engine.Identity) error {
	var jobs []job.ID
	var keys []string
	for _, id := range list {
		jobs = append(jobs, id.Job)
		keys = append(keys, clean(id.Key))
	}
	wanted := make(map[engine.Identity]engine.Identity, len(list))
	for _, id := range list {
		stored := id
		stored.Key = clean(id.Key)
		wanted[stored] = id
	}
	q := st.query("select job, kind, request, shard, run from request_keys where job in (?*) and request in (?*) and expires > ?",
		set(jobs), keys, columns.Nanos(st.b.Now()))
	for q.Next() {
		stored := engine.Identity{Job: q.id(), Kind: columns.Kinds.Value(q.Int()), Key: q.Text(), Shard: int(q.Int())}
		run := q.id()
		if id, ok := wanted[stored]; ok {
			st.b.AddKey(id, run)
		}
	}
	return q.Err()
}

// addRecords adds the records of runs, with what a late report may change.
func (st *step) addRecords(runs []job.ID) error {
	if len(runs) == 0 {
		return nil
	}
	list, err := st.records(selectRecordsOf, set(runs))
	if err != nil {
		return err
	}
	w := &wanted{whole: map[job.ID]bool{}}
	for i := range list {
		r := &list[i]
		st.b.AddRecord(r)
		switch l, locked := st.jobs[r.Run.JobUID]; {
		case !locked:
			return errAgain // it has ended since the step began
		case l != nil && l.Policy.NeedsPrevious:
			w.whole[l.UID] = true
		}
	}
	return st.loadWanted(w)
}

// missing returns those of some runs that are over, or never were.
func (st *step) missing(runs []job.ID) (list []job.ID) {
	for _, id := range runs {
		if _, ok := st.runs[id]; !ok {
			list = append(list, id)
		}
	}
	return list
}
