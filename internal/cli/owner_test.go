package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/config"
)

// nobody is the id of a user other than root, on all systems of the tests.
const nobody = 65534

// asNobody is a command of that user.
func asNobody(name string, args ...string) *exec.Cmd { return asUser(nobody, name, args...) }

func asUser(uid uint32, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// dirOf creates a directory that a user can reach and owns.
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

// A job that runs as the user of the server reads the files of that user. It must not also read the
// environments of the server and its watchdog, which have a database's password.
func TestCommandsCannotReadTheMemoryOfTheirServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a server as another user")
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data := dirOf(t, nobody)
	copied := filepath.Join(filepath.Dir(data), "belfry") // the user may not be able to reach the test's program
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

// While a job has a secret in its environment, a file and its input, another user finds it neither
// in /proc nor in files of the server and job, and root finds it in no log.
func TestSecretsOfRunningJobsAreHiddenFromOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run jobs as another user")
	}
	const daemon = 1
	data := dirOf(t, 0)
	dir := filepath.Dir(data)
	shared := filepath.Join(dir, "shared") // the job reports its start there
	needle := filepath.Join(dir, "needle") // a file, because arguments are visible in /proc
	for _, err := range []error{os.Mkdir(shared, 0o777), os.Chmod(shared, 0o777), os.WriteFile(needle, []byte("hunter2-hunter2\n"), 0o600), os.Chmod(needle, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	binary := must(os.Executable())
	server := exec.Command(binary, asBelfry, "serve", "--data", data, "--listen", "127.0.0.1:0", "--run-as", "nobody", "--log-level", "debug")
	server.Dir, server.Env = dir, append(os.Environ(), "TMPDIR="+shared)
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { _ = server.Process.Signal(os.Interrupt); _ = server.Wait() })
	defer stop()
	belfry := func(stdin string, args ...string) (string, error) {
		cmd := exec.Command(binary, append([]string{asBelfry}, args...)...)
		cmd.Env, cmd.Stdin = append(os.Environ(), "BELFRY_DATA="+data), strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	until := func(what string, so func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !so(); <-time.After(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				stop()
				t.Fatalf("it takes too long until %s:\n%s", what, log.String())
			}
		}
	}
	until("the server answers", func() bool { _, err := belfry("", "status"); return err == nil })
	const document = `name: uses
run:
  shell: 'read -r line; touch "$SHARED/runs"; while [ ! -e "$SHARED/end" ]; do sleep 0.05; done'
  stdin: "{{ .Secret.token }}\n"
  env: {TOKEN: "{{ .Secret.token }}", SHARED: "` + "%s" + `"}
  files: {KEY: "{{ .Secret.token }}"}
`
	for _, step := range []struct {
		stdin string
		args  []string
	}{
		{"hunter2-hunter2\n", []string{"secret", "set", "token"}},
		{strings.Replace(document, "%s", shared, 1), []string{"apply", "-f", "-", "--yes"}},
		{"", []string{"job", "run", "uses"}},
	} {
		if out, err := belfry(step.stdin, step.args...); err != nil {
			t.Fatalf("belfry %v: %v\n%s", step.args, err, out)
		}
	}
	until("the job runs", func() bool { _, err := os.Stat(filepath.Join(shared, "runs")); return err == nil })

	search := func(uid uint32) string {
		// The needle itself, and grep's complaints about unreadable files, do not count.
		out, _ := asUser(uid, "sh", "-c", `grep -lsaF -f "$1" /proc/[0-9]*/cmdline /proc/[0-9]*/environ; grep -rlsaF -D skip -f "$1" "$2" --exclude=needle`, "sh", needle, dir).Output()
		return string(out)
	}
	if found := search(nobody); !strings.Contains(found, "/environ") || !strings.Contains(found, shared) && !strings.Contains(found, data) {
		t.Errorf("the user of the job does not find what it has itself: %q", found)
	}
	if found := search(daemon); found != "" {
		t.Errorf("another user finds the secret in\n%s", found)
	}
	if err := os.WriteFile(filepath.Join(shared, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(shared, "end"), 0o644); err != nil {
		t.Fatal(err)
	}
	until("the job has ended", func() bool {
		out, _ := belfry("", "run", "list", "-o", "json")
		return strings.Contains(out, `"succeeded"`)
	})
	stop()
	if found := search(0); found != "" {
		t.Errorf("afterwards the secret is in\n%s", found)
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log has the secret:\n%s", log.String())
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
