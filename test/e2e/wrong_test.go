//go:build servers

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// command is belfry as people call it, against the server of a folder.
func (f *folder) command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, programs.belfry, args...)
	cmd.Env = append(os.Environ(), "BELFRY_DATA="+f.data, "HOME="+filepath.Dir(f.evidence))
	return cmd
}

// belfry runs a command to its end, and returns what it has printed and its exit
// code.
func (f *folder) belfry(t testing.TB, args ...string) (out, told string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := f.command(t, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func (f *folder) token(t testing.TB) string {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(f.data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// apart is where a server listens that is started there again: connections to other
// servers come from 127.0.0.1, and one of them would get the port meanwhile.
var apart = options{args: []string{"--listen", "127.0.0.2:0"}}

// restarted starts a server where one was before, apart.
func (f *folder) restarted(t testing.TB, before *server) *server {
	t.Helper()
	return f.serve(t, options{args: []string{"--listen", strings.TrimPrefix(before.url, "http://")}})
}

func TestMistakesOfACallerNameTheirPlace(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	defer s.stop()
	for _, tt := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/api/v1/jobs", `{"name": `, 400, "malformed"},
		{"POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}, "shedule": 1}`, 422, `"pointer":"/shedule"`},
		{"POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": []}}`, 422, `"pointer":"/run/shell"`},
		{"POST", "/api/v1/jobs", `{"name": "a", "schedule": {"cron": "61 * * * *"}, "run": {"shell": "true"}}`, 422, `"pointer":"/schedule/cron`},
		{"POST", "/api/v1/jobs", `"` + strings.Repeat("x", 17<<20) + `"`, 413, "too-large"},
		{"GET", "/api/v1/runs?page_size=many", "", 422, `"parameter":"page_size"`},
		{"GET", "/api/v1/runs/no-run", "", 422, `"parameter":"id"`},
		{"GET", "/api/v1/nothing", "", 404, "not-found"},
	} {
		request, err := http.NewRequest(tt.method, s.url+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+f.token(t))
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != tt.status || answer.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(string(text), tt.says) {
			t.Errorf("%s %s with %.60s: status %d, want %d and %s: %s", tt.method, tt.path, tt.body, answer.StatusCode, tt.status, tt.says, text)
		}
	}
}

// Connections that send nothing, send slowly or never read, and a thousand streams,
// delay no other client.
func TestStuckClientsDelayNoOthers(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	defer s.stop()
	const streams, silent, slow = 1000, 100, 100
	address := strings.TrimPrefix(s.url, "http://")
	dial := func(text string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	head := "Host: " + address + "\r\nAuthorization: Bearer " + f.token(t) + "\r\n"
	for range silent {
		dial("")
	}
	for range slow {
		dial("POST /api/v1/jobs HTTP/1.1\r\n" + head + "Content-Length: 100000\r\n\r\n{")
	}
	for range streams {
		conn := dial("GET /api/v1/events HTTP/1.1\r\n" + head + "\r\n")
		status := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(conn, status); err != nil || string(status) != "HTTP/1.1 200" {
			t.Fatalf("%q, %v", status, err)
		}
		// It reads nothing any more.
	}
	s.apply("{name: tick, schedule: {cron: '* * * * * *'}, run: {shell: " + f.witness() + "}, policy: {overlap: allow}}")
	eventually(t, "runs have ended", func() bool {
		page, err := s.Runs(t.Context(), client.RunQuery{Job: "default/tick", Outcomes: []job.Outcome{job.OutcomeSucceeded}, PageSize: 10})
		return err == nil && len(page.Items) >= 5
	})
	page, err := s.Runs(t.Context(), client.RunQuery{Job: "default/tick", States: []job.RunState{job.StateDone}, PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Items {
		if late := r.Started.Sub(r.Due); r.Outcome != job.OutcomeSucceeded || late > punctual {
			t.Errorf("the run of %s: %s, %s late", r.Scheduled.Format(time.TimeOnly), r.Outcome, late)
		}
	}
}

// Clients that follow or wait while the server is killed and started again learn how
// the run has ended.
func TestWaitingClientSurvivesAServerRestart(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, apart)
	s.apply("{name: slow, run: {shell: 'echo begun; exec sleep 300'}}")
	var waited, out bytes.Buffer
	wait := f.command(t, "job", "run", "slow", "--wait")
	wait.Stdout, wait.Stderr = &waited, &waited
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	var run client.Run
	eventually(t, "it has written something", func() bool {
		page, err := s.Runs(t.Context(), client.RunQuery{Job: "default/slow", States: []job.RunState{job.StateRunning}, PageSize: 1})
		if err != nil || len(page.Items) == 0 {
			return false
		}
		run = page.Items[0]
		var output bytes.Buffer
		return s.Output(t.Context(), run.ID, client.OutputQuery{}, &output) == nil && output.String() == "begun\n"
	})
	follow := f.command(t, "logs", "-f", run.ID.String())
	followed, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	events := f.command(t, "events", "--kind", "run.done", "--kind", "gap", "--limit", "1")
	says, err := events.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	events.Stdout = &out
	for _, cmd := range []*exec.Cmd{follow, events} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := says.Read(make([]byte, 1)); err != nil { // it follows
		t.Fatal(err)
	}
	begun := make([]byte, len("begun\n"))
	if _, err := io.ReadFull(followed, begun); err != nil { // so does the other
		t.Fatal(err)
	}
	s.kill()
	again := f.restarted(t, s)
	defer again.stop()
	if ended := again.ended(run.ID); ended.Outcome != job.OutcomeLost {
		t.Fatalf("the run has ended as %s", ended.Outcome)
	}
	if err := wait.Wait(); wait.ProcessState.ExitCode() != 8 || !strings.Contains(waited.String(), "lost") {
		t.Errorf("who waits ends with %v: %s", err, waited.String())
	}
	more, err := io.ReadAll(followed)
	if err := errors.Join(err, follow.Wait()); err != nil || string(begun) != "begun\n" || len(more) > 0 {
		t.Errorf("who follows the output ends with %v: %q and %q", err, begun, more)
	}
	if err := events.Wait(); err != nil || !strings.Contains(out.String(), " gap ") {
		t.Errorf("who follows what happens ends with %v: %q", err, out.String())
	}
}

// A folder is applied as a whole, although the server dies in the middle.
func TestDirectoryIsAppliedAcrossAServerCrash(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, apart)
	const jobs = 3000
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "---\nname: job-%05d\nschedule: {cron: 0 0 1 1 *}\nrun: {shell: \"true\"}\n", i)
	}
	if err := os.WriteFile(f.path("jobs.yaml"), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, output bytes.Buffer
	cmd := f.command(t, "apply", "-f", f.path("jobs.yaml"))
	cmd.Stdout, cmd.Stderr = &out, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "some are applied", func() bool {
		page, err := s.Jobs(t.Context(), client.JobQuery{PageSize: 1})
		return err == nil && len(page.Items) == 1
	})
	s.kill()
	again := f.restarted(t, s)
	defer again.stop()
	if err := cmd.Wait(); err != nil || strings.Count(out.String(), "\n") != jobs {
		t.Fatalf("%v: %s%.300s", err, output.String(), out.String())
	}
	n := 0
	for token := ""; ; {
		page, err := again.Jobs(t.Context(), client.JobQuery{PageSize: 500, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Items)
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if n != jobs {
		t.Errorf("there are %d jobs, want %d", n, jobs)
	}
}

// Ten thousand documents with three mistakes change nothing, and each mistake is
// told with its file, line and field.
func TestOfTenThousandJobsWithThreeMistakesNothingIsApplied(t *testing.T) {
	f := newFolder(t)
	s := f.serve(t, options{})
	defer s.stop()
	folder := f.path("jobs")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	const files, each = 10, 1000
	write := func(wrong map[int]string) {
		t.Helper()
		for file := range files {
			var text strings.Builder
			for i := range each {
				n := file*each + i
				more := wrong[n]
				if more == "" {
					more = "schedule: {cron: 0 0 1 1 *}"
				}
				fmt.Fprintf(&text, "---\nname: job-%05d\n%s\nrun: {shell: \"true\"}\n", n, more)
			}
			if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.yaml", file)), []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := func(want ...string) {
		t.Helper()
		out, told, code := f.belfry(t, "apply", "-f", folder)
		if code != 1 || out != "" || strings.Count(told, ".yaml:") != len(want) {
			t.Errorf("exit code %d: %.300s%.2000s", code, out, told)
		}
		for _, line := range want {
			if !strings.Contains(told, line) {
				t.Errorf("%q is not told: %.2000s", line, told)
			}
		}
		if page, err := s.Jobs(t.Context(), client.JobQuery{PageSize: 1}); err != nil || len(page.Items) != 0 {
			t.Errorf("there are jobs: %v", err)
		}
	}
	// What the command sees, and what only the server can know.
	write(map[int]string{7: "schedule: {cron: 61 0 1 1 *}", 5001: "shedule: {}", 9999: "policy: {overlap: sometimes}"})
	refused("0.yaml:31:18: schedule.cron", "5.yaml:7:1: shedule", "9.yaml:3999:19: policy.overlap")
	write(map[int]string{7: "schedule: {on: nobody}", 5001: "schedule: {cron: 0 0 1 1 *, except: [holidays]}", 9999: "schedule: {cron: 0 0 1 1 *, only: [workdays]}"})
	refused("5.yaml:7:", "9.yaml:3999:")
	write(map[int]string{7: "schedule: {cron: 61 0 1 1 *}", 5001: "shedule: {}", 9999: "schedule: {cron: 0 0 1 1 *, only: [workdays]}"})
	refused("0.yaml:31:18: schedule.cron", "5.yaml:7:1: shedule", "9.yaml:3999:36: schedule.only[0]: there is no calendar default/workdays")
}

// A name that is relative where the server was started means nothing elsewhere.
func TestACommandInAnotherFolderFindsTheToken(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{
		below: []string{"sh", "-c", `cd "$0" && exec "$@"`, filepath.Dir(f.data)},
		args:  []string{"--data", filepath.Base(f.data)},
	})
	defer s.stop()
	if out, code := command(t, "job", "list", "--data", f.data); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// A backup may be large, and one that was interrupted is not missed.
func TestAnInterruptedRestoreLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	pipe := f.path("pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(programs.belfry, "restore", "--data", f.data, pipe)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	defer func() { _ = cmd.Process.Kill(); <-exited }()
	backup, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns once it is read
	if err != nil {
		t.Fatal(err)
	}
	defer backup.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ends", func() bool {
		_, _ = backup.Write([]byte{0}) // wakes the readers
		select {
		case <-exited:
			return true
		default:
			return false
		}
	})
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("the exit code is %d", code)
	}
	if left, err := filepath.Glob(filepath.Join(f.data, "*.part*")); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
