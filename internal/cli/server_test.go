package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/cli"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
)

// TestMain makes the binary of the tests a watchdog when a server of the tests
// starts one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == watchdog.Argument {
		os.Exit(server.Watchdog())
	}
	if len(os.Args) > 2 && os.Args[1] == asBelfry {
		os.Exit(int(cli.Run(context.Background(), cli.System(), os.Args[2:])))
	}
	// A command's connections end with its process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// asBelfry as the first argument makes the binary of the tests belfry, for what is
// started by a command that is tested: $BELFRY in scripts.
const asBelfry = "as-belfry"

// TestServerScripts runs the scripts in testdata/server, each with a folder of its
// own for data. They go by the real clock, and have these commands besides those
// of TestScripts:
//
// An argument @FILE of belfry is what the file holds, @FILE/STEP that and a step.
//
//	serve [ARGUMENT...]    starts a server, and waits until it answers; with ! before it, does not wait
//	token FILE             gives commands the token that the file holds
//	interrupt              interrupts it, and waits for its end
//	fetch PATH [REGEXP...] prints what it answers to a GET with its token, once it
//	                       is ready and its answer has these lines
//	ping METHOD FILE [END [BODY]]  sends a ping to the URL in a file, with an end
//	shows [ARGUMENT...]    is belfry on a terminal; => CODE at the end is what it exits with
//	shown FILE TITLE       compares all that was shown with a picture in the repository
func TestServerScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	testscript.Run(t, testscript.Params{
		Dir:                filepath.Join("testdata", "server"),
		RequireUniqueNames: true,
		UpdateScripts:      os.Getenv("UPDATE") != "",
		Condition: func(name string) (bool, error) {
			if name != "root" {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			return os.Geteuid() == 0, nil // only root runs commands as other users
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("BELFRY_DATA", filepath.Join(env.WorkDir, "data"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TMPDIR", env.WorkDir)
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			env.Setenv("BELFRY", binary+" "+asBelfry)
			root, err := filepath.Abs(repository)
			if err != nil {
				return err
			}
			env.Setenv("REPOSITORY", root)
			env.Setenv("ME", strconv.Itoa(os.Geteuid()))
			env.Values[serverKey{}], env.Values[screenKey{}] = &runningServer{}, &screen{}
			env.Defer(func() { env.Values[serverKey{}].(*runningServer).stop() })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"belfry": func(ts *testscript.TestScript, _ bool, args []string) { belfryNow(ts, cli.ExitOK, args) },
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				code, err := strconv.Atoi(args[0])
				ts.Check(err)
				belfryNow(ts, cli.ExitCode(code), args[1:])
			},
			"eventually": eventually,
			"token": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv("BELFRY_TOKEN", strings.TrimSpace(ts.ReadFile(args[0])))
			},
			"serve": serveInBackground,
			"fetch": fetch,
			"ping":  ping,
			"shows": shows,
			"shown": shown,
			"logged": func(ts *testscript.TestScript, _ bool, args []string) {
				log, want := &ts.Value(serverKey{}).(*runningServer).log, regexp.MustCompile("(?m)"+args[0])
				for deadline := time.Now().Add(patience); !want.MatchString(log.String()); time.Sleep(20 * time.Millisecond) {
					if time.Now().After(deadline) {
						ts.Fatalf("the server does not log %s:\n%s", want, log.String())
					}
				}
			},
			"interrupt": func(ts *testscript.TestScript, _ bool, _ []string) {
				s := ts.Value(serverKey{}).(*runningServer)
				if code := s.stop(); code != cli.ExitOK {
					ts.Fatalf("the server ended with exit code %d:\n%s", code, s.log.String())
				}
				ts.Logf("%s", s.log.String())
				ts.Check(os.WriteFile(ts.MkAbs("server.log"), []byte(s.log.String()), 0o600))
			},
		},
	})
}

// belfryNow is belfry by the real clock.
func belfryNow(ts *testscript.TestScript, want cli.ExitCode, args []string) {
	stdin := ""
	if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "<") {
		stdin = ts.ReadFile(args[n-1][1:])
		args = args[:n-1]
	}
	args = expanded(ts, args)
	env := scriptEnv(ts)
	env.Stdin = strings.NewReader(stdin)
	if got := cli.Run(context.Background(), env, args); got != want {
		ts.Fatalf("belfry ended with exit code %d, want %d", got, want)
	}
}

