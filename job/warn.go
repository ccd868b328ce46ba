package job

import (
	"slices"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
)

// Warnings reports allowed but probably unintended settings, for the author of the
// document. Options are the same as for Validate. The document should be valid.
func (d Document) Warnings(options ...Option) Problems {
	if d.Job == nil {
		return nil
	}
	v := newValidator(d, options)
	j := d.Job
	named := v.defaults.Namespaces[namespaceOf(j.Namespace)]
	if mayWarn(&j.Policy) || mayWarn(&v.defaults.Policy) || mayWarn(&named.Policy) {
		v.warnOfPolicy(j)
	}
	if s := j.Schedule; s.Every > 0 && s.Jitter >= s.Every {
		v.report(root.at("schedule.jitter"), phrase.JitterCut.Of(s.Every))
	}
	zone, _ := cron.LoadZone(j.Schedule.Timezone)
	for i, text := range j.Schedule.Cron {
		for _, warning := range cron.WarningTexts(text, cron.In(zone), cron.WithJob(namespaceOf(j.Namespace), j.Name), cron.WithDialect(j.Schedule.Dialect.Grammar())) {
			v.report(root.field("schedule").field("cron").item(i), warning)
		}
	}
	v.warnOfPast(&j.Schedule)
	return v.problems.sorted()
}

// warnOfPast reports a schedule without future occurrences.
func (v *validator) warnOfPast(s *Schedule) {
	past := func(t time.Time) bool { return !t.After(v.now) }
	if len(s.At) > 0 && !slices.ContainsFunc(s.At, func(t time.Time) bool { return !past(t) }) {
		v.report(root.at("schedule.at"), phrase.IsPast)
	}
	if !s.End.IsZero() && past(s.End) {
		v.report(root.at("schedule.end"), phrase.IsPast)
	}
}

// mayWarn reports whether a policy may have warnings. Few may, and filling in defaults takes as
// long as checking a job.
func mayWarn(p *Policy) bool {
	return p.Missed == MissedAll || p.Expect != nil || p.Overlap == OverlapReplace
}

func (v *validator) warnOfPolicy(j *Job) {
	p := j.Policy
	p.fill(v.defaults.in(j.Namespace), j)
	at := root.field("policy")
	if p.Missed == MissedAll && j.Policy.LateBy == nil {
		v.report(at.field("missed"), phrase.AllLimited.Of(*p.LateBy), phrase.SetLateBy)
	}
	if p.Overlap == OverlapReplace && *p.LateBy != Forever && *p.LateBy < *p.KillGrace {
		v.report(at.field("late_by"), phrase.LateBelowGrace.Of(*p.LateBy, *p.KillGrace), phrase.LongerLateBy)
	}
	if p.Expect != nil && p.Timeout != nil && *p.Timeout > 0 && p.Expect.DurationBelow > *p.Timeout {
		v.report(at.at("expect.duration_below"), phrase.NoEffect.Of(*p.Timeout))
	}
}
