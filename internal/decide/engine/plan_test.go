package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
)

const lookAhead = 15 * time.Second

func at(t testing.TB, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

func parse(t testing.TB, expr string) cron.Schedule {
	t.Helper()
	s, err := cron.ParseSchedule(expr)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func scheduled(d Decision) []string {
	var list []string
	for _, o := range d.Due {
		list = append(list, o.Scheduled.UTC().Format(time.RFC3339))
	}
	return list
}

func TestOccurrencesWithinTheLookAheadArePlanned(t *testing.T) {
	timing := Timing{Schedule: parse(t, "@every 5s"), Missed: job.MissedLatest, LateBy: time.Hour}
	d := timing.Decide(Progress{Cursor: at(t, "2026-11-20T12:00:00Z")}, at(t, "2026-11-20T12:00:01Z"), lookAhead, Most{1000, 1000})
	want := []string{"2026-11-20T12:00:05Z", "2026-11-20T12:00:10Z", "2026-11-20T12:00:15Z"}
	if got := scheduled(d); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !d.To.Equal(at(t, "2026-11-20T12:00:15Z")) || !d.Next.Equal(at(t, "2026-11-20T12:00:20Z")) || d.Complete {
		t.Errorf("cursor %s, next %s, complete %v", d.To, d.Next, d.Complete)
	}
	if again := timing.Decide(Progress{Cursor: d.To, Planned: 3}, at(t, "2026-11-20T12:00:01Z"), lookAhead, Most{1000, 1000}); len(again.Due) != 0 || !again.To.Equal(d.To) {
		t.Errorf("planned again from where it left: %v", scheduled(again))
	}
}

func TestMissedOccurrencesFollowTheirPolicy(t *testing.T) {
	for _, c := range []struct {
		name    string
		timing  Timing
		cursor  string
		due     []string
		missed  int
		lastOne string // of the missed
		to      string
	}{
		{
			name: "none", timing: Timing{Missed: job.MissedNone, LateBy: -1}, cursor: "2026-11-20T08:00:00Z",
			missed: 4, lastOne: "2026-11-20T12:00:00Z", to: "2026-11-20T12:00:00Z",
		},
		{
			name: "latest", timing: Timing{Missed: job.MissedLatest, LateBy: -1}, cursor: "2026-11-20T08:00:00Z",
			due:    []string{"2026-11-20T12:00:00Z"},
			missed: 3, lastOne: "2026-11-20T11:00:00Z", to: "2026-11-20T12:00:00Z",
		},
		{
			name: "all", timing: Timing{Missed: job.MissedAll, MissedLimit: 100, LateBy: -1}, cursor: "2026-11-20T10:00:00Z",
			due: []string{"2026-11-20T11:00:00Z", "2026-11-20T12:00:00Z"}, to: "2026-11-20T12:00:00Z",
		},
		{
			name: "all, beyond the limit", timing: Timing{Missed: job.MissedAll, MissedLimit: 2, LateBy: -1}, cursor: "2026-11-20T08:00:00Z",
			due:    []string{"2026-11-20T11:00:00Z", "2026-11-20T12:00:00Z"},
			missed: 2, lastOne: "2026-11-20T10:00:00Z", to: "2026-11-20T12:00:00Z",
		},
		{
			name: "all, but too late", timing: Timing{Missed: job.MissedAll, MissedLimit: 100, LateBy: time.Hour}, cursor: "2026-11-20T08:00:00Z",
			due:    []string{"2026-11-20T12:00:00Z"},
			missed: 3, lastOne: "2026-11-20T11:00:00Z", to: "2026-11-20T12:00:00Z",
		},
		{
			name: "latest, but too late", timing: Timing{Missed: job.MissedLatest, LateBy: 10 * time.Minute}, cursor: "2026-11-20T10:00:00Z",
			missed: 2, lastOne: "2026-11-20T12:00:00Z", to: "2026-11-20T12:00:00Z",
		},
		{
			name: "all, but few are left of max_runs", timing: Timing{Missed: job.MissedAll, MissedLimit: 100, LateBy: -1, MaxRuns: 2}, cursor: "2026-11-20T08:00:00Z",
			due: []string{"2026-11-20T09:00:00Z", "2026-11-20T10:00:00Z"}, to: "2026-11-20T10:00:00Z",
		},
		{
			name: "all that is not too late, but few are left of max_runs", timing: Timing{Missed: job.MissedAll, MissedLimit: 100, LateBy: 2 * time.Hour, MaxRuns: 1}, cursor: "2026-11-20T08:00:00Z",
			due:    []string{"2026-11-20T11:00:00Z"},
			missed: 2, lastOne: "2026-11-20T10:00:00Z", to: "2026-11-20T11:00:00Z",
		},
		{
			name: "latest, but few are left of max_runs", timing: Timing{Missed: job.MissedLatest, LateBy: -1, MaxRuns: 1}, cursor: "2026-11-20T10:00:00Z",
			due:    []string{"2026-11-20T12:00:00Z"},
			missed: 1, lastOne: "2026-11-20T11:00:00Z", to: "2026-11-20T12:00:00Z",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.timing.Schedule = parse(t, "0 * * * *")
			d := c.timing.Decide(Progress{Cursor: at(t, c.cursor)}, at(t, "2026-11-20T12:25:00Z"), lookAhead, Most{1000, 1000})
			if got := scheduled(d); !slices.Equal(got, c.due) {
				t.Errorf("due: got %v, want %v", got, c.due)
			}
			count, last := 0, ""
			for _, s := range d.Missed {
				count += s.Count
				last = s.Last.UTC().Format(time.RFC3339)
				if s.Reason.IsZero() {
					t.Error("missed without a reason")
				}
			}
			if count != c.missed || last != c.lastOne || len(d.Missed) > 1 {
				t.Errorf("missed: got %d up to %q in %d records, want %d up to %q in one", count, last, len(d.Missed), c.missed, c.lastOne)
			}
			if !d.To.Equal(at(t, c.to)) {
				t.Errorf("cursor: got %s, want %s", d.To, c.to)
			}
		})
	}
}

func TestNodeRestartIsNotDowntime(t *testing.T) {
	timing := Timing{Schedule: parse(t, "* * * * *"), Missed: job.MissedNone}
	d := timing.Decide(Progress{Cursor: at(t, "2026-11-20T12:00:00Z")}, at(t, "2026-11-20T12:01:30Z"), lookAhead, Most{1000, 1000})
	if got, want := scheduled(d), []string{"2026-11-20T12:01:00Z"}; !slices.Equal(got, want) || len(d.Missed) != 0 {
		t.Errorf("got %v and %d missed, want %v and none", got, len(d.Missed), want)
	}
}

// An occurrence delayed by spread and jitter stays on time even if a node was away at its scheduled
// time.
func TestFutureOccurrencesAreNotMissed(t *testing.T) {
	now := at(t, "2026-11-20T12:25:00Z")
	for _, c := range []struct {
		name           string
		spread, jitter time.Duration
	}{
		{"spread", 20 * time.Hour, 0},
		{"jitter", 0, 23 * time.Hour},
		{"both", 10 * time.Hour, 23 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			onTime := 0
			for i := range byte(50) {
				timing := Timing{
					UID: job.ID{i}, Schedule: parse(t, "0 0 * * *"), Spread: c.spread, Jitter: c.jitter,
					Missed: job.MissedNone, LateBy: time.Hour,
				}
				var due, missed []string
				for o := range cron.Between(timing.Schedule, now.AddDate(0, 0, -3), now) {
					if text := o.UTC().Format(time.RFC3339); timing.due(o, timing.Schedule.Next(o)).Before(now.Add(-OnTime)) {
						missed = append(missed, text)
					} else {
						due = append(due, text)
					}
				}
				onTime += len(due)
				d := timing.Decide(Progress{Cursor: now.AddDate(0, 0, -3)}, now, lookAhead, Most{1000, 1000})
				if got := scheduled(d); !slices.Equal(got, due) {
					t.Errorf("job %d: got %v, want %v", i, got, due)
				}
				if len(missed) > 0 && (len(d.Missed) != 1 || d.Missed[0].Count != len(missed)) || len(missed) == 0 && len(d.Missed) > 0 {
					t.Errorf("job %d: missed %v, want %v", i, d.Missed, missed)
				}

				// The latest that was due is caught up as long as it may start.
				timing.Missed = job.MissedLatest
				for _, o := range timing.Decide(Progress{Cursor: now.AddDate(0, 0, -3)}, now, lookAhead, Most{1000, 1000}).Due {
					if now.Sub(o.Due) > timing.LateBy {
						t.Errorf("job %d: caught up is %s, due %s", i, o.Scheduled, o.Due)
					}
				}
			}
			if onTime == 0 {
				t.Error("none of all was on time")
			}
		})
	}
}

