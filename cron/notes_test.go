package cron

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNotes(t *testing.T) {
	const year = "2026-01-01 2027-01-01"
	berlinSpring := "on 29 March 2026 02:30 does not exist in Berlin: "
	berlinAutumn := "on 25 October 2026 02:30 comes twice in Berlin: "
	first, last := "on the first pass only (UTC+02:00)", "on the last pass only (UTC+01:00)"
	for _, c := range []struct {
		expr, zone, span string
		rule             ClockChange
		want             []string
	}{
		{"30 2 * * *", "Europe/Berlin", year, Vixie, []string{berlinSpring + "runs at 03:00", berlinAutumn + "runs " + first}},
		{"30 2 * * *", "Europe/Berlin", year, Literal, []string{berlinSpring + "does not run", berlinAutumn + "runs twice"}},
		{"30 2 * * *", "Europe/Berlin", year, SkipOnce, []string{berlinSpring + "does not run", berlinAutumn + "runs " + first}},
		{"30 2 * * *", "Europe/Berlin", year, ShiftOnce, []string{berlinSpring + "runs at 03:30", berlinAutumn + "runs " + first}},
		{"30 2 * * *", "Europe/Berlin", year, SkipLast, []string{berlinSpring + "does not run", berlinAutumn + "runs " + last}},

		// Several times land on one instant, with a regular one or without.
		{"0,30 2 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", Vixie, []string{"on 29 March 2026 02:00 and 02:30 do not exist in Berlin: run once at 03:00"}},
		{"0,30 2,3 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", Vixie, []string{"on 29 March 2026 02:00 and 02:30 do not exist in Berlin: run once at 03:00, together with the regular time"}},
		{"0 2,3 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", Vixie, []string{"on 29 March 2026 02:00 does not exist in Berlin: runs once at 03:00, together with the regular time"}},
		{"0 2,3 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", ShiftOnce, []string{"on 29 March 2026 02:00 does not exist in Berlin: runs at 03:00, together with the regular time"}},
		{"0,30 2,3 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", ShiftOnce, []string{"on 29 March 2026 02:00 and 02:30 do not exist in Berlin: run at 03:00 and 03:30, once where that is a regular time as well"}},
		{"5-59/6 2 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", ShiftOnce, []string{"on 29 March 2026 02:05, 02:11, 02:17, 02:23, 02:29, 02:35 and 4 more do not exist in Berlin: run 1 hour later"}},
		{"15 30 2 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", Vixie, []string{"on 29 March 2026 02:30:15 does not exist in Berlin: runs at 03:00:00"}},

		// Wildcards that continue through a change have no note.
		{"* * * * *", "Europe/Berlin", year, Vixie, nil},
		{"*/15 * * * *", "Europe/Berlin", year, Literal, nil},
		{"30 * * * *", "Europe/Berlin", year, Vixie, nil},
		{"*/15 * * * *", "Australia/Lord_Howe", year, Vixie, nil},
		{"* * * * *", "Pacific/Apia", "2011-12-01 2012-02-01", Vixie, nil},
		{"*/5 * * * 0", "Europe/Berlin", year, Vixie, nil},
		// These do not continue.
		{"*/20 2 * * *", "Europe/Berlin", year, Vixie, []string{"on 29 March 2026 02:00, 02:20 and 02:40 do not exist in Berlin: do not run", "on 25 October 2026 02:00, 02:20 and 02:40 come twice in Berlin: run twice"}},
		{"0 */2 * * *", "Europe/Berlin", year, Vixie, []string{"on 29 March 2026 02:00 does not exist in Berlin: does not run", "on 25 October 2026 02:00 comes twice in Berlin: runs twice"}},
		{"30 * * * *", "Europe/Berlin", year, SkipLast, []string{berlinAutumn + "runs " + last}},
		{"30 0-23 * * *", "Europe/Berlin", year, Vixie, []string{berlinSpring + "runs at 03:00", berlinAutumn + "runs " + first}},
		{"0 0-23 * * *", "Europe/Berlin", year, Vixie, []string{"on 25 October 2026 02:00 comes twice in Berlin: runs on the first pass only (UTC+02:00)"}},
		{"15 * * * *", "Australia/Lord_Howe", year, Vixie, []string{"on 4 October 2026 02:15 does not exist in Lord Howe: does not run"}},
		{"*/5 * 30 12 *", "Pacific/Apia", "2011-12-01 2012-02-01", Vixie, []string{"30 December 2011 does not exist in Apia: 00:00, 00:05, 00:10, 00:15, 00:20, 00:25 and 282 more do not run"}},

		// Times and days outside the change.
		{"0 8 * * *", "Europe/Berlin", year, Vixie, nil},
		{"30 2 * * 1-5", "Europe/Berlin", year, Vixie, nil},
		{"30 2 * * *", "UTC", year, Vixie, nil},

		// Corrections of the clock, midnight, other dates, small changes.
		{"30 2 * * *", "Pacific/Apia", "2011-12-01 2012-02-01", Vixie, []string{"30 December 2011 does not exist in Apia: 02:30 does not run"}},
		{"0 2 * * *", "Antarctica/Casey", "2018-01-01 2018-06-01", Vixie, []string{"on 11 March 2018 02:00 comes twice in Casey: runs twice"}},
		{"0 0 * * *", "America/Sao_Paulo", "2018-01-01 2018-12-01", Vixie, []string{"on 4 November 2018 00:00 does not exist in Sao Paulo: runs at 01:00"}},
		{"30 23 * * 6", "America/Nuuk", "2026-01-01 2026-06-01", Vixie, []string{"on 28 March 2026 23:30 does not exist in Nuuk: runs at 00:00 on 29 March 2026"}},
		{"0,30 0,23 * * *", "America/Toronto", "1919-03-01 1919-04-05", ShiftOnce, []string{"on 30 March 1919 23:30 and on 31 March 1919 00:00 do not exist in Toronto: run at 00:30 and 01:00 on 31 March 1919, once where that is a regular time as well"}},
		{"15 2 * * *", "Australia/Lord_Howe", year, ShiftOnce, []string{"on 4 October 2026 02:15 does not exist in Lord Howe: runs at 02:45"}},

		// Only changes between the two instants.
		{"30 2 * * *", "Europe/Berlin", "2026-03-30 2026-10-24", Vixie, nil},
		{"30 2 * * *", "Europe/Berlin", "2026-06-01 2026-01-01", Vixie, nil},
	} {
		e := mustParse(t, c.expr, In(loadZone(t, c.zone)), WithClockChange(c.rule))
		from, to := spanOf(t, c.span)
		if got := e.Notes(English, from, to); !slices.Equal(got, c.want) {
			t.Errorf("%q in %s under %s:\n got %q\nwant %q", c.expr, c.zone, c.rule, got, c.want)
		}
	}
}

