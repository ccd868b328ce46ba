package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/job"
)

// plan is a random flow with the outcome of each unit.
type plan struct {
	spec  *job.Flow
	fails map[flow.Ref]bool
	ifs   map[int]string // false, error
	items map[int]int    // -1 means an error
}

func (p *plan) If(step int) (bool, error) {
	if p.ifs[step] == "error" {
		return false, errors.New("no such key")
	}
	return p.ifs[step] != "false", nil
}

func (p *plan) Items(step int) ([]json.RawMessage, error) {
	n := p.items[step]
	if n < 0 {
		return nil, errors.New("not a list")
	}
	list := make([]json.RawMessage, n)
	for i := range list {
		list[i] = json.RawMessage(fmt.Sprint(i))
	}
	return list, nil
}

const itemsMost = 4

// random returns a random flow. With order set, its result does not depend on the order of ends.
func random(r *rand.Rand, order bool) *plan {
	p := &plan{spec: &job.Flow{MaxParallel: 1 + r.IntN(5)}, fails: map[flow.Ref]bool{}, ifs: map[int]string{}, items: map[int]int{}}
	p.spec.FailFast = !order && r.IntN(3) == 0
	step := func(i, first int, list []job.Step) job.Step {
		s := job.Step{Name: fmt.Sprintf("s%d", i), When: []job.UpstreamOn{job.OnSucceeded, job.OnSucceeded, job.OnFailed, job.OnFinished}[r.IntN(4)]}
		for k := range list {
			if r.IntN(3) == 0 {
				s.Needs = append(s.Needs, list[k].Name)
			}
		}
		if len(s.Needs) == 0 && s.When == job.OnFailed {
			s.When = job.OnFinished
		}
		s.AllowFailure = r.IntN(4) == 0
		if r.IntN(4) == 0 {
			s.If = "x"
			p.ifs[i] = []string{"true", "false", "error"}[r.IntN(3)]
		}
		switch r.IntN(4) {
		case 0:
			s.ForEach = []string{"x"}
			p.items[i] = r.IntN(itemsMost+2) - 1
			s.MaxParallel = r.IntN(3)
			s.FailFast = !order && r.IntN(2) == 0
		case 1:
			s.Wait = &job.Wait{Signal: "x"}
		}
		for k := -1; k < itemsMost; k++ {
			p.fails[flow.Ref{Step: first + len(list), Item: k}] = r.IntN(4) == 0
		}
		return s
	}
	for i := range 1 + r.IntN(9) {
		p.spec.Steps = append(p.spec.Steps, step(i, 0, p.spec.Steps))
	}
	n := len(p.spec.Steps)
	for i := range r.IntN(3) {
		p.spec.Finally = append(p.spec.Finally, step(n+i, n, p.spec.Finally))
	}
	return p
}

