package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/job"
)

// When is a moment on a page.
type When struct {
	ISO, Text, Title string
	Relative, Since  bool // scripts keep the text current: the distance from now, or how long it is since then
}

// at is a moment as the time of the day, with the day where it is another one.
func (p *page) at(t time.Time) When {
	if t.IsZero() {
		return When{}
	}
	return When{ISO: t.UTC().Format(time.RFC3339Nano), Text: p.day(t, "15:04:05"), Title: p.full(t)}
}

// minute is at without seconds.
func (p *page) minute(t time.Time) When {
	w := p.at(t)
	if !t.IsZero() {
		w.Text = p.day(t, "15:04")
	}
	return w
}

// relative is a moment as its distance from now.
func (p *page) relative(t time.Time) When {
	w := p.at(t)
	if t.IsZero() {
		return w
	}
	w.Relative = true
	w.Text = p.distance(t)
	return w
}

// since is how long ago a moment was.
func (p *page) since(t time.Time) When {
	w := p.at(t)
	w.Since, w.Text = true, p.coarse(p.now.Sub(t))
	return w
}

func (p *page) distance(t time.Time) string {
	if d := t.Sub(p.now); d >= 0 {
		return p.T("js.in", "d", coarse(p.lang, d))
	}
	return p.T("js.ago", "d", coarse(p.lang, p.now.Sub(t)))
}

// day writes a moment by the clock of the reader, as short as the day allows.
func (p *page) day(t time.Time, clock string) string {
	t = t.In(p.zone)
	days := int(midnight(t).Sub(midnight(p.now)).Round(24*time.Hour) / (24 * time.Hour))
	switch {
	case days == 0:
		return t.Format(clock)
	case -7 < days && days < 7:
		return p.T("weekday."+t.Format("Mon")) + " " + t.Format(clock)
	}
	return p.date(t) + " " + t.Format("15:04")
}

// exactly writes a moment by the clock that it has.
func (p *page) exactly(t time.Time, clock string) string {
	day := t.Format("2 Jan")
	if p.lang == i18n.Chinese {
		day = t.Format("1月2日")
	}
	return p.T("weekday."+t.Format("Mon")) + " " + day + " " + t.Format(clock)
}

func midnight(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}

// date writes a day of the year.
func (p *page) date(t time.Time) string {
	t = t.In(p.zone)
	switch {
	case p.lang == i18n.Chinese && t.Year() == p.now.Year():
		return t.Format("1月2日")
	case p.lang == i18n.Chinese:
		return t.Format("2006年1月2日")
	case t.Year() == p.now.Year():
		return t.Format("2 Jan")
	}
	return t.Format("2 Jan 2006")
}

// dated writes a day with its name.
func (p *page) dated(t time.Time) string {
	return p.T("weekday."+t.In(p.zone).Format("Mon")) + " " + p.date(t)
}

