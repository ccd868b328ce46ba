package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// backfillFlags are the flags of belfry job backfill.
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
		Short: "Run a job for past scheduled times",
		Long: `Create a run for each scheduled time from --from until before --to, using the
present calendars of the job. --overlap is the overlap policy of these runs: with
queue they run one after another, in order. They share the slot of the job with
its other runs, are never too late, and are withdrawn by a pause.

Each scheduled time gets one run: repeating the command within 24 hours creates
only missing runs. Another --idempotency-key creates all of them again.`,
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
	addParsed(f, &ask.to, "to", "", "now", "TIME|DURATION", "only scheduled times before this time", momentFrom(env, -1))
	addChoice(cmd, &ask.overlap, "overlap", "", "what a run does when the slot of the job is taken", job.Overlap("").Values()...)
	f.BoolVar(&ask.dryRun, "dry-run", false, "show which runs would be created, and create none")
	addWord(f, &ask.key, "idempotency-key", "", "KEY", "another key creates runs again that were created in the last 24 hours")
	f.BoolVar(&ask.cancel, "cancel", false, "cancel all runs of the job that were created by backfill")
	addWord(f, &ask.reason, "reason", "", "TEXT", "with --cancel: why, as the runs show it")
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
			return misused("--from is missing").withHint("--from 7d is the last week; --cancel cancels backfills")
		case ask.reason != "":
			return misused("--reason is only valid with --cancel")
		}
		return nil
	}
	for _, flag := range []string{"from", "to", "overlap", "dry-run", "idempotency-key"} {
		if cmd.Flags().Changed(flag) {
			return misused("--%s is not valid with --cancel, which ends all backfills of the job", flag)
		}
	}
	return nil
}

func backfill(ctx context.Context, server *remote, name jobName, ask backfillFlags) error {
	result, err := server.Backfill(ctx, name.namespace, name.name, client.BackfillRequest{
		From: ask.from, To: ask.to, Overlap: job.Overlap(ask.overlap), DryRun: ask.dryRun,
	}, ask.key)
	if err != nil {
		return err
	}
	if ask.output == asName {
		for _, r := range result.Items {
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
	return showOne(server.env, ask.output, result, name.String(), func(w io.Writer) { backfillText(w, server.env, name, result) })
}

// backfillText writes the runs of a backfill for people.
func backfillText(w io.Writer, env Env, name jobName, backfill client.Backfill) {
	if backfill.DryRun {
		fmt.Fprintf(w, "%s of %s would be created\n", counted(len(backfill.Items), "run"), name)
	} else {
		fmt.Fprintf(w, "%s of %s created\n", counted(backfill.Made, "run"), name)
	}
	if len(backfill.Items) == 0 {
		return
	}
	fmt.Fprintln(w)
	var rows [][]string
	for _, r := range backfill.Items {
		row := []string{instant(env, r.Scheduled), "-", ""}
		if r.Shards > 0 {
			row[0] += fmt.Sprintf(" %d/%d", r.Shard+1, r.Shards)
		}
		if !backfill.DryRun {
			row[1] = r.Run.String()
			if !r.Made {
				row[2] = "already exists"
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
			fmt.Fprintf(w, "run %s is stopping on node %s\n", r.ID, oneLine(orDash(r.Node)))
		}
	})
}
