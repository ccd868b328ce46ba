package service

import (
	"context"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// poolLook is how many active runs are searched for the runs of a pool, the earliest due first, so that
// planned runs come last: stores find runs by their slot only within a step. Reading them takes a store
// some milliseconds.
const poolLook = 1000

// PoolUse is what the slots of a pool are used for.
type PoolUse struct {
	Size int // 0 without a bound
	Rate *job.Rate
	// Held is how many runs hold a slot, and Waiting how many wait for one or for their turn to start.
	Held, Waiting int
	// Holds and Waits are the runs that the caller may see, by due time.
	Holds, Waits []client.Run
	// More is set if there may be others, since not all active runs were searched.
	More bool
}

// PoolUse returns which runs hold the slots of a pool, and which wait for one. An undeclared pool
// has one slot. The counts include runs of namespaces that the caller may not read: like the size, they
// say something about the pool.
func (s *Runs) PoolUse(ctx context.Context, who Caller, pool Name) (PoolUse, error) {
	use := PoolUse{Size: 1}
	if err := who.MayIn(Read, pool.Namespace); err != nil {
		return use, err
	}
	declared, err := s.store.Documents(ctx, job.KindPool)
	if err != nil {
		return use, err
	}
	all := engine.Documents{}
	for _, d := range declared {
		all.Put(d)
	}
	if slots := all.Slots(pool.String()); slots != nil {
		use.Size, use.Rate = slots.Size, slots.Rate
	}
	runs, err := s.store.ListActive(ctx, store.ActiveQuery{Limit: poolLook})
	if err != nil {
		return use, err
	}
	use.More = len(runs) == poolLook
	for i := range runs {
		r := &runs[i]
		name, ok := engine.PoolOfSlot(r.Slot)
		of, isLine := engine.PoolOfLine(name)
		if !ok || of != pool.String() {
			continue
		}
		var list *[]client.Run
		switch {
		case r.HoldsSlot && !isLine:
			use.Held++
			list = &use.Holds
		case isLine && r.HoldsSlot, r.State == job.StateWaiting && !r.AwaitsPrevious:
			use.Waiting++
			list = &use.Waits
		default:
			continue
		}
		if who.sees(r.Namespace + "/" + r.Name) {
			*list = append(*list, activeRun(r))
		}
	}
	return use, nil
}
