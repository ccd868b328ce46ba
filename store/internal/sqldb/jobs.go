package sqldb

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// JobsNamed implements ledger.Backend.
func (s *backend) JobsNamed(ctx context.Context, names []string) ([]*store.Job, error) {
	return jobsBy(ctx, s, "select "+stateColumns+" from jobs j join job_state s on s.uid = j.uid where j.live in (?*)", names, names,
		func(r jobRow) string { return r.FullName() })
}

// JobsByUID implements ledger.Backend.
func (s *backend) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	return jobsBy(ctx, s, "select "+stateColumns+" from job_state s "+byKey+"where s.uid in (?*)", uids, set(uids),
		func(r jobRow) job.ID { return r.UID })
}

// jobsBy returns the jobs with some keys, by a query that takes a set.
func jobsBy[K comparable](ctx context.Context, s *backend, query string, keys []K, set any, keyOf func(jobRow) K) (list []*store.Job, err error) {
	err = s.read(ctx, func(t *tx) error {
		rows, err := t.jobRows(query, set)
		if err != nil {
			return err
		}
		found := make(map[K]jobRow, len(rows))
		for _, r := range rows {
			found[keyOf(r)] = r
		}
		list = make([]*store.Job, len(keys))
		for i, key := range keys {
			if r, ok := found[key]; ok {
				list[i] = r.View()
			}
		}
		return nil
	})
	return list, wrapped(err, "jobs of a batch")
}

// listChunk bounds the jobs and records that a list reads at once: a query with many matches then
// reads little more than it returns.
const listChunk = 500

