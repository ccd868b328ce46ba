// Package check compares what jobs should have done with what witnesses saw, as Jepsen's analysis of Chronos did:
// a job has targets, the instants at which it falls due, and a target is met by one run that starts within its window.
package check

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/torture/record"
)

// A Kind is a kind of mistake.
type Kind string

// The kinds, as the report lists them.
const (
	Missing     Kind = "missing"     // no run met the target
	Doubled     Kind = "doubled"     // one more run than the target asks for
	Early       Kind = "early"       // a run started before its target
	Late        Kind = "late"        // a run met its target after the window
	Overlapping Kind = "overlapping" // a run started while another one of its job went on, where the system promises none
	Unasked     Kind = "unasked"     // a run for which the job had no target, such as while it was paused
	Unexplained Kind = "unexplained" // lines that no witness can have written
)

// Kinds are all kinds.
var Kinds = []Kind{Missing, Doubled, Early, Late, Overlapping, Unasked, Unexplained}

// A Phase is a time in which the schedule of a job does not change. Its targets are the multiples of Every since 1970.
type Phase struct {
	From, To time.Time
	Every    time.Duration // 0: none, the job is paused or not there
	Optional bool          // a change was under way: targets may be met or not
}

// A Job is what a checker knows of a job.
type Job struct {
	Name      string
	Phases    []Phase
	Sleep     time.Duration // how long its runs last
	NoOverlap bool          // the system promises that its runs do not overlap: targets during a run are excused
}

// Limits bound the windows.
type Limits struct {
	Tolerance time.Duration // earlier than that is early: clocks of one machine do not differ
	Grace     time.Duration // later than that is late
	Limit     time.Duration // later than that a run whose scheduled time is unknown belongs to no target
}

// A Finding is a mistake.
type Finding struct {
	Kind Kind
	Job  string
	At   time.Time
	Text string
}

// A Mark is a target or a run, for the picture.
type Mark struct {
	Job  string
	At   time.Time
	Kind Kind // empty: as it should be
}

// A Result is the verdict on one system.
type Result struct {
	Targets  int // that had to be met
	Met      int
	Excused  int // that fell into a run of the same job, which must not overlap
	Runs     int
	Known    bool // all runs knew their scheduled time
	Findings []Finding
	Marks    []Mark
	Times    []Time          // of the runs that met a target
	Lateness []time.Duration // of the same, sorted
	Silence  time.Duration   // the longest time without a start of a job with the shortest interval
}

// Count returns how many findings of a kind there are.
func (r *Result) Count(kind Kind) int {
	n := 0
	for _, f := range r.Findings {
		if f.Kind == kind {
			n++
		}
	}
	return n
}

// A Time is how late the run of a target was.
type Time struct {
	At   time.Time // of the target
	Late time.Duration
}

// Percentile returns the lateness that a share of the runs did not exceed, which are sorted by it.
func Percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func (r *Result) find(kind Kind, job string, at time.Time, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{kind, job, at, fmt.Sprintf(format, args...)})
	r.Marks = append(r.Marks, Mark{job, at, kind})
}

type run struct {
	record.Event
	end time.Time // zero if nobody saw it
}

type target struct {
	at       time.Time
	every    time.Duration
	optional bool
	run      *run
}

// horizon is the time in which targets have to be met; what happens before and after it is not judged.
func (j Job) horizon() (from, to time.Time) {
	for _, p := range j.Phases {
		if !p.Optional {
			if from.IsZero() {
				from = p.From
			}
			to = p.To
		}
	}
	return from, to
}

func (j Job) judged(at time.Time) bool {
	from, to := j.horizon()
	return !at.Before(from) && at.Before(to)
}