func TestCostOfALongGapFollowsThePolicy(t *testing.T) {
	calls := 0
	timing := Timing{Schedule: counted{parse(t, "* * * * * *"), &calls}, Missed: job.MissedLatest, LateBy: -1}
	now := at(t, "2026-11-20T12:00:00Z")
	d := timing.Decide(Progress{Cursor: now.AddDate(-5, 0, 0)}, now, 0, Most{1000, 1000})
	if len(d.Missed) != 1 || d.Missed[0].Count != countMax {
		t.Fatalf("missed %v, want one record that counts to %d", d.Missed, countMax)
	}
	if want := now.Add(-OnTime - 2*time.Second); !d.Missed[0].Last.Equal(want) {
		t.Errorf("the last missed is %s, want %s", d.Missed[0].Last, want)
	}
	// The caught up occurrence, and the ones on time.
	if len(d.Due) != 32 || !d.Due[0].Scheduled.Equal(now.Add(-OnTime-time.Second)) {
		t.Errorf("%d due, the first scheduled for %s", len(d.Due), d.Due[0].Scheduled)
	}
	if calls > countMax+1000 {
		t.Errorf("asked the schedule %d times", calls)
	}
}

type counted struct {
	cron.Schedule
	calls *int
}

func (c counted) Next(t time.Time) time.Time {
	*c.calls++
	return c.Schedule.Next(t)
}

