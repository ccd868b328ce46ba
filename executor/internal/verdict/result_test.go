package verdict_test

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/executor/internal/verdict"
)

func TestTheResultOfACommandIsAnObjectOrLines(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		" \n":                            "",
		"rows=12\nname=a b=c\n":          `{"name":"a b=c","rows":"12"}`,
		"a=1\r\n\r\nb=\r\n":              `{"a":"1","b":""}`,
		`{"rows": 12, "files": ["a"]}`:   `{"rows": 12, "files": ["a"]}`,
		"\n{\"a\": {\"b\": null}}\n\n  ": `{"a": {"b": null}}`,
	} {
		got, err := verdict.ParseResult([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"rows":       "line 1 is not name=value",
		"a=1\n=2":    "line 2 is not name=value",
		`{"rows": `:  "is not a JSON object",
		`{"a": 1} x`: "is not a JSON object",
	} {
		if got, err := verdict.ParseResult([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %s, %v; want that it %s", text, got, err, want)
		}
	}
}
