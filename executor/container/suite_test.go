package container_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/container"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

// testImage has a shell and the usual small programs.
const testImage = "localhost/belfry-test:1"

// rig is an executor on an engine.
type rig struct {
	*testing.T
	*container.Executor
	engine *engine.Engine
	socket string
	node   string
}

// patience bounds the wait for a state: far longer than it takes on a machine under load.
const patience = 2 * time.Minute

func newRig(t *testing.T, socket string, settings container.Settings) *rig {
	t.Helper()
	r := &rig{T: t, engine: engine.New(socket), socket: socket, node: fmt.Sprintf("test-%s-%d", strings.ToLower(t.Name()[max(0, len(t.Name())-20):]), time.Now().UnixNano())}
	r.Executor = container.New(container.Config{Settings: settings, Engine: r.engine, Node: r.node})
	t.Cleanup(func() {
		r.Collect(context.Background()) // containers of failed tests
		r.Close()
	})
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		if _, err := r.Probe(t.Context()); err == nil {
			return r
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// rootless reports whether the engine is the Podman of a user other than root.
func (r *rig) rootless() bool { return filepath.Base(r.socket) == "podman.sock" }

// Run runs an attempt whose result is then kept.
func (r *rig) Run(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	if r.rootless() { // a user may lack access to /dev/net/tun, which a network needs
		j := *a.Job
		c := *j.Run.Container
		c.Network, j.Run.Container, a.Job = "none", &c, &j
	}
	got := r.Executor.Run(ctx, a, out)
	if got.Release != nil {
		got.Release()
	}
	return got
}

// recorder is the output of an attempt.
type recorder struct {
	mu          sync.Mutex
	out, errors bytes.Buffer
	changed     chan struct{} // of capacity one
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{}, 1)} }

type stream struct {
	r  *recorder
	to *bytes.Buffer
}

func (s stream) Write(p []byte) (int, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	select {
	case s.r.changed <- struct{}{}:
	default:
	}
	return s.to.Write(p)
}

func (r *recorder) output() executor.Output {
	return executor.Output{Stdout: stream{r, &r.out}, Stderr: stream{r, &r.errors}}
}

func (r *recorder) texts() (out, errors string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String(), r.errors.String()
}

// until waits until the standard output contains a text.
func (r *recorder) until(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		if out, _ := r.texts(); strings.Contains(out, text) {
			return
		}
		select {
		case <-r.changed:
		case <-deadline:
			out, errors := r.texts()
			t.Fatalf("no %q in the output:\n%s%s", text, out, errors)
		}
	}
}

var (
	idMu sync.Mutex
	ids  = uint64(time.Now().UnixNano())
)

// newID returns another id at each call, also in other processes of the test.
func newID() (id job.ID) {
	idMu.Lock()
	defer idMu.Unlock()
	ids++
	for i := range 8 {
		id[8+i] = byte(ids >> (8 * i))
	}
	return id
}

// attemptOf is an attempt of a job with a container.
func attemptOf(c job.Container) executor.Attempt {
	if c.Image == "" {
		c.Image = testImage
	}
	j := (&job.Job{Namespace: "default", Name: "test", UID: newID(), Run: job.RunSpec{Container: &c}}).WithDefaults(job.Defaults{})
	run := job.Run{ID: newID(), Namespace: "default", Name: "test"}
	return executor.Attempt{
		Job: j, Run: run, Number: 1, Grace: time.Minute, Start: func() error { return nil },
		Data: job.TemplateData{Namespace: "default", Name: "test", Node: "node", Run: run.ID, Attempt: 1, Shards: 1, Params: map[string]string{}},
	}
}

// nothingLeft fails if the engine has a container of the rig.
func (r *rig) nothingLeft() {
	r.Helper()
	list, err := r.engine.List(r.Context(), "io.belfry.node", r.node)
	if err != nil || len(list) > 0 {
		r.Errorf("left behind: %+v, %v", list, err)
	}
}

func codeOf(r executor.Result) int {
	if r.ExitCode == nil {
		return -1
	}
	return *r.ExitCode
}

