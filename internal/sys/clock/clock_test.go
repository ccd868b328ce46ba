package clock

import (
	"testing"
	"time"
)

func TestStepsOfTheWallClockAreNoticedOnce(t *testing.T) {
	wall, boot := time.Unix(1_000_000, 0), time.Hour
	w := NewWatch(func() time.Time { return wall }, func() time.Duration { return boot })
	for _, c := range []struct {
		name       string
		wall, boot time.Duration
		want       time.Duration
	}{
		{"both go on", time.Second, time.Second, 0},
		{"slewed a little", time.Second + time.Millisecond, time.Second, 0},
		{"put forward", time.Hour + time.Second, time.Second, time.Hour},
		{"continues", time.Second, time.Second, 0},
		{"put back", -time.Hour, time.Second, -time.Hour - time.Second},
		{"suspended: both went on", 8 * time.Hour, 8 * time.Hour, 0},
	} {
		wall, boot = wall.Add(c.wall), boot+c.boot
		if got := w.Stepped(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestABusyMachineSetsNoClock(t *testing.T) {
	wall, boot := time.Unix(1_000_000, 0), time.Hour
	delays := []time.Duration{}
	w := NewWatch(func() time.Time {
		at := wall
		if len(delays) > 0 { // the process has to wait between the two clocks
			wall, boot = wall.Add(delays[0]), boot+delays[0]
			delays = delays[1:]
		}
		return at
	}, func() time.Duration { return boot })
	delays = []time.Duration{time.Second, 2 * time.Second}
	if step := w.Stepped(); step != 0 {
		t.Errorf("got a step of %s", step)
	}
	if last := w.Last(); last != 0 {
		t.Errorf("the last step is at %s", last)
	}
	wall = wall.Add(time.Hour)
	if step := w.Stepped(); step != time.Hour || w.Last() != boot {
		t.Errorf("got a step of %s at %s, want 1h at %s", step, w.Last(), boot)
	}
}

func TestTheBootClockGoesForward(t *testing.T) {
	before := Boot()
	if after := Boot(); before <= 0 || after < before {
		t.Errorf("%s, then %s", before, after)
	}
}
