package service

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

const approvedFlow = `{"name": "load", "run": {"flow": {"steps": [
	{"name": "extract", "run": {"shell": "true"}},
	{"name": "publish", "needs": ["extract"], "wait": {"approval": "publish?"}}]}}}`

// brief is a store that leaves out what lists of runs need not have.
type brief struct{ *memory.Store }

func (s brief) Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error) {
	lists, err := s.Store.Recent(ctx, jobs, n)
	for _, list := range lists {
		for i := range list {
			if n > 1 {
				list[i] = list[i].Brief()
			}
		}
	}
	return lists, err
}

// startStep claims the run of a step.
func (b *bench) startStep(s *Service, id job.ID) client.Run {
	b.t.Helper()
	run, err := s.Runs.Get(b.t.Context(), admin, id)
	if err != nil {
		b.t.Fatal(err)
	}
	b.start(run)
	return run
}

// A flow is claimed before it is due, and its steps wait for their turns: neither is in the times of its steps.
func TestStepsBeginWithTheirRunsAndNotBeforeTheirFlow(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "load", "schedule": {"at": ["`+b.clock().Add(2*time.Second).Format(time.RFC3339Nano)+`"]}, "run": {"flow": {"steps": [{"name": "extract", "run": {"shell": "true"}}]}}}`)
	j, err := store.JobNamed(t.Context(), b.store, "default", "load")
	if err != nil {
		t.Fatal(err)
	}
	due := b.clock().Add(2 * time.Second)
	outcomes, err := b.store.Trigger(t.Context(), []store.TriggerItem{{ID: b.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Key: "k", Scheduled: due, Due: due, Session: b.session, Actor: "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	id := outcomes[0].Run
	step := func(when string) client.StepState {
		t.Helper()
		run, err := s.Runs.Get(t.Context(), admin, id)
		if err != nil || len(run.Steps) != 1 {
			t.Fatalf("%s: the flow is %+v, %v", when, run, err)
		}
		if u := run.Steps[0]; u.Started.Before(run.Started) {
			t.Errorf("%s the step began at %s, and its flow at %s", when, u.Started, run.Started)
		}
		return run.Steps[0]
	}
	if _, err := b.store.Claim(t.Context(), b.session, []store.Attempt{{Run: id, Number: 1, Token: b.id()}}); err != nil {
		t.Fatal(err)
	}
	begun := step("claimed early,")
	b.pass(7 * time.Second)
	run := b.startStep(s, begun.Run)
	b.pass(time.Second)
	b.finish(run, job.OutcomeSucceeded)
	ended := step("ended,")
	own, err := s.Runs.Get(t.Context(), admin, begun.Run)
	if err != nil || !ended.Started.Equal(own.Started) {
		t.Errorf("the step began at %s, and its run at %s (%v)", ended.Started, own.Started, err)
	}
}

func TestFlowStepsLinkToTheirRuns(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{Store: brief{b.store}})
	run := b.runOf(s, approvedFlow)
	// The claim of a flow makes its first steps.
	if _, err := b.store.Claim(t.Context(), b.session, []store.Attempt{{Run: run.ID, Number: 1, Token: b.id()}}); err != nil {
		t.Fatal(err)
	}
	begun, err := s.Runs.Get(t.Context(), admin, run.ID)
	if err != nil || len(begun.Steps) != 2 {
		t.Fatalf("the flow is %+v (%v)", begun, err)
	}
	if begun.Steps[1].Waits != "waits for extract" {
		t.Errorf("the step that has not started waits for %q", begun.Steps[1].Waits)
	}
	if !begun.Steps[1].Run.IsZero() {
		t.Errorf("a step that has not started has the run %s", begun.Steps[1].Run)
	}
	step := b.startStep(s, begun.Steps[0].Run)
	if step.Step != "extract" || step.Parent != run.ID {
		t.Errorf("the run of the step is %+v", step)
	}
	if found := attention(t, s, admin, ""); len(found) > 0 {
		t.Errorf("an approval is pending already: %+v", found)
	}
	for name, code := range map[string]string{"publish": "step_not_started", "extract": "step_needs_no_approval", "print": "no_flow_step"} {
		if _, err := s.Runs.Approve(t.Context(), admin, run.ID, name, false, ""); ErrorOf(err).Detail.Code() != code {
			t.Errorf("an answer to the step %s is refused with %s", name, ErrorOf(err).Detail.Stored())
		}
	}
	b.finish(step, job.OutcomeSucceeded)
	b.pass(time.Second)
	if asks, err := s.Runs.Get(t.Context(), admin, run.ID); err != nil || !strings.Contains(asks.Steps[1].Waits, "waits for a person since 20") || !strings.Contains(asks.Steps[1].Waits, ": publish?") {
		t.Errorf("the step waits for %q (%v)", asks.Steps[1].Waits, err)
	}
	a := attention(t, s, admin, "")["approval default/load"]
	if a.Run != run.ID || a.Severity != client.SeverityWarning || !strings.Contains(a.Text, "step publish waits for a person: publish?") {
		t.Errorf("the approval is %+v", a)
	}
	if l, err := s.Attention.Lasting(t.Context(), admin); err != nil || len(l.Events) != 1 || l.Events[0].Kind != job.NoticeApproval ||
		l.Events[0].Text.String() != "step publish: publish?" || l.Events[0].Run != run.ID || !slices.Contains(l.Whole, job.NoticeApproval) {
		t.Errorf("a channel receives %+v, %v", l, err)
	}
	if found := attention(t, s, Caller{Name: "v", Role: store.RoleViewer, Namespace: "other"}, ""); len(found) > 0 {
		t.Errorf("a caller of another namespace sees %+v", found)
	}
	if _, err := s.Runs.Approve(t.Context(), admin, run.ID, "publish", false, "fine"); err != nil {
		t.Fatal(err)
	}
	if found := attention(t, s, admin, ""); len(found) > 0 {
		t.Errorf("after the answer: %+v", found)
	}
	if again, err := s.Runs.Approve(t.Context(), admin, run.ID, "publish", false, "fine"); err != nil || again.State != job.StateDone {
		t.Errorf("the same answer again: %+v, %v", again, err)
	}
	for _, other := range []struct {
		who    Caller
		reject bool
		note   string
	}{{admin, true, "fine"}, {admin, false, ""}, {Caller{Name: "another", Role: store.RoleAdmin}, false, "fine"}} {
		if _, err := s.Runs.Approve(t.Context(), other.who, run.ID, "publish", other.reject, other.note); !isType(err, client.TypeConflict) {
			t.Errorf("another answer, %+v: %v", other, err)
		}
	}
	ended, err := s.Runs.Get(t.Context(), admin, run.ID)
	if err != nil || ended.State != job.StateDone || ended.Steps[0].Run != step.ID {
		t.Errorf("the flow has ended as %+v (%v)", ended, err)
	}
	page, err := s.Jobs.List(t.Context(), admin, client.JobQuery{Work: job.WorkFlow, Recent: 2}, false)
	if err != nil || len(page.Items) != 1 || strings.Join(page.Recent["default/load"][0].Steps, " ") != "succeeded succeeded" {
		t.Errorf("the flows are %+v (%v)", page, err)
	}
}

func TestFlowExplainsWaitingSteps(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	run := b.runOf(s, `{"name": "wide", "run": {"flow": {"max_parallel": 2, "steps": [
		{"name": "each", "for_each": ["x", "y", "z"], "run": {"shell": "true"}},
		{"name": "late", "run": {"shell": "true"}},
		{"name": "gpu", "needs": ["hand"], "run": {"shell": "true"}, "place": {"labels": {"gpu": "yes"}}},
		{"name": "hand", "wait": {"signal": "go", "for": "1h"}},
		{"name": "last", "needs": ["each", "late"], "run": {"shell": "true"}}],
		"finally": [{"name": "clean", "run": {"shell": "true"}}]}}}`)
	if _, err := b.store.Claim(t.Context(), b.session, []store.Attempt{{Run: run.ID, Number: 1, Token: b.id()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Runs.Signal(t.Context(), admin, run.ID, "go", nil); err != nil {
		t.Fatal(err)
	}
	get := func() map[string]string {
		t.Helper()
		now, err := s.Runs.Get(t.Context(), admin, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		waits := map[string]string{}
		for _, st := range now.Steps {
			waits[st.Name] = st.Waits
		}
		return waits
	}
	waits := get()
	for name, want := range map[string]string{
		"each": "0 of 3 items have ended, 2 are open", "late": "waits for room: 2 steps", "hand": "",
		"last": "waits for each (0/3), late", "clean": "waits for the end of all other steps",
		"gpu": "waits for room",
	} {
		if !strings.Contains(waits[name], want) {
			t.Errorf("step %s waits for %q, want %q", name, waits[name], want)
		}
	}
	run = b.runOf(s, `{"name": "far", "run": {"flow": {"steps": [{"name": "gpu", "run": {"shell": "true"}, "place": {"labels": {"gpu": "yes"}}}]}}}`)
	if _, err := b.store.Claim(t.Context(), b.session, []store.Attempt{{Run: run.ID, Number: 1, Token: b.id()}}); err != nil {
		t.Fatal(err)
	}
	if waits = get(); !strings.Contains(waits["gpu"], "gpu: yes") && !strings.Contains(waits["gpu"], "gpu=yes") {
		t.Errorf("the step waits for %q", waits["gpu"])
	}
}

func TestTheLastLinesOfAFlowAreThoseOfTheStepThatFailed(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	run := b.runOf(s, `{"name": "load", "run": {"flow": {"steps": [
		{"name": "may", "run": {"shell": "false"}, "allow_failure": true}, {"name": "extract", "run": {"shell": "false"}}]}}}`)
	if _, err := b.store.Claim(t.Context(), b.session, []store.Attempt{{Run: run.ID, Number: 1, Token: b.id()}}); err != nil {
		t.Fatal(err)
	}
	begun, err := s.Runs.Get(t.Context(), admin, run.ID)
	if err != nil || len(begun.Steps) != 2 {
		t.Fatalf("the flow is %+v (%v)", begun, err)
	}
	for _, step := range begun.Steps {
		r := b.startStep(s, step.Run)
		b.finish(r, job.OutcomeFailed, b.wrote(r, "of "+step.Name+"\nat:\n\t\x1b[31mline 7\x1b[0m  x\r\n10 %\r20 %\n")...)
	}
	lines, err := s.Output.Last(t.Context(), admin, run.ID, 1, 3)
	if got, want := strings.Join(lines, "|"), "at:| line 7  x|20 %"; err != nil || got != want {
		t.Errorf("the last lines are %q (%v), want %q", got, err, want)
	}
	if lines, err = s.Output.Last(t.Context(), admin, begun.Steps[0].Run, 1, 4); err != nil || lines[0] != "of may" {
		t.Errorf("those of a step are %q (%v)", lines, err)
	}
}
