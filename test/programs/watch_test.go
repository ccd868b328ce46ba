//go:build servers

package programs_test

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/servers"
)

// waitFor waits for a line with a text.
func (p *program) waitFor(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if strings.Contains(strings.Join(p.output(), "\n"), text) {
			return
		}
	}
	p.t.Fatalf("%s has not written %q:\n%s", p.cmd.Path, text, strings.Join(p.output(), "\n"))
}

// belfry runs a command of the command line against the server of a data directory.
func belfry(t *testing.T, program, data string, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "BELFRY_DATA="+data)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// eventually runs a command until its output has a text.
func eventually(t *testing.T, program, data, want string, args ...string) {
	t.Helper()
	var out string
	var err error
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		if out, err = belfry(t, program, data, args...); err == nil && strings.Contains(out, want) {
			return
		}
		<-time.After(300 * time.Millisecond)
	}
	t.Fatalf("belfry %s has not printed %q: %v\n%s", strings.Join(args, " "), want, err, out)
}

func TestAServerOnTheSameStoreShowsAndFeedsPrograms(t *testing.T) {
	t.Parallel()
	store, data := servers.StartPostgres(t).Schema(), t.TempDir()
	cli := build(t, "cmd/belfry")
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	serve := exec.Command(cli, "serve", "--data", data, "--listen", "127.0.0.1:0", "--name", "server", "--log-format", "text", "--run-as", self.Username)
	server := launch(t, serve, "BELFRY_STORE="+store)
	server.waitFor("msg=listening")
	embedded := start(t, build(t, "examples/embedded"), "LISTEN=127.0.0.1:0", "DATABASE_URL="+store)
	embedded.wait("tick ")
	eventually(t, cli, data, "shop/tick", "job", "list", "-A", "-o", "name")
	if out, err := belfry(t, cli, data, "job", "run", "-n", "shop", "report", "--param", "year=2030", "--wait", "--logs"); err != nil || !strings.Contains(out, `{"Year":2030,"Orders":1266`) {
		t.Errorf("a run by hand: %v\n%s", err, out)
	}
	// A command is for the server, not for the programs.
	if out, err := belfry(t, cli, data, "job", "create", "hello", "--", "echo", "from a command"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := belfry(t, cli, data, "job", "run", "hello", "--wait", "--logs"); err != nil || !strings.Contains(out, "from a command") {
		t.Errorf("a command: %v\n%s", err, out)
	}

	handlers := start(t, build(t, "examples/handlers"), "DATABASE_URL="+store)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := belfry(t, cli, data, "apply", "-f", filepath.Join(root, "examples", "handlers", "jobs.yaml")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, cli, data, `{"path":"pictures/ada.png@80"}`, "job", "run", "thumbnails", "--param", "path=pictures/ada.png", "--param", "width=80", "--wait", "--logs")
	handlers.stop()
	embedded.stop()
	server.stop()
}
