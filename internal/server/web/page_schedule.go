package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/job"
)

// scheduleView says exactly when a job falls due.
type scheduleView struct {
	*jobHead
	Expression string
	Words      string
	Limits     []fact // of the schedule, beside when it falls due
	Zones      [3]string
	OwnZone    bool // the zone of the reader differs from the job's
	UTC        bool // neither of them is UTC
	Upcoming   []scheduleRow
	Notes      []string
	Reason     string
	Month      []calendarDay
	MonthName  string
	Changes    []string // of the clock of the job in this month, and what they do to the schedule
	// MonthBefore and MonthAfter are the addresses of the months beside it, "" for none.
	MonthBefore, MonthAfter string
	IsLater                 bool // an occurrence is due later than it is scheduled
	InWindow                bool // an occurrence falls due in a maintenance window
	Weekdays                []string
	Beside                  []dueRow // other jobs that start in the minute of the next run
	BesideMore              string   // where all of them are, "" if these are all
	Starts                  int      // in the minute of the next run
	Quieter                 []quietMinute
}

type scheduleRow struct {
	In         When
	Due        string // later by jitter and spread
	Own, UTC   string
	JobsOwn    string
	Other, Day bool
	Window     string // that keeps it from starting then
}

type calendarDay struct {
	Day    int
	Class  string
	Text   string
	Change string // of the clock of the job
}

// scheduleRows is how many occurrences the page lists, and monthRows how many are looked at for
// its calendar, one each five minutes: of more a month has too many, and its days say so.
// monthsAhead is how far the calendar can be turned.
const (
	scheduleRows = 20
	monthRows    = 31 * 24 * 12
	monthsAhead  = 24
	monthForm    = "2006-01"
	// besideRows is how many jobs that start in the same minute it lists.
	besideRows = 8
)

func (s *site) schedulePage(p *page) error {
	h, err := s.jobHeadOf(p, "schedule")
	if err != nil {
		return err
	}
	v := scheduleView{jobHead: h, Zones: [3]string{h.Zone, p.zone.String(), "UTC"}}
	for i, text := range h.job.Schedule.Cron {
		if i > 0 {
			v.Expression += "  |  "
		}
		v.Expression += text
	}
	if every := h.job.Schedule.Every; every > 0 {
		v.Expression = strings.TrimPrefix(v.Expression+"  |  every: "+every.String(), "  |  ")
	}
	list, err := s.Service.Jobs.Next(p.ctx(), p.who, p.namedJob(), time.Time{}, monthRows)
	if err != nil {
		return err
	}
	v.Reason = p.reason(list.Value())
	zone := p.zone
	if at := list.Timezone; at != "" {
		v.Zones[0] = at
	}
	v.OwnZone = v.Zones[0] != v.Zones[1]
	v.UTC = v.Zones[0] != v.Zones[2] && v.Zones[1] != v.Zones[2]
	listed := list.Items[:min(len(list.Items), scheduleRows)]
	clock := "15:04"
	if slices.ContainsFunc(listed, func(o client.Occurrence) bool { return !o.Scheduled.Truncate(time.Minute).Equal(o.Scheduled) }) {
		clock = "15:04:05"
	}
	for i := range listed {
		o := &listed[i]
		row := scheduleRow{In: p.relative(o.Scheduled), Own: p.exactly(o.Scheduled.In(zone), clock), UTC: o.Scheduled.UTC().Format(clock), JobsOwn: p.exactly(o.Scheduled, clock)}
		if late := o.Due.Sub(o.Scheduled); late > 0 {
			row.Due, v.IsLater = "+"+p.took(late), true
		}
		if o.Window != nil {
			row.Window, v.InWindow = p.windowDoes(o.Window), true
		}
		v.Upcoming = append(v.Upcoming, row)
	}
	v.Words, v.Limits = h.Schedule, p.limits(&h.job.Schedule)
	if h.IsTimed {
		document, err := json.Marshal(h.job.Schedule)
		if err != nil {
			return fmt.Errorf("the schedule of %s: %w", h.Full, err)
		}
		explanation, err := s.Service.Schedules.Preview(p.ctx(), p.who, client.PreviewQuery{Schedule: string(document), Job: h.Full, Lang: string(p.lang), From: p.now, Count: scheduleRows})
		if err == nil {
			v.Notes = explanation.Notes
			if len(h.job.Schedule.Only)+len(h.job.Schedule.Except) > 0 {
				v.Words = explanation.Description
			}
		}
	}
	if err := s.beside(p, &v, list.Items); err != nil {
		return err
	}
	if err := s.calendar(p, &v, list.Items); err != nil {
		return err
	}
	return p.show("schedule", v)
}

