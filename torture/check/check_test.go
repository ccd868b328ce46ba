package check

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/torture/record"
)

var origin = time.Unix(1_800_000_000, 0)

func at(seconds float64) time.Time {
	return origin.Add(time.Duration(seconds*1e6+0.5) * time.Microsecond)
}

var limits = Limits{Tolerance: 5 * time.Millisecond, Grace: time.Second / 2, Limit: 10 * time.Second}

// jobs: each second until 20; the same, but paused from 8 to 12; each second with runs of 2.5 s that must not overlap.
func jobs() []Job {
	return []Job{
		{Name: "second", Phases: []Phase{{From: at(0), To: at(20), Every: time.Second}}},
		{Name: "paused", Phases: []Phase{
			{From: at(0), To: at(8), Every: time.Second},
			{From: at(8), To: at(8.5), Every: time.Second, Optional: true},
			{From: at(8.5), To: at(12)},
			{From: at(12), To: at(20), Every: time.Second},
		}},
		{Name: "long", Sleep: 2500 * time.Millisecond, NoOverlap: true, Phases: []Phase{{From: at(0), To: at(20), Every: time.Second}}},
	}
}

type history struct {
	known bool
	pid   int
	lines []string
}

func (h *history) run(job string, scheduled, start, end float64) {
	h.pid++
	e := record.Event{Job: job, PID: h.pid, Start: at(start), At: at(start)}
	if h.known {
		e.Scheduled = at(scheduled)
	}
	h.lines = append(h.lines, e.String())
	if end > 0 {
		e.End, e.At = true, at(end)
		h.lines = append(h.lines, e.String())
	}
}

// good is a history without a mistake. What a change returns is added in place of the run for a target; nil
// keeps it.
func good(known bool, change func(h *history, job string, target float64) bool) string {
	h := &history{known: known}
	for i := range 20 {
		s := float64(i)
		for _, job := range []string{"second", "paused", "long"} {
			switch {
			case job == "paused" && i > 8 && i < 12:
			case job == "long" && i%3 != 0:
			case change != nil && change(h, job, s):
			case job == "long":
				h.run(job, s, s+0.01, s+2.51)
			default:
				h.run(job, s, s+0.01, s+0.02)
			}
		}
	}
	return strings.Join(h.lines, "\n") + "\n"
}

func count(text string) map[Kind]int {
	got := map[Kind]int{}
	for _, f := range History(jobs(), limits, text).Findings {
		got[f.Kind]++
	}
	return got
}

func TestAGoodHistoryHasNoMistakes(t *testing.T) {
	for _, known := range []bool{true, false} {
		r := History(jobs(), limits, good(known, nil))
		if len(r.Findings) > 0 || r.Known != known {
			t.Errorf("known %v: found %v", known, r.Findings)
		}
		// 20 + 16 + 20 targets, of which long runs excuse 13.
		if r.Targets != 56 || r.Met != 43 || r.Excused != 13 || r.Runs != 44 {
			t.Errorf("known %v: targets %d, met %d, excused %d, runs %d", known, r.Targets, r.Met, r.Excused, r.Runs)
		}
		if Percentile(r.Lateness, 0.5) != 10*time.Millisecond || r.Silence != time.Second {
			t.Errorf("known %v: half were %s late, silence %s", known, Percentile(r.Lateness, 0.5), r.Silence)
		}
	}
}

