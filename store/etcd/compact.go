package etcd

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// lookEach is how often a node checks how full the database is.
	lookEach = 5 * time.Second
	// compactEach is how often old revisions are removed. Any node may do it; the others find it
	// done.
	compactEach = 30 * time.Second
	// keptFor is how long revisions are kept, so that a broken watch can continue.
	keptFor = 5 * time.Minute
	// grownMax is by how much the database may grow before that.
	grownMax = 256 << 20
	// roomLeast is the part of the quota that must be free for more jobs and claims:
	// results and removals still fit then. At the quota etcd refuses everything until an
	// operator intervenes. The quota applies to the file, which is up to a tenth larger
	// than its content.
	roomLeast = 0.1
)

// isFull reports whether a database has no room for more jobs and claims. Servers before
// 3.6 do not report their quota, which is then 0.
func isFull(used, size, quota int64) bool {
	part := func(n int64) float64 { return float64(n) / float64(quota) }
	return quota > 0 && (part(used) > 1-roomLeast || part(size) > 1-roomLeast && part(used) > 1-2*roomLeast)
}

// upkeep watches how full the database is, and removes old revisions, without which a server is
// full after some hours: by default it removes none.
func (d *driver) upkeep(ctx context.Context, compacts bool) {
	h := heap{}
	timer := time.NewTimer(rand.N(lookEach))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(lookEach/2 + rand.N(lookEach))
		endpoints := d.client.Endpoints()
		within, cancel := bounded(ctx)
		s, err := d.client.Status(within, endpoints[rand.N(len(endpoints))])
		cancel()
		if err != nil {
			continue
		}
		d.full.Store(isFull(s.DbSizeInUse, s.DbSize, s.DbSizeQuota))
		if !compacts {
			continue
		}
		target := h.look(time.Now(), s.Header.Revision, s.DbSizeInUse, s.DbSizeQuota)
		if target == 0 {
			continue
		}
		within, cancel = bounded(ctx)
		// Another node may have been quicker; a failed call is repeated with the next revision.
		_, _ = d.client.Compact(within, target)
		cancel()
	}
}

// heap is the state of the database as this node last saw it.
type heap struct {
	seen []past
	next time.Time // time of the next compaction
	size int64     // size after the last compaction
}

// past is the latest revision at an earlier moment.
type past struct {
	revision int64
	at       time.Time
}

// look records the latest revision, the size of the content, and the quota if known. It
// returns the revision up to which older ones can be compacted, 0 for none.
func (h *heap) look(now time.Time, revision, used, quota int64) (target int64) {
	if now.Before(h.next) {
		return 0
	}
	h.next = now.Add(compactEach/2 + rand.N(compactEach))
	grown := h.size > 0 && used > h.size+grownMax || quota > 0 && used > quota/2
	for len(h.seen) > 0 && (grown || now.Sub(h.seen[0].at) > keptFor) {
		target, h.seen = h.seen[0].revision, h.seen[1:]
	}
	h.seen = append(h.seen, past{revision, now})
	if h.size == 0 || target > 0 && used < h.size {
		h.size = used
	}
	return target
}
