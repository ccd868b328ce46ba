package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

func TestChangeNamesRunsThatMayStillStart(t *testing.T) {
	run := client.Run{ID: job.ID{1}, Node: "b", Due: time.Date(2026, 11, 28, 2, 4, 37, 5e6, time.UTC)}
	want := "run " + run.ID.String() + ", due 2026-11-28T02:04:37.005Z, may still start as before: node b claimed it before the change and has not released it\n"
	var out strings.Builder
	changeText(&out, jobName{"default", "a"}, client.Change{Result: client.Deleted, MayStart: []client.Run{run}}, "deleted")
	if got := out.String(); got != "job default/a deleted\n"+want {
		t.Errorf("a deletion prints %q", got)
	}
	out.Reset()
	applyText(&out, Env{Getenv: func(string) string { return "" }}, client.Applied{Results: []client.ApplyResult{{Kind: job.KindJob, Name: "default/a", Result: client.Changed, MayStart: []client.Run{run}}}})
	if got := out.String(); got != "job default/a changed\n"+want {
		t.Errorf("apply prints %q", got)
	}
}

func TestARunThatALossMayHaveTouchedIsShownWithDoubt(t *testing.T) {
	var out strings.Builder
	run := client.Run{ID: job.ID{1}, Job: "default/a", State: job.StateDone, Outcome: job.OutcomeSucceeded, StoreLoss: "the store lost steps at 02:04"}
	runText(&out, Env{Getenv: func(string) string { return "" }}, &run)
	if !strings.Contains(out.String(), "doubt") || !strings.Contains(out.String(), run.StoreLoss) {
		t.Errorf("the run is shown without its mark:\n%s", out.String())
	}
}
