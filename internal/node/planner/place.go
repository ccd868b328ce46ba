package planner

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/planqueue"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// placePages is the most batches of runs that a round places.
const placePages = 10

// placeRest assigns runs without a node: followers, manual runs requested while no node was live,
// and runs of nodes that have left. If there are many the next round continues, so that runs
// without a matching node do not block others.
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
		last, full := runs[len(runs)-1], len(runs) == store.MaxBatch
		runs = slices.DeleteFunc(runs, func(r store.Run) bool {
			return !mine.Has(job.Partition(r.JobUID)) // the planner of a job also places its runs
		})
		places, err := p.placesOf(ctx, runs)
		if err != nil {
			return err
		}
		placements := planqueue.Place(runs, places, live)
		if len(placements) > 0 {
			if err := p.Store.Place(ctx, placements); err != nil {
				return fmt.Errorf("place runs: %w", err)
			}
		}
		if !full {
			p.unplaced = store.RunRef{}
			return nil
		}
		p.unplaced = last.Ref()
	}
	return nil
}

// placesOf returns where the jobs of some runs may run, without deleted jobs.
func (p *Planner) placesOf(ctx context.Context, runs []store.Run) (places map[job.ID]engine.Whereabouts, err error) {
	var others []job.ID
	p.ask(func(queue *planqueue.Queue) { places, others = queue.Whereabouts(runs) })
	if len(others) == 0 {
		return places, nil
	}
	jobs, err := p.Store.JobsByUID(ctx, others)
	if err != nil {
		return nil, fmt.Errorf("read the jobs of runs to place: %w", err)
	}
	for i, j := range jobs {
		if j != nil {
			places[others[i]] = engine.WhereaboutsOf(j.Filled)
		}
	}
	return places, nil
}
