// Package xxl tests Belfry with an unmodified executor of XXL-JOB in Go, in a separate process. It
// is a separate module, so that the executor never becomes a dependency of Belfry.
package xxl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/servers"
)

const token = "a-token-for-tests-of-executors"

// programs are the tested programs, built once.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "belfry-xxl"); err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", dir, "./goexecutor").CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, servers.Build(filepath.Join(dir, "belfry"), "cmd/belfry")
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := programs(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// free returns a port that nothing listens on.
func free(t *testing.T) string {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// process is a program that is ended with the test.
type process struct {
	*exec.Cmd
	log  bytes.Buffer
	done chan struct{}
}

func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(filepath.Join(dir, program), args...), done: make(chan struct{})}
	p.Stdout, p.Stderr = &p.log, &p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.done); _ = p.Wait() }()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s %s:\n%s", program, strings.Join(args, " "), p.log.String())
		}
	})
	return p
}

// end ends a process by a signal.
func (p *process) end(t *testing.T, by os.Signal) {
	t.Helper()
	if err := p.Process.Signal(by); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	<-p.done
}

// node is a server.
type node struct {
	*process
	t         *testing.T
	data, url string
	xxl       string // its address for executors
	args      []string
}

// serve starts a server.
func serve(t *testing.T, args ...string) *node {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, data: filepath.Join(dir, "data"), url: "http://127.0.0.1:" + free(t), xxl: "http://127.0.0.1:" + free(t)}
	n.args = append([]string{
		"serve", "--data", n.data, "--listen", strings.TrimPrefix(n.url, "http://"), "--xxl-listen", strings.TrimPrefix(n.xxl, "http://"),
		"--xxl-token", file, "--log-format", "text",
	}, args...)
	n.start()
	return n
}

func (n *node) start() {
	n.t.Helper()
	n.process = start(n.t, "belfry", n.args...)
	n.waits("the server answers", func() bool {
		answer, err := http.Get(n.url + "/readyz")
		if err == nil {
			_ = answer.Body.Close()
		}
		return err == nil && answer.StatusCode == http.StatusOK
	})
}

// waits waits until a condition holds.
func (n *node) waits(what string, holds func() bool) {
	n.t.Helper()
	n.waitsFor(3*time.Minute, what, holds)
}

// waitsFor is waits for slow conditions, checked less often.
func (n *node) waitsFor(most time.Duration, what string, holds func() bool) {
	n.t.Helper()
	for until := time.Now().Add(most); !holds(); time.Sleep(most / 3000) {
		if time.Now().After(until) {
			n.t.Fatalf("waited %v until %s", most, what)
		}
	}
}

// try runs a command of the CLI.
func (n *node) try(args ...string) (string, error) {
	n.t.Helper()
	dir, err := programs()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "belfry"), append(args, "--data", n.data)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("belfry %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return out.String(), nil
}

func (n *node) cli(args ...string) string {
	n.t.Helper()
	out, err := n.try(args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// apply makes jobs.
func (n *node) apply(text string) {
	n.t.Helper()
	file := filepath.Join(n.t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.cli("apply", "-f", file)
}

// run makes a run of a job.
func (n *node) run(job string, params ...string) string {
	n.t.Helper()
	args := []string{"job", "run", job, "-o", "name"}
	for _, p := range params {
		args = append(args, "--param", p)
	}
	return strings.TrimPrefix(strings.TrimSpace(n.cli(args...)), "run/")
}

// run is a run from the API.
type run struct {
	State, Outcome, Reason string
	Attempt                int
	Attempts               []struct{ Number int }
}

func (n *node) get(id string) (r run) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(n.cli("run", "get", id, "-o", "json")), &r); err != nil {
		n.t.Fatal(err)
	}
	return r
}

// ends waits until a run has ended.
func (n *node) ends(id string) (r run) {
	n.t.Helper()
	n.waits("run "+id+" ends", func() bool { r = n.get(id); return r.State == "done" })
	return r
}

// sleeps waits until a run sleeps at an executor.
func (n *node) sleeps(id string) {
	n.t.Helper()
	n.waits("the run is at the executor", func() bool { return strings.Contains(n.cli("run", "logs", id), "sleeping") })
}

// wants checks the end of a run.
func (n *node) wants(id, outcome, reason string) {
	n.t.Helper()
	if r := n.ends(id); r.Outcome != outcome || !strings.Contains(r.Reason, reason) || r.Attempt != 1 {
		n.t.Errorf("the run ended as %s in attempt %d: %s; want %s: %s", r.Outcome, r.Attempt, r.Reason, outcome, reason)
	}
}

// refuses checks the end of a run that an executor refuses. An executor that stalls for 3 s counts
// as having accepted it: then the run is lost, and another one is tried.
func (n *node) refuses(job, outcome, reason string) {
	n.t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		id := n.run(job)
		if n.ends(id).Outcome != "lost" || try == tries {
			n.wants(id, outcome, reason)
			return
		}
	}
}

