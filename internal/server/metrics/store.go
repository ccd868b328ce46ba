package metrics

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// methods are the measured calls of the store, by their labels: the regular calls of a node, and those
// that people wait for most.
var methods = []string{
	"put_job", "put_jobs", "jobs_changed", "list_jobs", "plan", "trigger", "place", "ready", "overdue", "claim", "release",
	"finish", "cancel", "renew", "sessions", "list_active", "attempts", "append_output", "output", "tidy", "expire",
}

// callMetrics are the metrics of a method.
type callMetrics struct {
	took   latencies
	errors atomic.Int64
}

// recentCalls is how many of the last calls StoreAnswers considers: enough for its slowest
// hundredth, and few enough to follow a change within minutes.
const recentCalls = 1000

// latencyRing has the durations of the last calls, in nanoseconds.
type latencyRing struct {
	calls atomic.Uint64
	took  [recentCalls]atomic.Int64
}

func (r *latencyRing) observe(d time.Duration) {
	r.took[(r.calls.Add(1)-1)%recentCalls].Store(int64(max(d, 1)))
}

// StoreAnswers returns the latency of the last answered calls of the store: half took at most p50,
// and 99 of 100 at most p99. Both are 0 before the first.
func (m *Metrics) StoreAnswers() (p50, p99 time.Duration) {
	list := make([]int64, 0, recentCalls)
	for i := range m.recent.took {
		if took := m.recent.took[i].Load(); took > 0 {
			list = append(list, took)
		}
	}
	if len(list) == 0 {
		return 0, 0
	}
	slices.Sort(list)
	at := func(percent int) time.Duration { return time.Duration(list[(len(list)*percent+99)/100-1]) }
	return at(50), at(99)
}

// done takes note of a call that has come back.
func (m *Metrics) done(call string, began time.Time, err *error) {
	took := time.Since(began)
	m.calls[call].took.observe(took)
	if *err != nil && !isAnswer(*err) {
		m.calls[call].errors.Add(1)
		return
	}
	m.recent.observe(took)
}

// answers are errors that are no failures: expected refusals, and the disconnect of a caller. A
// timeout of the store is a failure.
var answers = []error{
	store.ErrNotFound, store.ErrExists, store.ErrConflict, store.ErrCycle, store.ErrSessionOver, store.ErrTooMany,
	context.Canceled,
}

func isAnswer(err error) bool {
	for _, answer := range answers {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

func (m *Metrics) writeCalls(p *page) {
	p.family("belfry_store_call_seconds", Histogram, "How long calls of the store take, by method.")
	for _, call := range methods {
		m.calls[call].took.write(p, "method", call)
	}
	p.family("belfry_store_errors_total", Counter, "Calls of the store that have failed, by method. Refusals that belong to its contract are none.")
	for _, call := range methods {
		p.sample(float64(m.calls[call].errors.Load()), "method", call)
	}
}

// measuredStore is a store whose calls are measured.
type measuredStore struct {
	store.Store
	m *Metrics
}

// Measure returns a store that passes calls to the given one, and measures them.
func (m *Metrics) Measure(s store.Store) store.Store { return &measuredStore{s, m} }

// PutJobs implements [store.Jobs].
func (s *measuredStore) PutJobs(ctx context.Context, list []store.PutJob) (jobs []*store.Job, err error) {
	call := "put_jobs"
	if len(list) == 1 {
		call = "put_job"
	}
	defer s.m.done(call, time.Now(), &err)
	return s.Store.PutJobs(ctx, list)
}

// JobsChanged implements [store.Jobs].
func (s *measuredStore) JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) (changed []store.PlannedJob, next int64, err error) {
	defer s.m.done("jobs_changed", time.Now(), &err)
	return s.Store.JobsChanged(ctx, partitions, since, limit)
}

// ListJobs implements [store.Jobs].
func (s *measuredStore) ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error) {
	defer s.m.done("list_jobs", time.Now(), &err)
	return s.Store.ListJobs(ctx, q)
}

// Plan implements [store.Planning].
func (s *measuredStore) Plan(ctx context.Context, session job.ID, items []store.PlanItem) (outcomes []store.PlanOutcome, claims []store.ClaimOutcome, err error) {
	defer s.m.done("plan", time.Now(), &err)
	return s.Store.Plan(ctx, session, items)
}

