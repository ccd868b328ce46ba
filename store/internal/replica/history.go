package replica

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Attempts implements [store.History].
func (b *Backend) Attempts(ctx context.Context, q store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	err = b.read(ctx, func(s *state) { list, next = s.latest.Attempts(&q) })
	return list, next, err
}

// AttemptsOf implements [store.History].
func (b *Backend) AttemptsOf(ctx context.Context, run job.ID) (list []store.Record, err error) {
	err = b.read(ctx, func(s *state) {
		for _, r := range s.records[run] {
			list = append(list, *r)
		}
	})
	slices.SortFunc(list, func(a, c store.Record) int { return cmp.Compare(a.Attempt.Number, c.Attempt.Number) })
	return list, err
}

// Recent implements [store.History].
func (b *Backend) Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error) {
	if len(jobs) > store.MaxBatch {
		return nil, fmt.Errorf("recent runs: %w", store.ErrTooMany)
	}
	c := store.Collect(jobs, n)
	err := b.read(ctx, func(s *state) { s.latest.Latest(c.Add) })
	return c.Lists(), err
}

// Aggregate implements [store.History].
func (b *Backend) Aggregate(ctx context.Context, q store.AggregateQuery) (list []store.Aggregate, err error) {
	err = b.read(ctx, func(s *state) { list = s.latest.Aggregate(&q) })
	return list, err
}

// AppendOutput implements [store.History].
func (b *Backend) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	_, size := b.driver.Bounds()
	for len(chunks) > 0 {
		n, bytes := 0, 0
		for n < len(chunks) && (n == 0 || bytes+len(chunks[n].Data) < size) {
			bytes += len(chunks[n].Data) + 128
			n++
		}
		if err := b.appendSome(ctx, chunks[:n]); err != nil {
			return err
		}
		chunks = chunks[n:]
	}
	return nil
}

func (b *Backend) appendSome(ctx context.Context, chunks []store.OutputChunk) error {
	keys := make([]string, len(chunks))
	for i := range chunks {
		keys[i] = outputPrefix(chunks[i].Run, chunks[i].Attempt) + big(int64(chunks[i].Seq))
	}
	values, err := b.driver.Get(ctx, keys)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for i, key := range keys {
		if values[i] != nil {
			there[key] = true
		}
	}
	var t Txn
	putOutput(&t, chunks, there)
	if len(t.Puts)+len(t.Deletes) == 0 {
		return nil
	}
	_, _, err = b.commit(ctx, &t)
	return err
}

// Output implements [store.History].
func (b *Backend) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) (list []store.OutputChunk, err error) {
	prefix := outputPrefix(run, attempt)
	pairs, err := b.driver.Range(ctx, prefix+big(int64(fromSeq)), prefix+"\xff", limit, false)
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		c, err := decode(p.Value, codeChunk)
		if err != nil {
			return nil, fmt.Errorf("%w: output of run %s: %w", store.ErrDamaged, run, err)
		}
		list = append(list, c)
	}
	return list, nil
}

// number reads what big has written.
func number(text string) int64 { return int64(binary.BigEndian.Uint64([]byte(text))) }

// expiry is the progress of one call of Expire.
type expiry struct {
	left int
	cut  bool // some is incomplete
	// some are records that expire at least in part, latest first, each with whether it expires as
	// a whole.
	some []candidate
	// groups are the remaining records of partly expired groups.
	groups map[*group][]*store.Record
}

type candidate struct {
	record *store.Record
	old    bool
}

// Expire implements [store.History].
func (b *Backend) Expire(ctx context.Context, server store.Retention) (more bool, err error) {
	now, err := b.Now(ctx)
	if err != nil {
		return false, err
	}
	x := &expiry{left: store.ExpireMax, groups: map[*group][]*store.Record{}}
	if err := b.expired(ctx, x, now, server); err != nil {
		return false, err
	}
	versions := map[*group]int64{}
	for _, c := range x.some {
		if x.left == 0 {
			break
		}
		key := recordKey{c.record.Run.ID, c.record.Attempt.Number}
		n, err := b.removeOutput(ctx, key, x.left)
		if err != nil {
			return false, err
		}
		if x.left -= n; x.left == 0 || !c.old {
			continue
		}
		b.mu.RLock()
		if g := b.state.groupOf[key]; g != nil {
			x.remove(c.record, g, versions, b.state.versions)
			x.left--
		}
		b.mu.RUnlock()
	}
	if err := b.removeExpired(ctx, x, versions); err != nil {
		return false, err
	}
	return x.cut || x.left == 0, nil
}

// trim removes the oldest records beyond KeepAtLeast once there are twice as many. Records of
// unfinished runs stay. After a failure the next call removes the rest.
func (b *Backend) trim(ctx context.Context) {
	if b.opt.KeepAtLeast == 0 || !b.trimming.TryLock() {
		return
	}
	defer b.trimming.Unlock()
	x, versions := &expiry{groups: map[*group][]*store.Record{}}, map[*group]int64{}
	var old []recordKey
	b.mu.RLock()
	if s, n := b.state, b.state.latest.Len(); n >= 2*b.opt.KeepAtLeast {
		n -= b.opt.KeepAtLeast
		s.latest.Oldest(func(r *store.Record) bool {
			if key := (recordKey{r.Run.ID, r.Attempt.Number}); s.runs[r.Run.ID] == nil {
				old = append(old, key)
				x.remove(r, s.groupOf[key], versions, s.versions)
			}
			n--
			return n > 0
		})
	}
	b.mu.RUnlock()
	for _, key := range old {
		if _, err := b.removeOutput(ctx, key, store.ExpireMax); err != nil {
			return
		}
	}
	_ = b.removeExpired(ctx, x, versions)
}

