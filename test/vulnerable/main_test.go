package main

import (
	"strings"
	"testing"
)

const answer = `{"config": {"scan_level": "symbol"}}
{"finding": {"osv": "GO-1", "fixed_version": "v1.26.9", "trace": [{"module": "stdlib", "version": "v1.26.8", "package": "net/http", "function": "Serve"}]}}
{"finding": {"osv": "GO-1", "fixed_version": "v1.26.9", "trace": [{"module": "stdlib", "version": "v1.26.8", "package": "net/http", "function": "Get"}]}}
{"finding": {"osv": "GO-2", "fixed_version": "v2.0.0", "trace": [{"module": "example.com/called", "version": "v1.0.0", "package": "example.com/called"}]}}
{"finding": {"osv": "GO-3", "fixed_version": "v2.0.0", "trace": [{"module": "example.com/used", "version": "v1.0.0", "package": "example.com/used", "function": "Do"}]}}
`

func TestVulnerableFunctionsInTheProgramFail(t *testing.T) {
	for _, c := range []struct {
		what, without string
		std, fails    bool
		lines         int
	}{
		{what: "a module", fails: true, lines: 2},
		{what: "the standard library", without: "GO-3", lines: 1},
		{what: "the standard library where that counts", without: "GO-3", std: true, fails: true, lines: 1},
	} {
		var given strings.Builder
		for line := range strings.Lines(answer) {
			if c.without == "" || !strings.Contains(line, c.without) {
				given.WriteString(line)
			}
		}
		found, err := read(strings.NewReader(given.String()))
		if err != nil {
			t.Fatal(err)
		}
		text, failed := judge(found, c.std)
		if failed != c.fails || strings.Count(text, "\n") != c.lines {
			t.Errorf("%s: failed is %v, want %v and %d lines:\n%s", c.what, failed, c.fails, c.lines, text)
		}
	}
	if _, err := read(strings.NewReader(answer + "{")); err == nil {
		t.Error("an answer that was cut off is taken for a whole one")
	}
}
