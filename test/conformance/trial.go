package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
)

const (
	// patient is how long a case waits for something that must happen: a busy machine is no mistake.
	patient = 40 * time.Second
	// lostAfter is lost_after of runs for which it does not matter.
	lostAfter = time.Minute
	// capacity is what workers are started with.
	capacity = 4
)

// broken is a rule that the worker breaks.
type broken string

// options are how cases are played.
type options struct {
	commands bool          // jobs have commands instead of handlers
	patience time.Duration // how long to wait for something that must happen
}

// trial is a worker as a process, and the server that it calls.
type trial struct {
	*server
	command []string
	options
	dir     string
	http    *httptest.Server
	process *exec.Cmd
	exited  chan struct{} // closed when the process has ended
	exit    error         // then
	said    said
}

// said is what the process wrote.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String returns the end of it.
func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.text.String()
	return text[max(0, len(text)-4000):]
}

// fail ends the case.
func (t *trial) fail(format string, args ...any) { panic(broken(fmt.Sprintf(format, args...))) }

// start starts the process.
func (t *trial) start() {
	t.process = exec.Command(t.command[0], t.command[1:]...)
	t.process.Env = append(os.Environ(), "BELFRY_SERVER="+t.http.URL, "BELFRY_TOKEN="+token, "BELFRY_TOKEN_FILE="+filepath.Join(t.dir, "token"),
		"BELFRY_DATA="+filepath.Join(t.dir, "data"), fmt.Sprint("BELFRY_CAPACITY=", capacity))
	t.process.Stdout, t.process.Stderr = &t.said, &t.said
	t.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.process.WaitDelay = time.Second // a child that outlives it has its output
	if err := t.process.Start(); err != nil {
		t.fail("the command does not start: %v", err)
	}
	exited, process := make(chan struct{}), t.process
	t.exited = exited
	go func() {
		t.exit = process.Wait()
		close(exited)
	}()
}

// begin starts the process and waits for its session.
func (t *trial) begin() {
	t.start()
	if !t.within(patient, func() bool { return len(t.sessions) > 0 }) { // a process may need long to start, whatever else is short
		t.fail("join: within %s the worker never begins a session", patient)
	}
}

// signal sends a signal to the process.
func (t *trial) signal(s syscall.Signal) {
	if err := t.process.Process.Signal(s); err != nil {
		t.fail("the process has ended: %v", t.exit)
	}
}

// ends waits for the end of the process, and returns whether it has the exit code 0.
func (t *trial) ends(within time.Duration) bool {
	select {
	case <-t.exited:
	case <-time.After(within):
		t.fail("the process has not ended after %s", within)
	}
	return t.exit == nil
}

// running reports whether the process runs.
func (t *trial) running() bool {
	select {
	case <-t.exited:
		return false
	default:
		return true
	}
}

// until waits until the server has seen something.
func (t *trial) until(rule, what string, seen func() bool) {
	if !t.within(t.patience, seen) {
		t.fail("%s: within %s the worker never %s", rule, t.patience, what)
	}
}

