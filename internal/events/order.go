package events

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/store"
)

const (
	// orderWait is how long events wait for earlier events of another process, which come some
	// tenths of a second late.
	orderWait = 500 * time.Millisecond
	// orderEvery is the interval of checks for events that have waited that long: a check at each
	// step would examine all of them.
	orderEvery = 50 * time.Millisecond
	// waitingMax bounds the waiting steps. Beyond it, the first waitingOff of them are passed on as
	// they are.
	waitingMax, waitingOff = 8192, 1024
)

// step is a list of events that belong together, and when they arrived.
type step struct {
	list []store.Event
	came time.Time
}

// inOrder passes on the events of two channels, by time if they arrive within orderWait, until one
// of them is closed or ctx ends. Then it closes the third.
func inOrder(ctx context.Context, own, elsewhere <-chan []store.Event, to chan<- []store.Event) {
	defer close(to)
	var waiting []step // by time
	timer := time.NewTimer(orderWait)
	timer.Stop()
	for {
		var list []store.Event
		open, n := true, 0
		select {
		case list, open = <-own:
		case list, open = <-elsewhere:
		case now := <-timer.C:
			n = ripe(waiting, now)
			if n < len(waiting) {
				timer.Reset(orderEvery)
			}
		case <-ctx.Done():
			return
		}
		if !open {
			return
		}
		if len(list) > 0 {
			if len(waiting) == 0 {
				timer.Reset(orderWait)
			}
			at, _ := slices.BinarySearchFunc(waiting, list[0].Time, func(s step, t time.Time) int {
				if s.list[0].Time.After(t) {
					return 1
				}
				return -1 // after events of the same time
			})
			if waiting = slices.Insert(waiting, at, step{list, time.Now()}); len(waiting) > waitingMax {
				n = waitingOff
			}
		}
		for _, s := range waiting[:n] {
			select {
			case to <- s.list:
			case <-ctx.Done():
				return
			}
		}
		waiting = slices.Delete(waiting, 0, n)
	}
}

// ripe returns how many steps have waited long enough, and what is of before them.
func ripe(waiting []step, now time.Time) int {
	for n := len(waiting); n > 0; n-- {
		if now.Sub(waiting[n-1].came) >= orderWait {
			return n
		}
	}
	return 0
}
