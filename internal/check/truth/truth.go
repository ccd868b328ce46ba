// Package truth judges each reason of a history against what has happened: in the simulation, whose
// store records each step, and in tests of processes, which record less. It reads no clock.
package truth

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// World is what has happened.
type World struct {
	Records  map[job.ID][]*store.Record // by run, in the order of attempts
	Active   map[job.ID]store.Run
	Attempts map[job.ID][]Attempt // the evidence of each run
	Claims   map[job.ID][]Claim   // of each run
	Sessions map[job.ID]*Session
	Cancels  map[job.ID]int                         // how often users were told that a run will end
	Lost     func(run job.ID, number int) bool      // whether an attempt counted as lost at any time
	Handed   func(run job.ID, number int) bool      // whether an attempt was handed over to a service
	Rule     func(name string) (rule Rule, ok bool) // of a job that nobody edits
	Changed  func(name string, at time.Time) bool   // whether users had changed a job by then
	Openings []Opening                              // of maintenance windows
	// Texts are the messages of executors and services, with the outcomes that they are about.
	Texts map[string]job.Outcome

	// Whole is set if Sessions have every renewal, not only those that somebody has seen.
	Whole bool
	// Stalled bounds the time of a step from its clock to its commit.
	Stalled time.Duration
	// Untold is how long the end of an attempt may be unknown when a reason says that it runs.
	Untold time.Duration
	// OnItsWay bounds how long after the end of its process a renewal arrives.
	OnItsWay time.Duration

	// Rate returns the rate of a pool that bounds a run, nil for none.
	Rate func(pool string, r *job.Run) *job.Rate

	byJob    map[job.ID][]*store.Record
	problems []string
}

// Attempt is the evidence of an attempt. Ended is zero while it runs.
type Attempt struct {
	Number         int
	Started, Ended time.Time
	Frozen         time.Time // when its machine froze while it ran
	// Outcome is how it has ended, as it has seen itself; "" is unknown.
	Outcome job.Outcome
}

// Claim is a time in which a run was claimed and due. To is zero while it lasts.
type Claim struct {
	By             job.ID // the session
	Made, From, To time.Time
}

// Opening is a time in which a maintenance window was to be open, and when it was known: Over is
// zero while it is.
type Opening struct{ From, To, Put, Over time.Time }

// Session has the renewals of a session, and how many results it had not reported at each.
type Session struct {
	Node       string
	HeardAt    []time.Time
	Unreported []int     // nil where it is unknown
	Left       time.Time // when it stopped taking runs
}

// Rule is the part of a job's policy that reasons name.
type Rule struct {
	Missed  job.Missed // "" is latest
	Queue   int        // its queue_limit, 0 with another overlap policy
	Replace bool
}

// Check judges the reasons of all records, and returns a sentence about each that was not true.
func (c *World) Check() []string {
	c.problems, c.byJob = nil, map[job.ID][]*store.Record{}
	for _, list := range c.Records {
		for _, r := range list {
			c.byJob[r.Run.JobUID] = append(c.byJob[r.Run.JobUID], r)
		}
	}
	for _, list := range c.Records {
		for _, r := range list {
			c.checkSaid(r, r.Attempt.Reason, []time.Time{r.Attempt.Ended})
		}
	}
	slices.Sort(c.problems) // independent of the order of maps
	return c.problems
}

// statement is a reason of a record, or one within it.
type statement struct {
	*store.Record
	reason job.Reason
	args   map[string]any
	when   []time.Time // the moments that it may be about
}

func (s *statement) text(name string) string { text, _ := s.args[name].(string); return text }

// span reads an argument that is a duration.
func (s *statement) span(name string) (time.Duration, bool) {
	d, err := time.ParseDuration(s.text(name))
	return d, err == nil
}

// number reads an argument that is a number.
func (s *statement) number(name string) (int64, bool) {
	n, _ := s.args[name].(json.Number)
	value, err := n.Int64()
	return value, err == nil
}

// at reads a moment from the arguments.
func (s *statement) at(name string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, s.text(name))
	return t, err == nil
}

