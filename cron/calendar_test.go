package cron

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// dates parses "2026-10-01" and "2026-10-01..2026-10-07".
func dates(t *testing.T, ranges ...string) []DateRange {
	t.Helper()
	var list []DateRange
	for _, text := range ranges {
		from, to, found := strings.Cut(text, "..")
		if !found {
			to = from
		}
		first, err := ParseDate(from)
		if err != nil {
			t.Fatal(err)
		}
		last, err := ParseDate(to)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, DateRange{first, last})
	}
	return list
}

var mondayToFriday = WeekdaysOf(time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday)

// chinaOctober2026 is the working days around the National Day holidays: seven
// days off, and two working days at weekends for them.
func chinaOctober2026(t *testing.T) *Calendar {
	return NewCalendar(mondayToFriday, dates(t, "2026-09-20", "2026-10-10"), dates(t, "2026-10-01..2026-10-07"))
}

func TestCalendarOfAdjustedWorkingDays(t *testing.T) {
	calendar := chinaOctober2026(t)
	for _, c := range []struct {
		date string
		want bool
	}{
		{"2026-09-19", false}, // a Saturday
		{"2026-09-20", true},  // a Sunday that is a working day
		{"2026-09-30", true},
		{"2026-10-01", false}, // a Thursday, holiday
		{"2026-10-07", false}, // a Wednesday, holiday
		{"2026-10-08", true},
		{"2026-10-10", true}, // a Saturday that is a working day
		{"2026-10-11", false},
	} {
		if got := calendar.Contains(dates(t, c.date)[0].From); got != c.want {
			t.Errorf("%s is a working day: got %v, want %v", c.date, got, c.want)
		}
	}
}

