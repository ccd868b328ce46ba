package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// explain gives ready runs that no node takes the reason. It goes by the nodes as they are
// now: a stored reason would be wrong as soon as a node joins or leaves.
func (s *Runs) explain(ctx context.Context, runs []store.Run) error {
	if !slices.ContainsFunc(runs, func(r store.Run) bool { return r.State == job.StateReady }) {
		return nil
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	live, err := s.liveSessions(ctx)
	if err != nil {
		return err
	}
	bySession := map[job.ID]*store.Session{}
	for i := range live {
		bySession[live[i].ID] = &live[i]
	}
	jobs := map[job.ID]*store.Job{}
	for i := range runs {
		r := &runs[i]
		if r.State != job.StateReady {
			continue
		}
		var why string
		if on := bySession[r.Session]; on != nil {
			why = busy(r, on, now)
		} else if why, err = s.unplaced(ctx, r, live, jobs); err != nil {
			return err
		}
		switch {
		case why == "":
		case r.Last != "":
			r.Reason += "; " + why // after why there is another attempt
		default:
			r.Reason = why
		}
	}
	return nil
}

// busy explains why a node has not started a due run. The node's load from before the due
// time does not count: it may have had room a moment later.
func busy(r *store.Run, s *store.Session, now time.Time) string {
	if s.Capacity == 0 || s.Load.Running < s.Capacity || !r.Due.Before(now) || s.Renewed.Before(r.Due) {
		return ""
	}
	return fmt.Sprintf("node %s runs as many attempts as it may: %d", s.Node, s.Load.Running)
}

// unplaced says why a run has no live node.
func (s *Runs) unplaced(ctx context.Context, r *store.Run, live []store.Session, jobs map[job.ID]*store.Job) (string, error) {
	j, ok := jobs[r.JobUID]
	if !ok {
		var err error
		if j, err = store.JobByUID(ctx, s.store, r.JobUID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", err
		}
		jobs[r.JobUID] = j
	}
	if j == nil {
		return "", nil // it is about to be withdrawn
	}
	filled := j.Filled
	if step, _ := r.Step(); r.Kind == job.RunStep && filled.Run.IsFlow() {
		for _, one := range filled.Run.Flow.All() {
			if one.Name == step {
				filled = filled.OfStep(one)
			}
		}
	}
	place := filled.Nodes()
	if engine.Belongs(place.Binds(), r.Node) {
		for i := range live {
			if live[i].Node == r.Node && live[i].Drain != nil {
				return "it belongs to its node, and " + live[i].Drain.InWords(r.Node), nil
			}
		}
		return "it belongs to node " + r.Node + ", which is not live", nil
	}
	return placement.Nowhere(&place, filled.Run.HandlerName(), live), nil
}