// judges decide for each code whether it was true. A reason within a
// reason is judged by its own code.
var judges = map[string]func(*World, *statement) bool{
	reason.StillRunning.Name: (*World).ranOn, reason.WasRunning.Name: (*World).ranOn, reason.AboutToStart.Name: (*World).ranOn,
	reason.EndUnreported.Name: (*World).namesRun, reason.LastHeard.Name: (*World).wasUnheard, reason.Unaccepted.Name: (*World).hadResults,
	reason.WaitedLonger.Name: (*World).waitedLonger, reason.HoldsSlot.Name: (*World).wasBetweenAttempts, reason.HolderWaits.Name: (*World).namesRun,
	reason.BeingEnded.Name: (*World).wasCancelled, reason.TookPlace.Name: (*World).wasReplaced, reason.NotEnded.Name: (*World).hadNotEnded,
	reason.QueueFull.Name: (*World).filledQueue,

	reason.CouldStart.Name: (*World).wasTooLate, reason.NoNodeRan.Name: (*World).neverRan, reason.NodeTooSlow.Name: (*World).namesNode,
	reason.NoNodes.Name: (*World).neverRan, reason.NoNodeHas.Name: (*World).neverRan, reason.Unclaimed.Name: (*World).neverRan,
	reason.Labels.Name: always, reason.Handler.Name: always, reason.And.Name: always,
	reason.NoNodeThere.Name: (*World).wasAbsent,
	reason.Unplanned.Name:   (*World).wasDueBefore,
	reason.StoreAway.Name:   (*World).wasUnreached, reason.AfterOutage.Name: always,
	reason.MissedNone.Name: missedBy(job.MissedNone), reason.MissedLatest.Name: missedBy(job.MissedLatest),
	reason.InWindow.Name: (*World).wasInWindow, reason.OutOfTurn.Name: (*World).wasOutOfTurn, reason.HeldMax.Name: (*World).filledWindow,
	reason.MissedAll.Name: missedBy(job.MissedAll), reason.MissedLate.Name: (*World).wasLateBy,

	reason.JobPaused.Name: (*World).wasChanged, reason.JobDeleted.Name: (*World).wasChanged, reason.JobResumed.Name: (*World).wasChanged,
	reason.ScheduleChanged.Name: (*World).wasChanged, reason.RescheduledOft.Name: (*World).wasChanged,

	reason.NodeGone.Name:   (*World).wasGone,
	reason.NodeSilent.Name: (*World).wasSilent, reason.NodeLeft.Name: (*World).wasOver,
	reason.StartUnknown.Name:  (*World).wasDueUnheard,
	reason.NodeRestarted.Name: (*World).wasRestarted, reason.ProcessEnded.Name: (*World).wasRestarted,
	reason.UnknownEnd.Name: is(job.OutcomeLost), reason.NodeStopped.Name: (*World).endedNoOther, reason.NodeFenced.Name: (*World).endedNoOther,
	reason.ByWatchdog.Name: (*World).hadNoProcess,
	reason.CameLate.Name:   (*World).wasTakenForLost, reason.Both.Name: always, reason.NotRetried.Name: (*World).wasTheLast, reason.SaidLater.Name: (*World).saidLater,

	reason.Unexplained.Name: saw(job.OutcomeFailed), reason.ExitStatus.Name: saw(job.OutcomeFailed), reason.StepFailed.Name: (*World).stepFailed,
	reason.ItemsFailed.Name: (*World).itemsFailed, reason.TimeoutPassed.Name: saw(job.OutcomeTimedOut), reason.EndedSo.Name: (*World).hasOutcome,
	reason.UnfencedLost.Name: is(job.OutcomeLost), reason.CancelledBefore.Name: (*World).cancelRequested,
	reason.StepsFailed.Name:  (*World).stepsFailed,
	reason.AllSucceeded.Name: is(job.OutcomeSucceeded), reason.Succeeded.Name: is(job.OutcomeSucceeded), reason.TimeCame.Name: is(job.OutcomeSucceeded),
	reason.Approved.Name: is(job.OutcomeSucceeded), reason.Rejected.Name: is(job.OutcomeFailed), reason.NothingWithin.Name: took("span"),
	reason.Timeout.Name: took("timeout"), reason.NoResult.Name: took("timeout"),
	reason.Because.Name: always, reason.EndedBy.Name: (*World).wasEnded, reason.Terminated.Name: (*World).wasEnded,
	reason.TermKilled.Name: (*World).wasEnded, reason.Killed.Name: (*World).wasEnded,
	reason.Cancelled.Name: (*World).wasCancelledItself, reason.CancelledOnly.Name: (*World).wasCancelledItself, reason.CancelUnknown.Name: (*World).wasCancelledItself,
}

