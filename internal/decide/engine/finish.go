package engine

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Finish decides the consequences of an attempt's end: a retry, or the end of the run
// with its own consequences. Besides the common needs, the store adds the jobs that
// follow the run's job (AddFollower), and the record, if any, of an attempt that does not
// run under its token. An attempt that is lost without a start, as reported for a dead process, is
// released if it never started.
func (b *Batch) Finish(res store.Result) store.FinishOutcome {
	m := b.run(res.Run)
	if m == nil || m.removed || !runs(m, res.Attempt) {
		return store.FinishOutcome{Accepted: !res.Postponed && b.report(res)}
	}
	if res.Postponed {
		b.postpone(m, &res)
		return store.FinishOutcome{Accepted: true}
	}
	if res.Outcome == job.OutcomeLost && res.Started.IsZero() && b.neverStarted(m) {
		b.release(res.Attempt)
		return store.FinishOutcome{}
	}
	before := b.unplaced
	b.handed = nil
	m.Unfenced = false // its node reports its end
	b.finish(m, res)
	return store.FinishOutcome{Accepted: true, Unplaced: b.unplaced > before, Ready: b.handed}
}

// postponeMin and postponeMax bound the pause of a postponed run: it starts soon after a short outage,
// and a long one costs two writes in each half minute.
const (
	postponeMin = 5 * time.Second
	postponeMax = 30 * time.Second
)

// postpone makes a run whose attempt lacks something ready again, due in a quarter of the time that it
// has waited. Any node may run it then, since another one may have what is lacking. It keeps its slot,
// so that later occurrences name it, unless other jobs need the slot too.
func (b *Batch) postpone(m *member, res *store.Result) {
	if b.release(res.Attempt); m.removed || m.State == job.StateRunning {
		return
	}
	j := b.jobOf(&m.Run)
	m.FirstDue = firstDue(&m.Run)
	pause := max(postponeMin, min(b.now.Sub(m.FirstDue)/4, postponeMax))
	m.Due, m.Reason = b.now.Add(pause).Truncate(time.Millisecond), res.Reason
	if j.Policy.Pooled() {
		b.giveUp(m)
	}
	if !m.Session.IsZero() {
		b.unassign(m, j)
	}
	b.hint(m.Due)
}

// runs reports whether an attempt is the running one.
func runs(m *member, a store.Attempt) bool {
	return m.State == job.StateRunning && m.Attempt == a.Number && m.Token == a.Token
}

func (b *Batch) finish(m *member, res store.Result) {
	j := b.jobOf(&m.Run)
	if isHandedOver(&m.Run) && m.CancelBy != "" && res.Outcome != job.OutcomeCancelled && res.Outcome != job.OutcomeLost {
		// Any report ends a cancelled run, even a success.
		res.Outcome, res.Reason = job.OutcomeCancelled, reason.Cancelled.Of(m.CancelBy, m.CancelReason)
	}
	if m.Kind == job.RunStep || m.Kind == job.RunByFlow {
		b.bounded(m, &res)
		m.value = res.Value
	}
	a := job.Attempt{
		Run: m.ID, Number: m.Attempt, Token: m.Token, Node: m.Node,
		Started: res.Started, Ended: res.Ended,
		Outcome: res.Outcome, Reason: cmp.Or(res.Reason, unexplained(res.Outcome)),
		ExitCode: res.ExitCode, Signal: res.Signal, HTTPStatus: res.HTTPStatus, Cause: res.Cause, Usage: res.Usage,
	}
	if a.Ended.IsZero() {
		a.Ended = b.now
	}
	if a.Started.IsZero() {
		if a.Started = startOf(m.Claimed, m.Due); a.Started.After(a.Ended) {
			a.Started = a.Ended // it was given up before it was due
		}
	}
	settleCause(&a)
	due, retried, not := b.retryAt(j, &m.Run, &res)
	if !retried {
		if !not.IsZero() {
			a.Reason = reason.NotRetried.Of(a.Reason, not)
		}
		b.end(m, a, res.OutputBytes, true)
		return
	}

	record := b.recordOf(m, a)
	record.OutputBytes, record.Unmet = res.OutputBytes, j.Policy.unmet(&m.Run, &a, false)
	record.Run.Attempt++ // the next one
	b.keep(record)
	m.FirstDue = firstDue(&m.Run)
	m.State, m.Token, m.Claimed, m.LostAfter, m.Unfenced, m.Due = job.StateReady, job.ID{}, time.Time{}, 0, false, due
	m.Last = a.Outcome
	m.Reason = reason.Attempted.Of(a.Number, a.Outcome, a.Reason)
	m.Attempt++
	if s := b.session(m.Session); a.Outcome == job.OutcomeLost || m.Session.IsZero() || s != nil && s.Drain != nil {
		b.unassign(m, j)
		b.done.Hints |= store.HintRuns
	}
	b.save(m)
	if !b.handTo(&m.Run) {
		b.hint(m.Due)
	}
}