func TestFilteredOccurrences(t *testing.T) {
	berlin, err := LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	holidays := func(ranges ...string) []Days { return []Days{NewCalendar(0, dates(t, ranges...), nil)} }
	nineToFive := []TimeRange{{From: 9 * time.Hour, To: 17 * time.Hour}}
	for _, c := range []struct {
		name   string
		expr   string
		zone   *Zone
		filter Filter
		from   string
		want   []string
	}{
		{
			name: "only working days", expr: "0 9 * * *",
			filter: Filter{Only: Rules{Days: []Days{chinaOctober2026(t)}}},
			from:   "2026-09-29T10:00:00Z",
			want:   []string{"2026-09-30T09:00:00Z", "2026-10-08T09:00:00Z", "2026-10-09T09:00:00Z", "2026-10-10T09:00:00Z", "2026-10-12T09:00:00Z"},
		},
		{
			name: "not on holidays", expr: "0 9 * * *",
			filter: Filter{Except: Rules{Days: holidays("2026-12-25..2026-12-26")}},
			from:   "2026-12-24T10:00:00Z",
			want:   []string{"2026-12-27T09:00:00Z"},
		},
		{
			name: "moved to the next working day, in order of time", expr: "0 9,10 * * 6,1",
			filter: Filter{Only: Rules{Days: []Days{mondayToFriday}}, OffDay: OffDayNext},
			from:   "2026-11-20T12:00:00Z",
			want:   []string{"2026-11-23T09:00:00Z", "2026-11-23T10:00:00Z", "2026-11-30T09:00:00Z"},
		},
		{
			name: "moved to the next day, from days that end later", expr: "0 12 * * 6",
			filter: Filter{Only: Rules{Days: []Days{mondayToFriday}}, OffDay: OffDayNext},
			from:   "2026-11-20T13:00:00Z",
			want:   []string{"2026-11-23T12:00:00Z", "2026-11-30T12:00:00Z"},
		},
		{
			name: "moved to the previous working day", expr: "0 12 L * *",
			filter: Filter{Only: Rules{Days: []Days{mondayToFriday}}, OffDay: OffDayPrevious},
			from:   "2026-01-01T00:00:00Z", // 31 January is a Saturday, and so is 28 February
			want:   []string{"2026-01-30T12:00:00Z", "2026-02-27T12:00:00Z", "2026-03-31T12:00:00Z", "2026-04-30T12:00:00Z", "2026-05-29T12:00:00Z"},
		},
		{
			name: "not moved further than 31 days", expr: "0 12 1 1 *",
			filter: Filter{Except: Rules{Days: holidays("2027-01-01..2027-02-01")}, OffDay: OffDayNext},
			from:   "2026-12-01T00:00:00Z",
			want:   []string{"2028-01-01T12:00:00Z"},
		},
		{
			name: "moved by 31 days", expr: "0 12 1 1 *",
			filter: Filter{Except: Rules{Days: holidays("2027-01-01..2027-01-31")}, OffDay: OffDayNext},
			from:   "2026-12-01T00:00:00Z",
			want:   []string{"2027-02-01T12:00:00Z", "2028-01-01T12:00:00Z"},
		},
		{
			name: "the last one moves although nothing follows", expr: "0 0 12 26 12 * 2026",
			filter: Filter{Only: Rules{Days: []Days{mondayToFriday}}, OffDay: OffDayNext},
			from:   "2026-12-01T00:00:00Z", // a Saturday
			want:   []string{"2026-12-28T12:00:00Z", ""},
		},
		{
			name: "times of day", expr: "0 */4 * * *",
			filter: Filter{Only: Rules{Times: nineToFive}},
			from:   "2026-11-20T00:00:00Z",
			want:   []string{"2026-11-20T12:00:00Z", "2026-11-20T16:00:00Z", "2026-11-21T12:00:00Z"},
		},
		{
			name: "a time range past midnight, less a part of it", expr: "0 * * * *",
			filter: Filter{
				Only:   Rules{Times: []TimeRange{{From: 22 * time.Hour, To: 2 * time.Hour}}},
				Except: Rules{Times: []TimeRange{{From: 23 * time.Hour, To: 24 * time.Hour}}},
			},
			from: "2026-11-20T12:00:00Z",
			want: []string{"2026-11-20T22:00:00Z", "2026-11-21T00:00:00Z", "2026-11-21T01:00:00Z", "2026-11-21T22:00:00Z"},
		},
		{
			name: "every second, at times of working days", expr: "* * * * * *",
			filter: Filter{Only: Rules{Days: []Days{mondayToFriday}, Times: nineToFive}},
			from:   "2026-11-20T16:59:58Z",
			want:   []string{"2026-11-20T16:59:59Z", "2026-11-23T09:00:00Z", "2026-11-23T09:00:01Z"},
		},
		{
			name: "dates are those of the zone", expr: "30 0 * * *", zone: berlin,
			filter: Filter{Only: Rules{Days: []Days{mondayToFriday}}},
			from:   "2026-11-20T12:00:00Z",
			want:   []string{"2026-11-22T23:30:00Z", "2026-11-23T23:30:00Z"},
		},
		{
			name: "moved into a gap of the clock", expr: "30 2 * * 6", zone: berlin,
			filter: Filter{Except: Rules{Days: []Days{WeekdaysOf(time.Saturday)}}, OffDay: OffDayNext},
			from:   "2026-03-27T12:00:00Z",
			want:   []string{"2026-03-29T01:00:00Z", "2026-04-05T00:30:00Z"},
		},
		{
			name: "moved out of a gap of the clock", expr: "30 2 * * *", zone: berlin,
			filter: Filter{Only: Rules{Days: []Days{mondayToFriday}}, OffDay: OffDayNext},
			from:   "2026-03-28T00:00:00Z", // 28 and 29 March are Saturday and Sunday
			want:   []string{"2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"},
		},
		{
			name: "rules that leave nothing", expr: "* * * * * *",
			filter: Filter{Only: Rules{Days: []Days{WeekdaysOf()}}},
			from:   "2026-11-20T12:00:00Z",
			want:   []string{""},
		},
		{
			name: "a day far away", expr: "0 0 * * *",
			filter: Filter{Only: Rules{Days: holidays("2060-01-01")}},
			from:   "2026-11-20T12:00:00Z",
			want:   []string{"2060-01-01T00:00:00Z", ""},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := Parse(c.expr, In(c.zone))
			if err != nil {
				t.Fatal(err)
			}
			filter := c.filter
			filter.Schedule, filter.Zone = e, c.zone
			at, err := time.Parse(time.RFC3339, c.from)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for range c.want {
				at = filter.Next(at)
				if at.IsZero() {
					got = append(got, "")
					break
				}
				got = append(got, at.UTC().Format(time.RFC3339))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestFilterAgreesWithMovingEveryOccurrence compares the search with a simple method: move each
// occurrence, then sort.
func TestFilterAgreesWithMovingEveryOccurrence(t *testing.T) {
	zone, err := LoadZone("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	calendar := NewCalendar(mondayToFriday, dates(t, "2026-03-07", "2026-11-01"), dates(t, "2026-03-03..2026-03-06", "2026-10-20..2026-11-27", "2026-12-24..2027-01-01"))
	from := time.Date(2026, 2, 20, 0, 0, 0, 0, time.UTC)
	until := time.Date(2027, 2, 20, 0, 0, 0, 0, time.UTC)
	for _, expr := range []string{"30 2 * * *", "30 2 * * 0", "0 */5 * * *", "15 1,23 * * 0,6", "0 0 1,15,L * *", "*/20 1 * * *", "0 12 29 2 *"} {
		e, err := Parse(expr, In(zone))
		if err != nil {
			t.Fatal(err)
		}
		clock, err := Parse(expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range []OffDay{OffDaySkip, OffDayNext, OffDayPrevious} {
			filter := Filter{
				Schedule: e, Zone: zone, OffDay: off,
				Only:   Rules{Days: []Days{calendar}},
				Except: Rules{Times: []TimeRange{{From: 5 * time.Hour, To: 11 * time.Hour}}},
			}
			got := slices.Collect(Between(&filter, from, until))
			want := movedByHand(&filter, clock, from, until)
			if !slices.EqualFunc(got, want, time.Time.Equal) {
				t.Errorf("%q, off days %s: got %d occurrences, want %d\n%v\n%v", expr, off, len(got), len(want), got, want)
			}
		}
	}
}

// movedByHand takes the occurrences of the schedule on included days, and moves those on excluded
// days, by the same clock in UTC.
func movedByHand(f *Filter, clock *Expression, from, until time.Time) []time.Time {
	var all []time.Time
	margin := 40 * 24 * time.Hour
	hasTime := func(second int64) bool {
		out, at := f.Except.Times[0], time.Duration(second)*time.Second
		return at < out.From || out.To <= at
	}
	hasDay := func(day int64) bool { return f.Only.Days[0].Contains(dateOf(day)) }
	for due := range Between(f.Schedule, from.Add(-margin), until.Add(margin)) {
		c := f.Zone.civil(due)
		if day := floorDiv(c, secondsPerDay); hasTime(c-day*secondsPerDay) && hasDay(day) {
			all = append(all, due)
		}
	}
	step := map[OffDay]int64{OffDayNext: 1, OffDayPrevious: -1}[f.OffDay]
	for last := range Between(clock, from.Add(-margin), until.Add(margin)) {
		day := floorDiv(last.Unix(), secondsPerDay)
		if step == 0 || hasDay(day) || !hasTime(last.Unix()-day*secondsPerDay) {
			continue
		}
		for n := int64(1); n <= 31; n++ {
			if hasDay(day + n*step) {
				all = append(all, f.Zone.at(last.Unix()+n*step*secondsPerDay))
				break
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	all = slices.CompactFunc(all, time.Time.Equal)
	return slices.DeleteFunc(all, func(t time.Time) bool { return !t.After(from) || t.After(until) })
}

func TestICSEvents(t *testing.T) {
	const file = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\n" +
		"BEGIN:VTIMEZONE\r\nDTSTART:16010101T000000\r\nEND:VTIMEZONE\r\n" +
		"BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261001\r\nDTEND;VALUE=DATE:20261008\r\nSUMMARY:National\r\n  Day\\, 7 days\r\nEND:VEVENT\r\n" +
		"BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261010\r\nSUMMARY:补班\r\nBEGIN:VALARM\r\nDURATION:nonsense\r\nEND:VALARM\r\nEND:VEVENT\r\n" +
		"BEGIN:VEVENT\r\nDTSTART:20261224T120000Z\r\nDURATION:P1DT12H\r\nEND:VEVENT\r\n" +
		"BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261225\r\nSTATUS:CANCELLED\r\nEND:VEVENT\r\n" +
		"BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20260101\r\nRRULE:FREQ=YEARLY;COUNT=3\r\nSUMMARY:New Year\r\nEND:VEVENT\r\n" +
		"END:VCALENDAR\r\n"
	events, err := ParseICS(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.From.String()+" "+e.To.String()+" "+e.Summary)
	}
	want := []string{
		"2026-10-01 2026-10-07 National Day, 7 days",
		"2026-10-10 2026-10-10 补班",
		"2026-12-24 2026-12-25 ",
		"2026-01-01 2026-01-01 New Year",
		"2027-01-01 2027-01-01 New Year",
		"2028-01-01 2028-01-01 New Year",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestICSMistakesNameTheirLine(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"no calendar", "2026-10-01\n", "no iCalendar file"},
		{"a date that is none", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261301\nEND:VEVENT\n", `line 4: "20261301" is not a date`},
		{"no start", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VEVENT\n", "no DTSTART"},
		{"no end", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261001\n", "no END:VEVENT"},
		{"a weekly rule", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261001\nRRULE:FREQ=WEEKLY\nEND:VEVENT\n", "only FREQ=YEARLY"},
		{"a rule with a weekday", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261001\nRRULE:FREQ=YEARLY;BYDAY=1MO\nEND:VEVENT\n", "BYDAY is not understood"},
		{"an exception", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261001\nEXDATE:20271001\nEND:VEVENT\n", "EXDATE is not understood"},
		{"a duration that is none", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261001\nDURATION:7\nEND:VEVENT\n", "not a duration"},
	} {
		_, err := ParseICS(strings.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one with %q", c.name, err, c.want)
		}
	}
}