func always(*World, *statement) bool { return true }

func is(o job.Outcome) func(*World, *statement) bool {
	return func(_ *World, s *statement) bool { return s.Attempt.Outcome == o }
}

// sawItself: the attempt of a record has ended with its outcome, unless it has seen no end. What ended a command
// may come right after its last line.
func (c *World) sawItself(s *statement) bool {
	a, o := c.attempt(s), s.Attempt.Outcome
	isEnd := o == job.OutcomeLost || o == job.OutcomeTimedOut || o == job.OutcomeCancelled
	return a == nil || a.Outcome == "" || a.Outcome == o || isEnd && s.Attempt.Ended.Sub(a.Ended) < c.Stalled
}

// attempt returns the evidence of the attempt of a record, nil for none.
func (c *World) attempt(s *statement) *Attempt {
	for i := range c.Attempts[s.Run.ID] {
		if a := &c.Attempts[s.Run.ID][i]; a.Number == s.Attempt.Number {
			return a
		}
	}
	return nil
}

func saw(o job.Outcome) func(*World, *statement) bool {
	return func(c *World, s *statement) bool { return s.Attempt.Outcome == o && c.sawItself(s) }
}

// took: the attempt took as long as the reason says, by the clock of its node.
func took(name string) func(*World, *statement) bool {
	return func(c *World, s *statement) bool {
		least, _ := s.span(name)
		return s.Attempt.Outcome == job.OutcomeTimedOut && (s.Attempt.Started.IsZero() || s.Attempt.Ended.Sub(s.Attempt.Started) >= least-c.Stalled)
	}
}

// neverRan: no attempt has begun that the record could be about.
func (c *World) neverRan(s *statement) bool {
	return s.Attempt.Outcome == job.OutcomeMissed && !slices.ContainsFunc(c.Attempts[s.Run.ID], func(a Attempt) bool { return a.Number >= max(1, s.Run.Attempt) })
}

// endedNoOther: the node has ended the attempt, which did not end by itself before.
func (c *World) endedNoOther(s *statement) bool {
	return s.Attempt.Outcome == job.OutcomeLost && c.sawItself(s)
}

// wasTheLast: no later attempt has begun.
func (c *World) wasTheLast(s *statement) bool {
	return !slices.ContainsFunc(c.Attempts[s.Run.ID], func(a Attempt) bool { return a.Number > s.Attempt.Number })
}

// saidLater: the attempt that was lost has ended as its node said.
func (c *World) saidLater(s *statement) bool {
	a := c.attempt(s)
	return s.Attempt.Outcome == job.OutcomeLost && (a == nil || a.Outcome == "" || string(a.Outcome) == s.text("outcome"))
}

// wasGone: a session of the node was over, or had not been heard for as long as one lives.
func (c *World) wasGone(s *statement) bool {
	for _, o := range c.Sessions {
		at := s.Attempt.Ended
		if o.Node == s.text("node") && (!o.Left.IsZero() && !o.Left.After(at) ||
			!slices.ContainsFunc(o.HeardAt, func(h time.Time) bool { return h.After(at.Add(-store.SessionLife)) && h.Before(at) })) {
			return s.Attempt.Outcome == job.OutcomeMissed
		}
	}
	return false
}

// cancelRequested: a user has asked for the end of the run or of its flow, or a later run replaces it. Only whole worlds
// know that.
func (c *World) cancelRequested(s *statement) bool {
	rule, known := c.Rule(s.Run.Name)
	return !c.Whole || !known || s.text("by") == engine.System || rule.Replace || c.Cancels[s.Run.ID] > 0 || c.Cancels[s.Run.Parent] > 0
}

