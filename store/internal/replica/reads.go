package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

var _ ledger.Backend = (*Backend)(nil)

// views returns jobs in their public form, in the order of their cells.
func (b *Backend) views(ctx context.Context, cells []*cell) ([]*store.Job, error) {
	jobs, err := b.jobsOf(ctx, cells)
	if err != nil {
		return nil, err
	}
	list := make([]*store.Job, len(jobs))
	for i, j := range jobs {
		if j != nil {
			list[i] = j.View()
		}
	}
	return list, nil
}

// JobsNamed implements [ledger.Backend].
func (b *Backend) JobsNamed(ctx context.Context, names []string) ([]*store.Job, error) {
	cells := make([]*cell, len(names))
	if err := b.read(ctx, func(s *state) {
		for i, name := range names {
			if found, ok := s.names.Get(jobName{full: name}); ok {
				cells[i] = s.cells[found.uid]
			}
		}
	}); err != nil {
		return nil, err
	}
	return b.views(ctx, cells)
}

// JobsByUID implements [ledger.Backend].
func (b *Backend) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	var cells []*cell
	if err := b.read(ctx, func(s *state) { cells = s.cellsOf(uids) }); err != nil {
		return nil, err
	}
	return b.views(ctx, cells)
}

// ListJobs implements [ledger.Backend].
func (b *Backend) ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error) {
	var cells []*cell
	more := false
	from := q.After
	if q.Namespace != "" && from < q.Namespace+"/" {
		from = q.Namespace + "/"
	}
	if err := b.read(ctx, func(s *state) {
		s.names.AscendGreaterOrEqual(jobName{full: from}, func(n jobName) bool {
			c := s.cells[n.uid]
			switch {
			case n.full <= q.After || c == nil:
				return true
			case q.Namespace != "" && !strings.HasPrefix(n.full, q.Namespace+"/"):
				return false
			case q.Boot && !c.boot, q.State == job.JobPaused && c.job.State != q.State:
				return true
			case len(cells) == store.JobLookMax:
				more = true
				return false
			}
			cells = append(cells, c)
			return true
		})
	}); err != nil {
		return nil, "", err
	}
	// some bounds the definitions read at once: later ones may not be needed.
	const some = 100
	for at := 0; at < len(cells); at += some {
		part := cells[at:min(at+some, len(cells))]
		jobs, err := b.jobsOf(ctx, part)
		if err != nil {
			return nil, "", err
		}
		for i, j := range jobs {
			if len(list) == q.Limit {
				return list, next, nil
			}
			next = part[i].job.FullName()
			if (q.State == "" || j.State == q.State) && q.Matches(j.Document.Definition) {
				list = append(list, j.View())
			}
		}
	}
	if !more {
		next = ""
	}
	return list, next, nil
}

// Followers implements [ledger.Backend].
func (b *Backend) Followers(ctx context.Context, upstream string, after job.ID, limit int) (list []*store.Job, more bool, err error) {
	var cells []*cell
	if err := b.read(ctx, func(s *state) {
		var uids []job.ID
		for uid := range s.followers[upstream] {
			if bytes.Compare(uid[:], after[:]) > 0 {
				uids = append(uids, uid)
			}
		}
		slices.SortFunc(uids, func(a, c job.ID) int { return bytes.Compare(a[:], c[:]) })
		more = len(uids) > limit
		cells = s.cellsOf(uids[:min(len(uids), limit)])
	}); err != nil {
		return nil, false, err
	}
	list, err = b.views(ctx, cells)
	return list, more, err
}

