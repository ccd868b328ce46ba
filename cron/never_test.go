package cron

import (
	"testing"
	"time"
)

func TestNeverReason(t *testing.T) {
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ expr, want string }{
		{"* * * * *", ""},
		{"0 0 29 2 *", ""},
		{"0 0 31 4-6 *", ""},
		{"0 0 30W 2,4 *", ""},
		{"0 0 L-28 2 *", ""},
		{"0 0 30 2 MON", ""},
		{"0 0 29 2 +MON", ""},
		{"0 0 0 1 1 * 2025-2027", ""},

		{"0 0 30 2 *", "February has no day 30"},
		{"0 0 30,31 2 *", "February has no day 30 or 31"},
		{"0 0 31 4,6 *", "April and June have no day 31"},
		{"0 0 30W 2 *", "February has no day 30"},
		{"0 0 30,30W 2 *", "February has no day 30"},
		{"0 0 L-30 2 *", "February has no 30th day before the last day"},
		{"0 0 30,L-29W 2 *", "February has no day 30 and no 29th day before the last day"},
		{"0 0 30 2 +MON", "February has no day 30"},
		{"0 0 1 1 +MON#5", "no day satisfies day of month, month and day of week together"},

		{"0 0 0 * * * 2020", "the year 2020 is past"},
		{"0 0 0 * * * 2019,2020", "the last year that it names, 2020, is past"},
		{"0 0 0 1 1 * 2026", "its last occurrence, 2026-01-01T00:00:00Z, is past"},
		{"0 0 0 29 2 * 2020,2027", "its last occurrence, 2020-02-29T00:00:00Z, is past"},

		{"0 0 0 29 2 * 2027", "29 February 2027 does not exist"},
		{"0 0 0 29 2 * 2019", "29 February 2019 does not exist"},
		{"0 0 0 29 2 * 2027,2029", "29 February does not exist in the years 2027 and 2029"},
		{"0 0 0 29,30 2 * 2027", "February has no day 29 or 30 in 2027"},
		{"0 0 0 30 2 * 2027", "February has no day 30"},
		{"0 0 0 L-28 2 * 2027", "February has no 28th day before the last day in 2027"},
		{"0 0 0 * 2 MON#5 2027", "there is no fifth Monday in February of 2027"},
		{"0 0 0 30 2 MON#5 2027", "there is neither such a day of month nor such a day of week in February of 2027"},
		{"0 0 0 13 6 +FRI 2027", "13 June 2027 is a Sunday"},
		{"0 0 0 13 6 +FRI 2027,2028", "no day satisfies day of month, month and day of week together in the years 2027 and 2028"},
		{"0 0 0 1 1 +MON#5 2027", "no day satisfies day of month, month and day of week together"},
	} {
		if got := mustParse(t, c.expr).NeverReason(now); got != c.want {
			t.Errorf("%q: %q, want %q", c.expr, got, c.want)
		}
	}
}

func TestNeverReasonNamesTheZoneThatSkipsAllTimes(t *testing.T) {
	e := mustParse(t, "0 30 2 28 3 * 2027", In(loadZone(t, "Europe/Berlin")), WithClockChange(Literal))
	const want = "the clock of Europe/Berlin skips all times that it names"
	if got := e.NeverReason(time.Unix(0, 0)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNeverReasonAtTheHorizon(t *testing.T) {
	const want = "expressions end with the year 2199"
	if got := mustParse(t, "0 0 1 1 *").NeverReason(time.Date(2199, 6, 1, 0, 0, 0, 0, time.UTC)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEveryScheduleThatNeverFallsDueHasAReason(t *testing.T) {
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	r := newRand(t)
	never := 0
	for range light(20_000, 5_000) {
		e := mustParse(t, randomExpression(r))
		due := !e.Next(now).IsZero()
		if reason := e.NeverReason(now); due != (reason == "") {
			t.Fatalf("%q: falls due: %v, reason: %q", e, due, reason)
		}
		if !due {
			never++
		}
	}
	if never < 50 {
		t.Fatalf("only %d expressions never fall due", never)
	}
}
