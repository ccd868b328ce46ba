package spelling

import (
	"slices"
	"strings"
	"testing"
)

func TestOnlyNearNamesAreSuggested(t *testing.T) {
	names := []string{"apply", "job", "logs", "next", "node", "restore", "run", "serve", "validate"}
	for word, want := range map[string][]string{
		"aply":     {"apply"},
		"seerve":   {"serve"},
		"valdiate": {"validate"},
		"rnu":      {"run"},
		"APPLY":    {"apply"},
		"nods":     {"node"},
		"log":      {"logs"},
		"x":        nil,
		"get":      nil,
		"top":      nil,
		"list":     nil,
		"start":    nil,
		"":         nil,

		strings.Repeat("apply", 100): nil,
	} {
		if got := Near(word, names); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
