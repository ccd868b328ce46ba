package etcd

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// compactEach is how often a node looks whether old revisions can go. Nodes do so in
	// any order: who is late finds it done.
	compactEach = 30 * time.Second
	// keptFor is how long revisions are kept, so that a watch that was broken can continue.
	keptFor = 5 * time.Minute
	// grownMax is by how much the database may grow before that.
	grownMax = 256 << 20
)

// compact removes old revisions, without which a server is full after some hours: by
// default it removes none.
func (d *driver) compact(ctx context.Context) {
	type past struct {
		revision int64
		at       time.Time
	}
	var seen []past
	var size int64 // of the database after the last compaction
	timer := time.NewTimer(rand.N(compactEach) + time.Second)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(compactEach/2 + rand.N(compactEach))
		within, cancel := bounded(ctx)
		s, err := d.client.Status(within, d.client.Endpoints()[0])
		cancel()
		if err != nil {
			continue
		}
		grown := size > 0 && s.DbSizeInUse > size+grownMax
		target := int64(0)
		for len(seen) > 0 && (grown || time.Since(seen[0].at) > keptFor) {
			target, seen = seen[0].revision, seen[1:]
		}
		seen = append(seen, past{s.Header.Revision, time.Now()})
		if size == 0 {
			size = s.DbSizeInUse
		}
		if target == 0 {
			continue
		}
		within, cancel = bounded(ctx)
		// That another node was quicker is no failure, and another one is tried again.
		if _, err := d.client.Compact(within, target); err == nil {
			size = min(size, s.DbSizeInUse)
		}
		cancel()
	}
}
