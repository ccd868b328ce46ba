//go:build servers

package container_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/container"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

// realEngine is a container engine of the machine, in separate directories.
type realEngine struct {
	name, dir, socket string
	command           func() *exec.Cmd
	running           *exec.Cmd
	ended             chan struct{}
}

// podmanConf has limits that root in a container may set.
const podmanConf = `[containers]
default_ulimits=["nofile=1024:1024","nproc=4096:4096"]
[engine]
runtime="runc"
cgroup_manager="cgroupfs"
events_logger="file"
`

// realEngines are the engines that the tests start, by their program.
var realEngines = map[string]func(e *realEngine) *exec.Cmd{
	"podman": func(e *realEngine) *exec.Cmd {
		cmd := exec.Command("podman", "--root", filepath.Join(e.dir, "root"), "--runroot", filepath.Join(e.dir, "run"), "system", "service", "--time=0", "unix://"+e.socket)
		// For its version it has dpkg search all packages, with a second of processor time each time.
		cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(e.dir, "containers.conf"), "PATH="+e.dir+":"+os.Getenv("PATH"))
		return cmd
	},
	"dockerd": func(e *realEngine) *exec.Cmd {
		return exec.Command("dockerd", "--data-root", filepath.Join(e.dir, "root"), "--exec-root", filepath.Join(e.dir, "run"), "-H", "unix://"+e.socket,
			"-p", filepath.Join(e.dir, "pid"), "--iptables=false", "--bridge=none", "--default-ulimit", "nofile=1024:1024")
	},
}

// startEngine starts an engine with the image of the tests. If the machine cannot run it, the
// report of all tests lists the test as skipped.
func startEngine(t *testing.T, name string) *realEngine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("LEFT OUT: only root starts", name)
	}
	if _, err := exec.LookPath(name); err != nil {
		t.Skip("LEFT OUT: ", err)
	}
	dir, err := os.MkdirTemp("", "belfry-"+name) // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	e := &realEngine{name: name, dir: dir, socket: filepath.Join(dir, "s")}
	e.command = func() *exec.Cmd { return realEngines[name](e) }
	t.Cleanup(func() { e.close(t) })
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "containers.conf"), []byte(podmanConf), 0o600),
		os.WriteFile(filepath.Join(dir, "dpkg-query"), []byte("#!/bin/sh\nexit 1\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := e.start(); err != nil {
		t.Skipf("LEFT OUT: %s does not run on this machine: %v", name, err)
	}
	if err := e.importImage(t.Context()); err != nil {
		t.Skipf("LEFT OUT: %s takes no image on this machine: %v", name, err)
	}
	r := newRig(t, e.socket, container.Settings{})
	if got := r.Run(t.Context(), attemptOf(job.Container{Shell: "true"}), executor.Output{}); got.Outcome != job.OutcomeSucceeded {
		t.Skipf("LEFT OUT: %s runs no containers on this machine: %s", name, got.Reason)
	}
	return e
}

// start starts the engine and waits until it answers.
func (e *realEngine) start() error {
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	_ = os.Remove(e.socket)
	cmd := e.command()
	cmd.Dir = e.dir // Podman's conmon leaves files here
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	e.running, e.ended = cmd, make(chan struct{})
	go func() { defer close(e.ended); _ = cmd.Wait() }()
	asks := engine.New(e.socket)
	defer asks.Close()
	for deadline := time.Now().Add(patience); ; {
		if _, err = asks.Version(context.Background()); err == nil {
			return nil
		}
		select {
		case <-e.ended:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("it has ended: %s", text[max(0, len(text)-500):])
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

func (e *realEngine) kill(signal syscall.Signal) {
	if e.running != nil {
		_ = e.running.Process.Signal(signal)
		<-e.ended
	}
}

func (e *realEngine) close(t *testing.T) {
	e.kill(syscall.SIGTERM)
	mounts, _ := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(string(mounts), "\n")
	slices.Reverse(lines)
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], e.dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		t.Log(err)
	}
}

// importImage makes the image of the tests from the static busybox of the machine.
func (e *realEngine) importImage(ctx context.Context) error {
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	var failed error
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		failed = errors.Join(failed, archive.WriteHeader(&h))
		_, err := archive.Write(content)
		failed = errors.Join(failed, err)
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755}, nil)
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil)
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, program)
	for _, name := range []string{"sh", "echo", "cat", "sleep", "true", "seq", "head", "tr", "id", "grep", "touch", "dd"} {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}, nil)
	}
	if err := errors.Join(failed, archive.Close()); err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.socket)
	}}}
	query := url.Values{"fromSrc": {"-"}, "repo": {testImage}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/images/create?"+query.Encode(), &b)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %w", answer.Status, text, err)
	}
	return nil
}

