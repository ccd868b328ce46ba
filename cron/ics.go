package cron

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Event is an entry of a calendar file: its first and last day, and its title.
type Event struct {
	DateRange
	Summary string
}

// Bounds of a calendar file. One with the holidays of a country for fifty years
// has some hundred events.
const (
	maxICSLine   = 64 << 10
	maxICSEvents = 10_000
)

// ParseICS reads the events of an iCalendar file (RFC 5545), such as a list of public
// holidays: VEVENT entries with DTSTART, DTEND or DURATION in days, and yearly repetition.
// Times of day are ignored, and cancelled events skipped. Unknown content is an error with
// its line number, so that no holiday is lost silently.
func ParseICS(r io.Reader) ([]Event, error) {
	p := icsParser{scanner: bufio.NewScanner(r)}
	p.scanner.Buffer(nil, maxICSLine)
	var events []Event
	seen := false
	for {
		line, ok := p.next()
		if !ok {
			break
		}
		switch strings.ToUpper(line) {
		case "BEGIN:VCALENDAR":
			seen = true
		case "BEGIN:VEVENT":
			found, err := p.event()
			if err != nil {
				return nil, err
			}
			if events = append(events, found...); len(events) > maxICSEvents {
				return nil, onLine(p.line, phrase.Mistake(phrase.TooManyEvents.Of(maxICSEvents)))
			}
		}
	}
	if err := p.scanner.Err(); err != nil {
		return nil, onLine(p.line+1, err)
	}
	if !seen {
		return nil, phrase.Mistake(phrase.NotICS)
	}
	return events, nil
}

type icsParser struct {
	scanner *bufio.Scanner
	line    int    // the number of the last line read
	ahead   string // a line that was read ahead
	hasMore bool   // ahead is one
}

// next returns a line with its continuations, which begin with a blank.
func (p *icsParser) next() (string, bool) {
	line, ok := p.ahead, p.hasMore
	if p.hasMore = false; !ok {
		if !p.scanner.Scan() {
			return "", false
		}
		p.line++
		line = strings.TrimPrefix(p.scanner.Text(), "\ufeff")
	}
	for p.scanner.Scan() {
		p.line++
		more := p.scanner.Text()
		if more == "" || !isBlank(more[0]) {
			p.ahead, p.hasMore = more, true
			break
		}
		if line += more[1:]; len(line) > maxICSLine {
			break
		}
	}
	return strings.TrimRight(line, " \t"), true
}

// event reads the lines up to END:VEVENT.
func (p *icsParser) event() ([]Event, error) {
	var (
		e           Event
		end, rule   string
		started     bool
		cancelled   bool
		lasts       time.Duration
		hasDuration bool
	)
	begin := p.line
	for {
		line, ok := p.next()
		if !ok {
			return nil, onLine(begin, phrase.Mistake(phrase.EventWithout.Of("END:VEVENT")))
		}
		name, value, _ := strings.Cut(line, ":")
		name, _, _ = strings.Cut(strings.ToUpper(name), ";")
		var err error
		switch name {
		case "DTSTART":
			e.From, err = icsDate(value)
			started = true
		case "DTEND":
			_, err = icsDate(value)
			end = value
		case "DURATION":
			lasts, err = icsDuration(value)
			hasDuration = true
		case "RRULE":
			rule = value
		case "RDATE", "EXDATE":
			err = phrase.Mistake(phrase.OneEventEach.Of(name))
		case "SUMMARY":
			e.Summary = icsText.Replace(value)
		case "STATUS":
			cancelled = strings.EqualFold(value, "CANCELLED")
		case "BEGIN":
			// Lines of an alarm or another nested component do not belong to the event.
			for inner := "END:" + value; !strings.EqualFold(line, inner) && ok; {
				line, ok = p.next()
			}
		case "END":
			switch {
			case !started:
				return nil, onLine(begin, phrase.Mistake(phrase.EventWithout.Of("DTSTART")))
			case cancelled:
				return nil, nil
			case end != "":
				e.To = icsLastDay(end)
			case hasDuration && lasts > 0:
				e.To = dateOf(daysOf(e.From) + int64((lasts-1)/(24*time.Hour)))
			}
			if daysOf(e.To) < daysOf(e.From) {
				e.To = e.From
			}
			repeated, err := e.repeat(rule)
			if err != nil {
				return nil, onLine(begin, err)
			}
			return repeated, nil
		}
		if err != nil {
			return nil, onLine(p.line, err)
		}
	}
}

