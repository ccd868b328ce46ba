package memory

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/google/btree"

	"github.com/belfry-cron/belfry/store/internal/replica"
)

// table is the driver of a store in memory: a map of keys to values. The copy of the state has the
// values of copied keys.
type table struct {
	mu       sync.Mutex
	version  int64
	versions map[string]int64            // of copied keys
	pairs    *btree.BTreeG[replica.Pair] // other pairs, by key
	apply    func(replica.Update)
	puts     []replica.Pair // memory for the next update
}

const degree = 32 // of the tree

func newMap() *table {
	return &table{
		versions: map[string]int64{},
		pairs:    btree.NewG(degree, func(a, b replica.Pair) bool { return a.Key < b.Key }),
	}
}

// Attach implements [replica.Local].
func (d *table) Attach(apply func(replica.Update)) {
	d.apply = apply
	apply(replica.Update{Whole: true})
}

// Follow implements [replica.Driver]. A local driver has no followers.
func (d *table) Follow(context.Context, func(replica.Update)) {}

// Now implements [replica.Driver] with the clock of the store's options.
func (d *table) Now(context.Context) (time.Time, bool, error) { return time.Time{}, false, nil }

// Close implements [replica.Driver].
func (d *table) Close() error { return nil }

// Bounds implements [replica.Driver]: it has none.
func (d *table) Bounds() (compares, size int) { return math.MaxInt32, math.MaxInt32 }

// Tail implements [replica.Driver].
func (d *table) Tail(context.Context) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.version, nil
}

// Get implements [replica.Driver].
func (d *table) Get(_ context.Context, keys []string) ([][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	values := make([][]byte, len(keys))
	for i, key := range keys {
		p, _ := d.pairs.Get(replica.Pair{Key: key})
		values[i] = p.Value
	}
	return values, nil
}

// Range implements [replica.Driver].
func (d *table) Range(_ context.Context, from, to string, limit int, backwards bool) (list []replica.Pair, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	take := func(p replica.Pair) bool {
		if p.Key >= from && p.Key < to {
			list = append(list, p)
		}
		return len(list) < limit && p.Key >= from
	}
	if backwards {
		d.pairs.DescendLessOrEqual(replica.Pair{Key: to}, take)
	} else {
		d.pairs.AscendRange(replica.Pair{Key: from}, replica.Pair{Key: to}, take)
	}
	return list, nil
}

// Commit implements [replica.Driver].
func (d *table) Commit(_ context.Context, t *replica.Txn) (version int64, done bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	version, done = d.commit(t)
	return version, done, nil
}

func (d *table) commit(t *replica.Txn) (version int64, done bool) {
	for key, version := range t.Compares {
		if d.versionOf(key) != version {
			return 0, false
		}
	}
	d.version++
	u := replica.Update{Version: d.version, Puts: d.puts[:0]}
	for _, p := range t.Puts {
		if p.Version = d.version; isCopied(p.Key) {
			d.versions[p.Key] = p.Version
			u.Puts = append(u.Puts, p)
		} else {
			d.pairs.ReplaceOrInsert(p)
		}
	}
	for _, key := range t.Deletes {
		if isCopied(key) {
			delete(d.versions, key)
			u.Deletes = append(u.Deletes, key)
		} else {
			d.pairs.Delete(replica.Pair{Key: key})
		}
	}
	d.apply(u)
	clear(u.Puts)
	d.puts = u.Puts
	return d.version, true
}

func isCopied(key string) bool { return strings.HasPrefix(key, replica.Copied) }

func (d *table) versionOf(key string) int64 {
	if isCopied(key) {
		return d.versions[key]
	}
	p, _ := d.pairs.Get(replica.Pair{Key: key})
	return p.Version
}
