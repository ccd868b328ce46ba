package robfig

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

// Schedule returns the next time of an entry after a given one; the zero time is never.
type Schedule interface{ Next(time.Time) time.Time }

// ScheduleParser reads expressions.
type ScheduleParser interface {
	Parse(spec string) (Schedule, error)
}

// ParseOption selects the fields of expressions.
type ParseOption int

// The fields of an expression, and its other allowed forms.
const (
	Second         ParseOption = 1 << iota // a field for seconds, at the beginning
	SecondOptional                         // a field for seconds that may be left out
	Minute
	Hour
	Dom
	Month
	Dow
	DowOptional // a field for weekdays that may be left out
	Descriptor  // @daily, @every 1h and their like
)

// Parser reads expressions with certain fields. Use [NewParser].
type Parser struct{ options ParseOption }

// NewParser returns a parser. Omitted fields are at the beginning or the end: 0 for
// seconds, minutes and hours, * for the others.
// It panics for two optional fields, since an expression could not say which of them it has.
func NewParser(options ParseOption) Parser {
	if options&SecondOptional != 0 && options&DowOptional != 0 {
		panic("robfig.NewParser: SecondOptional and DowOptional exclude each other")
	}
	return Parser{options}
}

var standard = NewParser(Minute | Hour | Dom | Month | Dow | Descriptor)

// ParseStandard reads an expression with five fields, or a descriptor.
func ParseStandard(spec string) (Schedule, error) { return standard.Parse(spec) }

// otherSchedule is the schedule of an expression that robfig/cron does not know, such as L in a day field.
type otherSchedule struct {
	text     string
	location *time.Location // nil for the zone of the Cron
	next     cron.Schedule
}

// Next returns the next time after a moment, in the zone of the moment.
func (s *otherSchedule) Next(t time.Time) time.Time {
	next := s.next.Next(t)
	if next.IsZero() {
		return next
	}
	return next.In(t.Location())
}

// within returns the schedule in the zone of a [Cron].
func (s *otherSchedule) within(location *time.Location) (*otherSchedule, error) {
	if s.location != nil {
		return s, nil
	}
	next, err := cron.ParseSchedule(s.text, cron.In(cron.NewZone(location)), cron.WithClockChange(cron.Literal))
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", s.text, err)
	}
	return &otherSchedule{s.text, location, next}, nil
}

// ConstantDelaySchedule is due after a delay, again and again.
type ConstantDelaySchedule struct{ Delay time.Duration }

// Every returns a delay in whole seconds, at least one.
func Every(d time.Duration) ConstantDelaySchedule {
	return ConstantDelaySchedule{max(time.Second, d.Truncate(time.Second))}
}

// Next returns the time after a delay, in whole seconds.
func (s ConstantDelaySchedule) Next(t time.Time) time.Time {
	return t.Add(s.Delay - time.Duration(t.Nanosecond()))
}

// epochDelay is a delay that counts from 1970-01-01T00:00:00Z, so that all instances mean the same times.
type epochDelay struct{ ConstantDelaySchedule }

// Next returns the next time after a moment.
func (s epochDelay) Next(t time.Time) time.Time {
	since := t.Sub(time.Unix(0, 0))
	return t.Add(s.Delay - since%s.Delay)
}

// Parse reads an expression.
func (p Parser) Parse(spec string) (Schedule, error) {
	location := time.Local
	if rest, found := cutZone(spec); found {
		zone, behind, ok := strings.Cut(rest, " ")
		if !ok {
			return nil, fmt.Errorf("expression %q: there is nothing behind the zone", spec)
		}
		known, err := cron.LoadZone(zone)
		if err != nil {
			return nil, err
		}
		if location, spec = known.Location(), behind; zone == "UTC" {
			location = time.UTC
		}
	}
	spec = strings.TrimSpace(spec)
	if strings.HasPrefix(spec, "@") {
		if p.options&Descriptor == 0 {
			return nil, fmt.Errorf("expression %q: this parser takes no descriptors", spec)
		}
		if text, is := strings.CutPrefix(spec, "@every "); is {
			d, err := time.ParseDuration(text)
			if err != nil {
				return nil, fmt.Errorf("expression %q: %w", spec, err)
			}
			return Every(d), nil
		}
		if fields, is := descriptors[strings.ToLower(spec)]; is {
			return parse(strings.Fields(fields), location)
		}
		return parse([]string{spec}, location)
	}
	fields, err := p.fields(strings.Fields(spec))
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", spec, err)
	}
	return parse(fields, location)
}

func cutZone(spec string) (rest string, found bool) {
	for _, prefix := range []string{"TZ=", "CRON_TZ="} {
		if rest, found := strings.CutPrefix(spec, prefix); found {
			return rest, true
		}
	}
	return "", false
}

// fields returns all six fields, including those that this parser omits.
func (p Parser) fields(given []string) ([]string, error) {
	places := [...]struct{ is, optional ParseOption }{{Second, SecondOptional}, {Minute, 0}, {Hour, 0}, {Dom, 0}, {Month, 0}, {Dow, DowOptional}}
	defaults := [...]string{"0", "0", "0", "*", "*", "*"}
	least, most := 0, 0
	for _, f := range places {
		switch {
		case p.options&f.is != 0:
			least++
			most++
		case f.optional != 0 && p.options&f.optional != 0:
			most++
		}
	}
	if len(given) < least || len(given) > most {
		want := fmt.Sprint(least)
		if most > least {
			want = fmt.Sprintf("%d to %d", least, most)
		}
		return nil, fmt.Errorf("it has %d fields, want %s", len(given), want)
	}
	spare := len(given) - least
	all := make([]string, len(places))
	for i, f := range places {
		all[i] = defaults[i]
		optional := f.optional != 0 && p.options&f.optional != 0 && p.options&f.is == 0
		if p.options&f.is == 0 && (!optional || spare == 0) {
			continue
		}
		if optional {
			spare--
		}
		all[i], given = given[0], given[1:]
	}
	return all, nil
}

// descriptors are the names of schedules.
var descriptors = map[string]string{
	"@yearly": "0 0 0 1 1 *", "@annually": "0 0 0 1 1 *", "@monthly": "0 0 0 1 * *", "@weekly": "0 0 0 * * 0",
	"@daily": "0 0 0 * * *", "@midnight": "0 0 0 * * *", "@hourly": "0 0 * * * *",
}

// parse compiles an expression as robfig/cron reads it, and else as package cron does.
func parse(fields []string, location *time.Location) (Schedule, error) {
	if len(fields) == len(fieldBounds) {
		if s, ok := specOf(fields, location); ok {
			return s, nil
		}
	}
	s, err := (&otherSchedule{text: strings.Join(fields, " ")}).within(location)
	if err != nil {
		return nil, err
	}
	if location == time.Local {
		s.location = nil
	}
	return s, nil
}
