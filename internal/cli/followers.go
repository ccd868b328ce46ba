package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newJobFollowers(env Env) *cobra.Command {
	var (
		asked  config.Asked
		limit  = 100
		output string
	)
	cmd := &cobra.Command{
		Use:   "followers NAME [flags]",
		Short: "List the jobs that follow a job",
		Long: `List the jobs that follow a job: its runs start theirs, as their schedule.on says.
A paused follower is not started.`,
		Example: `belfry job followers import
belfry job followers import -o name`,
		Args: oneName("job"),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			return listFollowers(ctx, server, name, limit, output)
		}),
	}
	addParsed(cmd.Flags(), &limit, "limit", "", "100", "N", "how many jobs to show", parsePositive)
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

func listFollowers(ctx context.Context, server *remote, name jobName, limit int, output string) error {
	var list []client.Follower
	next := ""
	for len(list) < limit {
		page, err := server.Followers(ctx, name.namespace, name.name, min(pageSize, limit-len(list)), next)
		if err != nil {
			return err
		}
		list = append(list, page.Items...)
		if next = page.NextPageToken; next == "" {
			break
		}
	}
	return showList(server.env, output, list, next, func(f client.Follower) string { return f.FullName() }, func(w io.Writer) {
		var rows [][]string
		for i := range list {
			f := &list[i]
			var on []string
			for _, outcome := range f.Outcomes {
				on = append(on, string(outcome))
			}
			rows = append(rows, []string{f.FullName(), strings.Join(on, ", "), string(f.State)})
		}
		table(w, styleFor(server.env, server.env.StdoutIsTerminal), []string{"JOB", "AFTER", "STATE"}, rows)
	})
}