// executor starts an executor and waits until its admin knows it.
func (n *node) executor() *process {
	n.t.Helper()
	port := free(n.t)
	e := start(n.t, "goexecutor", n.xxl+"/xxl-job-admin", token, port)
	n.registered(port, true)
	return e
}

// registered waits until an executor is registered, or is not.
func (n *node) registered(port string, yes bool) {
	n.t.Helper()
	n.waits("the registration of "+port+" changes", func() bool {
		return strings.Contains(n.cli("xxl", "executors", "-o", "json"), ":"+port) == yes
	})
}

const jobs = `
name: echo
params: {param: full}
policy: {overlap: queue}
run: {xxl: {group: go-group, handler: echo, param: "{{ .Param.param }}", id: 17}}
---
name: sleep
params: {param: 1h}
run: {xxl: {group: go-group, handler: sleep, param: "{{ .Param.param }}"}}
---
name: panic
run: {xxl: {group: go-group, handler: panic}}
---
name: unknown
run: {xxl: {group: go-group, handler: nowhere}}
---
name: overlaps
params: {param: 1h}
run: {xxl: {group: go-group, handler: sleep, param: "{{ .Param.param }}", block: discard_later}}
policy: {overlap: allow}
---
name: everywhere
run: {xxl: {group: go-group, handler: echo, param: x}}
place: {strategy: broadcast}
`

func TestAnExecutorInGo(t *testing.T) {
	n := serve(t)
	n.apply(jobs)
	n.wants(n.run("echo"), "failed", "no executor of the group go-group is registered")
	e := n.executor()

	id := n.run("echo", "param=some 世界")
	n.wants(id, "succeeded", "")
	if got := n.cli("run", "logs", id); !strings.Contains(got, "got some 世界, shard 0 of 1\n") {
		t.Errorf("the log is %q", got)
	}
	n.wants(n.run("panic"), "failed", "task panic:deliberate")
	n.refuses("unknown", "failed", "Task not registered")

	id = n.run("sleep")
	n.sleeps(id)
	if state := n.get(id).State; state != "running" {
		t.Errorf("a run that sleeps is %s", state)
	}
	n.cli("run", "cancel", id)
	n.wants(id, "cancelled", "")

	first := n.run("overlaps")
	n.sleeps(first)
	n.refuses("overlaps", "skipped", "There are tasks running")
	n.cli("run", "cancel", first)
	n.wants(first, "cancelled", "")

	e.end(t, syscall.SIGTERM)
	n.waits("it has unregistered", func() bool { return !strings.Contains(n.cli("xxl", "executors", "-o", "json"), "http://") })
}

// A manual run goes to the executor that it names, and only if necessary to a listed, unreachable
// one.
func TestARunForOneExecutor(t *testing.T) {
	n := serve(t)
	n.apply(jobs + "---\nkind: executors\nname: go-group\naddresses: [http://127.0.0.1:1]\n")
	n.executor()
	second := n.executor()
	address := "http://127.0.0.1:" + second.Args[len(second.Args)-1]
	for range 3 {
		id := strings.TrimPrefix(strings.TrimSpace(n.cli("job", "run", "echo", "--executor", address, "-o", "name")), "run/")
		n.wants(id, "succeeded", "")
		if got := n.cli("run", "get", id, "-o", "json"); !strings.Contains(got, `"executor": "`+address+`"`) {
			t.Errorf("it ran elsewhere: %s", got)
		}
		n.wants(n.run("echo"), "succeeded", "") // whatever the strategy chooses
	}
	id := strings.TrimPrefix(strings.TrimSpace(n.cli("job", "run", "echo", "--executor", "http://127.0.0.1:1", "-o", "name")), "run/")
	n.wants(id, "failed", "loopback")
}