func TestJobsWithoutFurtherOccurrencesAreCompleted(t *testing.T) {
	now := at(t, "2026-11-20T12:00:00Z")
	once := Timing{Schedule: cron.At(now.Add(5 * time.Second)), LateBy: -1}
	if d := once.Decide(Progress{Cursor: now}, now, lookAhead, Most{1000, 1000}); len(d.Due) != 1 || !d.Complete {
		t.Errorf("a single instant: %d due, complete %v", len(d.Due), d.Complete)
	}
	three := Timing{Schedule: parse(t, "@every 1s"), MaxRuns: 3}
	if d := three.Decide(Progress{Cursor: now, Planned: 1}, now, lookAhead, Most{1000, 1000}); len(d.Due) != 2 || !d.Complete || !d.Next.IsZero() {
		t.Errorf("max_runs 3 after 1: %d due, complete %v, next %s", len(d.Due), d.Complete, d.Next)
	}
}

func TestJitterIsDeterministicAndStaysBeforeTheNextOccurrence(t *testing.T) {
	now := at(t, "2026-11-20T12:00:00Z")
	timing := Timing{UID: job.ID{7}, Schedule: parse(t, "@every 2s"), Jitter: time.Minute, Spread: 10 * time.Second}
	d, again := timing.Decide(Progress{Cursor: now}, now, time.Minute, Most{1000, 1000}), timing.Decide(Progress{Cursor: now}, now, time.Minute, Most{1000, 1000})
	if !slices.Equal(d.Due, again.Due) {
		t.Error("jitter differs from call to call")
	}
	different := map[time.Duration]bool{}
	for i, o := range d.Due {
		shift := o.Due.Sub(o.Scheduled)
		different[shift] = true
		if shift < 0 || shift >= 12*time.Second {
			t.Errorf("%s is due %s later, want less than the spread and the distance to the next", o.Scheduled, shift)
		}
		if i > 0 && !d.Due[i-1].Due.Before(o.Due) {
			t.Errorf("%s is due before the one before it", o.Scheduled)
		}
	}
	if len(different) < 5 {
		t.Errorf("only %d different shifts in %d occurrences", len(different), len(d.Due))
	}
}

