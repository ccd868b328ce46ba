package notify_test

import (
	"os"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// The guide has an example of each service, and each is a valid channel.
func TestExamplesOfTheGuideAreValid(t *testing.T) {
	text, err := os.ReadFile("../../../docs/notifications.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	parts := strings.Split(string(text), "```yaml\n")
	for _, part := range parts[1:] {
		example, _, _ := strings.Cut(part, "```")
		docs, err := job.Decode("example.yaml", []byte(example))
		if err != nil {
			t.Errorf("%v in\n%s", err, example)
			continue
		}
		for _, d := range docs {
			if err := d.Validate(); err != nil || d.Channel == nil {
				t.Errorf("%v in\n%s", err, example)
				continue
			}
			shown[d.Channel.To.Kind()] = true
		}
	}
	for _, name := range job.ServiceNames() {
		if !shown[name] {
			t.Errorf("there is no example of %s", name)
		}
	}
	for _, event := range job.Notice("").Values() {
		if !strings.Contains(string(text), "| `"+event+"` |") {
			t.Errorf("the table of events lacks %s", event)
		}
	}
}
