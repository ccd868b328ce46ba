package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/config"
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
how many runs they have. An executor that gives none for 90 seconds is not registered
any more. LISTED are those of documents of kind executors, which need not register.

GENERATION is D for executors of XXL-JOB 3.5, which speak another form of the protocol.`,
		Example: "belfry xxl executors\nbelfry xxl executors -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := connect(env, asked)
			if err != nil {
				return err
			}
			page, err := server.Executors(cmd.Context())
			if err != nil {
				return server.refused(err)
			}
			return showList(env, output, page.Items, page.NextPageToken, func(e client.Executor) string { return e.Address }, func(w io.Writer) {
				executorTable(w, env, page.Items)
			})
		},
	}
	addServer(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// executorTable writes executors for people.
func executorTable(w io.Writer, env Env, list []client.Executor) {
	var rows [][]string
	for i := range list {
		e := &list[i]
		seen, listed := "-", "-"
		if !e.Seen.IsZero() {
			seen = instant(env, e.Seen)
		}
		if e.Listed {
			listed = "yes"
		}
		rows = append(rows, []string{e.Group, e.Address, orDash(e.Generation), listed, fmt.Sprint(e.Running), seen})
	}
	table(w, styleFor(env, env.StdoutIsTerminal), []string{"GROUP", "ADDRESS", "GENERATION", "LISTED", "RUNNING", "SEEN"}, rows)
}
