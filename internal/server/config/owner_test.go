package config_test

import (
	"os"
	"testing"

	"github.com/belfry-cron/belfry/internal/server/config"
)

func TestTheUserOfCommandsMayBeThatOfTheServer(t *testing.T) {
	if os.Geteuid() != 0 {
		if user := (config.Server{Roles: config.AllRoles()}).SharedUser(); user != config.UserName(os.Geteuid()) {
			t.Errorf("commands of a server that cannot switch users share %q", user)
		}
		return
	}
	for _, c := range []struct {
		name   string
		server config.Server
		shared string
	}{
		{"loopback and a file, as cron does", config.Server{Listen: config.DefaultListen, Store: "sqlite:/x"}, "root"},
		{"a user for commands", config.Server{Shell: config.Shell{DefaultUser: "nobody"}}, ""},
		{"root for commands", config.Server{Shell: config.Shell{DefaultUser: "root"}}, "root"},
		{"root by its number, where jobs name it", config.Server{Shell: config.Shell{DefaultUser: "nobody", AllowUsers: []string{"0"}}}, "root"},
		{"every user but root", config.Server{Shell: config.Shell{DefaultUser: "nobody", AllowUsers: []string{"*"}}}, ""},
	} {
		c.server.Roles = config.AllRoles()
		if got := c.server.SharedUser(); got != c.shared {
			t.Errorf("%s: shared is %q, want %q", c.name, got, c.shared)
		}
		c.server.Roles = []config.Role{"planner", "api"}
		if got := c.server.SharedUser(); got != "" {
			t.Errorf("%s, without the role worker: shared is %q", c.name, got)
		}
	}
}
