package runqueue

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// inLane returns a job of a stripe.
func inLane(stripe int) (uid job.ID) {
	uid[0], uid[len(uid)-1] = 1, byte(stripe)
	return uid
}

func TestClaimBatchKeepsToOneLaneAmongEquallyUrgentRuns(t *testing.T) {
	at := time.Unix(1e9, 0)
	p := pending[int]{stripeOf: func(uid job.ID) int { return int(uid[len(uid)-1]) }}
	for i, c := range []struct {
		name     string
		stripe   int
		priority int
		due      time.Duration
	}{
		{"busy", 0, 0, 0},
		{"later", 1, 0, 3 * time.Second},
		{"first", 2, 0, time.Second},
		{"with it", 2, 0, 5 * time.Second},
		{"urgent", 0, 1, 9 * time.Second},
	} {
		p.push(&Item[int]{Ready: store.ReadyRun{
			RunRef: store.RunRef{Due: at.Add(c.due), ID: job.ID{byte(i)}}, Job: inLane(c.stripe), Priority: c.priority,
		}})
	}
	take := func(choice bool) (order []byte) {
		var within, busy Set
		busy.Add(0)
		all := p
		for stripe := range all.stripes {
			all.stripes[stripe] = append(queue[int](nil), all.stripes[stripe]...)
		}
		for {
			stripe, ok := all.first(choice, within, busy)
			if !ok {
				return order
			}
			within.Add(stripe)
			order = append(order, all.pop(stripe).Ready.ID[0])
		}
	}
	// Once the batch has the urgent item, it prefers that stripe.
	if got := string(take(true)); got != "\x04\x00\x02\x03\x01" {
		t.Errorf("with a choice they are taken in the order %q", got)
	}
	if got := string(take(false)); got != "\x04\x00\x02\x01\x03" {
		t.Errorf("without a choice they are taken in the order %q", got)
	}
	p.deleteFunc(func(it *Item[int]) bool { return it.Ready.Priority > 0 })
	if got := string(take(true)); got != "\x02\x03\x01\x00" {
		t.Errorf("without the urgent one they are taken in the order %q", got)
	}
	if p.len() != 4 {
		t.Errorf("%d are left, not 4", p.len())
	}
}
