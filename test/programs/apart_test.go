//go:build servers

package programs_test

import (
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/test/servers"
)

// A server with jobs in Redis starts while the PostgreSQL with its history is down, runs jobs, and
// ships ended runs later. The store commands handle both.
func TestAServerStartsWhileItsHistoryIsAway(t *testing.T) {
	t.Parallel()
	control := servers.StartRedis(t).URL() + "/belfry"
	database := servers.StartPostgres(t)
	history := database.Schema()
	cli, data := build(t, "cmd/belfry"), t.TempDir()
	both := []string{"--store", control, "--history", history, "--data", data}
	run := func(works bool, want string, args ...string) {
		t.Helper()
		out, err := belfry(t, cli, data, args...)
		if (err == nil) != works || !strings.Contains(out, want) {
			t.Errorf("belfry %s: %v, want %q in\n%s", strings.Join(args, " "), err, want, out)
		}
	}
	if err := database.Kill(); err != nil {
		t.Fatal(err)
	}
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	serve := exec.Command(cli, append([]string{"serve", "--listen", "127.0.0.1:0", "--log-format", "text", "--run-as", self.Username}, both...)...)
	server := launch(t, serve)
	server.waitFor("msg=listening")
	server.waitFor("the history store is away")
	run(true, "", "job", "create", "hello", "--", "echo", "from a command")
	run(true, "succeeded", "job", "run", "hello", "--wait")
	run(false, "wait for the history store", append([]string{"doctor"}, both...)...)
	run(false, "history store", append([]string{"store", "check"}, both...)...)
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	server.waitFor("history is written again")
	eventually(t, cli, data, "from a command", "job", "run", "hello", "--wait", "--logs")
	server.stop()

	// Doctor finds that no server runs.
	run(false, "ok     history store", append([]string{"doctor"}, both...)...)
	run(true, "finished attempts", append([]string{"store", "check"}, both...)...)
	file := "sqlite:" + filepath.Join(t.TempDir(), "copy.db")
	run(false, "--history", "store", "copy", control, file)
	run(true, "both stores have the digest", "store", "copy", control, file, "--from-history", history)
	run(true, "finished attempts", "store", "check", file)
	run(false, "keeps its own history", "store", "copy", control, file, "--to-history", history)
}
