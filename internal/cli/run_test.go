package cli

import (
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// 0 would say that there is no output where nobody has counted it.
func TestOutputThatNobodyHasCounted(t *testing.T) {
	for _, test := range []struct {
		outcome job.Outcome
		size    int64
		want    string
	}{
		{job.OutcomeSucceeded, 0, "0"},
		{job.OutcomeFailed, 12, "12"},
		{job.OutcomeLost, 0, "-"},
		{job.OutcomeLost, 12, "12"}, // it was told late
		{"", 0, "-"},
	} {
		if got := outputSize(test.outcome, test.size); got != test.want {
			t.Errorf("%d bytes of one that %q: %s, not %s", test.size, test.outcome, got, test.want)
		}
	}
}
