package crontab

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// timer reads a unit of systemd.timer(5). Its job starts the service, so that what the
// service says about users, limits and directories keeps its meaning.
func (r *reader) timer(text string) {
	var t timer
	section := ""
	for number, line := range numbered(text) {
		trimmed := strings.Trim(line, blank)
		if strings.HasPrefix(trimmed, "[") {
			section = trimmed
		}
		key, value, ok := strings.Cut(trimmed, "=")
		if trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';' || !ok {
			continue
		}
		key, value = strings.Trim(key, blank), strings.Trim(value, blank)
		switch {
		case section == "[Unit]" && key == "Description":
			t.description = value
		case section == "[Timer]":
			t.set(number, line, key, value)
		}
	}
	if t.line.Text == "" { // nothing that says when
		t.line.Number = 1
		t.line.Text, _, _ = strings.Cut(text, "\n")
	}
	r.fromTimer(&t)
	r.lines = append(r.lines, t.line)
}

// timer is what the file of a timer says.
type timer struct {
	line        Line // the first one that says when
	description string
	unit        string
	schedule    job.Schedule
	zone        string
	persistent  bool
	delay       job.Duration
	fixedDelay  bool
}

func (t *timer) set(number int, line, key, value string) {
	switch {
	case !strings.HasPrefix(key, "On") || key == "OnClockChange" || key == "OnTimezoneChange":
	case t.line.Text == "":
		t.line.Number, t.line.Text = number, line
	}
	var err error
	switch key {
	case "Unit":
		t.unit = value
	case "Persistent":
		t.persistent = isTrue(value)
	case "FixedRandomDelay":
		t.fixedDelay = isTrue(value)
	case "RandomizedDelaySec":
		t.delay, err = span(value)
	case "OnUnitActiveSec":
		t.schedule.Every, err = span(value)
	case "OnUnitInactiveSec":
		t.schedule.AfterEnd, err = span(value)
	case "OnBootSec", "OnStartupSec", "OnActiveSec":
		t.schedule.Boot = true
		t.line.note(phrase.TimerWithoutDelay.Of(key, value))
	case "OnCalendar":
		if value == "" {
			t.schedule.Cron = nil // systemd begins the list again
			return
		}
		err = t.onCalendar(value)
	case "OnClockChange", "OnTimezoneChange":
		t.line.note(phrase.LeftOut.Of(key, phrase.ClockIsSet))
	}
	if err != nil && t.line.Problem.IsZero() {
		t.line.Problem = phrase.FieldGiven.Of(key, value, phrase.OfError(err))
	}
}

func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "1", "yes", "true", "on":
		return true
	}
	return false
}

func (r *reader) fromTimer(t *timer) {
	switch s := &t.schedule; {
	case !t.line.Problem.IsZero():
		return
	case len(s.Cron) == 0 && !s.Boot && s.Every == 0 && s.AfterEnd == 0:
		t.line.Problem = phrase.TimerWithoutTime
		return
	}
	if t.unit = cmp.Or(t.unit, r.Unit); t.unit == "" {
		t.line.Problem = phrase.UnitMissing
		return
	}
	j := &job.Job{
		Name: r.name(task{command: t.unit}), Description: t.description, Schedule: t.schedule,
		Run:    job.RunSpec{Shell: &job.Shell{Command: "systemctl", Args: []string{"start", literal(t.unit)}}},
		Policy: job.Policy{Missed: job.MissedNone},
	}
	if t.schedule.Boot && t.schedule.AfterEnd > 0 {
		j.Schedule.Boot = false // the chain begins with the job
	}
	if len(t.schedule.Cron) > 0 {
		if t.schedule.Every > 0 || t.schedule.AfterEnd > 0 {
			t.line.Problem = phrase.CalendarAndSpan
			return
		}
		j.Schedule.Timezone = r.Zone
		if t.zone != "" {
			j.Schedule.Timezone = t.zone
		}
	}
	switch {
	case t.delay > 0 && t.fixedDelay && t.schedule.AfterEnd == 0:
		j.Schedule.Spread = t.delay
	case t.delay > 0:
		j.Schedule.Jitter = t.delay
	}
	if t.persistent {
		catchUp(j)
	}
	if r.Host != "" {
		j.Place.Labels = map[string]string{"host": r.Host}
	}
	t.line.note(phrase.OneshotWaits)
	t.line.add(j)
}

