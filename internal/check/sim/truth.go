package sim

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// statement is a reason of a record, or one within it.
type statement struct {
	*store.Record
	said job.Reason
	args map[string]any
	when []time.Time // the moments that it may be about
}

func (s *statement) text(name string) string { text, _ := s.args[name].(string); return text }

// span reads an argument that is a duration.
func (s *statement) span(name string) (time.Duration, bool) {
	d, err := time.ParseDuration(s.text(name))
	return d, err == nil
}

// at reads a moment from the arguments.
func (s *statement) at(name string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, s.text(name))
	return t, err == nil
}

// untoldMax is how long the end of an attempt may be unknown when a reason says that it runs: renewals
// mention it after a second, are up to 2.5 s old, and take up to 10 s in slow weather.
const untoldMax = 12 * time.Second

// judges decide for each code in records of the simulation whether it was true. A reason within a
// reason is judged by its own code.
var judges = map[string]func(*checker, *statement) bool{
	reason.StillRunning.Name: (*checker).ranOn, reason.WasRunning.Name: (*checker).ranOn, reason.AboutToStart.Name: (*checker).ranOn,
	reason.EndUnreported.Name: (*checker).namesRun, reason.LastHeard.Name: (*checker).wasUnheard, reason.Unaccepted.Name: (*checker).hadResults,
	reason.WaitedLonger.Name: (*checker).waitedLonger, reason.HoldsSlot.Name: (*checker).wasBetweenAttempts, reason.HolderWaits.Name: (*checker).namesRun,
	reason.BeingEnded.Name: (*checker).wasCancelled, reason.TookPlace.Name: (*checker).wasReplaced, reason.NotEnded.Name: (*checker).hadNotEnded,
	reason.QueueFull.Name: (*checker).filledQueue,

	reason.CouldStart.Name: (*checker).wasTooLate, reason.NoNodeRan.Name: is(job.OutcomeMissed), reason.NodeTooSlow.Name: (*checker).namesNode,
	reason.NoNodes.Name: is(job.OutcomeMissed), reason.NoNodeHas.Name: is(job.OutcomeMissed), reason.Unclaimed.Name: is(job.OutcomeMissed),
	reason.Labels.Name: always, reason.Handler.Name: always, reason.And.Name: always,
	reason.NoNodeThere.Name: always, // see checkAbsent
	reason.Unplanned.Name:   (*checker).wasDueBefore,
	reason.StoreAway.Name:   (*checker).wasUnreached, reason.AfterOutage.Name: always,
	reason.MissedNone.Name: missedBy(job.MissedNone), reason.MissedLatest.Name: missedBy(job.MissedLatest),
	reason.MissedAll.Name: missedBy(job.MissedAll), reason.MissedLate.Name: (*checker).wasLateBy,

	reason.JobPaused.Name: (*checker).wasChanged, reason.JobDeleted.Name: (*checker).wasChanged, reason.JobResumed.Name: (*checker).wasChanged,
	reason.ScheduleChanged.Name: (*checker).wasChanged, reason.RescheduledOft.Name: (*checker).wasChanged,

	reason.NodeGone.Name:   is(job.OutcomeMissed), // see checkGone
	reason.NodeSilent.Name: (*checker).wasSilent, reason.NodeLeft.Name: (*checker).wasOver,
	reason.NodeRestarted.Name: (*checker).wasRestarted, reason.ProcessEnded.Name: (*checker).wasRestarted,
	reason.UnknownEnd.Name: is(job.OutcomeLost), reason.NodeStopped.Name: is(job.OutcomeLost), reason.NodeFenced.Name: is(job.OutcomeLost),
	reason.CameLate.Name: (*checker).wasTakenForLost, reason.Both.Name: always, reason.NotRetried.Name: always, reason.SaidLater.Name: always,

	reason.Unexplained.Name: is(job.OutcomeFailed), reason.ExitStatus.Name: is(job.OutcomeFailed), reason.StepFailed.Name: (*checker).stepFailed,
	reason.ItemsFailed.Name: is(job.OutcomeFailed), reason.TimeoutPassed.Name: is(job.OutcomeTimedOut), reason.EndedSo.Name: (*checker).hasOutcome,
	reason.UnfencedLost.Name: is(job.OutcomeLost), reason.CancelledBefore.Name: always,
	reason.StepsFailed.Name:  is(job.OutcomeFailed), // see checkFlows
	reason.AllSucceeded.Name: is(job.OutcomeSucceeded), reason.Succeeded.Name: is(job.OutcomeSucceeded), reason.TimeCame.Name: is(job.OutcomeSucceeded),
	reason.Approved.Name: is(job.OutcomeSucceeded), reason.Rejected.Name: is(job.OutcomeFailed), reason.NothingWithin.Name: is(job.OutcomeTimedOut),
	reason.Timeout.Name: is(job.OutcomeTimedOut), reason.NoResult.Name: is(job.OutcomeTimedOut),
	reason.Cancelled.Name: is(job.OutcomeCancelled), reason.CancelledOnly.Name: is(job.OutcomeCancelled), reason.CancelUnknown.Name: is(job.OutcomeCancelled),
}

