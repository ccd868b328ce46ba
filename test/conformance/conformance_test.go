package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each rule on the page is played, and each case is a rule on the page.
func TestThePageAndTheCasesHaveTheSameRules(t *testing.T) {
	text, err := os.ReadFile("../../docs/worker-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	page, _, _ := strings.Cut(string(text), "## Conformance")
	var written, played []string
	for _, m := range regexp.MustCompile(`\*\*([a-z-]+)\*\*: `).FindAllStringSubmatch(page, -1) {
		written = append(written, m[1])
	}
	for i := range rules {
		name, _, _ := strings.Cut(rules[i].name, "/")
		played = append(played, name)
	}
	slices.Sort(written)
	slices.Sort(played)
	if played = slices.Compact(played); !slices.Equal(written, played) {
		t.Errorf("the page has the rules\n%v\nand the cases are\n%v", written, played)
	}
}
