package sqldb

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAStepWaitsForTheClientsOfTheLastOne(t *testing.T) {
	for _, c := range []struct {
		what                     string
		waiting, answered, later int // numbers of waiting, of answered, and of soon repeated calls
		took                     time.Duration
	}{
		{"a client alone", 0, 1, 0, 0},
		{"one that waits, beside one that was answered and asks again", 1, 1, 1, time.Millisecond},
		{"the clients of a large step", 0, 8, 8, time.Millisecond},
		{"clients that do not ask again", 1, 7, 3, gatherMax},
		{"a full step", putsMax, 8, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &puts{busy: true}
			for range c.waiting {
				g.queues(&put{})
			}
			time.AfterFunc(time.Millisecond, func() {
				for range c.later {
					g.queues(&put{})
				}
			})
			began := time.Now()
			g.gather(c.answered)
			if took := time.Since(began); took != c.took {
				t.Errorf("%s: the step waits for %s, want %s", c.what, took, c.took)
			}
			if g.queues(&put{}); g.full != nil { // a late call
				t.Errorf("%s: a step is still waited for", c.what)
			}
			time.Sleep(time.Millisecond)
		})
	}
}
