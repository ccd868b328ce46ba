package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/belfry-cron/belfry/internal/config"
	"github.com/belfry-cron/belfry/store"
)

// firstJob is a job that shows that all works. It has no double quotes, so that a log in
// JSON has it as a shell wants it.
const firstJob = "{name: hello, schedule: {every: 10s}, run: {shell: echo hello%s}}"

// welcome tells whoever has a server without a job how to make a first one and see what
// it prints: a person on the terminal, and others in the log.
func (s *server) welcome(ctx context.Context) {
	if len(s.config.Roles) < len(config.AllRoles()) || !s.hasToken {
		return // other nodes do what it tells of, or commands find a token beside them
	}
	if jobs, _, err := s.store.ListJobs(ctx, store.JobQuery{Limit: 1}); err != nil || len(jobs) > 0 {
		return
	}
	belfry, where, dir := cmp.Or(s.env.Program, "belfry"), "", ""
	if s.config.Data != config.DefaultData(s.env.Getenv) && s.env.Getenv("BELFRY_DATA") == "" {
		where = " --data " + quoted(s.config.Data)
	}
	if os.Geteuid() == 0 {
		if s.config.Shell.DefaultUser == "" {
			s.welcomeRoot()
			return
		}
		dir = ", dir: /" // the user of the job may not see the folder of the server
	}
	apply := fmt.Sprintf("echo '"+firstJob+"' | %s apply -f -%s", dir, belfry, where)
	run := fmt.Sprintf("%s job run hello --logs%s", belfry, where)
	list := fmt.Sprintf("%s job list --sort next%s", belfry, where)
	if !s.env.StderrIsTerminal {
		s.log.Info("there is no job yet: a first one, what it prints when it is run at once, and when it is due next", "apply", apply, "run", run, "list", list)
		return
	}
	s.env.tell(`
There is no job yet. In another terminal, here, a first one that is due every 10 seconds,
what it prints when it is run at once, and when it is due next:

  %s
  %s
  %s

`, apply, run, list)
}

// welcomeRoot says what a server that is root and may run nothing yet lacks.
func (s *server) welcomeRoot() {
	const why, flag = "a server that is root runs commands only as users that it is told: stop it, and add to how it was started", "--run-as nobody"
	if !s.env.StderrIsTerminal {
		s.log.Warn(why, "flag", flag)
		return
	}
	s.env.tell("\nA%s:\n\n  %s\n\n", why[1:], flag)
}

// quoted writes a word for a shell.
func quoted(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") == "" {
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
