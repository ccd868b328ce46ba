package flow

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// Saved is the stored state of a run of a flow.
type Saved struct {
	State
	// Definition is the job's definition when the flow began, if that has changed since.
	Definition json.RawMessage `json:"definition,omitempty"`
	// Depth is how many flows enclose this one.
	Depth int `json:"depth,omitempty"`
	// Early are signals that no step has waited for yet, by name.
	Early map[string]Early `json:"early,omitempty"`
	// Again is set if the run repeats another one.
	Again *Again `json:"again,omitempty"`
}

// Early is a signal that came before any step waited for it: the next waiting step takes it.
type Early struct {
	By   string          `json:"by,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Again selects the steps of a repeated flow. Without From and Only it repeats the steps
// that did not succeed, and their dependents.
type Again struct {
	Of   job.ID   `json:"of"`
	From []string `json:"from,omitempty"` // these steps and their dependents
	Only []string `json:"only,omitempty"` // these steps alone
	Skip []string `json:"skip,omitempty"` // these count as succeeded
	// Changed is set if the new run has other parameters.
	Changed bool `json:"changed,omitempty"`
}

// Again returns the initial state of a repeated flow from the final state of the original. It keeps
// the results of steps that do not run again. The named steps must exist.
func (g *Graph) Again(old *State, a *Again) (*State, error) {
	if len(old.Steps) != len(g.Steps) {
		return nil, fmt.Errorf("the run has %d steps, its definition %d", len(old.Steps), len(g.Steps))
	}
	runs := g.repeated(old, a)
	if err := g.canRepeat(old, a, runs); err != nil {
		return nil, err
	}
	s := g.Begin()
	for i := range g.Steps {
		was := &old.Steps[i]
		switch {
		case runs[i] && g.keepsItems(i, was, a, runs):
			s.Steps[i].Mark, s.Steps[i].Items = Open, succeededItems(was.Items, a.Of)
		case runs[i]:
		case slices.Contains(a.Skip, was.Name) && !isFine(was.Mark):
			s.Steps[i].Mark, s.Steps[i].Reason = Skipped, reason.SkippedAgain.Of()
		default:
			s.Steps[i] = StepState{Name: was.Name, Unit: taken(was.Unit, a.Of), Items: slices.Clone(was.Items)}
			for k := range s.Steps[i].Items {
				s.Steps[i].Items[k].Unit = taken(was.Items[k].Unit, a.Of)
			}
		}
	}
	return s, nil
}

// isFine reports whether a step that has ended so need not run again.
func isFine(m Mark) bool { return m == Succeeded || m == Skipped || m == Unneeded }

// repeated returns which steps run again.
func (g *Graph) repeated(old *State, a *Again) []bool {
	runs := make([]bool, len(g.Steps))
	moved := make([]bool, len(g.Steps)) // the dependents of these run again
	for i := range g.Steps {
		name := g.Steps[i].Name
		switch skipped := slices.Contains(a.Skip, name); {
		case skipped:
			moved[i] = !isFine(old.Steps[i].Mark)
		case len(a.Only) > 0:
			runs[i] = slices.Contains(a.Only, name)
		case len(a.From) > 0:
			runs[i] = slices.Contains(a.From, name) || g.Steps[i].Finally
		default:
			runs[i] = g.Steps[i].Finally || !isFine(old.Steps[i].Mark)
		}
	}
	for changed := len(a.Only) == 0; changed; {
		changed = false
		for i := range g.Steps {
			behind := slices.ContainsFunc(g.Steps[i].Needs, func(n int) bool { return runs[n] || moved[n] })
			if behind && !runs[i] && !moved[i] {
				moved[i], changed = true, true
				runs[i] = !slices.Contains(a.Skip, g.Steps[i].Name)
			}
		}
	}
	return runs
}

// canRepeat refuses steps that could not start.
func (g *Graph) canRepeat(old *State, a *Again, runs []bool) error {
	if !slices.Contains(runs, true) {
		return fmt.Errorf("all steps have succeeded: name the step to begin with")
	}
	for i := range g.Steps {
		if !runs[i] || g.Steps[i].When == job.OnFinished || g.Steps[i].When == job.OnFailed {
			continue
		}
		for _, n := range g.Steps[i].Needs {
			need := &g.Steps[n]
			if m := old.Steps[n].Mark; !runs[n] && !slices.Contains(a.Skip, need.Name) && (m == Blocked || m == Failed && !need.AllowFailure) {
				return fmt.Errorf("step %s needs step %s, which has not succeeded: begin with that, or skip it", g.Steps[i].Name, need.Name)
			}
		}
	}
	return nil
}

// keepsItems reports whether the successful items of a step need not run again: the source
// of the items is unchanged.
func (g *Graph) keepsItems(i int, was *StepState, a *Again, runs []bool) bool {
	return len(was.Items) > 0 && !g.Steps[i].Finally && !a.Changed && len(a.From) == 0 && len(a.Only) == 0 &&
		!slices.ContainsFunc(g.Steps[i].Needs, func(n int) bool { return runs[n] || slices.Contains(a.Skip, g.Steps[n].Name) })
}

func succeededItems(was []Item, of job.ID) []Item {
	items := make([]Item, len(was))
	for k := range was {
		if items[k].Value = was[k].Value; was[k].Mark == Succeeded {
			items[k].Unit = taken(was[k].Unit, of)
		}
	}
	return items
}

// taken returns a unit of a run for reuse, which may itself be reused.
func taken(u Unit, of job.ID) Unit {
	if u.From.IsZero() && u.Outcome != "" {
		u.From = of
	}
	return u
}

// Resume sets the moment at which a flow with reused results begins.
func (s *State) Resume(now int64) {
	for i := range s.Steps {
		if s.Steps[i].Mark == Open {
			s.Steps[i].Began = now
		}
	}
}
