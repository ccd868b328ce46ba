package cron

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// short is set for tests before a commit, and under the race detector, which finds no more in more
// cases: they take a sample.
func short() bool { return testing.Short() || raceDetector }

// light returns the number of cases.
func light(full, sample int) int {
	if short() {
		return sample
	}
	return full
}

// watched returns the cases of a long list to try: under the race detector each tenth, since a
// single goroutine has no races.
func watched[T any](list []T) (some []T) {
	if !raceDetector {
		return list
	}
	for i := 0; i < len(list); i += 10 {
		some = append(some, list[i])
	}
	return some
}

func randomDialect(r *rand.Rand) Dialect { return Dialect(r.IntN(3)) }

// shiftedZones are zones with a change of the clock that is unusual, and the
// day it happened.
var shiftedZones = []struct{ zone, day, what string }{
	{"America/New_York", "2024-03-10", "one hour forward"},
	{"America/New_York", "2024-11-03", "one hour back"},
	{"Europe/London", "1941-05-04", "double summer time begins"},
	{"Europe/London", "1947-11-02", "summer time after double summer time ends"},
	{"Europe/London", "1947-04-13", "double summer time begins"},
	{"Europe/Berlin", "1945-05-24", "double summer time begins"},
	{"Europe/Berlin", "1945-09-24", "double summer time ends"},
	{"Europe/Berlin", "1947-06-29", "double summer time ends"},
	{"Europe/Amsterdam", "1937-07-01", "a change by seconds"},
	{"Africa/Monrovia", "1972-01-07", "a change by 44 minutes and 30 seconds"},
	{"Africa/Freetown", "1939-09-05", "a change four days after another"},
	{"Africa/Freetown", "1939-09-01", "a change four days before another"},
	{"Pacific/Apia", "2011-12-30", "a day left out"},
	{"Pacific/Fakaofo", "2011-12-30", "a day left out"},
	{"Pacific/Kiritimati", "1994-12-31", "a day left out"},
	{"Pacific/Kwajalein", "1969-10-01", "a day repeated, less an hour"},
	{"Pacific/Kwajalein", "1993-08-21", "a day left out"},
	{"Asia/Manila", "1990-05-21", "a midnight gap"},
	{"Antarctica/Casey", "2018-03-11", "three hours back"},
	{"Antarctica/Casey", "2018-10-07", "three hours forward"},
	{"Antarctica/Casey", "2020-10-04", "three hours forward at one past midnight"},
	{"Antarctica/Davis", "1964-10-31", "seven hours back"},
	{"Antarctica/Troll", "2024-03-31", "two hours forward"},
	{"Antarctica/Troll", "2024-10-27", "two hours back"},
	{"Antarctica/Vostok", "1994-11-01", "seven hours forward"},
	{"America/Danmarkshavn", "1996-01-01", "three hours forward"},
	{"Asia/Ust-Nera", "1981-03-31", "three hours forward"},
	{"Asia/Pyongyang", "2015-08-15", "half an hour back at midnight"},
	{"Asia/Pyongyang", "2018-05-05", "half an hour forward at half past eleven"},
	{"America/Caracas", "2007-12-09", "half an hour back"},
	{"America/Caracas", "2016-05-01", "half an hour forward"},
	{"Australia/Lord_Howe", "2024-04-07", "half an hour back"},
	{"Australia/Lord_Howe", "2024-10-06", "half an hour forward"},
	{"Australia/Lord_Howe", "1985-10-27", "an hour forward"},
	{"Africa/Casablanca", "2026-02-15", "Ramadan begins"},
	{"Africa/Casablanca", "2026-03-22", "Ramadan is over"},
	{"Africa/El_Aaiun", "2031-12-14", "Ramadan begins"},
	{"Africa/Juba", "2021-02-01", "one hour back at midnight"},
	{"Africa/Juba", "2000-01-15", "one hour forward at noon"},
	{"America/Sao_Paulo", "2018-11-04", "a midnight gap"},
	{"America/Sao_Paulo", "2018-02-18", "a midnight fold"},
	{"Asia/Beirut", "2022-03-27", "a midnight gap"},
	{"Africa/Cairo", "2024-04-26", "a midnight gap"},
	{"America/Havana", "2024-11-03", "a fold that ends at midnight"},
	{"America/Santiago", "2024-09-08", "a midnight gap"},
	{"Pacific/Chatham", "2024-09-29", "a quarter to three"},
	{"Asia/Kathmandu", "1986-01-01", "a quarter of an hour forward"},
	{"Asia/Gaza", "2011-08-01", "summer time interrupted"},
	{"America/St_Johns", "1988-04-03", "two hours forward"},
	{"America/St_Johns", "2006-10-29", "one past midnight"},
	{"Europe/Dublin", "2024-10-27", "negative summer time"},
	{"Europe/Moscow", "2014-10-26", "winter time for ever"},
	{"Asia/Shanghai", "1940-06-01", "a midnight gap"},
	{"America/New_York", "2199-03-10", "beyond the table of the zone"},
	{"Europe/Berlin", "2096-10-28", "beyond the table of the zone"},
}

