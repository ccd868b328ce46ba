package web

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/forecast"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/internal/server/service"
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
	// markedFrom is the percentage of failed runs above which a quarter is marked.
	markedFrom = 1
	// busiestRows is how many quarters of the day are listed, and busiestJobs how many of the jobs of
	// one, the most frequent of the busiestRead that are due first.
	busiestRows = 6
	busiestJobs = 12
	busiestRead = 100
	// runningShown is how many runs must have run at once to be said: less is written as 0.0.
	runningShown = 0.05
)

// weekFacts are below the pictures of a week: when it is busiest and quietest, and what follows.
type weekFacts struct {
	Busiest []quarterRow
	// Quarter is the one whose jobs are listed, and JobsOf what the list is of.
	Quarter  When
	JobsOf   string
	Jobs     []quarterJob
	JobsMore string
	Quietest []fact
	Costs    []fact
	CostsOf  string
	Gains    []gainRow
	Moves    []moveRow
	MovesOf  string
}

// quarterRow is a quarter of an hour of the day, on the day on which it has the most starts.
type quarterRow struct {
	At                    When
	Starts, Also, Address string
	IsChosen              bool
}

// quarterJob is a job that starts in a quarter of an hour.
type quarterJob struct {
	At                       When
	Namespace, Name, Address string
	Starts                   string
}

// gainRow says how full the fullest minute of the day to come would be if schedules were spread.
type gainRow struct {
	Over, Starts, Address string
	At                    When
	Share                 template.HTML
	IsChosen              bool
}

// moveRow is a job of the fullest minute, and when it would start if its schedule was spread.
type moveRow struct {
	Namespace, Name, Address string
	At, Later, By            string
}

// week is what a heat map of up to seven days shows, by its first day.
type week struct {
	first time.Time
	zone  *time.Location
	cells [][]float64
	names []string
	links []string // to the days
	// ended and failed count runs, of a week that is over; isRate marks quarters by them.
	ended, failed [][]int
	isRate        bool
}

func (p *page) week(first time.Time, days int) week {
	w := week{first: midnight(first), zone: p.zone}
	for i := range days {
		day := first.AddDate(0, 0, i)
		w.cells = append(w.cells, make([]float64, quarters))
		w.ended, w.failed = append(w.ended, make([]int, quarters)), append(w.failed, make([]int, quarters))
		w.names = append(w.names, p.T("weekday."+day.Format("Mon"))+day.Format(" 2"))
		w.links = append(w.links, p.with("view", "", "of", "", "minute", "", "spread", "", "at", day.Add(12*time.Hour).UTC().Format(time.RFC3339)))
	}
	return w
}

// scale says what the shades mean, of counts with words.
func (w *week) scale(p *page, value func(float64) string) string {
	low, top := draw.Scale(w.cells)
	if low < top {
		return p.T("timeline.scale", "low", value(low), "n", value(top))
	}
	return p.T("timeline.more", "n", value(top))
}

// place returns the day of a moment, and its quarter of that day.
func (w *week) place(t time.Time) (day, slot int, ok bool) {
	t = t.In(w.zone)
	day = int(midnight(t).Sub(w.first) / (24 * time.Hour))
	return day, t.Hour()*4 + t.Minute()/15, !midnight(t).Before(w.first) && day < len(w.cells)
}

// at is when a quarter begins.
func (w *week) at(day, slot int) time.Time {
	return time.Date(w.first.Year(), w.first.Month(), w.first.Day()+day, slot/4, slot%4*15, 0, 0, w.zone)
}

// add adds to the quarter of a moment.
func (w *week) add(t time.Time, n float64) {
	if day, slot, ok := w.place(t); ok {
		w.cells[day][slot] += n
	}
}

// isMarked reports whether too many runs of a quarter failed.
func (w *week) isMarked(day, slot int) bool {
	return w.isRate && w.failed[day][slot]*100 > markedFrom*w.ended[day][slot]
}

// fullest is the first quarter with the highest value.
func (w *week) fullest() (day, slot int) {
	for i := range w.cells {
		for j, n := range w.cells[i] {
			if n > w.cells[day][slot] {
				day, slot = i, j
			}
		}
	}
	return day, slot
}

