package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
)

func TestDifferencesMaskLikelySecrets(t *testing.T) {
	of := func(secret string) *job.Job {
		return &job.Job{
			UID: job.ID{byte(len(secret))}, Version: int64(len(secret)), Name: "a",
			// An invalid job: only one kind of work is allowed.
			Run: job.RunSpec{
				Shell: &job.Shell{Env: map[string]string{"PASSWORD": secret}, Stdin: secret},
				HTTP: &job.HTTP{
					URL:     "https://ann:" + secret + "@example.org/x{{ .Run.ID }}/" + fmt.Sprint(len(secret)) + "?token=" + secret,
					Headers: map[string]string{"Authorization": "Bearer " + secret}, Body: secret,
				},
			},
		}
	}
	var paths []string
	for _, c := range engine.Differences(of("sesame"), of("sesame!!")) {
		paths = append(paths, c.Path)
		if text := c.Before + c.After; strings.Contains(text, "sesame") {
			t.Errorf("%s shows %q", c.Path, text)
		}
		if c.Path == "run.http.url" && c.After != "https://(hidden)@example.org/x{{ .Run.ID }}/8?(hidden)" {
			t.Errorf("the address is %q", c.After)
		}
	}
	if got := strings.Join(paths, " "); got != "run.env.PASSWORD run.http.body run.http.headers.Authorization run.http.url run.stdin" {
		t.Errorf("what is different: %s", got)
	}
}

func TestDifferencesAreBounded(t *testing.T) {
	old, given := &job.Job{Labels: map[string]string{}}, &job.Job{Labels: map[string]string{}}
	for i := range 60 {
		given.Labels[fmt.Sprintf("l%02d", i)] = strings.Repeat("é", 200)
	}
	changes := engine.Differences(old, given)
	if len(changes) != 51 || changes[50].Path != "…" || changes[50].After != "10 more" {
		t.Errorf("there are %d, the last is %+v", len(changes), changes[len(changes)-1])
	}
	if want := strings.Repeat("é", 128) + "… (400 bytes)"; changes[0].After != want {
		t.Errorf("a long value is %q", changes[0].After)
	}
}

func TestEqualDocumentsHaveNoDifferences(t *testing.T) {
	if changes := engine.Differences(&job.Job{Name: "a"}, &job.Job{Name: "a", Version: 2}); len(changes) != 0 {
		t.Errorf("there are %+v", changes)
	}
}
