package engine

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

const minutely = "\nschedule: {cron: '* * * * *'}"

// superfluous are parts of needs that are always requested with another part.
var superfluous = map[string]string{
	"Asked.Jobs": ofRun, "HandOver.Jobs": ofRun, "ToAsk.Jobs": ofRun,
	"PutJobs.Jobs": ofRun, "Restart.Runs": "they are among those that their jobs ask for",
	"Adopt.HandedOver": "it is asked for as by Survey",
	"Cancel.Upstreams": noFollowers, "Release.Upstreams": noFollowers, "Plan.Upstreams": noFollowers, "Restart.Upstreams": noFollowers,
	"Cancel.Sessions": absences, "Inspect.Sessions": absences, "PutDocument.Sessions": absences,
	"FillSlots.Sessions": absences, "FillSlots.Upstreams": noFollowers,
	"Refit.Sessions": absences, "Restart.Sessions": absences, "Restart.Waiting": wholeJobs, "Refit.Waiting": wholeJobs,
}

const (
	wholeJobs   = "all runs of the jobs are asked for"
	ofRun       = "the job of a run is asked for with it"
	noFollowers = "followers are asked for with each end, and a run that was cancelled or skipped starts none"
	absences    = "absences of nodes matter where a slot is handed on or a schedule begins anew late"
)

// TestDecisions decides operations on a book. Each is repeated without each part of its need, which
// must be noticed.
func TestDecisions(t *testing.T) {
	seen := &tried{map[string]bool{}, map[string]bool{}}
	for _, table := range [][]decided{editDecisions, memberDecisions, runDecisions, slotDecisions, endDecisions, lossDecisions, handoverDecisions, flowDecisions, reportDecisions, upkeepDecisions} {
		for _, d := range table {
			t.Run(d.name, func(t *testing.T) { d.take(newBook(t, seen)) })
		}
	}
	var unnoticed []string
	for _, name := range slices.Sorted(maps.Keys(seen.asked)) {
		if superfluous[name] == "" && !seen.noticed[name] {
			unnoticed = append(unnoticed, name)
		}
	}
	if len(unnoticed) > 0 {
		t.Errorf("asked for and never missed:\n%s", strings.Join(unnoticed, "\n"))
	}
}

// decided is a situation in which operations are decided.
type decided struct {
	name string
	take func(k *book)
}

func (k *book) refuses(op Operation, want error) {
	k.Helper()
	if err := k.do(op); !errors.Is(err, want) {
		k.Errorf("%T: got %v, want %v", op, err, want)
	}
}

func equal[T comparable](k *book, what string, got, want T) {
	k.Helper()
	if got != want {
		k.Errorf("%s: got %v, want %v", what, got, want)
	}
}