// draw draws the week with a text for each value, and now on one of its days.
func (w *week) draw(label string, text func(day, slot int) string, today int, now time.Time) template.HTML {
	title := func(i, j int) string {
		return fmt.Sprintf("%s %02d:%02d: %s", w.names[i], j/4, j%4*15, text(i, j))
	}
	return picture(draw.LinkedHeat(label, w.names, w.links, w.cells, title, w.isMarked, hourTicks(), [2]int{today, now.Hour()*4 + now.Minute()/15}))
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
		v.Measures = append(v.Measures, tab{Name: p.T("timeline.of." + one), Address: p.with("of", address, "minute", "", "spread", ""), Current: one == of})
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
	value := map[string]func(float64) string{
		weekStarts:   func(n float64) string { return number(int64(n)) },
		weekRunning:  func(n float64) string { return p.T("timeline.at_once", "n", fmt.Sprintf("%.1f", n)) },
		weekFailures: func(n float64) string { return p.T("timeline.failures", "n", int(n)) },
	}[of]
	// The past week ends with the day, and today is needed to estimate what runs in weeks to come.
	last := earlier(day, today)
	first := last.AddDate(0, 0, -6)
	past, err := s.Service.Stats.Over(p.ctx(), p.who, client.StatsQuery{Namespace: v.Namespace, From: first, To: earlier(last.AddDate(0, 0, 1), p.now), Step: quarter})
	if err != nil {
		return err
	}
	done := p.week(first, 7)
	usual := done.count(of, past.Items)
	done.isRate = of != weekFailures
	v.Range = p.T("run.from_to", "from", p.date(first), "to", p.date(last))
	if !day.After(today) {
		now := -1
		if day.Equal(today) {
			now = 6
		}
		v.DoneTitle = p.T("timeline.week_past." + of)
		v.WeekDone = done.draw(v.DoneTitle, func(i, j int) string {
			text := value(done.cells[i][j])
			if done.isMarked(i, j) {
				text += p.T("comma") + p.T("timeline.failed", "n", done.failed[i][j], "all", done.ended[i][j])
			}
			return text
		}, now, p.now)
		if len(past.Items) > 0 {
			v.DoneMost = done.scale(p, value)
			if done.isRate {
				v.Marked = p.T("timeline.over_percent", "n", markedFrom)
			}
		}
		if err := s.costs(p, v, first, past.Items); err != nil {
			return err
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
	days := int(midnight(end).Sub(midnight(day)) / (24 * time.Hour))
	starts, ahead := p.week(day, days), p.week(day, days)
	for i, n := range load.Starts {
		t := load.From.Add(time.Duration(i) * quarter)
		starts.add(t, float64(n))
		ahead.add(t, float64(n)*usual.Seconds()/quarter.Seconds())
	}
	now := -1
	if day.Equal(today) {
		now = 0
	}
	if of == weekStarts {
		ahead, value = starts, func(n float64) string { return p.T("timeline.planned", "n", int(n)) }
	}
	v.AheadTitle = p.T("timeline.week_ahead." + of)
	v.Week = ahead.draw(v.AheadTitle, func(i, j int) string { return value(ahead.cells[i][j]) }, now, p.now)
	v.AheadMost = ahead.scale(p, value)
	ran := p.week(first, 7)
	ran.count(weekRunning, past.Items)
	v.Facts.Quietest = p.quietest(load, &starts, &ran)
	if err := s.busiest(p, v, &starts); err != nil {
		return err
	}
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
	return s.gains(p, v, day)
}

// busiest lists the quarters of the day with the most starts, and the jobs of one of them: that which
// was asked for, or the first.
func (s *site) busiest(p *page, v *timelineView, starts *week) error {
	type peak struct {
		day, slot, also int
		starts          float64
	}
	var peaks []peak
	for slot := range quarters {
		top := peak{slot: slot}
		for day := range starts.cells {
			switch n := starts.cells[day][slot]; {
			case n > top.starts:
				top = peak{day: day, slot: slot, starts: n}
			case n == top.starts:
				top.also++
			}
		}
		if top.starts > 0 {
			peaks = append(peaks, top)
		}
	}
	if len(peaks) == 0 {
		return nil
	}
	slices.SortStableFunc(peaks, func(a, b peak) int { return cmp.Compare(b.starts, a.starts) })
	peaks = peaks[:min(len(peaks), busiestRows)]
	chosen := starts.at(peaks[0].day, peaks[0].slot)
	if t, err := time.Parse(time.RFC3339, p.query("minute")); err == nil {
		if day, slot, ok := starts.place(t); ok && starts.at(day, slot).Add(quarter).After(p.now) {
			chosen = starts.at(day, slot)
		}
	}
	for _, one := range peaks {
		at := starts.at(one.day, one.slot)
		row := quarterRow{
			At: p.span(at, quarter), Starts: p.T("timeline.planned", "n", int(one.starts)), IsChosen: at.Equal(chosen),
			Address: p.with("minute", at.UTC().Format(time.RFC3339)) + "#quarter",
		}
		if one.also > 0 {
			row.Also = p.T("timeline.also", "n", one.also)
		}
		v.Facts.Busiest = append(v.Facts.Busiest, row)
	}
	v.Facts.Quarter = p.span(chosen, quarter)
	from := later(chosen, p.now).Add(-1) // what follows it is planned
	jobs, err := s.Service.Load.Planned(p.ctx(), p.who, v.Namespace, from, chosen.Add(quarter), busiestRead, int(quarter/time.Minute))
	if err != nil {
		return err
	}
	slices.SortStableFunc(jobs, func(a, b service.PlannedJob) int { return cmp.Compare(len(b.Times), len(a.Times)) })
	v.Facts.JobsOf = p.T("timeline.jobs_of_minute", "n", len(jobs))
	for i := range jobs[:min(len(jobs), busiestJobs)] {
		j := &jobs[i]
		namespace, name := splitName(j.Job)
		row := quarterJob{Namespace: namespace, Name: name, Address: "/jobs/" + j.Job, Starts: p.T("timeline.planned", "n", len(j.Times))}
		if j.More {
			row.Starts = p.T("timeline.over", "n", len(j.Times))
		}
		if len(j.Times) > 0 {
			row.At = p.minute(j.Times[0])
			row.At.Text = j.Times[0].In(p.zone).Format("15:04")
		}
		v.Facts.Jobs = append(v.Facts.Jobs, row)
	}
	switch more := len(jobs) - busiestJobs; {
	case len(jobs) == busiestRead:
		v.Facts.JobsOf, v.Facts.JobsMore = p.T("timeline.jobs_first", "n", busiestRead), p.T("timeline.and_more")
	case more > 0:
		v.Facts.JobsMore = p.T("timeline.and_n_more", "n", more)
	}
	return nil
}

// span writes a time of some length.
func (p *page) span(from time.Time, length time.Duration) When {
	at := p.minute(from)
	at.Text = p.T("run.from_to", "from", p.dated(from)+" "+from.In(p.zone).Format("15:04"), "to", from.Add(length).In(p.zone).Format("15:04"))
	return at
}

// costs says how late runs started in the quarter of a past week in which most of them ended, and how
// many ran at once at most.
func (s *site) costs(p *page, v *timelineView, first time.Time, past []client.StatsBucket) error {
	ended, ran := p.week(first, 7), p.week(first, 7)
	ended.count(weekStarts, past)
	ran.count(weekRunning, past)
	day, slot := ended.fullest()
	if ended.cells[day][slot] == 0 {
		return nil
	}
	from := ended.at(day, slot)
	late, err := s.latenessOf(p, client.RunQuery{Namespace: v.Namespace, From: from, To: from.Add(quarter)})
	if err != nil {
		return err
	}
	v.Facts.Costs = p.lateFacts(late)
	if len(v.Facts.Costs) == 0 {
		return nil // no node started them
	}
	key := "timeline.costs_of"
	if late.cut {
		key = "timeline.costs_last"
	}
	v.Facts.CostsOf = p.T(key, "n", len(late.late), "when", p.span(from, quarter).Text)
	if day, slot = ran.fullest(); ran.cells[day][slot] < runningShown {
		return nil
	}
	slots := 0
	for _, n := range s.frame(p.ctx(), p.who, frameFor).list {
		if n.State == "live" {
			slots += n.Capacity
		}
	}
	most := p.T("timeline.what_when", "what", p.T("timeline.at_once", "n", fmt.Sprintf("%.1f", ran.cells[day][slot])), "when", p.span(ran.at(day, slot), quarter).Text)
	v.Facts.Costs = append(v.Facts.Costs, fact{Name: p.T("timeline.most_at_once"), Value: most})
	if slots > 0 {
		v.Facts.Costs = append(v.Facts.Costs, fact{Name: p.T("timeline.slots_now"), Value: number(int64(slots))})
	}
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
		if day, slot, ok := w.place(b.Start); ok {
			w.ended[day][slot], w.failed[day][slot] = w.ended[day][slot]+all, w.failed[day][slot]+failed
		}
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

// gains shows what spreading would gain: the fullest minute as it is, and as it would be. For one of
// the spreads it lists which jobs would start later.
func (s *site) gains(p *page, v *timelineView, day client.Load) error {
	if len(day.Starts) == 0 || slices.Max(day.Starts) < crowdedFrom {
		return nil
	}
	top := slices.Max(day.Starts)
	fullest := day.From.Add(time.Duration(slices.Index(day.Starts, top)) * time.Minute)
	for _, over := range spreads {
		starts := forecast.Spread(day.Starts, over)
		most := slices.Max(starts)
		row := gainRow{
			Over: p.T("timeline.not_spread"), Starts: number(int64(max(most, 1))), At: p.minute(day.From.Add(time.Duration(slices.Index(starts, most)) * time.Minute)),
			Share: picture(draw.Share(float64(most), float64(top), draw.Next)),
		}
		if over > 1 {
			length := job.Duration(time.Duration(over) * time.Minute)
			row.Over, row.Address = "spread: "+length.String(), p.with("spread", length.String())+"#moves"
			if row.IsChosen = p.query("spread") == length.String(); row.IsChosen {
				if err := s.moves(p, v, fullest, time.Duration(length)); err != nil {
					return err
				}
			}
		}
		v.Facts.Gains = append(v.Facts.Gains, row)
	}
	return nil
}

// moves lists the jobs of the fullest minute, and when each would start with a spread.
func (s *site) moves(p *page, v *timelineView, minute time.Time, spread time.Duration) error {
	from := later(minute, p.now)
	list, err := s.Service.Load.Spread(p.ctx(), p.who, v.Namespace, from, minute.Add(time.Minute), spread, busiestRead)
	if err != nil {
		return err
	}
	const clock = "15:04:05"
	for _, d := range list {
		namespace, name := splitName(d.Job)
		row := moveRow{Namespace: namespace, Name: name, Address: "/jobs/" + d.Job + "/edit", At: d.Due.In(p.zone).Format(clock)}
		if d.Delay != nil {
			delay := time.Duration(*d.Delay * float64(time.Second))
			row.Later, row.By = d.Due.Add(delay).In(p.zone).Format(clock), "+"+p.took(delay)
		} else {
			row.Later = p.T("timeline.has_spread", "spread", d.Spread.String())
		}
		v.Facts.Moves = append(v.Facts.Moves, row)
	}
	v.Facts.MovesOf = "spread: " + job.Duration(spread).String()
	v.Commands = append(v.Commands, Command{p.T("timeline.moves"), p.curl("GET", "/api/v1/load/jobs?from="+from.UTC().Format(time.RFC3339)+"&to="+minute.Add(time.Minute).UTC().Format(time.RFC3339)+"&spread="+job.Duration(spread).String(), "")})
	return nil
}

// quietest names the hour to come with the fewest starts, what ran at that time a week before, and the
// whole day with the fewest.
func (p *page) quietest(load client.Load, starts, ran *week) (list []fact) {
	byHour := map[time.Time]int{}
	for i, n := range load.Starts {
		byHour[load.From.Add(time.Duration(i)*quarter).Truncate(time.Hour)] += n
	}
	var hour time.Time
	for t, n := range byHour {
		if t.After(p.now) && (hour.IsZero() || n < byHour[hour] || n == byHour[hour] && t.Before(hour)) {
			hour = t
		}
	}
	if hour.IsZero() {
		return nil
	}
	list = []fact{{Name: p.T("timeline.hour_of"), Value: p.T("timeline.what_when", "what", p.T("timeline.planned", "n", byHour[hour]), "when", p.span(hour, time.Hour).Text)}}
	sum := 0.0
	day, slot, ok := ran.place(hour.AddDate(0, 0, -7))
	for i := slot; ok && i < min(slot+4, quarters); i++ {
		sum += ran.cells[day][i] / 4
	}
	if ok {
		list = append(list, fact{Name: p.T("timeline.week_before"), Value: p.T("timeline.at_once", "n", fmt.Sprintf("%.1f", sum))})
	}
	best, fewest, whole := 0, 0.0, 0
	for i, cells := range starts.cells {
		sum := 0.0
		for _, n := range cells {
			sum += n
		}
		if starts.at(i, 0).After(p.now) {
			if whole++; whole == 1 || sum < fewest {
				best, fewest = i, sum
			}
		}
	}
	if whole > 1 {
		list = append(list, fact{Name: p.T("timeline.day_of"), Value: p.T("timeline.what_when", "what", p.T("timeline.planned", "n", int(fewest)), "when", p.dated(starts.at(best, 0)))})
	}
	return list
}
