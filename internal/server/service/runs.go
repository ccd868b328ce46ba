package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/sys/spelling"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// runStore is the part of a store that runs use.
type runStore interface {
	ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error)
	Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error)
	AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error)
	Cancel(ctx context.Context, run job.ID, by, reason string) (store.Run, error)
	AnswerFlow(ctx context.Context, a store.FlowAnswer) error
	CancelRuns(ctx context.Context, uid job.ID, runs []job.ID, by, reason string) ([]store.Run, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	revisionStore
	Trigger(ctx context.Context, items []store.TriggerItem) ([]store.TriggerOutcome, error)
	Report(ctx context.Context, r store.Report) (store.ReportOutcome, error)
	Sessions(ctx context.Context) ([]store.Session, error)
	Handovers(ctx context.Context, q store.HandoverQuery) ([]store.Handover, error)
	Registrations(ctx context.Context, kind string) ([]store.Registration, error)
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
	Numbers(ctx context.Context, n int, from int64) (int64, error)
	Now(ctx context.Context) (time.Time, error)
	auditStore
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutNote(ctx context.Context, n store.Note) (int64, error)
}

// Runs starts, cancels and shows runs, and explains why one does not start.
type Runs struct {
	*base
	jobs      *Jobs
	rules     *rulebook
	store     runStore
	retention func() store.Retention
	// mayLose is set if the store may lose steps that it has acknowledged.
	mayLose bool
}

// activeRun is a planned or running run as clients see it.
func activeRun(r *store.Run) client.Run {
	run := client.Run{
		ID: r.ID, Job: r.Namespace + "/" + r.Name, JobUID: r.JobUID, Version: r.Version,
		Kind: r.Kind, Key: r.Key, Shard: r.Shard, Shards: r.Shards,
		State: r.State, Outcome: r.Outcome, Why: client.WhyOf(r.Reason),
		Scheduled: r.Scheduled, Due: r.Due, Attempt: r.Attempt, Node: r.Node,
		Params: job.ShownParams(r.Params), Previous: job.PreviousOf(r.Params), Executor: r.Params[job.ExecutorParam], Parent: r.Parent,
		CancelBy: r.CancelBy, CancelReason: r.CancelReason.String(),
	}
	if r.IsPostponed() {
		run.State = job.StateWaiting
	}
	ofFlow(&run, &r.Run, engine.Begun(r))
	if r.State == job.StateRunning || r.Attempt > 1 {
		run.Started = engine.Begun(r)
	}
	if r.State == job.StateRunning {
		run.Claimed = r.Claimed
	}
	run.Slot, run.Pool = slotOf(&r.Run, r.Slot)
	run.Planned = plannedAt(&r.Run)
	return run
}

// endedRun is a finished run as clients see it, by its final record.
func endedRun(r *store.Record) client.Run {
	run := client.Run{
		ID: r.Run.ID, Job: r.Run.Namespace + "/" + r.Run.Name, JobUID: r.Run.JobUID, Version: r.Run.Version,
		Kind: r.Run.Kind, Key: r.Run.Key, Shard: r.Run.Shard, Shards: r.Run.Shards,
		State: job.StateDone, Outcome: r.Attempt.Outcome, Why: client.WhyOf(r.Attempt.Reason), Failure: client.FailureOf(&r.Attempt),
		Scheduled: r.Run.Scheduled, Due: r.Run.Due, Started: r.Begun, Ended: r.Attempt.Ended,
		Attempt: r.Attempt.Number, Node: r.Attempt.Node, Params: job.ShownParams(r.Run.Params), Previous: job.PreviousOf(r.Run.Params), Parent: r.Run.Parent,
		Executor: r.Run.Params[job.ExecutorParam],
		ExitCode: r.Attempt.ExitCode, Signal: r.Attempt.Signal, HTTPStatus: r.Attempt.HTTPStatus, OutputBytes: r.OutputBytes, Usage: r.Attempt.Usage,
		Unmet: r.Unmet.String(), Claimed: r.Claimed,
	}
	run.UnmetCode, run.UnmetArgs = r.Unmet.For()
	run.Slot, run.Pool = slotOf(&r.Run, r.Slot)
	ofFlow(&run, &r.Run, cmp.Or(r.Begun, r.Attempt.Started))
	if run.Started.IsZero() {
		run.Started = r.Attempt.Started
	}
	if r.Attempt.Number == 0 && r.Run.Attempt > 0 {
		// It ended before the attempt that was to be next.
		run.Attempt = r.Run.Attempt - 1
	}
	if r.Count > 1 {
		run.Count, run.Until = r.Count, r.Until
	}
	run.Planned = plannedAt(&r.Run)
	return run
}

