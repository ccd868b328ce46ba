package cli

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/server/assistant"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newMCP(env Env) *cobra.Command {
	var (
		asked   config.Asked
		changes bool
	)
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Answer an AI assistant, on standard input and output",
		Long: `Answer an AI assistant in the Model Context Protocol, on standard input and output. The
assistant starts this command, and reads jobs, runs and output with the rights of your token.

With --allow-changes it can also apply, run, pause, resume, cancel and retry: each call
answers a plan first, and only a second call with the fingerprint of that plan changes
something.

docs/assistants.md has the settings of assistants, and what to guard.`,
		Example: "belfry mcp\nbelfry mcp --context production\nbelfry mcp --allow-changes",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version := versionOf(buildInfo()).Version
			server, err := connectAs(env, asked, assistant.Agent+version)
			if err != nil {
				return err
			}
			if _, err := server.Server(cmd.Context()); err != nil {
				return server.refused(err) // assistants show how the command ended, and hide errors of tools
			}
			err = assistant.Serve(cmd.Context(), assistant.Config{
				Client: server.Client, Namespace: server.namespace, Changes: changes, Version: version, Now: env.Now,
				Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
			}, env.Stdin, env.Stdout)
			if err != nil && errors.Is(err, cmd.Context().Err()) {
				return nil // the assistant ends it by a signal
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&changes, "allow-changes", false, "also tools that change something, behind plans")
	addConnection(cmd, &asked)
	return cmd
}