// changesNear finds the changes of the clock about a day.
func changesNear(t *testing.T, zone *Zone, day string) []change {
	t.Helper()
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		t.Fatal(err)
	}
	return changesOf(zone.Location(), at.Unix()-2*24*3600, at.Unix()+2*24*3600)
}

func loadZone(t testing.TB, name string) *Zone {
	t.Helper()
	zone, err := LoadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// wallAround returns a wall of seconds for a change in a zone, from some hours before the skipped
// or repeated times to some hours after them.
func wallAround(zone *Zone, c change, hours int64) *wall {
	length := max(c.by, -c.by) + hours*3600
	return newWall(zone, c.at-length, c.at+length, 1)
}

// localRand returns a source of randomness for one of many subtests.
func localRand(i int) *rand.Rand { return rand.New(rand.NewPCG(*seedFlag, uint64(i))) }

func TestUnusualChangesMatchTheOracle(t *testing.T) {
	t.Logf("random with -seed %d", *seedFlag)
	for i, shifted := range shiftedZones {
		t.Run(shifted.zone+"/"+shifted.day, func(t *testing.T) {
			t.Parallel()
			r := localRand(i)
			zone := loadZone(t, shifted.zone)
			changes := changesNear(t, zone, shifted.day)
			if len(changes) == 0 {
				t.Fatalf("no change of the clock (%s) within two days", shifted.what)
			}
			for _, c := range changes {
				w := wallAround(zone, c, 3)
				for range light(60, 10) {
					w.compare(t, (&generator{r: r, dialect: randomDialect(r)}).on(w))
				}
				for range light(10, 2) {
					w.compareFromAnywhere(t, r, (&generator{r: r, dialect: randomDialect(r)}).on(w), 20)
				}
			}
		})
	}
}

// on returns an expression that mostly falls due on some day of a wall.
func (g *generator) on(w *wall) *meaning {
	for range 50 {
		n := g.expression()
		for _, day := range w.days() {
			if n.holdsOn(day) {
				return n
			}
		}
	}
	return g.expression()
}

// Days and times far apart, without clock changes: the oracle goes day by day over three hundred
// years.
func TestSequencesInUTCMatchTheOracle(t *testing.T) {
	r := newRand(t)
	days := calendar(1900, 2199)
	for range light(3000, 300) {
		n := (&generator{r: r, dialect: randomDialect(r)}).expression()
		e := n.compile(t, nil)
		from := time.Unix(-2208988800+r.Int64N(300*365*24*3600), 0).UTC()
		if r.IntN(2) == 0 {
			from = time.Date(2020+r.IntN(30), 1, 1, 0, 0, r.IntN(366*24*3600), 0, time.UTC)
		}
		want := days.after(n, from.Unix(), 5)
		at := from
		for i := range 5 {
			at = e.Next(at)
			if i == len(want) {
				if !at.IsZero() {
					t.Fatalf("%v from %s: occurrence %d is %s, the oracle has no more", n, stamp(from), i, stamp(at))
				}
				break
			}
			if at.Unix() != want[i] {
				t.Fatalf("%v from %s: occurrence %d is %s, the oracle has %s", n, stamp(from), i, stamp(at), stamp(time.Unix(want[i], 0).UTC()))
			}
		}
		want = days.before(n, from.Unix(), 5)
		at = from
		for i := range 5 {
			at = e.Prev(at)
			if i == len(want) {
				if !at.IsZero() {
					t.Fatalf("%v before %s: occurrence %d is %s, the oracle has no more", n, stamp(from), i, stamp(at))
				}
				break
			}
			if at.Unix() != want[i] {
				t.Fatalf("%v before %s: occurrence %d is %s, the oracle has %s", n, stamp(from), i, stamp(at), stamp(time.Unix(want[i], 0).UTC()))
			}
		}
	}
}

// daysOfUTC are the days of whole years, in order.
type daysOfUTC struct {
	first int64 // their first instant
	days  []moment
}

func calendar(from, to int) daysOfUTC {
	first := time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC)
	c := daysOfUTC{first: first.Unix()}
	for m := momentOf(first); int(m.year) <= to; m = m.plus(12 * 3600).plus(12 * 3600) {
		c.days = append(c.days, m)
	}
	return c
}

// after returns the first occurrences after an instant.
func (c daysOfUTC) after(n *meaning, from int64, most int) []int64 {
	var found []int64
	for i := max(0, (from-c.first)/86400); i < int64(len(c.days)) && len(found) < most; i++ {
		if !n.holdsOn(c.days[i]) {
			continue
		}
		for s := range int64(86400) {
			if u := c.first + i*86400 + s; u > from && len(found) < most && n.holdsAt(s) {
				found = append(found, u)
			}
		}
	}
	return found
}