// slotOf describes the slot that a run needs, and its pool.
func slotOf(r *job.Run, key string) (slot, pool string) {
	if pool, ok := engine.PoolOfSlot(key); ok {
		if of, isLine := engine.PoolOfLine(pool); isLine {
			return "rate:" + of, of
		}
		return "pool:" + pool, pool
	}
	if own, ok := strings.CutPrefix(key, r.JobUID.String()); ok {
		return r.Namespace + "/" + r.Name + own, ""
	}
	return "", ""
}

// plannedAt returns when a run was created, from its id. For a step that is when its flow
// began.
func plannedAt(r *job.Run) time.Time {
	if r.Kind == job.RunStep || r.Kind == job.RunByFlow {
		return time.Time{}
	}
	return r.ID.Time()
}

func attemptOf(r *store.Record) client.Attempt {
	a := client.Attempt{
		Number: r.Attempt.Number, Node: r.Attempt.Node, Started: r.Attempt.Started, Ended: r.Attempt.Ended,
		Outcome: r.Attempt.Outcome, Why: client.WhyOf(r.Attempt.Reason), Failure: client.FailureOf(&r.Attempt), ExitCode: r.Attempt.ExitCode, Signal: r.Attempt.Signal,
		HTTPStatus: r.Attempt.HTTPStatus, OutputBytes: r.OutputBytes, Usage: r.Attempt.Usage, Late: r.Replaces, Unmet: r.Unmet.String(),
	}
	a.UnmetCode, a.UnmetArgs = r.Unmet.For()
	return a
}

// finalOf returns the record that ends a run. If the run ended between two attempts it has
// no number, and precedes theirs.
func finalOf(records []store.Record) *store.Record {
	for i := range records {
		if records[i].Final {
			return &records[i]
		}
	}
	return &records[len(records)-1]
}

// runOf returns an active or finished run that the caller may see. A foreign one is
// reported as unknown: its id does not reveal its namespace.
func (s *Runs) runOf(ctx context.Context, who Caller, r Right, id job.ID) (client.Run, error) {
	run, err := s.seen(ctx, who, r, id)
	if err != nil {
		return run, err
	}
	return run, s.addReceiver(ctx, &run)
}

// seen is runOf without the executor.
func (s *Runs) seen(ctx context.Context, who Caller, r Right, id job.ID) (client.Run, error) {
	if err := who.May(r); err != nil {
		return client.Run{}, err
	}
	run, err := s.run(ctx, id)
	if err == nil && !who.sees(run.Job) {
		return client.Run{}, s.noRun(id)
	}
	if err == nil && !who.has(r, run.Job) {
		namespace, _, _ := strings.Cut(run.Job, "/")
		return client.Run{}, who.MayIn(r, namespace)
	}
	return run, err
}

// run returns an active or finished run with its attempts.
func (s *Runs) run(ctx context.Context, id job.ID) (client.Run, error) {
	records, err := s.store.AttemptsOf(ctx, id)
	if err != nil {
		return client.Run{}, err
	}
	var active store.Run
	isActive := false
	if len(records) == 0 || !finalOf(records).Final { // a run with a final record is not active
		active, err = store.ActiveRun(ctx, s.store, id)
		switch isActive = err == nil; {
		case errors.Is(err, store.ErrNotFound): // it may have ended between the two
			records, err = s.store.AttemptsOf(ctx, id)
		case isActive:
			one := []store.Run{active}
			err = s.explain(ctx, one)
			active = one[0]
		}
		if err != nil {
			return client.Run{}, err
		}
	}
	var run client.Run
	switch {
	case isActive:
		run = activeRun(&active)
		if err := s.sayWaits(ctx, &run, &active); err != nil {
			return client.Run{}, err
		}
	case len(records) > 0:
		run = endedRun(finalOf(records))
	default:
		return client.Run{}, s.noRun(id)
	}
	for i := range records {
		if records[i].Attempt.Number > 0 {
			run.Attempts = append(run.Attempts, attemptOf(&records[i]))
		}
	}
	if isActive && active.State != job.StateRunning && len(run.Attempts) > 0 { // the reason is that attempt
		run.Failure = run.Attempts[len(run.Attempts)-1].Failure
	}
	return run, s.markLoss(ctx, &run)
}

// noRun is the error of an unknown run. Its hint says whether the run may have been removed: an id
// has the time at which it was made.
func (s *Runs) noRun(id job.ID) *Error {
	text, keep := id.Time().UTC().Format(time.DateOnly), s.retention()
	hint := phrase.RunsKept.Of(text, keep.Runs)
	if d := job.Duration(keep.For); d > 0 && d != job.Forever {
		hint = phrase.RunsKeptFor.Of(text, phrase.Span(d.InWords()), keep.Runs)
	}
	return Refuse(client.TypeNotFound, phrase.NoSuchRun.Of(id), hint)
}

