package runqueue

import (
	"testing"
	"time"
)

func TestLeadCoversAStoreWithPauses(t *testing.T) {
	lead := leadAtFirst
	var now time.Duration
	batches := func(took time.Duration, n int) {
		for range n {
			now += 20 * time.Millisecond
			lead.measured(took, 10, now)
		}
	}
	const still = 80 * time.Millisecond
	batches(2*time.Millisecond, 50)
	batches(still, 1)
	batches(2*time.Millisecond, 100)
	if l := lead.of(1); l < still {
		t.Errorf("two seconds after the store stood still for %s claims go out %s ahead", still, l)
	}
	batches(2*time.Millisecond, 3000)
	if l := lead.of(1); l > 20*time.Millisecond {
		t.Errorf("a minute later claims go out %s ahead", l)
	}
	// A stall of that length is not expected again.
	batches(time.Second, 1)
	batches(2*time.Millisecond, 100)
	if l := lead.of(1); l > 4*leadKept {
		t.Errorf("two seconds after the store stood still for a second claims go out %s ahead", l)
	}
}
