package reason_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

func TestCauseIsACleanLine(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"feed.csv: 0 rows, expected at least 10,000", "feed.csv: 0 rows, expected at least 10,000"},
		{"  a\t b  \n", "a b"},
		{"\x1b[1;31merror:\x1b[0m no space", "error: no space"},
		{"\x1b]0;title\aerror", "error"},
		{"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\ gone", "link gone"},
		{"10 %\r50 %\rfailed at 51 %\r\n", "failed at 51 %"},
		{"50 %\r\x1b[K", "50 %"},
		{"a\x00b\x07c\u202ed\u009b31me\x7f", "abcde"},
		{"a\xffb", "a\ufffdb"},
		{"\x1b[31", ""},
		{"\x1b", ""},
		{"", ""},
		{"订单 失败", "订单 失败"},
	} {
		if got := reason.Cause(c.line); got != c.want {
			t.Errorf("%q: got %q, want %q", c.line, got, c.want)
		}
	}
	long := reason.Cause(strings.Repeat("é", 5000))
	if n := utf8.RuneCountInString(long); n != reason.CauseMax || !strings.HasSuffix(long, "é…") {
		t.Errorf("a long line has %d characters: %q", n, long)
	}
	if whole := strings.Repeat("é", reason.CauseMax); reason.Cause(whole) != whole || reason.Cause(whole+" \n") != whole {
		t.Error("a line of the limit is cut")
	}
	if again := reason.Cause(long); again != long {
		t.Errorf("a cause changes when it is cleaned again: %q", again)
	}
}

func TestLastLineSkipsEmptyOnes(t *testing.T) {
	for _, c := range []struct {
		text string
		cut  bool
		want string
	}{
		{"one\ntwo\n", false, "two"},
		{"one\ntwo", false, "two"},
		{"one\n\n \x1b[0m\n", false, "one"},
		{"\n\n", false, ""},
		{"", false, ""},
		{"\x98 end of a long line\n", true, "…end of a long line"},
		{"end of a long line\nshort\n", true, "short"},
		{"one", false, "one"},
		{"error: 0 rows\nnothing was changed\n", false, "error: 0 rows"},
		{"old error\n1\n2\n3\n4\n5\n", false, "5"},
		{"Traceback\nValueError: no\n", false, "ValueError: no"},
		{"it FAILED\n\n\n\n\n\n\nbye\n", false, "it FAILED"},
	} {
		if got := reason.LastLine([]byte(c.text), c.cut); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
	if got := reason.FirstLine("\n{\n  \"error\": \"db is down\"\n}\n"); got != `"error": "db is down"` {
		t.Errorf("the first line with text is %q", got)
	}
}

func TestFailuresOfOneKindHaveOneFingerprint(t *testing.T) {
	for _, same := range [][]string{
		{"feed.csv: 0 rows, expected at least 10,000", "feed.csv: 17 rows, expected at least 9,500"},
		{`connection to server at "pg-1.eu" (10.20.4.17), port 5432 failed: Connection refused`, `connection to server at "pg-2.us" (10.20.4.9), port 5433 failed: Connection refused`},
		{"2026-11-28T02:41:00Z ERROR part-077 failed after 1.5s", "2026-11-29T03:41:09Z ERROR part-102 failed after 250ms"},
		{"request 0fa3-77be-1 was refused", "request 1c4e-9900-2 was refused"},
		{"run 01JDP2Y2X8T6QZ9V3W4E5R6T7Y is lost", "run 01JDP2Y2X8T6QZ9V3W4E5R6T8A is lost"},
		{"open /var/lib/a/1.csv: no such file or directory", "open /srv/b.csv: no such file or directory"},
		{"dial https://db-7.example.com:8443/x: timeout", "dial http://db/: timeout"},
		{"no user 'ann'", "no user 'ben'"},
		{"ERROR: feed.csv: 0 rows", "feed.csv: 9 rows"},
		{"panic at 0xdeadbeef", "panic at 0x1234"},
		{"db-1.eu-central-1.rds.amazonaws.com is away", "db-2.us-east-1.rds.amazonaws.com is away"},
	} {
		a, b := reason.FingerprintOf(same[0], job.Reason{}), reason.FingerprintOf(same[1], job.Reason{})
		if a != b || a == 0 {
			t.Errorf("%q and %q differ: %q, %q", same[0], same[1], reason.Alike(same[0]), reason.Alike(same[1]))
		}
	}
	for _, other := range [][]string{
		{"feed.csv: 0 rows", "feed.csv: 0 columns"},
		{"don't stop", "don't start"},
		{"user a/b refused", "user c/b refused"},
		{"timeout", "refused"},
	} {
		if reason.FingerprintOf(other[0], job.Reason{}) == reason.FingerprintOf(other[1], job.Reason{}) {
			t.Errorf("%q and %q have one fingerprint: %q", other[0], other[1], reason.Alike(other[0]))
		}
	}
	if reason.FingerprintOf("", reason.ExitStatus.Of(3)) != reason.FingerprintOf("", reason.ExitStatus.Of(4)) || reason.FingerprintOf("", job.Reason{}) != 0 {
		t.Error("without a cause the reason has the fingerprint")
	}
}

func TestReasonAndCauseAreSaidOnce(t *testing.T) {
	for _, c := range []struct{ why, cause, want string }{
		{"exit status 1", "feed.csv: 0 rows", "exit status 1: feed.csv: 0 rows"},
		{"exit status 127: x: not found", "x: not found", "exit status 127: x: not found"},
		{"status 503 Service Unavailable, expected 2xx", "503 Service Unavailable: the database is down", "status 503 Service Unavailable, expected 2xx: the database is down"},
		{"exit status 1", "", "exit status 1"},
		{"", "boom", "boom"},
	} {
		if got := reason.Beside(c.why, c.cause); got != c.want {
			t.Errorf("%q and %q: %q", c.why, c.cause, got)
		}
	}
}

func FuzzCause(f *testing.F) {
	f.Add("\x1b[1;31merror:\x1b[0m \r no \u202espace 10,000")
	f.Fuzz(func(t *testing.T, line string) {
		c := reason.Cause(line)
		if utf8.RuneCountInString(c) > reason.CauseMax || strings.ContainsAny(c, "\x00\x1b\r\n\t") || !utf8.ValidString(c) || reason.Cause(c) != c {
			t.Errorf("%q: %q, again %q", line, c, reason.Cause(c))
		}
		reason.Alike(line)
		reason.LastLine([]byte(line), true)
	})
}