func (c *World) wasCancelledItself(s *statement) bool {
	return s.Attempt.Outcome == job.OutcomeCancelled && c.cancelRequested(s)
}

// stepsOf returns the last records of the steps of a flow by their names.
func (c *World) stepsOf(flow job.ID) map[string][]*store.Record {
	steps := map[string][]*store.Record{}
	for _, list := range c.Records {
		if len(list) == 0 || list[0].Run.Parent != flow {
			continue
		}
		name, _ := list[0].Run.Step()
		steps[name] = append(steps[name], Final(list))
	}
	return steps
}

// stepsFailed: each step that the reason names has a run that did not succeed.
func (c *World) stepsFailed(s *statement) bool {
	names, _ := s.args["steps"].([]any)
	steps := c.stepsOf(s.Run.ID)
	for _, name := range names {
		of, _ := name.(string)
		if !slices.ContainsFunc(steps[of], func(r *store.Record) bool {
			return r.Attempt.Outcome != job.OutcomeSucceeded || c.Lost(r.Run.ID, r.Attempt.Number)
		}) {
			return false
		}
	}
	return len(names) > 0 && s.Attempt.Outcome == job.OutcomeFailed
}

// itemsFailed: no more items have failed than there are.
func (c *World) itemsFailed(s *statement) bool {
	n, ok := s.number("n")
	all, okAll := s.number("all")
	return ok && okAll && 0 < n && n <= all && s.Attempt.Outcome == job.OutcomeFailed
}

// filledWindow: as many runs of the job as the reason says had not ended when a window refused one more.
func (c *World) filledWindow(s *statement) bool {
	n, ok := s.number("n")
	return ok && n > 0 && s.Attempt.Outcome == job.OutcomeSkipped && c.open(s) >= n
}

// open counts other runs of the job that had been made and not ended when a record was.
func (c *World) open(s *statement) (n int64) {
	at := s.Attempt.Ended
	for _, list := range c.Records {
		if r := Final(list); r.Run.JobUID == s.Run.JobUID && r.Run.ID != s.Run.ID && r.Attempt.Ended.After(at.Add(-c.Stalled)) {
			n++
		}
	}
	for id := range c.Active {
		if r := c.Active[id]; r.JobUID == s.Run.JobUID && id != s.Run.ID {
			n++
		}
	}
	return n
}

func (c *World) checkSaid(r *store.Record, why job.Reason, when []time.Time) {
	s := &statement{r, why, why.Args(), when}
	if until, ok := s.at("until"); ok && reason.CouldStart.Is(why) {
		when = append(when, c.tries(r, until)...)
	}
	problem := func(what string) {
		c.problems = append(c.problems, fmt.Sprintf("the run %s of %s of %s is %s at %s because %q (%s), %s", r.Run.ID, r.Run.Name, r.Run.Due, r.Attempt.Outcome, r.Attempt.Ended, r.Attempt.Reason, cmp.Or(why.Code(), "no code"), what))
	}
	judge := judges[why.Code()]
	switch {
	case why.IsZero(), why.Code() == job.ReasonText:
		switch outcome, known := c.Texts[why.String()]; {
		case !known || outcome != r.Attempt.Outcome:
			problem("which no check judges")
		case !c.sawItself(s):
			problem("which was not so: the attempt ended otherwise")
		}
	case judge == nil:
		problem("which no check judges")
	case !judge(c, s):
		problem("which was not so" + c.heardOf(s) + c.historyOf(s))
	}
	for name := range s.args {
		if inner := reason.Inner(why, name); !inner.IsZero() && !judgedWhole[why.Code()] {
			c.checkSaid(r, inner, when)
		}
	}
}

// heardOf lists when the node of a statement was heard around it, "" if it names none.
func (c *World) heardOf(s *statement) (list string) {
	from := s.Attempt.Ended.Add(-time.Minute)
	for id, o := range c.Sessions {
		if o.Node != s.text("node") {
			continue
		}
		list += fmt.Sprintf("; session %s was heard at", id)
		for _, at := range o.HeardAt {
			if at.After(from) && at.Before(s.Attempt.Ended.Add(10*time.Second)) {
				list += at.Format(" 15:04:05.000")
			}
		}
	}
	return list
}

