package planner

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// placePages is how many batches of runs a round places at most.
const placePages = 10

// placeRest assigns the runs that have no node: followers, runs by hand that were
// asked for while there was none, and those of nodes that have left. Where there
// are very many the next round goes on: those that fit no node do not hide others.
func (p *Planner) placeRest(ctx context.Context) error {
	looked := p.Look == nil
	for range placePages {
		runs, err := p.Store.Unplaced(ctx, p.unplaced, store.MaxBatch)
		if err != nil {
			return fmt.Errorf("read runs to place: %w", err)
		}
		if len(runs) > 0 && !looked {
			if err := p.Look(ctx); err != nil {
				return err
			}
			looked = true
		}
		if len(runs) == 0 {
			p.unplaced = store.RunRef{}
			return nil
		}
		live, mine := p.Live(), p.Partitions()
		placements := make([]store.Placement, 0, len(runs))
		for i := range runs {
			if !mine.Has(job.Partition(runs[i].JobUID)) {
				continue // who plans the job also places its runs
			}
			place, handler, err := p.placeOf(ctx, runs[i].JobUID)
			if err != nil {
				return err
			}
			request := placement.Request{UID: runs[i].JobUID, Place: place, Handler: handler, Scheduled: runs[i].Scheduled, Sequence: int(runs[i].ID[15])}
			request.Place.Shards = 0 // it is one shard already, or not split
			if place.Strategy == job.StrategyBroadcast {
				request.Place.Strategy = job.StrategyAny
			}
			candidates := live
			if bound := place.Sticky || place.Strategy == job.StrategyBroadcast; bound && runs[i].Node != "" {
				candidates = sessionsOf(runs[i].Node, live)
			}
			placed, _ := placement.Runs(request, candidates)
			if !placed[0].Session.IsZero() {
				placements = append(placements, store.Placement{Run: runs[i].ID, Attempt: runs[i].Attempt, Session: placed[0].Session})
			}
		}
		if len(placements) > 0 {
			if err := p.Store.Place(ctx, placements); err != nil {
				return fmt.Errorf("place runs: %w", err)
			}
		}
		if len(runs) < store.MaxBatch {
			p.unplaced = store.RunRef{}
			return nil
		}
		last := &runs[len(runs)-1]
		p.unplaced = store.RunRef{Due: last.Due, ID: last.ID}
	}
	return nil
}

// sessionsOf returns the sessions of a node.
func sessionsOf(node string, live []store.Session) []store.Session {
	return slices.DeleteFunc(slices.Clone(live), func(s store.Session) bool { return s.Node != node })
}

// placeOf returns where a job may run.
func (p *Planner) placeOf(ctx context.Context, uid job.ID) (job.Place, string, error) {
	p.mu.Lock()
	if i, ok := p.table.byUID[uid]; ok {
		t := p.table.timings[p.table.entries[i].timing]
		p.mu.Unlock()
		return t.place, t.handler, nil
	}
	p.mu.Unlock()
	j, err := p.Store.JobByUID(ctx, uid) // paused, or not one of ours
	if err != nil {
		return job.Place{}, "", fmt.Errorf("read job %s: %w", uid, err)
	}
	return j.Filled.Place, j.Filled.Run.Handler, nil
}
