package events

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/store"
)

const (
	// orderWait is how long events wait for those of before that come from another
	// process: these are some tenths of a second late.
	orderWait = 500 * time.Millisecond
	// waitingMax is how many steps wait at most: more are passed on as they are.
	waitingMax = 8192
)

// step is what belongs together, and when it came.
type step struct {
	list []store.Event
	came time.Time
}

// inOrder passes on what two channels bring, by its times as far as it comes within
// orderWait, until one of them is closed or ctx ends. Then it closes the third.
func inOrder(ctx context.Context, own, elsewhere <-chan []store.Event, to chan<- []store.Event) {
	defer close(to)
	var waiting []step // by time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var list []store.Event
		open := true
		select {
		case list, open = <-own:
		case list, open = <-elsewhere:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if !open {
			return
		}
		now := time.Now()
		if len(list) > 0 {
			at, _ := slices.BinarySearchFunc(waiting, list[0].Time, func(s step, t time.Time) int {
				if s.list[0].Time.After(t) {
					return 1
				}
				return -1 // behind those of the same time
			})
			waiting = slices.Insert(waiting, at, step{list, now})
		}
		n := ripe(waiting, now)
		for _, s := range waiting[:n] {
			select {
			case to <- s.list:
			case <-ctx.Done():
				return
			}
		}
		waiting = slices.Delete(waiting, 0, n)
		if len(waiting) > 0 {
			first := slices.MinFunc(waiting, func(a, b step) int { return a.came.Compare(b.came) })
			timer.Reset(time.Until(first.came.Add(orderWait)))
		}
	}
}

// ripe returns how many steps have waited long enough, and what is of before them.
func ripe(waiting []step, now time.Time) int {
	n := max(0, len(waiting)-waitingMax)
	for i := len(waiting); i > n; i-- {
		if now.Sub(waiting[i-1].came) >= orderWait {
			return i
		}
	}
	return n
}
