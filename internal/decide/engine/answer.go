package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// AnswerFlow ends steps that wait for a person or a signal: see [store.Working].
type AnswerFlow struct{ store.FlowAnswer }

// Need requests the flow with its surroundings.
func (o *AnswerFlow) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	b.lookWithAround(n, RunRef{Run: o.Run})
}

// Decide ends the answered steps, each once: an ended step is not open, so only the first of two
// answers counts.
func (o *AnswerFlow) Decide(b *Batch) error {
	m := b.run(o.Run)
	if m == nil || m.removed {
		return store.ErrNotFound
	}
	if !isFlow(&m.Run) {
		return o.refused(phrase.NotFlowRun)
	}
	f := b.flowOf(m)
	var refs []flow.Ref
	for _, ref := range f.Open() {
		if w := f.plan.steps[ref.Step].Wait; w != nil && o.concerns(f.State.Steps[ref.Step].Name, w) {
			refs = append(refs, ref)
		}
	}
	if len(refs) == 0 && o.comesEarly(f) {
		return o.keep(b, m, f)
	}
	if len(refs) == 0 {
		return o.refused(o.whyNot(f))
	}
	a := job.Attempt{Number: 1, Ended: b.now}
	a.Outcome, a.Reason = AnswerOf(&o.FlowAnswer)
	action, value := "run.signal", o.Data
	if o.Reject {
		action = "run.reject"
	} else if o.Signal == "" {
		action = "run.approve"
		// Two texts can be written.
		value, _ = json.Marshal(map[string]string{"by": o.By, "note": o.Note})
	}
	for _, ref := range refs {
		c := b.run(b.unitID(m, f, ref))
		if c == nil || c.removed {
			continue
		}
		res := store.Result{Outcome: a.Outcome, Value: value}
		if b.bounded(c, &res); res.Outcome != a.Outcome {
			return o.refused(phrase.Said.Of(phrase.Words(res.Reason.String())))
		}
		c.value = res.Value
		end := a
		end.Run, end.Started = c.ID, lastOf(c.Claimed, time.Time{})
		b.endQuietly(c, end)
	}
	o.audit(b, m, action)
	b.advance(m)
	return nil
}

// refused is the error of an answer that does not fit.
func (o *AnswerFlow) refused(why phrase.Text) error {
	return fmt.Errorf("run %s: %w: %w", o.Run, store.ErrConflict, phrase.Mistake(why))
}

// AnswerOf returns the outcome and reason of a step for an answer.
func AnswerOf(a *store.FlowAnswer) (job.Outcome, job.Reason) {
	switch {
	case a.Signal != "":
		return job.OutcomeSucceeded, reason.Signalled.Of(a.Signal, a.By)
	case a.Reject:
		return job.OutcomeFailed, reason.Rejected.Of(a.By, reason.Words(a.Note))
	}
	return job.OutcomeSucceeded, reason.Approved.Of(a.By, reason.Words(a.Note))
}

func (o *AnswerFlow) audit(b *Batch, m *member, action string) {
	detail := reason.StepAnswered.Of(o.Run, o.Step, reason.Words(o.Note))
	if o.Signal != "" {
		detail = reason.SignalSent.Of(o.Run, o.Signal, reason.Words(o.Note))
	}
	b.audit(o.By, action, m.Namespace+"/"+m.Name, 0, detail)
}

// comesEarly reports whether a step may wait for the signal later.
func (o *AnswerFlow) comesEarly(f *flowRun) bool {
	return o.Signal != "" && slices.ContainsFunc(f.plan.steps, func(s flowStep) bool {
		return s.Wait != nil && s.Wait.Signal == o.Signal && f.State.Steps[f.plan.graph.Index(s.Name)].Mark == flow.Pending
	})
}

// keep stores a signal for the step that will wait for it, so that a sender need not know the
// progress of the flow.
func (o *AnswerFlow) keep(b *Batch, m *member, f *flowRun) error {
	if why := tooLarge(f, o.Data); !why.IsZero() {
		return o.refused(phrase.Said.Of(phrase.Words(why.String())))
	}
	if f.Early == nil {
		f.Early = map[string]flow.Early{}
	}
	f.Early[o.Signal] = flow.Early{By: o.By, Data: o.Data}
	o.audit(b, m, "run.signal")
	b.saveFlow(m)
	return nil
}

// concerns reports whether the answer is about an open step.
func (o *AnswerFlow) concerns(step string, w *job.Wait) bool {
	if o.Signal != "" {
		return w.Signal == o.Signal
	}
	return step == o.Step && w.Approval != ""
}

// whyNot explains why the answer concerns no step.
func (o *AnswerFlow) whyNot(f *flowRun) phrase.Text {
	if o.Signal != "" {
		return phrase.NoStepWaits.Of(o.Signal)
	}
	i := slices.IndexFunc(f.State.Steps, func(s flow.StepState) bool { return s.Name == o.Step })
	switch {
	case i < 0:
		return phrase.NoFlowStep.Of(phrase.Quoted(o.Step))
	case f.State.Steps[i].Mark.IsOver():
		return phrase.StepIsOver.Of(o.Step)
	case f.State.Steps[i].Mark == flow.Pending:
		return phrase.StepNotStarted.Of(o.Step)
	}
	return phrase.StepNeedsNoApproval.Of(o.Step)
}
