package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newToken(env Env) *cobra.Command {
	cmd := group("token", "tokens", "Create, list and revoke tokens", "belfry token create ci --role runner\nbelfry token list")
	cmd.AddCommand(newTokenCreate(env), newTokenList(env), newTokenRevoke(env), newTokenReset(env))
	return cmd
}

func newTokenCreate(env Env) *cobra.Command {
	var (
		asked   config.Asked
		request client.TokenRequest
		role    string
		join    bool
		output  string
	)
	cmd := &cobra.Command{
		Use:   "create NAME --role ROLE [flags]",
		Short: "Create a token",
		Long: `Create a token and print it. It is shown only once; the server keeps a hash of it.
The audit shows its name.

A viewer can read. A runner can also run, cancel and retry jobs. An admin can do
everything. A worker runs jobs, see belfry worker, and can do nothing else. With a
namespace the token is valid in that namespace only.

--label limits the labels of workers with the token, and --certificate names the client
certificate that they must present. --join creates a joining token for setting up machines:
each exchanges it once for its own token, named NAME.NODE, with the same limits.`,
		Example: `belfry token create ann --role admin
belfry token create ci --role runner --namespace web --expires 30d >ci-token
belfry token create edge --role worker >edge-token
belfry token create rack --role worker --label zone=a --join --uses 20 --expires 2h >rack-token`,
		Args: oneName("token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if role == "" {
				return misused("--role is missing: viewer, runner, admin or worker")
			}
			if request.Joins > 0 && !join {
				return misused("--uses is for --join")
			}
			if join {
				request.Joins = max(request.Joins, 1)
			}
			request.Name, request.Role = args[0], client.Role(role)
			server, err := connect(env, asked)
			if err != nil {
				return err
			}
			return server.refused(createToken(cmd.Context(), server, request, output))
		},
	}
	f := cmd.Flags()
	addChoice(cmd, &role, "role", "", "what the token allows", string(client.RoleViewer), string(client.RoleRunner), string(client.RoleAdmin), string(client.RoleWorker))
	addWord(f, &request.Namespace, "namespace", "n", "NAME", "namespace in which it is valid; else all")
	addParsed(f, &request.ExpiresIn, "expires", "", "", "DURATION", "how long it is valid, such as 30d; else until it is revoked", func(text string) (string, error) {
		_, err := job.ParseDuration(text)
		return text, err
	})
	f.StringArrayVar(&request.Labels, "label", nil, "label that workers with the token may have: KEY=VALUE, or KEY=* for any value; may be repeated; else any label")
	addWord(f, &request.Certificate, "certificate", "", "NAME", "name in the client certificate that a worker must present; *.example.com is any host in example.com")
	f.BoolVar(&join, "join", false, "make a joining token, which a worker exchanges for a token of its own; it is valid for an hour without --expires")
	addParsed(f, &request.Joins, "uses", "", "1", "N", "how many workers may join with it", parsePositive)
	addServer(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	return cmd
}

func createToken(ctx context.Context, server *remote, request client.TokenRequest, output string) error {
	token, err := server.CreateToken(ctx, request)
	if err != nil {
		return err
	}
	for _, warning := range token.Warnings {
		server.env.tell("warning: %s: %s\n", oneLine(token.Name), printable(warning))
	}
	// In a table it is the only output, so that it can go into a file.
	if output == asTable && server.env.StdoutIsTerminal {
		server.env.tell("token %s, %s; it is not shown again:\n", oneLine(token.Name), tokenText(server.env, &token.Token))
	}
	return showOne(server.env, output, token, token.Name, func(w io.Writer) { fmt.Fprintln(w, oneLine(token.Secret)) })
}

// tokenText describes the rights of a token.
func tokenText(env Env, t *client.Token) string {
	text := string(t.Role)
	if t.Joins != nil {
		text = "for " + counted(*t.Joins, "worker") + " to join"
	}
	if t.Namespace != "" {
		text += " in the namespace " + oneLine(t.Namespace)
	}
	if !t.Expires.IsZero() {
		text += ", until " + instant(env, t.Expires)
	}
	return text
}

