package container_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/container"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// specOf returns the container in a stand-in while an attempt runs in it.
func specOf(t *testing.T, settings container.Settings, c job.Container) engine.Spec {
	t.Helper()
	s := newStandIn(t)
	r := newRig(t, s.socket, settings)
	c.Shell = "echo ready; exec sleep 1000"
	a := attemptOf(c)
	a.Grace = 0
	said := newRecorder()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan executor.Result, 1)
	go func() { done <- r.Run(ctx, a, said.output()) }()
	said.until(t, "ready")
	s.mu.Lock()
	var spec engine.Spec
	for _, c := range s.containers {
		spec = c.spec
	}
	s.mu.Unlock()
	cancel(executor.ErrStopped)
	<-done
	return spec
}

func TestContainersAreSafeByDefault(t *testing.T) {
	t.Parallel()
	host := specOf(t, container.Settings{}, job.Container{}).HostConfig
	got, err := json.Marshal(host)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"PidsLimit":4096,"CapDrop":["ALL"],"SecurityOpt":["no-new-privileges"],"LogConfig":{"Type":"json-file","Config":{"max-file":"2","max-size":"64m"}}}`
	if string(got) != want {
		t.Errorf("a container has %s, want %s", got, want)
	}
}

func TestFieldsReachTheEngine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := specOf(t, container.Settings{Mounts: []string{dir}, Capabilities: []string{"CHOWN"}, PIDs: 7}, job.Container{
		User: "1:2", Mounts: []string{dir + ":/in:ro"}, Tmpfs: []string{"/cache:64MiB", "/tmp"}, ReadOnly: true, Network: "none", StopSignal: "SIGINT",
		Limits: &job.ContainerLimits{Memory: 64 << 20, CPU: 0.5},
	})
	got, err := json.Marshal(spec.HostConfig)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Mounts":[{"Type":"bind","Source":"` + dir + `","Target":"/in","ReadOnly":true}],"Tmpfs":{"/cache":"rw,nosuid,nodev,size=67108864","/tmp":"rw,nosuid,nodev"},` +
		`"ReadonlyRootfs":true,"NetworkMode":"none","Memory":67108864,"MemorySwap":67108864,"NanoCpus":500000000,"PidsLimit":7,"CapDrop":["ALL"],"CapAdd":["CHOWN"],` +
		`"SecurityOpt":["no-new-privileges"],"LogConfig":{"Type":"json-file","Config":{"max-file":"2","max-size":"64m"}}}`
	if string(got) != want || spec.User != "1:2" || spec.StopSignal != "SIGINT" {
		t.Errorf("the container has %s, want %s; and user %s, signal %s", got, want, spec.User, spec.StopSignal)
	}
}

func TestANodeRefusesImagesAndNamespaces(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	for image, patterns := range map[string][]string{
		"alpine:3":               {"registry.example.com/*"},
		"registry.example.com/a": {"alpine*", "registry.example.com/b"},
		"docker.io/x/alpine":     {"docker.io/library/*"},
	} {
		r := newRig(t, s.socket, container.Settings{Images: patterns})
		if got := r.Run(t.Context(), attemptOf(job.Container{Image: image}), executor.Output{}); got.Reason.Code() != "container_not_allowed" {
			t.Errorf("%s with %v: %+v (%s)", image, patterns, got, got.Reason)
		}
	}
	for image, pattern := range map[string]string{"alpine:3": "docker.io/library/*", "registry.example.com/a:1": "registry.*/a:*", "alpine": "alpine", "x/y": "*"} {
		r := newRig(t, s.socket, container.Settings{Images: []string{pattern}})
		if got := r.Run(t.Context(), attemptOf(job.Container{Image: image, Pull: job.PullNever}), executor.Output{}); got.Reason.Code() != "no_image" {
			t.Errorf("%s with %s: %+v (%s)", image, pattern, got, got.Reason)
		}
	}
	r := newRig(t, s.socket, container.Settings{Namespaces: []string{"team-a"}})
	if got := r.Run(t.Context(), attemptOf(job.Container{}), executor.Output{}); got.Reason.Code() != "container_not_allowed" {
		t.Errorf("another namespace: %+v (%s)", got, got.Reason)
	}
}

