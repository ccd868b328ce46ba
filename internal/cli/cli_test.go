package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/belfry-cron/belfry/internal/cli"
)

// clock is the present time of scripts and documents.
var clock = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

// TestScripts runs the scripts in testdata. They have these commands besides
// the ones of testscript:
//
//	belfry ARGUMENT... [<FILE]        must end with exit code 0
//	exits CODE ARGUMENT... [<FILE]    belfry must end with that code
//
// TERMINAL=1 stands for a person at the other end, and ESCAPE is an expression
// that a terminal would obey.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		RequireUniqueNames: true,
		UpdateScripts:      os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			// A script cannot contain it: it sets a window's title.
			env.Setenv("ESCAPE", "\x1b]0;gotcha\x07 * * * *")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"belfry": func(ts *testscript.TestScript, _ bool, args []string) {
				belfry(ts, cli.ExitOK, args)
			},
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				code, err := strconv.Atoi(args[0])
				ts.Check(err)
				belfry(ts, cli.ExitCode(code), args[1:])
			},
		},
	})
}

// belfry runs a command in the folder and environment of a script.
func belfry(ts *testscript.TestScript, want cli.ExitCode, args []string) {
	stdin := ""
	if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "<") {
		stdin = ts.ReadFile(args[n-1][1:])
		args = args[:n-1]
	}
	terminal := ts.Getenv("TERMINAL") != ""
	got := cli.Run(context.Background(), cli.Env{
		Stdin:            strings.NewReader(stdin),
		Stdout:           ts.Stdout(),
		Stderr:           ts.Stderr(),
		Getenv:           ts.Getenv,
		Now:              func() time.Time { return clock },
		Dir:              ts.MkAbs("."),
		StdoutIsTerminal: terminal,
		StderrIsTerminal: terminal,
	}, args)
	if got != want {
		ts.Fatalf("belfry ended with exit code %d, want %d", got, want)
	}
}

// fullDisk accepts nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	for _, args := range [][]string{{"next", "0 9 * * *"}, {"schema"}, {"version"}, {"completion", "bash"}, {"--help"}} {
		var stderr bytes.Buffer
		code := cli.Run(context.Background(), cli.Env{
			Stdout: fullDisk{}, Stderr: &stderr,
			Getenv: func(string) string { return "" },
			Now:    func() time.Time { return clock },
		}, args)
		if code != cli.ExitFailed || !strings.Contains(stderr.String(), "write the output: no space left on device") {
			t.Errorf("belfry %s ended with exit code %d and said %q", strings.Join(args, " "), code, stderr.String())
		}
	}
}
