package worker

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBusyWorkerCollectsGarbageLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rooms, asked := 0, 0
		w := New(Config{NeedRoom: func() func() {
			rooms, asked = rooms+1, asked+1
			return func() { rooms-- }
		}})
		var r room
		after := func(d time.Duration, claims, want int) {
			t.Helper()
			time.Sleep(d)
			w.makeRoom(&r, claims >= busyFrom)
			if rooms != want {
				t.Errorf("after %d claims it has %d rooms, want %d", claims, rooms, want)
			}
		}
		after(time.Second, busyFrom-1, 0)
		after(time.Second, busyFrom, 1)
		after(time.Second, 0, 1)
		after(busyFor-2*time.Second, busyFrom, 1) // a herd again
		after(busyFor, 0, 1)
		after(time.Second, busyFrom-1, 0)
		after(time.Second, busyFrom, 1)
		r.leave()
		if rooms != 0 || asked != 2 {
			t.Errorf("in the end it has %d rooms, and has asked %d times", rooms, asked)
		}
	})
}
