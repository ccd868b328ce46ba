package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/cli/doctor"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newDoctor(env Env) *cobra.Command {
	var (
		file   string
		flags  config.Server
		output string
	)
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check a server and its machine for problems",
		Long: `Check a server and its machine for problems, and suggest a fix for each. It changes
nothing. It reads the data directory, so run it on the machine of the server and
as its user.

The exit code is 1 if there is a problem. A note is a suggestion about something that
works.`,
		Example: "belfry doctor\nbelfry doctor --config /etc/belfry.yaml\nbelfry doctor -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, c, err := serverConfig(env, file, flags)
			if err != nil {
				return err
			}
			list := examine(cmd.Context(), env, c)
			if err := showList(env, output, list, "", func(f doctor.Finding) string { return f.Check }, func(w io.Writer) { findingTable(w, env, list) }); err != nil {
				return err
			}
			return problems(list)
		},
	}
	addStoreFlags(cmd, &file, &flags)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// findingTable writes findings for people, each followed by its remedy.
func findingTable(w io.Writer, env Env, list []doctor.Finding) {
	s := styleFor(env, env.StdoutIsTerminal)
	width, status := 0, len(doctor.Wrong)
	for _, f := range list {
		width, status = max(width, len(f.Check)), max(status, len(f.Status))
	}
	for _, f := range list {
		mark := map[string]func(string) string{doctor.Well: s.faint, doctor.Note: s.strong, doctor.Wrong: s.wrong, doctor.Mended: s.strong}[f.Status]
		fmt.Fprintf(w, "%s  %-*s  %s\n", mark(fmt.Sprintf("%-*s", status, f.Status)), width, f.Check, oneLine(f.Found))
		if f.Do != "" {
			fmt.Fprintf(w, "%*s  %s\n", width+status+2, "", oneLine(f.Do))
		}
	}
}

// examine makes all checks.
func examine(ctx context.Context, env Env, c config.Server) []doctor.Finding {
	pid, running := config.Running(c.Data)
	if !running {
		pid = 0
	}
	list := append(doctor.Machine(ctx, c, pid, machineZone(env.Getenv), env.Now()), doctor.Store(ctx, "store", c.Store))
	if c.History != "" {
		list = append(list, doctor.HistoryStore(ctx, c.History), doctor.HistoryBehind(ctx, c.Store))
	}
	list = append(list, serverAndToken(ctx, env, c, running)...)
	if c.OIDC.Issuer != "" {
		list = append(list, doctor.SignIn(ctx, c, env.Now))
	}
	return list
}

// answerWithin bounds an answer of the server.
const answerWithin = 5 * time.Second

// serverAndToken requests the nodes from the server of the data directory.
func serverAndToken(ctx context.Context, env Env, c config.Server, running bool) []doctor.Finding {
	server, token := doctor.Finding{Check: "server", Status: doctor.Wrong}, doctor.Finding{Check: "token", Status: doctor.Note, Found: "not checked: no server is running"}
	if !running {
		server.Found, server.Do = "no server is running on "+c.Data+", or this user may not see it", "start one with belfry serve, and run this as its user"
		return []doctor.Finding{server, token}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	remote, err := connect(env, config.Asked{Data: c.Data})
	var nodes client.Page[client.Node]
	if err == nil {
		nodes, err = remote.Nodes(ctx)
		err = remote.refused(err)
	}
	var f *failure
	switch {
	case remote == nil:
		server.Status, server.Found = doctor.Note, "is running and was not queried"
		token.Status, token.Found = doctor.Wrong, err.Error()
		token.Do = "commands of this user cannot use it before; others may have read it, so better replace it: belfry token reset, while the server is stopped"
	case err == nil:
		server.Status, server.Found = doctor.Well, "answers at "+remote.URL()
		token.Status, token.Found = doctor.Well, "accepted"
		return append([]doctor.Finding{server, token}, doctor.Cluster(ctx, &doctor.Server{Client: remote.Client, Refused: remote.refused}, nodes.Items, c, env.Now())...)
	case errors.As(err, &f) && f.problem != nil && f.problem.Type == client.TypeElsewhere:
		server.Status, server.Found = doctor.Well, "answers at "+remote.URL()+", without the role api"
		token.Status, token.Found = doctor.Well, "accepted"
	case errors.As(err, &f) && f.code == ExitNotAllowed && remote.noToken != "":
		server.Status, server.Found = doctor.Well, "answers at "+remote.URL()
		token.Found, token.Do = "not checked: no token on this machine", remote.noToken
	case errors.As(err, &f) && f.code == ExitNotAllowed:
		server.Status, server.Found = doctor.Well, "answers at "+remote.URL()
		token.Status, token.Found, token.Do = doctor.Wrong, f.message, cmp.Or(f.hint, "create another one with belfry token create, as an administrator")
	default:
		server.Found, server.Do = err.Error(), "its log says what it is waiting for"
	}
	return []doctor.Finding{server, token}
}