// limits are the bounds and delays of a schedule.
func (p *page) limits(of *job.Schedule) (list []fact) {
	add := func(field, value string) {
		list = append(list, fact{Name: p.T("edit.schedule." + field), Value: value})
	}
	if len(of.Only)+len(of.Except) > 0 && of.OffDay != "" {
		add("off_day", p.T("schedule.off_day."+string(of.OffDay)))
	}
	if of.Spread > 0 {
		add("spread", p.coarse(time.Duration(of.Spread)))
	}
	if of.Jitter > 0 {
		add("jitter", p.took(time.Duration(of.Jitter)))
	}
	if !of.Start.IsZero() {
		add("start", p.dated(of.Start)+" "+of.Start.In(p.zone).Format("15:04"))
	}
	if !of.End.IsZero() {
		add("end", p.dated(of.End)+" "+of.End.In(p.zone).Format("15:04"))
	}
	if of.MaxRuns > 0 {
		add("max_runs", number(int64(of.MaxRuns)))
	}
	return list
}

// beside lists the other jobs that start in the minute of the next run, and quieter minutes near it.
func (s *site) beside(p *page, v *scheduleView, items []client.Occurrence) error {
	if len(items) == 0 {
		return nil
	}
	minute := items[0].Due.Truncate(time.Minute)
	from := later(minute, p.now)
	if !from.Before(minute.Add(time.Minute)) {
		return nil
	}
	var next []time.Time
	for i := range items[:min(len(items), nearMinutes+1)] {
		next = append(next, items[i].Due)
	}
	var err error
	if v.Starts, v.Quieter, err = s.crowdOf(p, next); err != nil {
		return err
	}
	list, err := s.Service.Load.Due(p.ctx(), p.who, "", from, minute.Add(time.Minute), besideRows+2)
	if err != nil {
		return err
	}
	for _, d := range list {
		if d.Job == v.Full {
			continue
		}
		if len(v.Beside) == besideRows {
			v.BesideMore = "/timeline?minute=" + template.URLQueryEscaper(minute.UTC().Format(time.RFC3339)) + "#minute"
			break
		}
		namespace, name := splitName(d.Job)
		v.Beside = append(v.Beside, dueRow{At: p.second(d.Due), In: p.relative(d.Due), Namespace: namespace, Name: name, Address: "/jobs/" + d.Job})
	}
	return nil
}