// shorthands are the names of systemd.time(7) for whole expressions.
var shorthands = map[string]string{
	"minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "weekly": "Mon *-*-* 00:00:00",
	"monthly": "*-*-01 00:00:00", "quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": "*-01,07-01 00:00:00",
	"biannually": "*-01,07-01 00:00:00", "bi-annually": "*-01,07-01 00:00:00", "semi-annually": "*-01,07-01 00:00:00",
	"yearly": "*-01-01 00:00:00", "annually": "*-01-01 00:00:00",
}

// onCalendar adds an expression of systemd.time(7) to the schedule, in fields of cron.
func (t *timer) onCalendar(text string) error {
	if full := shorthands[strings.ToLower(text)]; full != "" {
		text = full
	}
	words := strings.Fields(text)
	if n := len(words); n > 1 && !strings.ContainsAny(words[n-1], ":*") && !isDate(words[n-1]) {
		zone, err := zoneNamed(words[n-1])
		if err != nil {
			return err
		}
		if t.zone != "" && t.zone != zone {
			return phrase.Mistake(phrase.TwoTimerZones.Of(zone, t.zone))
		}
		t.zone, words = zone, words[:n-1]
	}
	days, date, clock := "", "*-*-*", "00:00:00"
	for _, word := range words {
		switch {
		case strings.Contains(word, ":"):
			clock = word
		case isDate(word):
			date = word
		case days == "":
			days = word
		default:
			return phrase.Mistake(phrase.NeitherOfTimer.Of(phrase.Quoted(word)))
		}
	}
	year, month, day, err := dateFields(date)
	if err != nil {
		return err
	}
	second, minute, hour, err := clockFields(clock)
	if err != nil {
		return err
	}
	weekday := "*"
	if days != "" {
		list, err := weekdays(days)
		switch {
		case err != nil:
			return err
		case day == "*":
			weekday = strings.Join(list, ",")
		case len(t.schedule.Cron) > 0:
			return phrase.Mistake(phrase.BothDaysBounded)
		default:
			t.schedule.Only = list // cron takes either of the two, systemd both
		}
	}
	if days == "" && len(t.schedule.Only) > 0 {
		return phrase.Mistake(phrase.OtherDaysBounded)
	}
	expression := strings.Join([]string{minute, hour, day, month, weekday}, " ")
	if second != "0" || year != "*" {
		expression = second + " " + expression
	}
	if year != "*" {
		expression += " " + year
	}
	if _, err := cron.Parse(expression); err != nil {
		return phrase.Mistake(phrase.NotAsCron.Of(phrase.OfError(err)))
	}
	t.schedule.Cron = append(t.schedule.Cron, expression)
	return nil
}

// zoneNamed returns the name of a zone, whose case systemd ignores.
func zoneNamed(word string) (string, error) {
	_, err := cron.LoadZone(word)
	if unknown, ok := errors.AsType[*cron.UnknownZoneError](err); ok && strings.EqualFold(unknown.Suggestion, word) {
		return unknown.Suggestion, nil
	}
	return word, err
}

func isDate(word string) bool { return word != "" && strings.Trim(word, "0123456789*-~/.,") == "" }

func dateFields(date string) (year, month, day string, err error) {
	fromEnd := ""
	if rest, last, ok := strings.Cut(date, "~"); ok {
		date, fromEnd = rest, last
	}
	parts := strings.Split(date, "-")
	if fromEnd != "" {
		parts = append(parts, fromEnd)
	}
	switch len(parts) {
	case 2:
		parts = append([]string{"*"}, parts...)
	case 3:
	default:
		return "", "", "", phrase.Mistake(phrase.NotADate.Of(phrase.Quoted(date)))
	}
	for i := range parts {
		if parts[i], err = component(parts[i]); err != nil {
			return "", "", "", err
		}
	}
	parts[0] = wholeYears.ReplaceAllStringFunc(parts[0], wholeYear)
	if fromEnd != "" {
		n, err := strconv.Atoi(parts[2])
		if err != nil || n < 1 || n > 28 {
			return "", "", "", phrase.Mistake(phrase.FromEndOfMonth.Of(fromEnd))
		}
		if parts[2] = "L"; n > 1 {
			parts[2] = "L-" + strconv.Itoa(n-1)
		}
	}
	return parts[0], parts[1], parts[2], nil
}

