package programs_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/servers"
)

// site is a server that can be started again, at the same address.
type site struct {
	t                       *testing.T
	cli, data, address, who string
}

func newSite(t *testing.T) *site {
	t.Helper()
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return &site{t, build(t, "cmd/belfry"), t.TempDir(), fmt.Sprintf("127.0.0.1:%d", port), self.Username}
}

// serve starts the server.
func (s *site) serve() *program {
	s.t.Helper()
	return launch(s.t, exec.Command(s.cli, "serve", "--data", s.data, "--listen", s.address, "--name", "server", "--log-format", "text", "--run-as", s.who))
}

// ask runs a command of the command line.
func (s *site) ask(args ...string) (string, error) {
	cmd := exec.Command(s.cli, args...)
	cmd.Env = append(os.Environ(), "BELFRY_DATA="+s.data)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// until repeats a command until its output has a text.
func (s *site) until(want string, args ...string) {
	s.t.Helper()
	var out string
	var err error
	for deadline := time.Now().Add(within); time.Now().Before(deadline); <-time.After(300 * time.Millisecond) {
		if out, err = s.ask(args...); err == nil && strings.Contains(out, want) {
			return
		}
	}
	s.t.Fatalf("belfry %s has not printed %q: %v\n%s", strings.Join(args, " "), want, err, out)
}

// token creates the token edge of a worker.
func (s *site) token() string { return s.tokenOf("worker") }

// tokenOf creates a token with a role, which is its name too.
func (s *site) tokenOf(role string) string {
	s.t.Helper()
	out, err := s.ask("token", "create", role, "--role", role, "-o", "json")
	_, rest, _ := strings.Cut(out, `"secret": "`)
	secret, _, found := strings.Cut(rest, `"`)
	if err != nil || !found {
		s.t.Fatalf("create a token: %v\n%s", err, out)
	}
	return secret
}

// A program on a machine without the database runs the handlers of a server's jobs, even after an
// outage of the server.
func TestAConnectedProgramWorksForAServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve()
	s.until("server", "node", "list")
	secret := s.token()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.ask("apply", "-f", filepath.Join(root, "examples", "connected", "jobs.yaml")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	far := start(t, build(t, "examples/connected"), "BELFRY_SERVER=http://"+s.address, "BELFRY_TOKEN="+secret)
	s.until(`{"sensor":"cellar","celsius":21.5}`, "job", "run", "temperature", "--param", "sensor=cellar", "--wait", "--logs")
	server.stop()
	server = s.serve()
	s.until(`{"sensor":"attic","celsius":21.5}`, "job", "run", "temperature", "--param", "sensor=attic", "--wait", "--logs")
	far.stop()
	server.stop()
}
