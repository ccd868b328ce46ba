package sim

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// statement is a form of reasons, and the question whether a record may say it. Its parts are those
// of the expression in parentheses.
type statement struct {
	form  *regexp.Regexp
	holds func(c *checker, r *store.Record, parts []string) bool
}

// whole matches a whole part of a reason.
func whole(form string) *regexp.Regexp { return regexp.MustCompile("^(?:" + form + ")$") }

const (
	aRun   = `run ([0-9A-Z]{26}) of \S+`
	aNode  = `node (\S+)`
	anyone = `[a-z]+`
	aSpan  = `[0-9][^,;]*`
)

// untoldMax is how long the end of an attempt may be untold when a reason says that it runs: a node
// that is cut off reports when it is back, and its attempts are lost after a minute at most, to which
// an outage of the store adds.
const untoldMax = 2 * time.Minute

// statements are all reasons that records of the simulation have. What follows a semicolon, and
// why missed occurrences are not caught up, is not looked at.
var statements = []statement{
	{whole(aRun + ` (?:was still running|was running|was about to start)(?: on ` + aNode + `)?(?: when this run was claimed, ` + aSpan + ` after it was due)?`), (*checker).ranOn},
	{whole(aRun + ` had not reported its end: ` + aNode + ` was last heard (.+) ago`), (*checker).wasUnheard},
	{whole(aRun + ` had not reported its end: ` + aNode + ` has ended its session`), (*checker).hadEndedItsSession},
	{whole(aRun + ` had waited longer for its slot`), (*checker).waitedLonger},
	{whole(aRun + ` holds its slot until its next attempt`), (*checker).wasBetweenAttempts},
	{whole(aRun + ` is being cancelled(?: on ` + aNode + `)?`), func(c *checker, _ *store.Record, _ []string) bool { return true }},
	{whole(aRun + ` took its place`), (*checker).wasReplaced},
	{whole(`it could start until (\S+): (.*)`), (*checker).wasTooLate},
	{whole(`no node was running from \S+ to \S+(?:, and it may start at most .* late)?`), always}, // see checkAbsent
	{whole(`no node planned it in time(?:, and .*)?`), (*checker).wasDueBefore},
	{whole(`the job was paused`), (*checker).wasChanged},
	{whole(`the job was (?:paused|deleted|paused and resumed)(?: by ` + anyone + `)?(?:: for a while)?`), (*checker).wasChanged},
	{whole(`the schedule of the job was changed by ` + anyone), (*checker).wasChanged},
	{whole(`the job was rescheduled \d+ times after the run was planned, the last time because .*`), (*checker).wasChanged},
	{whole(aNode + `, which it belongs to, is gone`), always}, // see checkGone
	{whole(aNode + ` was silent for (.+)`), (*checker).wasSilent},
	{whole(aNode + ` (?:ended|was started again) before it reported the result`), is(job.OutcomeLost)},
	{whole(aNode + ` has ended its session`), (*checker).wasRestarted},
	{whole(`its node does not know its outcome|the node has (?:stopped|lost touch with the store)`), is(job.OutcomeLost)},
	{whole(`it failed without giving a reason`), is(job.OutcomeFailed)},
	{whole(`steps? .* ha(?:s|ve) failed(?:: .*)?`), is(job.OutcomeFailed)}, // see checkFlows
	{whole(`all steps succeeded|it succeeded|`), is(job.OutcomeSucceeded)},
	{whole(`the time has come|approved by ` + anyone), is(job.OutcomeSucceeded)},
	{whole(`exit status \d+`), is(job.OutcomeFailed)},
	{whole(`the timeout has passed`), is(job.OutcomeTimedOut)},
	{whole(`rejected by ` + anyone), is(job.OutcomeFailed)},
	{whole(`nothing has come within .*`), is(job.OutcomeTimedOut)},
	{whole(`it took longer than its timeout(?:, ` + aSpan + `)?`), is(job.OutcomeTimedOut)},
	{whole(`no result was reported by ` + anyone + ` within the timeout of .*`), is(job.OutcomeTimedOut)},
	{whole(`it was cancelled|cancelled by ` + anyone + `(?:: .*)?`), is(job.OutcomeCancelled)},
}

