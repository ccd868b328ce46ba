package job

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
)

// Calendars looks up the calendars that schedules name in only and except. It returns nil
// for an unknown one.
type Calendars func(namespace, name string) *Calendar

// CompileSchedule returns the occurrences of the job by its cron expressions, its fixed
// rate or its instants, between start and end, filtered by only, except and off_day. It
// does not apply jitter, spread and max_runs. Other jobs have no occurrences. The job's
// defaults should be filled in; the default timezone is UTC. Calendars may be nil for a
// job that names none. The error is of type [Problems].
func (j *Job) CompileSchedule(calendars Calendars) (cron.Schedule, error) {
	v := &validator{doc: Document{Kind: KindJob, Job: j}, calendars: calendars, wantCalendars: true}
	_, s := v.compileSchedule(j)
	if err := v.problems.asError(); err != nil {
		return nil, err
	}
	return s, nil
}

// compileSchedule returns the occurrences of a job, without and with its bounds and rules,
// and reports mistakes. After a mistake, the results are invalid.
func (v *validator) compileSchedule(j *Job) (all, left cron.Schedule) {
	s := &j.Schedule
	at := root.field("schedule")
	zone := v.zone(s, at)

	all = cron.At()
	switch {
	case len(s.Cron) > 0:
		all = v.compileCron(j, zone, at.field("cron"))
	case s.Every > 0:
		anchor := time.Unix(0, 0)
		if s.Align == AlignStart {
			anchor = s.Start
		}
		all = inZone{cron.Interval{Every: time.Duration(s.Every), Anchor: anchor.Add(time.Duration(s.Offset))}, zone}
	case len(s.At) > 0:
		all = inZone{cron.At(s.At...), zone}
	}
	left = all
	if len(s.Only)+len(s.Except) > 0 {
		// Other values are reported with the enumerations.
		offDay, _ := cron.ParseOffDay(string(cmp.Or(s.OffDay, OffDaySkip)))
		left = &cron.Filter{
			Schedule: all,
			Zone:     zone,
			Only:     v.rules(j, s.Only, at.field("only")),
			Except:   v.rules(j, s.Except, at.field("except")),
			OffDay:   offDay,
		}
	}
	return all, cron.Bounded(left, s.Start, s.End)
}

// inZone converts the occurrences of a schedule to a zone.
type inZone struct {
	cron.Schedule
	zone *cron.Zone
}

// Next returns the first occurrence strictly after t, or the zero time.
func (s inZone) Next(t time.Time) time.Time {
	next := s.Schedule.Next(t)
	if next.IsZero() {
		return next // in another location it would not equal the zero time
	}
	return next.In(s.zone.Location())
}

// zonePrefix is the prefix by which an expression names its zone.
var zonePrefix = regexp.MustCompile(`^\s*(?:CRON_)?TZ=(\S*)`)

// prefixedZone returns the zone in an expression.
func prefixedZone(expression string) string {
	if m := zonePrefix.FindStringSubmatch(expression); m != nil {
		return m[1]
	}
	return ""
}

// zone returns the zone of a schedule or, if it has none, of its expressions. nil is UTC.
func (v *validator) zone(s *Schedule, at *path) *cron.Zone {
	name := s.Timezone
	at = at.field("timezone")
	if name == "" && len(s.Cron) > 0 {
		name = prefixedZone(s.Cron[0])
		for i, expression := range s.Cron {
			if other := prefixedZone(expression); other != name {
				v.report(at.parent.field("cron").item(i), phrase.ZonesDiffer.Of(zoneInWords(name), zoneInWords(other)),
					phrase.OneZone)
				return nil
			}
		}
		at = at.parent.field("cron").item(0)
	}
	if name == "" {
		return nil
	}
	zone, err := cron.LoadZone(name)
	v.reportError(at, err)
	return zone
}

func zoneInWords(name string) phrase.Text {
	if name == "" {
		return phrase.DefaultZone
	}
	return phrase.Name.Of(name)
}

