// Package garbage makes the runtime collect garbage less often during allocation-heavy work, within
// a memory bound.
package garbage

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// roomMax is how much garbage may accumulate when less than that is in use: about a second of
	// work.
	roomMax = 128 << 20
	// percentMax bounds the garbage relative to what is in use: more gains little.
	percentMax = 400
)

// room counts the callers that need it. The runtime has one limit for the whole process.
var room struct {
	mu    sync.Mutex
	users int
	// usual is the limit when no caller needs room.
	usual int
	// watched is set while a finalizer waits for the next collection.
	watched bool
}

// NeedRoom lets garbage grow to what is in use, or to 128 MB if that is more, until done is
// called.
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

// adapt sets the limit for the memory in use, now and after each collection, while a caller needs
// room. The caller holds the mutex.
func adapt() {
	debug.SetGCPercent(percentFor(inUse(), room.usual))
	if room.watched {
		return
	}
	room.watched = true
	type garbage struct{ _ *int } // without a pointer it might share memory with other values
	runtime.SetFinalizer(&garbage{}, func(*garbage) {
		room.mu.Lock()
		defer room.mu.Unlock()
		if room.watched = false; room.users > 0 {
			adapt()
		}
	})
}

// percentFor returns the limit for n bytes in use.
func percentFor(live uint64, usual int) int {
	if usual < 0 { // collections are off
		return usual
	}
	return max(usual, int(min(percentMax, roomMax*100/max(live, 1))))
}

// inUse returns how much was in use after the latest collection.
func inUse() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return roomMax // no such number: the limit stays
	}
	return sample[0].Value.Uint64()
}
