package cli

import (
	"cmp"
	"context"
	"os"
	"strings"

	"github.com/belfry-cron/belfry/internal/config"
	"github.com/belfry-cron/belfry/store"
)

// welcome tells a person whose server has no job yet how to make a first one and see
// what it prints.
func (s *server) welcome(ctx context.Context) {
	if !s.env.StderrIsTerminal || len(s.config.Roles) < len(config.AllRoles()) {
		return // nobody reads it, or other nodes do what it tells of
	}
	if jobs, _, err := s.store.ListJobs(ctx, store.JobQuery{Limit: 1}); err != nil || len(jobs) > 0 {
		return
	}
	belfry, where := cmp.Or(s.env.Program, "belfry"), ""
	if s.config.Data != config.DefaultData(s.env.Getenv) && s.env.Getenv("BELFRY_DATA") == "" {
		where = " --data " + quoted(s.config.Data)
	}
	dir := ""
	if os.Geteuid() == 0 {
		dir = `, "dir": "/"` // the user of the job may not see the folder of the server
		if s.config.Shell.DefaultUser == "" {
			s.env.tell(`
A server that is root runs commands only as users that it is told. Stop it, and start it so:

  %s serve --run-as nobody%s

`, belfry, where)
			return
		}
	}
	s.env.tell(`
There is no job yet. In another terminal, here, a first one that is due every 10 seconds,
what it prints when it is run at once, and when it is due next:

  echo '{"name": "hello", "schedule": {"every": "10s"}, "run": {"shell": "echo hello"%s}}' | %[2]s apply -f -%[3]s
  %[2]s job run hello --logs%[3]s
  %[2]s job list --sort next%[3]s

`, dir, belfry, where)
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