// KeptFor returns how long finished runs are kept, unless policy.keep of their job differs; 0 is
// forever.
func (s *Runs) KeptFor() time.Duration {
	if d := s.retention().For; d != time.Duration(job.Forever) {
		return d
	}
	return 0
}

// answeredSo returns the run of a flow, and whether its step has ended by the same answer: the
// response to an earlier request was lost.
func (s *Runs) answeredSo(ctx context.Context, who Caller, a *store.FlowAnswer) (client.Run, bool) {
	run, err := s.runOf(ctx, who, Read, a.Run)
	outcome, why := engine.AnswerOf(a)
	return run, err == nil && slices.ContainsFunc(run.Steps, func(st client.StepState) bool {
		return st.Name == a.Step && st.Outcome == outcome && st.Value() == why
	})
}

// runsPlace is the end of a page of runs: among the active ones, by due time, or among
// the finished ones.
type runsPlace struct {
	Active *store.RunRef    `json:"active,omitempty"`
	Ended  *store.RecordRef `json:"ended,omitempty"`
	Past   bool             `json:"past,omitempty"` // all active ones were shown
}

const (
	// partsMax is the number of parts of history that are searched for one page, each of
	// [store.LookMax] records, within lookTime.
	partsMax = 10
	// windowSlack is how much more than [client.TextWindowMax] is allowed, since
	// clients count it by clocks of their own.
	windowSlack = time.Hour
)

// activeStates are the states of unfinished runs.
var activeStates = []job.RunState{job.StateReady, job.StateWaiting, job.StateRunning}

// List returns a page of runs: the active ones by due time, and then the finished ones, the
// latest first. A run that ends while pages are read may be on two pages, but is never left
// out.
func (s *Runs) List(ctx context.Context, who Caller, q client.RunQuery) (client.Page[client.Run], error) {
	page := client.Page[client.Run]{Items: []client.Run{}}
	of, err := who.reads(q.Namespace)
	if err != nil {
		return page, err
	}
	q.PageSize = pageSize(q.PageSize)
	var place runsPlace
	if err := readToken(q.PageToken, &place); err != nil {
		return page, err
	}
	uid, err := s.jobOf(ctx, who, q.Job)
	if err != nil {
		return page, err
	}
	if err := s.checkTime(ctx, &q); err != nil {
		return page, err
	}
	if q.Reason != "" {
		if err := checkCode(q.Reason); err != nil {
			return page, err
		}
	}
	onlyEnded := len(q.Outcomes) > 0 || q.Reason != "" || q.CauseFingerprint != "" || q.Unmet || q.Text != ""
	wanted := func(s job.RunState) bool { return len(q.States) == 0 || slices.Contains(q.States, s) }
	states := slices.DeleteFunc(slices.Clone(activeStates), func(s job.RunState) bool { return !wanted(s) })

	if !onlyEnded && len(states) > 0 && place.Ended == nil && !place.Past {
		next, err := s.listActive(ctx, of, &q, uid, states, place.Active, &page)
		if err != nil || next != nil {
			if next != nil {
				page.NextPageToken = writeToken(runsPlace{Active: next})
			}
			return page, err
		}
	}
	if !wanted(job.StateDone) {
		return page, nil
	}
	if len(page.Items) >= q.PageSize {
		page.NextPageToken = writeToken(runsPlace{Past: true})
		return page, nil
	}
	return page, s.listEnded(ctx, of, &q, uid, place.Ended, &page)
}

// checkCode reports a code that no reason has.
func checkCode(code string) error {
	names := reason.Names()
	if slices.Contains(names, code) {
		return nil
	}
	hint := phrase.CodesAreIn
	if near := spelling.Near(code, names); len(near) > 0 {
		hint = phrase.DidYouMean.Of(phrase.Quoted(near[0]))
	}
	return WrongParameter("reason", phrase.NotReasonCode.Of(phrase.Quoted(code)), hint)
}

// checkTime reports an impossible span of time, and one too long to search for a text q.
// With a text it sets the beginning of the span.
func (s *Runs) checkTime(ctx context.Context, q *client.RunQuery) error {
	if !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To) {
		return WrongParameter("from", phrase.NotBeforeEnd.Of(phrase.MomentOf(q.To)))
	}
	if q.Text == "" {
		return nil
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	to := cmp.Or(q.To, now)
	if q.From.IsZero() {
		q.From = to.Add(-client.TextWindow)
	}
	if span := to.Sub(q.From); q.PageToken == "" && span > client.TextWindowMax+windowSlack {
		return WrongParameter("from", phrase.TextTooFarBack.Of(days(span), days(client.TextWindowMax)), phrase.LaterOrEarlier)
	}
	return nil
}

