package cli

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/decide/preview"
)

// nextMax bounds belfry next -n: a week of a job that runs every minute, in a
// fraction of a second.
const nextMax = 10_080

// nextFlags are the flags of belfry next.
type nextFlags struct {
	zone        *cron.Zone // nil if not given
	count       int
	from        *time.Time // nil for now
	backwards   bool
	dialect     cron.Dialect
	clockChange cron.ClockChange
	lang        cron.Lang
	job         jobName
	output      string
}

// jobName is a job in its namespace.
type jobName struct{ namespace, name string }

func newNext(env Env) *cobra.Command {
	ask := nextFlags{count: 10}
	cmd := &cobra.Command{
		Use:   "next EXPRESSION [flags]",
		Short: "Show when a cron expression falls due",
		Long: `Show when a cron expression falls due, what it means in words, and how clock changes
affect it. It needs no server, and has its own time zone data.

The exit code is 2 for an invalid expression, and 1 for one that never falls due.`,
		Example: `belfry next '30 2 * * 1-5' --tz Europe/Berlin
belfry next '0 0 L * *' -n 3                       # the last day of a month
belfry next '@every 90s' --from 2026-03-28T00:00:00Z
belfry next 'H H * * *' --job default/backup       # a time that belongs to the job
belfry next '0 0 12 ? * FRI#2' --dialect quartz -o json
belfry next '0 9 * * *' --prev -n 1 -o name        # when it last fell due`,
		Args: oneExpression,
		RunE: func(_ *cobra.Command, args []string) error {
			return next(env, ask, args[0])
		},
	}
	flags := cmd.Flags()
	addParsed(flags, &ask.zone, "tz", "", "UTC", "ZONE", "time zone of the expression, an IANA name", cron.LoadZone)
	addParsed(flags, &ask.count, "count", "n", "10", "N", fmt.Sprintf("how many occurrences to show, at most %d", nextMax), parseCount)
	addParsed(flags, &ask.from, "from", "", "now", "TIME|DURATION", "instant to start after, or how long from now it is", func(text string) (*time.Time, error) {
		t, err := momentFrom(env, 1)(text)
		return &t, err
	})
	flags.BoolVar(&ask.backwards, "prev", false, "show the occurrences before --from, the latest first")
	addParsed(flags, &ask.dialect, "dialect", "", "default", "default|vixie5|quartz", "grammar of the expression", cron.ParseDialect)
	addParsed(flags, &ask.clockChange, "dst", "", "vixie", "vixie|literal|skip_once|shift_once|skip_last", "what happens when the clock changes", cron.ParseClockChange)
	addParsed(flags, &ask.job, "job", "", "", "NAMESPACE/NAME", "job for which H and ~ choose their values", parseJobName)
	addParsed(flags, &ask.lang, "lang", "", "en", "en|zh", "language of the description", cron.ParseLang)
	addOutput(cmd, &ask.output, asTable, asWide, asJSON, asYAML, asJSONL, asName)
	complete(cmd, "tz", cron.ZoneNames()...)
	complete(cmd, "dialect", "default", "vixie5", "quartz")
	complete(cmd, "dst", "vixie", "literal", "skip_once", "shift_once", "skip_last")
	complete(cmd, "lang", "en", "zh")
	return cmd
}

// oneExpression requires one argument. The usual mistake is to omit the quotes, so that the shell
// splits it or expands the stars.
func oneExpression(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return misused("an expression is missing").withHint("write it in quotes: belfry next '30 2 * * 1-5'")
	case 1:
		return nil
	default:
		return misused("found %d arguments, expected one expression", len(args)).
			withHint("quote it, or the shell splits it: belfry next '30 2 * * 1-5'")
	}
}

func parseCount(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > nextMax {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, nextMax)
	}
	return n, nil
}