// suite are the tests that each engine passes.
var suite = map[string]func(*rig){
	"output, environment and exit code": func(r *rig) {
		a := attemptOf(job.Container{Shell: "echo to out $A $BELFRY_ATTEMPT; echo to err >&2; exit 3", Env: map[string]string{"A": "b c"}})
		said := newRecorder()
		got := r.Run(r.Context(), a, said.output())
		out, errors := said.texts()
		if got.Outcome != job.OutcomeFailed || codeOf(got) != 3 || got.Reason.String() != "exit status 3" || out != "to out b c 1\n" || errors != "to err\n" {
			r.Errorf("got %+v (%s), %q, %q", got, got.Reason, out, errors)
		}
		r.nothingLeft()
	},
	"command and arguments": func(r *rig) {
		a := attemptOf(job.Container{Command: []string{"echo", "{{ .Attempt }}"}, Args: []string{"$HOME", "a  b"}})
		said := newRecorder()
		if got := r.Run(r.Context(), a, said.output()); got.Outcome != job.OutcomeSucceeded {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		if out, _ := said.texts(); out != "1 $HOME a  b\n" {
			r.Errorf("it wrote %q", out)
		}
	},
	"a program that does not exist": func(r *rig) {
		got := r.Run(r.Context(), attemptOf(job.Container{Command: []string{"no-such-program"}}), executor.Output{})
		if got.Outcome != job.OutcomeFailed || codeOf(got) != 127 || got.Reason.Code() != "engine_refused" {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		r.nothingLeft()
	},
	"files and result": func(r *rig) {
		a := attemptOf(job.Container{Shell: `echo "rows=$(cat "$IN")" > "$BELFRY_RESULT"`, Files: map[string]string{"IN": "12"}})
		a.WantsResult = true
		got := r.Run(r.Context(), a, executor.Output{})
		if got.Outcome != job.OutcomeSucceeded || string(got.Value) != `{"rows":"12"}` {
			r.Errorf("got %+v (%s), %s", got, got.Reason, got.Value)
		}
		r.nothingLeft()
	},
	"a cancel sends the stop signal": func(r *rig) {
		a := attemptOf(job.Container{Shell: `trap "echo asked; exit 5" INT; echo ready; while :; do sleep 0.05; done`, StopSignal: "SIGINT"})
		said := newRecorder()
		ctx, cancel := context.WithCancelCause(r.Context())
		go func() {
			said.until(r.T, "ready")
			cancel(&executor.Cancelled{By: "ann"})
		}()
		got := r.Run(ctx, a, said.output())
		if got.Outcome != job.OutcomeCancelled || codeOf(got) != 5 || !strings.Contains(got.Reason.String(), "cancelled by ann: SIGINT after ") {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		if out, _ := said.texts(); out != "ready\nasked\n" {
			r.Errorf("it wrote %q", out)
		}
		r.nothingLeft()
	},
	"a timeout kills what ignores the signal": func(r *rig) {
		a := attemptOf(job.Container{Shell: `trap "" TERM; echo ready; while :; do sleep 0.05; done`})
		a.Grace = 50 * time.Millisecond
		said := newRecorder()
		ctx, cancel := context.WithCancelCause(r.Context())
		go func() {
			said.until(r.T, "ready")
			cancel(executor.ErrTimeout)
		}()
		got := r.Run(ctx, a, said.output())
		if got.Outcome != job.OutcomeTimedOut || !strings.Contains(got.Reason.String(), "SIGKILL") {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		r.nothingLeft()
	},
	"a fence ends it": func(r *rig) {
		a := attemptOf(job.Container{Shell: `echo ready; exec sleep 1000`})
		a.Grace = 0
		said := newRecorder()
		ctx, cancel := context.WithCancelCause(r.Context())
		go func() {
			said.until(r.T, "ready")
			cancel(executor.ErrFenced)
		}()
		if got := r.Run(ctx, a, said.output()); got.Outcome != job.OutcomeLost {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		r.nothingLeft()
	},
	"another process continues with it": func(r *rig) {
		a := attemptOf(job.Container{Shell: `for i in 1 2 3 4 5 6; do echo line $i; done; while [ ! -e "$GO" ] && [ "$(cat "$GATE" 2>/dev/null)" != open ]; do sleep 0.05; [ "$n" = 20 ] && break; n=$((n+1)); done; echo end; exit 4`, Env: map[string]string{"GO": "/nowhere"}})
		first, second := newRecorder(), newRecorder()
		ctx, cancel := context.WithCancelCause(r.Context())
		go func() {
			first.until(r.T, "line 6\n")
			cancel(executor.ErrCarried)
		}()
		left := r.Run(ctx, a, first.output())
		if left.CarryOver == nil {
			r.Fatalf("it was not left: %+v (%s)", left, left.Reason)
		}
		a.CarryOver = left.CarryOver
		r.Expect(a.Run.ID, a.Number)
		if err := r.Collect(r.Context()); err != nil {
			r.Error(err)
		}
		got := r.Run(r.Context(), a, second.output())
		one, _ := first.texts()
		two, _ := second.texts()
		if codeOf(got) != 4 || one+two != "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nend\n" {
			r.Errorf("got %+v (%s), %q then %q", got, got.Reason, one, two)
		}
		r.nothingLeft()
	},
	"the next process finds what a dead one has left": func(r *rig) {
		a := attemptOf(job.Container{Shell: `trap "echo asked; exit 5" INT; for i in 1 2 3; do echo line $i; done; echo x=1 > "$BELFRY_RESULT"; while [ ! -e /nowhere ]; do sleep 0.05; done`, StopSignal: "SIGINT"})
		a.WantsResult, a.Kept = true, true
		first, second := newRecorder(), newRecorder()
		ctx, cancel := context.WithCancelCause(r.Context())
		go func() {
			first.until(r.T, "line 3\n")
			cancel(executor.ErrCarried) // it is left as if the process had died
		}()
		r.Run(ctx, a, first.output())
		r.Expect(a.Run.ID, a.Number)
		a.CarryOver = executor.Anew
		ctx, cancel = context.WithCancelCause(r.Context())
		go func() {
			second.until(r.T, "line 3\n")
			cancel(&executor.Cancelled{By: "ann"})
		}()
		got := r.Run(ctx, a, second.output())
		if out, _ := second.texts(); got.Outcome != job.OutcomeCancelled || codeOf(got) != 5 || out != "line 1\nline 2\nline 3\nasked\n" {
			r.Errorf("got %+v (%s), %q", got, got.Reason, out)
		}
		r.nothingLeft()
	},
	"the result of an ended container waits for the next process": func(r *rig) {
		a := attemptOf(job.Container{Shell: `echo done; echo x=1 > "$BELFRY_RESULT"`, Network: "none"})
		a.WantsResult, a.Kept = true, true
		first := r.Executor.Run(r.Context(), a, executor.Output{}) // and the process dies before it has kept the result
		a.CarryOver = executor.Anew
		said := newRecorder()
		got := r.Run(r.Context(), a, said.output())
		if out, _ := said.texts(); first.Outcome != job.OutcomeSucceeded || got.Outcome != job.OutcomeSucceeded || string(got.Value) != `{"x":"1"}` || out != "done\n" {
			r.Errorf("first %+v, then %+v (%s), %s, %q", first, got, got.Reason, got.Value, out)
		}
		first.Release()
		if again := r.Run(r.Context(), a, executor.Output{}); again.Outcome != job.OutcomeLost || again.Reason.Code() != "container_gone" {
			r.Errorf("after its removal: %+v (%s)", again, again.Reason)
		}
		r.nothingLeft()
	},
	"a container that had not started is not started by the next process": func(r *rig) {
		a := attemptOf(job.Container{Shell: "true"})
		a.Kept, a.CarryOver = true, executor.Anew
		spec := &engine.Spec{Image: testImage, Entrypoint: []string{"/bin/sh", "-c"}, Cmd: []string{"true"}, Labels: map[string]string{"io.belfry.node": r.node}}
		if err := r.engine.Create(r.Context(), fmt.Sprintf("belfry-%s-1", a.Run.ID), spec); err != nil {
			r.Fatal(err)
		}
		if got := r.Run(r.Context(), a, executor.Output{}); got.Outcome != job.OutcomeLost || got.Reason.Code() != "container_unbegun" || got.Unstarted {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		r.nothingLeft()
	},
	"long output is complete and in order": func(r *rig) {
		const lines = 20_000
		a := attemptOf(job.Container{Shell: fmt.Sprintf("seq %d", lines)})
		said := newRecorder()
		if got := r.Run(r.Context(), a, said.output()); got.Outcome != job.OutcomeSucceeded {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		var want strings.Builder
		for i := range lines {
			fmt.Fprintln(&want, i+1)
		}
		if out, _ := said.texts(); out != want.String() {
			at := 0
			for at < min(len(out), want.Len()) && out[at] == want.String()[at] {
				at++
			}
			r.Errorf("the output has %d bytes, want %d, and differs at %d: %q", len(out), want.Len(), at, out[max(0, at-20):min(len(out), at+40)])
		}
	},
	"a line longer than a frame": func(r *rig) {
		a := attemptOf(job.Container{Shell: `head -c 100000 /dev/zero | tr '\0' x; echo; echo end`})
		said := newRecorder()
		r.Run(r.Context(), a, said.output())
		if out, _ := said.texts(); out != strings.Repeat("x", 100000)+"\nend\n" {
			r.Errorf("the output has %d bytes and ends in %q", len(out), out[max(0, len(out)-40):])
		}
	},
	"the output must match": func(r *rig) {
		a := attemptOf(job.Container{Shell: "echo ok"})
		a.Job.Policy.Success = &job.Success{Match: "^done$"}
		if got := r.Run(r.Context(), a, executor.Output{}); got.Outcome != job.OutcomeFailed || got.Reason.Code() != "output_unmatched" {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
	},
	"steps of a flow share a volume": func(r *rig) {
		flow := newID()
		for _, command := range []string{`echo from the first > "$BELFRY_FLOW_DIR/file"`, `[ "$(cat file)" = "from the first" ]`} {
			a := attemptOf(job.Container{Shell: command})
			a.Run.Parent, a.Together = flow, true
			if got := r.Run(r.Context(), a, executor.Output{}); got.Outcome != job.OutcomeSucceeded {
				r.Errorf("%s: %+v (%s)", command, got, got.Reason)
			}
		}
		over := func(_ context.Context, runs []job.ID) ([]job.ID, error) { return runs, nil }
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if err := r.SettleFlows(r.Context(), over); err != nil {
				r.Fatal(err)
			}
			volumes, err := r.engine.Volumes(r.Context(), "io.belfry.node", r.node)
			if err != nil {
				r.Fatal(err)
			}
			if len(volumes) == 0 {
				break
			}
			if time.Now().After(deadline) {
				r.Fatalf("the volumes of an ended flow are left: %+v", volumes)
			}
		}
	},
	"what an earlier process left is collected": func(r *rig) {
		left := attemptOf(job.Container{Shell: "echo ready; exec sleep 1000"})
		said := newRecorder()
		ctx, cancel := context.WithCancelCause(r.Context())
		go func() {
			said.until(r.T, "ready")
			cancel(executor.ErrCarried)
		}()
		r.Run(ctx, left, said.output())
		live := attemptOf(job.Container{Shell: "echo ready; exec sleep 1000"})
		saidLive := newRecorder()
		liveCtx, end := context.WithCancelCause(r.Context())
		done := make(chan executor.Result, 1)
		go func() { done <- r.Run(liveCtx, live, saidLive.output()) }()
		saidLive.until(r.T, "ready")
		if err := r.Collect(r.Context()); err != nil {
			r.Error(err)
		}
		list, err := r.engine.List(r.Context(), "io.belfry.node", r.node)
		if err != nil || len(list) != 1 || list[0].Labels["io.belfry.run"] != live.Run.ID.String() {
			r.Errorf("after the collection there are %+v, %v", list, err)
		}
		live.Grace = 0
		end(executor.ErrStopped)
		<-done
		r.nothingLeft()
	},
	"a container that another program removes": func(r *rig) {
		a := attemptOf(job.Container{Shell: "echo ready; exec sleep 1000"})
		said := newRecorder()
		go func() {
			said.until(r.T, "ready")
			ctx := context.WithoutCancel(r.Context()) // the attempt may end before the answer
			if list, err := r.engine.List(ctx, "io.belfry.node", r.node); err == nil && len(list) == 1 {
				_ = r.engine.Remove(ctx, list[0].ID)
			}
		}()
		// The engine may still report how it ended.
		if got := r.Run(r.Context(), a, said.output()); got.Outcome != job.OutcomeFailed || got.Reason.Code() != "container_gone" && got.Reason.Code() != "killed_by_others" {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
	},
	"an image that is not there is not pulled": func(r *rig) {
		got := r.Run(r.Context(), attemptOf(job.Container{Image: "localhost/none:1", Pull: job.PullNever}), executor.Output{})
		if got.Outcome != job.OutcomeFailed || got.Reason.Code() != "no_image" {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
	},
	"a pull that fails is seen": func(r *rig) {
		said := newRecorder()
		got := r.Run(r.Context(), attemptOf(job.Container{Image: "127.0.0.1:9/none:1"}), said.output())
		if _, errors := said.texts(); got.Outcome != job.OutcomeFailed || got.Reason.Code() != "pull_failed" || !strings.Contains(errors, "belfry: pulling 127.0.0.1:9/none:1 failed: ") {
			r.Errorf("got %+v (%s), %q", got, got.Reason, errors)
		}
	},
	"an attempt that may not start has no effect": func(r *rig) {
		a := attemptOf(job.Container{Shell: "true"})
		a.Start = func() error { return fmt.Errorf("too late") }
		if got := r.Run(r.Context(), a, executor.Output{}); !got.Unstarted {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		r.nothingLeft()
	},
	"a second try of an attempt": func(r *rig) {
		a := attemptOf(job.Container{Shell: "echo ready; exec sleep 1000"})
		said := newRecorder()
		ctx, cancel := context.WithCancelCause(r.Context())
		go func() {
			said.until(r.T, "ready")
			cancel(executor.ErrCarried)
		}()
		r.Run(ctx, a, said.output())
		a.Job.Run.Container.Shell = "echo again"
		if got := r.Run(r.Context(), a, executor.Output{}); got.Outcome != job.OutcomeSucceeded {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		r.nothingLeft()
	},
	"mounts only below the configured directories": func(r *rig) {
		dir := r.TempDir()
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for an engine of another user
			r.Fatal(err)
		}
		allowed := filepath.Join(dir, "allowed")
		for _, name := range []string{allowed, filepath.Join(allowed, "in"), filepath.Join(dir, "other"), allowed + "-not"} {
			if err := os.Mkdir(name, 0o755); err != nil {
				r.Fatal(err)
			}
		}
		if err := os.Symlink(filepath.Join(dir, "other"), filepath.Join(allowed, "link")); err != nil {
			r.Fatal(err)
		}
		r.Allow(container.Settings{Mounts: []string{allowed}})
		for source, want := range map[string]bool{"in": true, ".": true, "link": false, "../other": false, "../allowed-not": false, "none": false} {
			got := r.Run(r.Context(), attemptOf(job.Container{Shell: "true", Mounts: []string{filepath.Join(allowed, source) + ":/mnt:ro"}}), executor.Output{})
			if ok := got.Outcome == job.OutcomeSucceeded; ok != want || !ok && got.Reason.Code() != "container_not_allowed" {
				r.Errorf("a mount of %s: %+v (%s)", source, got, got.Reason)
			}
		}
	},
}

func runSuite(t *testing.T, socket func(*testing.T) string) {
	for name, test := range suite {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newRig(t, socket(t), container.Settings{}))
		})
	}
}

func TestAStandInOfAnEngineRunsContainers(t *testing.T) {
	runSuite(t, func(t *testing.T) string { return newStandIn(t).socket })
}