func newTokenList(env Env) *cobra.Command {
	return listCommand(env, &cobra.Command{Short: "List tokens", Example: "belfry token list\nbelfry token list -o json"}, false, listTokens)
}

func listTokens(ctx context.Context, server *remote, _, output string) error {
	page, err := server.Tokens(ctx)
	if err != nil {
		return err
	}
	return showList(server.env, output, page.Items, page.NextPageToken, func(t client.Token) string { return t.Name }, func(w io.Writer) {
		var rows [][]string
		for _, t := range page.Items {
			expires := instant(server.env, t.Expires)
			if t.Expired {
				expires += " (expired)"
			}
			role := string(t.Role)
			if t.Joins != nil {
				role += " (joins " + strconv.Itoa(*t.Joins) + ")"
			}
			rows = append(rows, []string{t.Name, role, cmp.Or(t.Namespace, "(all)"), expires, instant(server.env, t.LastUsed), instant(server.env, t.Created), t.By})
		}
		table(w, styleFor(server.env, server.env.StdoutIsTerminal), []string{"NAME", "ROLE", "NAMESPACE", "EXPIRES", "LAST USED", "CREATED", "BY"}, rows)
	})
}

func newTokenRevoke(env Env) *cobra.Command {
	var (
		asked config.Asked
		yes   bool
	)
	cmd := &cobra.Command{
		Use:     "revoke NAME... [flags]",
		Aliases: []string{"delete", "rm"},
		Short:   "Revoke tokens",
		Long: `Revoke tokens. This server refuses them at once, other servers on the same store
within a second. The last token that can create others cannot be revoked.`,
		Example: "belfry token revoke ci\nbelfry token revoke ci ann --yes",
		Args:    someNames("token"),
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			return revokeTokens(ctx, server, args, yes)
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "revoke without asking")
	addServer(cmd, &asked)
	cmd.ValidArgsFunction = tokenNames(env, &asked)
	return cmd
}

// revokeTokens revokes one token after another, and reports each.
func revokeTokens(ctx context.Context, server *remote, names []string, yes bool) error {
	if err := agree(server.env, yes, "revoke %s: %s", counted(len(names), "token"), shortList(names)); err != nil {
		return err
	}
	for _, name := range names {
		if err := server.RevokeToken(ctx, name); err != nil {
			return err
		}
		if err := write(server.env, fmt.Appendf(nil, "token %s revoked\n", oneLine(name))); err != nil {
			return err
		}
	}
	return nil
}

// tokenNames returns the shell completion of token names.
func tokenNames(env Env, asked *config.Asked) cobra.CompletionFunc {
	return namesOf(env, asked, func(ctx context.Context, server *remote, _ string) (names []string, err error) {
		page, err := server.Tokens(ctx)
		for _, t := range page.Items {
			names = append(names, t.Name)
		}
		return names, err
	})
}

func newTokenReset(env Env) *cobra.Command {
	var (
		file  string
		flags config.Server
	)
	cmd := &cobra.Command{
		Use:   "reset [flags]",
		Short: "Replace a lost admin token",
		Long: `Create a new admin token and write it to the data directory. The lost token becomes
invalid; other tokens stay as they are.

It needs no token, but access to the files of the server: run it as the user of the
server, while the server is stopped.`,
		Example: "belfry token reset\nbelfry token reset --data /var/lib/belfry",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, c, err := serverConfig(env, file, flags)
			if err != nil {
				return err
			}
			return resetToken(cmd.Context(), env, c, l.NameOf("store"))
		},
	}
	addStoreFlags(cmd, &file, &flags)
	return cmd
}

func resetToken(ctx context.Context, env Env, c config.Server, storeName string) (err error) {
	if file := c.Store.File(); file != "" {
		if _, err := os.Stat(file); err != nil {
			return failed("there is no store to create a token in: %v", err).withHint("--data names the data directory of the server")
		}
	}
	s, err := openStore(ctx, env, c, storeName, "stop the server, and start it again afterwards")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	path, err := auth.Reset(ctx, s, c.Data)
	if err != nil {
		return failed("%v", err)
	}
	return write(env, fmt.Appendf(nil, "wrote a new admin token to %s\n", path))
}