// full says a moment in the zone of the reader and in UTC.
func (p *page) full(t time.Time) string {
	own := t.In(p.zone).Format("2006-01-02 15:04:05.000 ") + p.zone.String()
	if p.zone == time.UTC || p.zone.String() == "UTC" {
		return own
	}
	return own + "\n" + t.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// units are the words of durations: day, hour, minute, second, millisecond.
var units = map[i18n.Lang][5]string{
	i18n.English: {"d", "h", "min", "s", "ms"},
	i18n.Chinese: {"天", "小时", "分钟", "秒", "毫秒"},
}

// coarse says a duration as people count it: two units at most.
func coarse(lang i18n.Lang, d time.Duration) string {
	u := units[lang]
	d = d.Abs()
	two := func(a int64, first string, b int64, second string) string {
		if b == 0 {
			return fmt.Sprintf("%d %s", a, first)
		}
		return fmt.Sprintf("%d %s %d %s", a, first, b, second)
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d %s", int64(d/time.Second), u[3])
	case d < 10*time.Minute:
		return two(int64(d/time.Minute), u[2], 0, "")
	case d < time.Hour:
		return fmt.Sprintf("%d %s", int64(d/time.Minute), u[2])
	case d < 24*time.Hour:
		return two(int64(d/time.Hour), u[1], int64(d%time.Hour/time.Minute), u[2])
	}
	return two(int64(d/(24*time.Hour)), u[0], int64(d%(24*time.Hour)/time.Hour), u[1])
}

// took says how long something took, exactly enough to compare.
func took(lang i18n.Lang, d time.Duration) string {
	u := units[lang]
	switch {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%d %s", d.Milliseconds(), u[4])
	case d < time.Second:
		return fmt.Sprintf("%.2f %s", d.Seconds(), u[3])
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f %s", d.Seconds(), u[3])
	case d < time.Minute:
		return fmt.Sprintf("%d %s", int64(d/time.Second), u[3])
	case d < time.Hour && d%time.Minute >= time.Second:
		return fmt.Sprintf("%d %s %d %s", int64(d/time.Minute), u[2], int64(d%time.Minute/time.Second), u[3])
	}
	return coarse(lang, d)
}

func (p *page) took(d time.Duration) string   { return took(p.lang, d) }
func (p *page) coarse(d time.Duration) string { return coarse(p.lang, d) }

// number writes a count with thin spaces between groups of three digits.
func number(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// bytesText says how much something is.
func bytesText(n int64) string { return job.Size(n).Rounded() }

// State is how something is: an icon and a word in its colour.
type State struct {
	Class, Icon, Text string
	Spin              bool
	Quiet             bool // it is as it should be: lists show the icon alone
}

var outcomeLooks = map[job.Outcome]State{
	job.OutcomeSucceeded: {Class: "ok", Icon: "ok", Quiet: true},
	job.OutcomeFailed:    {Class: "fail", Icon: "fail"},
	job.OutcomeTimedOut:  {Class: "fail", Icon: "time"},
	job.OutcomeCancelled: {Class: "mute", Icon: "cancel"},
	job.OutcomeLost:      {Class: "lost", Icon: "lost"},
	job.OutcomeSkipped:   {Class: "mute", Icon: "skip"},
	job.OutcomeMissed:    {Class: "fail", Icon: "missed"},
	job.OutcomeWithdrawn: {Class: "mute", Icon: "skip"},
}

var stateLooks = map[job.RunState]State{
	job.StateReady:   {Class: "mute", Icon: "ready"},
	job.StateWaiting: {Class: "run", Icon: "wait"},
	job.StateRunning: {Class: "run", Icon: "run", Spin: true},
}

// outcome is how a run ended.
func (p *page) outcome(o job.Outcome) State {
	s := outcomeLooks[o]
	s.Text = p.T("outcome." + string(o))
	return s
}

// runState is how a run is, or how it ended. One that is long due and has not started waits.
func (p *page) runState(r *client.Run) State {
	if r.State == job.StateDone {
		return p.outcome(r.Outcome)
	}
	state := r.State
	if state == job.StateReady && r.Reason != "" && r.Due.Before(p.now) {
		state = job.StateWaiting
	}
	s := stateLooks[state]
	s.Text = p.T("state." + string(state))
	return s
}

var outcomeClasses = map[job.Outcome]draw.Class{
	job.OutcomeSucceeded: draw.OK, job.OutcomeFailed: draw.Fail, job.OutcomeTimedOut: draw.Time, job.OutcomeCancelled: draw.Mute,
	job.OutcomeLost: draw.Lost, job.OutcomeSkipped: draw.Mute, job.OutcomeMissed: draw.Missed, job.OutcomeWithdrawn: draw.Mute,
}

// markOf draws a run.
func (p *page) markOf(r *client.Run) draw.Mark {
	m := draw.Mark{Class: draw.Run, Link: "/runs/" + r.ID.String()}
	if r.State == job.StateDone {
		m.Class = outcomeClasses[r.Outcome]
	}
	m.Title = p.runState(r).Text + " " + p.day(r.Scheduled, "15:04:05")
	if d := p.duration(r); d > 0 {
		m.Value = d.Seconds()
		m.Title += ", " + p.took(d)
	}
	return m
}

// duration is how long a run has taken, 0 for one that did not start.
func (p *page) duration(r *client.Run) time.Duration {
	switch {
	case r.Started.IsZero():
		return 0
	case !r.Ended.IsZero():
		return max(r.Ended.Sub(r.Started), 0)
	case r.State == job.StateRunning:
		return max(p.now.Sub(r.Started), 0)
	}
	return 0
}

// The widths of charts beside another panel, and across the page.
const (
	half  = 768
	whole = 1080
)

// picture is a chart of package draw, which has escaped its texts.
func picture(svg string) template.HTML { return template.HTML(svg) } //nolint:gosec // see above

// schedule says in words when a job falls due.
func (p *page) schedule(j *job.Job) string {
	lang, _ := cron.ParseLang(string(p.lang))
	s := &j.Schedule
	var parts []string
	for _, text := range s.Cron {
		parts = append(parts, describe(text, j, lang))
	}
	if s.Every > 0 {
		parts = append(parts, describe("@every "+time.Duration(s.Every).String(), j, lang))
	}
	if s.AfterEnd > 0 {
		parts = append(parts, p.T("schedule.after_end", "d", p.coarse(time.Duration(s.AfterEnd))))
	}
	if len(s.At) == 1 {
		parts = append(parts, p.T("schedule.at", "t", p.day(s.At[0], "15:04:05")))
	} else if len(s.At) > 1 {
		parts = append(parts, p.T("schedule.ats", "n", len(s.At)))
	}
	if len(s.On) > 0 {
		var names []string
		for _, u := range s.On {
			names = append(names, u.Job)
		}
		parts = append(parts, p.T("schedule.on", "names", strings.Join(names, ", ")))
	}
	if s.Boot {
		parts = append(parts, p.T("schedule.boot"))
	}
	if len(parts) == 0 {
		return p.T("schedule.hand")
	}
	return strings.Join(parts, p.T("and"))
}

// describe says an expression of a job in words, or shows it where it cannot be read here.
func describe(text string, j *job.Job, lang cron.Lang) string {
	options := []cron.Option{cron.WithJob(cmp.Or(j.Namespace, job.DefaultNamespace), j.Name)} // which chooses for H
	if j.Schedule.Dialect != "" {
		if dialect, err := cron.ParseDialect(string(j.Schedule.Dialect)); err == nil {
			options = append(options, cron.WithDialect(dialect))
		}
	}
	schedule, err := cron.ParseSchedule(text, options...)
	if err != nil {
		return text
	}
	if describer, ok := schedule.(interface{ Describe(cron.Lang) string }); ok {
		return describer.Describe(lang)
	}
	return text
}

// reason says the reason of a run in the language of the page.
func (p *page) reason(r job.Reason) string {
	return clean(reason.In(string(p.lang), r, func(t time.Time) string { return p.day(t, "15:04:05") }))
}

// pauseReason says why a job is paused.
func (p *page) pauseReason(st *job.Status) string {
	why := st.PausedFor
	if why.IsZero() { // the status was read from a document
		args := job.ReasonArgs{}
		for name, text := range st.PauseArgs {
			args[name] = text
		}
		why = args.Reason(st.PauseReason, st.PauseCode)
	}
	if st.Failures > 0 && reason.PausedByFailure.Is(why) { // the page has the last of them, with its cause
		return p.T("job.failed_in_row", "n", st.Failures)
	}
	return p.reason(why)
}

// runNamed is the id of a run in a reason, with the space before it.
var runNamed = regexp.MustCompile(` [0-9A-HJKMNP-TV-Z]{26}\b`)

// short leaves the ids of runs out of a reason in a list, where they push the rest out of its column: its title has them.
func short(reason string) string { return runNamed.ReplaceAllString(reason, "") }

// mistake says what is wrong with a field of a request, and what would be right.
func (p *page) mistake(f client.FieldError) (text, hint string) {
	return p.reason(f.Args.Reason(f.Detail, f.Code)), p.reason(f.HintArgs.Reason(f.Hint, f.HintCode))
}

// clean shows characters that change what stands around them, or nothing at all, by their
// number: text of jobs must not pretend to be something else.
func clean(text string) string {
	if strings.IndexFunc(text, isHidden) < 0 {
		return text
	}
	var b strings.Builder
	var last rune
	times := 0 // that the last hidden character was there in a row
	end := func() {
		if times > 0 {
			fmt.Fprintf(&b, "‹U+%04X›", last)
		}
		if times > 1 {
			fmt.Fprintf(&b, "×%d", times)
		}
		times = 0
	}
	for _, r := range text {
		if r != last {
			end()
		}
		if last = r; isHidden(r) {
			times++
		} else {
			b.WriteRune(r)
		}
	}
	end()
	return b.String()
}

func isHidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r), r == unicode.ReplacementChar:
		return true
	case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069, r == 0x200E, r == 0x200F, r == 0x061C, r == 0xFEFF:
		return true
	}
	return false
}