// Revisions implements [ledger.Backend].
func (b *Backend) Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) ([]store.Revision, error) {
	var c *cell
	if err := b.read(ctx, func(s *state) { c = s.cells[uid] }); err != nil {
		return nil, err
	}
	if c == nil {
		return nil, fmt.Errorf("job %s: %w", uid, store.ErrNotFound)
	}
	prefix := definitionsOf(uid)
	pairs, err := b.driver.Range(ctx, prefix, prefix+"\xff", 2*b.opt.Revisions+limit, true)
	if err != nil {
		return nil, err
	}
	byKey := map[string][]byte{}
	for _, p := range pairs {
		byKey[p.Key] = p.Value
	}
	// Each revision names the previous one; unnamed ones belong to refused changes.
	var list []store.Revision
	for key, n := c.document, 0; byKey[key] != nil && n < b.opt.Revisions && len(list) < limit; n++ {
		var w written
		if err := json.Unmarshal(byKey[key], &w); err != nil {
			return nil, fmt.Errorf("%w: revision of job %s: %w", store.ErrDamaged, uid, err)
		}
		definition, err := columns.DecodeJob(w.Definition)
		if err != nil {
			return nil, fmt.Errorf("%w: revision of job %s: %w", store.ErrDamaged, uid, err)
		}
		definition.UID, definition.Version, definition.Epoch = uid, number(strings.TrimPrefix(key, prefix)[:8]), w.Epoch
		if beforeVersion == 0 || definition.Version < beforeVersion {
			list = append(list, store.Revision{Version: definition.Version, Changed: w.Changed, Actor: w.Actor, Definition: definition})
		}
		key = string(w.Before)
	}
	return list, nil
}

// JobsChanged implements [ledger.Backend].
func (b *Backend) JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) (changed []store.PlannedJob, next int64, err error) {
	next = since
	err = b.read(ctx, func(s *state) {
		next = max(since, s.numbers.feed)
		s.changes.AscendGreaterOrEqual(change{seq: since + 1}, func(at change) bool {
			if !partitions.Has(job.Partition(at.uid)) {
				return true
			}
			c := s.cells[at.uid]
			j := &c.job
			if len(changed) == limit {
				return false
			}
			changed = append(changed, store.PlannedJob{
				UID: j.UID, Epoch: j.Epoch, Version: j.Version, Cursor: j.Cursor, Planned: j.Planned,
				Active: j.State == job.JobActive && !j.Deleted, Deleted: j.Deleted, Timing: c.timing,
			})
			if len(changed) == limit {
				next = c.seq
			}
			return true
		})
	})
	return changed, next, err
}

// Cursors implements [ledger.Backend].
func (b *Backend) Cursors(ctx context.Context, uids []job.ID) (list []store.JobCursor, err error) {
	err = b.read(ctx, func(s *state) {
		for _, c := range s.cellsOf(uids) {
			if c != nil {
				list = append(list, store.JobCursor{UID: c.job.UID, Epoch: c.job.Epoch, Cursor: c.job.Cursor, Planned: c.job.Planned})
			}
		}
	})
	return list, err
}

// Summary implements [ledger.Backend].
func (b *Backend) Summary(ctx context.Context) (sums [job.Partitions]store.PartitionSummary, err error) {
	err = b.read(ctx, func(s *state) { sums = s.sums })
	return sums, err
}

// Documents implements [ledger.Backend].
func (b *Backend) Documents(ctx context.Context, kinds ...job.Kind) (list []job.Document, err error) {
	err = b.read(ctx, func(s *state) { list = s.documents.List(kinds...) })
	return list, err
}

// Tokens implements [ledger.Backend].
func (b *Backend) Tokens(ctx context.Context) (list []store.Token, err error) {
	err = b.read(ctx, func(s *state) { list = s.allTokens() })
	return list, err
}

func (s *state) allTokens() (list []store.Token) {
	for _, name := range slices.Sorted(maps.Keys(s.tokens)) {
		list = append(list, s.tokens[name])
	}
	return list
}

