package job_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// Hints cost more than the rest of a mistake, and few people read the hundredth.
func TestOnlyTheFirstUnknownFieldsGetAHint(t *testing.T) {
	text := `{"name": "a"`
	for i := range 300 {
		text += fmt.Sprintf(`, "tiemzone%d": 1`, i)
	}
	_, err := job.Decode("", []byte(text+"}"))
	var problems job.Problems
	if !errors.As(err, &problems) || len(problems) != 300 {
		t.Fatalf("%d problems", len(problems))
	}
	for i, p := range problems {
		if has := strings.TrimSpace(p.Hint.String()) != ""; has != (i < 100) {
			t.Fatalf("problem %d has the hint %q", i, p.Hint)
		}
	}
}