// History judges the lines of all witnesses.
func History(jobs []Job, limits Limits, text string) *Result {
	r := &Result{Known: true}
	runs := r.read(jobs, text)
	shortest := time.Duration(0)
	for _, job := range jobs {
		for _, p := range job.Phases {
			if p.Every > 0 && (shortest == 0 || p.Every < shortest) {
				shortest = p.Every
			}
		}
	}
	for _, job := range jobs {
		of := runs[job.Name]
		slices.SortStableFunc(of, func(a, b *run) int { return a.Start.Compare(b.Start) })
		r.Runs += len(of)
		r.job(job, limits, of)
		if !job.NoOverlap {
			r.silence(job, shortest, of)
		}
	}
	slices.Sort(r.Lateness)
	sort.SliceStable(r.Findings, func(i, k int) bool { return r.Findings[i].At.Before(r.Findings[k].At) })
	return r
}

type identity struct {
	job   string
	pid   int
	start int64
}

// read pairs starts with ends.
func (r *Result) read(jobs []Job, text string) map[string][]*run {
	runs := map[string][]*run{}
	for _, job := range jobs {
		runs[job.Name] = nil
	}
	begun := map[identity]*run{}
	for line := range strings.Lines(text) {
		whole := strings.HasSuffix(line, "\n")
		line = strings.TrimSuffix(line, "\n")
		e, err := record.Parse(line)
		if err != nil || !whole {
			r.find(Unexplained, "", time.Time{}, "torn or forged: %q", line)
			continue
		}
		if _, known := runs[e.Job]; !known {
			r.find(Unexplained, e.Job, e.At, "no such job: %q", line)
			continue
		}
		id := identity{e.Job, e.PID, e.Start.UnixNano()}
		before := begun[id]
		switch {
		case !e.End && before != nil:
			r.find(Unexplained, e.Job, e.At, "the same start twice: %q", line)
		case !e.End:
			begun[id] = &run{Event: e}
			runs[e.Job] = append(runs[e.Job], begun[id])
		case before == nil:
			r.find(Unexplained, e.Job, e.At, "an end without a start: %q", line)
		case !before.end.IsZero() || e.At.Before(e.Start):
			r.find(Unexplained, e.Job, e.At, "an end that cannot be: %q", line)
		default:
			before.end = e.At
		}
	}
	return runs
}

func (r *Result) job(job Job, limits Limits, runs []*run) {
	targets := targetsOf(job)
	var unknown []*run
	for _, run := range runs {
		if run.Scheduled.IsZero() {
			r.Known = false
			unknown = append(unknown, run)
			continue
		}
		i := sort.Search(len(targets), func(i int) bool { return !targets[i].at.Before(run.Scheduled) })
		switch {
		case !job.judged(run.Scheduled):
			if i < len(targets) && targets[i].run == nil && targets[i].at.Equal(run.Scheduled) {
				targets[i].run = run
			}
		case i == len(targets) || !targets[i].at.Equal(run.Scheduled):
			r.find(Unasked, job.Name, run.Start, "a run for %s, which is no target", clock(run.Scheduled))
		case targets[i].run != nil:
			r.find(Doubled, job.Name, run.Start, "another run for %s, %s after the first", clock(run.Scheduled), run.Start.Sub(targets[i].run.Start))
		default:
			targets[i].run = run
		}
	}
	r.match(job, limits, targets, unknown)
	r.judge(job, limits, targets, runs)
	if job.NoOverlap {
		r.overlaps(job, runs)
	}
}

func targetsOf(job Job) []target {
	var targets []target
	for _, p := range job.Phases {
		if p.Every <= 0 {
			continue
		}
		every := int64(p.Every)
		for at := (p.From.UnixNano() + every - 1) / every * every; at < p.To.UnixNano(); at += every {
			targets = append(targets, target{at: time.Unix(0, at), every: p.Every, optional: p.Optional})
		}
	}
	return targets
}

