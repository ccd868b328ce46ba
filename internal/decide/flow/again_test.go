package flow_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/job"
)

// marks returns a state as one letter per step: p(ending), o(pen), s(ucceeded), f(ailed), k
// (skipped), b(locked), u(nneeded).
func marks(s *flow.State) string {
	letters := map[flow.Mark]string{
		flow.Pending: "p", flow.Open: "o", flow.Succeeded: "s", flow.Failed: "f",
		flow.Skipped: "k", flow.Blocked: "b", flow.Unneeded: "u",
	}
	var b strings.Builder
	for i := range s.Steps {
		b.WriteString(letters[s.Steps[i].Mark])
	}
	return b.String()
}

func stateOf(g *flow.Graph, marks string) *flow.State {
	s := g.Begin()
	for i, letter := range marks {
		s.Steps[i].Mark = map[rune]flow.Mark{'s': flow.Succeeded, 'f': flow.Failed, 'k': flow.Skipped, 'b': flow.Blocked, 'u': flow.Unneeded}[letter]
		if s.Steps[i].Mark == flow.Succeeded || s.Steps[i].Mark == flow.Failed {
			s.Steps[i].Outcome = job.OutcomeSucceeded
		}
	}
	return s
}

func TestAgainSelectsSteps(t *testing.T) {
	// a → b → c, a → d, a report for failures of c, and z at the end.
	g := flow.NewGraph(&job.Flow{
		Steps: []job.Step{
			{Name: "a"}, {Name: "b", Needs: []string{"a"}}, {Name: "c", Needs: []string{"b"}}, {Name: "d", Needs: []string{"a"}},
			{Name: "report", Needs: []string{"c"}, When: job.OnFailed},
		},
		Finally: []job.Step{{Name: "z"}},
	})
	for _, test := range []struct {
		about, was string
		again      flow.Again
		want       string
	}{
		{"what failed, what is behind it, and finally", "sfbsss", flow.Again{}, "sppspp"},
		{"all that follows a first step that failed", "fbbbss", flow.Again{}, "pppppp"},
		{"only finally after a success", "ssssus", flow.Again{}, "ssssup"},
		{"from a step that has succeeded", "ssssus", flow.Again{From: []string{"b"}}, "sppspp"},
		{"from a step, and what failed elsewhere stays", "ssfsss", flow.Again{From: []string{"d"}}, "ssfpsp"},
		{"one step alone", "ssssus", flow.Again{Only: []string{"b"}}, "spssus"},
		{"one step alone, and what it blocked stays blocked", "sfbsss", flow.Again{Only: []string{"b"}}, "spbsss"},
		{"a failure is skipped, and what is behind it runs", "sfbsss", flow.Again{Skip: []string{"b"}}, "skpspp"},
		{"a success that is skipped keeps its result", "ssssus", flow.Again{From: []string{"a"}, Skip: []string{"b"}}, "pspppp"},
		{"a step behind one that runs is skipped", "fbbbss", flow.Again{Skip: []string{"d"}}, "pppkpp"},
	} {
		t.Run(test.about, func(t *testing.T) {
			again, err := g.Again(stateOf(g, test.was), &test.again)
			if err != nil {
				t.Fatal(err)
			}
			if got := marks(again); got != test.want {
				t.Errorf("it begins as %s, want %s", got, test.want)
			}
		})
	}
	for _, test := range []struct {
		was   string
		again flow.Again
		says  string
	}{
		{"fbbbss", flow.Again{From: []string{"b"}}, "step b needs step a, which has not succeeded"},
		{"fbbbss", flow.Again{Only: []string{"d"}}, "step d needs step a"},
		{"ssss", flow.Again{}, "the run has 4 steps, its definition 6"},
	} {
		s := &flow.State{}
		if len(test.was) == len(g.Steps) {
			s = stateOf(g, test.was)
		} else {
			s.Steps = make([]flow.StepState, len(test.was))
		}
		if _, err := g.Again(s, &test.again); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s again as %+v: %v, want %q", test.was, test.again, err, test.says)
		}
	}
}

func TestSuccessfulItemsAreReused(t *testing.T) {
	g := flow.NewGraph(&job.Flow{MaxParallel: 9, Steps: []job.Step{{Name: "list"}, {Name: "each", Needs: []string{"list"}, ForEach: []string{"x"}}}})
	old := stateOf(g, "sf")
	for k, mark := range []flow.Mark{flow.Succeeded, flow.Failed, flow.Blocked} {
		old.Steps[1].Items = append(old.Steps[1].Items, flow.Item{Value: json.RawMessage(fmt.Sprint(k)), Unit: flow.Unit{Mark: mark, Outcome: job.OutcomeFailed}})
	}
	of, _ := job.NewID(time.Unix(0, 0), strings.NewReader(strings.Repeat("x", 16)))
	s, err := g.Again(old, &flow.Again{Of: of})
	if err != nil {
		t.Fatal(err)
	}
	s.Resume(7)
	next := g.Advance(s, nil, 7)
	if want := []flow.Ref{{Step: 1, Item: 1}, {Step: 1, Item: 2}}; !slices.Equal(next.Start, want) || s.Steps[1].Began != 7 {
		t.Errorf("%v start, want %v; began %d", next.Start, want, s.Steps[1].Began)
	}
	if s.Steps[0].From != of || s.Steps[1].Items[0].From != of || !s.Steps[1].Items[1].From.IsZero() {
		t.Errorf("what was taken over does not name its run: %s", text(t, s))
	}
	for about, again := range map[string]flow.Again{"from": {From: []string{"each"}}, "other parameters": {Changed: true}, "what it needs": {From: []string{"list"}}} {
		s, err := g.Again(old, &again)
		if err != nil || s.Steps[1].Items != nil || s.Steps[1].Mark != flow.Pending {
			t.Errorf("%s: %v, and the items stay: %+v", about, err, s)
		}
	}
}

// TestAFlowRunAgainEndsInSuccess repeats random flows that failed or were stopped, now without
// failures: they succeed, and no step with a reused result starts.
func TestAFlowRunAgainEndsInSuccess(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := random(r, true)
		was, _ := run(t, p, r, r.IntN(6)-1)
		g := flow.NewGraph(p.spec)
		s, err := g.Again(was, &flow.Again{})
		if err != nil {
			if strings.Contains(err.Error(), "all steps have succeeded") {
				continue
			}
			t.Fatalf("seed %d: %v", seed, err)
		}
		clear(p.fails)
		for i, text := range p.ifs {
			if text == "error" {
				p.ifs[i] = "true"
			}
		}
		for i, n := range p.items {
			p.items[i] = max(0, n)
		}
		kept := map[int]bool{}
		for i := range s.Steps {
			kept[i] = s.Steps[i].Mark.IsOver()
		}
		for ends := 0; ; ends++ {
			next := g.Advance(s, p, 0)
			for _, ref := range next.Start {
				if kept[ref.Step] {
					t.Fatalf("seed %d: step %d was taken over and starts", seed, ref.Step)
				}
			}
			if next.Over {
				if next.Outcome != job.OutcomeSucceeded {
					t.Fatalf("seed %d: %s (%s): %s, before %s", seed, next.Outcome, next.Reason, marks(s), marks(was))
				}
				break
			}
			open := s.Open()
			if len(open) == 0 || ends > 1000 {
				t.Fatalf("seed %d: it hangs: %s", seed, marks(s))
			}
			s.End(open[r.IntN(len(open))], flow.End{Outcome: job.OutcomeSucceeded, Attempt: 1})
		}
	}
}
