package programs_test

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"
	"time"
)

// A command that ends while no server answers is reported by the next process of its worker, and
// not repeated.
func TestAResultOutlivesTheServerAndTheWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve()
	s.until("server", "node", "list")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(s.token()), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	far := t.TempDir()
	work := func() *program {
		return launch(t, exec.Command(s.cli, "worker", "--server", "http://"+s.address, "--token-file", token, "--data", filepath.Join(far, "data"), "--name", "far", "--log-format", "text", "--run-as", self.Username))
	}
	began, ended := filepath.Join(far, "began"), filepath.Join(far, "ended")
	document := filepath.Join(far, "job.yaml")
	text := "name: slow\nrun: {shell: 'echo x >>" + began + "; while [ ! -e " + filepath.Join(far, "go") + " ]; do sleep 0.1; done; echo done; echo x >>" + ended + "'}\n" +
		"place: {labels: {worker: worker}}\npolicy: {lost_after: 1h, retry: {attempts: 3, on: [failed, lost]}}\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := s.ask("apply", "-f", document); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	worker := work()
	s.until("far", "node", "list")
	if out, err := s.ask("job", "run", "slow"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	exists(t, began)
	server.kill()
	if err := os.WriteFile(filepath.Join(far, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exists(t, filepath.Join(far, "data", "spool", "*.json"))
	worker.kill()
	server = s.serve()
	worker = work()
	s.until(`"outcome": "succeeded"`, "run", "list", "-o", "json")
	s.until("done", "logs", "slow")
	for _, file := range []string{began, ended} {
		if lines, err := os.ReadFile(file); err != nil || string(lines) != "x\n" {
			t.Errorf("%s has %q, %v: the command ran another time", file, lines, err)
		}
	}
	worker.stop()
	server.stop()
}

// exists waits for a file.
func exists(t *testing.T, pattern string) {
	t.Helper()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return
		}
	}
	t.Fatalf("there is no %s", pattern)
}

// kill ends a program without a word.
func (p *program) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Error(err)
	}
	_ = p.cmd.Wait() // the error is about the kill
}
