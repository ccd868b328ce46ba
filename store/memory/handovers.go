package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Handovers implements ledger.Backend.
func (s *backend) Handovers(ctx context.Context, q store.HandoverQuery) ([]store.Handover, error) {
	return locked(ctx, s, func() (list []store.Handover) {
		for _, h := range s.handovers {
			switch {
			case q.Numbers != nil && slices.Contains(q.Numbers, h.Number),
				!q.Run.IsZero() && h.Attempt.Run == q.Run,
				q.Kind != "" && h.Kind == q.Kind && !h.IsOver() && !h.Ask.After(q.AskBy):
				list = append(list, *h)
			}
		}
		slices.SortFunc(list, func(a, b store.Handover) int {
			if q.Kind != "" && !a.Ask.Equal(b.Ask) {
				return a.Ask.Compare(b.Ask)
			}
			return cmp.Compare(a.Number, b.Number)
		})
		return list[:min(q.Limit, len(list))]
	})
}

// openHandovers returns the handovers of a run that have not ended.
func (s *backend) openHandovers(run job.ID) (list []*store.Handover) {
	for _, h := range s.handovers {
		if h.Attempt.Run == run && !h.IsOver() {
			list = append(list, h)
		}
	}
	return list
}

func (t *tx) loadHandovers(n *engine.Need, b *engine.Batch) {
	for _, number := range n.Handovers {
		if h := t.handovers[number]; h != nil {
			b.AddHandover(h)
		}
	}
	for _, ref := range n.HandedOver {
		for _, h := range (*backend)(t).openHandovers(ref.Run) {
			b.AddHandover(h)
		}
	}
	if n.Number {
		b.UseNumber(t.number)
	}
}

func (t *tx) writeHandovers(c *engine.Changes) {
	for _, h := range c.Handovers {
		t.handovers[h.Number] = h
	}
	for _, ask := range c.AskNow {
		for _, h := range (*backend)(t).openHandovers(ask.Run) {
			own := *h
			own.Ask = ask.At
			t.handovers[h.Number] = &own
		}
	}
	if c.Number > 0 {
		t.number = c.Number
	}
}
