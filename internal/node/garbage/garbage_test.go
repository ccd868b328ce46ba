package garbage

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestThereIsRoomWhereLittleIsInUse(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		live  uint64
		usual int
		want  int
	}{
		{0, 100, 400}, // before the first collection
		{4 * mb, 100, 400},
		{64 * mb, 100, 200},
		{128 * mb, 100, 100},
		{1000 * mb, 100, 100},
		{4 * mb, 800, 800},  // the setting wants more anyway
		{1000 * mb, 50, 50}, // memory is short
		{4 * mb, -1, -1},    // nothing is collected
	} {
		if got := percentFor(c.live, c.usual); got != c.want {
			t.Errorf("with %d MB in use and a limit of %d: got %d, want %d", c.live/mb, c.usual, got, c.want)
		}
	}
}

// limit returns the limit of the runtime.
func limit() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestLimitIsRestoredWithoutDemand(t *testing.T) {
	runtime.GC() // collects what other tests have left
	usual := limit()
	first, second := NeedRoom(), NeedRoom()
	first()
	first() // means nothing
	if got := limit(); got <= usual {
		t.Errorf("while one needs room, the limit is %d", got)
	}
	second()
	if got := limit(); got != usual {
		t.Errorf("afterwards the limit is %d, want %d", got, usual)
	}
}

// Memory in use grows while the room shrinks.
func TestRoomCountsUsedSpace(t *testing.T) {
	runtime.GC()
	usual := limit()
	defer NeedRoom()()
	before := limit()
	held := make([]byte, 2*roomMax)
	deadline := time.Now().Add(time.Minute)
	for limit() != usual {
		if time.Now().After(deadline) {
			t.Fatalf("with %d MB in use the limit is %d, and was %d", len(held)>>20, limit(), before)
		}
		runtime.GC()
		runtime.Gosched() // the finalizer runs after a collection
	}
	runtime.KeepAlive(held)
}