func always(*checker, *statement) bool { return true }

func is(o job.Outcome) func(*checker, *statement) bool {
	return func(_ *checker, s *statement) bool { return s.Attempt.Outcome == o }
}

// texts are the messages of the simulation's executors and services.
var texts = map[string]job.Outcome{
	"": job.OutcomeSucceeded, "exit status 1": job.OutcomeFailed, "the timeout has passed": job.OutcomeTimedOut, "it was cancelled": job.OutcomeCancelled,
	reason.NodeStopped.Of().String(): job.OutcomeLost, reason.NodeFenced.Of().String(): job.OutcomeLost,
}

// checkReason checks that the reason of a record was true.
func (c *checker) checkReason(r *store.Record) {
	c.checkSaid(r, r.Attempt.Reason, []time.Time{r.Attempt.Ended})
}

func (c *checker) checkSaid(r *store.Record, said job.Reason, when []time.Time) {
	s := &statement{r, said, said.Args(), when}
	if until, ok := s.at("until"); ok && reason.CouldStart.Is(said) {
		when = append(when, c.tries(r, until)...)
	}
	problem := func(what string) {
		c.problem("reasons", "the run %s of %s of %s is %s at %s because %q (%s), %s", r.Run.ID, r.Run.Name, r.Run.Due, r.Attempt.Outcome, r.Attempt.Ended, r.Attempt.Reason, cmp.Or(said.Code(), "no code"), what)
	}
	judge := judges[said.Code()]
	switch {
	case said.IsZero(), said.Code() == job.ReasonText:
		if outcome, known := texts[said.String()]; !known || outcome != r.Attempt.Outcome {
			problem("which no check judges")
		}
	case judge == nil:
		problem("which no check judges")
	case !judge(c, s):
		problem("which was not so")
	}
	for name := range s.args {
		if inner := reason.Inner(said, name); !inner.IsZero() && !judgedWhole[said.Code()] {
			c.checkSaid(r, inner, when)
		}
	}
}

// judgedWhole are the codes whose arguments are words of users, or a reason that is judged in another record.
var judgedWhole = map[string]bool{reason.JobPaused.Name: true, reason.Cancelled.Name: true, reason.CancelUnknown.Name: true, reason.StepFailed.Name: true}

// named returns the run that a reason names, by its last record, and reports whether it is known.
func (c *checker) named(s *statement) (run job.Run, list []*store.Record, known bool) {
	parsed, err := job.ParseID(s.text("run"))
	if err != nil {
		return run, nil, false
	}
	if list = c.records[parsed]; len(list) > 0 {
		run = list[len(list)-1].Run
	}
	if active, ok := c.active[parsed]; ok {
		run = active.Run
	}
	if at, ok := s.at("time"); !ok || !at.Equal(run.Scheduled) {
		return run, nil, false
	}
	return run, list, !run.ID.IsZero()
}

