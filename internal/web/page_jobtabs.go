package web

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/draw"
	"github.com/belfry-cron/belfry/internal/i18n"
	"github.com/belfry-cron/belfry/internal/service"
	"github.com/belfry-cron/belfry/job"
)

// definitionView is a version of a job and its difference from another.
type definitionView struct {
	*jobHead
	Versions []versionRow
	Older    string
	Shown    int64
	Since    int64
	By       string
	At       When
	Modes    []tab
	Lines    []diffLine
	Text     []string
	YAML     string // the version as a document, to copy
	RollBack int64  // the version that a button restores; 0 for none
	Followed string // the jobs that a deletion leaves without the runs that start them
}

type versionRow struct {
	Version int64
	Address string
	Actor   string
	At      When
	Current bool
	Latest  bool
	Changed string // the fields that differ from the version before, or what was done
}

// versionRows is how many versions a page lists.
const versionRows = 20

func (s *site) definition(p *page) error {
	h, err := s.jobHeadOf(p, "definition")
	if err != nil {
		return err
	}
	v := definitionView{jobHead: h, Shown: h.Version}
	name := p.namedJob()
	list, err := s.Service.Jobs.Revisions(p.ctx(), p.who, name, versionRows, p.query("page"))
	if err != nil {
		return err
	}
	if list.NextPageToken != "" {
		v.Older = p.with("page", list.NextPageToken)
	}
	if n, err := strconv.ParseInt(p.query("version"), 10, 64); err == nil && n > 0 {
		v.Shown = n
	}
	v.Since = v.Shown - 1
	if n, err := strconv.ParseInt(p.query("since"), 10, 64); err == nil && n > 0 {
		v.Since = n
	}
	switch {
	case v.Shown != h.Version:
		v.RollBack = v.Shown
	case v.Since > 0:
		v.RollBack = v.Since
	}
	changed, err := s.changedFields(p)
	if err != nil {
		return err
	}
	for i := range list.Items {
		r := &list.Items[i]
		v.Versions = append(v.Versions, versionRow{
			Version: r.Version, Address: fmt.Sprintf("%s/definition?version=%d", h.Address, r.Version), Actor: clean(r.Actor), At: p.minute(r.Changed),
			Current: r.Version == v.Shown, Latest: r.Version == h.Version, Changed: changed[r.Version],
		})
	}
	mode := p.query("as")
	if mode == "" && v.Since < 1 {
		mode = "whole"
	}
	for _, m := range []string{"diff", "whole", "filled"} {
		if m == "diff" && v.Since < 1 {
			continue
		}
		v.Modes = append(v.Modes, tab{Name: p.T("definition." + m), Address: p.with("as", m), Current: m == mode || m == "diff" && mode == ""})
	}
	if err := s.versionText(p, &v, mode); err != nil {
		return err
	}
	if v.CanDefine {
		if v.Followed, err = s.followerNames(p, name); err != nil {
			return err
		}
	}
	return p.show("definition", v)
}

// changedFields says of the last versions which fields differ from the version before. The audit knows it.
func (s *site) changedFields(p *page) (map[int64]string, error) {
	name := p.namedJob()
	list, err := s.Service.Audit.List(p.ctx(), p.who, client.AuditQuery{Namespace: name.Namespace, Object: name.String(), Action: "job", PageSize: auditPage})
	if err != nil {
		return nil, err
	}
	changed := make(map[int64]string, len(list.Items))
	for i := range list.Items {
		c := &list.Items[i]
		said := p.action(c.Action)
		if len(c.Changes) > 0 && c.Action != "job.create" {
			paths := make([]string, len(c.Changes))
			for n, f := range c.Changes {
				paths[n] = clean(f.Path)
			}
			said = strings.Join(paths, ", ")
		}
		changed[c.Version] = said
	}
	return changed, nil
}

// versionText reads what the page shows of a version.
func (s *site) versionText(p *page, v *definitionView, mode string) error {
	revision, err := s.Service.Jobs.Revision(p.ctx(), p.who, p.namedJob(), v.Shown, max(v.Since, 0))
	if err != nil {
		return err
	}
	v.By, v.At = clean(revision.Actor), p.minute(revision.Changed)
	document := revision.Job
	if v.YAML, err = yamlOf(document); err != nil {
		return err
	}
	switch mode {
	case "filled":
		if document, _, err = s.Service.Jobs.Get(p.ctx(), p.who, p.namedJob(), true); err != nil {
			return err
		}
	case "whole":
	default:
		v.Lines = diffLines(revision.Diff)
		return nil
	}
	text, err := yamlOf(document)
	if err != nil {
		return err
	}
	for _, line := range diffLines(text) {
		v.Text = append(v.Text, line.Text)
	}
	return nil
}

