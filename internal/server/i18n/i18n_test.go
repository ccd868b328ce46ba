package i18n

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var named = regexp.MustCompile(`\{\w+\}`)

func TestEveryTextIsInBothLanguagesWithTheSameValues(t *testing.T) {
	seen := map[string]bool{}
	for _, said := range catalogue {
		if seen[said.key] {
			t.Errorf("%s is there twice", said.key)
		}
		seen[said.key] = true
		if said.en == "" || said.zh == "" {
			t.Errorf("%s has no text in one of the languages", said.key)
		}
		for _, form := range strings.Split(said.en, "|") {
			if en, zh := values(form), values(said.zh); !subset(en, zh) {
				t.Errorf("%s names %v in English and %v in Chinese", said.key, en, zh)
			}
		}
		if en := values(said.en); !subset(values(said.zh), en) {
			t.Errorf("%s names %v in Chinese and %v in English", said.key, values(said.zh), en)
		}
	}
}

// values are what a text names. A singular may leave out its number.
func values(text string) []string {
	list := named.FindAllString(text, -1)
	slices.Sort(list)
	return slices.Compact(list)
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(name string) bool { return !slices.Contains(b, name) })
}

func TestTextsTakeValuesAndNumbers(t *testing.T) {
	for _, c := range []struct {
		lang   Lang
		key    string
		values []any
		want   string
	}{
		{English, "jobs.shown", []any{"n", 1}, "1 job"},
		{English, "jobs.shown", []any{"n", 2}, "2 jobs"},
		{Chinese, "jobs.shown", []any{"n", 1}, "1 个任务"},
		{English, "jobs.paused_by", []any{"who", "{n} wei"}, "paused by {n} wei"},
		{English, "no.such.key", nil, "no.such.key"},
	} {
		if got := c.lang.T(c.key, c.values...); got != c.want {
			t.Errorf("%s %s is %q, want %q", c.lang, c.key, got, c.want)
		}
	}
}

func TestTheReadersLanguageIsChosen(t *testing.T) {
	for _, c := range []struct {
		chosen, accepted string
		want             Lang
	}{
		{"", "", English},
		{"", "zh-CN,zh;q=0.9,en;q=0.8", Chinese},
		{"", "fr, en-GB;q=0.7, zh;q=0.1", English},
		{"zh", "en", Chinese},
		{"fr", "de", English},
	} {
		if got := Choose(c.chosen, c.accepted); got != c.want {
			t.Errorf("chosen %q and accepted %q give %s, want %s", c.chosen, c.accepted, got, c.want)
		}
	}
}
