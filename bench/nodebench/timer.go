package nodebench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/timer"
)

// The goals of the timer.
const (
	timerGoal  = 3 * time.Millisecond
	timerBytes = 20
)

// timer measures the queue of moments, and timers of the runtime beside it.
func (b *bench) timer(context.Context) ([]Figure, error) {
	n := b.scaled(1_000_000, 20_000)
	const rounds = 11
	list := make([]uint32, 0, n)
	var took lateness
	var bytes float64
	for range rounds {
		before := heap()
		q := new(timer.Queue)
		now := time.Now().UnixNano()
		due := now + int64(15*time.Second)
		q.Due(now, nil)
		for i := range n {
			q.Push(due, uint32(i))
		}
		bytes = float64(heap()-before) / float64(n)
		began := time.Now()
		list = q.Due(due, list[:0])
		took = append(took, time.Since(began))
		if len(list) != n {
			return nil, fmt.Errorf("%d of %d entries left the timer", len(list), n)
		}
		runtime.KeepAlive(q)
	}
	slices.Sort(took)
	fired, each := afterFunc(n)
	return []Figure{
		atMost("until all have left it, median", took.quantile(.5), timerGoal).beside("`time.AfterFunc`: " + times(fired)),
		below("bytes of each", bytes, timerBytes, 1, "").beside("`time.AfterFunc`: " + number(each, 1)),
	}, nil
}

// afterFunc sets timers of the runtime for one instant and returns how late the last one fired, and
// the memory of each.
func afterFunc(n int) (fired time.Duration, bytes float64) {
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan time.Time, 1)
	// Setting them takes time as well.
	due := time.Now().Add(time.Second + time.Duration(n)*2*time.Microsecond)
	timers := make([]*time.Timer, n)
	own := heap()
	for i := range timers {
		timers[i] = time.AfterFunc(time.Until(due), func() {
			if left.Add(-1) == 0 {
				done <- time.Now()
			}
		})
	}
	bytes = float64(heap()-own) / float64(n)
	last := <-done
	runtime.KeepAlive(timers)
	return last.Sub(due), bytes
}

// heap returns the size of the reachable memory.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