// historyOf lists the claims and attempts of the run that a statement names, "" if it names none.
func (c *World) historyOf(s *statement) (list string) {
	run, err := job.ParseID(s.text("run"))
	if err != nil {
		return ""
	}
	for _, claim := range c.Claims[run] {
		list += fmt.Sprintf("; it was claimed at %s from %s to %s", claim.Made, claim.From, claim.To)
	}
	for _, r := range c.Records[run] {
		list += fmt.Sprintf("; attempt %d ended at %s, recorded as %s (final: %t) because %q", r.Attempt.Number, r.Attempt.Ended, r.Attempt.Outcome, r.Final, r.Attempt.Reason)
	}
	return list
}

// judgedWhole are the codes whose arguments are words of users, or a reason that is judged in another record.
var judgedWhole = map[string]bool{reason.JobPaused.Name: true, reason.Cancelled.Name: true, reason.CancelUnknown.Name: true, reason.StepFailed.Name: true}

// named returns the run that a reason names, by its last record, and reports whether it is known.
func (c *World) named(s *statement) (run job.Run, list []*store.Record, known bool) {
	parsed, err := job.ParseID(s.text("run"))
	if err != nil {
		return run, nil, false
	}
	if list = c.Records[parsed]; len(list) > 0 {
		run = list[len(list)-1].Run
	}
	if active, ok := c.Active[parsed]; ok {
		run = active.Run
	}
	if at, ok := s.at("time"); !ok || !at.Equal(run.Scheduled) {
		return run, nil, false
	}
	return run, list, !run.ID.IsZero()
}

func (c *World) namesRun(s *statement) bool {
	_, _, known := c.named(s)
	return known
}

func (c *World) namesNode(s *statement) bool {
	return s.Attempt.Outcome == job.OutcomeMissed && slices.ContainsFunc(slices.Collect(maps.Values(c.Sessions)), func(o *Session) bool { return o.Node == s.text("node") })
}

// ranOn checks that the attempt ran when the other run was refused, or that its end was too recent
// to be known.
func (c *World) ranOn(s *statement) bool {
	run, _, known := c.named(s)
	if late, ok := s.span("late"); ok && (s.Attempt.Ended.Sub(s.Run.Due)-late).Abs() > time.Millisecond {
		return false
	}
	return known && slices.ContainsFunc(s.when, func(at time.Time) bool { return c.ran(run.ID, at) })
}

// Holds reports whether a run was claimed and due at a moment.
func (c *World) Holds(run job.ID, at time.Time) bool {
	return slices.ContainsFunc(c.Claims[run], func(claim Claim) bool { return !at.Before(claim.From) && (claim.To.IsZero() || !at.After(claim.To)) })
}

// tries returns moments at which a run may have been refused while it could start: right at its due
// time, and at ends of the job's attempts.
func (c *World) tries(r *store.Record, until time.Time) []time.Time {
	list := []time.Time{r.Run.Due}
	for _, o := range c.byJob[r.Run.JobUID] {
		if at := o.Attempt.Ended.Add(-1); at.After(r.Run.Due) && at.Before(until) {
			list = append(list, at)
		}
	}
	return list
}

// ran reports whether a run had a running attempt at a moment, as far as the store could know.
func (c *World) ran(run job.ID, at time.Time) bool {
	var last *Attempt
	for i := range c.Attempts[run] {
		if a := &c.Attempts[run][i]; !a.Started.After(at) && (last == nil || a.Started.After(last.Started)) {
			last = a
		}
	}
	switch {
	case last == nil || last.Ended.IsZero():
		return true
	case !last.Frozen.IsZero() && !last.Frozen.After(last.Ended):
		return true // it ended while its machine slept, as far as it knows
	}
	claimedSince := func(claim Claim) bool {
		return claim.Made.After(last.Ended) && !claim.Made.Truncate(time.Microsecond).After(at) // stores keep microseconds
	}
	if slices.ContainsFunc(c.Claims[run], claimedSince) {
		return true // the next attempt, which its node has not begun: the store cannot know that
	}
	if c.Handed(run, last.Number) {
		return true // the service knows
	}
	return at.Sub(last.Ended) <= c.Untold
}

