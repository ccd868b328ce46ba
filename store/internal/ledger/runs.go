package ledger

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Plan implements [store.Planning].
func (s *Control) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	var outcomes []store.PlanOutcome
	var claims []store.ClaimOutcome
	err := halved(ctx, s, items, Order{Adds: true, Starts: true, Parts: true}, func(some []store.PlanItem) *engine.Plan { return &engine.Plan{Session: session, Items: some} },
		func(op *engine.Plan) { add(&outcomes, op.Outcomes); add(&claims, op.Claims) })
	return outcomes, claims, wrapped(err, "plan")
}

// inParts makes a step about items that are separate steps, and passes on the result. If the
// backend cannot commit it at once, each half becomes a step.
func inParts[T any, O engine.Operation](ctx context.Context, s *Control, items []T, adds bool, about func([]T) O, done func(O)) error {
	return halved(ctx, s, items, Order{Adds: adds, Parts: true}, about, done)
}

func halved[T any, O engine.Operation](ctx context.Context, s *Control, items []T, o Order, about func([]T) O, done func(O)) error {
	op := about(items)
	o.Items = len(items)
	err := s.do(ctx, o, op)
	switch {
	case err == nil && done != nil:
		done(op)
	case (errors.Is(err, ErrTooLarge) || !o.Parts && errors.Is(err, store.ErrTooMany)) && len(items) > 1:
		half := len(items) / 2
		if err := halved(ctx, s, items[:half], o, about, done); err != nil {
			return err
		}
		return halved(ctx, s, items[half:], o, about, done)
	}
	return err
}

// add appends the outcomes of a part to the outcomes of the parts before it.
func add[T any](all *[]T, part []T) {
	if *all == nil {
		*all = part
		return
	}
	*all = append(*all, part...)
}

// Trigger implements [store.Planning].
func (s *Control) Trigger(ctx context.Context, items []store.TriggerItem) (outcomes []store.TriggerOutcome, err error) {
	err = inParts(ctx, s, items, true, func(some []store.TriggerItem) *engine.Trigger { return &engine.Trigger{Items: some} },
		func(op *engine.Trigger) { add(&outcomes, op.Outcomes) })
	return outcomes, wrapped(err, "trigger")
}

// LookAhead implements [store.Planning].
func (s *Control) LookAhead() time.Duration { return s.opt.LookAhead }

// Backlog implements [store.Planning].
func (s *Control) Backlog(ctx context.Context, limit int) (map[job.ID]int, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	backlog, err := s.ControlBackend.Backlog(ctx, now, limit)
	return backlog, wrapped(err, "backlog")
}

// Unplaced implements [store.Planning].
func (s *Control) Unplaced(ctx context.Context, after store.RunRef, limit int) ([]store.Run, error) {
	now, members, err := s.members(ctx)
	if err != nil {
		return nil, wrapped(err, "runs without a node")
	}
	q := store.ActiveQuery{State: job.StateReady, Except: true, After: after, Limit: limit}
	for i := range members {
		if m := &members[i]; !m.Over && !m.ClockOff && engine.IsLive(now, &m.Session, each(members)) {
			q.Sessions = append(q.Sessions, m.ID)
		}
	}
	list, err := s.ListActive(ctx, q)
	return list, wrapped(err, "runs without a node")
}

// each ranges over the sessions of members.
func each(members []Member) iter.Seq[*store.Session] {
	return func(yield func(*store.Session) bool) {
		for i := range members {
			if !yield(&members[i].Session) {
				return
			}
		}
	}
}

// members returns the sessions at a moment.
func (s *Control) members(ctx context.Context) (now time.Time, list []Member, err error) {
	if now, err = s.Now(ctx); err == nil {
		list, err = s.Members(ctx)
	}
	return now, list, err
}

// Place implements [store.Planning].
func (s *Control) Place(ctx context.Context, placements []store.Placement) error {
	err := inParts(ctx, s, placements, false, func(some []store.Placement) *engine.Place { return &engine.Place{Placements: some} }, nil)
	return wrapped(err, "place")
}

