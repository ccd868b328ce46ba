package parallel_test

import (
	"sync/atomic"
	"testing"

	"github.com/belfry-cron/belfry/internal/parallel"
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
