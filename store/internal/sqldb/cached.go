package sqldb

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// setCachedBy is written with the runs of jobs, under their locks.
const setCachedBy = "update job_state set cached_by = ? where uid in (?*)"

// caches reports whether steps use the cache.
func (s *backend) caches() bool { return s.db.Alone() || s.db.Caches() }

// mayUse reports whether the cached runs of a job may be used: on a shared database it is locked.
func (st *step) mayUse(uid job.ID) bool {
	_, locked := st.jobs[uid]
	return locked || st.s.db.Alone()
}

// addCached adds the cached runs in a job's own slot.
func (st *step) addCached(b *engine.Batch, s *engine.SlotNeed) error {
	if st.s.guard {
		if err := st.verify(s.Job); err != nil {
			return err
		}
	}
	list, ok := st.s.hot.ownSlot(s.Job, s.Until, b)
	if !ok {
		return errUnlocked // it has made room for other jobs since
	}
	return st.addAll(b, list)
}

// cache remembers what the step has written and, on a shared database, which process has the runs of
// each job in its cache.
func (st *step) cache(c *engine.Changes) error {
	if st.s.db.Alone() {
		st.s.hot.wrote(c)
		return nil
	}
	uids := st.uncertain
	for _, list := range [...][]*store.Run{c.Made, c.Saved, c.Removed} {
		for _, r := range list {
			uids = append(uids, r.JobUID)
		}
	}
	slices.SortFunc(uids, func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
	uids = slices.Compact(uids)
	st.uncertain = uids
	cached := st.s.hot.wroteOf(st, uids, c)
	var own, others []job.ID
	for _, uid := range uids {
		switch by := st.jobs[uid].cachedBy; {
		case by == st.s.process:
		case cached[uid]:
			own = append(own, uid)
		case by != 0:
			others = append(others, uid)
		}
	}
	if len(own) > 0 {
		if err := st.exec(setCachedBy, st.s.process, set(own)); err != nil {
			return err
		}
	}
	if len(others) > 0 {
		return st.exec(setCachedBy, int64(0), set(others))
	}
	return nil
}

// verify compares the cached runs in a job's own slot with the stored ones. It is for tests.
func (st *step) verify(uid job.ID) error {
	cached, ok := st.s.hot.ownSlot(uid, engine.EndOfSlot, engine.NewBatch(columns.Latest, 0, 0))
	if !ok {
		return errUnlocked
	}
	stored, err := st.runs("select "+activeColumns+" from active a where a.slot = '' and a.job in (?*)", set([]job.ID{uid}))
	if err != nil {
		return err
	}
	if len(cached)+len(stored) == 0 {
		return nil
	}
	var rows [2]*Batch
	for i, list := range [...][]store.Run{cached, stored} {
		slices.SortFunc(list, func(a, b store.Run) int { return a.Ref().Compare(b.Ref()) })
		rows[i] = st.rows(newRuns, len(list))
		for n := range list {
			if err := rows[i].insertRun(&list[n], false); err != nil {
				return err
			}
		}
	}
	if a, b := rows[0], rows[1]; !reflect.DeepEqual(a.Ints, b.Ints) || !reflect.DeepEqual(a.Texts, b.Texts) || !reflect.DeepEqual(a.Blobs, b.Blobs) {
		panic(fmt.Sprintf("the cached runs of job %s are not the stored ones:\n%+v\n%+v", uid, cached, stored))
	}
	return nil
}