func TestAnImageIsPulledWithTheLoginOfItsRegistry(t *testing.T) {
	t.Parallel()
	config := `{"auths": {"registry.example.com": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("ann:pass")) + `"}}}`
	for secret, want := range map[string]string{
		"ann:pass": `{"username":"ann","password":"pass","serveraddress":"registry.example.com"}`,
		config:     `{"username":"ann","password":"pass","serveraddress":"registry.example.com"}`,
		"":         "registry_secret", "{}": "registry_secret", "{": "registry_secret",
	} {
		s := newStandIn(t)
		const image = "registry.example.com/a:1"
		s.pullable[image] = true
		r := newRig(t, s.socket, container.Settings{})
		a := attemptOf(job.Container{Image: image, Shell: "echo ran", Registry: &job.Registry{Secret: "hub"}})
		a.Data.Secrets = map[string]string{"hub": secret}
		began := false
		a.Start = func() error { began = true; return nil }
		said := newRecorder()
		got := r.Run(t.Context(), a, said.output())
		if want == "registry_secret" {
			if got.Reason.Code() != want || began {
				t.Errorf("%q: %+v (%s)", secret, got, got.Reason)
			}
			continue
		}
		sent, _ := base64.URLEncoding.DecodeString(s.logins[0])
		_, errors := said.texts()
		if got.Outcome != job.OutcomeSucceeded || string(sent) != want || !strings.Contains(errors, "belfry: pulled registry.example.com/a:1 in ") {
			t.Errorf("%q: %+v (%s), login %s, output %q", secret, got, got.Reason, sent, errors)
		}
	}
}

func TestAnAttemptWithoutAnEngineIsNotStarted(t *testing.T) {
	t.Parallel()
	e := container.New(container.Config{Engine: engine.New("/nonexistent/socket"), Node: "n"})
	defer e.Close()
	if _, err := e.Probe(t.Context()); err == nil {
		t.Error("an engine that is not there answers")
	}
	if _, works := e.Version(); works {
		t.Error("an engine that is not there works")
	}
	a := attemptOf(job.Container{Shell: "true"})
	a.Start = func() error { t.Error("it was started"); return nil }
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrStopped) // releases its capacity at once
	if got := e.Run(ctx, a, executor.Output{}); !got.Unstarted {
		t.Errorf("got %+v (%s)", got, got.Reason)
	}
}

// For its version Podman needs a second of processor time.
func TestOnlyAnotherEngineIsAskedForItsVersion(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	r := newRig(t, s.socket, container.Settings{})
	for version, changed := range []bool{false, true, false} {
		s.version.Store(int64(min(version, 1)))
		if got, err := r.Probe(t.Context()); err != nil || got != changed {
			t.Errorf("probe %d: changed %t, %v", version, got, err)
		}
	}
	if v, works := r.Version(); !works || v.Version != "1" || s.asked.Load() != 2 {
		t.Errorf("found %v, %t, after %d questions", v, works, s.asked.Load())
	}
}

func TestAContainerSurvivesAnOutageOfItsEngine(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	r := newRig(t, s.socket, container.Settings{})
	gate := t.TempDir() + "/open"
	a := attemptOf(job.Container{Shell: `echo before; while [ ! -e "$GATE" ]; do sleep 0.02; done; echo after; exit 7`, Env: map[string]string{"GATE": gate}})
	said := newRecorder()
	done := make(chan executor.Result, 1)
	go func() { done <- r.Run(t.Context(), a, said.output()) }()
	said.until(t, "before\n")
	s.stop()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.serve()
	got := <-done
	if out, errors := said.texts(); codeOf(got) != 7 || out != "before\nafter\n" {
		t.Errorf("got %+v (%s), %q, %q", got, got.Reason, out, errors)
	}
	r.nothingLeft()
}

func TestUsageOfAContainerIsSampled(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	r := newRig(t, s.socket, container.Settings{})
	s.gate = t.TempDir() + "/open"
	a := attemptOf(job.Container{Shell: `while [ ! -e "$GATE" ]; do sleep 0.02; done; exit 7`, Env: map[string]string{"GATE": s.gate}})
	got := r.Run(t.Context(), a, executor.Output{})
	if u := got.Usage; codeOf(got) != 7 || u.CPUSeconds < 0.25 || u.MemoryBytes != 40e6 || u.MemoryAtMost || u.ReadBytes == nil || *u.ReadBytes != 4096 || *u.WrittenBytes != 1024 {
		t.Errorf("got %+v (%s), and it used %s", got, got.Reason, u.Stored())
	}
	if got = r.Run(t.Context(), attemptOf(job.Container{Shell: "true"}), executor.Output{}); got.Usage != (job.Usage{}) && s.sampled.Load() < 3 {
		t.Errorf("what was not sampled used %s", got.Usage.Stored())
	}
}

