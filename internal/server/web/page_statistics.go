package web

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/job"
)

// statisticsView says whether a job gets slower, or fails more often.
type statisticsView struct {
	*jobHead
	Facts           []fact
	Outcomes, Heat  template.HTML
	Durations, Late template.HTML
	Nodes, Kinds    []partRow
	HasRuns         bool
	Since, Of       string
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
	numbers, err := s.Service.Stats.OfJob(p.ctx(), p.who, p.namedJob(), p.zone.String())
	if err != nil {
		return err
	}
	v.HasRuns = numbers.Runs > 0
	v.Of = p.T("statistics.title", "n", number(int64(numbers.Runs)))
	if v.HasRuns {
		v.Since = p.T("statistics.since", "t", p.day(numbers.From, "15:04"))
	}
	if numbers.SuccessRate != nil {
		v.Facts = append(v.Facts, fact{Name: p.T("job.succeeded"), Value: rate(numbers.SuccessRate)})
	}
	v.Facts = append(v.Facts, fact{Name: p.T("statistics.runs"), Value: number(int64(numbers.Runs))}, fact{Name: p.T("job.retried"), Value: number(int64(numbers.Retried))})
	for _, measured := range []struct {
		key  string
		of   client.Quantiles
		text func(float64) string
	}{
		{"statistics.duration", numbers.Duration, p.seconds}, {"statistics.late", numbers.Lateness, p.seconds}, {"statistics.cpu", numbers.CPU, p.seconds},
		{"statistics.memory", numbers.Memory, func(bytes float64) string { return bytesText(int64(bytes)) }},
	} {
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", measured.of.P50}, {"p95", measured.of.P95}, {"p99", measured.of.P99}, {p.T("statistics.max"), measured.of.Max}} {
			if measured.of.Count > 0 {
				v.Facts = append(v.Facts, fact{Name: p.T(measured.key) + " " + q.name, Value: measured.text(q.at)})
			}
		}
	}
	for _, o := range job.Outcome("").Values() {
		if n := numbers.Outcomes[job.Outcome(o)]; n > 0 && o != string(job.OutcomeSucceeded) {
			v.Facts = append(v.Facts, fact{Name: capital(p.T("outcome." + o)), Value: number(int64(n))})
		}
	}
	v.Nodes, v.Kinds = p.partRows(numbers.Nodes), p.partRows(numbers.Kinds)
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
	p.statisticsCharts(&v, stats.Items, numbers.Days, from)
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

// hourTicks are the ticks of a day.
func hourTicks() (list []draw.Tick) {
	for h := 0; h < 24; h += 3 {
		list = append(list, draw.Tick{At: float64(h) / 24, Text: fmt.Sprintf("%02d:00", h)})
	}
	return list
}
