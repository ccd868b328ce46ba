//go:build servers

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// every chooses all rules.
var every = regexp.MustCompile("")

// program returns the path of a language's program, past shims that take a second to find it.
func program(t *testing.T, name, ask string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("this test runs a worker with %s: install it: %v", name, err)
	}
	flag := map[string]string{"python3": "-c", "node": "-e"}[name]
	if out, err := exec.Command(path, flag, ask).Output(); err == nil {
		path = strings.TrimSpace(string(out))
	}
	return path
}

func python(t *testing.T) string { return program(t, "python3", "import sys; print(sys.executable)") }

// keeps plays rules to a worker.
func keeps(t *testing.T, chosen []*rule, commands bool, command ...string) {
	t.Helper()
	for _, v := range playAll(chosen, command, options{commands, patient}) {
		if len(v.wrong) > 0 {
			t.Errorf("%s: %s\nthe worker said:\n%s", v.name, strings.Join(v.wrong, "\n"), v.said)
		}
	}
}

func TestTheWorkerInPythonKeepsTheRules(t *testing.T) {
	t.Parallel()
	keeps(t, choose(every, false), false, python(t), "../../sdk/python/conformance.py")
}

func TestTheWorkerInTypeScriptKeepsTheRules(t *testing.T) {
	t.Parallel()
	keeps(t, choose(every, false), false, program(t, "node", "console.log(process.execPath)"), "../../sdk/typescript/conformance.js")
}

func TestBelfryWorkerKeepsTheRules(t *testing.T) {
	t.Parallel()
	belfry := filepath.Join(t.TempDir(), "belfry")
	if out, err := exec.Command("go", "build", "-o", belfry, "../../cmd/belfry").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	keeps(t, choose(every, true), true, "sh", "-c", "exec "+belfry+` worker --server "$BELFRY_SERVER" --token-file "$BELFRY_TOKEN_FILE" --data "$BELFRY_DATA" --capacity "$BELFRY_CAPACITY" --name far --run-as "$(id -un)"`)
}

// plantedEach is how many mistakes there are for each that is planted, unless all are: make test-long
// plants all, each of which takes a worker of its own for seconds.
const plantedEach = 4