func (c *checker) namesRun(s *statement) bool {
	_, _, known := c.named(s)
	return known
}

func (c *checker) namesNode(s *statement) bool {
	return s.Attempt.Outcome == job.OutcomeMissed && slices.ContainsFunc(slices.Collect(maps.Values(c.sessions)), func(o *session) bool { return o.node == s.text("node") })
}

// ranOn checks that the attempt ran when the other run was refused, or that its end was too recent
// to be known.
func (c *checker) ranOn(s *statement) bool {
	run, _, known := c.named(s)
	if late, ok := s.span("late"); ok && (s.Attempt.Ended.Sub(s.Run.Due)-late).Abs() > time.Millisecond {
		return false
	}
	return known && slices.ContainsFunc(s.when, func(at time.Time) bool { return c.ran(run.ID, at) })
}

// tries returns moments at which a run may have been refused while it could start: right at its due
// time, and at ends of the job's attempts.
func (c *checker) tries(r *store.Record, until time.Time) []time.Time {
	list := []time.Time{r.Run.Due}
	for _, o := range c.byJob[r.Run.JobUID] {
		if at := o.Attempt.Ended.Add(-1); at.After(r.Run.Due) && at.Before(until) {
			list = append(list, at)
		}
	}
	return list
}

// ran reports whether a run had a running attempt at a moment, as far as the store could know.
func (c *checker) ran(run job.ID, at time.Time) bool {
	var last *Attempt
	for _, a := range c.attemptsOf(run) {
		if !a.Started.After(at) && (last == nil || a.Started.After(last.Started)) {
			last = a
		}
	}
	switch {
	case last == nil || last.Ended.IsZero():
		return true // see checkBusy
	case !last.Frozen.IsZero() && !last.Frozen.After(last.Ended):
		return true // it ended while its machine slept, as far as it knows
	}
	claimedSince := func(held claim) bool { return held.made.After(last.Ended) && !held.made.After(at) }
	if slices.ContainsFunc(c.claims[run], claimedSince) {
		return true // the next attempt, which its node has not begun: the store cannot know that
	}
	if _, ok := c.handed[attemptKey{run, last.Number}]; ok {
		return true // see checkHandedOver
	}
	return at.Sub(last.Ended) <= untoldMax
}

// attemptsOf returns the evidence of a run's attempts.
func (c *checker) attemptsOf(run job.ID) []*Attempt {
	if c.seen == nil {
		c.seen = map[job.ID][]*Attempt{}
		for _, a := range c.attempts {
			c.seen[a.Run.ID] = append(c.seen[a.Run.ID], a)
		}
	}
	return c.seen[run]
}

// hadNotEnded: the named run ran or was still to run.
func (c *checker) hadNotEnded(s *statement) bool {
	run, list, known := c.named(s)
	if !known {
		return false
	}
	return slices.ContainsFunc(s.when, func(at time.Time) bool {
		if c.holds(run.ID, at) {
			return c.ran(run.ID, at)
		}
		return len(list) == 0 || !final(list).Final || !final(list).Attempt.Ended.Before(at) // between two attempts, or before the first
	})
}

