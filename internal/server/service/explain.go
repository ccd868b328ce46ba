package service

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// explain adds the reason to ready runs that no node takes. It checks the current nodes: a
// stored reason would be stale as soon as a node joins or leaves.
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
	jobs, err := s.jobsOf(ctx, runs, func(r *store.Run) bool { return r.State == job.StateReady && bySession[r.Session] == nil })
	if err != nil {
		return err
	}
	for i := range runs {
		r := &runs[i]
		if r.State != job.StateReady || r.IsPostponed() {
			continue
		}
		var why job.Reason
		if on := bySession[r.Session]; on != nil {
			why = busy(r, on, now)
		} else {
			why = unplaced(r, live, jobs[r.JobUID])
		}
		switch {
		case why.IsZero():
		case r.Last != "":
			r.Reason = reason.Both.Of(r.Reason, why) // after why there is another attempt
		default:
			r.Reason = why
		}
	}
	return nil
}

// busy explains why a node has not started a due run. The node's load before the due time
// does not count: it may have had capacity a moment later.
func busy(r *store.Run, s *store.Session, now time.Time) (none job.Reason) {
	if s.Capacity == 0 || s.Load.Running < s.Capacity || !r.Due.Before(now) || s.Renewed.Before(r.Due) {
		return none
	}
	return reason.NodeFull.Of(s.Node, s.Load.Running)
}

// jobsOf returns the jobs of selected runs: at once, as lists have many.
func (s *Runs) jobsOf(ctx context.Context, runs []store.Run, selected func(*store.Run) bool) (map[job.ID]*store.Job, error) {
	var uids []job.ID
	jobs := map[job.ID]*store.Job{}
	for i := range runs {
		if r := &runs[i]; selected(r) {
			if _, known := jobs[r.JobUID]; !known {
				uids, jobs[r.JobUID] = append(uids, r.JobUID), nil
			}
		}
	}
	for some := range slices.Chunk(uids, store.MaxBatch) {
		list, err := s.store.JobsByUID(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, j := range list {
			jobs[some[i]] = j
		}
	}
	return jobs, nil
}

// unplaced explains why a run has no live node.
func unplaced(r *store.Run, live []store.Session, j *store.Job) (none job.Reason) {
	if j == nil {
		return none // it is about to be withdrawn
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
			if d := live[i].Drain; live[i].Node == r.Node && d != nil {
				return reason.BelongsDrained.Of(reason.NodeDrained.Of(r.Node, d.By, reason.Words(d.Reason)))
			}
		}
		return reason.BelongsAway.Of(r.Node)
	}
	return placement.Nowhere(&place, filled.Run.HandlerName(), live)
}