// Audit implements [ledger.Backend].
func (b *Backend) Audit(ctx context.Context, q store.AuditQuery) (list []store.AuditRecord, next int64, err error) {
	to := auditKeys + "\xff"
	if q.Before > 0 {
		to = auditKeys + big(q.Before)
	}
	pairs, err := b.driver.Range(ctx, auditKeys, to, store.LookMax+1, true)
	if err != nil {
		return nil, 0, err
	}
	last := int64(0)
	for i, p := range pairs {
		if len(list) == q.Limit || i == store.LookMax {
			return list, last, nil
		}
		record, err := decode(p.Value, codeAudit)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: audit: %w", store.ErrDamaged, err)
		}
		if last = record.Seq; q.Matches(&record) {
			list = append(list, record)
		}
	}
	return list, 0, nil
}

// Members implements [ledger.Backend].
func (b *Backend) Members(ctx context.Context) (list []ledger.Member, err error) {
	err = b.read(ctx, func(s *state) {
		if known := s.members.Load(); known != nil {
			list = *known
			return
		}
		list = make([]ledger.Member, 0, len(s.sessions))
		for _, id := range slices.SortedFunc(maps.Keys(s.sessions), func(a, c job.ID) int { return bytes.Compare(a[:], c[:]) }) {
			list = append(list, ledger.Member{Session: *s.sessions[id], Over: s.over[id]})
		}
		s.members.Store(&list)
	})
	return list, err
}

// Ready implements [ledger.Backend].
func (b *Backend) Ready(ctx context.Context, q store.ReadyQuery) (list []store.ReadyRun, err error) {
	err = b.read(ctx, func(s *state) { list = s.index.Ready(&q) })
	return list, err
}

// ListActive implements [ledger.Backend].
func (b *Backend) ListActive(ctx context.Context, q store.ActiveQuery) (list []store.Run, err error) {
	err = b.read(ctx, func(s *state) {
		of := s.runsOf(q.Job)
		if r := s.runs[q.Run]; r != nil {
			of = []*store.Run{r}
		}
		list = s.index.Active(&q, of)
	})
	return list, err
}

// Backlog implements [ledger.Backend].
func (b *Backend) Backlog(ctx context.Context, now time.Time, limit int) (backlog map[job.ID]int, err error) {
	err = b.read(ctx, func(s *state) { backlog = s.index.Backlog(now, limit) })
	return backlog, err
}

// Alarms implements [ledger.Backend].
func (b *Backend) Alarms(ctx context.Context, now time.Time, limit int) (refs []engine.RunRef, err error) {
	err = b.read(ctx, func(s *state) {
		var list []*store.Run
		s.alarms.Ascend(func(r *store.Run) bool {
			if r.AlertAt.After(now) || len(list) == limit {
				return false
			}
			list = append(list, r)
			return true
		})
		slices.SortFunc(list, func(a, b *store.Run) int { return a.Ref().Compare(b.Ref()) })
		refs = runRefs(list)
	})
	return refs, err
}

func runRefs(list []*store.Run) (refs []engine.RunRef) {
	for _, r := range list {
		refs = append(refs, engine.RunRef{Run: r.ID, Job: r.JobUID})
	}
	return refs
}

// endingMax is the most results of one call of Ending: as many as one step settles.
const endingMax = store.MaxBatch

// Ending implements [ledger.Backend].
func (b *Backend) Ending(ctx context.Context, now time.Time) (e ledger.Ending, err error) {
	err = b.read(ctx, func(s *state) {
		found := map[job.ID]*store.Run{}
		s.late.Ascend(func(r *store.Run) bool {
			if !now.After(r.LateAfter) || len(found) == endingMax/2 {
				return false
			}
			found[r.ID] = r
			return true
		})
		// In random order, so that every run gets a turn.
		for id, r := range s.suspect {
			if len(found) == endingMax {
				break
			}
			found[id] = r
		}
		list := slices.SortedFunc(maps.Values(found), func(a, b *store.Run) int { return a.Ref().Compare(b.Ref()) })
		e.Runs, e.More = runRefs(list), len(found) == endingMax
		for uid := range s.resting {
			j := &s.cells[uid].job
			at := j.Completed
			if !j.PausedUntil.IsZero() {
				at = j.PausedUntil
			}
			if at.After(now) {
				continue
			}
			if len(e.Jobs) == store.MaxBatch {
				e.More = true
				break
			}
			e.Jobs = append(e.Jobs, uid)
		}
	})
	slices.SortFunc(e.Jobs, func(a, c job.ID) int { return bytes.Compare(a[:], c[:]) })
	return e, err
}