// unassign makes a run unplaced. A run bound to a node waits for the node's next session.
func (b *Batch) unassign(m *member, j *Job) {
	m.Session = job.ID{}
	if !j.Policy.Bound {
		m.Node = ""
	}
	b.unplaced++
}

// unexplained returns the default reason of an outcome.
func unexplained(o job.Outcome) (none job.Reason) {
	switch o {
	case job.OutcomeSucceeded:
		return none
	case job.OutcomeFailed:
		return reason.Unexplained.Of()
	case job.OutcomeTimedOut:
		return reason.Timeout.Of(0)
	case job.OutcomeLost:
		return reason.UnknownEnd.Of()
	}
	return reason.EndedSo.Of(o)
}

// retryAt returns when the next attempt is due, or false and, if the policy alone would
// allow one, the reason.
func (b *Batch) retryAt(j *Job, r *store.Run, res *store.Result) (due time.Time, retried bool, not job.Reason) {
	p := j.Policy
	if r.Attempt > p.Retries || !p.MayRetry(res) {
		return time.Time{}, false, not
	}
	if r.CancelBy != "" {
		return time.Time{}, false, reason.CancelledBefore.Of(r.CancelBy)
	}
	if why, yes := withdrawn(j, r); yes {
		return time.Time{}, false, why
	}
	if r.Unfenced && res.Outcome == job.OutcomeLost {
		return time.Time{}, false, reason.UnfencedLost.Of()
	}
	due = b.now.Add(p.RetryDelay(r.ID, r.Attempt))
	if p.RetryWithin > 0 && due.After(r.First.Add(p.RetryWithin)) {
		return time.Time{}, false, reason.NextTooLate.Of(p.RetryWithin)
	}
	return due, true, not
}

// conclude ends a run that gets no further attempt.
func (b *Batch) conclude(m *member, outcome job.Outcome, why job.Reason) {
	b.endWithout(m, outcome, why, true)
}

// concludeKeeping is conclude, but leaves the run's slot to the caller.
func (b *Batch) concludeKeeping(m *member, outcome job.Outcome, why job.Reason) {
	b.endWithout(m, outcome, why, false)
}

func (b *Batch) endWithout(m *member, outcome job.Outcome, why job.Reason, handOn bool) {
	if withdrawal, yes := withdrawn(b.jobOf(&m.Run), &m.Run); yes {
		// Its occurrence may have been planned again, so this run no longer represents the
		// occurrence, whatever its outcome.
		outcome, why = job.OutcomeWithdrawn, withdrawal
	}
	b.end(m, job.Attempt{Run: m.ID, Node: m.Node, Ended: b.now, Outcome: outcome, Reason: why}, 0, handOn)
}

// end ends a run with all consequences. An active run ends only here, and always with a record of
// its outcome.
func (b *Batch) end(m *member, a job.Attempt, output int64, handOn bool) {
	j := b.jobOf(&m.Run)
	m.Outcome, m.Reason, m.State, m.AwaitsPrevious = a.Outcome, a.Reason, job.StateDone, false
	hadSlot := m.HoldsSlot
	m.HoldsSlot = false
	b.remove(m)
	record := b.recordOf(m, a)
	record.Final, record.OutputBytes, record.Unmet = !isStep(&m.Run.Run), output, j.Policy.unmet(&m.Run, &a, true)
	b.keep(record)
	if isStep(&m.Run.Run) {
		if !m.quiet {
			b.stepEnded(m, a)
		}
		return
	}
	if a.Outcome != job.OutcomeWithdrawn && m.First.IsZero() {
		// A claim has raised the floor before. A withdrawn occurrence may be planned again in a
		// new epoch, and the floor must not prevent that.
		b.raiseFloor(j, &m.Run)
	}

	if hadSlot && handOn && j.Policy.Contends(&m.Run) {
		b.fill(m.Slot)
	}
	var followers []*Job
	if m.Shards > 0 || a.Outcome == job.OutcomeSucceeded || a.Outcome.Failed() {
		followers = b.followersOf(j)
	}
	outcome, over := a.Outcome, true
	if m.Shards > 0 && (len(followers) > 0 || j.Policy.PauseOnFailure > 0 || j.Policy.countsShards(&m.Run)) {
		outcome, over = b.whole(j, &m.Run)
	}
	if over {
		b.countFailures(j, outcome, m.ID)
	}
	b.settlePrevious(j, &m.Run)
	if over {
		b.follow(j, &m.Run, outcome, followers)
	}
	b.succeed(j, &m.Run)
	if m.Kind == job.RunByFlow && !m.quiet {
		b.stepEnded(m, a)
	}
	if j.Completed.After(b.now) && j.Policy.DeleteAfter >= 0 && !b.unended(j) {
		j.Completed = b.now // the last run has ended
		b.saveJob(j)
	}
}