var icsText = strings.NewReplacer(`\n`, "\n", `\N`, "\n", `\,`, ",", `\;`, ";", `\\`, `\`)

// icsDate reads the date of "20261001" or "20261001T090000Z".
func icsDate(value string) (Date, error) {
	date, _, _ := strings.Cut(value, "T")
	t, err := time.Parse("20060102", date)
	if err != nil {
		return Date{}, phrase.Mistake(phrase.NotADate.Of(phrase.Quoted(value)))
	}
	year, month, day := t.Date()
	return Date{year, month, day}, nil
}

// icsLastDay returns the last day of an event that ends at value: an end at a date or midnight
// excludes that day.
func icsLastDay(value string) Date {
	d, _ := icsDate(value)
	if _, clock, timed := strings.Cut(value, "T"); !timed || strings.HasPrefix(clock, "000000") {
		return dateOf(daysOf(d) - 1)
	}
	return d
}

// icsDuration reads durations such as "P1D", "P2W" and "P1DT12H".
func icsDuration(value string) (time.Duration, error) {
	units := map[byte]time.Duration{
		'W': 7 * 24 * time.Hour, 'D': 24 * time.Hour, 'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	}
	rest, ok := strings.CutPrefix(strings.ToUpper(value), "P")
	var d time.Duration
	for ok && rest != "" {
		if rest[0] == 'T' {
			rest = rest[1:]
			continue
		}
		n := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || '9' < r })
		if n <= 0 || n > 4 || units[rest[n]] == 0 {
			ok = false
			break
		}
		d += time.Duration(number(rest[:n])) * units[rest[n]]
		rest = rest[n+1:]
	}
	if !ok {
		return 0, phrase.Mistake(phrase.NotDuration.Of(phrase.Quoted(value)))
	}
	return d, nil
}

// repeat returns the events of a recurrence rule.
func (e Event) repeat(rule string) ([]Event, error) {
	if rule == "" {
		return []Event{e}, nil
	}
	every, count, until := 1, lastYear, Date{Year: lastYear, Month: time.December, Day: 31}
	yearly := false
	for part := range strings.SplitSeq(strings.ToUpper(rule), ";") {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		switch name {
		case "FREQ":
			if yearly, err = value == "YEARLY", nil; !yearly {
				err = phrase.Mistake(phrase.OnlyYearly)
			}
		case "INTERVAL":
			every = n
		case "COUNT":
			count = n
		case "UNTIL":
			until, err = icsDate(value)
		case "WKST":
			err = nil
		case "BYMONTH":
			if err == nil && time.Month(n) != e.From.Month {
				err = phrase.Mistake(phrase.OtherMonth)
			}
		case "BYMONTHDAY":
			if err == nil && n != e.From.Day {
				err = phrase.Mistake(phrase.OtherDay)
			}
		default:
			err = phrase.Mistake(phrase.NotUnderstood.Of(name))
		}
		if err != nil || every < 1 || count < 1 {
			return nil, phrase.Mistake(phrase.RuleUnusable.Of(phrase.Quoted(rule), phrase.Quoted(e.Summary), phrase.OfError(orMalformed(err))))
		}
	}
	if !yearly {
		return nil, phrase.Mistake(phrase.RuleWithoutFreq.Of(phrase.Quoted(rule), phrase.Quoted(e.Summary)))
	}
	var events []Event
	length := daysOf(e.To) - daysOf(e.From)
	for year := e.From.Year; year <= lastYear && len(events) < count; year += every {
		from := Date{year, e.From.Month, e.From.Day}
		if from.Day > lengthOfMonth(year, int(from.Month)) {
			continue // 29 February
		}
		if daysOf(from) > daysOf(until) {
			break
		}
		to := dateOf(daysOf(from) + length)
		events = append(events, Event{DateRange: DateRange{from, to}, Summary: e.Summary})
	}
	return events, nil
}

func onLine(line int, err error) error {
	return phrase.Mistake(phrase.OnLine.Of(line, phrase.OfError(err)))
}

func orMalformed(err error) error {
	if err == nil {
		return phrase.Mistake(phrase.RuleMalformed)
	}
	return err
}
