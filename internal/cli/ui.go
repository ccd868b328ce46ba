package cli

import (
	"context"
	"io"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/server/config"
)

func newUI(env Env) *cobra.Command {
	var (
		asked  config.Asked
		noOpen bool
	)
	cmd := &cobra.Command{
		Use:   "ui [flags]",
		Short: "Open the web UI, signed in",
		Long: `Open the web UI in a browser, signed in with the token of this command, and print its
address. The address works once and for a minute. Without a terminal it is only printed.`,
		Example: "belfry ui\nbelfry ui --no-open",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := connect(env, asked)
			if err != nil {
				return err
			}
			return server.refused(openUI(cmd.Context(), server, !noOpen && env.StdoutIsTerminal))
		},
	}
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "only print the address")
	addServer(cmd, &asked)
	return cmd
}

// openUI prints the address of the web UI, and opens it.
func openUI(ctx context.Context, server *remote, open bool) error {
	code, err := server.LoginCode(ctx)
	if err != nil {
		return err
	}
	address := server.URL() + "/ui/login#" + code.Code
	if _, err := io.WriteString(server.env.Stdout, address+"\n"); err != nil {
		return failed("write: %v", err)
	}
	if !open {
		return nil
	}
	if program, err := openBrowser(ctx, address); err != nil {
		server.env.tell("no browser could be opened with %s; open the address within a minute\n", program)
	}
	return nil
}

// openBrowser opens an address in a browser, with the program that it returns.
func openBrowser(ctx context.Context, address string) (program string, err error) {
	program = "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	return program, exec.CommandContext(ctx, program, address).Run()
}
