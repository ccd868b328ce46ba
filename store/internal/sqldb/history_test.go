package sqldb

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// The schemas have the numbers in the condition of an index.
func TestIndexOfFailuresHasTheOutcomesThatAlarm(t *testing.T) {
	var numbers []string
	for _, name := range job.Outcome("").Values() {
		if o := job.Outcome(name); o.Alarms() {
			numbers = append(numbers, fmt.Sprint(columns.Outcomes.Of(o)))
		}
	}
	slices.Sort(numbers)
	if want := "outcome in (" + strings.Join(numbers, ", ") + ")"; !strings.Contains(Failed, want) {
		t.Errorf("the condition is %s, want %s", Failed, want)
	}
}

// The states of twenty runs of a hundred flows would be gigabytes.
func TestStatesOfFlowsAreReadForOneRunOfEachJobOnly(t *testing.T) {
	for _, from := range []string{recentOf, recentOfEach} {
		if text := selectRecent(from, 1); !strings.Contains(text, "h.flow") {
			t.Errorf("one run of each job is read with %s", text)
		}
		if text := selectRecent(from, 20); strings.Contains(text, "flow") {
			t.Errorf("twenty runs of each job are read with %s", text)
		}
	}
}
