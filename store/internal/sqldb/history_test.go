package sqldb

import (
	"strings"
	"testing"
)

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
