// Package events delivers the changes of a store to its followers. A store sends them with a [Feed],
// in one process, and wakes other processes with [Hints]. A [Hub] follows a store while there are
// listeners, and keeps the latest events, so that a thousand listeners cost the store no more than
// one, and a listener can resume after a broken connection.
//
// Events beyond its bounds are dropped, and the gap is marked: neither a store nor another listener
// ever waits for a slow one.
package events

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/belfry-cron/belfry/store"
)

// batchesMax is how many batches a receiver may lag behind: about a second of commits of a busy
// store.
const batchesMax = 1024

// Feed passes changes to receivers in this process. The zero value is ready.
type Feed struct {
	wanted atomic.Int32
	mu     sync.Mutex
	// to has a channel for each receiver, which closes when its context ends, with whether it has
	// lost events since its last ones.
	to map[chan []store.Event]bool
}

// Wanted reports whether there is a receiver: without one no events are needed.
func (f *Feed) Wanted() bool { return f.wanted.Load() > 0 }

// Follow adds a receiver until ctx ends; then its channel is closed.
func (f *Feed) Follow(ctx context.Context) <-chan []store.Event {
	ch := make(chan []store.Event, batchesMax)
	f.mu.Lock()
	if f.to == nil {
		f.to = map[chan []store.Event]bool{}
	}
	f.to[ch] = false
	f.mu.Unlock()
	f.wanted.Add(1)
	context.AfterFunc(ctx, func() {
		f.wanted.Add(-1)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.to, ch)
		close(ch)
	})
	return ch
}

// Send passes events on without waiting: events beyond a receiver's room are lost, and its next
// ones begin with an event that reports the loss.
func (f *Feed) Send(list []store.Event) {
	if len(list) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch, lost := range f.to {
		batch := list
		if lost {
			batch = append([]store.Event{{Kind: store.EventLost, Time: list[0].Time}}, list...)
		}
		select {
		case ch <- batch:
			f.to[ch] = false
		default:
			f.to[ch] = true
		}
	}
}