// keep adds a record to history, where later decisions of the batch find it.
func (b *Batch) keep(r store.Record) {
	settleCause(&r.Attempt)
	b.done.Records = append(b.done.Records, &r)
	b.records[recordKey{r.Run.ID, r.Attempt.Number}] = &r
}

// settleCause bounds the cause of a failure and gives it its fingerprint; a success has neither.
// Remote workers send causes, so it is cleaned again.
func settleCause(a *job.Attempt) {
	switch {
	case !a.Outcome.Failed():
		a.Cause, a.Fingerprint = "", 0
	case a.Fingerprint == 0:
		a.Cause = reason.Cause(a.Cause)
		a.Fingerprint = reason.FingerprintOf(a.Cause, a.Reason)
	}
}

// replaceRecord writes a changed record again, unless the batch has created it or already
// writes it again.
func (b *Batch) replaceRecord(r *store.Record) {
	if !slices.Contains(b.done.Records, r) && !slices.Contains(b.done.Replaced, r) {
		b.done.Replaced = append(b.done.Replaced, r)
	}
}

// recordOf returns the record of an attempt.
func (b *Batch) recordOf(m *member, a job.Attempt) store.Record {
	record := store.Record{Run: m.Run.Run, Attempt: a, Count: 1, Slot: m.Slot}
	if a.Number > 0 {
		record.Claimed = m.Claimed
	}
	if m.Attempt > 1 && !m.First.IsZero() {
		record.Begun = Begun(&m.Run)
	}
	record.Run.Outcome, record.Run.Reason, record.Run.Node = a.Outcome, a.Reason, a.Node
	return record
}

// countFailures counts failed runs in a row, and pauses the job at its limit, if it has one. A split
// occurrence counts once, at the end of its last run.
func (b *Batch) countFailures(j *Job, o job.Outcome, run job.ID) {
	switch limit := j.Policy.PauseOnFailure; {
	case j.Deleted:
	case o == job.OutcomeSucceeded && j.Failures > 0:
		j.Failures = 0
		b.saveJob(j)
	case o.Failed():
		j.Failures++
		b.saveJob(j)
		if limit > 0 && j.Failures >= limit && j.State != job.JobPaused {
			why := reason.PausedByFailure.Of(j.Failures, run)
			b.pause(j, store.Pause{By: System, Reason: why}, b.timingOf(j))
			j.Version++
			b.audit(System, "job.pause", j.FullName(), j.Version, why)
		}
	}
}

// settlePrevious records the end of an occurrence, and readies the runs that waited for
// it.
func (b *Batch) settlePrevious(j *Job, r *store.Run) {
	if !j.Policy.NeedsPrevious {
		return
	}
	ran := r.Outcome.Failed() || r.Outcome == job.OutcomeSucceeded || r.Outcome == job.OutcomeCancelled
	ok := r.Outcome == job.OutcomeSucceeded
	if isOccurrence(r.Kind) && ran && r.Scheduled.After(j.Previous) {
		j.Previous, j.PreviousOK, j.PreviousFailed = r.Scheduled, true, ""
		b.saveJob(j)
	}
	switch {
	case !ran:
	case isOccurrence(r.Kind) && r.Scheduled.Equal(j.Previous) && !ok:
		j.PreviousOK, j.PreviousFailed = false, j.PreviousFailed.with(&r.Run)
		b.saveJob(j)
	case !isOccurrence(r.Kind) && r.Scheduled.Equal(j.Previous) && ok:
		b.redeem(j, &r.Run)
	}
	b.resume(j)
}