// sweepMax is the most keys that one call of Sweep removes.
const sweepMax = 100

// Sweep implements [ledger.Backend].
func (b *Backend) Sweep(ctx context.Context, now time.Time, forgotten []job.ID) (more bool, err error) {
	if b.opt.apart {
		b.mu.Lock()
		b.state.outbox.forget(b.localNow())
		b.mu.Unlock()
	}
	t := newTxn()
	var gone []job.ID
	if err := b.read(ctx, func(s *state) {
		remove := func(key string) { t.Compares[key] = s.versions[key]; t.Deletes = append(t.Deletes, key) }
		for key, request := range s.requests {
			if len(t.Deletes) < sweepMax && !now.Before(request.Expires) {
				remove(key)
			}
		}
		for line, at := range s.turns {
			if len(t.Deletes) < sweepMax && at.Before(now) {
				remove(turnKeys + line)
			}
		}
		for uid := range s.deleted {
			c := s.cells[uid]
			if len(t.Deletes) < sweepMax && now.Sub(c.job.Changed) > store.TombstoneLife && len(c.runs)+c.apart == 0 {
				remove(cellKey(uid))
				gone = append(gone, uid)
			}
		}
		s.handovers.outdated(now, func(h *store.Handover) bool {
			remove(handoverKey(h.Number))
			return len(t.Deletes) < sweepMax
		})
		for _, id := range forgotten {
			if len(t.Deletes) < sweepMax && s.sessions[id] != nil && s.index.Running(id) == nil {
				remove(sessionKey(id))
				remove(renewalKey(id))
				t.Compares[membersKey] = s.versions[membersKey]
			}
		}
		if _, changed := t.Compares[membersKey]; changed {
			t.Puts = append(t.Puts, Pair{Key: membersKey, Value: []byte(b.writer)})
		}
	}); err != nil {
		return false, err
	}
	if err := b.sweepRegistrations(ctx, now); err != nil {
		return false, err
	}
	if err := b.sweepFeed(ctx, now); err != nil || len(t.Deletes) == 0 {
		return false, err
	}
	if more, err = len(t.Deletes) >= sweepMax, b.change(ctx, t); err != nil {
		return false, err
	}
	for _, uid := range gone {
		if err := b.removeRange(ctx, definitionsOf(uid), definitionsOf(uid)+"\xff"); err != nil {
			return false, err
		}
	}
	return more, nil
}

func newTxn() *Txn { return &Txn{Compares: map[string]int64{}} }

// change writes outside of a step. Data that has changed since is left to the next call.
func (b *Backend) change(ctx context.Context, t *Txn) error {
	defer b.alone()()
	b.set(t, signalKey, &signal{writer: b.writer})
	version, done, err := b.commit(ctx, t)
	if err != nil || !done {
		return err
	}
	return b.await(ctx, version)
}

// removeRange removes keys that are not in the copy.
func (b *Backend) removeRange(ctx context.Context, from, to string) error {
	most, _ := b.driver.Bounds()
	for {
		pairs, err := b.driver.Range(ctx, from, to, most, false)
		if err != nil || len(pairs) == 0 {
			return err
		}
		var t Txn
		for _, p := range pairs {
			t.Deletes = append(t.Deletes, p.Key)
		}
		if _, _, err := b.commit(ctx, &t); err != nil {
			return err
		}
	}
}