// days counts the whole days of a long span of time.
func days(d time.Duration) int { return int(d / (24 * time.Hour)) }

// jobOf returns the uid of a job in a query; zero if none is named.
func (s *Runs) jobOf(ctx context.Context, who Caller, name string) (job.ID, error) {
	if name == "" {
		return job.ID{}, nil
	}
	if id, err := job.ParseID(name); err == nil {
		return id, nil
	}
	namespace, short, found := strings.Cut(name, "/")
	if !found {
		namespace, short = job.DefaultNamespace, name
	}
	j, err := s.jobs.find(ctx, who, Read, Name{namespace, short})
	if err != nil {
		return job.ID{}, err
	}
	return j.Definition.UID, nil
}

// listActive fills a page with active runs. It returns where to
// continue if there are more.
func (s *Runs) listActive(ctx context.Context, of scope, q *client.RunQuery, uid job.ID, states []job.RunState, after *store.RunRef, page *client.Page[client.Run]) (*store.RunRef, error) {
	active := store.ActiveQuery{Job: uid, Limit: q.PageSize + 1}
	if len(states) == 1 {
		active.State = states[0]
	}
	if after != nil {
		active.After = *after
	} else if !q.From.IsZero() {
		active.After = store.RunRef{Due: q.From}
	}
	shown := active.After // the last run of the page
	for {
		runs, err := of.active(ctx, s.store, active)
		if err != nil {
			return nil, err
		}
		last := len(runs) < active.Limit
		if !last {
			active.After = runs[len(runs)-1].Ref()
		}
		if at := slices.IndexFunc(runs, func(r store.Run) bool { return !q.To.IsZero() && !r.Due.Before(q.To) }); at >= 0 {
			runs, last = runs[:at], true
		}
		runs = slices.DeleteFunc(runs, func(r store.Run) bool {
			return isFlowTimer(&r.Run) || !slices.Contains(states, r.State) || len(q.Kinds) > 0 && !slices.Contains(q.Kinds, r.Kind) || q.Node != "" && r.Node != q.Node
		})
		room := q.PageSize - len(page.Items)
		more := len(runs) > room
		if more {
			runs = runs[:room]
		}
		if err := s.explain(ctx, runs); err != nil {
			return nil, err
		}
		for i := range runs {
			page.Items = append(page.Items, activeRun(&runs[i]))
		}
		switch {
		case more && len(runs) > 0:
			after := runs[len(runs)-1].Ref()
			return &after, nil
		case more:
			return &shown, nil
		case last:
			return nil, nil
		}
		if len(runs) > 0 {
			shown = runs[len(runs)-1].Ref()
		}
	}
}

// listEnded fills a page with runs that have ended.
func (s *Runs) listEnded(ctx context.Context, of scope, q *client.RunQuery, uid job.ID, before *store.RecordRef, page *client.Page[client.Run]) error {
	ended := store.HistoryQuery{
		Job: uid, From: q.From, To: q.To, Text: q.Text, Reason: q.Reason, Unmet: q.Unmet, Outcomes: q.Outcomes, Kinds: q.Kinds, Node: q.Node, FinalOnly: true,
	}
	if q.CauseFingerprint != "" {
		print, err := job.ParseFingerprint(q.CauseFingerprint)
		if err != nil {
			return WrongParameter("cause_fingerprint", phrase.OfError(err), phrase.InCauseOfRun)
		}
		ended.Fingerprint, ended.Failed = print, true
	}
	if before != nil {
		ended.Before = *before
	}
	began := s.now()
	for range partsMax {
		ended.Limit = q.PageSize - len(page.Items)
		records, next, err := of.attempts(ctx, s.store, ended)
		if err != nil {
			return err
		}
		for i := range records {
			page.Items = append(page.Items, endedRun(&records[i]))
		}
		if ended.Before = next; next == (store.RecordRef{}) {
			return nil
		}
		if len(page.Items) == q.PageSize || s.now().Sub(began) >= lookTime {
			break
		}
	}
	page.NextPageToken = writeToken(runsPlace{Ended: &ended.Before})
	return nil
}

// Get returns a run with its attempts.
func (s *Runs) Get(ctx context.Context, who Caller, id job.ID) (client.Run, error) {
	run, err := s.Explained(ctx, who, id)
	return run.Run, err
}