// redeem counts the late success of a failed run, or of one of several shards.
func (b *Batch) redeem(j *Job, r *job.Run) {
	if j.PreviousOK {
		return
	}
	j.PreviousFailed = j.PreviousFailed.without(r)
	j.PreviousOK = j.PreviousFailed == ""
	b.saveJob(j)
}

// resume readies the runs whose previous occurrence has succeeded. After a failure only the first
// MaxBatch waiting runs get the reason; later ones wait for an earlier run anyway.
func (b *Batch) resume(j *Job) {
	var waiting, earlier []*member
	for _, m := range b.waiting(j.UID) {
		if !m.removed && m.AwaitsPrevious {
			waiting = append(waiting, m)
		}
	}
	if len(waiting) == 0 {
		return
	}
	byTime := func(a, c *member) int { return cmp.Or(a.Scheduled.Compare(c.Scheduled), a.Ref().Compare(c.Ref())) }
	slices.SortFunc(waiting, byTime)
	if j.Policy.NeedsPrevious {
		earlier = slices.SortedFunc(slices.Values(b.unfinished(j.UID)), byTime)
	}
	var first *store.Run // the first run before m
	explained := 0
	for _, m := range waiting {
		why, ok := job.Reason{}, true
		if j.Policy.NeedsPrevious {
			for len(earlier) > 0 && earlier[0].Scheduled.Before(m.Scheduled) {
				if e := earlier[0]; precedes(j, e) && (first == nil || before(&e.Run, first)) {
					first = &e.Run
				}
				earlier = earlier[1:]
			}
			why, ok = j.awaits(&m.Run, first)
		}
		switch {
		case ok:
			m.State, m.AwaitsPrevious, m.Reason = job.StateReady, false, job.Reason{}
			b.save(m)
			b.done.Hints |= store.HintRuns
		case !j.PreviousOK && !j.Previous.IsZero() && why != m.Reason && explained < store.MaxBatch:
			explained++
			m.Reason = why
			b.save(m)
		}
	}
}

// follow creates the runs of the jobs that follow this one. Split runs have one follower, at the
// end of the last one, by their combined outcome. The step that ends a run also makes its
// followers, so that there is one of each and none is lost.
func (b *Batch) follow(j *Job, parent *store.Run, outcome job.Outcome, followers []*Job) {
	for _, follower := range followers {
		if follower.Deleted || follower.State != job.JobActive {
			continue
		}
		if slices.ContainsFunc(follower.Policy.On, func(up Upstream) bool {
			return up.Job == j.FullName() && matches(up.Outcome, outcome)
		}) {
			b.spawn(follower, store.Run{Run: job.Run{
				Kind: job.RunOn, Key: parent.ID.String(), Parent: parent.ID,
				Scheduled: parent.Scheduled, Due: b.now, Params: job.WithoutExecutor(parent.Params),
			}})
		}
	}
}

// whole returns the combined outcome of all runs of an occurrence or request, one of which ends
// now: the worst of them. While others run, one of these stores it until its own end; a success
// only if needed.
func (b *Batch) whole(j *Job, r *store.Run) (outcome job.Outcome, over bool) {
	outcome = r.Outcome
	if outcome == job.OutcomeWithdrawn && r.Attempt > 1 {
		outcome = job.OutcomeCancelled // it has started
	}
	outcome = together(outcome, r.Others)
	var last *member // the last shard, whatever the order of adding
	for _, m := range b.unfinished(r.JobUID) {
		if isOther(m, r) && (last == nil || m.Shard > last.Shard) {
			last = m
		}
	}
	if last == nil {
		return outcome, true
	}
	all := together(outcome, last.Others)
	if all != last.Others && (all != job.OutcomeSucceeded || j.Policy.countsShards(r)) {
		last.Others = all
		b.save(last)
	}
	return "", false
}

// shardsBeside returns runs that include the other shards of a run.
func (b *Batch) shardsBeside(r *store.Run) []*member {
	if r.Shards == 0 {
		return nil
	}
	return b.unfinished(r.JobUID)
}

// isOther reports whether an unfinished run is another shard of the same occurrence or
// request. A new epoch may plan an occurrence of an old one again.
func isOther(m *member, r *store.Run) bool {
	return r.Shards > 0 && !m.removed && m.Kind == r.Kind && m.Key == r.Key &&
		(m.Epoch == r.Epoch || !counts(r.Kind))
}