// stepFailed checks that a record of the step has the same reason, or that as many of its items
// have failed.
func (c *checker) stepFailed(s *statement) bool {
	inner, failed := reason.Inner(s.said, "why"), 0
	for _, list := range c.records {
		for _, r := range list {
			step, item := r.Run.Step()
			if r.Run.Parent != s.Run.ID || step != s.text("step") {
				continue
			}
			_, wasLost := c.lost[attemptKey{r.Run.ID, r.Attempt.Number}] // its result may have come since
			if inner.IsZero() || wasLost || r.Attempt.Reason.String() == inner.String() {
				return s.Attempt.Outcome == job.OutcomeFailed
			}
			if item >= 0 && r == list[len(list)-1] && r.Attempt.Outcome != job.OutcomeSucceeded {
				failed++
			}
		}
	}
	n, _ := inner.Args()["n"].(json.Number)
	return reason.ItemsFailed.Is(inner) && s.Attempt.Outcome == job.OutcomeFailed && n.String() == strconv.Itoa(failed)
}

func (c *checker) hasOutcome(s *statement) bool {
	return s.text("outcome") == string(s.Attempt.Outcome)
}

// filledQueue checks that as many runs of the job waited as the reason says, or more for a pool.
func (c *checker) filledQueue(s *statement) bool {
	n, _ := s.args["n"].(json.Number)
	most, err := n.Int64()
	of, isSteady := steady[s.Run.Name]
	return err == nil && most > 0 && s.Attempt.Outcome == job.OutcomeSkipped && (!isSteady || strings.Contains(of.rest, "overlap: queue"))
}

// wasUnheard checks that the node's last renewal was as old as the reason says.
func (c *checker) wasUnheard(s *statement) bool {
	ago, ok := s.span("span")
	if !ok {
		return false
	}
	heard := s.Attempt.Ended.Add(-ago)
	for _, o := range c.sessions {
		if o.node == s.text("node") && slices.ContainsFunc(o.heardAt, func(at time.Time) bool { return !at.After(heard) && at.After(heard.Add(-time.Second)) }) {
			next := slices.IndexFunc(o.heardAt, func(at time.Time) bool { return at.After(heard) })
			return next < 0 || !o.heardAt[next].Before(s.Attempt.Ended.Add(-stalledMax)) // it may have come after the record
		}
	}
	return false
}

// hadResults checks that the last renewal of the node's session reported unsent results.
func (c *checker) hadResults(s *statement) bool {
	for _, o := range c.sessions {
		last := -1
		for i, at := range o.heardAt {
			if !at.After(s.Attempt.Ended) {
				last = i
			}
		}
		if o.node == s.text("node") && last >= 0 && o.unreported[last] > 0 {
			return true
		}
	}
	return false
}

// waitedLonger checks that the named run was due earlier, and did not run yet.
func (c *checker) waitedLonger(s *statement) bool {
	run, _, known := c.named(s)
	at := s.Attempt.Ended
	return known && !slices.ContainsFunc(c.claims[run.ID], func(held claim) bool {
		return held.made.Before(at) && (held.to.IsZero() || held.to.After(at.Add(stalledMax))) // the record may have stalled
	})
}

// wasBetweenAttempts checks that an attempt of the named run had ended and another one followed.
func (c *checker) wasBetweenAttempts(s *statement) bool {
	_, list, known := c.named(s)
	return known && slices.ContainsFunc(list, func(o *store.Record) bool {
		return !o.Final && o.Attempt.Number > 0 && !o.Attempt.Ended.After(s.Attempt.Ended.Add(stalledMax)) // by the clocks of two steps
	})
}

// wasCancelled: a cancel of the named run was requested.
func (c *checker) wasCancelled(s *statement) bool {
	run, list, known := c.named(s)
	return known && (c.cancels[run.ID] > 0 || strings.Contains(steady[run.Name].rest, "overlap: replace") || len(list) > 0 && final(list).Attempt.Outcome == job.OutcomeCancelled)
}

// wasReplaced: the named run of the job was due later.
func (c *checker) wasReplaced(s *statement) bool {
	run, _, known := c.named(s)
	return known && run.JobUID == s.Run.JobUID && run.ID != s.Run.ID && (s.Attempt.Outcome == job.OutcomeSkipped || s.Attempt.Outcome == job.OutcomeCancelled)
}

