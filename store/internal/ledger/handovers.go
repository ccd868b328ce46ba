package ledger

import (
	"context"
	"fmt"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Numbers implements [store.Handovers].
func (s *Control) Numbers(ctx context.Context, n int, from int64) (first int64, err error) {
	op := engine.Numbers{N: n, From: from}
	err = s.do(ctx, Order{Items: 1}, &op)
	return op.First, wrapped(err, "reserve numbers")
}

// HandOver implements [store.Handovers].
func (s *Control) HandOver(ctx context.Context, session job.ID, list []store.Handover) ([]store.HandedOver, error) {
	for i := range list {
		if err := checkAbout(list[i].About); err != nil {
			return nil, wrapped(err, "hand over run %s", list[i].Attempt.Run)
		}
	}
	var outcomes []store.HandedOver
	err := inParts(ctx, s, list, true, func(some []store.Handover) *engine.HandOver { return &engine.HandOver{Session: session, List: some} },
		func(op *engine.HandOver) { add(&outcomes, op.Outcomes) })
	return outcomes, wrapped(err, "hand over")
}

func checkAbout(text string) error {
	if n := len(text); n > store.HandoverAboutMax {
		return fmt.Errorf("about has %d bytes, and %d are allowed", n, store.HandoverAboutMax)
	}
	return nil
}

// Handovers implements [store.Handovers].
func (s *Control) Handovers(ctx context.Context, q store.HandoverQuery) ([]store.Handover, error) {
	if len(q.Numbers) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	list, err := s.ControlBackend.Handovers(ctx, q)
	return list, wrapped(err, "handovers")
}

// askMax is the most handovers in a step: all stores can commit that many at once, so that a
// repeated step has taken none before.
const askMax = 50

// ToAsk implements [store.Handovers].
func (s *Control) ToAsk(ctx context.Context, kind string, limit int) ([]store.Outstanding, error) {
	limit = min(limit, store.MaxBatch)
	var all []store.Outstanding
	for {
		now, err := s.Now(ctx)
		if err != nil {
			return nil, wrapped(err, "handovers to ask after")
		}
		op := engine.ToAsk{}
		page := min(askMax, limit-len(all))
		if op.Given, err = s.Handovers(ctx, store.HandoverQuery{Kind: kind, AskBy: now, Limit: page}); err != nil || len(op.Given) == 0 {
			return all, wrapped(err, "handovers to ask after")
		}
		if err := s.do(ctx, Order{Items: len(op.Given), Parts: true}, &op); err != nil {
			return nil, wrapped(err, "take handovers to ask after")
		}
		if all = append(all, op.Taken...); len(op.Given) < page || len(all) == limit {
			return all, nil
		}
	}
}

// Asked implements [store.Handovers].
func (s *Control) Asked(ctx context.Context, list []store.Answer) error {
	for i := range list {
		if err := checkAbout(list[i].About); err != nil {
			return wrapped(err, "note the answer about handover %d", list[i].Handover.Number)
		}
	}
	err := s.do(ctx, Order{Items: len(list), Parts: true}, &engine.Asked{List: list})
	return wrapped(err, "note answers about handovers")
}
