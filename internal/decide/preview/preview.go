// Package preview describes a schedule before anything runs by it: its meaning in words, its next
// due times, and the effect of clock changes. The command line and the API share it. It is pure:
// the caller passes the start.
package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// Preview is the description of a schedule.
type Preview struct {
	Expression  string // in canonical form
	Timezone    *cron.Zone
	Description string
	Next        []time.Time // in the zone
	Notes       []string    // notes about clock changes
	Warnings    []string    // warnings about probably unintended settings
	// Never explains why Next is empty.
	Never string
}

// Ask is a request for a preview.
type Ask struct {
	Lang cron.Lang
	// From is the instant before the first occurrence or, backwards, after it.
	From      time.Time
	Backwards bool // occurrences before From, latest first
	Count     int
}

// parsedExpression is a schedule of one expression.
type parsedExpression interface {
	cron.Schedule
	Prev(time.Time) time.Time
	String() string
	Describe(cron.Lang) string
}

// Expression previews an expression, which may be an interval such as @every 90s. Its occurrences
// are shown in the zone given, or in the zone of the expression. The error comes from
// [cron.ParseSchedule].
func Expression(text string, zone *cron.Zone, options []cron.Option, ask Ask) (Preview, error) {
	parsed, err := cron.ParseSchedule(text, options...)
	if err != nil {
		return Preview{}, err
	}
	schedule := parsed.(parsedExpression)
	expression, isExpression := parsed.(*cron.Expression)
	if isExpression {
		zone = expression.Zone()
	}
	p := Preview{Expression: schedule.String(), Timezone: zone, Description: schedule.Describe(ask.Lang), Warnings: inLang(ask.Lang, cron.WarningTexts(text, options...))}
	step := schedule.Next
	if ask.Backwards {
		step = schedule.Prev
	}
	p.occurrences(step, ask)
	if isExpression && len(p.Next) > 0 {
		p.Notes = expression.Notes(ask.Lang, notesFrom(p.Next, ask.From), notesTo(p.Next, ask))
	}
	if len(p.Next) == 0 {
		p.never(expression, ask)
	}
	return p, nil
}

// occurrences takes as many steps as the request asks for.
func (p *Preview) occurrences(step func(time.Time) time.Time, ask Ask) {
	for t := step(ask.From); !t.IsZero() && len(p.Next) < ask.Count; t = step(t) {
		p.Next = append(p.Next, t.In(p.Timezone.Location()))
	}
}

// never explains why there are no occurrences.
func (p *Preview) never(expression *cron.Expression, ask Ask) {
	at, lang := ask.From.In(p.Timezone.Location()).Format(time.RFC3339), ask.Lang.String()
	if ask.Backwards {
		p.Never = phrase.NeverBefore.Of(at).In(lang)
		return
	}
	var why phrase.Text
	if expression != nil {
		why = expression.Never(ask.From)
	}
	p.Never = phrase.NeverAfter.Of(at, why).In(lang)
}

// inLang formats texts in a language.
func inLang(lang cron.Lang, texts []phrase.Text) (list []string) {
	for _, t := range texts {
		list = append(list, t.In(lang.String()))
	}
	return list
}

// notesFrom returns the start of the time of the notes, which covers all shown occurrences.
func notesFrom(times []time.Time, from time.Time) time.Time {
	if last := times[len(times)-1]; last.Before(from) {
		return last.Add(-1)
	}
	return from
}

// notesTo returns the end of the time of the notes. It includes the coming year, so that a schedule
// saved in November holds no surprise in March.
func notesTo(times []time.Time, ask Ask) time.Time {
	if ask.Backwards {
		return ask.From
	}
	year, last := ask.From.AddDate(1, 0, 0), times[len(times)-1]
	if last.After(year) {
		return last
	}
	return year
}

// MissesJob reports whether an expression was refused only because no job is named:
// with any job the error is another one, or none.
func MissesJob(err error, text string, options []cron.Option) bool {
	_, with := cron.ParseSchedule(text, append(slices.Clip(options), cron.WithJob("any", "job"))...)
	return with == nil || with.Error() != err.Error()
}

