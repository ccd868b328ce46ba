package replica

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	appendKey  = Copied + "x/a" // each call that appends records writes it
	historyKey = "history"      // identifies this history
)

// Append implements [store.History].
func (b *Backend) Append(ctx context.Context, records []store.Record) error {
	for {
		if err := b.fresh(ctx); err != nil {
			return err
		}
		release := b.alone()
		t := b.appending(records)
		if len(t.Puts) == 0 {
			release()
			return nil
		}
		t.put(appendKey, []byte(b.writer))
		b.set(t, signalKey, &signal{writer: b.writer})
		version, done, err := b.commit(ctx, t)
		release()
		if err != nil {
			return err
		}
		if done {
			b.trim(ctx)
			return b.await(ctx, version)
		}
	}
}

// appending returns the state that an append changes.
func (b *Backend) appending(records []store.Record) *Txn {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s, t := b.state, newTxn()
	t.Compares[appendKey] = s.versions[appendKey]
	fresh := &group{}
	groups := map[string]*group{}
	place := func(key recordKey) (*group, int) {
		if i := slices.IndexFunc(fresh.records, func(r *store.Record) bool { return (recordKey{r.Run.ID, r.Attempt.Number}) == key }); i >= 0 {
			return fresh, i
		}
		g := s.groupOf[key]
		if g == nil {
			return nil, 0
		}
		if own := groups[g.key]; own != nil {
			g = own
		}
		return g, slices.IndexFunc(g.records, func(r *store.Record) bool { return (recordKey{r.Run.ID, r.Attempt.Number}) == key })
	}
	for i := range records {
		r := records[i]
		switch g, at := place(recordKey{r.Run.ID, r.Attempt.Number}); {
		case g == nil:
			fresh.records = append(fresh.records, &r)
		case g.records[at].Attempt.Outcome != job.OutcomeLost:
		case g == fresh:
			g.records[at] = &r
		default:
			own := &group{g.key, slices.Clone(g.records)}
			own.records[at] = &r
			groups[g.key] = own
		}
	}
	if len(fresh.records) > 0 {
		fresh.key = newGroupKey(fresh.records[0].Attempt.Ended)
		b.set(t, fresh.key, fresh)
	}
	for key, g := range groups {
		t.Compares[key] = s.versions[key]
		b.set(t, key, g)
	}
	return t
}

// HistoryID implements [store.History].
func (b *Backend) HistoryID(ctx context.Context) (store.HistoryID, error) {
	for {
		values, err := b.driver.Get(ctx, []string{historyKey})
		if err != nil {
			return 0, err
		}
		if len(values[0]) == 8 {
			return store.HistoryID(binary.BigEndian.Uint64(values[0])), nil
		}
		var id [8]byte
		_, _ = rand.Read(id[:]) // crypto/rand does not fail
		id[0] &= 0x7f
		id[7] |= 1
		t := newTxn()
		t.Compares[historyKey] = 0
		t.put(historyKey, id[:])
		if _, _, err := b.commit(ctx, t); err != nil {
			return 0, err
		}
	}
}
