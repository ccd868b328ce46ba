package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The judge of node_restarted and process_ended relies on this bound.
func TestMessagesArriveWithinTheirBound(t *testing.T) {
	n := &model{core: &Core{random: rand.New(rand.NewPCG(1, 2))}, slow: true}
	w := &weather{random: rand.New(rand.NewPCG(1, 2)), slow: true}
	var slowest time.Duration
	for range 100_000 {
		slowest = max(slowest, n.delay(), w.draw(false).takes)
	}
	if slowest > onItsWayMax || slowest < onItsWayMax-2*time.Second {
		t.Errorf("a message took %s, want at most and nearly %s", slowest, onItsWayMax)
	}
}
