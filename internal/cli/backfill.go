package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/config"
	"github.com/belfry-cron/belfry/job"
)

// backfillFlags is what belfry job backfill is asked.
type backfillFlags struct {
	connection config.Asked
	from, to   time.Time
	overlap    string
	dryRun     bool
	key        string
	cancel     bool
	reason     string
	output     string
}

func newJobBackfill(env Env) *cobra.Command {
	ask := backfillFlags{overlap: string(job.OverlapQueue)}
	cmd := &cobra.Command{
		Use:   "backfill NAME --from TIME [flags]",
		Short: "Run what was scheduled in the past",
		Long: `Make a run for each scheduled time from --from on and before --to, with the
calendars of the job as they are now. The runs have an overlap policy of their
own: with queue they go on one after another, in order. They share the slot of
the job with its other runs, are never too late, and end with a pause.

The run of a scheduled time is made once: asking again within 24 hours makes only
those that are missing. Another --idempotency-key makes them again.`,
		Example: `belfry job backfill nightly --from 7d --dry-run
belfry job backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z
belfry job backfill nightly --cancel --reason "wrong week"`,
		Args: oneName("job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ask.check(cmd); err != nil {
				return err
			}
			server, name, err := connectFor(env, ask.connection, args[0])
			if err != nil {
				return err
			}
			if ask.cancel {
				return server.refused(cancelBackfill(cmd.Context(), server, name, ask))
			}
			return server.refused(backfill(cmd.Context(), server, name, ask))
		},
	}
	f := cmd.Flags()
	addParsed(f, &ask.from, "from", "", "", "TIME|DURATION", "the first scheduled time, or one before it", momentFrom(env, -1))
	addParsed(f, &ask.to, "to", "", "now", "TIME|DURATION", "only scheduled times before then", momentFrom(env, -1))
	addChoice(cmd, &ask.overlap, "overlap", "", "what a run does when the slot of the job is taken", job.Overlap("").Values()...)
	f.BoolVar(&ask.dryRun, "dry-run", false, "show which runs would be made, and make none")
	addWord(f, &ask.key, "idempotency-key", "", "KEY", "another key makes runs again that were made in the last 24 hours")
	f.BoolVar(&ask.cancel, "cancel", false, "end all runs of the job that were made by backfill")
	addWord(f, &ask.reason, "reason", "", "TEXT", "with --cancel: why, for whoever wonders later")
	addConnection(cmd, &ask.connection)
	cmd.ValidArgsFunction = jobNames(env, &ask.connection)
	addOutput(cmd, &ask.output, asTable, asJSON, asYAML, asName)
	return cmd
}

// check refuses flags that have no meaning together.
func (ask *backfillFlags) check(cmd *cobra.Command) error {
	if !ask.cancel {
		switch {
		case ask.from.IsZero():
			return misused("--from is missing").withHint("--from 7d is the last week; --cancel ends what was made")
		case ask.reason != "":
			return misused("--reason has a meaning only with --cancel")
		}
		return nil
	}
	for _, flag := range []string{"from", "to", "overlap", "dry-run", "idempotency-key"} {
		if cmd.Flags().Changed(flag) {
			return misused("--%s has no meaning with --cancel, which ends all backfills of the job", flag)
		}
	}
	return nil
}

func backfill(ctx context.Context, server *remote, name jobName, ask backfillFlags) error {
	made, err := server.Backfill(ctx, name.namespace, name.name, client.BackfillRequest{
		From: ask.from, To: ask.to, Overlap: job.Overlap(ask.overlap), DryRun: ask.dryRun,
	}, ask.key)
	if err != nil {
		return err
	}
	if ask.output == asName {
		for _, r := range made.Items {
			text := r.Run.String()
			if ask.dryRun {
				text = r.Scheduled.Format(time.RFC3339Nano)
			}
			if err := write(server.env, []byte(text+"\n")); err != nil {
				return err
			}
		}
		return nil
	}
	return showOne(server.env, ask.output, made, name.String(), func(w io.Writer) { backfillText(w, server.env, name, made) })
}

// backfillText writes the runs of a backfill for people.
func backfillText(w io.Writer, env Env, name jobName, made client.Backfill) {
	if made.DryRun {
		fmt.Fprintf(w, "%s of %s would be made\n", counted(len(made.Items), "run"), name)
	} else {
		fmt.Fprintf(w, "%s of %s made\n", counted(made.Made, "run"), name)
	}
	if len(made.Items) == 0 {
		return
	}
	fmt.Fprintln(w)
	var rows [][]string
	for _, r := range made.Items {
		row := []string{instant(env, r.Scheduled), "-", ""}
		if r.Shards > 0 {
			row[0] += fmt.Sprintf(" %d/%d", r.Shard+1, r.Shards)
		}
		if !made.DryRun {
			row[1] = r.Run.String()
			if !r.Made {
				row[2] = "was made before"
			}
		}
		rows = append(rows, row)
	}
	table(w, styleFor(env, env.StdoutIsTerminal), []string{"SCHEDULED", "RUN", ""}, rows)
}

func cancelBackfill(ctx context.Context, server *remote, name jobName, ask backfillFlags) error {
	over, err := server.CancelBackfill(ctx, name.namespace, name.name, client.CancelRequest{Reason: ask.reason})
	if err != nil {
		return err
	}
	return showOne(server.env, ask.output, over, name.String(), func(w io.Writer) {
		fmt.Fprintf(w, "%s of %s cancelled\n", counted(over.Ended, "run"), name)
		for _, r := range over.Running {
			fmt.Fprintf(w, "run %s is asked to end, on node %s\n", r.ID, oneLine(orDash(r.Node)))
		}
	})
}
