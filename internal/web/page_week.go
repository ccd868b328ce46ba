package web

import (
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/draw"
	"github.com/belfry-cron/belfry/internal/forecast"
	"github.com/belfry-cron/belfry/job"
)

// What the week shows of each quarter of an hour.
const (
	weekStarts   = "starts"
	weekRunning  = "running"
	weekFailures = "failures"
)

const (
	quarter  = 15 * time.Minute
	quarters = 96 // of a day
)

// week is what a heat map of up to seven days shows, by its first day.
type week struct {
	first time.Time
	zone  *time.Location
	cells [][]float64
	names []string
	links []string // to the days
}

func (p *page) week(first time.Time, days int) week {
	w := week{first: midnight(first), zone: p.zone}
	for i := range days {
		day := first.AddDate(0, 0, i)
		w.cells = append(w.cells, make([]float64, quarters))
		w.names = append(w.names, p.T("weekday."+day.Format("Mon"))+day.Format(" 2"))
		w.links = append(w.links, p.with("view", "", "of", "", "minute", "", "at", day.Add(12*time.Hour).UTC().Format(time.RFC3339)))
	}
	return w
}

// most is the highest count.
func (w *week) most() (most float64) {
	for _, day := range w.cells {
		most = max(most, slices.Max(day))
	}
	return most
}

// add adds to the quarter of a moment.
func (w *week) add(t time.Time, n float64) {
	t = t.In(w.zone)
	if day := int(midnight(t).Sub(w.first) / (24 * time.Hour)); day >= 0 && day < len(w.cells) {
		w.cells[day][t.Hour()*4+t.Minute()/15] += n
	}
}

// draw draws the week with a text for each value, and now on one of its days.
func (w *week) draw(label string, text func(float64) string, today int, now time.Time) template.HTML {
	title := func(i, j int) string {
		return fmt.Sprintf("%s %02d:%02d: %s", w.names[i], j/4, j%4*15, text(w.cells[i][j]))
	}
	return picture(draw.LinkedHeat(label, w.names, w.links, w.cells, title, hourTicks(), [2]int{today, now.Hour()*4 + now.Minute()/15}))
}

// timelineWeek draws the week to come and the past one by quarters of an hour, and the minutes of
// the hour at which starts crowd.
func (s *site) timelineWeek(p *page, v *timelineView) error {
	of := p.query("of")
	if !slices.Contains([]string{weekRunning, weekFailures}, of) {
		of = weekStarts
	}
	for _, one := range []string{weekStarts, weekRunning, weekFailures} {
		address := one
		if one == weekStarts {
			address = ""
		}
		v.Measures = append(v.Measures, tab{Name: p.T("timeline.of." + one), Address: p.with("of", address, "minute", ""), Current: one == of})
	}
	v.IsWeek = true
	reach := s.reach(p)
	today, day := startOfDay(p.now), startOfDay(reach.asked(p, p.now).In(p.zone))
	if of == weekFailures {
		day = earlier(day, today) // none are to come
		reach.to, reach.ahead = today.AddDate(0, 0, 1), 0
	}
	v.IsMoved, v.Now = !day.Equal(today), p.with("at", "")
	before, after := day.AddDate(0, 0, -7), day.AddDate(0, 0, 7)
	if day.After(today) {
		before = later(before, today)
	} else if day.Before(today) {
		after = earlier(after, today)
	}
	noon := func(t time.Time) time.Time { return t.Add(12 * time.Hour) }
	v.move(p, &reach, noon(before), noon(after))
	text := map[string]func(float64) string{
		weekStarts:   func(n float64) string { return number(int64(n)) },
		weekRunning:  func(n float64) string { return p.T("timeline.at_once", "n", fmt.Sprintf("%.1f", n)) },
		weekFailures: func(n float64) string { return p.T("timeline.failures", "n", int(n)) },
	}[of]
	// The past week ends with the day, and that of today is needed to estimate what runs in weeks to come.
	last := earlier(day, today)
	first := last.AddDate(0, 0, -6)
	past, err := s.Service.Stats.Over(p.ctx(), p.who, client.StatsQuery{Namespace: v.Namespace, From: first, To: earlier(last.AddDate(0, 0, 1), p.now), Step: quarter})
	if err != nil {
		return err
	}
	done := p.week(first, 7)
	usual := done.count(of, past.Items)
	v.Range = p.T("run.from_to", "from", p.date(first), "to", p.date(last))
	if !day.After(today) {
		now := -1
		if day.Equal(today) {
			now = 6
		}
		v.DoneTitle = p.T("timeline.week_past." + of)
		v.WeekDone = done.draw(v.DoneTitle, text, now, p.now)
		if len(past.Items) > 0 {
			v.DoneMost = p.T("timeline.more", "n", text(done.most()))
		}
	}
	if of == weekFailures || day.Before(today) {
		return s.hourAhead(p, v, day.Equal(today))
	}
	end := earlier(day.AddDate(0, 0, 7), today.AddDate(0, 0, daysAhead))
	v.Range = p.T("run.from_to", "from", p.date(day), "to", p.date(end.AddDate(0, 0, -1)))
	load, err := s.Service.Load.Ahead(p.ctx(), p.who, client.LoadQuery{Namespace: v.Namespace, From: later(day, p.now), To: end, Step: quarter})
	if err != nil {
		return err
	}
	ahead := p.week(day, int(midnight(end).Sub(midnight(day))/(24*time.Hour)))
	byHour := map[time.Time]int{}
	for i, starts := range load.Starts {
		t := load.From.Add(time.Duration(i) * quarter).In(p.zone)
		byHour[t.Truncate(time.Hour)] += starts
		if of == weekRunning {
			ahead.add(t, float64(starts)*usual.Seconds()/quarter.Seconds())
		} else {
			ahead.add(t, float64(starts))
		}
	}
	now := -1
	if day.Equal(today) {
		now = 0
	}
	if of == weekStarts {
		text = func(n float64) string { return p.T("timeline.planned", "n", int(n)) }
	}
	v.AheadTitle = p.T("timeline.week_ahead." + of)
	v.Week, v.AheadMost = ahead.draw(v.AheadTitle, text, now, p.now), p.T("timeline.more", "n", text(ahead.most()))
	v.quietest(p, byHour)
	return s.hourAhead(p, v, day.Equal(today))
}

