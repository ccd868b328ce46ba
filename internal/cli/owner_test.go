package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/config"
)

// nobody is a user who is not root, on all systems that tests run on.
const nobody = 65534

// asNobody is a command of that user.
func asNobody(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// dirOf makes a directory that a user can reach and owns.
func dirOf(t *testing.T, uid int) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "belfry-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(data, 0o700), os.Chown(data, uid, uid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return data
}

// A job that runs as the user of the server reads the files of that user. It must not read the
// environment of the server and of its watchdog as well, which have the password of a database.
func TestCommandsCannotReadTheMemoryOfTheirServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a server as another user")
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data := dirOf(t, nobody)
	copied := filepath.Join(filepath.Dir(data), "belfry") // that of the tests may be out of reach
	if out, err := exec.Command("install", "-m", "755", binary, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server := asNobody(copied, asBelfry, "serve", "--data", data, "--listen", "127.0.0.1:0")
	server.Env = []string{"PATH=/usr/bin:/bin", "SECRET_OF_THE_SERVER=1"}
	server.Dir = "/"
	var log bytes.Buffer
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Wait() }()
	defer func() { _ = server.Process.Signal(os.Interrupt); <-ended }()
	for deadline := time.Now().Add(patience); ; {
		if pid, running := config.Running(data); running && pid == server.Process.Pid {
			break
		}
		select {
		case <-ended:
			t.Fatalf("the server has ended:\n%s", log.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not start")
		}
	}
	children, err := os.ReadFile("/proc/" + strconv.Itoa(server.Process.Pid) + "/task/" + strconv.Itoa(server.Process.Pid) + "/children")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(server.Process.Pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks { // each thread has its own
		more, _ := os.ReadFile(file)
		children = append(append(children, ' '), more...)
	}
	pids := append(strings.Fields(string(children)), strconv.Itoa(server.Process.Pid))
	if len(pids) < 2 {
		t.Fatal("the server has no watchdog")
	}
	for _, pid := range pids {
		out, err := asNobody("cat", "/proc/"+pid+"/environ").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("process %s, of %s, can be read: %q, %v", pid, strings.Join(pids, " "), out, err)
		}
	}
}

func TestADataDirectoryOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	data := dirOf(t, nobody)
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := exec.CommandContext(ctx, must(os.Executable()), asBelfry, "serve", "--data", data, "--listen", "127.0.0.1:0")
	server.Stderr = &log
	if err := server.Run(); err == nil || !strings.Contains(log.String(), "belongs to nobody and this server runs as root") {
		t.Errorf("%v:\n%s", err, log.String())
	}
	if files, _ := os.ReadDir(data); len(files) > 0 {
		t.Errorf("the server has left %v behind", files)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
