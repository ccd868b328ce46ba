package cron

import (
	"testing"
	"time"
	"unsafe"
)

// The promised speed of the package on a quiet machine. The tests allow three times as much, times
// the slowness of the machine, so that they hold on a busy one and still notice a search that has
// become a loop.
const (
	promisedUTC   = 80 * time.Nanosecond
	promisedZone  = 120 * time.Nanosecond
	promisedRare  = 5 * time.Microsecond   // within 40 years
	promisedNever = 100 * time.Microsecond // beyond, or never
	promisedParse = 500 * time.Nanosecond
	promisedWords = 10 * time.Microsecond

	tolerance = 3
)

// speedCase is an expression whose speed is promised; the benchmarks have the
// same.
type speedCase struct {
	name, expr, zone string
	promised         time.Duration // for Next; Prev may take twice as long
}

// usualShapes are the expressions of most jobs.
var usualShapes = []struct{ name, expr string }{
	{"every minute", "* * * * *"},
	{"every 5 minutes", "*/5 * * * *"},
	{"hourly", "0 * * * *"},
	{"daily", "30 2 * * *"},
	{"weekdays", "0 9 * * 1-5"},
	{"monthly", "0 0 1 * *"},
	{"yearly", "0 0 1 1 *"},
}

func speedCases() []speedCase {
	var cases []speedCase
	for _, shape := range usualShapes {
		cases = append(cases,
			speedCase{shape.name, shape.expr, "UTC", promisedUTC},
			speedCase{shape.name, shape.expr, "America/New_York", promisedZone},
			speedCase{shape.name, shape.expr, "Africa/Casablanca", promisedZone})
	}
	for _, zone := range []string{"UTC", "America/New_York"} {
		cases = append(cases,
			speedCase{"29 February", "0 0 29 2 *", zone, promisedRare},
			speedCase{"29 February on a Monday", "0 0 29 2 +1", zone, promisedRare},
			speedCase{"a year", "0 0 0 1 1 * 2060", zone, promisedRare},
			speedCase{"last working day", "0 18 LW * *", zone, promisedRare},
			speedCase{"second Friday", "0 9 * * 5#2", zone, promisedRare},
			speedCase{"30 February", "0 0 30 2 *", zone, promisedNever},
			speedCase{"a year that is past", "0 0 0 1 1 * 2020", zone, promisedNever},
			speedCase{"the last year", "0 0 0 31 12 * 2199", zone, promisedNever},
			speedCase{"29 February 2100", "0 0 0 29 2 * 2100", zone, promisedNever},
		)
	}
	return cases
}

// speedFrom are the starting instants of searches: a single one may be an easy case.
var speedFrom = func() []time.Time {
	var from []time.Time
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 64 {
		at = at.Add(137*time.Hour + 7*time.Minute + 11*time.Second)
		from = append(from, at)
	}
	return from
}()

// fastest returns the time for one call of f: the best of short batches, as other load only makes a
// batch slower. While the best is too slow it continues, up to a bound.
func fastest(promised time.Duration, f func(time.Time) time.Time) time.Duration {
	const fewest, most = 5, 200
	best := time.Hour
	for batch := range most {
		if batch >= fewest && best <= promised {
			break
		}
		began := time.Now()
		for _, at := range speedFrom {
			sink = f(at)
		}
		best = min(best, time.Since(began)/time.Duration(len(speedFrom)))
	}
	return best
}

// slowness returns how many times as long as on a quiet machine some standard work takes now, at
// least 1.
func slowness() float64 {
	const quiet = 30 * time.Nanosecond
	took := fastest(quiet, func(at time.Time) time.Time { return at.AddDate(0, 1, 1) })
	return max(1, float64(took)/float64(quiet))
}

// wantFast requires that one call of f is fast enough.
func wantFast(t *testing.T, what string, promised time.Duration, f func(time.Time) time.Time) {
	t.Helper()
	const tries = 20 // f may be slowed down for a moment
	var took, allowed time.Duration
	for range tries {
		took, allowed = fastest(promised, f), tolerance*promised
		if took > allowed {
			allowed = time.Duration(float64(allowed) * slowness())
		}
		if took <= allowed {
			return
		}
	}
	t.Errorf("%s takes %v, promised is %v and %v is allowed here", what, took, promised, allowed)
}

// sink keeps the compiler from removing the measured calls.
var sink time.Time

func TestSearchesAreFast(t *testing.T) {
	if raceDetector {
		t.Log("built with -race: only allocations are checked, no times")
	}
	for _, c := range speedCases() {
		e, err := Parse(c.expr, In(loadZone(t, c.zone)))
		if err != nil {
			t.Fatal(err)
		}
		for _, direction := range []struct {
			name     string
			search   func(time.Time) time.Time
			promised time.Duration
		}{
			{"Next", e.Next, c.promised},
			{"Prev", e.Prev, 2 * c.promised},
		} {
			what := direction.name + " of " + c.name + " in " + c.zone
			if n := testing.AllocsPerRun(100, func() { sink = direction.search(speedFrom[0]) }); n != 0 {
				t.Errorf("%s allocates %v times", what, n)
			}
			if raceDetector {
				continue
			}
			wantFast(t, what, direction.promised, direction.search)
		}
	}
}

func TestDescribingIsFast(t *testing.T) {
	if raceDetector {
		t.Log("built with -race: no times are checked")
		return
	}
	for _, expr := range []string{"* * * * * *", "*/7 * * * * *", "30 2 * * *", "0,20,40 */7 9-17 * * 1-5", "* * 8,10,12 * * *"} {
		e, err := Parse(expr)
		if err != nil {
			t.Fatal(err)
		}
		wantFast(t, "describing "+expr, promisedWords, func(at time.Time) time.Time {
			_ = e.Describe(English)
			return at
		})
	}
}

func TestParsingIsFast(t *testing.T) {
	if raceDetector {
		t.Log("built with -race: no times are checked")
		return
	}
	zone := loadZone(t, "America/New_York")
	for _, shape := range usualShapes {
		wantFast(t, "parsing "+shape.expr, promisedParse, func(at time.Time) time.Time {
			if _, err := Parse(shape.expr, In(zone)); err != nil {
				t.Fatal(err)
			}
			return at
		})
	}
}

// A node may have a million of them.
func TestExpressionsAreSmall(t *testing.T) {
	const most = 100
	if size := unsafe.Sizeof(Expression{}) - unsafe.Sizeof((*Zone)(nil)); size > most {
		t.Errorf("an expression has %d bytes without its zone, promised are %d", size, most)
	}
}
