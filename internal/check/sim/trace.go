package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// TraceKind is the kind of a change of a run.
type TraceKind int

// The kinds, with the model's numbers.
const (
	Created TraceKind = 1 + iota
	Claimed
	Skipped
	Missed
	Released
	Succeeded
	Failed // or ended by the fence of its node, which reported it
	Lost
	Joined // a later session of a node begins
	HandedOver
	TimedOut // after it was handed over
)

// TraceStep is one change of a run. Node and Run count from 0, in the order of their appearance.
type TraceStep struct {
	Kind TraceKind
	Node int
	Run  int
}

// Trace runs a world of models, and returns the changes of the first runs of a steady job, in order:
// at most a number of runs.
func Trace(seed uint64, d time.Duration, name string, runs int) ([]TraceStep, error) {
	var t *tracing
	_, err := runCore(seed, d, nil, func(s store.Store) store.Store {
		t = &tracing{Store: s, name: name, most: runs, nodes: map[string]int{}, sessions: map[job.ID]int{}, runs: map[job.ID]*tracedRun{}}
		return t
	})
	if err == nil {
		err = t.err
	}
	return t.steps, err
}

// tracing records what the steps of a store do to the runs of one job, by reading them after each
// step.
type tracing struct {
	store.Store
	name     string
	most     int
	uid      job.ID
	nodes    map[string]int
	sessions map[job.ID]int // the node of each session
	runs     map[job.ID]*tracedRun
	steps    []TraceStep
	err      error
}

type tracedRun struct {
	number int
	last   store.Run
	ended  bool
}

func (t *tracing) step(kind TraceKind, node, run int) {
	t.steps = append(t.steps, TraceStep{kind, node, run})
}

// look compares the runs with their state before a step. failure is the kind for the end of an
// attempt without success.
func (t *tracing) look(ctx context.Context, failure TraceKind) {
	if t.uid.IsZero() {
		j, err := store.JobNamed(ctx, t.Store, job.DefaultNamespace, t.name)
		if err != nil {
			return // the job does not exist yet
		}
		t.uid = j.Definition.UID
	}
	list, err := t.Store.ListActive(ctx, store.ActiveQuery{Job: t.uid, Limit: store.MaxBatch})
	if err != nil {
		t.err = err
		return
	}
	active := map[job.ID]bool{}
	for i := range list {
		active[list[i].ID] = true
	}
	known := make([]*tracedRun, 0, len(t.runs))
	for _, r := range t.runs {
		if !r.ended {
			known = append(known, r)
		}
	}
	slices.SortFunc(known, func(a, b *tracedRun) int { return a.number - b.number })
	// Ends come first: they free the slot that a claim of the same step takes.
	for _, r := range known {
		if !active[r.last.ID] {
			t.end(ctx, r, failure)
		}
	}
	slices.SortFunc(list, func(a, b store.Run) int { return a.Due.Compare(b.Due) })
	for i := range list {
		t.change(ctx, &list[i], failure)
	}
}

// end writes down the end of a run.
func (t *tracing) end(ctx context.Context, r *tracedRun, failure TraceKind) {
	r.ended = true
	records, err := t.Store.AttemptsOf(ctx, r.last.ID)
	if err != nil || len(records) == 0 {
		t.err = fmt.Errorf("run %d has no record: %w", r.number, err)
		return
	}
	kind, node := t.failed(ctx, &r.last, failure), t.sessions[r.last.Session]
	switch outcome := records[len(records)-1].Attempt.Outcome; {
	case outcome == job.OutcomeSucceeded:
		kind = Succeeded
	case outcome == job.OutcomeSkipped:
		kind, node = Skipped, 0
	case outcome == job.OutcomeMissed:
		kind, node = Missed, 0
	}
	t.step(kind, node, r.number)
}

// failed returns the kind for the end of an attempt without success: what a service did has no session.
func (t *tracing) failed(ctx context.Context, was *store.Run, failure TraceKind) TraceKind {
	if !was.Session.IsZero() {
		return failure
	}
	records, err := t.Store.AttemptsOf(ctx, was.ID)
	if err != nil {
		t.err = err
	}
	for _, r := range records {
		if r.Attempt.Number == was.Attempt && r.Attempt.Outcome == job.OutcomeTimedOut {
			return TimedOut
		}
	}
	return Failed
}

// change writes down what has happened to a run that has not ended.
func (t *tracing) change(ctx context.Context, now *store.Run, failure TraceKind) {
	r := t.runs[now.ID]
	if r == nil {
		if len(t.runs) >= t.most {
			return
		}
		r = &tracedRun{number: len(t.runs), last: *now}
		r.last.State = job.StateReady
		t.runs[now.ID] = r
		t.step(Created, 0, r.number)
	}
	was := r.last
	r.last = *now
	if was.State == job.StateRunning && (now.State != job.StateRunning || now.Token != was.Token) {
		if now.Attempt == was.Attempt {
			t.step(Released, t.sessions[was.Session], r.number)
		} else {
			t.step(t.failed(ctx, &was, failure), t.sessions[was.Session], r.number)
		}
	}
	if was.State == job.StateRunning && now.Token == was.Token && now.Session.IsZero() && !was.Session.IsZero() {
		t.step(HandedOver, t.sessions[was.Session], r.number)
	}
	if now.State == job.StateRunning && (was.State != job.StateRunning || now.Token != was.Token) {
		t.step(Claimed, t.sessions[now.Session], r.number)
	}
}

// Join implements [store.Membership]. It writes down the sessions of a node after its first.
func (t *tracing) Join(ctx context.Context, given store.Session) (store.Session, error) {
	s, err := t.Store.Join(ctx, given)
	t.look(ctx, Lost)
	if err != nil {
		return s, err
	}
	if _, known := t.sessions[s.ID]; known {
		return s, nil // the answer was lost
	}
	node, known := t.nodes[s.Node]
	if !known {
		node = len(t.nodes)
		t.nodes[s.Node] = node
	} else {
		t.step(Joined, node, 0)
	}
	t.sessions[s.ID] = node
	return s, nil
}

// Plan implements [store.Planning].
func (t *tracing) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	out, claims, err := t.Store.Plan(ctx, session, items)
	t.look(ctx, Lost)
	return out, claims, err
}

// Claim implements [store.Working].
func (t *tracing) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	out, err := t.Store.Claim(ctx, session, attempts)
	t.look(ctx, Lost)
	return out, err
}

// HandOver implements [store.Handovers].
func (t *tracing) HandOver(ctx context.Context, session job.ID, list []store.Handover) ([]store.HandedOver, error) {
	out, err := t.Store.HandOver(ctx, session, list)
	t.look(ctx, Lost)
	return out, err
}

// Finish implements [store.Working].
func (t *tracing) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	out, err := t.Store.Finish(ctx, session, results)
	t.look(ctx, Failed)
	return out, err
}

// Release implements [store.Working].
func (t *tracing) Release(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	err := t.Store.Release(ctx, session, attempts)
	t.look(ctx, Lost)
	return err
}

// Reap implements [store.Working].
func (t *tracing) Reap(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	err := t.Store.Reap(ctx, session, attempts)
	t.look(ctx, Lost)
	return err
}

// Tidy implements [store.Store].
func (t *tracing) Tidy(ctx context.Context) (bool, error) {
	more, err := t.Store.Tidy(ctx)
	t.look(ctx, Lost)
	return more, err
}