// spanOf reads two dates.
func spanOf(t *testing.T, span string) (from, to time.Time) {
	t.Helper()
	first, second, _ := strings.Cut(span, " ")
	from, err := time.Parse(time.DateOnly, first)
	if err != nil {
		t.Fatal(err)
	}
	if to, err = time.Parse(time.DateOnly, second); err != nil {
		t.Fatal(err)
	}
	return from, to
}

func TestNotesInChinese(t *testing.T) {
	for _, c := range []struct {
		expr, zone, span string
		rule             ClockChange
		want             string
	}{
		{"30 2 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", Vixie, "2026年3月29日 02:30 在 Berlin 不存在：改在 03:00 运行"},
		{"30 2 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", Literal, "2026年3月29日 02:30 在 Berlin 不存在：不运行"},
		{"0,30 2 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", Vixie, "2026年3月29日 02:00 和 02:30 在 Berlin 不存在：合并在 03:00 运行一次"},
		{"0,30 2,3 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", Vixie, "2026年3月29日 02:00 和 02:30 在 Berlin 不存在：并入 03:00 的正常运行，只运行一次"},
		{"0,30 2,3 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", ShiftOnce, "2026年3月29日 02:00 和 02:30 在 Berlin 不存在：改在 03:00 和 03:30 运行，与正常时刻重合时只运行一次"},
		{"5-59/6 2 * * *", "Europe/Berlin", "2026-03-01 2026-04-01", ShiftOnce, "2026年3月29日 02:05、02:11、02:17、02:23、02:29、02:35 等 10 个时刻在 Berlin 不存在：推迟 1 小时运行"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-01 2026-11-01", Vixie, "2026年10月25日 02:30 在 Berlin 出现两次：只在第一次运行（UTC+02:00）"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-01 2026-11-01", SkipLast, "2026年10月25日 02:30 在 Berlin 出现两次：只在最后一次运行（UTC+01:00）"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-01 2026-11-01", Literal, "2026年10月25日 02:30 在 Berlin 出现两次：两次都运行"},
		{"30 2 * * *", "Pacific/Apia", "2011-12-01 2012-01-15", Vixie, "2011年12月30日在 Apia 不存在：02:30 不运行"},
		{"30 23 * * 6", "America/Nuuk", "2026-01-01 2026-06-01", Vixie, "2026年3月28日 23:30 在 Nuuk 不存在：改在 2026年3月29日 00:00 运行"},
	} {
		e := mustParse(t, c.expr, In(loadZone(t, c.zone)), WithClockChange(c.rule))
		from, to := spanOf(t, c.span)
		if got := e.Notes(Chinese, from, to); len(got) != 1 || got[0] != c.want {
			t.Errorf("%q in %s under %s:\n got %q\nwant %q", c.expr, c.zone, c.rule, got, c.want)
		}
	}
}

func TestLongNotesEndWithACount(t *testing.T) {
	e := mustParse(t, "30 2 * * *", In(loadZone(t, "Europe/Berlin")))
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		years       int
		english, zh string
		notes       int
	}{
		{5, "on 27 October 2030 02:30 comes twice in Berlin: runs on the first pass only (UTC+02:00)", "2030年10月27日 02:30 在 Berlin 出现两次：只在第一次运行（UTC+02:00）", notesMax},
		{10, "and 10 more changes of the clock", "另有 10 次时钟变更", notesMax + 1},
	} {
		to := from.AddDate(c.years, 0, 0)
		for lang, want := range []string{English: c.english, Chinese: c.zh} {
			got := e.Notes(Lang(lang), from, to)
			if len(got) != c.notes || got[len(got)-1] != want {
				t.Errorf("%d years: %d notes, the last %q, want %d and %q", c.years, len(got), got[len(got)-1], c.notes, want)
			}
		}
	}
}

