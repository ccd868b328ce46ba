package lanes_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/lanes"
	"github.com/belfry-cron/belfry/job"
)

func TestALaneIsBusyUntilTheLastCallLeaves(t *testing.T) {
	var l lanes.Lanes
	var one, two lanes.Set
	one.Add(1)
	two.Add(1)
	two.Add(7)
	l.Enter(one)
	l.Enter(two)
	if busy := l.Busy(); busy != two {
		t.Errorf("%b are busy, not %b", busy, two)
	}
	l.Leave(two)
	if busy := l.Busy(); busy != one {
		t.Errorf("%b are busy, not %b", busy, one)
	}
	l.Leave(one)
	if busy := l.Busy(); busy != 0 {
		t.Errorf("%b are busy", busy)
	}
}

func TestNobodyNeedsLanes(t *testing.T) {
	var l *lanes.Lanes
	var some lanes.Set
	some.Add(3)
	l.Enter(some)
	if l.Busy() != 0 {
		t.Error("no lanes are busy")
	}
	l.Leave(some)
}

func TestJobsFallIntoAllLanesAlike(t *testing.T) {
	const n = 1000 * lanes.Number
	var jobs [lanes.Number]int
	for range n {
		id, err := job.NewID(time.Now(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		jobs[lanes.Of(id)]++
	}
	for lane, m := range jobs {
		if m < 800 || m > 1200 { // seven times the standard deviation
			t.Errorf("%d of %d jobs are in lane %d", m, n, lane)
		}
	}
}