// jobNameForm is what names a job and begins no expression.
var jobNameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*[a-z][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)?$`)

var instantForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)

// parseInstant reads a time as RFC 3339 writes it.
func parseInstant(text string) (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339, text)
	// Parse also accepts "T3:00" and a comma before the fraction.
	return t, err == nil && instantForm.MatchString(text)
}

func parseJobName(text string) (jobName, error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return jobName{}, fmt.Errorf("%q is not the name of a job; write NAMESPACE/NAME, such as default/backup", text)
	}
	return jobName{namespace, name}, nil
}

// nextAnswer is the output of belfry next. Its keys are a contract, and its lists are never null.
type nextAnswer struct {
	Expression  string   `json:"expression"` // in canonical form
	Timezone    string   `json:"timezone"`
	Description string   `json:"description"`
	Next        []string `json:"next"` // RFC 3339 with the zone's offset
	Notes       []string `json:"notes"`

	times []time.Time // of Next
}

func next(env Env, ask nextFlags, text string) error {
	options := []cron.Option{cron.WithDialect(ask.dialect), cron.WithClockChange(ask.clockChange)}
	if ask.zone != nil {
		options = append(options, cron.In(ask.zone))
	}
	if ask.job != (jobName{}) {
		options = append(options, cron.WithJob(ask.job.namespace, ask.job.name))
	}
	now := env.Now()
	from := now
	if ask.from != nil {
		from = *ask.from
	}
	explanation, err := preview.Expression(text, ask.zone, options, preview.Ask{Lang: ask.lang, From: from, Backwards: ask.backwards, Count: ask.count})
	if err != nil {
		refused := refusedExpression(err)
		if ask.job == (jobName{}) && preview.MissesJob(err, text, options) {
			refused.hint = "give the job with --job NAMESPACE/NAME"
		}
		if refused.hint == "" && jobNameForm.MatchString(text) {
			refused.hint = "belfry job next " + text + " shows when a job falls due"
		}
		return refused
	}
	p := nextAnswer{
		Expression: explanation.Expression, Timezone: explanation.Timezone.Name(), Description: explanation.Description,
		Next: []string{}, Notes: append([]string{}, slices.Concat(explanation.Warnings, explanation.Notes)...), times: explanation.Next,
	}
	for _, t := range explanation.Next {
		p.Next = append(p.Next, t.Format(time.RFC3339Nano))
	}
	data, err := p.render(env, ask, now)
	if err != nil {
		return err
	}
	if err := write(env, data); err != nil {
		return err
	}
	if explanation.Never != "" {
		// The list itself is on stdout, as always.
		return failed("%s", explanation.Never)
	}
	return nil
}

// render formats the preview as requested.
func (p *nextAnswer) render(env Env, ask nextFlags, now time.Time) ([]byte, error) {
	var b bytes.Buffer
	var err error
	switch ask.output {
	case asJSON:
		err = encodeJSON(&b, p)
	case asYAML:
		err = encodeYAML(&b, p)
	case asJSONL:
		for _, t := range p.Next {
			line := struct {
				Expression string `json:"expression"`
				Timezone   string `json:"timezone"`
				Next       string `json:"next"`
			}{p.Expression, p.Timezone, t}
			if err = encodeJSONLine(&b, line); err != nil {
				break
			}
		}
	case asName:
		for _, t := range p.Next {
			fmt.Fprintln(&b, t)
		}
	default:
		p.table(&b, env, ask, now)
	}
	return b.Bytes(), err
}

// table writes the preview for people: on a terminal with weekdays and, for previews from now,
// countdowns, elsewhere with exact times.
func (p *nextAnswer) table(w io.Writer, env Env, ask nextFlags, now time.Time) {
	s := styleFor(env, env.StdoutIsTerminal)
	fmt.Fprintf(w, "%s\n%s\n", s.strong(p.Description), s.faint(p.Expression+"  "+p.Timezone))
	if len(p.times) > 0 {
		fmt.Fprintln(w)
	}
	for i, t := range p.times {
		var columns []string
		if env.StdoutIsTerminal {
			columns = []string{weekday(t, ask.lang) + " " + t.Format("2006-01-02 15:04:05.999999999 -07:00")}
			if ask.from == nil {
				columns = append(columns, countdown(t, now, ask.lang))
			}
		} else {
			columns = []string{p.Next[i], weekday(t, ask.lang)}
		}
		if ask.output == asWide {
			columns = append(columns, t.UTC().Format(time.RFC3339Nano))
		}
		fmt.Fprintln(w, strings.Join(columns, "  "))
	}
	if len(p.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, note := range p.Notes {
		fmt.Fprintf(w, "%s %s\n", s.faint("*"), note)
	}
}

// weekday returns the short name of a day.
func weekday(t time.Time, lang cron.Lang) string {
	if lang == cron.Chinese {
		return [...]string{"周日", "周一", "周二", "周三", "周四", "周五", "周六"}[t.Weekday()]
	}
	return t.Format("Mon")
}

// countdown formats the distance of an occurrence, in at most two units: "in 3h 12m", "4d ago".
func countdown(t, now time.Time, lang cron.Lang) string {
	distance := t.Sub(now)
	past := distance < 0
	if past {
		distance = -distance
	}
	units := [...]struct {
		size   time.Duration
		en, zh string
	}{
		{24 * time.Hour, "d", "天"},
		{time.Hour, "h", "小时"},
		{time.Minute, "m", "分"},
		{time.Second, "s", "秒"},
	}
	first := 0
	for first < len(units)-1 && distance < units[first].size {
		first++
	}
	var parts []string
	for i, u := range units[first:min(first+2, len(units))] {
		n := distance / u.size
		distance %= u.size
		if i > 0 && n == 0 {
			break
		}
		name := u.en
		if lang == cron.Chinese {
			name = u.zh
		}
		parts = append(parts, fmt.Sprintf("%d%s", n, name))
	}
	switch {
	case lang == cron.Chinese && past:
		return strings.Join(parts, "") + "前"
	case lang == cron.Chinese:
		return strings.Join(parts, "") + "后"
	case past:
		return strings.Join(parts, " ") + " ago"
	default:
		return "in " + strings.Join(parts, " ")
	}
}
