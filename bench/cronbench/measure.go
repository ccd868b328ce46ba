package cronbench

import (
	"slices"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

// Case is an expression to search for in a zone.
type Case struct{ Name, Expr, Zone string }

// Cases returns the usual shapes, a rare one and one that never falls due.
func Cases() []Case {
	var cases []Case
	for _, zone := range []string{"UTC", "America/New_York"} {
		for _, shape := range shapes {
			cases = append(cases, Case{shape.name, shape.expr, zone})
		}
		cases = append(cases,
			Case{"29 February", "0 0 29 2 *", zone},
			Case{"never: 30 February", "0 0 30 2 *", zone})
	}
	return cases
}

var shapes = []struct{ name, expr string }{
	{"every minute", "* * * * *"},
	{"every 5 minutes", "*/5 * * * *"},
	{"hourly", "0 * * * *"},
	{"daily", "30 2 * * *"},
	{"weekdays", "0 9 * * 1-5"},
	{"monthly", "0 0 1 * *"},
	{"yearly", "0 0 1 1 *"},
}

// instants are where searches begin: spread over two years, on all days of the
// week and at all hours, the nights of clock changes included.
func instants(zone *cron.Zone) []time.Time {
	var all []time.Time
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 128 {
		at = at.Add(137*time.Hour + 7*time.Minute + 11*time.Second)
		all = append(all, at.In(zone.Location()))
	}
	return all
}

// Effort bounds the time of a measurement.
type Effort struct {
	Rounds int
	Batch  time.Duration // of one library and case in one round
}

// The efforts of a table for the documentation, and of a test. Batches are shorter than the time
// slices of a system, so that most are uninterrupted even on a busy machine, and so is the median.
var (
	Full  = Effort{Rounds: 201, Batch: 200 * time.Microsecond}
	Quick = Effort{Rounds: 3, Batch: 100 * time.Microsecond}
)

// Timing is the time of one call, 0 if a library cannot express the case.
type Timing struct {
	Median time.Duration
	// Different is the number of instants from which the answer was not
	// Belfry's, of Instants.
	Different, Instants int
}

// task is a timed call: one library with one case.
type task struct {
	call  func(i int) // with increasing numbers
	calls int         // in one batch
	times []time.Duration
}

// run times tasks in turn, round after round, so that other load affects all of them alike.
func run(tasks []*task, effort Effort) {
	for _, t := range tasks {
		t.calibrate(effort.Batch)
	}
	for range effort.Rounds {
		for _, t := range tasks {
			t.times = append(t.times, t.batch())
		}
	}
}

// calibrate finds how many calls fill a batch.
func (t *task) calibrate(batch time.Duration) {
	for t.calls = 1; t.calls < 1<<20; t.calls *= 2 {
		if t.batch()*time.Duration(t.calls) >= batch {
			return
		}
	}
}

// batch returns the time of one call.
func (t *task) batch() time.Duration {
	began := time.Now()
	for i := range t.calls {
		t.call(i)
	}
	return time.Since(began) / time.Duration(t.calls)
}

func (t *task) median() time.Duration {
	slices.Sort(t.times)
	return t.times[len(t.times)/2]
}

// Next times each search of all libraries for all cases: a row for each case, a column for each
// library.
func Next(libraries []Library, cases []Case, effort Effort) ([][]Timing, error) {
	table := make([][]Timing, len(cases))
	for row, c := range cases {
		zone, err := cron.LoadZone(c.Zone)
		if err != nil {
			return nil, err
		}
		from := instants(zone)
		var expected []time.Time
		table[row] = make([]Timing, len(libraries))
		tasks := make([]*task, len(libraries))
		var all []*task
		for column, library := range libraries {
			search, err := library.Compile(c.Expr, zone)
			if err != nil {
				continue
			}
			cell := &table[row][column]
			cell.Instants = len(from)
			for i, at := range from {
				next := search(at)
				if column == 0 {
					expected = append(expected, next)
				}
				if !next.Equal(expected[i]) {
					cell.Different++
				}
			}
			t := &task{call: func(i int) { search(from[i%len(from)]) }}
			tasks[column] = t
			all = append(all, t)
		}
		run(all, effort)
		for column, t := range tasks {
			if t != nil {
				table[row][column].Median = t.median()
			}
		}
	}
	return table, nil
}

// Parse times the compilation of the usual shapes.
func Parse(libraries []Library, effort Effort) ([][]Timing, error) {
	zone, err := cron.LoadZone("America/New_York")
	if err != nil {
		return nil, err
	}
	table := make([][]Timing, len(shapes))
	for row, shape := range shapes {
		table[row] = make([]Timing, len(libraries))
		tasks := make([]*task, len(libraries))
		var all []*task
		for column, library := range libraries {
			if _, err := library.Compile(shape.expr, zone); err != nil || !library.ParseOnly {
				continue
			}
			t := &task{call: func(int) {
				if search, err := library.Compile(shape.expr, zone); err != nil || search == nil {
					panic(err) // it compiled before
				}
			}}
			tasks[column] = t
			all = append(all, t)
		}
		run(all, effort)
		for column, t := range tasks {
			if t != nil {
				table[row][column].Median = t.median()
			}
		}
	}
	return table, nil
}