// wholeYears matches the years of a component, and not its steps.
var wholeYears = regexp.MustCompile(`(^|[,-])\d{1,2}\b`)

// wholeYear returns a year that systemd.time(7) allows to be written with two digits, from 1970 on.
func wholeYear(text string) string {
	digits := strings.TrimLeft(text, ",-")
	n, _ := strconv.Atoi(digits)
	if n += 1900; n < 1970 {
		n += 100
	}
	return strings.TrimSuffix(text, digits) + strconv.Itoa(n)
}

func clockFields(clock string) (second, minute, hour string, err error) {
	parts := strings.Split(clock, ":")
	if len(parts) == 2 {
		parts = append(parts, "0")
	}
	if len(parts) != 3 {
		return "", "", "", phrase.Mistake(phrase.NotTimeOfTimer.Of(phrase.Quoted(clock)))
	}
	for i := range parts {
		if parts[i], err = component(parts[i]); err != nil {
			return "", "", "", err
		}
	}
	return parts[2], parts[1], parts[0], nil
}

// component writes a part of a date or time as cron does: ranges with a hyphen,
// numbers without zeros before them.
func component(text string) (string, error) {
	items := strings.Split(text, ",")
	for i, item := range items {
		value, step, stepped := strings.Cut(item, "/")
		from, to, ranged := strings.Cut(value, "..")
		for _, number := range []*string{&from, &to, &step} {
			if *number == "*" || *number == "" {
				continue
			}
			n, err := strconv.Atoi(*number)
			if err != nil {
				return "", phrase.Mistake(phrase.NoFractions.Of(phrase.Quoted(*number)))
			}
			*number = strconv.Itoa(n)
		}
		if items[i] = from; ranged {
			items[i] += "-" + to
		}
		if stepped {
			items[i] += "/" + step
		}
	}
	return strings.Join(items, ","), nil
}

// weekdays returns days of the week as schedule.only and cron have them.
func weekdays(text string) ([]string, error) {
	items := strings.Split(strings.TrimSuffix(text, ","), ",")
	for i, item := range items {
		from, to, ranged := strings.Cut(item, "..")
		if !ranged {
			from, to, ranged = strings.Cut(item, "-")
		}
		for _, name := range []*string{&from, &to} {
			if *name == "" && !ranged {
				continue
			}
			short := strings.ToLower(*name)
			if len(short) > 3 {
				short = short[:3]
			}
			if len(short) < 3 || !strings.Contains("mon tue wed thu fri sat sun", short) {
				return nil, phrase.Mistake(phrase.NotDayOfWeek.Of(phrase.Quoted(*name)))
			}
			*name = short
		}
		if items[i] = from; ranged {
			items[i] += "-" + to
		}
	}
	return items, nil
}

// units of systemd.time(7), with all their spellings.
var units = map[string]time.Duration{
	"": time.Second, "s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
	"ms": time.Millisecond, "msec": time.Millisecond, "us": time.Microsecond, "usec": time.Microsecond,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

// spanMax is the longest time of a timer that a job can have.
const spanMax = 3650 * 24 * time.Hour

// span reads a time of systemd.time(7), such as "1h 30min" or "90".
func span(text string) (job.Duration, error) {
	var sum time.Duration
	rest := strings.ReplaceAll(text, " ", "")
	if rest == "" {
		return 0, phrase.Mistake(phrase.TimeMissing)
	}
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil {
			return 0, phrase.Mistake(phrase.NotTimeOfTimer.Of(phrase.Quoted(text)))
		}
		rest = rest[digits:]
		letters := strings.IndexAny(rest, "0123456789")
		if letters < 0 {
			letters = len(rest)
		}
		unit, known := units[rest[:letters]]
		if !known {
			return 0, phrase.Mistake(phrase.NotUnitOfTime.Of(phrase.Quoted(rest[:letters])))
		}
		if n > int64(spanMax/unit) || sum+time.Duration(n)*unit > spanMax {
			return 0, phrase.Mistake(phrase.OverTenYears.Of(phrase.Quoted(text)))
		}
		sum += time.Duration(n) * unit
		rest = rest[letters:]
	}
	return job.Duration(sum), nil
}
