package planner

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// placePages is how many batches of runs a round places at most.
const placePages = 10

// placeRest assigns the runs that have no node: followers, runs by hand that were
// asked for while there was none, and those of nodes that have left. Where there
// are very many the next round continues: runs that fit no node do not hide others.
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
			return !mine.Has(job.Partition(r.JobUID)) // who plans the job also places its runs
		})
		places, err := p.placesOf(ctx, runs)
		if err != nil {
			return err
		}
		placements := make([]store.Placement, 0, len(runs))
		for i := range runs {
			there, ok := places[runs[i].JobUID]
			if !ok {
				continue // the job is gone, and the run with it
			}
			if session := sessionFor(&runs[i], there, live); !session.IsZero() {
				placements = append(placements, store.Placement{Job: runs[i].JobUID, Run: runs[i].ID, Attempt: runs[i].Attempt, Session: session})
			}
		}
		if len(placements) > 0 {
			if err := p.Store.Place(ctx, placements); err != nil {
				return fmt.Errorf("place runs: %w", err)
			}
		}
		if !full {
			p.unplaced = store.RunRef{}
			return nil
		}
		p.unplaced = store.RunRef{Due: last.Due, ID: last.ID}
	}
	return nil
}

// sessionFor returns the session that a run is placed on, which is zero if none is eligible.
func sessionFor(run *store.Run, there engine.Whereabouts, live []store.Session) job.ID {
	request := placement.Request{UID: run.JobUID, Place: there.Place, Handler: there.Handler, Scheduled: run.Scheduled, Sequence: int(run.ID[15])}
	request.Place.Shards = 0 // it is one shard already, or not split
	if there.Place.Strategy == job.StrategyBroadcast {
		request.Place.Strategy = job.StrategyAny
	}
	if bound := there.Place.Binds(); bound && run.Node != "" {
		live = slices.DeleteFunc(slices.Clone(live), func(s store.Session) bool { return !engine.MayGoTo(bound, run.Node, s.Node) })
	}
	placed, _ := placement.Runs(request, live)
	return placed[0].Session
}

// placesOf returns where the jobs of a batch of runs may run; deleted jobs are left out.
func (p *Planner) placesOf(ctx context.Context, runs []store.Run) (map[job.ID]engine.Whereabouts, error) {
	places := make(map[job.ID]engine.Whereabouts, len(runs))
	seen := make(map[job.ID]bool, len(runs))
	var others []job.ID // paused, or not ours any more
	p.mu.Lock()
	for i := range runs {
		uid := runs[i].JobUID
		if seen[uid] {
			continue
		}
		seen[uid] = true
		if e, ok := p.table.byUID[uid]; ok {
			t := p.table.timings[p.table.entries[e].timing]
			places[uid] = t.where
		} else {
			others = append(others, uid)
		}
	}
	p.mu.Unlock()
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