// compileCron returns the union of the cron expressions.
func (v *validator) compileCron(j *Job, zone *cron.Zone, at *path) cron.Schedule {
	options := []cron.Option{cron.WithJob(namespaceOf(j.Namespace), j.Name), cron.WithDialect(j.Schedule.Dialect.Grammar())}
	if zone != nil {
		options = append(options, cron.In(zone))
	}
	// Other values are reported with the enumerations.
	change, _ := cron.ParseClockChange(string(cmp.Or(j.Schedule.ClockChange, ClockVixie)))
	options = append(options, cron.WithClockChange(change))
	var union []cron.Schedule
	for i, text := range j.Schedule.Cron {
		expression, err := cron.ParseSchedule(text, options...)
		switch {
		case err == nil:
			union = append(union, v.checkCron(j, text, expression, zone, at.item(i)))
		case strings.HasPrefix(strings.TrimSpace(text), "@reboot"):
			v.report(at.item(i), phrase.RebootHere, phrase.WriteBoot.Of("schedule: {boot: true}"))
		default:
			v.reportError(at.item(i), err)
		}
	}
	return cron.Union(union...)
}

// checkCron reports parts of an expression that are valid but not allowed in a job, and
// returns its occurrences in the zone of the job.
func (v *validator) checkCron(j *Job, text string, s cron.Schedule, zone *cron.Zone, at *path) cron.Schedule {
	switch s := s.(type) {
	case cron.Interval:
		v.checkRate(j, Duration(s.Every), at)
		return inZone{s, zone}
	case *cron.Expression:
		after := v.now
		if after.Before(j.Schedule.Start) {
			after = j.Schedule.Start
		}
		if why := s.Never(after); !why.IsZero() {
			v.report(at, phrase.CronNever.Of(quote(text), why))
		}
	}
	return s
}

// rules compiles the entries of only or except.
func (v *validator) rules(j *Job, entries []string, at *path) cron.Rules {
	var rules cron.Rules
	for i, text := range entries {
		days, times, err := parseRule(text)
		switch {
		case err != nil:
			v.reportError(at.item(i), err)
		case times != nil:
			rules.Times = append(rules.Times, *times)
		case days != nil:
			rules.Days = append(rules.Days, days)
		default:
			if days := v.calendar(j, text, at.item(i)); days != nil {
				rules.Days = append(rules.Days, days)
			}
		}
	}
	return rules
}

// calendar returns the calendar that an entry of only or except names.
func (v *validator) calendar(j *Job, text string, at *path) cron.Days {
	namespace, name, qualified := strings.Cut(text, "/")
	if !qualified {
		namespace, name = namespaceOf(j.Namespace), text
	}
	if !isName(name) || !isName(namespace) {
		v.report(at, phrase.NotRule.Of(quote(text)),
			phrase.Example.Of("sat, mon-fri, 2026-10-01, 2026-10-01..2026-10-07, 09:00-17:00 or cn-holidays"))
		return nil
	}
	if !v.wantCalendars {
		v.unknownDays = true
		return nil
	}
	var found *Calendar
	if v.calendars != nil {
		found = v.calendars(namespace, name)
	}
	if found == nil {
		v.report(at, phrase.NoCalendar.Of(namespace, name))
		return nil
	}
	days, err := found.Days.Compile()
	if err != nil {
		v.report(at, phrase.CalendarWrong.Of(namespace, name, phrase.Words(err.Error())))
		return nil
	}
	return days
}

// Compile returns the set of days. ICS files must have been read, by [InlineCalendars]. The error is
// of type [Problems].
func (d *Days) Compile() (*cron.Calendar, error) {
	v := &validator{}
	days := v.compileDays(d)
	if err := v.problems.asError(); err != nil {
		return nil, err
	}
	return days, nil
}

// compileDays returns the days of a calendar and reports mistakes.
func (v *validator) compileDays(d *Days) *cron.Calendar {
	at := root.field("calendar")
	ranges := func(texts []string, at *path) []cron.DateRange {
		var list []cron.DateRange
		for i, text := range texts {
			r, err := parseDates(text)
			v.reportError(at.item(i), err)
			list = append(list, r)
		}
		return list
	}
	var weekdays cron.Weekdays
	for i, text := range d.Weekdays {
		set, ok := parseWeekdays(text)
		if !ok {
			v.report(at.field("weekdays").item(i), phrase.NotWeekday.Of(quote(text)), phrase.WeekdaysForm)
		}
		weekdays |= set
	}
	return cron.NewCalendar(weekdays, ranges(d.Include, at.field("include")), ranges(d.Exclude, at.field("exclude")))
}