// jobOf reads a job out of a document of the service.
func jobOf(d client.Document) (*job.Job, error) {
	list, err := job.Decode("", d.RawMessage)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || list[0].Job == nil {
		return nil, fmt.Errorf("read a job: the document has %d documents", len(list))
	}
	return list[0].Job, nil
}

// splitName divides namespace/name.
func splitName(full string) (namespace, name string) {
	namespace, name, found := strings.Cut(full, "/")
	if !found {
		return "", full
	}
	return namespace, name
}

// host shortens the name of a node to its first label, which tells it from the other nodes; where two have
// the same, to as many as do.
func (s *site) host(name string) string {
	labels := strings.Split(name, ".")
	if len(labels) < 3 || net.ParseIP(name) != nil {
		return name
	}
	shown := 1
	if nodes := s.hosts.Load(); nodes != nil {
		for _, other := range *nodes {
			theirs := strings.Split(other, ".")
			for other != name && shown < len(labels) && len(theirs) >= shown && slices.Equal(labels[:shown], theirs[:shown]) {
				shown++
			}
		}
	}
	return strings.Join(labels[:shown], ".")
}

// withCause is a reason, which is given in English too, with what the work has said about its failure.
func (p *page) withCause(why, english string, of *client.Failure) string {
	news := clean(reason.News(english, of.Cause))
	if why == "" || news == "" {
		return why + news
	}
	return why + p.T("colon") + news
}
