package cron

import (
	"slices"
	"testing"
	"time"
)

// The effect of the rules for clock changes in real places, worked out by hand. oracle_test.go
// covers all other zones.
func TestClockChanges(t *testing.T) {
	for _, test := range []struct {
		what, zone, expr string
		rule             ClockChange
		from             string
		want             []string
	}{
		// Berlin, 29 March 2026: 02:00 is followed by 03:00.
		{"a skipped time runs right after the gap", "Europe/Berlin", "30 2 * * *", Vixie, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"a skipped time does not run", "Europe/Berlin", "30 2 * * *", Literal, "2026-03-28T12:00:00Z",
			[]string{"2026-03-30T02:30:00+02:00"}},
		{"a skipped time does not run", "Europe/Berlin", "30 2 * * *", SkipOnce, "2026-03-28T12:00:00Z",
			[]string{"2026-03-30T02:30:00+02:00"}},
		{"a skipped time runs an hour later", "Europe/Berlin", "30 2 * * *", ShiftOnce, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:30:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"a skipped time does not run", "Europe/Berlin", "30 2 * * *", SkipLast, "2026-03-28T12:00:00Z",
			[]string{"2026-03-30T02:30:00+02:00"}},
		{"several skipped times are one, with one that is there", "Europe/Berlin", "0,30 2-3 * * *", Vixie, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"shifted times fall together with those that are there", "Europe/Berlin", "0,30 2-3 * * *", ShiftOnce, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"shifted times among those that are there", "Europe/Berlin", "10 2,3 * * *", ShiftOnce, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:10:00+02:00", "2026-03-30T02:10:00+02:00"}},
		{"shifted times between those that are there", "Europe/Berlin", "5-55/10 1-3 29 3 *", ShiftOnce, "2026-03-29T00:50:00Z",
			[]string{"2026-03-29T01:55:00+01:00", "2026-03-29T03:05:00+02:00", "2026-03-29T03:15:00+02:00"}},
		{"the first and last moments of a gap", "Europe/Berlin", "0 2 * * *", Vixie, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"the last second of a gap", "Europe/Berlin", "59 59 2 * * *", Vixie, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:59:59+02:00"}},
		{"the last second before a gap", "Europe/Berlin", "59 59 1 * * *", Vixie, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:59:59+01:00", "2026-03-30T01:59:59+02:00"}},
		{"a wildcard schedule makes nothing up", "Europe/Berlin", "*/30 2 * * *", Vixie, "2026-03-28T12:00:00Z",
			[]string{"2026-03-30T02:00:00+02:00"}},
		{"a wildcard schedule follows real time", "Europe/Berlin", "30 * * * *", Vixie, "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"}},
		{"only days of the expression are made up", "Europe/Berlin", "30 2 28 3 *", Vixie, "2026-03-28T12:00:00Z",
			[]string{"2027-03-28T03:00:00+02:00", "2028-03-28T02:30:00+02:00"}},

		// Berlin, 25 October 2026: 03:00 is followed by 02:00.
		{"a repeated time runs on the first pass", "Europe/Berlin", "30 2 * * *", Vixie, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"a repeated time runs twice", "Europe/Berlin", "30 2 * * *", Literal, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"}},
		{"a repeated time runs on the first pass", "Europe/Berlin", "30 2 * * *", SkipOnce, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"a repeated time runs on the first pass", "Europe/Berlin", "30 2 * * *", ShiftOnce, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"a repeated time runs on the last pass", "Europe/Berlin", "30 2 * * *", SkipLast, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"}},
		{"both passes of a wildcard schedule", "Europe/Berlin", "30 * * * *", Vixie, "2026-10-24T23:00:00Z",
			[]string{"2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"}},
		{"one pass of a wildcard schedule", "Europe/Berlin", "30 * * * *", SkipOnce, "2026-10-24T23:00:00Z",
			[]string{"2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T03:30:00+01:00"}},
		{"one pass of a wildcard schedule", "Europe/Berlin", "30 * * * *", SkipLast, "2026-10-24T23:00:00Z",
			[]string{"2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"}},
		{"the first moment after a fold", "Europe/Berlin", "0 3 * * *", Vixie, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"}},
		{"from the second pass on", "Europe/Berlin", "15,45 2 * * *", Vixie, "2026-10-25T01:30:00Z",
			[]string{"2026-10-26T02:15:00+01:00"}},

		// Half an hour: Lord Howe, 4 October and 5 April 2026.
		{"a gap of half an hour", "Australia/Lord_Howe", "15 2 * * *", Vixie, "2026-10-03T00:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"a gap of half an hour", "Australia/Lord_Howe", "15 2 * * *", ShiftOnce, "2026-10-03T00:00:00Z",
			[]string{"2026-10-04T02:45:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"a fold of half an hour", "Australia/Lord_Howe", "45 1 * * *", Vixie, "2026-04-04T00:00:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"}},
		{"a fold of half an hour", "Australia/Lord_Howe", "45 1 * * *", SkipLast, "2026-04-04T00:00:00Z",
			[]string{"2026-04-05T01:45:00+10:30", "2026-04-06T01:45:00+10:30"}},

		// Two hours: Troll.
		{"a gap of two hours", "Antarctica/Troll", "30 1 * * *", Vixie, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T01:30:00+02:00"}},
		{"a gap of two hours", "Antarctica/Troll", "30 1 * * *", ShiftOnce, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:30:00+02:00", "2026-03-30T01:30:00+02:00"}},

		// Midnight.
		{"a midnight gap", "America/Sao_Paulo", "0 0 * * *", Vixie, "2018-11-03T12:00:00Z",
			[]string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"}},
		{"a midnight gap", "America/Sao_Paulo", "0 0 * * *", SkipOnce, "2018-11-03T12:00:00Z",
			[]string{"2018-11-05T00:00:00-02:00"}},
		{"a midnight gap", "Asia/Manila", "30 0 21 5 *", Vixie, "1990-01-01T00:00:00Z",
			[]string{"1990-05-21T01:00:00+09:00"}},
		{"a gap up to midnight", "Asia/Pyongyang", "45 23 * * *", Vixie, "2018-05-03T12:00:00Z",
			[]string{"2018-05-03T23:45:00+08:30", "2018-05-05T00:00:00+09:00", "2018-05-05T23:45:00+09:00"}},

		// Not daylight saving, and two more changes a year.
		{"the offset of a country changes", "America/Caracas", "45 2 * * *", Vixie, "2016-04-30T12:00:00Z",
			[]string{"2016-05-01T03:00:00-04:00", "2016-05-02T02:45:00-04:00"}},
		{"Ramadan begins", "Africa/Casablanca", "30 2 * * *", Vixie, "2026-02-14T12:00:00Z",
			[]string{"2026-02-15T02:30:00+01:00", "2026-02-16T02:30:00Z"}},
		{"Ramadan is over", "Africa/Casablanca", "30 2 * * *", Vixie, "2026-03-21T12:00:00Z",
			[]string{"2026-03-22T03:00:00+01:00", "2026-03-23T02:30:00+01:00"}},
		{"summer time doubles", "Europe/London", "30 2 * * *", Vixie, "1941-05-03T12:00:00Z",
			[]string{"1941-05-04T03:00:00+02:00", "1941-05-05T02:30:00+02:00"}},

		// Corrections of the clock: three hours and more.
		{"no dialect makes up three hours", "Antarctica/Casey", "30 1 * * *", Vixie, "2020-10-03T12:00:00Z",
			[]string{"2020-10-05T01:30:00+11:00"}},
		{"three hours are shifted if asked for", "Antarctica/Casey", "30 1 * * *", ShiftOnce, "2020-10-03T12:00:00Z",
			[]string{"2020-10-04T04:30:00+11:00", "2020-10-05T01:30:00+11:00"}},
		{"no dialect suppresses three hours", "Antarctica/Casey", "30 1 * * *", Vixie, "2020-03-07T12:00:00Z",
			[]string{"2020-03-08T01:30:00+11:00", "2020-03-08T01:30:00+08:00", "2020-03-09T01:30:00+08:00"}},
		{"the first of two passes if asked for", "Antarctica/Casey", "30 1 * * *", SkipOnce, "2020-03-07T12:00:00Z",
			[]string{"2020-03-08T01:30:00+11:00", "2020-03-09T01:30:00+08:00"}},
		{"a day is left out", "Pacific/Apia", "0 12 * * *", Vixie, "2011-12-29T00:00:00Z",
			[]string{"2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00", "2012-01-01T12:00:00+14:00"}},
		{"a day that is left out is not made up", "Pacific/Apia", "0 12 30 12 *", Vixie, "2011-12-01T00:00:00Z",
			[]string{"2012-12-30T12:00:00+14:00"}},
		{"a day that is left out is shifted if asked for", "Pacific/Apia", "0 12 30 12 *", ShiftOnce, "2011-12-01T00:00:00Z",
			[]string{"2011-12-31T12:00:00+14:00", "2012-12-30T12:00:00+14:00"}},
		{"New Year's Eve is left out", "Pacific/Kiritimati", "0 12 31 12 *", Vixie, "1994-12-01T00:00:00Z",
			[]string{"1995-12-31T12:00:00+14:00"}},
	} {
		e, err := Parse(test.expr, In(loadZone(t, test.zone)), WithClockChange(test.rule))
		if err != nil {
			t.Fatal(err)
		}
		got := sequence(t, e, test.from, len(test.want))
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q in %s (%s): got %v, want %v", test.what, test.expr, test.zone, test.rule, got, test.want)
		}
		// And back again.
		last, err := time.Parse(time.RFC3339, test.want[len(test.want)-1])
		if err != nil {
			t.Fatal(err)
		}
		at := last.Add(time.Second)
		for i := len(test.want) - 1; i >= 0; i-- {
			if at = e.Prev(at); stamp(at) != test.want[i] {
				t.Errorf("%s: %q in %s (%s), backwards: got %s, want %s", test.what, test.expr, test.zone, test.rule, stamp(at), test.want[i])
				break
			}
		}
	}
}

// The rules of a dialect are independent of the rules for clock changes.
func TestDialectsTakeEveryRule(t *testing.T) {
	berlin := loadZone(t, "Europe/Berlin")
	for _, test := range []struct {
		dialect Dialect
		expr    string
		rule    ClockChange
		want    string
	}{
		{Quartz, "0 30 2 ? * *", SkipLast, "2026-10-25T02:30:00+01:00"},
		{Quartz, "0 30 2 ? * *", Vixie, "2026-10-25T02:30:00+02:00"},
		{Vixie5, "30 2 * * *", SkipLast, "2026-10-25T02:30:00+01:00"},
		{Vixie5, "30 2 * * *", Vixie, "2026-10-25T02:30:00+02:00"},
	} {
		e, err := Parse(test.expr, In(berlin), WithDialect(test.dialect), WithClockChange(test.rule))
		if err != nil {
			t.Fatal(err)
		}
		if e.ClockChange() != test.rule || e.Dialect() != test.dialect || e.Zone() != berlin {
			t.Errorf("%q: %s, %s, %s are not what was asked for", test.expr, e.Dialect(), e.ClockChange(), e.Zone())
		}
		if got := e.Next(time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)); stamp(got) != test.want {
			t.Errorf("%q (%s, %s): Next is %s, want %s", test.expr, test.dialect, test.rule, stamp(got), test.want)
		}
	}
}