// parseRule reads an entry of only or except. All three results are nil for
// the name of a calendar.
func parseRule(text string) (cron.Days, *cron.TimeRange, error) {
	if weekdays, ok := parseWeekdays(text); ok {
		return weekdays, nil, nil
	}
	if looksLikeDate.MatchString(text) {
		r, err := parseDates(text)
		return cron.NewCalendar(0, []cron.DateRange{r}, nil), nil, err
	}
	if looksLikeTime.MatchString(text) {
		r, err := parseTimes(text)
		return nil, &r, err
	}
	if from, to, isRange := strings.Cut(text, "-"); isRange && weekday(from) >= 0 {
		return nil, nil, phrase.Mistake(phrase.NotWeekday.Of(quote(to)), nearest(to, weekdayNames).Or(nearest(to, shortWeekdays())).Or(phrase.MonToSun))
	}
	return nil, nil, nil
}

// looksLikeDate matches attempts at a date, valid or not.
var looksLikeDate = regexp.MustCompile(`^\d{4}-\d{1,2}-\d{1,2}|\.\.`)

// looksLikeTime matches attempts at times of day.
var looksLikeTime = regexp.MustCompile(`:|^\d{1,2}(-\d{1,2})?$`)

// parseDates reads a date or a range of dates.
func parseDates(text string) (cron.DateRange, error) {
	from, to, isRange := strings.Cut(text, "..")
	if !isRange {
		to = from
	}
	first, err := cron.ParseDate(from)
	if err != nil {
		return cron.DateRange{}, err
	}
	last, err := cron.ParseDate(to)
	if err != nil {
		return cron.DateRange{}, err
	}
	if last.String() < first.String() {
		return cron.DateRange{}, phrase.Mistake(phrase.EndsEarly.Of(quote(text)))
	}
	return cron.DateRange{From: first, To: last}, nil
}

// parseTimes reads a range of times of day. It may go past midnight.
func parseTimes(text string) (cron.TimeRange, error) {
	wrong := phrase.Mistake(phrase.NotTimes.Of(quote(text)), phrase.TimesForm)
	from, to, ok := strings.Cut(text, "-")
	if !ok {
		return cron.TimeRange{}, wrong
	}
	first, ok1 := parseTimeOfDay(from)
	last, ok2 := parseTimeOfDay(to)
	if !ok1 || !ok2 || first == 24*time.Hour {
		return cron.TimeRange{}, wrong
	}
	if first == last {
		return cron.TimeRange{}, phrase.Mistake(phrase.IsEmptyValue.Of(quote(text)), phrase.TimesEnd)
	}
	return cron.TimeRange{From: first, To: last}, nil
}

var timeOfDay = regexp.MustCompile(`^([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?$`)

// parseTimeOfDay reads 9:00, 09:00, 09:00:30 or 24:00.
func parseTimeOfDay(text string) (time.Duration, bool) {
	if text == "24:00" {
		return 24 * time.Hour, true
	}
	m := timeOfDay.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	if m[3] == "" {
		m[3] = "0"
	}
	d, err := time.ParseDuration(m[1] + "h" + m[2] + "m" + m[3] + "s")
	return d, err == nil
}

var weekdayNames = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// parseWeekdays reads a weekday or a range of them, which may go past Sunday:
// sat, Saturday, mon-fri, fri-mon.
func parseWeekdays(text string) (cron.Weekdays, bool) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, last := weekday(from), weekday(to)
	if first < 0 || last < 0 {
		return 0, false
	}
	set := cron.WeekdaysOf(time.Weekday(last))
	for day := first; day != last; day = (day + 1) % 7 {
		set |= cron.WeekdaysOf(time.Weekday(day))
	}
	return set, true
}

func shortWeekdays() []string {
	names := make([]string, len(weekdayNames))
	for i, name := range weekdayNames {
		names[i] = name[:3]
	}
	return names
}

// weekday returns the number of a weekday, Sunday being 0, or -1.
func weekday(name string) int {
	name = strings.ToLower(name)
	return slices.IndexFunc(weekdayNames, func(full string) bool { return name == full || name == full[:3] })
}