// scheduleView says exactly when a job falls due.
type scheduleView struct {
	*jobHead
	Expression string
	Words      string
	Limits     []fact // of the schedule, beside when it falls due
	Zones      [3]string
	OwnZone    bool // the zone of the reader is another than that of the job
	UTC        bool // neither of them is UTC
	Upcoming   []scheduleRow
	Notes      []string
	Reason     string
	Month      []calendarDay
	MonthName  string
	// MonthBefore and MonthAfter are the addresses of the months beside it, "" for none.
	MonthBefore, MonthAfter string
	IsLater                 bool // an occurrence is due later than it is scheduled
	Weekdays                []string
	From, To                string
	IsPooled                bool // a backfill waits for the pool
	Backfill                *client.Backfill
	Rows                    []backfillRow
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
}

type calendarDay struct {
	Day   int
	Class string
	Text  string
}

type backfillRow struct {
	At     When
	Run    string
	IsMade bool
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

func (s *site) schedulePage(p *page) error { return s.showSchedule(p, http.StatusOK, nil) }

func (s *site) showSchedule(p *page, status int, backfill *client.Backfill) error {
	h, err := s.jobHeadOf(p, "schedule")
	if err != nil {
		return err
	}
	v := scheduleView{jobHead: h, Zones: [3]string{h.Zone, p.zone.String(), "UTC"}, Backfill: backfill}
	for i, text := range h.job.Schedule.Cron {
		if i > 0 {
			v.Expression += "  |  "
		}
		v.Expression += text
	}
	if every := h.job.Schedule.Every; every > 0 {
		v.Expression = strings.TrimPrefix(v.Expression+"  |  every: "+every.String(), "  |  ")
	}
	v.IsPooled = h.job.Policy.ConcurrencyKey != ""
	list, err := s.Service.Jobs.Next(p.ctx(), p.who, p.namedJob(), time.Time{}, monthRows)
	if err != nil {
		return err
	}
	v.Reason = p.reason(list.Reason)
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
		v.Upcoming = append(v.Upcoming, row)
	}
	v.Words, v.Limits = h.Schedule, p.limits(&h.job.Schedule)
	if h.IsTimed {
		document, err := json.Marshal(h.job.Schedule)
		if err != nil {
			return fmt.Errorf("the schedule of %s: %w", h.Full, err)
		}
		said, err := s.Service.Schedules.Preview(p.ctx(), p.who, client.PreviewQuery{Schedule: string(document), Job: h.Full, Lang: string(p.lang), From: p.now, Count: scheduleRows})
		if err == nil {
			v.Notes = said.Notes
			if len(h.job.Schedule.Only)+len(h.job.Schedule.Except) > 0 {
				v.Words = said.Description
			}
		}
	}
	if err := s.beside(p, &v, list.Items); err != nil {
		return err
	}
	if err := s.calendar(p, &v, list.Items); err != nil {
		return err
	}
	v.From, v.To = p.now.AddDate(0, 0, -1).Format("2006-01-02T15:04"), p.now.Format("2006-01-02T15:04")
	if backfill != nil {
		v.From, v.To = p.r.PostForm.Get("from"), p.r.PostForm.Get("to")
		for _, item := range backfill.Items {
			row := backfillRow{At: p.at(item.Scheduled), IsMade: item.Made}
			if !item.Run.IsZero() {
				row.Run = "/runs/" + item.Run.String()
			}
			v.Rows = append(v.Rows, row)
		}
	}
	s.write(p, status, "schedule", v)
	return nil
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
		v.Beside = append(v.Beside, dueRow{At: p.at(d.Due), In: p.relative(d.Due), Namespace: namespace, Name: name, Address: "/jobs/" + d.Job})
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
		v.Month = append(v.Month, c)
	}
	return nil
}

