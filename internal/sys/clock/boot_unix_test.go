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
		r := reading{boot: time.Hour}
		if boot, ok := r.derive(c.monotonic, c.wall); ok != c.want || boot != time.Hour+c.monotonic {
			t.Errorf("%s: %s, %t; want %t", c.what, boot, ok, c.want)
		}
	}
}

func TestBootClockAgreesWithTheSystem(t *testing.T) {
	for i := range 1000 { // most of them derived
		before := readBoot()
		shown := Boot()
		after := readBoot()
		if shown < before-time.Microsecond || shown > after+together {
			t.Fatalf("reading %d is %s, the system's %s before and %s after", i, shown, before, after)
		}
	}
}

func TestSlowClockReadingIsRepeated(t *testing.T) {
	at := time.Now()
	if r := readingOf(time.Hour, at, together-1); r == nil || r.boot != time.Hour || !r.at.Equal(at) {
		t.Errorf("one that was made at once is %v, want 1h at %v", r, at)
	}
	if r := readingOf(time.Hour, at, together); r != nil {
		t.Errorf("what is derived would be wrong by %s", together)
	}
}

func BenchmarkBoot(b *testing.B) {
	for b.Loop() {
		Boot()
	}
}