// TestPlanningInStepsEqualsPlanningAtOnce moves the clock in small steps and in
// a large one. As long as no step is longer than OnTime, both plan the same.
func TestPlanningInStepsEqualsPlanningAtOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		expr := []string{"* * * * * *", "*/7 * * * * *", "* * * * *", "@every 90ms", "3,4,50 */2 * * * *"}[random.IntN(5)]
		timing := Timing{
			UID: job.ID{byte(random.IntN(256))}, Schedule: parse(t, expr),
			Missed: job.MissedAll, MissedLimit: 10, Jitter: time.Duration(random.IntN(3)) * time.Second,
			MaxRuns: random.IntN(2) * random.IntN(1000),
		}
		start := at(t, "2026-11-20T12:00:00Z").Add(time.Duration(random.Int64N(int64(time.Hour))))
		end := start.Add(time.Duration(random.Int64N(int64(90 * time.Second))))

		var steps []Occurrence
		cursor := start
		for now := start; ; now = now.Add(time.Duration(random.Int64N(int64(20 * time.Second)))) {
			now = minTime(now, end)
			for {
				d := timing.Decide(Progress{Cursor: cursor, Planned: len(steps)}, now, lookAhead, Most{1000, 1000})
				if len(d.Missed) > 0 {
					t.Fatalf("%q: missed %v without downtime", expr, d.Missed)
				}
				steps = append(steps, d.Due...)
				if d.To.Equal(cursor) {
					break
				}
				cursor = d.To
			}
			if now.Equal(end) {
				break
			}
		}

		var once []Occurrence
		for next := timing.Schedule.Next(start); !next.After(end.Add(lookAhead)); next = timing.Schedule.Next(next) {
			if timing.MaxRuns > 0 && len(once) == timing.MaxRuns {
				break
			}
			once = append(once, Occurrence{Scheduled: next, Due: timing.due(next, timing.Schedule.Next(next))})
			if n := len(once); n > 1 {
				once[n-2].NextDue = once[n-1].Due
			}
		}
		if n := len(once); n > 0 && n != timing.MaxRuns {
			once[n-1].NextDue = timing.dueAt(timing.Schedule.Next(once[n-1].Scheduled))
		}
		if !slices.Equal(steps, once) {
			t.Fatalf("%q from %s to %s, max_runs %d: %d in steps, %d at once", expr, start, end, timing.MaxRuns, len(steps), len(once))
		}
	}
}