func always(*checker, *store.Record, []string) bool { return true }

func is(o job.Outcome) func(*checker, *store.Record, []string) bool {
	return func(_ *checker, r *store.Record, _ []string) bool { return r.Attempt.Outcome == o }
}

// checkReason: a record says what was so, in words that are known.
func (c *checker) checkReason(r *store.Record) {
	reason, _, _ := strings.Cut(r.Attempt.Reason.String(), "; ")
	reason = strings.TrimSuffix(reason, " (this came after it had been recorded as lost)")
	reason, _, _ = strings.Cut(reason, ", and the missed policy is ")
	if before, _, ok := strings.Cut(reason, " already"); ok { // and 3 runs wait already
		reason = before[:strings.LastIndex(before, ", and ")]
	}
	for i := range statements {
		s := &statements[i]
		parts := s.form.FindStringSubmatch(reason)
		if parts == nil {
			continue
		}
		if !s.holds(c, r, parts[1:]) {
			c.problem("reasons", "the run %s of %s of %s is %s at %s because %q, which was not so", r.Run.ID, r.Run.Name, r.Run.Due, r.Attempt.Outcome, r.Attempt.Ended, r.Attempt.Reason)
		}
		return
	}
	c.problem("reasons", "the run %s of %s has a reason that no check judges: %s, %q", r.Run.ID, r.Run.Name, r.Attempt.Outcome, r.Attempt.Reason)
}

// named returns the run that a reason names, as it was recorded last, and reports whether it is known.
func (c *checker) named(id string) (run job.Run, list []*store.Record, known bool) {
	parsed, err := job.ParseID(id)
	if err != nil {
		return run, nil, false
	}
	if list = c.records[parsed]; len(list) > 0 {
		run = list[len(list)-1].Run
	}
	if active, ok := c.active[parsed]; ok {
		run = active.Run
	}
	return run, list, !run.ID.IsZero()
}

// ranOn: the attempt ran when the other run was refused, or its end was not old enough to be known.
func (c *checker) ranOn(r *store.Record, parts []string) bool {
	run, _, known := c.named(parts[0])
	if !known {
		return false
	}
	var last *Attempt
	for _, a := range c.attemptsOf(run.ID) {
		if !a.Started.After(r.Attempt.Ended) && (last == nil || a.Started.After(last.Started)) {
			last = a
		}
	}
	switch {
	case last == nil || last.Ended.IsZero():
		return true // see checkBusy
	case !last.Frozen.IsZero() && !last.Frozen.After(last.Ended):
		return true // it ended while its machine slept, as far as it can tell
	}
	claimedSince := func(held claim) bool { return held.made.After(last.Ended) && !held.made.After(r.Attempt.Ended) }
	if slices.ContainsFunc(c.claims[run.ID], claimedSince) {
		return true // the next attempt, which its node has not begun: the store cannot know
	}
	if _, ok := c.handed[attemptKey{run.ID, last.Number}]; ok {
		return true // see checkHandedOver
	}
	// Calls of whole nodes go without an answer, which holds a report back for longer than any bound
	// of the model.
	return c.late > 0 || r.Attempt.Ended.Sub(last.Ended) <= untoldMax
}

// attemptsOf returns what attempts of a run have seen.
func (c *checker) attemptsOf(run job.ID) []*Attempt {
	if c.seen == nil {
		c.seen = map[job.ID][]*Attempt{}
		for _, a := range c.attempts {
			c.seen[a.Run.ID] = append(c.seen[a.Run.ID], a)
		}
	}
	return c.seen[run]
}