// expanded puts the contents of files into arguments.
func expanded(ts *testscript.TestScript, args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		if file, ok := strings.CutPrefix(arg, "@"); ok {
			file, step, isPath := strings.Cut(file, "/")
			if args[i] = strings.TrimSpace(ts.ReadFile(file)); isPath {
				args[i] += "/" + step
			}
		}
	}
	return args
}

// patience bounds the waits of scripts for events that should take milliseconds.
const patience = 3 * time.Minute

// eventually repeats belfry until its output has a line, for asynchronous work of a server:
// eventually REGEXP ARGUMENTS.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	asked := expanded(ts, args[1:])
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var out bytes.Buffer
		env := scriptEnv(ts)
		env.Stdout = &out
		if code := cli.Run(context.Background(), env, asked); code != cli.ExitOK {
			ts.Fatalf("belfry ended with exit code %d", code)
		}
		if want.Match(out.Bytes()) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no match for %s in %s", want, out.String())
		}
	}
}

func scriptEnv(ts *testscript.TestScript) cli.Env {
	terminal := ts.Getenv("TERMINAL") != ""
	return cli.Env{
		Stdin: strings.NewReader(""), Stdout: ts.Stdout(), Stderr: ts.Stderr(), Getenv: ts.Getenv, Now: time.Now, Dir: ts.MkAbs("."),
		StdinIsTerminal: terminal, StdoutIsTerminal: terminal, StderrIsTerminal: terminal,
	}
}

type serverKey struct{}

// runningServer is a server in the background.
type runningServer struct {
	cancel context.CancelFunc
	ended  chan cli.ExitCode
	log    logtest.Log
}

// stop interrupts the server and returns its exit code.
func (s *runningServer) stop() cli.ExitCode {
	if s.cancel == nil {
		return cli.ExitOK
	}
	s.cancel()
	s.cancel = nil
	return <-s.ended
}

// serveInBackground starts a server at an address that is free.
func serveInBackground(ts *testscript.TestScript, withoutAnswer bool, args []string) {
	s := ts.Value(serverKey{}).(*runningServer)
	if s.cancel != nil {
		ts.Fatalf("a server runs already")
	}
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--name", "one"}, args...)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.ended, s.log = cancel, make(chan cli.ExitCode, 1), logtest.Log{}
	env := scriptEnv(ts)
	env.Stdout, env.Stderr = &s.log, &s.log
	go func() { s.ended <- cli.Run(ctx, env, args) }()
	if withoutAnswer {
		return
	}
	for deadline := time.Now().Add(patience); ; {
		probe := scriptEnv(ts)
		probe.Stdout, probe.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
		// By its data directory: another server may have the clients' default address.
		if code := cli.Run(ctx, probe, []string{"job", "list", "--data", ts.Getenv("BELFRY_DATA")}); code == cli.ExitOK || code == cli.ExitNotAllowed {
			return // a server without the API refuses
		}
		select {
		case code := <-s.ended:
			s.cancel = nil
			ts.Fatalf("the server ended with exit code %d:\n%s", code, s.log.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the server does not answer:\n%s", s.log.String())
		}
	}
}

// fetch requests a path of the server that has no command.
func fetch(ts *testscript.TestScript, _ bool, args []string) {
	c, err := config.Connect(config.Asked{}, ts.Getenv, auth.ReadToken)
	ts.Check(err)
	request, err := http.NewRequest("GET", c.Server+args[0], nil)
	ts.Check(err)
	request.Header.Set("Authorization", "Bearer "+c.Token)
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		answer, err := http.DefaultClient.Do(request)
		ts.Check(err)
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		ts.Check(err)
		has := func(line string) bool { return regexp.MustCompile("(?m)" + line).Match(text) }
		isThere := answer.StatusCode == http.StatusOK && !slices.ContainsFunc(args[1:], func(line string) bool { return !has(line) })
		if isThere || time.Now().After(deadline) || answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusServiceUnavailable {
			_, err = ts.Stdout().Write(text)
			ts.Check(err)
			if !isThere {
				ts.Fatalf("%s has the status %s, and should have the lines %q", args[0], answer.Status, args[1:])
			}
			return
		}
	}
}

// ping sends a ping.
func ping(ts *testscript.TestScript, _ bool, args []string) {
	args = append(args, "", "")
	url := strings.TrimSpace(ts.ReadFile(args[1])) + args[2]
	request, err := http.NewRequestWithContext(context.Background(), args[0], url, strings.NewReader(args[3]))
	ts.Check(err)
	answer, err := http.DefaultClient.Do(request)
	ts.Check(err)
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		ts.Fatalf("%s", answer.Status)
	}
}