// Claim implements [store.Working].
func (s *Control) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) (outcomes []store.ClaimOutcome, err error) {
	err = halved(ctx, s, attempts, Order{Adds: true, Starts: true, Parts: true}, func(some []store.Attempt) *engine.Claim { return &engine.Claim{Session: session, Attempts: some} },
		func(op *engine.Claim) { add(&outcomes, op.Outcomes) })
	return outcomes, wrapped(err, "claim")
}

// Release implements [store.Working].
func (s *Control) Release(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	err := inParts(ctx, s, attempts, false, func(some []store.Attempt) *engine.Release { return &engine.Release{Session: session, Attempts: some} }, nil)
	return wrapped(err, "release")
}

// Finish implements [store.Working].
func (s *Control) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	outcomes, err := s.finish(ctx, session, results, nil)
	return outcomes, wrapped(err, "finish")
}

func (s *Control) finish(ctx context.Context, session job.ID, results []store.Result, past []store.Record) (outcomes []store.FinishOutcome, err error) {
	err = inParts(ctx, s, results, false, func(some []store.Result) *engine.Finish {
		return &engine.Finish{Session: session, Results: some, Past: past}
	},
		func(op *engine.Finish) { add(&outcomes, op.Outcomes) })
	return outcomes, err
}

// Report implements [store.Working].
func (s *Control) Report(ctx context.Context, r store.Report) (store.ReportOutcome, error) {
	op := engine.Report{Report: r}
	err := s.do(ctx, Order{Items: 1}, &op)
	return op.Outcome, err
}

// pageMax is how many runs are read at once.
const pageMax = 1000

// FinishLate implements [store.Outbox].
func (s *Control) FinishLate(ctx context.Context, session job.ID, results []store.Result, was []store.Record) ([]store.FinishOutcome, error) {
	outcomes, err := s.finish(ctx, job.ID{}, results, was)
	return outcomes, wrapped(err, "finish late")
}

// Cancel implements [store.Working].
func (s *Control) Cancel(ctx context.Context, run job.ID, by, reason string) (store.Run, error) {
	op := engine.Cancel{Runs: []engine.RunRef{{Run: run}}, By: by, Reason: reason, Over: true}
	if err := s.do(ctx, Order{Items: 1}, &op); err != nil {
		return store.Run{}, wrapped(err, "cancel run %s", run)
	}
	return op.Cancelled[0], nil
}

// AnswerFlow implements [store.Working].
func (s *Control) AnswerFlow(ctx context.Context, a store.FlowAnswer) error {
	return s.do(ctx, Order{Items: 1}, &engine.AnswerFlow{FlowAnswer: a})
}

// CancelRuns implements [store.Working].
func (s *Control) CancelRuns(ctx context.Context, uid job.ID, runs []job.ID, by, reason string) (cancelled []store.Run, err error) {
	if len(runs) > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	refs := make([]engine.RunRef, len(runs))
	for i, id := range runs {
		refs[i] = engine.RunRef{Run: id, Job: uid}
	}
	// As with alerts: a committed part leaves no run to return when the step is repeated.
	err = halved(ctx, s, refs, Order{}, func(some []engine.RunRef) *engine.Cancel { return &engine.Cancel{Runs: some, By: by, Reason: reason} },
		func(op *engine.Cancel) { add(&cancelled, op.Cancelled) })
	return cancelled, wrapped(err, "cancel runs")
}

// Lost implements [store.Working].
func (s *Control) Lost(ctx context.Context, limit int) ([]store.Attempt, error) {
	lost, err := s.lost(ctx, limit)
	return lost, wrapped(err, "lost runs")
}