// remove takes a record out of its group.
func (x *expiry) remove(r *store.Record, g *group, versions map[*group]int64, now map[string]int64) {
	if x.groups[g] == nil {
		x.groups[g], versions[g] = slices.Clone(g.records), now[g.key]
	}
	x.groups[g] = slices.DeleteFunc(x.groups[g], func(o *store.Record) bool { return o == r })
}

// expired finds records that expire or whose output expires.
func (b *Backend) expired(ctx context.Context, x *expiry, now time.Time, server store.Retention) error {
	keeps, err := b.retentions(ctx, server)
	if err != nil {
		return err
	}
	return b.read(ctx, func(s *state) {
		runs := map[job.ID]int{}
		total := 0
		s.latest.Latest(func(r *store.Record) bool {
			if s.runs[r.Run.ID] != nil {
				return true
			}
			keep, known := keeps[r.Run.JobUID]
			if own, ok := server.Of(r.Run.JobUID); !known && ok {
				keep = server.With(own)
			} else if !known {
				keep = server
			}
			if r.Final {
				runs[r.Run.JobUID]++
			}
			total++
			age := now.Sub(r.Attempt.Ended)
			old := over(age, keep.For) || keep.Runs > 0 && runs[r.Run.JobUID] > keep.Runs || b.opt.Records > 0 && total > b.opt.Records
			if old || r.Attempt.Number > 0 && over(age, keep.OutputFor) && !s.silent[recordKey{r.Run.ID, r.Attempt.Number}] {
				x.some = append(x.some, candidate{r, old})
			}
			x.cut = len(x.some) == store.ExpireMax
			return !x.cut
		})
	})
}

// removeOutput removes at most n chunks of an attempt, and returns how many it has.
func (b *Backend) removeOutput(ctx context.Context, key recordKey, left int) (removed int, err error) {
	prefix := outputPrefix(key.run, key.number)
	most, _ := b.driver.Bounds()
	for removed < left {
		pairs, err := b.driver.Range(ctx, prefix, prefix+"\xff", min(most, left-removed), false)
		if err != nil {
			return removed, err
		}
		if len(pairs) == 0 {
			b.mu.Lock()
			b.state.silent[key] = true
			b.mu.Unlock()
			return removed, nil
		}
		var t Txn
		for _, p := range pairs {
			t.Deletes = append(t.Deletes, p.Key)
		}
		if _, _, err := b.commit(ctx, &t); err != nil {
			return removed, err
		}
		removed += len(pairs)
	}
	return removed, nil
}

// retentions returns the retention of jobs that set their own.
func (b *Backend) retentions(ctx context.Context, server store.Retention) (map[job.ID]store.Retention, error) {
	var cells []*cell
	if err := b.read(ctx, func(s *state) {
		seen := map[job.ID]bool{}
		s.latest.Oldest(func(r *store.Record) bool {
			if c := s.cells[r.Run.JobUID]; c != nil && !seen[r.Run.JobUID] {
				seen[r.Run.JobUID] = true
				cells = append(cells, c)
			}
			return true
		})
	}); err != nil {
		return nil, err
	}
	jobs, err := b.jobsOf(ctx, cells)
	if err != nil {
		return nil, err
	}
	keeps := make(map[job.ID]store.Retention, len(jobs))
	for _, j := range jobs {
		keep := server
		if own := j.Document.Filled.Policy.Keep; own != nil {
			keep = server.With(*own)
		}
		keeps[j.UID] = keep
	}
	return keeps, nil
}

// over reports whether an age is beyond a duration; zero and [job.Forever] are without end.
func over(age, most time.Duration) bool {
	return most > 0 && most != time.Duration(job.Forever) && age > most
}

func (b *Backend) removeExpired(ctx context.Context, x *expiry, versions map[*group]int64) error {
	most, size := b.driver.Bounds()
	t, bytes := newTxn(), 0
	flush := func() error {
		if len(t.Compares) == 0 {
			return nil
		}
		err := b.change(ctx, t)
		t, bytes = newTxn(), 0
		return err
	}
	for g, left := range x.groups {
		t.Compares[g.key] = versions[g]
		if len(left) == 0 {
			t.Deletes = append(t.Deletes, g.key)
		} else {
			b.set(t, g.key, &group{g.key, left})
			bytes += len(t.Puts[len(t.Puts)-1].Value)
		}
		if len(t.Compares) >= most-1 || bytes > size/2 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// ExpireAudit implements ledger.Backend.
func (b *Backend) ExpireAudit(ctx context.Context, server store.Retention) (more bool, err error) {
	now, err := b.Now(ctx)
	if err != nil {
		return false, err
	}
	left := store.ExpireMax
	var last int64
	if err := b.read(ctx, func(s *state) { last = s.numbers.audit }); err != nil {
		return false, err
	}
	most, _ := b.driver.Bounds()
	for left > 0 && (server.Audit > 0 || server.AuditFor > 0) {
		pairs, err := b.driver.Range(ctx, auditKeys, auditKeys+big(last), min(most, left), false)
		if err != nil {
			return false, err
		}
		var t Txn
		for _, p := range pairs {
			record, err := decode(p.Value, codeAudit)
			if err == nil && !over(now.Sub(record.Time), server.AuditFor) && (server.Audit == 0 || last-record.Seq < int64(server.Audit)) {
				break
			}
			t.Deletes = append(t.Deletes, p.Key)
		}
		if len(t.Deletes) == 0 {
			return false, nil
		}
		if _, _, err := b.commit(ctx, &t); err != nil {
			return false, err
		}
		left -= len(t.Deletes)
	}
	return left == 0, nil
}