// backfill shows the times that a backfill would run, or makes the runs.
func (s *site) backfill(p *page) error {
	form := p.r.PostForm
	said := client.BackfillRequest{Overlap: job.Overlap(form.Get("overlap")), DryRun: form.Get("action") != "run"}
	for name, into := range map[string]*time.Time{"from": &said.From, "to": &said.To} {
		t, err := time.ParseInLocation("2006-01-02T15:04", form.Get(name), p.zone)
		if err != nil {
			return service.WrongParameter(name, "is not a date and a time", "such as 2026-12-24T18:00")
		}
		*into = t
	}
	made, err := s.Service.Runs.Backfill(p.ctx(), p.who, p.namedJob(), said, p.once())
	if err != nil {
		return err
	}
	return s.showSchedule(p, http.StatusOK, &made)
}

// statisticsView says whether a job gets slower, or fails more often.
type statisticsView struct {
	*jobHead
	Facts           []fact
	Outcomes, Heat  template.HTML
	Durations, Late template.HTML
	Nodes, Kinds    []partRow
	HasRuns         bool
	Since, Title    string
}

// partRow is how a part of the runs went.
type partRow struct {
	Name, Link, Runs, Rate string
	Duration, Late         string
	Share                  template.HTML
}

const (
	// statisticsDays is how far back the page looks.
	statisticsDays = 90
	// dayTicks is how many days are between dates.
	dayTicks = 14
)

func (s *site) statistics(p *page) error {
	h, err := s.jobHeadOf(p, "statistics")
	if err != nil {
		return err
	}
	v := statisticsView{jobHead: h}
	said, err := s.Service.Stats.OfJob(p.ctx(), p.who, p.namedJob(), p.zone.String())
	if err != nil {
		return err
	}
	v.HasRuns = said.Runs > 0
	v.Title = p.T("statistics.title", "n", number(int64(said.Runs)))
	if v.HasRuns {
		v.Since = p.T("statistics.since", "t", p.day(said.From, "15:04"))
	}
	if said.SuccessRate != nil {
		v.Facts = append(v.Facts, fact{Name: p.T("job.succeeded"), Value: rate(said.SuccessRate)})
	}
	v.Facts = append(v.Facts, fact{Name: p.T("statistics.runs"), Value: number(int64(said.Runs))}, fact{Name: p.T("job.retried"), Value: number(int64(said.Retried))})
	for _, measured := range []struct {
		key string
		of  client.Quantiles
	}{{"statistics.duration", said.Duration}, {"statistics.late", said.Lateness}} {
		for _, q := range []struct {
			name    string
			seconds float64
		}{{"p50", measured.of.P50}, {"p95", measured.of.P95}, {"p99", measured.of.P99}, {p.T("statistics.max"), measured.of.Max}} {
			if measured.of.Count > 0 {
				v.Facts = append(v.Facts, fact{Name: p.T(measured.key) + " " + q.name, Value: p.seconds(q.seconds)})
			}
		}
	}
	for _, o := range job.Outcome("").Values() {
		if n := said.Outcomes[job.Outcome(o)]; n > 0 && o != string(job.OutcomeSucceeded) {
			v.Facts = append(v.Facts, fact{Name: p.T("outcome." + o), Value: number(int64(n))})
		}
	}
	v.Nodes, v.Kinds = p.partRows(said.Nodes), p.partRows(said.Kinds)
	for i := range v.Nodes {
		v.Nodes[i].Link = "/runs?job=" + template.URLQueryEscaper(h.Full) + "&node=" + template.URLQueryEscaper(v.Nodes[i].Name)
	}
	for i := range v.Kinds {
		v.Kinds[i].Link = "/runs?job=" + template.URLQueryEscaper(h.Full) + "&kind=" + template.URLQueryEscaper(v.Kinds[i].Name)
		v.Kinds[i].Name = p.T("kind." + v.Kinds[i].Name)
	}
	from := startOfDay(p.now.AddDate(0, 0, -statisticsDays+1))
	stats, err := s.Service.Stats.Over(p.ctx(), p.who, client.StatsQuery{Job: h.Full, From: from, To: p.now, Step: time.Hour})
	if err != nil {
		return err
	}
	p.statisticsCharts(&v, stats.Items, said.Days, from)
	return p.show("statistics", v)
}

// startOfDay is the midnight before a moment.
func startOfDay(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, t.Location())
}

// rate writes a share of runs.
func rate(share *float64) string {
	if share == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f %%", *share*100)
}

func (p *page) seconds(s float64) string { return p.took(time.Duration(s * float64(time.Second))) }