// wasTooLate checks that it was as late as the reason says.
func (c *checker) wasTooLate(s *statement) bool {
	until, ok := s.at("until")
	return ok && s.Attempt.Outcome == job.OutcomeMissed && !s.Attempt.Ended.Before(until)
}

// wasUnreached: the session of the node was not renewed in the outage.
func (c *checker) wasUnreached(s *statement) bool {
	from, ok := s.at("from")
	to, okTo := s.at("to")
	for _, o := range c.sessions {
		was := o.heardAt
		if o.node == s.text("node") && len(was) > 0 && was[0].Before(from.Add(time.Second)) && was[len(was)-1].After(to) && // in whole seconds
			!slices.ContainsFunc(was, func(at time.Time) bool { return at.After(from.Add(time.Second)) && at.Before(to) }) {
			return ok && okTo && from.Before(to)
		}
	}
	return false
}

func (c *checker) wasDueBefore(s *statement) bool { return s.Run.Due.Before(s.Attempt.Ended) }

// missedBy: the job has the policy of the words.
func missedBy(policy job.Missed) func(*checker, *statement) bool {
	return func(_ *checker, s *statement) bool {
		of, isSteady := steady[s.Run.Name]
		return s.Attempt.Outcome == job.OutcomeMissed && (!isSteady || of.missed == policy || of.missed == "" && policy == job.MissedLatest)
	}
}

// wasLateBy: it was later than the job allows.
func (c *checker) wasLateBy(s *statement) bool {
	late, ok := s.span("late")
	last := s.Run.Due
	if !s.Until.IsZero() {
		last = s.Until
	}
	return ok && s.Attempt.Ended.Sub(last) > late
}

// wasChanged: the job is one that users change, and had been planned before.
func (c *checker) wasChanged(s *statement) bool {
	_, isSteady := steady[s.Run.Name]
	return !isSteady
}

// claimer returns the session that had claimed the attempt of a record; nil for none.
func (c *checker) claimer(r *store.Record) *session {
	var by *session
	for _, held := range c.claims[r.Run.ID] {
		if !held.made.After(r.Attempt.Ended) {
			by = c.sessions[held.by]
		}
	}
	return by
}

// wasSilent checks that the session with the claim was not renewed for as long as the reason says.
func (c *checker) wasSilent(s *statement) bool {
	silent, ok := s.span("span")
	by := c.claimer(s.Record)
	return ok && s.Attempt.Outcome == job.OutcomeLost && by != nil && by.node == s.text("node") &&
		!slices.ContainsFunc(by.heardAt, func(at time.Time) bool { return at.After(s.Attempt.Ended.Add(-silent)) && at.Before(s.Attempt.Ended) })
}

// wasOver: a session of the node is not renewed any more.
func (c *checker) wasOver(s *statement) bool {
	for _, o := range c.sessions {
		if o.node == s.text("node") && !slices.ContainsFunc(o.heardAt, func(at time.Time) bool { return at.After(s.Attempt.Ended) }) {
			return true
		}
	}
	return false
}

// onItsWayMax bounds how long after the end of its process a renewal arrives: a message takes up to
// 10.3 s in slow weather.
const onItsWayMax = 11 * time.Second

// wasRestarted: the session that had claimed the attempt is not renewed any more, but for what was on its
// way.
func (c *checker) wasRestarted(s *statement) bool {
	by := c.claimer(s.Record)
	return s.Attempt.Outcome == job.OutcomeLost && by != nil && by.node == s.text("node") &&
		!slices.ContainsFunc(by.heardAt, func(at time.Time) bool { return at.After(s.Attempt.Ended.Add(onItsWayMax)) })
}

// wasTakenForLost: the attempt was recorded as lost before.
func (c *checker) wasTakenForLost(s *statement) bool {
	_, lost := c.lost[attemptKey{s.Run.ID, s.Attempt.Number}]
	return lost
}
