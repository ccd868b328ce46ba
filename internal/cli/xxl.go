package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/spf13/cobra"
)

func newXXL(env Env) *cobra.Command {
	cmd := group("xxl", "XXL-JOB", "Show executors of XXL-JOB, and take jobs over from xxl-job-admin", "belfry xxl executors\nbelfry xxl import --dump xxl_job.sql --zone Asia/Shanghai")
	cmd.AddCommand(newXXLExecutors(env), newXXLImport(env), newXXLTakeOver(env), newXXLGiveBack(env))
	return cmd
}

func newXXLExecutors(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "executors [flags]",
		Short: "List the executors that are registered or listed",
		Long: `List the executors of XXL-JOB, by group and address, with their last sign of life and
how many runs they have. An executor without one for 90 seconds is no longer registered.
LISTED executors come from documents of kind executors and need not register.
JOBS is how many jobs name the group; a group without executors has a line too, since
its runs fail.

GENERATION is D for executors of XXL-JOB 3.5, which use a different protocol.`,
		Example: "belfry xxl executors\nbelfry xxl executors -o json",
		Args:    noArguments,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, _ []string) error {
			page, err := server.Executors(ctx)
			if err != nil {
				return err
			}
			if output == asJSONL || output == asName {
				return showList(env, output, page.Items, page.NextPageToken, func(e client.Executor) string { return e.Address }, nil)
			}
			return showOne(env, output, page, "", func(w io.Writer) { executorTable(w, env, page) })
		}),
	}
	addServer(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// executorTable writes executors for people, and groups without any.
func executorTable(w io.Writer, env Env, page client.ExecutorPage) {
	var rows [][]string
	jobs := map[string]string{}
	for _, g := range page.Groups {
		jobs[g.Group] = fmt.Sprint(g.Jobs)
		if !page.AllJobs {
			jobs[g.Group] += "+"
		}
		if g.Executors == 0 {
			rows = append(rows, []string{g.Group, "-", "-", "-", jobs[g.Group], "0", "-"})
		}
	}
	for i := range page.Items {
		e := &page.Items[i]
		seen, listed := "-", "-"
		if !e.Seen.IsZero() {
			seen = instant(env, e.Seen)
		}
		if e.Listed {
			listed = "yes"
		}
		rows = append(rows, []string{e.Group, e.Address, orDash(e.Generation), listed, jobs[e.Group], fmt.Sprint(e.Running), seen})
	}
	slices.SortStableFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	table(w, styleFor(env, env.StdoutIsTerminal), []string{"GROUP", "ADDRESS", "GENERATION", "LISTED", "JOBS", "RUNNING", "SEEN"}, rows)
}