// wasUnheard: the node had renewed its session last as long ago as the words say.
func (c *checker) wasUnheard(r *store.Record, parts []string) bool {
	ago, ok := inWords(parts[2])
	if !ok {
		return false
	}
	heard := r.Attempt.Ended.Add(-ago)
	for _, s := range c.sessions {
		if s.node == parts[1] && slices.ContainsFunc(s.heardAt, func(at time.Time) bool { return !at.After(heard) && at.After(heard.Add(-time.Second)) }) {
			next := slices.IndexFunc(s.heardAt, func(at time.Time) bool { return at.After(heard) })
			return next < 0 || !s.heardAt[next].Before(r.Attempt.Ended)
		}
	}
	return false
}

// inWords reads a duration as reasons write it: 1 min 30 s.
func inWords(text string) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(strings.NewReplacer(" min", "m", " h", "h", " s", "s", " ms", "ms", " ", "").Replace(text))
	return d, err == nil
}

func (c *checker) hadEndedItsSession(r *store.Record, parts []string) bool {
	return c.wasRestarted(r, parts[1:])
}

// waitedLonger: the named run was due before, and was not running yet.
func (c *checker) waitedLonger(r *store.Record, parts []string) bool {
	run, _, known := c.named(parts[0])
	at := r.Attempt.Ended
	return known && !slices.ContainsFunc(c.claims[run.ID], func(held claim) bool {
		return held.made.Before(at) && (held.to.IsZero() || held.to.After(at))
	})
}

// wasBetweenAttempts: an attempt of the named run had ended, and another one came.
func (c *checker) wasBetweenAttempts(r *store.Record, parts []string) bool {
	_, list, known := c.named(parts[0])
	return known && slices.ContainsFunc(list, func(o *store.Record) bool {
		return !o.Final && o.Attempt.Number > 0 && !o.Attempt.Ended.After(r.Attempt.Ended)
	})
}

// wasReplaced: the named run of the job was due later.
func (c *checker) wasReplaced(r *store.Record, parts []string) bool {
	run, _, known := c.named(parts[0])
	return known && run.JobUID == r.Run.JobUID && run.ID != r.Run.ID
}

// wasTooLate: it was as late as the words say, and what they name had not ended.
func (c *checker) wasTooLate(r *store.Record, parts []string) bool {
	until, err := time.Parse(time.RFC3339, parts[0])
	if err != nil || r.Attempt.Ended.Before(until) {
		return false
	}
	named := regexp.MustCompile("^" + aRun + " has not ended$").FindStringSubmatch(parts[1])
	if named == nil {
		return true
	}
	run, list, known := c.named(named[1])
	_, isActive := c.active[run.ID]
	return known && (isActive || c.late > 0 /* see ranOn */ || slices.ContainsFunc(list, func(o *store.Record) bool { return o.Final && !o.Attempt.Ended.Before(r.Run.Due) }))
}

func (c *checker) wasDueBefore(r *store.Record, _ []string) bool {
	return r.Run.Due.Before(r.Attempt.Ended)
}

// wasChanged: the job is one that users change, and had been planned before.
func (c *checker) wasChanged(r *store.Record, _ []string) bool {
	_, isSteady := steady[r.Run.Name]
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

// wasSilent: the session that had claimed the attempt was not renewed for as long as the words say.
func (c *checker) wasSilent(r *store.Record, parts []string) bool {
	silent, ok := inWords(parts[1])
	by := c.claimer(r)
	return ok && by != nil && by.node == parts[0] &&
		!slices.ContainsFunc(by.heardAt, func(at time.Time) bool { return at.After(r.Attempt.Ended.Add(-silent)) && at.Before(r.Attempt.Ended) })
}

// wasRestarted: the session that had claimed the attempt is not renewed any more.
func (c *checker) wasRestarted(r *store.Record, parts []string) bool {
	by := c.claimer(r)
	return by != nil && by.node == parts[0] && !slices.ContainsFunc(by.heardAt, func(at time.Time) bool { return at.After(r.Attempt.Ended) })
}
