package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/server/config"
)

func TestRootRunsCommandsAsRootOnlyWhereItsOwnMachineDefinesJobs(t *testing.T) {
	file := config.Store("sqlite:/var/lib/belfry/belfry.db")
	for _, c := range []struct {
		name       string
		config     config.Server
		notRoot    bool
		user       string
		logs, says string // in the log and in the error
	}{
		{name: "on loopback", config: config.Server{Listen: "127.0.0.1:8420", Store: file}, user: "root"},
		{name: "on loopback, not root", config: config.Server{Listen: "127.0.0.1:8420", Store: file}, notRoot: true},
		{name: "elsewhere", config: config.Server{Listen: ":8420", Store: file}, says: "other machines can give it jobs"},
		{name: "elsewhere, not root", config: config.Server{Listen: ":8420", Store: file}, notRoot: true},
		{name: "with the database of a cluster", config: config.Server{Listen: "127.0.0.1:8420", Store: "postgres://db/belfry"}, says: "other machines can give it jobs"},
		{
			name:   "elsewhere, where jobs may name users",
			config: config.Server{Listen: ":8420", Store: file, Shell: config.Shell{AllowUsers: []string{"www"}}}, logs: "jobs without run.user will fail",
		},
		{name: "elsewhere, as a named user", config: config.Server{Listen: ":8420", Store: file, Shell: config.Shell{DefaultUser: "0"}}, user: "0"},
		{name: "as an unknown user", config: config.Server{Listen: ":8420", Store: file, Shell: config.Shell{DefaultUser: "no-such-user"}}, user: "no-such-user", says: "--run-as: user no-such-user does not exist"},
		{name: "without commands", config: config.Server{Listen: ":8420", Store: file, Roles: []config.Role{"planner", "api"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			if c.config.Roles == nil {
				c.config.Roles = config.AllRoles()
			}
			from := config.Layers{Flags: c.config}
			says := ""
			if _, err := chooseUser(&c.config, from, !c.notRoot, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				says = err.Error()
			}
			if c.config.Shell.DefaultUser != c.user {
				t.Errorf("commands run as %q, want %q", c.config.Shell.DefaultUser, c.user)
			}
			if !strings.Contains(says, c.says) || c.says == "" && says != "" {
				t.Errorf("the error is %q, want %q", says, c.says)
			}
			if !strings.Contains(log.String(), c.logs) || c.logs == "" && log.Len() > 0 {
				t.Errorf("the log is %q, want %q", log.String(), c.logs)
			}
		})
	}
}