// Runs at an executor survive a restart of Belfry, gentle or killed.
func TestARestartInTheMiddleOfARun(t *testing.T) {
	for _, by := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			n := serve(t)
			n.apply(jobs)
			n.executor()
			over := filepath.Join(t.TempDir(), "over")
			id := n.run("sleep", "param="+over)
			n.sleeps(id)
			n.end(t, by)
			if strings.Contains(n.log.String(), "waiting for an attempt to end") {
				t.Error("the server waited for what runs elsewhere")
			}
			n.start()
			if err := os.WriteFile(over, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			n.wants(id, "succeeded", "")
		})
	}
}

func TestAnExecutorThatWasKilledGetsNothing(t *testing.T) {
	n := serve(t)
	n.apply(jobs)
	first, second := n.executor(), n.executor()
	id := n.run("everywhere")
	var whole struct{ Others []string }
	if err := json.Unmarshal([]byte(n.cli("run", "get", id, "-o", "json")), &whole); err != nil {
		t.Fatal(err)
	}
	n.wants(id, "succeeded", "")
	first.end(t, syscall.SIGKILL)
	for range 4 {
		n.wants(n.run("echo"), "succeeded", "")
	}
	second.end(t, syscall.SIGKILL)
	n.wants(n.run("echo"), "failed", "connection refused")
}

// The executor refuses a second item while the first one runs: it waits.
const flow = `
name: flow
run:
  flow:
    steps:
      - {name: first, run: 'echo word=full >"$BELFRY_RESULT"'}
      - {name: second, needs: [first], run: {xxl: {group: go-group, handler: echo, param: "{{ .Steps.first.Result.word }}"}}}
      - {name: each, needs: [second], for_each: [a, b], run: {xxl: {group: go-group, handler: echo, param: "{{ .Item }}"}}}
      - {name: panics, needs: [each], allow_failure: true, run: {xxl: {group: go-group, handler: panic}}}
      - {name: long, needs: [panics], run: {xxl: {group: go-group, handler: sleep, param: 1h}}}
    finally:
      - {name: clean, run: {xxl: {group: go-group, handler: echo, param: cleaned}}}
`

// Steps of a flow run at executors like jobs, even during a restart of Belfry; a cancel of the flow
// reaches the executor, and finally runs after it.
func TestStepsOfAFlowRunAtAnExecutor(t *testing.T) {
	n := serve(t)
	n.apply(flow)
	n.executor()
	id := n.run("flow")
	n.sleeps(id)
	n.end(t, syscall.SIGKILL)
	n.start()
	n.cli("run", "cancel", id)
	n.wants(id, "cancelled", "")
	var whole struct {
		Steps []struct {
			Name, State, Outcome string
			Attempt              int
		}
	}
	if err := json.Unmarshal([]byte(n.cli("run", "get", id, "-o", "json")), &whole); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"first": "succeeded", "second": "succeeded", "each": "succeeded", "panics": "failed", "long": "cancelled", "clean": "succeeded"}
	for _, s := range whole.Steps {
		if s.Outcome != want[s.Name] || s.Attempt != 1 {
			t.Errorf("step %s ended as %s in attempt %d, want %s in the first", s.Name, s.Outcome, s.Attempt, want[s.Name])
		}
	}
	if logs := n.cli("run", "logs", id); len(whole.Steps) != len(want) || !strings.Contains(logs, "got full, shard 0 of 1") || !strings.Contains(logs, "got cleaned") {
		t.Errorf("%d steps, with the logs\n%s", len(whole.Steps), logs)
	}
}
