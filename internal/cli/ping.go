package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/server/config"
)

func newJobPingKey(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "ping-key NAME [flags]",
		Short: "Make the ping key of a job that reports",
		Long: `Create the ping key of a job with run.external, in place of its old one. The key allows
nothing but reports on the job, by requests to its URL without a token:

  URL          success
  URL/start    start
  URL/fail     failure
  URL/3        end with exit code 3

The key is shown once.`,
		Example:           "belfry job ping-key backup\ncurl -fsS -m 10 --retry 5 \"$(belfry job ping-key backup)\"",
		Args:              oneName("job"),
		ValidArgsFunction: jobNames(env, &asked),
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			return makePingKey(ctx, server, args[0], output)
		}),
	}
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	return cmd
}

func makePingKey(ctx context.Context, server *remote, name, output string) error {
	full, err := server.named(name)
	if err != nil {
		return err
	}
	key, err := server.RotatePingKey(ctx, full.namespace, full.name)
	if err != nil {
		return err
	}
	return showOne(server.env, output, key, "", func(w io.Writer) {
		fmt.Fprintln(w, strings.TrimSuffix(server.URL(), "/")+key.Path)
	})
}
