package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/cli/doctor"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newStatus(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "status [flags]",
		Short: "Show what a server is, and what could be better about it",
		Long: `Show the version, the store and the nodes of a server, its last backup, and hints: the
quick checks of belfry doctor, and differences between nodes. The exit code is 0
whatever is found.`,
		Example: "belfry status\nbelfry status -o json",
		Args:    noArguments,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, _ []string) error {
			return showStatus(ctx, server, output)
		}),
	}
	addServer(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	return cmd
}

func showStatus(ctx context.Context, server *remote, output string) error {
	s, err := server.Server(ctx)
	if err != nil {
		return err
	}
	return showOne(server.env, output, s, s.Node, func(w io.Writer) { serverText(w, server.env, &s) })
}

// serverText writes the state of a server for people.
func serverText(w io.Writer, env Env, s *client.Server) {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return instant(env, t)
	}
	fieldLines(w, styleFor(env, env.StdoutIsTerminal),
		"version", s.Version, "node", s.Node, "roles", strings.Join(s.Roles, ","), "started", at(s.Started), "store", s.Store, "history", s.History,
		"zone data", s.Zones, "time zone", s.Timezone, "nodes", fmt.Sprint(s.Nodes), "backup", at(s.Backup))
	if len(s.Hints) == 0 {
		return
	}
	list := make([]doctor.Finding, len(s.Hints))
	for i, h := range s.Hints {
		list[i] = doctor.OfHint(h)
	}
	fmt.Fprintln(w)
	findingTable(w, env, list)
}