// ExplainedRun is a run with the job that explains it.
type ExplainedRun struct {
	client.Run
	// Job is the job as it is now, Definition the one of the version of the run, both with defaults.
	// They are nil if they are gone, and for a step: it has the definition of its flow, which may
	// be none of a version of the job.
	Job, Definition *job.Job
}

// Explained returns a run with its attempts and its job.
func (s *Runs) Explained(ctx context.Context, who Caller, id job.ID) (r ExplainedRun, err error) {
	if r.Run, err = s.seen(ctx, who, Read, id); err != nil {
		return r, err
	}
	if err := s.withJob(ctx, &r); err != nil {
		return r, err
	}
	if r.Definition != nil {
		r.bound()
		if !r.Definition.Run.IsHandedOver() {
			return r, nil
		}
	}
	return r, s.addReceiver(ctx, &r.Run)
}

// withJob reads the job of a run.
func (s *Runs) withJob(ctx context.Context, r *ExplainedRun) error {
	if r.Step != "" {
		return nil
	}
	jobs, err := s.store.JobsByUID(ctx, []job.ID{r.JobUID})
	if err != nil || jobs[0] == nil {
		return err
	}
	if j := jobs[0]; !j.Deleted {
		now := *j.Filled
		now.Version, now.Status = j.Definition.Version, j.Definition.Status
		r.Job = &now
	}
	r.Definition, err = s.version(ctx, jobs[0], r.Version)
	return err
}

// bound sets how many attempts a run may have, and when the running one ends at the latest.
func (r *ExplainedRun) bound() {
	run, definition := &r.Run, r.Definition
	if run.Steps != nil || run.Attempt == 0 || definition.Run.IsFlow() {
		return
	}
	policy := &definition.Policy
	run.AttemptsMax = 1
	if policy.Retry != nil && policy.Retry.Attempts != nil {
		run.AttemptsMax += *policy.Retry.Attempts
	}
	if run.State == job.StateRunning && definition.Run.IsTimed() && policy.Timeout != nil && *policy.Timeout > 0 {
		start := run.Claimed
		if run.Due.After(start) { // it was claimed a moment before
			start = run.Due
		}
		run.Deadline = start.Add(time.Duration(*policy.Timeout + *policy.KillGrace))
	}
}

// Cancel ends a run, at once or through its node.
func (s *Runs) Cancel(ctx context.Context, who Caller, id job.ID, reason string) (client.Run, error) {
	if err := who.May(Operate); err != nil {
		return client.Run{}, err
	}
	if !who.Everywhere(Operate) {
		if _, err := s.runOf(ctx, who, Operate, id); err != nil {
			return client.Run{}, err
		}
	}
	cancelled, err := s.store.Cancel(ctx, id, who.Name, reason)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return client.Run{}, err
	}
	if err == nil && cancelled.State != job.StateDone {
		return activeRun(&cancelled), nil
	}
	run, err := s.runOf(ctx, who, Operate, id)
	if err == nil && run.Outcome != job.OutcomeCancelled {
		err = Refuse(client.TypeConflict, phrase.EndedAlready.Of(id, string(run.Outcome)))
	}
	return run, err
}

// Approve answers a waiting step of a flow, and returns the run of the flow.
func (s *Runs) Approve(ctx context.Context, who Caller, flow job.ID, step string, reject bool, note string) (client.Run, error) {
	return s.answer(ctx, who, store.FlowAnswer{Run: flow, Step: step, Reject: reject, Note: note})
}

// Signal ends the steps of a flow that wait for a signal, and returns the run of the flow.
func (s *Runs) Signal(ctx context.Context, who Caller, flow job.ID, signal string, data []byte) (client.Run, error) {
	return s.answer(ctx, who, store.FlowAnswer{Run: flow, Signal: signal, Data: data})
}

func (s *Runs) answer(ctx context.Context, who Caller, a store.FlowAnswer) (client.Run, error) {
	if _, err := s.runOf(ctx, who, Operate, a.Run); err != nil {
		return client.Run{}, err
	}
	a.By = who.Name
	err := s.store.AnswerFlow(ctx, a)
	if a.Step != "" && (errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict)) {
		if run, same := s.answeredSo(ctx, who, &a); same {
			return run, nil
		}
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return client.Run{}, Refuse(client.TypeConflict, phrase.EndedAlready.Of(a.Run, ""))
	case errors.Is(err, store.ErrConflict):
		why, _ := phrase.InWords(err)
		return client.Run{}, Refuse(client.TypeConflict, why)
	case err != nil:
		return client.Run{}, err
	}
	return s.runOf(ctx, who, Read, a.Run)
}
