package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

const (
	// runsMax is how many unfinished runs a job may have: each server holds them in memory, and an
	// edit of the job may read all of them.
	runsMax = 100_000
	// inCell and inCellSize are the limits of the runs in a cell, in number and about in bytes:
	// each step about the job writes them all. Further runs have keys of their own.
	inCell     = 32
	inCellSize = 16 << 10
	// spreadMax is how many runs one step moves out of a cell; earlier versions kept thousands
	// there.
	spreadMax = 500
	// handOnMax is how many ready runs of a session one commit hands on.
	handOnMax = 500
	// poolStep is how many more runs of pools one commit may change: their jobs are compared at
	// once, and etcd has room for them beside commonMax.
	poolStep = 50
	// opsMax bounds the keys that one commit writes: etcd takes them in nested transactions with as
	// many compares.
	opsMax = 1500
)

// commit is the writes of a step, in parts that can be written one after another. Cells that depend
// on each other in the step share a part.
type commit struct {
	before []Pair // definitions, unused until a cell names them
	parts  []*part
	prune  []jobVersion // jobs whose old definitions may be removed
}

// jobVersion is a job with its new version.
type jobVersion struct {
	uid     job.ID
	version int64
}

// part is a set of writes that are made at once.
type part struct {
	Txn
	audit []store.AuditRecord
	news  []*cell // cells for the feed of changes
	cells []*stagedCell
	// records are written as one group.
	records []*store.Record
}

func newPart() *part { return &part{Txn: Txn{Compares: map[string]int64{}}} }

func (t *Txn) compare(key string, version int64) {
	if t.Compares == nil {
		t.Compares = map[string]int64{}
	}
	t.Compares[key] = version
}

func (t *Txn) put(key string, value []byte) {
	t.Puts = append(t.Puts, Pair{Key: key, Value: value})
}

// Write implements [ledger.Tx].
func (t *tx) Write(c *engine.Changes) error {
	if len(c.HandOn) > 0 {
		// Runs that were assigned to these sessions a moment ago are handed on, too.
		if err := t.confirm(t.ctx); err != nil {
			return err
		}
	}
	w := t.writer()
	if err := w.collect(c); err != nil {
		return err
	}
	if t.changed {
		return ledger.ErrAgain
	}
	t.commit = w.commit(c)
	if t.changed {
		return ledger.ErrAgain
	}
	if t.divides && slices.ContainsFunc(t.commit.parts, t.b.isTooLarge) {
		return fmt.Errorf("%w: %w", store.ErrTooMany, ledger.ErrTooLarge)
	}
	if n := len(t.commit.parts); t.whole && n > 1 {
		return fmt.Errorf("the change writes so much, with %d runs, that it does not fit into one commit of this store, put fewer jobs at once: %w", w.runs(), store.ErrTooMany)
	}
	if len(w.loose) > 0 {
		if err := t.b.fresh(t.ctx); err != nil {
			return err
		}
		if t.b.differs(w.loose) {
			return ledger.ErrAgain
		}
	}
	return nil
}

// do writes the parts one after another, and returns the version of the last. Parts that take
// numbers compare the last given ones, so that numbers become visible in order.
func (c *commit) do(ctx context.Context, b *Backend) (last int64, err error) {
	if err := b.putAll(ctx, c.before); err != nil {
		return 0, err
	}
	if last, err = c.putParts(ctx, b); err == nil {
		c.pruneDefinitions(ctx, b)
	} else if last == 0 && errors.Is(err, ledger.ErrAgain) {
		var t Txn // no cell names them or will name them
		for _, p := range c.before {
			t.Deletes = append(t.Deletes, p.Key)
		}
		if len(t.Deletes) > 0 {
			_, _, _ = b.commit(ctx, &t)
		}
	}
	return last, err
}

// pruneDefinitions removes definitions beyond the limit. Leftovers of a failure are removed
// with a later version.
func (c *commit) pruneDefinitions(ctx context.Context, b *Backend) {
	for _, r := range c.prune {
		if old := r.version - int64(b.opt.Revisions); old > 0 {
			_ = b.removeRange(ctx, definitionsOf(r.uid), definitionsOf(r.uid)+big(old+1))
		}
	}
}

func (c *commit) putParts(ctx context.Context, b *Backend) (last int64, err error) {
	for _, p := range c.parts {
		version, err := p.write(ctx, b)
		if err != nil {
			return last, err
		}
		last = version
	}
	return last, nil
}

// write commits a part. Parts of this process that take numbers are written one after another, each
// once the copy has the numbers before. If another process was quicker, the part takes new numbers,
// unless something else changed.
func (p *part) write(ctx context.Context, b *Backend) (version int64, err error) {
	numbered := len(p.audit)+len(p.news) > 0
	if numbered {
		b.numbering.Lock()
		defer b.numbering.Unlock()
	}
	for try := 0; ; try++ {
		t := Txn{Puts: slices.Clip(p.Puts), Deletes: p.Deletes, Adds: p.Adds, Part: p.Part, Parts: p.Parts}
		if !b.isSerial() {
			t.Compares = maps.Clone(p.Compares)
		}
		if numbered {
			p.number(b, &t)
		}
		t.Deletes = slices.Clip(t.Deletes)
		for _, is := range p.cells {
			is.write(b, &t)
		}
		version, done, err := b.commit(ctx, &t)
		switch {
		case err != nil:
			return 0, err
		case done && numbered:
			return version, b.await(ctx, version)
		case done:
			return version, nil
		case !numbered || try == numberTries:
			return 0, ledger.ErrAgain
		}
		if err := b.fresh(ctx); err != nil {
			return 0, err
		}
		if b.differs(p.Compares) {
			return 0, ledger.ErrAgain
		}
	}
}

// numberTries bounds how often a part takes new numbers because other processes were quicker.
const numberTries = 50

// differs reports whether the copy has other versions of keys.
func (b *Backend) differs(versions map[string]int64) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for key, version := range versions {
		if b.state.versions[key] != version {
			return true
		}
	}
	return false
}

// number assigns numbers to the changes of a part.
func (p *part) number(b *Backend, t *Txn) {
	b.mu.RLock()
	n, version := b.state.numbers, b.state.versions[numbersKey]
	b.mu.RUnlock()
	for i := range p.audit {
		n.audit++
		p.audit[i].Seq = n.audit
		t.put(auditKeys+big(n.audit), encode(&p.audit[i], codeAudit, 256))
	}
	for _, c := range p.news {
		n.feed++
		c.seq = n.feed
	}
	if !b.isSerial() {
		t.Compares[numbersKey] = version
	}
	b.set(t, numbersKey, &n)
}

// putAll writes pairs that nothing names yet, in as few transactions as possible.
func (b *Backend) putAll(ctx context.Context, pairs []Pair) error {
	most, room := b.driver.Bounds()
	for len(pairs) > 0 {
		n, size := 0, 0
		for n < len(pairs) && n < most && (n == 0 || size+len(pairs[n].Value) < room) {
			size += len(pairs[n].Value) + len(pairs[n].Key)
			n++
		}
		if _, _, err := b.commit(ctx, &Txn{Puts: pairs[:n]}); err != nil {
			return err
		}
		pairs = pairs[n:]
	}
	return nil
}