// partRows are statistics by node or by kind.
func (p *page) partRows(list []client.PartStatistics) (rows []partRow) {
	most := 0
	for i := range list {
		most = max(most, list[i].Runs)
	}
	text := func(q client.Quantiles) string {
		if q.Count == 0 {
			return "–"
		}
		return p.seconds(q.P50) + ", " + p.seconds(q.P95)
	}
	for i := range list {
		of := &list[i]
		rows = append(rows, partRow{
			Name: of.Name, Runs: number(int64(of.Runs)), Rate: rate(of.SuccessRate), Duration: text(of.Duration), Late: text(of.Lateness),
			Share: picture(draw.Share(float64(of.Runs), float64(most), draw.OK)),
		})
	}
	return rows
}

// statisticsCharts draws outcomes, durations and lateness by day, and failures by weekday and
// hour.
func (p *page) statisticsCharts(v *statisticsView, buckets []client.StatsBucket, days []client.PartStatistics, from time.Time) {
	columns := make([]draw.Column, statisticsDays)
	durations, late := make([]draw.Band, statisticsDays), make([]draw.Band, statisticsDays)
	good, bad := make([]int, statisticsDays), make([]int, statisticsDays)
	hours := make([][]float64, 7)
	for i := range hours {
		hours[i] = make([]float64, 24)
	}
	at := func(t time.Time) int {
		return min(max(int(midnight(t.In(p.zone)).Sub(midnight(from))/(24*time.Hour)), 0), statisticsDays-1)
	}
	for i := range buckets {
		b := &buckets[i]
		t := b.Start.In(p.zone)
		for o, n := range b.Outcomes {
			switch {
			case o == job.OutcomeSucceeded:
				good[at(t)] += n
			case o.Alarms():
				bad[at(t)] += n
				hours[(int(t.Weekday())+6)%7][t.Hour()] += float64(n)
			}
		}
	}
	for i := range columns {
		day := from.AddDate(0, 0, i)
		name := p.date(day)
		columns[i] = draw.Column{
			Parts: []draw.Part{{Class: draw.Fail, Value: float64(bad[i])}, {Class: draw.OK, Value: float64(good[i])}},
			Title: p.T("statistics.day", "day", name, "rate", percent(good[i], good[i]+bad[i]), "n", number(int64(good[i]+bad[i]))),
			Link:  "/runs?" + url.Values{"job": {v.Full}, "from": {day.UTC().Format(time.RFC3339)}, "to": {day.AddDate(0, 0, 1).UTC().Format(time.RFC3339)}}.Encode(),
		}
		if i%dayTicks == 0 {
			columns[i].Tick, durations[i].Tick, late[i].Tick = name, name, name
		}
	}
	for i := range days {
		d := &days[i]
		if d.At.Before(from) {
			continue
		}
		for _, band := range []struct {
			into *draw.Band
			of   client.Quantiles
		}{{&durations[at(d.At)], d.Duration}, {&late[at(d.At)], d.Lateness}} {
			if band.of.Count > 0 {
				band.into.Middle, band.into.High = band.of.P50, max(band.of.P95, 0.001)
				band.into.Title = fmt.Sprintf("%s: p50 %s, p95 %s", p.date(d.At), p.seconds(band.of.P50), p.seconds(band.of.P95))
			}
		}
	}
	v.Outcomes = picture(draw.Columns(p.T("statistics.by_day"), columns, -1, "", half, 110))
	v.Durations = picture(draw.Bands(p.T("statistics.durations"), durations, p.seconds, half, 110))
	v.Late = picture(draw.Bands(p.T("statistics.lateness"), late, p.seconds, half, 110))
	var names []string
	for _, day := range []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"} {
		names = append(names, p.T("weekday."+day))
	}
	if slices.ContainsFunc(hours, func(line []float64) bool { return slices.Max(line) > 0 }) {
		v.Heat = picture(draw.Heat(p.T("statistics.heat"), names, hours, func(i, j int) string { return fmt.Sprintf("%s %02d:00: %d", names[i], j, int(hours[i][j])) }, hourTicks(), [2]int{-1, -1}))
	}
}

// hourTicks are those of a day.
func hourTicks() (list []draw.Tick) {
	for h := 0; h < 24; h += 3 {
		list = append(list, draw.Tick{At: float64(h) / 24, Text: fmt.Sprintf("%02d:00", h)})
	}
	return list
}