// A list of occurrences often ends in the middle of a change.
func TestNotesReachChangesThatTheStretchOnlyTouches(t *testing.T) {
	berlin := loadZone(t, "Europe/Berlin")
	for _, c := range []struct {
		name, from, to string
		rule           ClockChange
		want           int
	}{
		{"ends with the first pass", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z", Vixie, 1},
		{"ends before the first pass", "2026-10-24T12:00:00Z", "2026-10-25T00:29:59Z", Vixie, 0},
		{"begins with the second pass", "2026-10-25T01:30:00Z", "2026-10-26T00:00:00Z", Vixie, 1},
		{"begins after the second pass", "2026-10-25T01:30:01Z", "2026-10-26T00:00:00Z", Vixie, 0},
		{"ends with the run that is made up", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z", Vixie, 1},
		{"ends with the run that is moved", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z", ShiftOnce, 1},
		{"begins with the run that is moved", "2026-03-29T01:30:00Z", "2026-03-30T00:00:00Z", ShiftOnce, 1},
		{"begins after the run that is moved", "2026-03-29T01:30:01Z", "2026-03-30T00:00:00Z", ShiftOnce, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, err := time.Parse(time.RFC3339, c.from)
			if err != nil {
				t.Fatal(err)
			}
			to, err := time.Parse(time.RFC3339, c.to)
			if err != nil {
				t.Fatal(err)
			}
			e := mustParse(t, "30 2 * * *", In(berlin), WithClockChange(c.rule))
			if got := e.Notes(English, from, to); len(got) != c.want {
				t.Errorf("%q, want %d notes", got, c.want)
			}
		})
	}
}

// A note must agree with Next. Without a note, runs must continue evenly through skipped or
// repeated times.
func TestNotesAgreeWithNext(t *testing.T) {
	r := newRand(t)
	zones := []string{
		"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Antarctica/Troll",
		"America/Sao_Paulo", "Antarctica/Casey", "America/Nuuk", "Asia/Pyongyang", "Africa/Casablanca",
	}
	noted := map[outcome]int{}
	quiet := 0
	for range light(4_000, 500) {
		zone := loadZone(t, zones[r.IntN(len(zones))])
		rule := ClockChange(r.IntN(5))
		words := strings.Fields(randomExpression(r))
		words[2] = []string{words[2], "*", "0-23", "0-4", "0,2"}[r.IntN(5)]
		// Most days, or almost no run at a change.
		e, err := Parse(strings.Join(words[:3], " ")+" * * "+[]string{"*", "*", "0", "6,0"}[r.IntN(4)], In(zone), WithClockChange(rule))
		if err != nil {
			t.Fatal(err)
		}
		runsAt := func(u int64) bool { return e.Next(time.Unix(u-1, 0)).Unix() == u }
		for i := max(1, len(zone.segments)-r.IntN(len(zone.segments))); i < len(zone.segments); i += 1 + r.IntN(40) {
			start := zone.segments[i].start
			before, after := zone.segments[i-1].offset, zone.segments[i].offset
			first, last, _ := e.changeAt(i)
			if c, ok := e.onOrAfter(first); !ok || c > last {
				continue
			}
			where := fmt.Sprintf("%q in %s under %s at %s", e, zone, rule, time.Unix(start, 0).UTC().Format(time.RFC3339))
			if !e.isNoted(i, start-secondsPerDay, start+secondsPerDay) {
				quiet++
				if !e.rulesOutDays() {
					checkGoesOn(t, where, runsAt, start)
				}
				continue
			}
			n := e.noteOf(i)
			noted[n.outcome]++
			for _, c := range n.times {
				firstRuns, lastRuns := runsAt(c-before), runsAt(c-after)
				ok := true
				switch n.outcome {
				case runTwice:
					ok = firstRuns && lastRuns
				case runFirst:
					ok = firstRuns && !lastRuns
				case runLast:
					ok = !firstRuns && lastRuns
				case notRun:
					ok = runsAt(start) == e.shows(start+after)
				}
				if !ok {
					t.Fatalf("%s: %q, but the first pass runs: %v, the last: %v", where, english{}.note(&n), firstRuns, lastRuns)
				}
			}
			for _, c := range n.runs {
				if !runsAt(c - after) {
					t.Fatalf("%s: %q, but there is no run", where, english{}.note(&n))
				}
			}
		}
	}
	for what := notRun; what <= runLast; what++ {
		if noted[what] == 0 {
			t.Errorf("no note with outcome %d was made", what)
		}
	}
	if quiet == 0 {
		t.Error("every change had a note")
	}
}

// checkGoesOn reports whether the hours around a change have runs at the same
// seconds.
func checkGoesOn(t *testing.T, where string, runsAt func(int64) bool, start int64) {
	t.Helper()
	for u := start - secondsPerHour; u < start; u++ {
		if runsAt(u) != runsAt(u+secondsPerHour) {
			t.Fatalf("%s: no note, but runs at %d and %d differ", where, u, u+secondsPerHour)
		}
	}
}

func ExampleExpression_Notes() {
	zone, err := LoadZone("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	e, err := Parse("30 2 * * *", In(zone))
	if err != nil {
		panic(err)
	}
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, note := range e.Notes(English, from, from.AddDate(1, 0, 0)) {
		fmt.Println(note)
	}
	// Output:
	// on 29 March 2026 02:30 does not exist in Berlin: runs at 03:00
	// on 25 October 2026 02:30 comes twice in Berlin: runs on the first pass only (UTC+02:00)
}