func TestTheEndOfAContainerIsUnknownWithoutItsEngine(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	r := newRig(t, s.socket, container.Settings{})
	r.WaitForEnd(time.Millisecond)
	a := attemptOf(job.Container{Shell: `echo ready; exec sleep 1000`})
	a.Grace = time.Millisecond
	said := newRecorder()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan executor.Result, 1)
	go func() { done <- r.Run(ctx, a, said.output()) }()
	said.until(t, "ready")
	if running, _ := r.Stats(); running != 1 {
		t.Errorf("%d containers run", running)
	}
	s.stop()
	cancel(executor.ErrTimeout)
	if got := <-done; got.Outcome != job.OutcomeTimedOut || !got.Reason.Has("engine_lost") {
		t.Errorf("got %+v (%s)", got, got.Reason)
	}
	// The container is collected when the engine is back.
	s.serve()
	if err := r.Collect(t.Context()); err != nil {
		t.Error(err)
	}
	if running, collected := r.Stats(); running != 0 || collected != 1 {
		t.Errorf("%d containers run, %d were collected", running, collected)
	}
	r.nothingLeft()
}

func TestARefusalOfTheEngineIsTheReason(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	s.refuse = "no space left on device"
	r := newRig(t, s.socket, container.Settings{})
	if got := r.Run(t.Context(), attemptOf(job.Container{Shell: "true"}), executor.Output{}); got.Outcome != job.OutcomeFailed || !strings.Contains(got.Reason.String(), "no space left on device") {
		t.Errorf("got %+v (%s)", got, got.Reason)
	}
	r.nothingLeft()
}

// journal is a watchdog that notes its calls.
type journal struct {
	mu     sync.Mutex
	calls  []string
	fenced bool
}

func (j *journal) note(call string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls = append(j.calls, call)
}

func (j *journal) Spawning(p executor.Process) error {
	j.note("spawning " + strings.Split(p.Container, "#")[1][:len("belfry-")])
	return nil
}
func (j *journal) Ended(executor.Process)       { j.note("ended") }
func (j *journal) Fenced(executor.Process) bool { return j.fenced }

func TestTheWatchdogKnowsEachContainer(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	for _, fenced := range []bool{false, true} {
		watch := &journal{fenced: fenced}
		e := container.New(container.Config{Engine: engine.New(s.socket), Node: "n", Watch: watch})
		got := e.Run(t.Context(), attemptOf(job.Container{Shell: "exit 137"}), executor.Output{})
		got.Release()
		e.Close()
		if !slices.Equal(watch.calls, []string{"spawning belfry-", "ended"}) {
			t.Errorf("the watchdog was called %q", watch.calls)
		}
		if fenced != (got.Outcome == job.OutcomeLost && got.Reason.Has("ended_by_watchdog")) {
			t.Errorf("fenced %v: %+v (%s)", fenced, got, got.Reason)
		}
	}
}

func TestAContainerThatStartsWithoutAnAnswerIsFollowed(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	r := newRig(t, s.socket, container.Settings{})
	restarted := make(chan struct{})
	s.silent = func() {
		s.silent = nil
		go func() { s.stop(); s.serve(); close(restarted) }()
		panic(http.ErrAbortHandler)
	}
	said := newRecorder()
	got := r.Run(t.Context(), attemptOf(job.Container{Shell: "echo ran; exit 6"}), said.output())
	if out, _ := said.texts(); codeOf(got) != 6 || out != "ran\n" {
		t.Errorf("got %+v (%s), %q", got, got.Reason, out)
	}
	<-restarted
	r.nothingLeft()
}

func TestAnAttemptThatEndsWhileItsImageIsPulledMayRunElsewhere(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	r := newRig(t, s.socket, container.Settings{})
	for cause, want := range map[error]struct {
		outcome   job.Outcome
		unstarted bool
	}{executor.ErrStopped: {job.OutcomeLost, true}, executor.ErrCarried: {job.OutcomeLost, true}, executor.ErrTimeout: {job.OutcomeTimedOut, false}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		a := attemptOf(job.Container{Image: endless})
		a.Start = func() error { cancel(cause); return nil }
		if got := r.Run(ctx, a, executor.Output{}); got.Outcome != want.outcome || got.Unstarted != want.unstarted {
			t.Errorf("%v: %+v (%s)", cause, got, got.Reason)
		}
	}
	r.nothingLeft()
}
