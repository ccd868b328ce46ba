package planqueue

import (
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Whereabouts returns the places of the runs' jobs, and the unknown jobs, which are paused
// or deleted.
func (t *Queue) Whereabouts(runs []store.Run) (places map[job.ID]engine.Whereabouts, others []job.ID) {
	places = make(map[job.ID]engine.Whereabouts, len(runs))
	seen := make(map[job.ID]bool, len(runs))
	for i := range runs {
		uid := runs[i].JobUID
		if seen[uid] {
			continue
		}
		seen[uid] = true
		if e, ok := t.byUID[uid]; ok {
			places[uid] = t.timings[t.entries[e].timing].where
		} else {
			others = append(others, uid)
		}
	}
	return places, others
}

// Place assigns nodes to runs without one. A run whose job is not among the places gets none: the
// job was deleted.
func Place(runs []store.Run, places map[job.ID]engine.Whereabouts, live []store.Session) []store.Placement {
	placements := make([]store.Placement, 0, len(runs))
	for i := range runs {
		r := &runs[i]
		there, ok := places[r.JobUID]
		if !ok {
			continue
		}
		if session := sessionFor(r, there, live); !session.IsZero() {
			placements = append(placements, store.Placement{Job: r.JobUID, Run: r.ID, Attempt: r.Attempt, Session: session})
		}
	}
	return placements
}

// sessionFor returns the session that a run is placed on, which is zero if none is eligible.
func sessionFor(run *store.Run, there engine.Whereabouts, live []store.Session) job.ID {
	request := placement.Request{UID: run.JobUID, Place: there.Place, Handler: there.Handler, User: there.User, Scheduled: run.Scheduled, Sequence: int(run.ID[15])}
	request.Place.Shards = 0 // it is a single shard or unsplit
	if there.Place.Strategy == job.StrategyBroadcast {
		request.Place.Strategy = job.StrategyAny
	}
	if bound := there.Place.Binds(); engine.Belongs(bound, run.Node) {
		live = slices.DeleteFunc(slices.Clone(live), func(s store.Session) bool { return !engine.MayGoTo(bound, run.Node, s.Node) })
	}
	placed, _ := placement.Runs(request, live)
	return placed[0].Session
}