// TestEveryOccurrenceIsAccountedFor plans after random downtimes: each occurrence
// is due or missed, once.
func TestEveryOccurrenceIsAccountedFor(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	for range 300 {
		expr := []string{"*/5 * * * * *", "* * * * *", "0,1,30 */3 * * *", "@every 25s"}[random.IntN(4)]
		timing := Timing{
			Schedule: parse(t, expr), Missed: []job.Missed{job.MissedNone, job.MissedLatest, job.MissedAll}[random.IntN(3)],
			MissedLimit: 1 + random.IntN(20), LateBy: time.Duration(random.IntN(4)-1) * 20 * time.Minute,
			Jitter: time.Duration(random.IntN(3)) * 20 * time.Minute, Spread: time.Duration(random.IntN(3)) * time.Hour,
		}
		start := at(t, "2026-11-20T12:00:00Z")
		now, from := start, Progress{Cursor: start}
		most := 1 + random.IntN(8)
		count := 0
		for range 5 {
			now = now.Add(time.Duration(random.Int64N(int64(8 * time.Hour))))
			for {
				d := timing.Decide(from, now, lookAhead, Most{most, most})
				count += len(d.Due)
				for _, s := range d.Missed {
					count += s.Count
					if due := timing.due(s.Last, timing.Schedule.Next(s.Last)); !due.Before(now.Add(-OnTime)) {
						t.Fatalf("%q: %s was missed at %s and is due at %s", expr, s.Last, now, due)
					}
				}
				for _, o := range d.Due {
					if !o.Scheduled.After(from.Cursor) || o.Scheduled.After(now.Add(lookAhead)) {
						t.Fatalf("%q: %s is outside of %s to %s", expr, o.Scheduled, from.Cursor, now)
					}
				}
				if d.To.Equal(from.Cursor) {
					break
				}
				from = Progress{Cursor: d.To, CatchUp: d.CatchUp}
			}
		}
		want := 0
		for range cron.Between(timing.Schedule, start, now.Add(lookAhead)) {
			want++
		}
		if count != want {
			t.Fatalf("%q, missed %s, late_by %s: %d are accounted for, %d fell due", expr, timing.Missed, timing.LateBy, count, want)
		}
	}
}

// TestCatchingUpInPartsEqualsCatchingUpAtOnce divides a gap: the same occurrences are caught up and
// missed as at once, although more are missed in between.
func TestCatchingUpInPartsEqualsCatchingUpAtOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 3))
	divided := 0
	for range 300 {
		expr := []string{"* * * * * *", "*/7 * * * * *", "* * * * *", "@every 25s"}[random.IntN(4)]
		timing := Timing{
			Schedule: parse(t, expr), Missed: job.MissedAll, MissedLimit: 1 + random.IntN(300), LateBy: -1,
			MaxRuns: random.IntN(2) * random.IntN(200), Jitter: time.Duration(random.IntN(3)) * 20 * time.Second,
		}
		if random.IntN(2) == 0 {
			timing.LateBy = time.Duration(random.Int64N(int64(4 * time.Hour)))
		}
		from := Progress{Cursor: at(t, "2026-11-20T12:00:00Z")}
		now := from.Cursor.Add(time.Duration(random.Int64N(int64(8 * time.Hour))))
		end := timing.Decide(from, now, 0, Most{1, 1}).CatchUp // of the gap
		if end.IsZero() {
			continue
		}
		inGap := func(d Decision) (due []Occurrence, missed int) {
			for _, o := range d.Due {
				if !o.Scheduled.After(end) {
					due = append(due, o)
				}
			}
			for _, s := range d.Missed {
				missed += s.Count
			}
			return due, missed
		}
		once, missedOnce := inGap(timing.Decide(from, now, 0, Most{1000, 1000}))

		var parts []Occurrence
		missed := 0
		for more := true; more; divided++ {
			d := timing.Decide(from, now, 0, Most{1 + random.IntN(50), 1 + random.IntN(50)})
			due, n := inGap(d)
			parts, missed = append(parts, due...), missed+n
			from = Progress{Cursor: d.To, Planned: from.Planned + len(d.Due), CatchUp: d.CatchUp}
			more = !d.CatchUp.IsZero()
			if timing.LateBy < 0 { // or more would be too late
				now = now.Add(time.Duration(random.IntN(60)) * time.Second)
			}
		}
		if !slices.Equal(parts, once) || missed != missedOnce {
			t.Fatalf("%q, limit %d, late_by %s: %d and %d missed in parts, %d and %d at once", expr, timing.MissedLimit, timing.LateBy, len(parts), missed, len(once), missedOnce)
		}
	}
	if divided < 300 {
		t.Errorf("only %d parts", divided)
	}
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