// within reports whether the server sees something in a while. It looks at changes, and every 50 ms.
func (t *trial) within(d time.Duration, seen func() bool) bool {
	end := time.Now().Add(d)
	for {
		t.mu.Lock()
		yes, news := seen(), t.news
		t.mu.Unlock()
		if yes {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		select {
		case <-news:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// kind is what a job does: a handler, or a command that does the same.
type kind struct {
	handler string
	params  map[string]any
	policy  string // in JSON
	dueIn   time.Duration
	change  func(r *run)
}

// add adds a run, which is ready.
func (t *trial) add(k kind) *run {
	t.mu.Lock()
	now := t.now()
	t.mu.Unlock()
	params := map[string]any{"witness": t.path()}
	for name, value := range k.params {
		params[name] = value
	}
	document := map[string]any{"name": "job-" + k.handler, "params": params, "run": map[string]any{"handler": k.handler}}
	if t.commands {
		document["run"] = map[string]any{"shell": scripts[k.handler]}
	}
	if k.policy != "" {
		document["policy"] = json.RawMessage(k.policy)
	}
	text, err := json.Marshal(document)
	if err != nil {
		panic(err) // the cases are right
	}
	list, err := job.Decode("", text)
	if err != nil {
		panic(err)
	}
	definition := list[0].Job.WithDefaults(job.Defaults{})
	definition.UID, definition.Version = newID(), 1
	r := &run{definition: definition, tokens: map[job.ID]bool{}, changed: now}
	r.Run = wire.Run{
		ID: newID(), Job: definition.UID, Namespace: "default", Name: definition.Name, Kind: job.RunByHand, State: job.StateReady,
		Scheduled: now, Due: now.Add(k.dueIn), Attempt: 1, LostAfter: lostAfter.Milliseconds(), Version: 1,
	}
	if k.change != nil {
		k.change(r)
	}
	if r.document, err = json.Marshal(definition); err != nil {
		panic(err)
	}
	t.change(func() {
		t.runs = append(t.runs, r)
		t.server.hints = append(t.server.hints, "runs")
	})
	return r
}

// scripts do what the handlers do, for workers that run commands.
var scripts = map[string]string{
	"echo": mark("begin") + `for i in $(seq ${BELFRY_PARAM_COUNT:-1}); do echo "$BELFRY_PARAM_TEXT"; done; echo oops >&2
` + mark("end"),
	"fail": mark("begin") + `echo "$BELFRY_PARAM_TEXT" >&2
` + mark("end") + `exit 1`,
	"sleep": mark("begin") + `trap '` + strings.TrimSpace(mark("end")) + `; exit 143' TERM
echo sleeping
sleep $BELFRY_PARAM_SECONDS & wait $!
` + mark("end"),
	"context": mark("begin") + `printf '{"run":"%s","attempt":%s,"shard":%s,"shards":%s,"params":{"text":"%s"}}\n' $BELFRY_RUN $BELFRY_ATTEMPT $BELFRY_SHARD $BELFRY_SHARDS "$BELFRY_PARAM_TEXT"
` + mark("end"),
}

func mark(what string) string {
	return `echo "$BELFRY_RUN $BELFRY_ATTEMPT ` + what + `" >>"$BELFRY_PARAM_WITNESS"
`
}

func (t *trial) path() string { return filepath.Join(t.dir, "witness") }

// witnessed counts the lines of a run in the file of witnesses.
func (t *trial) witnessed(r *run, what string) (n int) {
	text, err := os.ReadFile(t.path())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.fail("read the witness: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == r.ID.String() && fields[2] == what {
			n++
		}
	}
	return n
}

// begun waits until the handler of a run has begun.
func (t *trial) begun(rule string, r *run) {
	t.until(rule, "starts a run that is due", func() bool { return t.witnessed(r, "begin") > 0 })
}

// done waits for the result of a run, and checks that it has run once.
func (t *trial) done(rule string, r *run) wire.Result {
	t.until(rule, "reports the result of a run", func() bool { return r.State == job.StateDone })
	if n := t.witnessed(r, "begin"); n != 1 {
		t.fail("claim-once: an attempt has begun %d times", n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.results[len(r.results)-1]
}

// succeeds waits for the success of a run.
func (t *trial) succeeds(rule string, r *run) wire.Result {
	res := t.done(rule, r)
	if res.Outcome != job.OutcomeSucceeded {
		t.fail("%s: the outcome is %s, %q", rule, res.Outcome, res.Reason)
	}
	return res
}

// written returns the output of a run.
func (t *trial) written(r *run) (stdout, stderr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.output()
}

// count returns how many calls of a kind were made since a moment.
func (t *trial) count(op string, since time.Time) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.calls {
		if t.calls[i].op == op && !t.calls[i].at.Before(since) {
			n++
		}
	}
	return n
}

// spoil sets what goes wrong; nil for nothing.
func (t *trial) spoil(f func(op string) *fault) { t.change(func() { t.faults = f }) }

// silent cuts all connections.
func silent(string) *fault { return &fault{} }

// first is a fault of the first n calls of a kind.
func first(op string, n int, f *fault) func(string) *fault {
	return func(one string) *fault {
		if one == op && n > 0 {
			n--
			return f
		}
		return nil
	}
}

// play plays a case and returns what the worker does wrong.
func play(c *rule, command []string, o options) (wrong []string, output string) {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return []string{err.Error()}, ""
	}
	defer os.RemoveAll(dir)
	t := &trial{server: newServer(), command: command, options: o, dir: dir}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
		return []string{err.Error()}, ""
	}
	t.http = httptest.NewServer(t.server)
	func() {
		defer func() {
			switch cause := recover().(type) {
			case nil:
			case broken:
				wrong = append(wrong, string(cause))
			default:
				panic(cause)
			}
		}()
		c.play(t)
		if t.process != nil && !t.running() && !c.ends {
			t.fail("the process has ended: %v", t.exit)
		}
	}()
	if t.process != nil {
		_ = syscall.Kill(-t.process.Process.Pid, syscall.SIGKILL) // it may have ended
		<-t.exited
	}
	t.http.CloseClientConnections()
	t.http.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.wrong) > 0 {
		wrong = append(wrong, t.wrong[0])
		if more := len(t.wrong) - 1; more > 0 {
			wrong = append(wrong, fmt.Sprintf("… and %d more of the kind", more))
		}
	}
	return wrong, t.said.String()
}