// Job previews the schedule of a job with its defaults filled in, except jitter and spread, which
// depend on the uid of a created job. The error is of type [job.Problems].
func Job(filled *job.Job, calendars job.Calendars, ask Ask) (Preview, error) {
	schedule, err := filled.CompileSchedule(calendars)
	if err != nil {
		return Preview{}, err
	}
	s := &filled.Schedule
	p := Preview{}
	// The schedule has compiled, so that the rest is valid.
	p.Timezone, err = cron.LoadZone(s.Timezone)
	if err != nil {
		return Preview{}, err
	}
	expressions, err := expressionsOf(filled, p.Timezone)
	if err != nil {
		return Preview{}, err
	}
	texts, words := inWords(s, expressions, ask.Lang)
	p.Expression, p.Description = strings.Join(texts, " | "), words
	if s.MaxRuns > 0 {
		ask.Count = min(ask.Count, s.MaxRuns)
	}
	for _, text := range s.Cron {
		p.Warnings = append(p.Warnings, inLang(ask.Lang, cron.WarningTexts(text, cron.In(p.Timezone), cron.WithJob(filled.Namespace, filled.Name), cron.WithDialect(s.Dialect.Grammar())))...)
	}
	p.occurrences(schedule.Next, ask)
	if len(p.Next) == 0 {
		p.neverOf(s, expressions, ask)
		return p, nil
	}
	for _, e := range expressions {
		expression, ok := e.(*cron.Expression)
		if !ok {
			continue
		}
		for _, note := range expression.Notes(ask.Lang, notesFrom(p.Next, ask.From), notesTo(p.Next, ask)) {
			if len(expressions) > 1 {
				note = expression.String() + ": " + note
			}
			p.Notes = append(p.Notes, note)
		}
	}
	return p, nil
}

// expressionsOf parses the expressions and the rate of a schedule.
func expressionsOf(filled *job.Job, zone *cron.Zone) (list []parsedExpression, err error) {
	change, err := cron.ParseClockChange(string(cmp.Or(filled.Schedule.ClockChange, job.ClockVixie)))
	if err != nil {
		return nil, err
	}
	options := []cron.Option{cron.In(zone), cron.WithClockChange(change), cron.WithJob(filled.Namespace, filled.Name), cron.WithDialect(filled.Schedule.Dialect.Grammar())}
	for _, text := range filled.Schedule.Cron {
		parsed, err := cron.ParseSchedule(text, options...)
		if err != nil {
			return nil, err
		}
		list = append(list, parsed.(parsedExpression))
	}
	if every := filled.Schedule.Every; every > 0 {
		list = append(list, cron.Interval{Every: time.Duration(every)})
	}
	return list, nil
}

// neverOf explains why a schedule has no occurrences to show.
func (p *Preview) neverOf(s *job.Schedule, expressions []parsedExpression, ask Ask) {
	switch {
	case len(expressions) == 0 && len(s.At) == 0:
		p.Never = phrase.NoKnownTime.In(ask.Lang.String())
	case len(expressions) == 1 && s.Start.IsZero() && s.End.IsZero() && len(s.Only)+len(s.Except) == 0:
		expression, _ := expressions[0].(*cron.Expression)
		p.never(expression, ask)
	default:
		p.never(nil, ask)
	}
}

// inWords returns the canonical forms of a schedule's expressions, and the schedule in words.
func inWords(s *job.Schedule, expressions []parsedExpression, lang cron.Lang) (texts []string, words string) {
	var parts []string
	for _, e := range expressions {
		texts, parts = append(texts, e.String()), append(parts, e.Describe(lang))
	}
	w := wordsOf[lang]
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if len(s.At) == 1 {
		add(w.at, s.At[0].Format(time.RFC3339))
	} else if len(s.At) > 1 {
		add(w.instants, len(s.At))
	}
	if s.AfterEnd > 0 {
		add(w.afterEnd, s.AfterEnd)
	}
	if len(s.On) > 0 {
		var names []string
		for _, up := range s.On {
			names = append(names, up.Job)
		}
		add(w.on, strings.Join(names, w.comma))
	}
	if s.Boot {
		parts = append(parts, w.boot)
	}
	if len(parts) == 0 {
		parts = append(parts, w.hand)
	}
	words = strings.Join(parts, w.semicolon)
	for _, rule := range []struct {
		format  string
		entries []string
	}{{w.only, s.Only}, {w.except, s.Except}} {
		if len(rule.entries) > 0 {
			words += fmt.Sprintf(rule.format, strings.Join(rule.entries, w.comma))
		}
	}
	return texts, words
}

// vocabulary is the texts of a language for schedules other than expressions.
type vocabulary struct {
	at, instants, afterEnd, on, boot, hand, only, except, comma, semicolon string
}

var wordsOf = map[cron.Lang]vocabulary{
	cron.English: {
		at: "at %s", instants: "at %d instants", afterEnd: "%s after its previous run has ended", on: "after runs of %s",
		boot: "at the start of a node", hand: "by hand", only: ", only in: %s", except: ", except in: %s", comma: ", ", semicolon: "; ",
	},
	cron.Chinese: {
		at: "在 %s", instants: "在 %d 个时刻", afterEnd: "上次运行结束 %s 后", on: "在 %s 运行之后",
		boot: "节点启动时", hand: "手动运行", only: "，仅限：%s", except: "，排除：%s", comma: "、", semicolon: "；",
	},
}