func (s *Control) lost(ctx context.Context, limit int) (lost []store.Attempt, err error) {
	now, members, err := s.members(ctx)
	if err != nil {
		return nil, err
	}
	sessions := make(map[job.ID]*store.Session, len(members))
	// Handovers have no session, so they are never lost with a node.
	q := store.ActiveQuery{State: job.StateRunning, Sessions: []job.ID{{}}, Except: true, Limit: pageMax}
	for i := range members {
		m := &members[i].Session
		if sessions[m.ID] = m; engine.Silence(now, m.Renewed, each(members)) < time.Duration(job.LostAfterMin) {
			q.Sessions = append(q.Sessions, m.ID) // no job's lost_after is shorter
		}
	}
	for {
		page, err := s.ListActive(ctx, q)
		if err != nil {
			return nil, err
		}
		present, err := s.lostAfter(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range page {
			r := &page[i]
			if r.Flow != nil {
				continue // the run has no node
			}
			if !engine.IsLost(now, engine.LostAfter(r, present[r.JobUID]), sessions[r.Session], each(members)) {
				continue
			}
			if lost = append(lost, r.Present()); len(lost) == limit {
				return lost, nil
			}
		}
		if len(page) < pageMax {
			return lost, nil
		}
		q.After = page[len(page)-1].Ref()
	}
}

// lostAfter returns the current lost_after of the jobs of runs that have none of their
// own.
func (s *Control) lostAfter(ctx context.Context, runs []store.Run) (map[job.ID]time.Duration, error) {
	present := map[job.ID]time.Duration{}
	var uids []job.ID
	for i := range runs {
		if _, known := present[runs[i].JobUID]; !known && runs[i].LostAfter == 0 {
			present[runs[i].JobUID] = 0
			uids = append(uids, runs[i].JobUID)
		}
	}
	for len(uids) > 0 {
		n := min(len(uids), store.MaxBatch)
		jobs, err := s.JobsByUID(ctx, uids[:n])
		if err != nil {
			return nil, err
		}
		for i, j := range jobs {
			if j != nil {
				present[uids[i]] = time.Duration(j.Filled.Policy.LostAfter)
			}
		}
		uids = uids[n:]
	}
	return present, nil
}

// Alerts implements [store.Working]. Most calls find nothing and write nothing.
func (s *Control) Alerts(ctx context.Context, limit int) ([]store.Alert, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return nil, wrapped(err, "alerts")
	}
	runs, err := s.Alarms(ctx, now, min(limit, store.MaxBatch))
	if err != nil || len(runs) == 0 {
		return nil, wrapped(err, "alerts")
	}
	var alerts []store.Alert
	// A step that is repeated after a part of it was committed would not return the alerts of that part.
	err = halved(ctx, s, runs, Order{}, func(some []engine.RunRef) *engine.Alert { return &engine.Alert{Runs: some} },
		func(op *engine.Alert) { add(&alerts, op.Alerts) })
	if len(alerts) > 0 {
		return alerts, nil // the alerts so far are not returned again; the next call returns the rest
	}
	return nil, wrapped(err, "alerts")
}

// Reap implements [store.Working].
func (s *Control) Reap(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	err := inParts(ctx, s, attempts, false, func(some []store.Attempt) *engine.Reap { return &engine.Reap{Session: session, Attempts: some} }, nil)
	return wrapped(err, "reap")
}

// Tidy implements [store.Store].
func (s *Control) Tidy(ctx context.Context) (more bool, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return false, wrapped(err, "tidy")
	}
	ending, err := s.Ending(ctx, now)
	if err != nil {
		return false, wrapped(err, "tidy")
	}
	unended := false
	if len(ending.Runs)+len(ending.Jobs) > 0 {
		if unended, err = s.end(ctx, ending.Runs, ending.Jobs); err != nil {
			return false, wrapped(err, "tidy")
		}
	}
	now, members, err := s.members(ctx)
	if err != nil {
		return false, wrapped(err, "tidy")
	}
	var forgotten []job.ID
	for i := range members {
		if engine.IsForgotten(now, &members[i].Session, each(members)) {
			forgotten = append(forgotten, members[i].ID)
		}
	}
	left, err := s.Sweep(ctx, now, forgotten)
	return ending.More || unended || left, wrapped(err, "tidy")
}

// end ends runs and jobs, in halves if the backend cannot commit them at once. It reports whether more
// remain.
func (s *Control) end(ctx context.Context, runs []engine.RunRef, jobs []job.ID) (more bool, err error) {
	op := engine.Tidy{Runs: runs, Jobs: jobs}
	err = s.do(ctx, Order{Items: min(len(runs)+len(jobs), store.MaxBatch), Parts: true}, &op)
	if n, m := len(runs)/2, len(jobs)/2; errors.Is(err, ErrTooLarge) && n+m > 0 {
		first, err := s.end(ctx, runs[:n], jobs[:m])
		if err != nil {
			return false, err
		}
		second, err := s.end(ctx, runs[n:], jobs[m:])
		return first || second, err
	}
	return op.More, err
}