// ListJobs implements ledger.Backend.
func (s *backend) ListJobs(ctx context.Context, query store.JobQuery) (list []*store.Job, next string, err error) {
	err = s.read(ctx, func(t *tx) error {
		var found []jobRow
		found, next, err = t.listJobs(&query)
		list = nil
		for _, r := range found {
			list = append(list, r.View())
		}
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list jobs: %w", err)
	}
	return list, next, nil
}

func (t *tx) listJobs(query *store.JobQuery) (found []jobRow, next string, err error) {
	from, to := query.After, "\U0010ffff"
	if query.Namespace != "" {
		// '0' follows '/' in ASCII.
		from, to = max(from, query.Namespace+"/"), query.Namespace+"0"
	}
	wanted := sieveOf(query)
	// A search reads the states of found jobs only: it may examine thousands for one match.
	search := !wanted.all && query.State == ""
	text, scan := "select j.live, "+stateColumns+", j.definition from jobs j join job_state s on s.uid = j.uid", scanState
	if search {
		text, scan = "select j.live, j.uid, j.definition from jobs j", scanUID
	} else if wanted.all {
		text = "select j.live, " + stateColumns + " from jobs j join job_state s on s.uid = j.uid"
	}
	text += " where j.live > ? and j.live < ?"
	if query.Boot {
		text += " and j.boot = 1" // indexed: each node asks when it starts
	}
	if query.State == job.JobPaused {
		text += " and " + t.s.db.Paused() // indexed: pages ask for jobs that need a person
	}
	text += " order by j.live limit ?"
	for looked, ended := 0, false; !ended && next == ""; {
		limit := min(listChunk, store.JobLookMax+1-looked)
		if wanted.all && query.State == "" {
			limit = min(limit, query.Limit+1-len(found))
		}
		read := 0
		q := t.query(text, from, to, int64(limit))
		for ; next == "" && q.Next(); read++ {
			if len(found) == query.Limit || looked == store.JobLookMax {
				next = from
				break
			}
			looked, from = looked+1, q.Text()
			r := scan(q)
			if query.State != "" && r.State != query.State {
				continue
			}
			if has, err := wanted.has(q); err != nil {
				q.Close()
				return nil, "", fmt.Errorf("definition of job %s: %w", r.UID, err)
			} else if has {
				found = append(found, r)
			}
		}
		q.Close()
		if err := q.Err(); err != nil {
			return nil, "", err
		}
		ended = read < limit
	}
	if search {
		found, err = t.statesOf(found)
		return found, next, err
	}
	return found, next, t.defineAll(found)
}

// Followers implements ledger.Backend.
func (s *backend) Followers(ctx context.Context, upstream string, after job.ID, limit int) (list []*store.Job, more bool, err error) {
	err = s.read(ctx, func(t *tx) error {
		list = nil
		var found []jobRow
		q := t.query("select job from followers where upstream = ? and job > ? order by job limit ?", upstream, idOf(after), int64(limit)+1)
		for q.Next() {
			found = append(found, scanUID(q))
		}
		if err := q.Err(); err != nil {
			return err
		}
		more = len(found) > limit
		found, err := t.statesOf(found[:min(len(found), limit)])
		for _, r := range found {
			list = append(list, r.View())
		}
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("followers of job %s: %w", upstream, err)
	}
	return list, more, nil
}

// scanUID reads a job whose state is read by statesOf.
func scanUID(q reader) jobRow { return jobRow{Job: &engine.Job{UID: q.id()}} }

// statesOf returns jobs in their order, without jobs deleted since.
func (t *tx) statesOf(list []jobRow) ([]jobRow, error) {
	if len(list) == 0 {
		return nil, nil
	}
	at := make(map[job.ID]int, len(list))
	uids := make([]job.ID, len(list))
	for i, r := range list {
		at[r.UID], uids[i] = i, r.UID
	}
	rows, err := t.jobRows("select "+stateColumns+" from job_state s "+byKey+"where s.uid in (?*)", set(uids))
	rows = slices.DeleteFunc(rows, func(r jobRow) bool { return r.Deleted })
	slices.SortFunc(rows, func(a, b jobRow) int { return at[a.UID] - at[b.UID] })
	return rows, err
}

// Revisions implements ledger.Backend.
func (s *backend) Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) (list []store.Revision, err error) {
	if beforeVersion <= 0 {
		beforeVersion = 1 << 62
	}
	err = s.read(ctx, func(t *tx) error {
		list = nil
		q := t.query("select version, changed, actor, definition from revisions where job = ? and version < ? order by version desc limit ?",
			idOf(uid), beforeVersion, int64(limit))
		for q.Next() {
			r := store.Revision{Version: q.Int(), Changed: q.time(), Actor: q.Text()}
			var err error
			if r.Definition, err = columns.DecodeJob(q.View()); err != nil {
				q.Close()
				return err
			}
			r.Definition.UID, r.Definition.Version = uid, r.Version
			list = append(list, r)
		}
		return q.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("revisions of job %s: %w", uid, err)
	}
	return list, nil
}

// JobsChanged implements ledger.Backend.
func (s *backend) JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) (changed []store.PlannedJob, next int64, err error) {
	var parts []int64
	for n := range job.Partitions {
		if partitions.Has(uint8(n)) {
			parts = append(parts, int64(n))
		}
	}
	err = s.read(ctx, func(t *tx) error {
		changed, next = nil, since
		last, err := t.number("select value from counters where name = 'change'")
		if err != nil {
			return err
		}
		q := t.query(`select j.seq, s.uid, s.epoch, s.version, s.cursor_at, s.planned, s.state, s.deleted, j.timing
			from jobs j join job_state s on s.uid = j.uid where j.seq > ? and +j.part in (?*) order by j.seq limit ?`, since, parts, int64(limit))
		texts := map[string]string{} // jobs with equal texts share them
		for q.Next() {
			seq := q.Int()
			p := store.PlannedJob{UID: q.id(), Epoch: q.Int(), Version: q.Int(), Cursor: q.time(), Planned: int(q.Int())}
			state := columns.JobStates.Value(q.Int())
			p.Deleted = q.bool()
			p.Active = state == job.JobActive && !p.Deleted
			view := q.View()
			text, ok := texts[string(view)]
			if !ok {
				text = string(view)
				texts[text] = text
			}
			p.Timing = text
			changed, next = append(changed, p), seq
		}
		if len(changed) < limit {
			next = max(next, last) // the other rows are empty
		}
		return q.Err()
	})
	if err != nil {
		return nil, since, fmt.Errorf("changed jobs: %w", err)
	}
	return changed, next, nil
}

// Cursors implements ledger.Backend.
func (s *backend) Cursors(ctx context.Context, uids []job.ID) (list []store.JobCursor, err error) {
	err = s.read(ctx, func(t *tx) error {
		list = make([]store.JobCursor, 0, len(uids))
		q := t.query("select uid, epoch, cursor_at, planned from job_state where uid in (?*)", set(uids))
		for q.Next() {
			list = append(list, store.JobCursor{UID: q.id(), Epoch: q.Int(), Cursor: q.time(), Planned: int(q.Int())})
		}
		return q.Err()
	})
	return list, wrapped(err, "cursors of jobs")
}

// Summary implements ledger.Backend.
func (s *backend) Summary(ctx context.Context) (sum [job.Partitions]store.PartitionSummary, err error) {
	err = s.read(ctx, func(t *tx) error {
		t.Whole() // a scan of a million jobs takes seconds; by an index, half a minute
		q := t.query("select j.part, count(*), sum(s.version) from jobs j join job_state s on s.uid = j.uid where s.deleted = 0 and s.state = ? group by j.part",
			columns.JobStates.Of(job.JobActive))
		for q.Next() {
			sum[uint8(q.Int())] = store.PartitionSummary{Jobs: int(q.Int()), Versions: q.Int()}
		}
		return q.Err()
	})
	return sum, wrapped(err, "summary of the jobs")
}
