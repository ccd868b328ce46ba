package tutorial

import (
	"os"
	"regexp"
	"testing"
)

// block is a code block of a page: its info string and its text.
var block = regexp.MustCompile("(?ms)^```(\\S[^\n]*)\n(.*?)^```$")

// Only the code blocks of the English pages are tested, so that the Chinese ones must be equal.
func TestTranslationsHaveTheSameCodeBlocks(t *testing.T) {
	for original, translation := range map[string]string{
		"../../README.md":        "../../README.zh.md",
		"../../docs/tutorial.md": "../../docs/tutorial.zh.md",
	} {
		want, got := codeBlocks(t, original), codeBlocks(t, translation)
		if len(want) == 0 || len(got) != len(want) {
			t.Errorf("%s has %d code blocks and %s has %d", translation, len(got), original, len(want))
			continue
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("code block %d of %s is\n%s\nand in %s it is\n%s", i+1, translation, got[i], original, want[i])
			}
		}
	}
}

func codeBlocks(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return block.FindAllString(string(text), -1)
}
