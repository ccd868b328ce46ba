package cron

import (
	"math"
	"testing"
	"time"
)

func TestDatesAgreeWithTheTimePackage(t *testing.T) {
	at := time.Date(1890, 1, 1, 0, 0, 0, 0, time.UTC)
	for ; at.Year() < 2410; at = at.AddDate(0, 0, 1) {
		year, month, day := at.Date()
		want := Date{year, month, day}
		days := floorDiv(at.Unix(), secondsPerDay)
		if got := daysOf(want); got != days {
			t.Fatalf("daysOf(%v) = %d, want %d", want, got, days)
		}
		if got := dateOf(days); got != want {
			t.Fatalf("dateOf(%d) = %v, want %v", days, got, want)
		}
		if got := weekdayOf(days); got != int(at.Weekday()) {
			t.Fatalf("weekdayOf(%v) = %d, want %s", want, got, at.Weekday())
		}
		if got, want := lengthOfMonth(year, int(month)), time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day(); got != want {
			t.Fatalf("lengthOfMonth(%d, %d) = %d, want %d", year, month, got, want)
		}
	}
}

func TestDivisionRoundsDown(t *testing.T) {
	for _, test := range []struct{ a, b, want int64 }{
		{7, 5, 1}, {5, 5, 1}, {4, 5, 0}, {0, 5, 0}, {-1, 5, -1}, {-5, 5, -1}, {-6, 5, -2},
	} {
		if got := floorDiv(test.a, test.b); got != test.want {
			t.Errorf("floorDiv(%d, %d) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

// sequence returns the next n occurrences of an expression after an instant.
func sequence(t testing.TB, e *Expression, from string, n int) []string {
	t.Helper()
	at, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for range n {
		if at = e.Next(at); at.IsZero() {
			return append(found, "never")
		}
		found = append(found, stamp(at))
	}
	return found
}

// Special days by the calendar: 1 August 2026 is a Saturday, 31 October 2027 a Sunday, and February
// 2032 has five Sundays.
func TestSpecialDays(t *testing.T) {
	for _, test := range []struct {
		what, expr, from string
		want             []string
	}{
		{"the nearest weekday to a Saturday the 1st is Monday the 3rd", "0 0 1W * *", "2026-07-31T00:00:00Z",
			[]string{"2026-08-03T00:00:00Z", "2026-09-01T00:00:00Z"}},
		{"the nearest weekday to a Sunday the 31st is Friday the 29th", "0 0 31W * *", "2027-10-01T00:00:00Z",
			[]string{"2027-10-29T00:00:00Z", "2027-12-31T00:00:00Z"}},
		{"the nearest weekday to a Saturday is Friday", "0 0 15W * *", "2026-08-01T00:00:00Z",
			[]string{"2026-08-14T00:00:00Z", "2026-09-15T00:00:00Z"}},
		{"the nearest weekday to a Sunday is Monday", "0 0 15W * *", "2026-11-01T00:00:00Z",
			[]string{"2026-11-16T00:00:00Z", "2026-12-15T00:00:00Z"}},
		{"31W does not exist in a month of 30 days", "0 0 31W 6,7 *", "2026-01-01T00:00:00Z",
			[]string{"2026-07-31T00:00:00Z", "2027-07-30T00:00:00Z"}},
		{"all times of a moved day count", "0 8,20 1W 8 *", "2026-07-31T00:00:00Z",
			[]string{"2026-08-03T08:00:00Z", "2026-08-03T20:00:00Z", "2027-08-02T08:00:00Z"}},
		{"the last working day", "0 0 LW * *", "2026-10-01T00:00:00Z",
			[]string{"2026-10-30T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-31T00:00:00Z"}},
		{"the nearest weekday to three days before the last", "0 0 L-3W * *", "2026-11-01T00:00:00Z",
			[]string{"2026-11-27T00:00:00Z", "2026-12-28T00:00:00Z"}},
		{"the last day", "0 0 L 2 *", "2027-01-01T00:00:00Z",
			[]string{"2027-02-28T00:00:00Z", "2028-02-29T00:00:00Z"}},
		{"28 days before the last", "0 0 L-28 2-4 *", "2027-01-01T00:00:00Z",
			[]string{"2027-03-03T00:00:00Z", "2027-04-02T00:00:00Z", "2028-02-01T00:00:00Z"}},
		{"the fifth Sunday of February", "0 0 * 2 0#5", "2026-01-01T00:00:00Z",
			[]string{"2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z"}},
		{"the last Sunday of February", "0 0 * 2 0L", "2031-01-01T00:00:00Z",
			[]string{"2031-02-23T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"the first Monday that is the 1st", "0 0 1 * +1#1", "2026-06-01T00:00:00Z",
			[]string{"2027-02-01T00:00:00Z", "2027-03-01T00:00:00Z"}},
		{"the seventh is in the first week, the eighth in the second", "0 0 7,8 * +3#1,3#2", "2026-09-01T00:00:00Z",
			[]string{"2026-10-07T00:00:00Z", "2027-04-07T00:00:00Z", "2027-07-07T00:00:00Z", "2027-09-08T00:00:00Z"}},
		{"leap day over the end of a century", "0 0 29 2 *", "2092-03-01T00:00:00Z",
			[]string{"2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"}},
		{"the year 2000 is a leap year", "0 0 29 2 *", "1999-01-01T00:00:00Z",
			[]string{"2000-02-29T00:00:00Z", "2004-02-29T00:00:00Z"}},
		{"leap day on a Monday", "0 0 29 2 +1", "2026-01-01T00:00:00Z",
			[]string{"2044-02-29T00:00:00Z", "2072-02-29T00:00:00Z", "2112-02-29T00:00:00Z"}},
		{"named years", "0 0 0 1 1 * 2030-2036/3", "2026-01-01T00:00:00Z",
			[]string{"2030-01-01T00:00:00Z", "2033-01-01T00:00:00Z", "2036-01-01T00:00:00Z", "never"}},
		{"the first and last years that can be named", "0 0 0 1 1 * 1970,2199", "1900-01-01T00:00:00Z",
			[]string{"1970-01-01T00:00:00Z", "2199-01-01T00:00:00Z", "never"}},
		{"the end of the calendar", "59 59 23 * * *", "2199-12-30T12:00:00Z",
			[]string{"2199-12-30T23:59:59Z", "2199-12-31T23:59:59Z", "never"}},
		{"seconds", "58-2/2 59 23 31 12 *", "2026-12-31T23:58:59Z",
			[]string{"2026-12-31T23:59:00Z", "2026-12-31T23:59:02Z", "2026-12-31T23:59:58Z", "2027-12-31T23:59:00Z"}},
	} {
		e, err := Parse(test.expr)
		if err != nil {
			t.Errorf("%s: %v", test.what, err)
			continue
		}
		got := sequence(t, e, test.from, len(test.want))
		for i := range test.want {
			if i >= len(got) || got[i] != test.want[i] {
				t.Errorf("%s: %q after %s: got %v, want %v", test.what, test.expr, test.from, got, test.want)
				break
			}
		}
	}
}

func TestNextIsStrictlyAfterAndPrevStrictlyBefore(t *testing.T) {
	e, err := Parse("0 12 * * *")
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for _, test := range []struct {
		what       string
		at         time.Time
		next, prev time.Time
	}{
		{"just before", noon.Add(-1), noon, noon.Add(-day)},
		{"a second before", noon.Add(-time.Second), noon, noon.Add(-day)},
		{"at", noon, noon.Add(day), noon.Add(-day)},
		{"just after", noon.Add(1), noon.Add(day), noon},
		{"a second after", noon.Add(time.Second), noon.Add(day), noon},
		{"in another zone", noon.In(time.FixedZone("x", 3600)), noon.Add(day), noon.Add(-day)},
		{"before 1970", time.Date(1950, 1, 1, 12, 0, 0, 1, time.UTC), time.Date(1950, 1, 2, 12, 0, 0, 0, time.UTC), time.Date(1950, 1, 1, 12, 0, 0, 0, time.UTC)},
	} {
		if got := e.Next(test.at); !got.Equal(test.next) {
			t.Errorf("Next %s noon is %v, want %v", test.what, got, test.next)
		}
		if got := e.Prev(test.at); !got.Equal(test.prev) {
			t.Errorf("Prev %s noon is %v, want %v", test.what, got, test.prev)
		}
	}
}

// Occurrences are of the years 1900 to 2199, on the clock of the zone.
func TestSearchesEndWithTheCalendar(t *testing.T) {
	for _, name := range []string{"UTC", "America/New_York", "Asia/Tokyo", "Pacific/Kiritimati", "Pacific/Pago_Pago"} {
		zone := loadZone(t, name)
		for rule := Vixie; rule <= SkipLast; rule++ {
			e, err := Parse("0 12 * * *", In(zone), WithClockChange(rule))
			if err != nil {
				t.Fatal(err)
			}
			first, last := "1900-01-01T12:00", "2199-12-31T12:00"
			for _, at := range []time.Time{{}, time.Unix(math.MinInt64, 0), time.Unix(-1<<61, 0), time.Unix(-1<<40, 0), time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)} {
				if got := e.Next(at); got.Format("2006-01-02T15:04") != first {
					t.Errorf("%s (%s): Next(%v) = %s, want %s", name, rule, at, stamp(got), first)
				}
				if got := e.Prev(at); !got.IsZero() {
					t.Errorf("%s (%s): Prev(%v) = %s, want none", name, rule, at, stamp(got))
				}
			}
			for _, at := range []time.Time{time.Unix(math.MaxInt64, 0), time.Unix(1<<61, 0), time.Unix(1<<40, 0), time.Date(2200, 1, 2, 0, 0, 0, 0, time.UTC)} {
				if got := e.Prev(at); got.Format("2006-01-02T15:04") != last {
					t.Errorf("%s (%s): Prev(%v) = %s, want %s", name, rule, at, stamp(got), last)
				}
				if got := e.Next(at); !got.IsZero() {
					t.Errorf("%s (%s): Next(%v) = %s, want none", name, rule, at, stamp(got))
				}
			}
		}
	}
}
