package robfig

import (
	"fmt"
	"os"
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

// Parser reads expressions with certain fields. Use NewParser.
type Parser struct{ options ParseOption }

// NewParser returns a parser. Omitted fields are at the beginning or the end: 0 for
// seconds, minutes and hours, * for the others.
func NewParser(options ParseOption) Parser { return Parser{options} }

var standard = NewParser(Minute | Hour | Dom | Month | Dow | Descriptor)

// ParseStandard reads an expression with five fields, or a descriptor.
func ParseStandard(spec string) (Schedule, error) { return standard.Parse(spec) }

// SpecSchedule is the schedule of an expression.
type SpecSchedule struct {
	expression string // as package cron reads it
	zone       string // "" for that of the Cron
	next       cron.Schedule
}

// Next returns the next time after a moment, in its zone.
func (s *SpecSchedule) Next(t time.Time) time.Time {
	next := s.next.Next(t)
	if next.IsZero() {
		return next
	}
	return next.In(t.Location())
}

// ConstantDelaySchedule is due at a fixed rate.
type ConstantDelaySchedule struct{ Delay time.Duration }

// Every returns a fixed rate in whole seconds, at least one, counted from 1970-01-01T00:00:00Z.
func Every(d time.Duration) ConstantDelaySchedule {
	return ConstantDelaySchedule{max(time.Second, d.Truncate(time.Second))}
}

// Next returns the next time after a moment.
func (s ConstantDelaySchedule) Next(t time.Time) time.Time {
	since := t.Sub(time.Unix(0, 0))
	return t.Add(s.Delay - since%s.Delay)
}

// Parse reads an expression.
func (p Parser) Parse(spec string) (Schedule, error) {
	zone := ""
	if rest, found := cutZone(spec); found {
		var ok bool
		if zone, spec, ok = strings.Cut(rest, " "); !ok {
			return nil, fmt.Errorf("expression %q: there is nothing behind the zone", spec)
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
		return parse(spec, zone)
	}
	fields, err := p.fields(strings.Fields(spec))
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", spec, err)
	}
	return parse(strings.Join(fields, " "), zone)
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

// parse compiles an expression.
func parse(expression, zone string) (Schedule, error) {
	options := []cron.Option{}
	if zone != "" {
		z, err := cron.LoadZone(zone)
		if err != nil {
			return nil, err
		}
		options = append(options, cron.In(z))
	}
	s, err := cron.ParseSchedule(expression, options...)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", expression, err)
	}
	return &SpecSchedule{expression, zone, s}, nil
}

// in returns the schedule in the zone of a Cron.
func (s *SpecSchedule) in(location *time.Location) (Schedule, error) {
	name := location.String()
	if location == time.Local {
		name = localZone()
	}
	return parse(s.expression, name)
}

// localZone returns the IANA name of the zone of this machine, UTC if it has none.
func localZone() string {
	if name := strings.TrimPrefix(os.Getenv("TZ"), ":"); name != "" && !strings.HasPrefix(name, "/") {
		return name
	}
	target, err := os.Readlink("/etc/localtime")
	if _, name, found := strings.Cut(target, "zoneinfo/"); err == nil && found {
		return name
	}
	return "UTC"
}
