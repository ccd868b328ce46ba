package job

import (
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// job checks the rules that tags cannot express. Combinations of fields are checked on the
// job as written; numbers are compared with the defaults filled in.
func (v *validator) job(j *Job) {
	filled := j.Policy
	filled.fill(v.defaults.in(j.Namespace), j)
	v.labels(j.Labels, root.field("labels"))
	v.params(j)
	v.schedule(j)
	v.runSpec(j)
	v.place(j)
	v.policy(j, &filled)
	v.templates(j)
}

func (v *validator) schedule(j *Job) {
	s, at := &j.Schedule, root.field("schedule")

	// The sources of due times.
	var sources []string
	for _, source := range []struct {
		name string
		set  bool
	}{
		{"cron", len(s.Cron) > 0}, {"every", s.Every != 0}, {"after_end", s.AfterEnd != 0},
		{"at", len(s.At) > 0}, {"on", len(s.On) > 0},
	} {
		isBeside := source.name == "on" && (len(s.Cron) > 0 || s.Every > 0)
		if source.set && !isBeside {
			sources = append(sources, source.name)
		}
	}
	if len(sources) > 1 {
		v.report(at.field(sources[1]), phrase.TwoSources.Of(sources[0]),
			phrase.TwoSchedules)
		return
	}
	v.refuse(s.Boot && s.AfterEnd != 0, at.field("boot"), phrase.BootChains, phrase.TwoJobs)
	source := "none"
	if len(sources) == 1 {
		source = sources[0]
	}

	// Fields that need a particular source.
	only := func(set bool, name string, beside ...string) {
		if set && !slices.Contains(beside, source) {
			v.refuse(true, at.field(name), phrase.OnlyWithOr.Of(beside))
		}
	}
	only(s.Align != "", "align", "every")
	only(s.Offset != 0, "offset", "every")
	only(s.ClockChange != "", "clock_change", "cron")
	only(s.Dialect != "", "dialect", "cron")
	only(s.DeleteAfter != nil, "delete_after", "at")
	only(!s.Start.IsZero(), "start", "cron", "every", "after_end")
	only(!s.End.IsZero(), "end", "cron", "every", "after_end")
	only(s.MaxRuns != 0, "max_runs", "cron", "every", "after_end")
	only(len(s.Only) > 0, "only", "cron", "every", "at")
	only(len(s.Except) > 0, "except", "cron", "every", "at")
	only(s.Jitter != 0, "jitter", "cron", "every", "after_end", "at")
	only(s.Spread != 0, "spread", "cron", "every")
	v.refuse(s.OffDay != "" && len(s.Only)+len(s.Except) == 0, at.field("off_day"), phrase.OnlyWithOr.Of([]string{"only", "except"}))

	v.refuse(s.Every > 0 && s.Align == AlignStart && s.Start.IsZero(), at.field("align"), phrase.StartMissing, phrase.SetStart)
	if s.Offset < 0 || s.Every > 0 && s.Offset >= s.Every {
		v.refuse(true, at.field("offset"), phrase.NotBelowEvery.Of(s.Every, s.Offset))
	}
	v.refuse(!s.Start.IsZero() && !s.End.IsZero() && !s.End.After(s.Start), at.field("end"), phrase.NotAfterStart)
	if s.Every > 0 {
		v.checkRate(j, s.Every, at.field("every"))
	}
	if s.AfterEnd > 0 {
		v.checkRate(j, s.AfterEnd, at.field("after_end"))
	}
	for i, up := range s.On {
		v.upstream(j, up, at.field("on").item(i))
	}
	v.rulesLeaveSome(j)
}

// rulesLeaveSome reports bounds and rules that exclude all occurrences.
func (v *validator) rulesLeaveSome(j *Job) {
	before := len(v.problems)
	all, left := v.compileSchedule(j)
	if len(v.problems) > before || v.unknownDays {
		return
	}
	from := time.Unix(0, 0)
	if from.Before(j.Schedule.Start) {
		from = j.Schedule.Start
	}
	first := all.Next(from.Add(-1))
	if first.IsZero() {
		return // it has no occurrences anyway
	}
	// An occurrence may have moved to an earlier day. A filter searches 40
	// years at a time, and expressions end with the year 2199.
	for t := first.AddDate(0, -2, 0); t.Year() < 2200; t = t.AddDate(39, 0, 0) {
		if !left.Next(t).IsZero() {
			return
		}
	}
	v.report(root.field("schedule"), phrase.NothingLeft)
}

// RateMin is the shortest interval of jobs that start a process or call a server. With shorter
// intervals a machine would only start runs.
const RateMin = Duration(time.Second)

func (v *validator) checkRate(j *Job, rate Duration, at *path) {
	v.refuse(rate < RateMin && !j.Run.traits().isCheap, at,
		phrase.TooShort.Of(rate), phrase.RateForm.Of(RateMin, worksWhere(func(t traits) bool { return t.isCheap })))
}

// upstream checks a job that this one follows.
func (v *validator) upstream(j *Job, up Upstream, at *path) {
	if up.Job == "" {
		v.report(at.field("job"), phrase.Missing, phrase.NameOfOther)
		return
	}
	namespace, name, qualified := strings.Cut(up.Job, "/")
	if !qualified {
		namespace, name = namespaceOf(j.Namespace), up.Job
	}
	v.checkName(at.field("job"), name)
	v.checkName(at.field("job"), namespace)
	v.refuse(namespace == namespaceOf(j.Namespace) && name == j.Name, at.field("job"), phrase.JobItself, phrase.UseAfterEnd)
}

func (v *validator) place(j *Job) {
	p, at := &j.Place, root.field("place")
	v.labels(p.Labels, at.field("labels"))
	v.refuse(p.Strategy == StrategyBroadcast && p.Shards > 0, at.field("shards"), phrase.NotWithBroadcast, phrase.LeaveOneOut)
	v.refuse(p.Strategy == StrategyFirstIdle && !j.Run.traits().isElsewhere, at.field("strategy"), phrase.FirstIdleOnly.Of(worksWhere(func(t traits) bool { return t.isElsewhere })), phrase.UseAny)
}

const (
	// lossMargin is how long before other nodes may declare its runs lost a node without renewals
	// has ended them, killGrace included: time for the kill and small differences of clocks.
	lossMargin = Duration(3 * time.Second)
	// A session is renewed every 2 s and ends after 6 s. A shorter silence is a network
	// glitch and must not end runs.
	silenceMax = Duration(6 * time.Second)
	// LostAfterMin is the shortest lost_after of a job, if its runs are killed without
	// grace.
	LostAfterMin = lossMargin + silenceMax
)

func (v *validator) policy(j *Job, filled *Policy) {
	p, at := &j.Policy, root.field("policy")

	v.refuse(p.QueueLimit != 0 && filled.Overlap != OverlapQueue, at.field("queue_limit"), phrase.OnlyWith.Of("overlap: queue"))
	v.refuse(p.MaxParallel != 0 && filled.Overlap == OverlapAllow, at.field("max_parallel"), phrase.NoLimitOfAllow, phrase.OtherOverlap)
	v.refuse(p.MissedLimit != 0 && filled.Missed != MissedAll, at.field("missed_limit"), phrase.OnlyWith.Of("missed: all"))
	if p.ConcurrencyKey != "" {
		v.key(j, p.ConcurrencyKey, at.field("concurrency_key"))
		v.refuse(p.MaxParallel != 0, at.field("max_parallel"), phrase.NotWithKey, phrase.LeaveOneOut)
		v.refuse(filled.Overlap == OverlapAllow, at.field("overlap"), phrase.AllowOfPool, phrase.OverlapsOfPool)
	}
	if p.RateKey != "" {
		v.key(j, p.RateKey, at.field("rate_key"))
	}
	if least := *filled.KillGrace + lossMargin + silenceMax; filled.LostAfter < least {
		v.refuse(true, at.field("lost_after"),
			phrase.LostTooShort.Of(filled.LostAfter, silenceMax, *filled.KillGrace, lossMargin),
			phrase.AtLeastOrGrace.Of(least))
	}

	if !j.Run.traits().isFlow {
		v.success(j, p.Success, at.field("success"))
	}
	v.retry(j, filled, at.field("retry"))
	if work := j.Run.traits(); p.Expect != nil && j.Run.Work() != "" && !work.hasUsage {
		with := phrase.OnlyWithOr.Of(worksWhere(func(t traits) bool { return t.hasUsage }))
		v.refuse(p.Expect.MemoryBelow > 0, at.at("expect.memory_below"), with, phrase.NoUsage)
		v.refuse(p.Expect.CPUBelow > 0, at.at("expect.cpu_below"), with, phrase.NoUsage)
	}
}

// key checks the name of a pool, or a template of one.
func (v *validator) key(j *Job, text string, at *path) {
	if !IsTemplate(text) {
		v.checkName(at, text)
	} else if _, err := j.CompileKey(text); err != nil {
		v.reportError(at, err)
	}
}

func (v *validator) success(j *Job, s *Success, at *path) {
	if s == nil {
		return
	}
	work := j.Run.traits()
	v.refuse(len(s.ExitCodes) > 0 && !work.hasExitCode, at.field("exit_codes"), phrase.OnlyWithOr.Of(exitCodeWorks()), phrase.UseExpect)
	v.refuse(s.Match != "" && !work.hasOutput && j.Run.Work() != "", at.field("match"), phrase.NoOutput.Of(string(j.Run.Work())))
	v.regexp(s.Match, at.field("match"))
}

func (v *validator) retry(j *Job, filled *Policy, at *path) {
	own, r := j.Policy.Retry, filled.Retry
	if own == nil || j.Run.traits().isFlow {
		return
	}
	if *r.Attempts == 0 {
		v.refuse(own.Attempts == nil, at.field("attempts"), phrase.AttemptsMissing, phrase.AttemptsForm)
		return
	}
	if own.Max != 0 && r.Max < *r.Backoff {
		v.refuse(true, at.field("max"), phrase.BelowBackoff.Of(r.Max, *r.Backoff))
	}
	if r.Within != 0 && r.Within < *r.Backoff {
		v.refuse(true, at.field("within"), phrase.NeverRetried.Of(r.Within, *r.Backoff))
	}
	v.refuse(len(own.ExitCodes) > 0 && !j.Run.traits().hasExitCode, at.field("exit_codes"), phrase.OnlyWithOr.Of(exitCodeWorks()))
	v.refuse(len(own.ExitCodes) > 0 && !slices.Contains(r.On, RetryFailed), at.field("exit_codes"), phrase.OnlyOnFailed)
	for i, outcome := range own.On {
		v.refuse(slices.Contains(own.On[:i], outcome), at.field("on").item(i), phrase.GivenTwice.Of(string(outcome)))
	}
}

func exitCodeWorks() []string { return worksWhere(func(t traits) bool { return t.hasExitCode }) }
