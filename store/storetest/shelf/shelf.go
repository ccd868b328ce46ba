// Package shelf is a key-value store in memory without a clock, for tests of stores and of clusters whose
// nodes agree on a clock.
package shelf

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

// renewals begins the keys of session renewals.
const renewals = replica.Copied + "r/"

// Shelf is the key-value store. Use [New]. Several processes share it.
type Shelf struct {
	// Pairs is the content, by key.
	Pairs map[string]replica.Pair

	mu        sync.Mutex
	version   int64
	followers map[chan replica.Update]bool
}

// New returns an empty shelf.
func New() *Shelf {
	return &Shelf{Pairs: map[string]replica.Pair{}, followers: map[chan replica.Update]bool{}}
}

// Machine is the part of a machine that a process's store depends on.
type Machine struct {
	Wall func() time.Time
	Boot func() time.Duration
	// Late returns how late the next renewal of a session is committed. May be nil.
	Late func() time.Duration
	// Away reports whether the process cannot reach the shelf: its calls fail, and changes that it has
	// missed arrive together later. May be nil.
	Away func() bool
}

// Open returns the store of one process.
func (s *Shelf) Open(ctx context.Context, m Machine, lookAhead time.Duration) (store.Store, error) {
	return replica.Open(ctx, Driver{s, m.Late, m.Away}, replica.Options{Wall: m.Wall, Boot: m.Boot, LookAhead: lookAhead, KeepDefaults: true})
}

// Driver is one process's driver of a shelf.
type Driver struct {
	*Shelf
	// Late and Away are set as in [Machine].
	Late func() time.Duration
	Away func() bool
}

// awayPoll is how soon a process notices that it reaches the shelf again.
const awayPoll = 100 * time.Millisecond

func (d Driver) away() error {
	if d.Away != nil && d.Away() {
		return store.ErrAway
	}
	return nil
}

// Now implements [replica.Driver]: a shelf has no clock.
func (d Driver) Now(context.Context) (time.Time, bool, error) { return time.Time{}, false, nil }

// Close implements [replica.Driver].
func (d Driver) Close() error { return nil }

// Bounds implements [replica.Driver].
func (d Driver) Bounds() (compares, size int) { return 120, 256 << 10 }

// Tail implements [replica.Driver].
func (d Driver) Tail(context.Context) (int64, error) {
	if err := d.away(); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.version, nil
}

// Get implements [replica.Driver].
func (d Driver) Get(_ context.Context, keys []string) ([][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	values := make([][]byte, len(keys))
	for i, key := range keys {
		values[i] = d.Pairs[key].Value
	}
	return values, nil
}

// Range implements [replica.Driver].
func (d Driver) Range(_ context.Context, from, to string, limit int, backwards bool) ([]replica.Pair, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []replica.Pair
	keys := slices.Sorted(maps.Keys(d.Pairs))
	if backwards {
		slices.Reverse(keys)
	}
	for _, key := range keys {
		if key >= from && key < to && len(list) < limit {
			list = append(list, d.Pairs[key])
		}
	}
	return list, nil
}

// Commit implements [replica.Driver].
func (d Driver) Commit(_ context.Context, t *replica.Txn) (int64, bool, error) {
	if d.Late != nil && slices.ContainsFunc(t.Puts, func(p replica.Pair) bool { return strings.HasPrefix(p.Key, renewals) }) {
		time.Sleep(d.Late())
	}
	if err := d.away(); err != nil {
		return 0, false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, version := range t.Compares {
		if d.Pairs[key].Version != version {
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
		p.Version, p.Is = d.version, nil // a server has encoded values only
		d.Pairs[p.Key] = p
		if strings.HasPrefix(p.Key, replica.Copied) {
			u.Puts = append(u.Puts, p)
		}
	}
	for _, key := range t.Deletes {
		if seen[key] {
			panic("a key is written and deleted")
		}
		delete(d.Pairs, key)
		if strings.HasPrefix(key, replica.Copied) {
			u.Deletes = append(u.Deletes, key)
		}
	}
	for ch := range d.followers {
		ch <- u
	}
	return d.version, true, nil
}

// Follow implements [replica.Driver].
func (d Driver) Follow(ctx context.Context, apply func(replica.Update)) {
	ch := make(chan replica.Update, 1<<16)
	d.mu.Lock()
	whole := replica.Update{Whole: true, Version: d.version}
	for _, p := range d.Pairs {
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
			for d.away() != nil && ctx.Err() == nil {
				time.Sleep(awayPoll)
			}
			apply(u)
		case <-ctx.Done():
			return
		}
	}
}