// hadNotEnded: the named run ran or was still to run.
func (c *World) hadNotEnded(s *statement) bool {
	run, list, known := c.named(s)
	if !known {
		return false
	}
	return slices.ContainsFunc(s.when, func(at time.Time) bool {
		if c.Holds(run.ID, at) && c.ran(run.ID, at) {
			return true
		}
		if c.Holds(run.ID, at.Add(time.Microsecond)) { // not ended by the step at this moment; stores keep microseconds
			return false
		}
		return len(list) == 0 || !Final(list).Final || !Final(list).Attempt.Ended.Before(at) // between two attempts, or before the first
	})
}

// stepFailed checks that a record of the step has the same reason, or that as many of its items
// have failed.
func (c *World) stepFailed(s *statement) bool {
	inner, failed := reason.Inner(s.reason, "why"), 0
	for _, list := range c.Records {
		for _, r := range list {
			step, item := r.Run.Step()
			if r.Run.Parent != s.Run.ID || step != s.text("step") {
				continue
			}
			wasLost := c.Lost(r.Run.ID, r.Attempt.Number) // its result may have come since
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

// wasEnded: a command that succeeded was ended by no signal.
func (c *World) wasEnded(s *statement) bool { return s.Attempt.Outcome != job.OutcomeSucceeded }

func (c *World) hasOutcome(s *statement) bool {
	return s.text("outcome") == string(s.Attempt.Outcome)
}

// filledQueue checks that at least as many runs waited, by the reason, as the job allows.
func (c *World) filledQueue(s *statement) bool {
	waited, isNumber := s.number("n")
	rule, ok := c.Rule(s.Run.Name)
	return isNumber && waited > 0 && s.Attempt.Outcome == job.OutcomeSkipped && (!ok || rule.Queue > 0 && waited >= int64(rule.Queue)) && c.open(s) >= waited
}

// wasUnheard checks that the node's last renewal was as old as the reason says.
func (c *World) wasUnheard(s *statement) bool {
	ago, ok := s.span("span")
	if !ok {
		return false
	}
	heard := s.Attempt.Ended.Add(-ago)
	for _, o := range c.Sessions {
		isExact := slices.ContainsFunc(o.HeardAt, func(at time.Time) bool { return !at.After(heard) && at.After(heard.Add(-time.Second)) })
		if o.Node != s.text("node") || c.Whole && !isExact || !o.HeardAt[0].Before(s.Attempt.Ended) {
			continue
		}
		next := slices.IndexFunc(o.HeardAt, func(at time.Time) bool { return at.After(heard) })
		if next < 0 || !o.HeardAt[next].Before(s.Attempt.Ended.Add(-c.Stalled)) { // it may have come after the record
			return true
		}
	}
	return false
}

// hadResults checks that the last renewal of the node's session reported unsent results.
func (c *World) hadResults(s *statement) bool {
	for _, o := range c.Sessions {
		last := -1
		for i, at := range o.HeardAt {
			if !at.After(s.Attempt.Ended) {
				last = i
			}
		}
		if o.Node == s.text("node") && last >= 0 && (o.Unreported == nil || o.Unreported[last] > 0) {
			return true
		}
	}
	return false
}

// waitedLonger checks that the named run was due earlier, and did not run yet.
func (c *World) waitedLonger(s *statement) bool {
	run, _, known := c.named(s)
	at := s.Attempt.Ended
	return known && !slices.ContainsFunc(c.Claims[run.ID], func(claim Claim) bool {
		return claim.Made.Before(at) && (claim.To.IsZero() || claim.To.After(at.Add(c.Stalled))) // the record may have stalled
	})
}

// wasBetweenAttempts checks that an attempt of the named run had ended and another one followed.
func (c *World) wasBetweenAttempts(s *statement) bool {
	_, list, known := c.named(s)
	return known && slices.ContainsFunc(list, func(o *store.Record) bool {
		return !o.Final && o.Attempt.Number > 0 && !o.Attempt.Ended.After(s.Attempt.Ended.Add(c.Stalled)) // by the clocks of two steps
	})
}

// wasCancelled: a cancel of the named run was requested.
func (c *World) wasCancelled(s *statement) bool {
	run, list, known := c.named(s)
	rule, _ := c.Rule(run.Name)
	return known && (c.Cancels[run.ID] > 0 || rule.Replace || len(list) > 0 && Final(list).Attempt.Outcome == job.OutcomeCancelled)
}

// wasReplaced: the named run of the job was due later.
func (c *World) wasReplaced(s *statement) bool {
	run, _, known := c.named(s)
	return known && run.JobUID == s.Run.JobUID && run.ID != s.Run.ID && (s.Attempt.Outcome == job.OutcomeSkipped || s.Attempt.Outcome == job.OutcomeCancelled)
}

// wasTooLate checks that it was as late as the reason says.
func (c *World) wasTooLate(s *statement) bool {
	until, ok := s.at("until")
	return ok && s.Attempt.Outcome == job.OutcomeMissed && !s.Attempt.Ended.Before(until)
}

// wasUnreached: the session of the node was not renewed in the outage. The renewal at its end may not have been
// seen where only those are known that somebody has seen: the node may have been killed right after it.
func (c *World) wasUnreached(s *statement) bool {
	from, ok := s.at("from")
	to, okTo := s.at("to")
	for _, o := range c.Sessions {
		was := o.HeardAt
		if o.Node == s.text("node") && len(was) > 0 && was[0].Before(from.Add(time.Second)) && (!c.Whole || was[len(was)-1].After(to)) && // in whole seconds
			!slices.ContainsFunc(was, func(at time.Time) bool { return at.After(from.Add(time.Second)) && at.Before(to) }) {
			return ok && okTo && from.Before(to)
		}
	}
	return false
}

// wasOutOfTurn checks that the starts before had used the turns up to the moment, or that another run waited
// for one. A run that was too late in the end may have waited long before.
func (c *World) wasOutOfTurn(s *statement) bool {
	rate := c.Rate(s.text("pool"), &s.Run)
	until, ok := s.at("until")
	if rate == nil || !ok {
		return false
	}
	now := s.Attempt.Ended.Add(c.Stalled) // by the clocks of two steps
	var starts []time.Time
	waited := false
	for id, claims := range c.Claims {
		run := c.run(id)
		if run == nil || id == s.Run.ID || c.Rate(s.text("pool"), run) == nil {
			continue
		}
		for _, claim := range claims {
			if claim.Made.Before(now) {
				starts = append(starts, claim.From)
			} else if run.Scheduled.Before(now) {
				waited = true
			}
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	var turn time.Time
	for _, at := range starts {
		if at.After(turn) {
			turn = at
		}
		turn = turn.Add(rate.Spacing())
	}
	return s.Attempt.Outcome == job.OutcomeMissed || until.After(s.Attempt.Ended.Add(-time.Second)) && (waited || turn.Add(-rate.Early()).After(s.Attempt.Ended))
}

// run returns a run, nil if it is unknown.
func (c *World) run(id job.ID) *job.Run {
	if active, ok := c.Active[id]; ok {
		return &active.Run
	}
	if list := c.Records[id]; len(list) > 0 {
		return &list[len(list)-1].Run
	}
	return nil
}

// wasAbsent checks that no node that took runs was renewed in the absence.
func (c *World) wasAbsent(s *statement) bool {
	from, ok := s.at("from")
	to, okTo := s.at("to")
	from = from.Add(time.Second) // the reason has whole seconds
	for _, o := range c.Sessions {
		if slices.ContainsFunc(o.HeardAt, func(at time.Time) bool {
			return at.After(from) && at.Before(to.Add(-c.Stalled)) && (o.Left.IsZero() || at.Before(o.Left))
		}) {
			return false
		}
	}
	return ok && okTo
}

func (c *World) wasDueBefore(s *statement) bool { return s.Run.Due.Before(s.Attempt.Ended) }

// missedBy: the job has the policy of the words.
func missedBy(policy job.Missed) func(*World, *statement) bool {
	return func(c *World, s *statement) bool {
		rule, ok := c.Rule(s.Run.Name)
		held := s.Attempt.Outcome == job.OutcomeSkipped && reason.InWindow.Is(reason.Inner(s.reason, "why"))
		return (held || s.Attempt.Outcome == job.OutcomeMissed) && (!ok || cmp.Or(rule.Missed, job.MissedLatest) == policy)
	}
}

// wasInWindow: a maintenance window was open, or would be when the run was due.
func (c *World) wasInWindow(s *statement) bool {
	within := func(at, from, to time.Time) bool {
		return !at.Add(c.Stalled).Before(from) && (to.IsZero() || at.Add(-c.Stalled).Before(to))
	}
	return slices.ContainsFunc(s.when, func(at time.Time) bool {
		return slices.ContainsFunc(c.Openings, func(o Opening) bool {
			return within(at, o.Put, o.Over) && (within(at, o.From, o.To) || within(s.Run.Due, o.From, o.To))
		})
	})
}

// wasLateBy: it was later than the job allows.
func (c *World) wasLateBy(s *statement) bool {
	late, ok := s.span("late")
	last := s.Run.Due
	if !s.Until.IsZero() {
		last = s.Until
	}
	return ok && s.Attempt.Ended.Sub(last) > late
}

// wasChanged: users had changed the job.
func (c *World) wasChanged(s *statement) bool { return c.Changed(s.Run.Name, s.Attempt.Ended) }

// claimer returns the session that had claimed the attempt of a record; nil for none.
func (c *World) claimer(r *store.Record) *Session {
	var by *Session
	for _, claim := range c.Claims[r.Run.ID] {
		if !claim.Made.After(r.Attempt.Ended) {
			by = c.Sessions[claim.By]
		}
	}
	return by
}

// wasSilent checks that the session with the claim was not renewed for as long as the reason says.
func (c *World) wasSilent(s *statement) bool {
	silent, ok := s.span("span")
	by := c.claimer(s.Record)
	return ok && s.Attempt.Outcome == job.OutcomeLost && by != nil && by.Node == s.text("node") &&
		!slices.ContainsFunc(by.HeardAt, func(at time.Time) bool { return at.After(s.Attempt.Ended.Add(-silent)) && at.Before(s.Attempt.Ended) })
}

// wasDueUnheard: the session with the claim was not renewed from the time when the attempt was due until
// the loss.
func (c *World) wasDueUnheard(s *statement) bool {
	by := c.claimer(s.Record)
	return s.Attempt.Outcome == job.OutcomeLost && by != nil &&
		!slices.ContainsFunc(by.HeardAt, func(at time.Time) bool { return at.After(s.Run.Due) && at.Before(s.Attempt.Ended) })
}

// wasOver: a session of the node is not renewed any more.
func (c *World) wasOver(s *statement) bool {
	for _, o := range c.Sessions {
		if o.Node == s.text("node") && !slices.ContainsFunc(o.HeardAt, func(at time.Time) bool { return at.After(s.Attempt.Ended) }) {
			return true
		}
	}
	return false
}

// wasRestarted: the session that had claimed the attempt is not renewed any more, but for what was on its
// way.
func (c *World) wasRestarted(s *statement) bool {
	by := c.claimer(s.Record)
	return by != nil && by.Node == s.text("node") && c.hadNoProcess(s)
}

// hadNoProcess: the same of a reason that names no node.
func (c *World) hadNoProcess(s *statement) bool {
	by := c.claimer(s.Record)
	return s.Attempt.Outcome == job.OutcomeLost && by != nil &&
		!slices.ContainsFunc(by.HeardAt, func(at time.Time) bool { return at.After(s.Attempt.Ended.Add(c.OnItsWay)) })
}

// wasTakenForLost: the attempt was recorded as lost before.
func (c *World) wasTakenForLost(s *statement) bool {
	return c.Lost(s.Run.ID, s.Attempt.Number)
}

// Final returns the record that ends a run, or the last one. A run that ended between two attempts
// has a record with number 0.
func Final(list []*store.Record) *store.Record {
	if list[0].Final {
		return list[0]
	}
	return list[len(list)-1]
}
