package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

var repository = fstest.MapFS{
	"go.mod":                   {},
	"cron/next_test.go":        {Data: []byte("package cron\n")},
	"bench/go.mod":             {},
	"bench/nodes/some_test.go": {Data: []byte("//go:build servers\n\npackage nodes\n\n\tn.t.Logf(text)\n\tt.Fatalf(why)\n")},
}

func TestReport(t *testing.T) {
	const ok = `{"Action":"run","Package":"github.com/belfry-cron/belfry/cron","Test":"TestNext"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/cron","Test":"TestNext","Output":"=== RUN   TestNext\n"}
{"Action":"run","Package":"github.com/belfry-cron/belfry/cron","Test":"TestNext/a"}
{"Action":"pass","Package":"github.com/belfry-cron/belfry/cron","Test":"TestNext/a"}
{"Action":"pass","Package":"github.com/belfry-cron/belfry/cron","Test":"TestNext"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/cron","Output":"PASS\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/cron","Output":"ok  \tgithub.com/belfry-cron/belfry/cron\t0.1s\n"}
{"Action":"pass","Package":"github.com/belfry-cron/belfry/cron"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/job","Output":"?   \tgithub.com/belfry-cron/belfry/job\t[no test files]\n"}
{"Action":"skip","Package":"github.com/belfry-cron/belfry/job"}
`
	const okLine = "ok  \tgithub.com/belfry-cron/belfry/cron\t0.1s\n"
	tests := []struct {
		name, lines string
		err         error
		want        string
		bad         bool
	}{
		{
			name:  "what passes has a line for each package",
			lines: "go test ./...\n" + ok,
			want:  "go test ./...\n" + okLine + "\nPASSED: 1 tests of 1 packages in 2m3s\n",
		},
		{
			name: "skipped tests are listed with their reasons",
			lines: ok + `{"Action":"output","Package":"github.com/belfry-cron/belfry/executor/shell","Test":"TestLimits/of_a_user","Output":"=== RUN   TestLimits/of_a_user\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/executor/shell","Test":"TestLimits/of_a_user","Output":"    shell_test.go:53: only root can become other users\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/executor/shell","Test":"TestLimits/of_a_user","Output":"    --- SKIP: TestLimits/of_a_user (0.00s)\n"}
{"Action":"skip","Package":"github.com/belfry-cron/belfry/executor/shell","Test":"TestLimits/of_a_user"}
`,
			want: okLine + "\nSkipped on this machine:\n  TestLimits/of_a_user in ./executor/shell\n      shell_test.go:53: only root can become other users\n" +
				"\nPASSED: 1 tests of 1 packages in 2m3s, 1 skipped\n",
		},
		{
			name: "a run without a test is no success",
			want: "\nFAILED: no test was run\n",
			bad:  true,
		},
		{
			name:  "the command fails and no test does",
			lines: ok + "install.sh: broken\n",
			err:   errors.New("exit status 2"),
			want:  okLine + "install.sh: broken\n\nFAILED after 2m3s, and not in a test: exit status 2\n",
			bad:   true,
		},
		{
			name: "a subtest fails, of a module of its own and with servers",
			lines: ok + `{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave/it's_(so)","Output":"=== RUN   TestLeave/it's_(so)\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave/it's_(so)","Output":"    late\n"}
{"Action":"fail","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave/it's_(so)"}
{"Action":"fail","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Output":"FAIL\n"}
{"Action":"fail","Package":"github.com/belfry-cron/belfry/bench/nodes"}
`,
			err: errors.New("exit status 1"),
			want: okLine + "github.com/belfry-cron/belfry/bench/nodes TestLeave/it's_(so)\n    late\nFAIL\n" +
				"\nFAILED: 1, beside 1 tests that passed, in 2m3s. To run each again:\n" +
				`  go -C bench test -count=1 -tags servers -run '^TestLeave$/^it'\''s_\(so\)$' ./nodes` + "\n",
			bad: true,
		},
		{
			name: "why a test failed is repeated at the end, behind all that it logged",
			lines: `{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave","Output":"    some_test.go:5: a log before\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave","Output":"    some_test.go:6: the run is on node b\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave","Output":"        and not on c\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave","Output":"    some_test.go:5: the log of a node\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave","Output":"        its first line\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave","Output":"    helper.go:7: of another package\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave","Output":"--- FAIL: TestLeave (0.00s)\n"}
{"Action":"fail","Package":"github.com/belfry-cron/belfry/bench/nodes","Test":"TestLeave"}
{"Action":"fail","Package":"github.com/belfry-cron/belfry/bench/nodes"}
`,
			err: errors.New("exit status 1"),
			want: "github.com/belfry-cron/belfry/bench/nodes TestLeave\n    some_test.go:5: a log before\n    some_test.go:6: the run is on node b\n        and not on c\n" +
				"    some_test.go:5: the log of a node\n        its first line\n    helper.go:7: of another package\n--- FAIL: TestLeave (0.00s)\n" +
				"\nFAILED: 1, beside 0 tests that passed, in 2m3s. To run each again:\n" +
				"  go -C bench test -count=1 -tags servers -run '^TestLeave$' ./nodes\n" +
				"      some_test.go:6: the run is on node b\n          and not on c\n      helper.go:7: of another package\n",
			bad: true,
		},
		{
			name: "a test that a timeout ends is a failure",
			lines: `{"Action":"output","Package":"github.com/belfry-cron/belfry/cron","Test":"TestPrev","Output":"panic: test timed out\n"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/cron","Output":"FAIL\tgithub.com/belfry-cron/belfry/cron\t600s\n"}
{"Action":"fail","Package":"github.com/belfry-cron/belfry/cron"}
`,
			err: errors.New("exit status 1"),
			want: "github.com/belfry-cron/belfry/cron TestPrev\npanic: test timed out\nFAIL\tgithub.com/belfry-cron/belfry/cron\t600s\n" +
				"\nFAILED: 1, beside 0 tests that passed, in 2m3s. To run each again:\n" +
				"  go test -count=1 -run '^TestPrev$' ./cron\n      panic: test timed out\n",
			bad: true,
		},
		{
			name: "a package cannot be built",
			lines: `{"ImportPath":"github.com/belfry-cron/belfry/cron","Action":"build-output","Output":"cron/next.go:1: syntax error\n"}
{"ImportPath":"github.com/belfry-cron/belfry/cron","Action":"build-fail"}
{"Action":"output","Package":"github.com/belfry-cron/belfry/cron","Output":"FAIL\tgithub.com/belfry-cron/belfry/cron [build failed]\n"}
{"Action":"fail","Package":"github.com/belfry-cron/belfry/cron","FailedBuild":"github.com/belfry-cron/belfry/cron"}
`,
			err: errors.New("exit status 1"),
			want: "cron/next.go:1: syntax error\nFAIL\tgithub.com/belfry-cron/belfry/cron [build failed]\n" +
				"\nFAILED: 1, beside 0 tests that passed, in 2m3s. To run each again:\n" +
				"  go test -count=1 ./cron\n",
			bad: true,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			for line := range strings.Lines(test.lines) {
				r.line(line)
			}
			good := r.finish(repository, 2*time.Minute+3*time.Second, test.err)
			if got := out.String(); got != test.want || good == test.bad {
				t.Errorf("%t, and\n%s\nwant\n%s", good, got, test.want)
			}
		})
	}
}

func TestCommandsRunAtOnce(t *testing.T) {
	one, other := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "other")
	for _, path := range []string{one, other} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Each waits for the output of the other.
	commands := split([]string{"--", "sh", "-c", "echo first >" + one + "; cat " + other, "--", "sh", "-c", "cat " + one + "; echo second >" + other + "; exit 3", "--"})
	var out strings.Builder
	err := newReport(&out).run(commands)
	// Each output has a pipe, so that their order varies.
	lines := slices.Sorted(strings.Lines(out.String()))
	if got := fmt.Sprint(err); got != "exit status 3" || !slices.Equal(lines, []string{"first\n", "second\n"}) {
		t.Errorf("%s, and %q", got, lines)
	}
}
