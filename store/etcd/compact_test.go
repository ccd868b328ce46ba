package etcd

import (
	"testing"
	"time"
)

func TestOldRevisionsGoByAgeAndSoonerAsTheDatabaseGrows(t *testing.T) {
	const mb = 1 << 20
	for what, c := range map[string]struct {
		used, quota int64 // at each look
		looks       int   // one look a minute, at revisions 1, 2, 3, …
		want        int64
	}{
		"young":                                  {10 * mb, 0, 5, 0},
		"the oldest are older than five minutes": {10 * mb, 0, 8, 2},
		"more than half of the quota is in use":  {40 * mb, 64 * mb, 2, 1},
		"less than half of the quota is in use":  {30 * mb, 64 * mb, 2, 0},
	} {
		h, now, target := heap{}, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), int64(0)
		for n := range c.looks {
			target = max(target, h.look(now, int64(n+1), c.used, c.quota))
			now = now.Add(time.Minute)
		}
		if target != c.want {
			t.Errorf("%s: compacted to revision %d, want %d", what, target, c.want)
		}
	}
	h, now := heap{}, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	if got := h.look(now, 7, 10*mb, 0); got != 0 {
		t.Errorf("compacted to %d at first", got)
	}
	if got := h.look(now.Add(time.Minute), 9, 10*mb+grownMax+1, 0); got != 7 {
		t.Errorf("the database has grown: compacted to %d, want 7", got)
	}
	if got := h.look(now.Add(time.Minute+time.Second), 10, 2*grownMax, 0); got != 0 {
		t.Errorf("compacted again after a second, to %d", got)
	}
}

func TestADatabaseIsFullBeforeItsQuota(t *testing.T) {
	for _, c := range []struct {
		used, size, quota int64
		want              bool
	}{
		{85, 88, 100, false}, {91, 95, 100, true}, {85, 95, 100, true}, {20, 99, 100, false}, {99, 99, 0, false},
	} {
		if got := isFull(c.used, c.size, c.quota); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
