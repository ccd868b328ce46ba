package i18n

import (
	"slices"
	"testing"
	"unicode"
)

// Each pattern has the same values in both languages, and words in Chinese.
func TestPatternsHaveTheSameValues(t *testing.T) {
	names := func(text string) (list []string) {
		for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
			list = append(list, m[1])
		}
		slices.Sort(list)
		return list
	}
	for _, r := range problems {
		if en, zh := names(r.en), names(r.zh); !slices.Equal(en, zh) {
			t.Errorf("%q has the values %v, and in Chinese %v", r.en, en, zh)
		}
		if !slices.ContainsFunc([]rune(r.zh), func(c rune) bool { return unicode.Is(unicode.Han, c) }) {
			t.Errorf("%q has no Chinese words: %q", r.en, r.zh)
		}
	}
}