// together returns the combined outcome of two shards: the worse one, and withdrawn only
// if both were, so that they do not count for max_runs.
func together(a, b job.Outcome) job.Outcome {
	worst := worse(a, b)
	if worst == job.OutcomeWithdrawn && a != b && a != "" && b != "" {
		return job.OutcomeCancelled
	}
	return worst
}

// worse returns the worse of two outcomes: a failure is worse than an incomplete run,
// which is worse than a success. "" for none is best.
func worse(a, b job.Outcome) job.Outcome {
	rank := func(o job.Outcome) int {
		switch {
		case o.Failed():
			return 3
		case o == job.OutcomeSucceeded:
			return 1
		case o == "":
			return 0
		}
		return 2
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}

func matches(on job.UpstreamOn, o job.Outcome) bool {
	switch on {
	case job.OnSucceeded:
		return o == job.OutcomeSucceeded
	case job.OnFailed:
		return o.Failed()
	case job.OnFinished:
		return o == job.OutcomeSucceeded || o.Failed()
	}
	return false
}

// succeed creates the next run of a chain with a fixed delay, whatever the outcome. A run of an
// earlier epoch has no next run: its chain has begun again.
func (b *Batch) succeed(j *Job, r *store.Run) {
	if r.Kind != job.RunAfterEnd || j.Policy.AfterEnd == 0 || j.Deleted || j.State != job.JobActive || r.Epoch != j.Epoch {
		return
	}
	if r.Shards > 0 {
		for _, m := range slices.Clone(b.unfinished(j.UID)) {
			if !m.removed && m.Kind == r.Kind && m.Key == r.Key {
				return // the last shard is still running
			}
		}
	}
	b.chain(j, r.ID.String(), r.ID, b.now.Add(j.Policy.AfterEnd))
}

// chain creates a run of a chain, or completes the job.
func (b *Batch) chain(j *Job, key string, parent job.ID, at time.Time) {
	p := j.Policy
	if at.Before(p.Start) {
		at = p.Start
	}
	if !p.End.IsZero() && at.After(p.End) || p.MaxRuns > 0 && j.Planned >= p.MaxRuns {
		b.complete(j)
		return
	}
	j.Planned++
	b.saveJob(j)
	// In whole milliseconds, the precision of all stores.
	at = at.Truncate(time.Millisecond)
	b.spawn(j, store.Run{Run: job.Run{
		Kind: job.RunAfterEnd, Key: key, Parent: parent,
		Scheduled: at, Due: at.Add(share(j.UID, p.Jitter, "jitter", at.UnixNano())),
	}})
}

// unendedMax is how long an unfinished run keeps a completed job from being removed: longer than
// any attempt should take.
const unendedMax = 366 * 24 * time.Hour

// complete records that no occurrence follows the planned runs. A job that is removed on
// completion counts as completed from the end of its last run.
func (b *Batch) complete(j *Job) {
	if j.State != job.JobActive {
		return
	}
	j.State, j.Completed = job.JobCompleted, b.now
	if j.Policy.DeleteAfter >= 0 && b.unended(j) {
		j.Completed = b.now.Add(unendedMax)
	}
	b.saveJob(j)
}

// unended reports whether a job has runs that have not ended.
func (b *Batch) unended(j *Job) bool {
	return slices.ContainsFunc(b.unfinished(j.UID), func(m *member) bool { return !m.removed })
}

// spawn creates a run that follows from another or, if it is split, the runs of all its shards or
// nodes.
func (b *Batch) spawn(j *Job, r store.Run) {
	r.JobUID, r.Namespace, r.Name = j.UID, j.Namespace, j.Name
	r.Epoch, r.Version = j.Epoch, j.Version
	r.State, r.Attempt, r.Priority = job.StateReady, 1, j.Policy.Priority
	r.LateAfter = j.Policy.LateAfter(r.Kind, r.Due)
	nodes := []*store.Session{nil}
	if j.Policy.Broadcast {
		if eligible := b.eligible(j.Policy); len(eligible) > 0 {
			nodes = eligible
		}
		r.Shards = len(nodes)
	} else if n := cmp.Or(b.splitOf(j.Policy), j.Policy.Shards); n > 0 {
		nodes = make([]*store.Session, n)
		r.Shards = n
	}
	for i, node := range nodes {
		shard := r
		shard.Shard = i
		if node != nil {
			shard.Session, shard.Node = node.ID, node.Node
		} else {
			b.unplaced++
		}
		shard.ID = b.newID(string(r.Kind)+r.Key, r.Parent, j.UID, i)
		shard.Slot = j.Policy.SlotKey(&shard.Run, shard.Node)
		b.makeRun(shard)
	}
	b.done.Hints |= store.HintRuns
}

// splitOf returns the number of executors among which an occurrence is split, 0 if nodes
// do the work.
func (b *Batch) splitOf(p *Policy) int {
	if p.Split == "" {
		return 0
	}
	b.missing(b.facts.hasExecutors, "executors", p.Split)
	return SplitOf(p.Split, b.facts.executors)
}

// splitMax bounds the runs of a broadcast over executors, like the shards of a job.
const splitMax = 1000

// SplitOf returns the number of executors in the group that splits a job's occurrences, each of
// which gets a run; 0 without a group. An empty group gets one run, which reports that.
func SplitOf(group string, candidates []store.Registration) int {
	if group == "" {
		return 0
	}
	n := 0
	for i := range candidates {
		if candidates[i].Group == group {
			n++
		}
	}
	return min(max(1, n), splitMax)
}

// eligible returns the live sessions that may run a job, by the names of their
// nodes.
func (b *Batch) eligible(p *Policy) []*store.Session {
	return b.live(func(s *store.Session) bool { return s.Drain == nil && p.suits(s) })
}

// drained returns a drained session that could run a job that no session may run. It is
// nil if a drain is not the reason.
func (b *Batch) drained(p *Policy) *store.Session {
	if len(b.eligible(p)) > 0 {
		return nil
	}
	if list := b.live(func(s *store.Session) bool { return s.Drain != nil && p.suits(s) }); len(list) > 0 {
		return list[0]
	}
	return nil
}

// live returns the live sessions that run jobs and meet a condition, sorted by node.
func (b *Batch) live(holds func(*store.Session) bool) []*store.Session {
	var list []*store.Session
	for _, s := range b.allSessions() {
		if s.Works() && IsLive(b.now, s, maps.Values(b.sessions)) && holds(s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, c *store.Session) int {
		return cmp.Or(strings.Compare(a.Node, c.Node), slices.Compare(a.ID[:], c.ID[:]))
	})
	return list
}

// report handles a result of an attempt that is not running, and reports whether it counts. A
// repeated result is acknowledged again. An outcome is final: only "lost" without a retry is
// replaced, by the same attempt, without further consequences; after a retry has started, the
// report is only added to the reason.
func (b *Batch) report(res store.Result) bool {
	record := b.record(res.Run, res.Number)
	if record == nil || record.Attempt.Token != res.Token || res.Number == 0 {
		return false
	}
	if record.Attempt.Outcome == res.Outcome {
		return true
	}
	if record.Attempt.Outcome != job.OutcomeLost {
		return false
	}
	if !record.Final {
		if !reason.SaidLater.Is(record.Attempt.Reason) {
			record.Attempt.Reason = reason.SaidLater.Of(record.Attempt.Reason, res.Outcome)
			record.Run.Reason = record.Attempt.Reason
			b.replaceRecord(record)
		}
		return false
	}
	a := &record.Attempt
	a.Outcome, a.Reason = res.Outcome, cmp.Or(res.Reason, unexplained(res.Outcome), reason.Succeeded.Of())
	a.ExitCode, a.Signal, a.HTTPStatus, a.Cause, a.Fingerprint = res.ExitCode, res.Signal, res.HTTPStatus, res.Cause, 0
	a.Usage = res.Usage
	settleCause(a)
	a.Reason = reason.CameLate.Of(a.Reason)
	if !res.Started.IsZero() {
		a.Started = res.Started
	}
	if !res.Ended.IsZero() {
		a.Ended = res.Ended
	}
	record.Run.Outcome, record.Run.Reason = a.Outcome, a.Reason
	record.Replaces, record.OutputBytes = true, res.OutputBytes
	j := b.job(record.Run.JobUID)
	if j != nil && a.Number == 1 { // later attempts have other due times
		record.Unmet = j.Policy.unmet(&store.Run{Run: record.Run, Claimed: record.Claimed}, a, true)
	}
	b.replaceRecord(record)

	// only needs_previous reads it
	if j != nil && j.Policy.NeedsPrevious && a.Outcome == job.OutcomeSucceeded && record.Run.Scheduled.Equal(j.Previous) {
		b.redeem(j, &record.Run)
		b.resume(j)
	}
	return true
}
