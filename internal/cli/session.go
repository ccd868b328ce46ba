package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newSession(env Env) *cobra.Command {
	cmd := group("session", "sessions", "List and end sessions of people who signed in", "belfry session list\nbelfry session end sso:ann@example.com")
	cmd.AddCommand(newSessionList(env), newSessionEnd(env))
	return cmd
}

func newSessionList(env Env) *cobra.Command {
	return listCommand(env, &cobra.Command{
		Short: "List sessions of people who signed in",
		Long: `List the sessions of people who signed in at an OpenID provider, in the web UI or with
belfry login. Browsers that logged in with a token are not listed; their sessions end when
the token is revoked.`,
		Example: "belfry session list\nbelfry session list -o json",
	}, false, listSessions)
}

func listSessions(ctx context.Context, server *remote, _, output string) error {
	page, err := server.Sessions(ctx)
	if err != nil {
		return err
	}
	return showList(server.env, output, page.Items, page.NextPageToken, func(s client.Session) string { return s.Person }, func(w io.Writer) {
		var rows [][]string
		for _, s := range page.Items {
			rows = append(rows, []string{s.Person, s.Subject, instant(server.env, s.Begun), instant(server.env, s.Expires)})
		}
		table(w, styleFor(server.env, server.env.StdoutIsTerminal), []string{"PERSON", "SUBJECT", "SIGNED IN", "EXPIRES"}, rows)
	})
}

func newSessionEnd(env Env) *cobra.Command {
	var (
		asked config.Asked
		yes   bool
	)
	cmd := &cobra.Command{
		Use:     "end PERSON [flags]",
		Aliases: []string{"delete", "rm"},
		Short:   "End all sessions of a person",
		Long: `End all sessions of a person, who is named as in the audit: sso:ann@example.com. This
server refuses them at once, other servers on the same store within a second.

The person can sign in again. To prevent that, first remove the person from the groups
that have roles here, or close the account at the provider.`,
		Example: "belfry session end sso:ann@example.com",
		Args:    oneName("person"),
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			return endSessions(ctx, server, args[0], yes)
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "end them without asking")
	addServer(cmd, &asked)
	cmd.ValidArgsFunction = namesOf(env, &asked, func(ctx context.Context, server *remote, _ string) (names []string, err error) {
		page, err := server.Sessions(ctx)
		for _, s := range page.Items {
			names = append(names, s.Person)
		}
		return names, err
	})
	return cmd
}

func endSessions(ctx context.Context, server *remote, person string, yes bool) error {
	if err := agree(server.env, yes, "end the sessions of %s", oneLine(person)); err != nil {
		return err
	}
	ended, err := server.EndSessions(ctx, person)
	if err != nil {
		return err
	}
	return write(server.env, fmt.Appendf(nil, "ended %s of %s\n", counted(ended.Ended, "session"), oneLine(person)))
}
