package servers

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
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ContainerEngine is a container engine of the machine, in separate directories.
type ContainerEngine struct {
	Kind, Dir, Socket string

	as      *syscall.Credential // nil for root
	running *exec.Cmd
	ended   chan struct{}
}

// The kinds of a [ContainerEngine]. Rootless is Podman as a user other than root.
const (
	Podman   = "podman"
	Dockerd  = "dockerd"
	Rootless = "rootless"
)

// ContainerEngines are all kinds.
var ContainerEngines = []string{Podman, Dockerd, Rootless}

// engineWithin bounds the start of an engine on a machine under load.
const engineWithin = 2 * time.Minute

// podmanConf has limits that root in a container may set.
const podmanConf = `[containers]
default_ulimits=["nofile=1024:1024","nproc=4096:4096"]
[engine]
runtime="runc"
cgroup_manager="cgroupfs"
events_logger="file"
`

// NewContainerEngine starts an engine with an image that has a shell. The error says why the machine cannot
// run it.
func NewContainerEngine(ctx context.Context, kind, image string) (*ContainerEngine, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("only root starts " + kind)
	}
	dir, err := os.MkdirTemp("", "belfry-"+kind) // the path of a socket must be short
	if err != nil {
		return nil, err
	}
	e := &ContainerEngine{Kind: kind, Dir: dir, Socket: filepath.Join(dir, "s")}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "containers.conf"), []byte(podmanConf), 0o644),
		// For its version Podman has dpkg search all packages, with a second of processor time each time.
		os.WriteFile(filepath.Join(dir, "dpkg-query"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	if err == nil && kind == Rootless {
		err = e.beRootless()
	}
	if err == nil {
		err = e.Start()
	}
	if err == nil {
		err = e.importImage(ctx, image)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// beRootless makes the engine one of another user, or returns what the machine lacks for that.
func (e *ContainerEngine) beRootless() error {
	var lacks []error
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(program); err != nil {
			lacks = append(lacks, fmt.Errorf("rootless Podman needs it, of the package uidmap: %w", err))
		}
	}
	u, err := userWithRange()
	if err := errors.Join(append(lacks, err)...); err != nil {
		return err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	e.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	// The place where a user's Podman has its socket, below $XDG_RUNTIME_DIR.
	e.Socket = filepath.Join(e.Dir, "podman", "podman.sock")
	for _, dir := range []string{e.Dir, filepath.Dir(e.Socket)} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chown(dir, int(uid), int(gid))); err != nil {
			return err
		}
	}
	return nil
}

// userWithRange returns a user with ranges of user and group ids for its containers.
func userWithRange() (*user.User, error) {
	users, err := os.ReadFile("/etc/subuid")
	groups, err2 := os.ReadFile("/etc/subgid")
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(users)) {
		name, _, _ := strings.Cut(line, ":")
		if !strings.Contains("\n"+string(groups), "\n"+name+":") {
			continue
		}
		if u, err := user.Lookup(name); err == nil {
			return u, nil
		}
	}
	return nil, errors.New("no user has a range in /etc/subuid and in /etc/subgid: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER")
}

// Env are the variables with which a node of the engine's user finds it.
func (e *ContainerEngine) Env() []string { return []string{"XDG_RUNTIME_DIR=" + e.Dir} }

func (e *ContainerEngine) command() *exec.Cmd {
	if e.Kind == Dockerd {
		return exec.Command("dockerd", "--data-root", filepath.Join(e.Dir, "root"), "--exec-root", filepath.Join(e.Dir, "run"), "-H", "unix://"+e.Socket,
			"-p", filepath.Join(e.Dir, "pid"), "--iptables=false", "--bridge=none", "--default-ulimit", "nofile=1024:1024")
	}
	return e.podman("system", "service", "--time=0", "unix://"+e.Socket)
}

// RunCommand returns the command with which a person runs a container.
func (e *ContainerEngine) RunCommand(args ...string) *exec.Cmd {
	args = append([]string{"run", "--rm", "--network=none"}, args...)
	if e.Kind == Dockerd {
		return exec.Command("docker", append([]string{"-H", "unix://" + e.Socket}, args...)...)
	}
	return e.podman(args...)
}

func (e *ContainerEngine) podman(words ...string) *exec.Cmd {
	args := []string{"--root", filepath.Join(e.Dir, "root"), "--runroot", filepath.Join(e.Dir, "run")}
	if e.as != nil {
		args = append(args, "--storage-driver=vfs") // fuse-overlayfs need not be there
	}
	cmd := exec.Command("podman", append(args, words...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(e.Dir, "containers.conf"), "PATH="+e.Dir+":"+os.Getenv("PATH"))
	if e.as != nil {
		cmd.Env = append(cmd.Env, e.Env()...)
		cmd.Env = append(cmd.Env, "HOME="+e.Dir)
		// A user's Podman executes itself again, in a second process.
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: e.as, Setpgid: true}
	}
	return cmd
}

// Start starts the engine and waits until it answers.
func (e *ContainerEngine) Start() error {
	log, err := os.OpenFile(filepath.Join(e.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	_ = os.Remove(e.Socket)
	cmd := e.command()
	cmd.Dir = e.Dir // Podman's conmon leaves files here
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	e.running, e.ended = cmd, make(chan struct{})
	go func() { defer close(e.ended); _ = cmd.Wait() }()
	for deadline := time.Now().Add(engineWithin); ; {
		answer, err := e.client().Get("http://engine/_ping")
		if err == nil {
			return answer.Body.Close()
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

// Kill ends the engine's process by a signal. Containers may run on.
func (e *ContainerEngine) Kill(signal syscall.Signal) {
	if e.running == nil {
		return
	}
	if e.as != nil {
		_ = syscall.Kill(-e.running.Process.Pid, signal)
	} else {
		_ = e.running.Process.Signal(signal)
	}
	<-e.ended
}

// Crash is Kill with SIGKILL, also of the containerd of Docker, and a start like a service manager's.
func (e *ContainerEngine) Crash() error {
	e.Kill(syscall.SIGKILL)
	file := filepath.Join(e.Dir, "run", "containerd", "containerd.pid") // of dockerd
	if pid, err := os.ReadFile(file); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(pid))); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
		_ = os.Remove(file) // otherwise dockerd may wait for the killed one
	}
	err := e.Start()
	for again := 0; err != nil && again < 2; again++ {
		err = e.Start()
	}
	return err
}

// Close ends the engine and removes its directories.
func (e *ContainerEngine) Close() error {
	e.Kill(syscall.SIGTERM)
	if text, err := os.ReadFile(filepath.Join(e.Dir, "libpod", "tmp", "pause.pid")); err == nil {
		if pause, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			_ = syscall.Kill(pause, syscall.SIGKILL) // it keeps the user namespace of a rootless Podman
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(string(mounts), "\n")
	slices.Reverse(lines)
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], e.Dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
	return os.RemoveAll(e.Dir)
}

func (e *ContainerEngine) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
	}}}
}

// importImage makes an image from the static busybox of the machine.
func (e *ContainerEngine) importImage(ctx context.Context, name string) error {
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
	query := url.Values{"fromSrc": {"-"}, "repo": {name}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/images/create?"+query.Encode(), &b)
	if err != nil {
		return err
	}
	answer, err := e.client().Do(request)
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