func TestPlantedMistakesAreFound(t *testing.T) {
	in := func(job string, target float64, add func(h *history)) func(*history, string, float64) bool {
		return func(h *history, j string, s float64) bool {
			if j != job || s != target {
				return false
			}
			add(h)
			return true
		}
	}
	for _, c := range []struct {
		name   string
		change func(h *history, job string, target float64) bool
		want   map[Kind]int
	}{
		{"missing", in("second", 7, func(*history) {}), map[Kind]int{Missing: 1}},
		{"missing when the run before it has long ended", in("long", 18, func(*history) {}), map[Kind]int{Missing: 1}},
		{"missing before the next run begins", in("long", 6, func(*history) {}), map[Kind]int{Missing: 2}},
		{"doubled", in("second", 19, func(h *history) {
			h.run("second", 19, 19.01, 19.02)
			h.run("second", 19, 19.2, 19.3)
		}), map[Kind]int{Doubled: 1}},
		{"early", in("second", 7, func(h *history) { h.run("second", 7, 6.9, 6.95) }), map[Kind]int{Early: 1}},
		{"late", in("second", 7, func(h *history) { h.run("second", 7, 9.7, 9.8) }), map[Kind]int{Late: 1}},
		{"overlapping", in("long", 6, func(h *history) { h.run("long", 5, 5.01, 7.5) }), map[Kind]int{Overlapping: 1}},
		{"unasked", in("paused", 12, func(h *history) {
			h.run("paused", 12, 12.01, 12.02)
			h.run("paused", 10, 10.01, 10.02)
		}), map[Kind]int{Unasked: 1}},
		{"an end without a start", in("second", 7, func(h *history) {
			h.run("second", 7, 7.01, 7.02)
			h.lines = append(h.lines, record.Event{Job: "second", End: true, PID: 9999, Start: at(7), At: at(7.1)}.String())
		}), map[Kind]int{Unexplained: 1}},
		{"an end before its start", in("second", 7, func(h *history) { h.run("second", 7, 7.01, 6.9) }), map[Kind]int{Unexplained: 1}},
		{"the same line twice", in("second", 7, func(h *history) {
			h.run("second", 7, 7.01, 0)
			h.lines = append(h.lines, h.lines[len(h.lines)-1])
		}), map[Kind]int{Unexplained: 1}},
		{"two ends", in("second", 7, func(h *history) {
			h.run("second", 7, 7.01, 7.02)
			h.lines = append(h.lines, h.lines[len(h.lines)-1])
		}), map[Kind]int{Unexplained: 1}},
		{"an unknown job", in("second", 7, func(h *history) {
			h.run("second", 7, 7.01, 7.02)
			h.run("ghost", 7, 7.01, 0)
		}), map[Kind]int{Unexplained: 1}},
		{"a forged line", in("second", 7, func(h *history) {
			h.run("second", 7, 7.01, 0)
			last := &h.lines[len(h.lines)-1]
			*last = strings.Replace(*last, "second", "paused", 1)
		}), map[Kind]int{Unexplained: 1, Missing: 1}},
	} {
		for _, known := range []bool{true, false} {
			if got := count(good(known, c.change)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, scheduled time known %v: found %v, want %v", c.name, known, got, c.want)
			}
		}
	}
}

// TestCopiesAreDoubled: without scheduled times, three nodes that all run each target make two runs too many of it, neither late nor
// early ones, except where they stand for a target that nobody met.
func TestCopiesAreDoubled(t *testing.T) {
	text := good(false, func(h *history, job string, s float64) bool {
		for i := range 3 {
			if job != "long" && !(job == "second" && s == 7) {
				h.run(job, s, s+0.01+float64(i)/100, s+0.1)
			}
		}
		return job != "long"
	})
	if got, want := count(text), (map[Kind]int{Doubled: 2*36 - 1, Late: 1}); !reflect.DeepEqual(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// TestTheTimeBesideTheHorizonIsNotJudged: a system has time to begin.
func TestTheTimeBesideTheHorizonIsNotJudged(t *testing.T) {
	for _, known := range []bool{true, false} {
		h := &history{known: known}
		for _, s := range []float64{-3, -3, -2.5, -1, 22, 22} {
			h.run("second", s, s+0.01, s+0.02)
		}
		all := jobs()
		all[0].Phases = append([]Phase{{From: at(-5), To: at(0), Every: time.Second, Optional: true}}, all[0].Phases...)
		all[0].Phases = append(all[0].Phases, Phase{From: at(20), To: at(30), Every: time.Second, Optional: true})
		if r := History(all, limits, good(known, nil)+strings.Join(h.lines, "\n")+"\n"); len(r.Findings) > 0 {
			t.Errorf("known %v: found %v", known, r.Findings)
		}
	}
}

func TestATornLineIsFound(t *testing.T) {
	whole := good(true, nil)
	for _, text := range []string{whole + record.Event{Job: "second", PID: 1, Start: at(19.5), At: at(19.5)}.String()[:20], strings.TrimSuffix(whole, "\n")} {
		if got := count(text); !reflect.DeepEqual(got, map[Kind]int{Unexplained: 1}) {
			t.Errorf("found %v", got)
		}
	}
}

// TestSilenceIsMeasured: a second without a run is a silence of two.
func TestSilenceIsMeasured(t *testing.T) {
	r := History(jobs()[:1], limits, strings.Join(linesOf(good(true, func(_ *history, job string, s float64) bool {
		return job == "second" && s >= 5 && s < 9
	}), "second"), ""))
	if r.Silence != 5*time.Second || r.Count(Missing) != 4 {
		t.Errorf("silence %s, missing %d", r.Silence, r.Count(Missing))
	}
}

// linesOf returns the lines of one job.
func linesOf(text, job string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, " "+job+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}