// match finds the targets of runs that do not know theirs, by the explanation that is best for the system: on time
// if that can be, else late for the oldest target without a run, else early.
func (r *Result) match(job Job, limits Limits, targets []target, runs []*run) {
	var left []*run
	for _, run := range runs {
		if !meet(targets, run, limits.Tolerance, limits.Grace, false) {
			left = append(left, run)
		}
	}
	for _, run := range left {
		if meet(targets, run, limits.Tolerance, limits.Limit, true) || early(targets, run) || !job.judged(run.Start) {
			continue
		}
		met := slices.ContainsFunc(targets, func(t target) bool {
			late := run.Start.Sub(t.at)
			return t.run != nil && late >= -limits.Tolerance && late <= limits.Limit
		})
		last := sort.Search(len(job.Phases), func(i int) bool { return run.Start.Before(job.Phases[i].To) })
		paused := last < len(job.Phases) && job.Phases[last].Every == 0
		if met && !paused {
			r.find(Doubled, job.Name, run.Start, "a run more than there are targets")
		} else {
			r.find(Unasked, job.Name, run.Start, "a run when the job had no target")
		}
	}
}

// meet gives a run to a target without one that is at most so much later or earlier than its start: to the oldest of them, or
// to the nearest.
func meet(targets []target, run *run, early, late time.Duration, oldest bool) bool {
	found := -1
	first := sort.Search(len(targets), func(i int) bool { return !targets[i].at.Before(run.Start.Add(-late)) })
	for i := first; i < len(targets) && !targets[i].at.After(run.Start.Add(early)); i++ {
		if targets[i].run == nil {
			found = i
			if oldest {
				break
			}
		}
	}
	if found < 0 {
		return false
	}
	targets[found].run = run
	return true
}

// early gives a run to the next target, if it has none and is nearer than a quarter of its interval.
func early(targets []target, run *run) bool {
	next := sort.Search(len(targets), func(i int) bool { return targets[i].at.After(run.Start) })
	if next == len(targets) || targets[next].run != nil || targets[next].at.Sub(run.Start) > targets[next].every/4 {
		return false
	}
	targets[next].run = run
	return true
}

func (r *Result) judge(job Job, limits Limits, targets []target, runs []*run) {
	for _, t := range targets {
		if t.run == nil {
			switch {
			case t.optional:
			case job.NoOverlap && busy(job, limits, t.at, runs):
				r.Targets++
				r.Excused++
			default:
				r.Targets++
				r.find(Missing, job.Name, t.at, "no run for %s", clock(t.at))
			}
			continue
		}
		if !job.judged(t.at) {
			continue
		}
		if !t.optional {
			r.Targets++
			r.Met++
		}
		late := t.run.Start.Sub(t.at)
		r.Times = append(r.Times, Time{t.at, late})
		r.Lateness = append(r.Lateness, late)
		switch {
		case late < -limits.Tolerance:
			r.find(Early, job.Name, t.run.Start, "%s before %s", -late, clock(t.at))
		case late > limits.Grace:
			r.find(Late, job.Name, t.run.Start, "%s after %s", late, clock(t.at))
		default:
			r.Marks = append(r.Marks, Mark{Job: job.Name, At: t.run.Start})
		}
	}
}

// busy reports whether a run of the job went on at a time, as far as its scheduler could know.
func busy(job Job, limits Limits, at time.Time, runs []*run) bool {
	return slices.ContainsFunc(runs, func(run *run) bool {
		end := run.end
		if end.IsZero() {
			end = run.Start.Add(job.Sleep)
		}
		return !at.Before(run.Start.Add(-limits.Grace)) && !at.After(end.Add(limits.Grace))
	})
}

// overlaps leaves out runs whose end nobody saw: they may have been killed at any time.
func (r *Result) overlaps(job Job, runs []*run) {
	var last time.Time
	for _, run := range runs {
		if run.Start.Before(last) && job.judged(run.Start) {
			r.find(Overlapping, job.Name, run.Start, "%s before the end of another run", last.Sub(run.Start))
		}
		if run.end.After(last) {
			last = run.end
		}
	}
}

func (r *Result) silence(job Job, shortest time.Duration, runs []*run) {
	for _, p := range job.Phases {
		if p.Every != shortest || p.Optional {
			continue
		}
		last := p.From
		for _, run := range runs {
			if run.Start.Before(p.From) || run.Start.After(p.To) {
				continue
			}
			r.Silence = max(r.Silence, run.Start.Sub(last))
			last = run.Start
		}
		r.Silence = max(r.Silence, p.To.Sub(last))
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