// run runs a flow to its end, with ends in random order, and returns its last state. It checks that
// each unit starts once, and that some unit is always open.
func run(t *testing.T, p *plan, r *rand.Rand, stopAfter int) (*flow.State, flow.Next) {
	t.Helper()
	g := flow.NewGraph(p.spec)
	s := g.Begin()
	started := map[flow.Ref]bool{}
	var open []flow.Ref
	for ends := 0; ; ends++ {
		rest := s.Ending != "" // only finally may start
		for i := range g.Steps {
			rest = rest || g.FailFast && s.Steps[i].Mark == flow.Failed && !g.Steps[i].AllowFailure && !g.Steps[i].Finally
		}
		next := g.Advance(s, p, 0)
		for _, ref := range next.Start {
			if rest && !g.Steps[ref.Step].Finally {
				t.Fatalf("%v starts behind the first failure or the stop", ref)
			}
			if started[ref] {
				t.Fatalf("%v starts twice", ref)
			}
			started[ref] = true
			open = append(open, ref)
		}
		if again := g.Advance(s, p, 0); len(again.Start) > 0 || again.Over != next.Over {
			t.Fatalf("a second look starts %v", again.Start)
		}
		room := 0
		for _, ref := range open {
			if !g.Steps[ref.Step].Waits {
				room++
			}
		}
		if room > p.spec.MaxParallel {
			t.Fatalf("%d units run, at most %d may", room, p.spec.MaxParallel)
		}
		if next.Over != (len(open) == 0) {
			t.Fatalf("over is %v with %d open units: %+v", next.Over, len(open), s)
		}
		if next.Over {
			return s, next
		}
		for _, ref := range next.Cancel {
			if !slices.Contains(open, ref) {
				t.Fatalf("%v is cancelled and not open", ref)
			}
		}
		if ends == stopAfter {
			s.Stop(job.OutcomeCancelled, job.Text("by the test"))
			continue
		}
		k := r.IntN(len(open))
		ref := open[k]
		open = slices.Delete(open, k, k+1)
		outcome := job.OutcomeSucceeded
		switch {
		case slices.Contains(next.Cancel, ref):
			outcome = job.OutcomeCancelled
		case p.fails[ref]:
			outcome = job.OutcomeFailed
		}
		end := flow.End{Outcome: outcome, Result: json.RawMessage("1"), Attempt: 1}
		if !s.End(ref, end) || s.End(ref, end) {
			t.Fatalf("the end of %v counts once", ref)
		}
		if r.IntN(4) == 0 { // sometimes it is stored and read in between
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			s = &flow.State{}
			if err := json.Unmarshal(text, s); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// model computes the marks of the steps recursively from their needs, by the documented rules,
// without states, room or order.
func (p *plan) model() map[string]flow.Mark {
	marks := map[string]flow.Mark{}
	all := p.spec.All()
	var of func(i int) flow.Mark
	index := map[string]int{}
	for i, s := range all {
		index[s.Name] = i
	}
	of = func(i int) flow.Mark {
		s := all[i]
		if m, ok := marks[s.Name]; ok {
			return m
		}
		mark := func(m flow.Mark) flow.Mark { marks[s.Name] = m; return m }
		anyFailed, anyBad, anyUnneeded := false, false, false
		for _, need := range s.Needs {
			m := of(index[need])
			anyFailed = anyFailed || m == flow.Failed || m == flow.Blocked
			anyBad = anyBad || m == flow.Blocked || m == flow.Failed && !all[index[need]].AllowFailure
			anyUnneeded = anyUnneeded || m == flow.Unneeded
		}
		switch {
		case s.When == job.OnFailed && !anyFailed:
			return mark(flow.Unneeded)
		case s.When == job.OnSucceeded && anyBad:
			return mark(flow.Blocked)
		case s.When == job.OnSucceeded && anyUnneeded:
			return mark(flow.Unneeded)
		case p.ifs[i] == "false":
			return mark(flow.Skipped)
		case p.ifs[i] == "error":
			return mark(flow.Failed)
		}
		fails := p.fails[flow.Ref{Step: i, Item: -1}]
		if len(s.ForEach) > 0 {
			fails = p.items[i] < 0
			for k := range p.items[i] {
				fails = fails || p.fails[flow.Ref{Step: i, Item: k}]
			}
		}
		if fails {
			return mark(flow.Failed)
		}
		return mark(flow.Succeeded)
	}
	for i := range all {
		of(i)
	}
	return marks
}

// TestAnyOrderOfEndsGivesTheStateOfTheModel runs random flows to their end in several orders.
func TestAnyOrderOfEndsGivesTheStateOfTheModel(t *testing.T) {
	for seed := range uint64(2000) {
		p := random(rand.New(rand.NewPCG(seed, 1)), true)
		want := p.model()
		var first *flow.State
		for order := range uint64(4) {
			s, next := run(t, p, rand.New(rand.NewPCG(seed, order)), -1)
			outcome := job.OutcomeSucceeded
			for i, step := range s.Steps {
				if step.Mark != want[step.Name] {
					t.Fatalf("seed %d: step %s is %q, want %q", seed, step.Name, step.Mark, want[step.Name])
				}
				if step.Mark == flow.Failed && !p.spec.All()[i].AllowFailure {
					outcome = job.OutcomeFailed
				}
			}
			if next.Outcome != outcome || next.Reason.IsZero() {
				t.Fatalf("seed %d: the flow is %s (%s), want %s", seed, next.Outcome, next.Reason, outcome)
			}
			if first == nil {
				first = s
			} else if a, b := text(t, first), text(t, s); a != b {
				t.Fatalf("seed %d: another order gives\n%s\nnot\n%s", seed, b, a)
			}
		}
	}
}

func text(t *testing.T, s *flow.State) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFlowsThatFailFastOrAreStoppedEnd runs such flows to their end: only finally starts after the
// first failure or the stop.
func TestFlowsThatFailFastOrAreStoppedEnd(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := random(r, false)
		stop := r.IntN(6) - 1
		s, next := run(t, p, r, stop)
		if s.Ending != "" && next.Outcome != job.OutcomeCancelled {
			t.Fatalf("seed %d: a stopped flow is %s", seed, next.Outcome)
		}
		if reflect.DeepEqual(next, flow.Next{}) {
			t.Fatalf("seed %d: no end", seed)
		}
	}
}

// The jobs of a flow's open steps are keys of one commit, so that their number is bounded.
func TestOpenStepsRunABoundedNumberOfJobs(t *testing.T) {
	spec := &job.Flow{MaxParallel: 1000}
	for i := range 200 {
		of := fmt.Sprint("other", i%(flow.JobsMax+30)) // some jobs occur twice
		spec.Steps = append(spec.Steps, job.Step{Name: fmt.Sprint("s", i), Run: job.RunSpec{Job: &job.OtherJob{Name: of}}})
	}
	g := flow.NewGraph(spec)
	s, open, most := g.Begin(), map[int]bool{}, 0
	for ended := 0; ; ended++ {
		next := g.Advance(s, &plan{}, 0)
		for _, ref := range next.Start {
			open[ref.Step] = true
		}
		jobs := map[string]bool{}
		for i := range open {
			jobs[spec.Steps[i].Run.Job.Name] = true
		}
		most = max(most, len(jobs))
		if next.Over {
			if ended != len(spec.Steps) || most != flow.JobsMax || next.Outcome != job.OutcomeSucceeded {
				t.Errorf("%d of %d steps ended, with %d jobs at once, and the flow is %s", ended, len(spec.Steps), most, next.Outcome)
			}
			return
		}
		for i := range open {
			delete(open, i)
			s.End(flow.Ref{Step: i, Item: -1}, flow.End{Outcome: job.OutcomeSucceeded})
			break
		}
	}
}
