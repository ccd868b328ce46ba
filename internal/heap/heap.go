// Package heap has the runtime collect garbage less often while something is done that
// makes much of it, as far as that takes little memory. It knows nothing about what is
// done.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// roomMax is how much garbage there may be when less than that is in use: a
	// second of work.
	roomMax = 128 << 20
	// percentMax bounds how much there may be for what is in use: beyond it, there is
	// little left to be won.
	percentMax = 400
)

// room is who needs it. The runtime has one limit for the whole process.
var room struct {
	mu    sync.Mutex
	users int
	// usual is the limit while nobody needs room.
	usual int
	// watched is set while something waits for the next collection.
	watched bool
}

// NeedRoom is called before something that makes much garbage, and what it returns once
// it is done. In between there may be as much garbage as there is in use, as at any time,
// or 128 MB if that is more.
func NeedRoom() (done func()) {
	room.mu.Lock()
	defer room.mu.Unlock()
	if room.users++; room.users == 1 {
		room.usual = debug.SetGCPercent(percentMax)
		adapt()
	}
	return sync.OnceFunc(func() {
		room.mu.Lock()
		defer room.mu.Unlock()
		if room.users--; room.users == 0 {
			debug.SetGCPercent(room.usual)
		}
	})
}

// adapt sets the limit for what is in use, now and after each collection, as long as
// somebody needs room. The caller holds the mutex.
func adapt() {
	debug.SetGCPercent(percentFor(inUse(), room.usual))
	if room.watched {
		return
	}
	room.watched = true
	type garbage struct{ _ *int } // what has no pointer may be kept together with others
	runtime.SetFinalizer(&garbage{}, func(*garbage) {
		room.mu.Lock()
		defer room.mu.Unlock()
		if room.watched = false; room.users > 0 {
			adapt()
		}
	})
}

// percentFor returns the limit for so many bytes in use.
func percentFor(live uint64, usual int) int {
	if usual < 0 { // collections are switched off
		return usual
	}
	return max(usual, int(min(percentMax, roomMax*100/max(live, 1))))
}

// inUse returns how much was in use after the latest collection.
func inUse() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return roomMax // no such number: everything stays as it is
	}
	return sample[0].Value.Uint64()
}
