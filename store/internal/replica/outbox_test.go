package replica

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestReplacementFollowsItsOriginal(t *testing.T) {
	first := time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC)
	for what, step := range map[string]time.Duration{
		"in the same microsecond": time.Nanosecond, "with the clock set back": -time.Hour, "later": time.Hour,
	} {
		b := &Backend{state: &state{outbox: newOutbox()}}
		lost := &store.Record{Run: job.Run{ID: job.ID{1}}, Attempt: job.Attempt{Number: 1, Outcome: job.OutcomeLost}}
		late := *lost
		late.Attempt.Outcome, late.Replaces = job.OutcomeSucceeded, true
		at := first
		for _, r := range []*store.Record{lost, &late} {
			g := &group{newGroupKey(b.groupTime(at, []*store.Record{r})), []*store.Record{r}}
			b.state.outbox.put(g, encodeGroup(g))
			at = at.Add(step)
		}
		list, err := b.state.outbox.entries("", 10)
		if err != nil || len(list) != 2 || !list[1].Record.Replaces {
			t.Errorf("%s: of %d records the last does not replace the first, %v", what, len(list), err)
		}
	}
}
