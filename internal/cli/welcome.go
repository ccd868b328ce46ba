package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/config"
)

// firstJob is a job that shows that all works. It has no double quotes, so that a log in
// JSON has it as a shell reads it.
const firstJob = "{name: hello, schedule: {every: 10s}, run: {shell: echo hello%s}}"

// welcome shows how to create a first job and see its output, as long as there are no jobs: on the
// terminal or in the log.
func welcome(ctx context.Context, env Env, c config.Server, s *server.Server, log *slog.Logger) {
	if _, there := s.TokenFile(); len(c.Roles) < len(config.AllRoles()) || !there {
		return // the commands would need another node or a token
	}
	if s.HasJobs(ctx) {
		return
	}
	belfry, where, dir := cmp.Or(env.Program, "belfry"), "", ""
	if c.Data != config.DefaultData(env.Getenv) && env.Getenv("BELFRY_DATA") == "" {
		where = " --data " + quoted(c.Data)
	}
	if os.Geteuid() == 0 && c.Shell.DefaultUser != "root" {
		dir = ", dir: /" // that user may be unable to enter the server's directory
	}
	apply := fmt.Sprintf("echo '"+firstJob+"' | %s apply -f -%s", dir, belfry, where)
	run := fmt.Sprintf("%s job run hello --logs%s", belfry, where)
	list := fmt.Sprintf("%s job list --sort next%s", belfry, where)
	if !env.StderrIsTerminal {
		log.Info("no jobs yet; these commands create one, run it now and show when it is due next", "apply", apply, "run", run, "list", list)
		return
	}
	env.tell(`
There are no jobs yet. In another terminal, in this directory, create one that runs every
10 seconds, run it now, and see when it is due next:

  %s
  %s
  %s

`, apply, run, list)
}

// quoted writes a word for a shell.
func quoted(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// program returns how this program is called: as it was, or by go run.
func program() string {
	if strings.Contains(os.Args[0], "/go-build") {
		return "go run ./cmd/belfry"
	}
	return os.Args[0]
}