// Trigger implements [store.Planning].
func (s *measuredStore) Trigger(ctx context.Context, items []store.TriggerItem) (outcomes []store.TriggerOutcome, err error) {
	defer s.m.done("trigger", time.Now(), &err)
	return s.Store.Trigger(ctx, items)
}

// Place implements [store.Planning].
func (s *measuredStore) Place(ctx context.Context, placements []store.Placement) (err error) {
	defer s.m.done("place", time.Now(), &err)
	return s.Store.Place(ctx, placements)
}

// Ready implements [store.Working].
func (s *measuredStore) Ready(ctx context.Context, q store.ReadyQuery) (runs []store.ReadyRun, err error) {
	call := "ready"
	if q.Any {
		call = "overdue"
	}
	defer s.m.done(call, time.Now(), &err)
	return s.Store.Ready(ctx, q)
}

// Claim implements [store.Working].
func (s *measuredStore) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) (outcomes []store.ClaimOutcome, err error) {
	defer s.m.done("claim", time.Now(), &err)
	return s.Store.Claim(ctx, session, attempts)
}

// Release implements [store.Working].
func (s *measuredStore) Release(ctx context.Context, session job.ID, attempts []store.Attempt) (err error) {
	defer s.m.done("release", time.Now(), &err)
	return s.Store.Release(ctx, session, attempts)
}

// Finish implements [store.Working].
func (s *measuredStore) Finish(ctx context.Context, session job.ID, results []store.Result) (outcomes []store.FinishOutcome, err error) {
	defer s.m.done("finish", time.Now(), &err)
	return s.Store.Finish(ctx, session, results)
}

// Cancel implements [store.Working].
func (s *measuredStore) Cancel(ctx context.Context, run job.ID, by, reason string) (r store.Run, err error) {
	defer s.m.done("cancel", time.Now(), &err)
	return s.Store.Cancel(ctx, run, by, reason)
}

// Renew implements [store.Membership].
func (s *measuredStore) Renew(ctx context.Context, session job.ID, load store.Load) (err error) {
	defer s.m.done("renew", time.Now(), &err)
	return s.Store.Renew(ctx, session, load)
}

// Sessions implements [store.Membership].
func (s *measuredStore) Sessions(ctx context.Context) (sessions []store.Session, err error) {
	defer s.m.done("sessions", time.Now(), &err)
	return s.Store.Sessions(ctx)
}

// ListActive implements [store.Working].
func (s *measuredStore) ListActive(ctx context.Context, q store.ActiveQuery) (runs []store.Run, err error) {
	defer s.m.done("list_active", time.Now(), &err)
	return s.Store.ListActive(ctx, q)
}

// Attempts implements [store.History].
func (s *measuredStore) Attempts(ctx context.Context, q store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	defer s.m.done("attempts", time.Now(), &err)
	return s.Store.Attempts(ctx, q)
}

// AppendOutput implements [store.History].
func (s *measuredStore) AppendOutput(ctx context.Context, chunks []store.OutputChunk) (err error) {
	defer s.m.done("append_output", time.Now(), &err)
	return s.Store.AppendOutput(ctx, chunks)
}

// Output implements [store.History].
func (s *measuredStore) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) (chunks []store.OutputChunk, err error) {
	defer s.m.done("output", time.Now(), &err)
	return s.Store.Output(ctx, run, attempt, fromSeq, limit)
}

// Tidy implements [store.Store].
func (s *measuredStore) Tidy(ctx context.Context) (more bool, err error) {
	defer s.m.done("tidy", time.Now(), &err)
	return s.Store.Tidy(ctx)
}

// ExpireAudit implements [store.Store].
func (s *measuredStore) ExpireAudit(ctx context.Context, keep store.Retention) (more bool, err error) {
	defer s.m.done("expire", time.Now(), &err)
	return s.Store.ExpireAudit(ctx, keep)
}

// Expire implements [store.History].
func (s *measuredStore) Expire(ctx context.Context, keep store.Retention) (more bool, err error) {
	defer s.m.done("expire", time.Now(), &err)
	return s.Store.Expire(ctx, keep)
}