// before returns the last occurrences before an instant, latest first.
func (c daysOfUTC) before(n *meaning, to int64, most int) []int64 {
	var found []int64
	for i := min(int64(len(c.days))-1, (to-c.first)/86400); i >= 0 && len(found) < most; i-- {
		if !n.holdsOn(c.days[i]) {
			continue
		}
		for s := int64(86399); s >= 0; s-- {
			if u := c.first + i*86400 + s; u < to && len(found) < most && n.holdsAt(s) {
				found = append(found, u)
			}
		}
	}
	return found
}

// holdsAt reports whether a second of the day is a time of the expression.
func (n *meaning) holdsAt(s int64) bool {
	return n.second[s%60] && n.minute[s/60%60] && n.hour[s/3600]
}

// Rare days over years with all clock changes. The walls have steps of a quarter of an hour, and so
// do all times.
func TestYearsOfQuarterHoursMatchTheOracle(t *testing.T) {
	t.Logf("random with -seed %d", *seedFlag)
	for i, place := range []struct {
		zone     string
		from, to int
	}{
		{"America/New_York", 2024, 2031},
		{"Europe/London", 1938, 1949},
		{"Africa/Casablanca", 2018, 2031},
		{"Australia/Lord_Howe", 2020, 2029},
		{"Pacific/Apia", 2007, 2015},
		{"America/Caracas", 2005, 2018},
		{"Antarctica/Troll", 2024, 2031},
		{"America/Sao_Paulo", 2011, 2020},
		{"Africa/Cairo", 2022, 2030},
		{"Europe/Berlin", 2090, 2099},
	} {
		t.Run(place.zone, func(t *testing.T) {
			t.Parallel()
			r := localRand(1000 + i)
			w := newWall(loadZone(t, place.zone),
				time.Date(place.from, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(place.to, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), 900)
			for range light(150, 15) {
				w.compare(t, (&generator{r: r, dialect: randomDialect(r), quarters: true}).expression())
			}
		})
	}
}

func TestNextAndPrevAreInverse(t *testing.T) {
	r := newRand(t)
	names := ZoneNames()
	for range light(30000, 3000) {
		n := (&generator{r: r, dialect: randomDialect(r)}).expression()
		zone := loadZone(t, names[r.IntN(len(names))])
		e := n.compile(t, zone)
		at := time.Unix(-2208988800+r.Int64N(9467107200), int64(r.IntN(2)*r.IntN(1e9)))
		if next := e.Next(at); !next.IsZero() {
			if !next.After(at) {
				t.Fatalf("%v in %s: Next(%s) = %s is not later", n, zone, stamp(at), stamp(next))
			}
			if back := e.Prev(next); !back.IsZero() && back.After(at) {
				t.Fatalf("%v in %s: Next(%s) = %s passed over %s", n, zone, stamp(at), stamp(next), stamp(back))
			}
			if again := e.Prev(next.Add(1)); !again.Equal(next) {
				t.Fatalf("%v in %s: Next(%s) = %s, but Prev just after it = %s", n, zone, stamp(at), stamp(next), stamp(again))
			}
		} else if last := e.Prev(time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)); !last.IsZero() && last.After(at) {
			t.Fatalf("%v in %s: Next(%s) found nothing, but Prev finds %s", n, zone, stamp(at), stamp(last))
		}
		if previous := e.Prev(at); !previous.IsZero() {
			if !previous.Before(at) {
				t.Fatalf("%v in %s: Prev(%s) = %s is not earlier", n, zone, stamp(at), stamp(previous))
			}
			if forth := e.Next(previous); !forth.IsZero() && forth.Before(at) {
				t.Fatalf("%v in %s: Prev(%s) = %s passed over %s", n, zone, stamp(at), stamp(previous), stamp(forth))
			}
			if again := e.Next(previous.Add(-1)); !again.Equal(previous) {
				t.Fatalf("%v in %s: Prev(%s) = %s, but Next just before it = %s", n, zone, stamp(at), stamp(previous), stamp(again))
			}
		} else if first := e.Next(time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC)); !first.IsZero() && first.Before(at) {
			t.Fatalf("%v in %s: Prev(%s) found nothing, but Next finds %s", n, zone, stamp(at), stamp(first))
		}
	}
}

// The race detector watches this one.
func TestExpressionsAreSharedBetweenGoroutines(t *testing.T) {
	shared, err := Parse("30 2 * * *", In(loadZone(t, "Europe/Rome")))
	if err != nil {
		t.Fatal(err)
	}
	thousandth := func() time.Time {
		at := time.Unix(1767225600, 0)
		for range 1000 {
			at = shared.Next(at)
		}
		return at
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := LoadZone("Europe/Vienna"); err != nil {
				t.Error(err)
			}
			if got, want := thousandth(), "2028-09-26T02:30:00+02:00"; stamp(got) != want {
				t.Errorf("the thousandth occurrence is %s, want %s", stamp(got), want)
			}
		})
	}
	group.Wait()
}
