package parallel_test

import (
	"sync/atomic"
	"testing"

	"github.com/belfry-cron/belfry/internal/sys/parallel"
)

func TestEachItemIsDoneOnce(t *testing.T) {
	for _, c := range []struct{ n, least int }{{0, 1}, {1, 1}, {7, 1}, {7, 3}, {64, 64}, {65, 64}, {1000, 64}} {
		done := make([]atomic.Int32, c.n)
		parallel.Each(c.n, c.least, func(i int) { done[i].Add(1) })
		for i := range done {
			if times := done[i].Load(); times != 1 {
				t.Errorf("of %d items, %d in a row: item %d was done %d times", c.n, c.least, i, times)
			}
		}
	}
}

// The first items wait until the maximum has begun: fewer concurrent ones would hang, and more are
// counted.
func TestSoManyItemsAreDoneAtOnce(t *testing.T) {
	const items, most = 100, 16
	var now, done atomic.Int32
	full := make(chan struct{})
	parallel.AtOnce(items, most, func(int) {
		switch n := now.Add(1); {
		case n == most && done.Load() == 0:
			close(full)
		case n > most:
			t.Errorf("%d are done at once", n)
		}
		<-full
		done.Add(1)
		now.Add(-1)
	})
	if done.Load() != items {
		t.Errorf("%d of %d items were done", done.Load(), items)
	}
}
