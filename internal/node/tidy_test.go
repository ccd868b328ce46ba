package node

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// full is a store with much that need not be kept.
type full struct {
	store.Store
	left atomic.Int64
}

func (f *full) Expire(context.Context, store.Retention) (bool, error) {
	return f.left.Add(-1) > 0, nil
}

func TestWhatNeedNotBeKeptIsRemovedAsFastAsItIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := &full{Store: w.store}
		// Ten minutes of 1,000 runs a second, with a row of output each.
		f.left.Store(10 * 60 * 1000 * 2 / store.ExpireMax)
		w.store = f
		stop := w.start("a")
		time.Sleep(2 * time.Minute)
		stop()
		if left := f.left.Load(); left > 0 {
			t.Errorf("after a round there are %d steps left", left)
		}
	})
}