// onlyReal are tests that need a real engine.
var onlyReal = map[string]func(*rig){
	"no rights by default": func(r *rig) {
		said := newRecorder()
		a := attemptOf(job.Container{Shell: `grep -E "^(CapEff|CapPrm|CapBnd|NoNewPrivs)" /proc/self/status | tr -d " \t"`})
		r.Run(r.Context(), a, said.output())
		const none = "0000000000000000"
		if out, errors := said.texts(); out != "CapPrm:"+none+"\nCapEff:"+none+"\nCapBnd:"+none+"\nNoNewPrivs:1\n" {
			r.Errorf("a container has\n%s%s", out, errors)
		}
	},
	"killed for its memory": func(r *rig) {
		a := attemptOf(job.Container{Shell: `x=$(head -c 300000000 /dev/zero | tr '\0' x); echo survived`, Limits: &job.ContainerLimits{Memory: 32 << 20}})
		got := r.Run(r.Context(), a, executor.Output{})
		if got.Outcome != job.OutcomeFailed || codeOf(got) != 137 || got.Reason.Code() != "over_memory" && got.Reason.Code() != "likely_over_memory" || !strings.Contains(got.Reason.String(), "32MiB") {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		r.nothingLeft()
	},
	"files and result of another user, without writing to the image": func(r *rig) {
		a := attemptOf(job.Container{
			Shell: `touch /file 2>/dev/null && echo "the image can be written"; touch /tmp/a && echo "who=$(id -u):$(id -g) $(cat "$F")" > "$BELFRY_RESULT"`,
			User:  "1000:1001", Files: map[string]string{"F": "text"}, ReadOnly: true, Tmpfs: []string{"/tmp:1MiB"},
		})
		a.WantsResult = true
		said := newRecorder()
		got := r.Run(r.Context(), a, said.output())
		if out, errors := said.texts(); string(got.Value) != `{"who":"1000:1001 text"}` || out != "" {
			r.Errorf("got %+v (%s), %s, %q, %q", got, got.Reason, got.Value, out, errors)
		}
	},
	"steps of other users share a volume": func(r *rig) {
		flow := newID()
		for user, command := range map[string]string{"1000": "echo a > first", "2000": "echo b > second"} {
			a := attemptOf(job.Container{Shell: command, User: user})
			a.Run.Parent, a.Together = flow, true
			said := newRecorder()
			if got := r.Run(r.Context(), a, said.output()); got.Outcome != job.OutcomeSucceeded {
				_, errors := said.texts()
				r.Errorf("as user %s: %+v (%s), %s", user, got, got.Reason, errors)
			}
		}
		over := func(_ context.Context, runs []job.ID) ([]job.ID, error) { return runs, nil }
		for volumes := []engine.Volume{{}}; len(volumes) > 0; time.Sleep(10 * time.Millisecond) {
			err := r.SettleFlows(r.Context(), over)
			if err == nil {
				volumes, err = r.engine.Volumes(r.Context(), "io.belfry.node", r.node)
			}
			if err != nil {
				r.Fatal(err)
			}
		}
	},
}

func TestRealEnginesRunContainers(t *testing.T) {
	for name := range realEngines {
		t.Run(name, func(t *testing.T) {
			e := startEngine(t, name)
			t.Run("suite", func(t *testing.T) {
				runSuite(t, func(*testing.T) string { return e.socket })
				for name, test := range onlyReal {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(newRig(t, e.socket, container.Settings{}))
					})
				}
			})
			t.Run("the engine is killed", func(t *testing.T) {
				r := newRig(t, e.socket, container.Settings{})
				a := attemptOf(job.Container{Shell: "echo ready; sleep 3; echo end; exit 9"})
				said := newRecorder()
				done := make(chan executor.Result, 1)
				go func() { done <- r.Run(t.Context(), a, said.output()) }()
				said.until(t, "ready")
				e.kill(syscall.SIGKILL)
				file := filepath.Join(e.dir, "run", "containerd", "containerd.pid") // of dockerd
				if pid, err := os.ReadFile(file); err == nil {
					if n, err := strconv.Atoi(strings.TrimSpace(string(pid))); err == nil {
						_ = syscall.Kill(n, syscall.SIGKILL)
					}
					_ = os.Remove(file) // otherwise dockerd may wait for the killed one
				}
				err := e.start()
				for again := 0; err != nil && again < 2; again++ { // retries like a service manager
					err = e.start()
				}
				if err != nil {
					t.Fatal(err)
				}
				got := <-done
				// A restarting Docker ends containers unless it is configured to keep them.
				if out, _ := said.texts(); got.Outcome != job.OutcomeFailed || (codeOf(got) != 9 || out != "ready\nend\n") && got.Reason.Code() != "killed_by_others" {
					t.Errorf("got %+v (%s), %q", got, got.Reason, out)
				}
				r.nothingLeft()
			})
		})
	}
}
