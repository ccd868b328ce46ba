// Package garbage makes the runtime collect garbage less often during work that makes much
// of it, within a bound of memory.
package garbage

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// roomMax is how much garbage may lie around when less than that is in use: the size of
	// a second of work.
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
	// watched is set while something waits for the next collection.
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

// adapt sets the limit for what is in use, now and after each collection, while a caller
// needs room. It needs the mutex.
func adapt() {
	debug.SetGCPercent(percentFor(inUse(), room.usual))
	if room.watched {
		return
	}
	room.watched = true
	type garbage struct{ _ *int } // values without pointers may share memory with others
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
