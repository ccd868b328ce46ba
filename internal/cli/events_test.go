package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A kind that is missing from the list could not be selected.
func TestEveryKindOfEventsMayBeAskedFor(t *testing.T) {
	answers := []string{"run." + string(job.RunByHand)}
	for _, state := range job.RunState("").Values() {
		answers = append(answers, store.RunEvent(job.RunState(state)))
	}
	for _, state := range []store.SessionState{store.SessionLive, store.SessionDrained, store.SessionLeaving, store.SessionSilent, store.SessionLeft} {
		answers = append(answers, "node."+string(state))
	}
	// The actions of the audit have no common list.
	sources, err := filepath.Glob(filepath.Join("..", "decide", "engine", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	action := regexp.MustCompile(`(?:action|audit\()[^"\n]*"([a-z]+\.[a-z]+)"`)
	found := 0
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range action.FindAllSubmatch(text, -1) {
			answers = append(answers, string(m[1]))
			found++
		}
	}
	if found < 12 {
		t.Errorf("%d actions were found in %d files: they are written in another way", found, len(sources))
	}
	for _, kind := range answers {
		if !slices.Contains(eventKinds, kind) {
			t.Errorf("%s is an event, and no filter accepts it", kind)
		}
	}
}