// hourAhead shows at which minutes of the hour starts crowd in the day to come, and what spreading them
// would gain, on a page about now.
func (s *site) hourAhead(p *page, v *timelineView, isNow bool) error {
	if !isNow {
		return nil
	}
	day, err := s.Service.Load.Ahead(p.ctx(), p.who, client.LoadQuery{Namespace: v.Namespace, From: p.now, To: p.now.Add(24 * time.Hour), Step: time.Minute})
	if err != nil {
		return err
	}
	minutes := make([]draw.Column, 60)
	for i, starts := range day.Starts {
		at := day.From.Add(time.Duration(i) * time.Minute).In(p.zone).Minute()
		if minutes[at].Parts == nil {
			minutes[at].Parts = []draw.Part{{Class: draw.Next}}
		}
		minutes[at].Parts[0].Value += float64(starts)
	}
	all, most, fullest := 0, 0, 0
	for i := range minutes {
		sum := 0.0
		for _, part := range minutes[i].Parts {
			sum += part.Value
		}
		if all += int(sum); int(sum) > most {
			most, fullest = int(sum), i
		}
		minutes[i].Title = fmt.Sprintf(":%02d: %s", i, p.T("timeline.planned", "n", int(sum)))
		if i%5 == 0 {
			minutes[i].Tick = fmt.Sprintf(":%02d", i)
		}
	}
	if all > 0 {
		v.HourMost = p.T("timeline.minute_share", "percent", percent(most, all), "minute", fmt.Sprintf(":%02d", fullest))
	}
	v.Hour = picture(draw.Columns(p.T("timeline.hour"), minutes, -1, "", whole, 90))
	v.gains(p, day)
	return nil
}

// count counts what ended, and returns how long a run took on average.
func (w *week) count(of string, buckets []client.StatsBucket) time.Duration {
	seconds, runs := 0.0, 0
	for i := range buckets {
		b := &buckets[i]
		all, failed := 0, 0
		for o, n := range b.Outcomes {
			if o != job.OutcomeWithdrawn {
				all += n
			}
			if o.Alarms() {
				failed += n
			}
		}
		seconds, runs = seconds+b.Seconds, runs+all
		switch of {
		case weekRunning:
			w.running(b)
		case weekFailures:
			w.add(b.Start, float64(failed))
		default:
			w.add(b.Start, float64(all))
		}
	}
	if runs == 0 {
		return 0
	}
	return time.Duration(seconds / float64(runs) * float64(time.Second))
}

// running adds how many runs were running at once, on average. The longest one ran in the quarters
// before as well; the others count where they ended.
func (w *week) running(b *client.StatsBucket) {
	w.add(b.Start, max(0, b.Seconds-b.Longest)/quarter.Seconds())
	left := time.Duration(b.Longest * float64(time.Second))
	for at := b.Start; left > 0 && at.Sub(b.Start) > -7*24*time.Hour; at = at.Add(-quarter) {
		w.add(at, min(left, quarter).Seconds()/quarter.Seconds())
		left -= quarter
	}
}

// spreads are the minutes over which the page shows starts to be spread.
var spreads = []int{1, 5, 15, 60}

// gains shows what spreading would gain: the fullest minute as it is, and as it would be.
func (v *timelineView) gains(p *page, day client.Load) {
	if len(day.Starts) == 0 || slices.Max(day.Starts) < crowdedFrom {
		return
	}
	top := slices.Max(day.Starts)
	for _, over := range spreads {
		starts := forecast.Spread(day.Starts, over)
		most := slices.Max(starts)
		row := gainRow{
			Over: p.T("timeline.not_spread"), Starts: number(int64(max(most, 1))), At: p.minute(day.From.Add(time.Duration(slices.Index(starts, most)) * time.Minute)),
			Share: picture(draw.Share(float64(most), float64(top), draw.Next)),
		}
		if over > 1 {
			row.Over = "spread: " + job.Duration(time.Duration(over)*time.Minute).String()
		}
		v.Gains = append(v.Gains, row)
	}
}

// quietest names the hour to come with the fewest starts.
func (v *timelineView) quietest(p *page, byHour map[time.Time]int) {
	var best time.Time
	for t, n := range byHour {
		if t.After(p.now) && (best.IsZero() || n < byHour[best] || n == byHour[best] && t.Before(best)) {
			best = t
		}
	}
	if !best.IsZero() {
		v.Quietest = p.T("timeline.quietest", "when", p.day(best, "15:04"), "n", byHour[best])
	}
}
