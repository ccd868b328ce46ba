//go:build linux || darwin

package clock

import (
	"testing"
	"time"
)

func TestTheBootClockIsReadAgainAfterASuspendAndInTime(t *testing.T) {
	for _, c := range []struct {
		what            string
		monotonic, wall time.Duration
		want            bool
	}{
		{"at once", 0, 0, true},
		{"soon", 50 * time.Millisecond, 50*time.Millisecond + 20*time.Microsecond, true},
		{"later", derivedFor, derivedFor, false},
		{"after a suspend", 5 * time.Millisecond, time.Hour, false},
		{"after a short one", 5 * time.Millisecond, 6 * time.Millisecond, false},
		{"when the wall clock was put back", 5 * time.Millisecond, -time.Hour, false},
		{"when another goroutine has read it since", -time.Millisecond, -time.Millisecond, false},
	} {
		if got := derives(c.monotonic, c.wall); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
}

func TestTheBootClockShowsWhatTheSystemSays(t *testing.T) {
	derived := 0
	for began := time.Now(); time.Since(began) < 3*derivedFor; time.Sleep(time.Millisecond) {
		before := readBoot()
		last := latest.Load()
		shown := Boot()
		after := readBoot()
		if latest.Load() == last {
			derived++
		}
		const off = 2 * apart // of two clocks that are read one after the other
		if shown < before-off || shown > after+off {
			t.Fatalf("it shows %s, the system %s before and %s after", shown, before, after)
		}
	}
	if derived == 0 {
		t.Error("the system was asked each time")
	}
}

func BenchmarkBoot(b *testing.B) {
	for b.Loop() {
		Boot()
	}
}
