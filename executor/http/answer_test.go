package httpexec_test

import (
	"testing"

	httpexec "github.com/belfry-cron/belfry/executor/http"
)

func TestJSONOfTheAnswer(t *testing.T) {
	const answer = `{"status": "ok", "errors": 0, "big": 12345678901234567890, "done": true, "left": null,
		"data": {"items": [{"state": "ready"}, {"state": "stuck"}]}, "a.b": "dotted"}`
	for _, test := range []struct{ place, want, reason string }{
		{"status", "ok", ""},
		{"errors", "0", ""},
		{"big", "12345678901234567890", ""},
		{"done", "true", ""},
		{"left", "null", ""},
		{"a.b", "dotted", ""},
		{"data.items.0.state", "ready", ""},
		{"data.items.1.state", "ready", `the answer has data.items.1.state: "stuck", expected "ready"`},
		{"data.items.2.state", "ready", `the answer has no data.items.2.state, expected "ready"`},
		{"data.items.x", "ready", `the answer has no data.items.x, expected "ready"`},
		{"status.deeper", "ok", `the answer has no status.deeper, expected "ok"`},
		{"data.items.0", `{"state":"ready"}`, ""},
	} {
		if got := httpexec.UnmatchedJSON([]byte(answer), false, map[string]string{test.place: test.want}); got.String() != test.reason {
			t.Errorf("%s: %q, not %q", test.place, got, test.reason)
		}
	}
	if got := httpexec.UnmatchedJSON([]byte("<html>"), false, map[string]string{"a": "b"}); got.String() != "the answer is not JSON: invalid character '<' looking for beginning of value" {
		t.Errorf("got %q", got)
	}
	if got := httpexec.UnmatchedJSON([]byte(answer), true, nil); got.IsZero() {
		t.Error("half of an answer was read")
	}
}
