package replica_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/store/internal/replica"
)

// shelf is a key-value store in memory that several drivers share.
type shelf struct {
	mu        sync.Mutex
	version   int64
	pairs     map[string]replica.Pair
	followers map[chan replica.Update]bool
}

func newShelf() *shelf {
	return &shelf{pairs: map[string]replica.Pair{}, followers: map[chan replica.Update]bool{}}
}

// driver is what one process has of a shelf.
type driver struct{ *shelf }

func (d driver) Now(context.Context) (time.Time, bool, error) { return time.Time{}, false, nil }
func (d driver) Close() error                                 { return nil }
func (d driver) Bounds() (compares, size int)                 { return 120, 256 << 10 }

func (d driver) Tail(context.Context) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.version, nil
}

func (d driver) Get(_ context.Context, keys []string) ([][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	values := make([][]byte, len(keys))
	for i, key := range keys {
		values[i] = d.pairs[key].Value
	}
	return values, nil
}

func (d driver) Range(_ context.Context, from, to string, limit int, backwards bool) ([]replica.Pair, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []replica.Pair
	keys := slices.Sorted(maps.Keys(d.pairs))
	if backwards {
		slices.Reverse(keys)
	}
	for _, key := range keys {
		if key >= from && key < to && len(list) < limit {
			list = append(list, d.pairs[key])
		}
	}
	return list, nil
}

func (d driver) Commit(_ context.Context, t *replica.Txn) (int64, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, version := range t.Compares {
		if d.pairs[key].Version != version {
			return 0, false, nil
		}
	}
	d.version++
	u := replica.Update{Version: d.version}
	seen := map[string]bool{}
	for _, p := range t.Puts {
		if seen[p.Key] {
			panic("a key is written twice")
		}
		seen[p.Key] = true
		p.Version = d.version
		d.pairs[p.Key] = p
		if strings.HasPrefix(p.Key, replica.Copied) {
			u.Puts = append(u.Puts, p)
		}
	}
	for _, key := range t.Deletes {
		if seen[key] {
			panic("a key is written and deleted")
		}
		delete(d.pairs, key)
		if strings.HasPrefix(key, replica.Copied) {
			u.Deletes = append(u.Deletes, key)
		}
	}
	for ch := range d.followers {
		ch <- u
	}
	return d.version, true, nil
}

func (d driver) Follow(ctx context.Context, apply func(replica.Update)) {
	ch := make(chan replica.Update, 1<<16)
	d.mu.Lock()
	whole := replica.Update{Whole: true, Version: d.version}
	for _, p := range d.pairs {
		if strings.HasPrefix(p.Key, replica.Copied) {
			whole.Puts = append(whole.Puts, p)
		}
	}
	d.followers[ch] = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.followers, ch)
		d.mu.Unlock()
	}()
	apply(whole)
	for {
		select {
		case u := <-ch:
			apply(u)
		case <-ctx.Done():
			return
		}
	}
}
