package stripes_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/job"
)

// enter enters some stripes, and returns the stripes that were busy.
func enter(l *stripes.Stripes, some stripes.Set) (busy stripes.Set) {
	l.Enter(func(b stripes.Set) stripes.Set {
		busy = b
		return some
	})
	return busy
}

func TestALaneIsBusyUntilTheLastCallLeaves(t *testing.T) {
	var l stripes.Stripes
	var one, two stripes.Set
	one.Add(1)
	two.Add(1)
	two.Add(7)
	if busy := enter(&l, one); busy != 0 {
		t.Errorf("%b are busy", busy)
	}
	if busy := enter(&l, two); busy != one {
		t.Errorf("%b are busy, not %b", busy, one)
	}
	l.Leave(one)
	if busy := enter(&l, 0); busy != two {
		t.Errorf("%b are busy, not %b", busy, two)
	}
	l.Leave(two)
	if busy := enter(&l, 0); busy != 0 {
		t.Errorf("%b are busy", busy)
	}
}

func TestNilLanesAreUsable(t *testing.T) {
	var l *stripes.Stripes
	for range 2 {
		if busy := enter(l, 1); busy != 0 {
			t.Errorf("%b are busy", busy)
		}
	}
	l.Leave(1)
}

func TestJobsFallIntoAllLanesAlike(t *testing.T) {
	const n = 1000 * stripes.Number
	var jobs [stripes.Number]int
	for range n {
		id, err := job.NewID(time.Now(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		jobs[stripes.Of(id)]++
	}
	for stripe, m := range jobs {
		if m < 800 || m > 1200 { // seven times the standard deviation
			t.Errorf("%d of %d jobs are in stripe %d", m, n, stripe)
		}
	}
}