// Mistakes are planted in the worker in Python, and each case must find the mistake that it is for.
func TestPlantedMistakesAreFound(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	var all sync.WaitGroup
	room := make(chan struct{}, parallel)
	mistakes := map[string]struct{ file, old, new string }{
		"renew":                    {"worker.py", `session.renewed, sent = sent, boot()`, `session.renewed, sent = sent, boot(); return`},
		"clock-ahead":              {"worker.py", `ahead = int(`, `ahead = 0 * int(`},
		"claim-once":               {"worker.py", `/claims", {"attempts": keys}`, `/claims", {"attempts": [{**k, "token": ulid()} for k in keys] if not self._complained else keys}`},
		"due":                      {"worker.py", `return self._clock[0] + boot() - self._clock[1]`, `return time.time()`},
		"verdict":                  {"worker.py", `if claim["verdict"] == "started"]`, `if claim.setdefault("job", {"run": {"handler": "echo"}, "params": {}}) is not None and claim.setdefault("run", {"id": key["run"], "name": "", "namespace": "", "kind": "", "scheduled": claim["now"], "due": claim["now"], "attempt": 1, "lost_after_ms": 60000, "params": {}}) is not None]`},
		"capacity":                 {"worker.py", `room = self._capacity - len(self._attempts)`, `room = 100`},
		"params":                   {"run.py", `given.get(n, p if`, `(p if`},
		"shards":                   {"run.py", `max(1, r.get("shards", 0))`, `r.get("shards", 0)`},
		"timeout":                  {"worker.py", `if a.timeout:`, `if False:`},
		"fenced":                   {"worker.py", `return self.fence is not None and`, `return False and`},
		"unfenced":                 {"worker.py", `None if r.get("unfenced") else`, `None if False else`},
		"cancel":                   {"worker.py", `elif runs[token].get("cancel_by"):`, `elif False:`},
		"taken":                    {"worker.py", `if token not in runs:`, `if token not in runs and False:`},
		"unknown":                  {"worker.py", `self._release(session, [runs[t] for t in unknown & suspects])`, `pass`},
		"report":                   {"worker.py", `**a.key, "started"`, `**a.key, "token": ulid(), "started"`},
		"result-once/lost answer":  {"worker.py", `/results", {"results": batch}`, `/results", {"results": batch}, within=0`},
		"result-once/not accepted": {"worker.py", `if answer.get("undecided"):`, `if not answer.get("accepted"):`},
		"undecided":                {"worker.py", `if answer.get("undecided"):`, `if False:`},
		"flow":                     {"worker.py", `end["value"] =`, `end["reason"] =`},
		"output":                   {"run.py", `self.seq += 1`, `self.seq += 0`},
		"output-live":              {"worker.py", `if chunks and a.result is None:`, `if False:`},
		"output-bounded":           {"run.py", `while self.tailed > TAIL_MAX:`, `while False:`},
		"secrets":                  {"worker.py", `a.output.mask(`, `len(`},
		"drained":                  {"worker.py", `if drained != session.drained:`, `if False:`},
		"session-over":             {"worker.py", `self.id, self.renewed = ulid(), boot()`, `self.id, self.renewed = "01KB6W4N3V8YJ5QX7T2R9ZDCFA", boot()`},
		"predecessors":             {"worker.py", `for old in predecessors:`, `for old in []:`},
		"restart":                  {"spool.py", `if kind == "begun":`, `if False:`},
		"spool":                    {"worker.py", `self._spool.keep(result)`, `pass`},
		"retries/503":              {"_http.py", `response.status >= 500 or`, `False or`},
		"retries/reset":            {"_http.py", `wait = max(e.after, pause * (0.5 + random.random() / 2))`, `wait = 0.001`},
		"retry-after":              {"_http.py", `wait = max(e.after,`, `wait = max(0,`},
		"stop":                     {"worker.py", `wait(self._drain,`, `wait(0,`},
		"version/unknown":          {"worker.py", `if joined["protocol"] != PROTOCOL:`, `if False:`},
	}
	for i, rule := range slices.Sorted(maps.Keys(mistakes)) {
		if i%plantedEach != 0 && os.Getenv("BELFRY_CONFORMANCE") != "whole" {
			continue
		}
		m := mistakes[rule]
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			wrong, err := plant(t.TempDir(), interpreter, rule, m.file, m.old, m.new)
			switch {
			case err != nil:
				t.Errorf("%s: %v", rule, err)
			case len(wrong) == 0:
				t.Errorf("a worker with the mistake keeps the rule %s", rule)
			default:
				t.Logf("%s is found: %s", rule, wrong[0])
			}
		})
	}
	all.Wait()
}

// plant plays a rule to a worker with a mistake, and returns what is wrong.
func plant(dir, interpreter, name, file, old, mistaken string) ([]string, error) {
	if err := os.CopyFS(dir, os.DirFS("../../sdk/python")); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "belfry", file)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), old); n != 1 {
		return nil, fmt.Errorf("%s has %d places with %q", file, n, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, mistaken, 1)), 0o600); err != nil {
		return nil, err
	}
	chosen := choose(regexp.MustCompile("^"+regexp.QuoteMeta(name)+"$"), false)
	if len(chosen) != 1 {
		return nil, fmt.Errorf("there are %d cases of the name", len(chosen))
	}
	wrong, _ := play(chosen[0], []string{interpreter, filepath.Join(dir, "conformance.py")}, options{patience: 15 * time.Second})
	return wrong, nil
}

// A package that people read before they trust it stays as long as an evening.
const sdkLinesMax = 800

func TestThePackagesStayShort(t *testing.T) {
	for language, pattern := range map[string]string{"Python": "../../sdk/python/belfry/*.py", "TypeScript": "../../sdk/typescript/*.js"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) < 4 {
			t.Fatalf("%s: %v (%v)", pattern, files, err)
		}
		lines := 0
		for _, name := range files {
			if filepath.Base(name) == "conformance.js" {
				continue // a test
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lines += codeLines(string(text))
		}
		if lines < 400 || lines > sdkLinesMax {
			t.Errorf("the package for %s has %d lines of code, want 400 to %d", language, lines, sdkLinesMax)
		}
	}
}

// codeLines counts lines of Python or JavaScript that are neither blank nor comments.
func codeLines(text string) (n int) {
	const quotes = `"""`
	isDoc := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case isDoc:
			isDoc = !strings.HasSuffix(line, quotes)
		case strings.HasPrefix(line, quotes):
			isDoc = line == quotes || !strings.HasSuffix(line, quotes)
		case line == "", strings.HasPrefix(line, "#"), strings.HasPrefix(line, "//"), strings.HasPrefix(line, "*"), strings.HasPrefix(line, "/*"):
		default:
			n++
		}
	}
	return n
}