// calendar fills in the days of a month, this one or a later one, with when or how often the job falls
// due. items are those from now on.
func (s *site) calendar(p *page, v *scheduleView, items []client.Occurrence) error {
	for _, day := range []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"} {
		v.Weekdays = append(v.Weekdays, p.T("weekday."+day))
	}
	this := time.Date(p.now.Year(), p.now.Month(), 1, 0, 0, 0, 0, p.zone)
	first := this
	if t, err := time.ParseInLocation(monthForm, p.query("month"), p.zone); err == nil && t.After(this) && !t.After(this.AddDate(0, monthsAhead, 0)) {
		first = t
		if len(items) == monthRows && v.job.Schedule.MaxRuns == 0 { // the number of runs is counted from now on
			list, err := s.Service.Jobs.Next(p.ctx(), p.who, p.namedJob(), t.Add(-time.Nanosecond), monthRows)
			if err != nil {
				return err
			}
			items = list.Items
		}
	}
	month := first.Month().String()
	if p.lang == i18n.Chinese {
		month = fmt.Sprint(int(first.Month()), "月")
	}
	v.MonthName = p.T("month", "year", first.Year(), "name", month)
	switch {
	case first.After(this.AddDate(0, 1, 0)):
		v.MonthBefore = p.with("month", first.AddDate(0, -1, 0).Format(monthForm))
	case first.After(this):
		v.MonthBefore = p.with("month", "")
	}
	if next := first.AddDate(0, 1, 0); !next.After(this.AddDate(0, monthsAhead, 0)) {
		v.MonthAfter = p.with("month", next.Format(monthForm))
	}
	days := map[int][]time.Time{}
	known := first.AddDate(0, 1, 0) // up to where all occurrences are known
	if len(items) == monthRows {
		known = items[monthRows-1].Scheduled
	}
	for _, o := range items {
		if t := o.Scheduled.In(p.zone); t.Month() == first.Month() && t.Year() == first.Year() {
			days[t.Day()] = append(days[t.Day()], t)
		}
	}
	for range (int(first.Weekday()) + 6) % 7 {
		v.Month = append(v.Month, calendarDay{Class: "out"})
	}
	changes := v.clockChanges(p, first)
	for day := first; day.Month() == first.Month(); day = day.AddDate(0, 0, 1) {
		c := calendarDay{Day: day.Day(), Class: "off"}
		switch times := days[day.Day()]; {
		case known.Before(day.AddDate(0, 0, 1)):
			c.Class, c.Text = "on", "…"
		case len(times) == 1:
			c.Class, c.Text = "on", times[0].Format("15:04")
		case len(times) > 1:
			c.Class, c.Text = "on", fmt.Sprintf("%d×", len(times))
		}
		if first.Equal(this) && day.Day() == p.now.Day() {
			c.Class += " today"
		}
		if c.Change = changes[day.Day()]; c.Change != "" {
			c.Class += " dst"
		}
		v.Month = append(v.Month, c)
	}
	return nil
}

// clockChanges returns the changes of the clock of the job in a month, by the days of the reader, and
// adds to the page what they do.
func (v *scheduleView) clockChanges(p *page, first time.Time) map[int]string {
	zone, err := cron.LoadZone(v.Zones[0])
	if err != nil {
		return nil // the page shows none either
	}
	list := map[int]string{}
	lang, _ := cron.ParseLang(string(p.lang))
	end := first.AddDate(0, 1, 0)
	for t := first.In(zone.Location()).Add(-1); ; {
		_, next := t.ZoneBounds()
		if next.IsZero() || !next.Before(end) {
			return list
		}
		t = next
		before := next.Add(-1)
		_, was := before.Zone()
		_, is := next.Zone()
		if was == is || next.Before(first) {
			continue // only its name changes
		}
		at := p.exactly(next.In(time.FixedZone("", was)), "15:04")
		text := p.T("schedule.clock", "zone", v.Zones[0], "at", at, "to", next.Format("15:04"))
		list[next.In(p.zone).Day()] = text
		notes := v.notesAbout(lang, zone, next, (time.Duration(is-was) * time.Second).Abs())
		if len(notes) == 0 {
			notes = []string{p.T("schedule.clock_same")}
		}
		v.Changes = append(v.Changes, text+" "+p.T("schedule.clock_effect", "what", strings.Join(notes, p.T("semicolon"))))
	}
}

// notesAbout says what a change of the clock does to the expressions of the job.
func (v *scheduleView) notesAbout(lang cron.Lang, zone *cron.Zone, at time.Time, length time.Duration) (notes []string) {
	of := &v.job.Schedule
	change, err := cron.ParseClockChange(string(cmp.Or(of.ClockChange, job.ClockVixie)))
	if err != nil {
		return nil // a document with it is refused
	}
	for _, text := range of.Cron {
		s, err := cron.ParseSchedule(text, cron.WithJob(v.Namespace, v.Name), cron.WithDialect(of.Dialect.Grammar()), cron.In(zone), cron.WithClockChange(change))
		if e, ok := s.(*cron.Expression); ok && err == nil {
			notes = append(notes, e.Notes(lang, at.Add(-length), at.Add(length))...)
		}
	}
	return notes
}
