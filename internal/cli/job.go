package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newJob(env Env) *cobra.Command {
	cmd := group("job", "jobs", "Create, list, show, change, run, pause and delete jobs", `belfry job create hello --every 10s -- echo hello
belfry job list --sort next
belfry job get nightly
belfry job run nightly --param day=monday --logs
belfry job pause nightly --reason "the disk is full"`)
	cmd.AddCommand(
		newJobList(env), newJobGet(env), newJobCreate(env), newJobEdit(env), newJobRun(env), newJobPause(env), newJobResume(env), newJobDelete(env), newJobRestore(env),
		newJobBackfill(env), newJobNext(env), newJobStatistics(env), newJobHistory(env), newJobFollowers(env), newJobRevisions(env), newJobDiff(env), newJobRollback(env), newJobPingKey(env),
	)
	return cmd
}

// group is a command that only has subcommands.
func group(name, plural, short, example string) *cobra.Command {
	return &cobra.Command{
		Use: name, Aliases: []string{plural}, Short: short, Example: example,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return cmd.Help()
			case args[0] == "help":
				return helpOn(cmd, args[1:])
			}
			return unknownCommand(cmd, withDash(cmd, args))
		},
	}
}

func newJobGet(env Env) *cobra.Command {
	var (
		asked  config.Asked
		filled bool
		output string
	)
	cmd := &cobra.Command{
		Use:   "get NAME [flags]",
		Short: "Show a job and its status",
		Example: `belfry job get nightly
belfry job get web/nightly --filled -o json`,
		Args: oneName("job"),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			d, err := server.Job(ctx, name.namespace, name.name, filled)
			if err != nil {
				return err
			}
			return showDocument(env, output, name, d)
		}),
	}
	cmd.Flags().BoolVar(&filled, "filled", false, "fill in the defaults")
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asYAML, asJSON, asName)
	return cmd
}

// showDocument writes a document, or its name alone.
func showDocument(env Env, output string, name jobName, d client.Document) error {
	if output == asName {
		return write(env, []byte(name.String()+"\n"))
	}
	data, err := renderDocument(output, d)
	if err != nil {
		return err
	}
	return write(env, data)
}

// renderDocument writes a document as files have it.
func renderDocument(format string, d client.Document) ([]byte, error) {
	var b bytes.Buffer
	if format == asJSON {
		err := encodeJSON(&b, compact(d.RawMessage))
		return b.Bytes(), err
	}
	documents, err := job.Decode("", d.RawMessage)
	if err != nil {
		// From a later version: shown as received.
		err := encodeYAML(&b, compact(d.RawMessage))
		return b.Bytes(), err
	}
	err = job.Encode(&b, documents, job.YAML)
	return b.Bytes(), err
}

// connectFor finds the server and the job that are meant.
func connectFor(env Env, asked config.Asked, text string) (*remote, jobName, error) {
	server, err := connect(env, asked)
	if err != nil {
		return nil, jobName{}, err
	}
	name, err := server.named(text)
	return server, name, err
}

func newJobPause(env Env) *cobra.Command {
	var (
		asked  config.Asked
		which  selection
		reason string
		until  time.Time
		output string
	)
	cmd := &cobra.Command{
		Use:   "pause NAME...|--label KEY=VALUE [flags]",
		Short: "Pause jobs",
		Long: `Pause jobs: they do not fall due until they are resumed, or for a while. Runs that
are running continue, and jobs can still be run by hand.`,
		Example: `belfry job pause nightly --reason "the disk is full"
belfry job pause nightly --until 2h
belfry job pause -l team=a`,
		Args: which.check,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			return which.change(ctx, server, args, output, "pause", "paused", func(ctx context.Context, name jobName) (client.Change, error) {
				return server.Pause(ctx, name.namespace, name.name, client.PauseRequest{Reason: reason, Until: until})
			})
		}),
	}
	which.addFlags(cmd)
	f := cmd.Flags()
	addWord(f, &reason, "reason", "", "TEXT", "why, as the job shows it")
	addParsed(f, &until, "until", "", "", "TIME|DURATION", "when the job resumes", momentFrom(env, 1))
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}

// momentFrom returns a parser for an instant, a day, or a duration from now on: forwards with 1,
// backwards with -1. A day begins at midnight in the zone of the terminal.
func momentFrom(env Env, direction time.Duration) func(string) (time.Time, error) {
	return func(text string) (time.Time, error) {
		now := env.Now()
		if d, err := job.ParseDuration(text); err == nil && d != job.Forever {
			return now.Add(direction * time.Duration(d)), nil
		}
		if t, ok := parseInstant(text); ok {
			return t, nil
		}
		today := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
		switch strings.ToLower(text) {
		case "now":
			return now, nil
		case "today":
			return today, nil
		case "yesterday":
			return today.AddDate(0, 0, -1), nil
		case "tomorrow":
			return today.AddDate(0, 0, 1), nil
		}
		for _, form := range []string{time.DateOnly, "2006-01-02 15:04", "2006-01-02T15:04", time.DateTime, "2006-01-02T15:04:05"} {
			if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
				return t, nil
			}
		}
		return time.Time{}, fmt.Errorf("%q is neither a duration such as 2h, nor a day such as yesterday or 2026-03-28, nor a time such as '2026-03-28 14:00' or 2026-03-28T14:00:00Z", text)
	}
}

func newJobResume(env Env) *cobra.Command {
	var (
		asked  config.Asked
		which  selection
		missed = string(job.MissedNone)
		output string
	)
	cmd := &cobra.Command{
		Use:   "resume NAME...|--label KEY=VALUE [flags]",
		Short: "Resume paused jobs",
		Long: `Resume paused jobs. Occurrences that fell due during the pause do not run, unless
--missed says so; it replaces the policy of the job this once. An occurrence that
is later than late_by allows is recorded as missed; belfry job backfill runs those.`,
		Example: `belfry job resume nightly
belfry job resume nightly --missed latest
belfry job resume -l team=a`,
		Args: which.check,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			return which.change(ctx, server, args, output, "resume", "resumed", func(ctx context.Context, name jobName) (client.Change, error) {
				return server.Resume(ctx, name.namespace, name.name, client.ResumeRequest{Missed: job.Missed(missed)})
			})
		}),
	}
	which.addFlags(cmd)
	addChoice(cmd, &missed, "missed", "", "which occurrences of the pause run", job.Missed("").Values()...)
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}

func warnOfChange(env Env, name jobName, change client.Change) {
	warn(env, client.Applied{Results: []client.ApplyResult{{Kind: job.KindJob, Name: name.String(), Warnings: change.Warnings}}})
}

// showChange writes the change of a job, and the runs that continue.
func showChange(env Env, output string, name jobName, change client.Change, done string) error {
	if change.Result == client.Unchanged {
		done = "unchanged"
	}
	warnOfChange(env, name, change)
	return showOne(env, output, change, name.String(), func(w io.Writer) { changeText(w, name, change, done) })
}

func changeText(w io.Writer, name jobName, change client.Change, done string) {
	fmt.Fprintf(w, "job %s %s\n", name, done)
	for _, r := range change.Running {
		fmt.Fprintf(w, "run %s is running on node %s\n", r.ID, oneLine(orDash(r.Node)))
	}
	mayStartText(w, change.MayStart)
}

// mayStartText names runs that may still start as they were before a change.
func mayStartText(w io.Writer, runs []client.Run) {
	for _, r := range runs {
		fmt.Fprintf(w, "run %s, due %s, may still start as before: node %s claimed it before the change and has not released it\n", r.ID, r.Due.UTC().Format("2006-01-02T15:04:05.999Z07:00"), oneLine(orDash(r.Node)))
	}
}

func newJobDelete(env Env) *cobra.Command {
	var (
		asked  config.Asked
		yes    bool
		reason string
		output string
	)
	cmd := &cobra.Command{
		Use:     "delete NAME... [flags]",
		Aliases: []string{"rm"},
		Short:   "Delete jobs",
		Long: `Delete jobs. They start no more runs; runs that are running continue, and the
history stays as long as it is kept. belfry job restore brings them back for an hour.`,
		Example: `belfry job delete nightly
belfry job delete web/one web/two --yes --reason 'moved to the warehouse'`,
		Args: someNames("job"),
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			return deleteJobs(ctx, server, args, yes, reason, output)
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "delete without asking")
	addWord(cmd.Flags(), &reason, "reason", "", "TEXT", "why, for the audit")
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

func newJobRestore(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "restore NAME... [flags]",
		Short: "Bring back jobs that were deleted in the last hour",
		Long: `Bring back jobs that were deleted in the last hour, with their history and versions, paused
if they were. What fell due in the meantime does not run.`,
		Example: `belfry job restore nightly
belfry job restore web/one web/two`,
		Args: someNames("job"),
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			return (&selection{}).change(ctx, server, args, output, "restore", "restored", func(ctx context.Context, name jobName) (client.Change, error) {
				return server.RestoreJob(ctx, name.namespace, name.name)
			})
		}),
	}
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}

// deleteJobs deletes the versions that exist when it begins: the user did not mean a version
// created since.
func deleteJobs(ctx context.Context, server *remote, args []string, yes bool, reason, output string) error {
	var names []jobName
	var texts []string
	versions := map[jobName]int64{}
	for _, text := range args {
		name, err := server.named(text)
		if err != nil {
			return err
		}
		d, err := server.Job(ctx, name.namespace, name.name, false)
		if err != nil {
			return err
		}
		read, err := server.read(d, job.KindJob)
		if err != nil {
			return err
		}
		if _, twice := versions[name]; !twice {
			names, texts = append(names, name), append(texts, name.String())
		}
		versions[name] = read.Version()
	}
	if err := agree(server.env, yes, "delete %s: %s", counted(len(names), "job"), shortList(texts)); err != nil {
		return err
	}
	var changes []jobChange
	for _, name := range names {
		change, err := server.DeleteJob(ctx, name.namespace, name.name, versions[name], reason)
		if err != nil {
			return server.partly(err, "deleted", texts[:len(changes)])
		}
		changes = append(changes, jobChange{change, name})
	}
	return showList(server.env, output, changes, "", func(d jobChange) string { return d.name.String() }, func(w io.Writer) {
		for _, d := range changes {
			changeText(w, d.name, d.Change, "deleted")
		}
	})
}

func newJobNext(env Env) *cobra.Command {
	var (
		asked  config.Asked
		count  = 10
		output string
	)
	cmd := &cobra.Command{
		Use:   "next NAME [flags]",
		Short: "Show when a job falls due",
		Long: `Show when a job falls due as the server plans it, including calendars and jitter.
belfry next does this for an expression, without a server.`,
		Example: `belfry job next nightly
belfry job next nightly --count 3 -o json`,
		Args: oneName("job"),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			next, err := server.Next(ctx, name.namespace, name.name, count)
			if err != nil {
				err = server.refused(err)
				var f *failure
				// Like belfry next, which has no namespaces.
				if _, isText := strconv.Atoi(asked.Namespace); isText == nil && errors.As(err, &f) && f.code == ExitNotFound {
					return f.withHint("-n is the namespace; --count %s is how many", asked.Namespace)
				}
				return err
			}
			return showNext(env, output, next)
		}),
	}
	addParsed(cmd.Flags(), &count, "count", "", "10", "N", "how many occurrences to show, at most 1000", parsePositive)
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

func showNext(env Env, output string, next client.Occurrences) error {
	var err error
	switch output {
	case asJSON, asYAML:
		err = showOne(env, output, next, "", nil)
	default:
		err = showList(env, output, next.Items, "", func(o client.Occurrence) string { return o.Scheduled.Format(time.RFC3339Nano) }, func(w io.Writer) {
			var rows [][]string
			for _, o := range next.Items {
				var notes []string
				if !o.Due.Equal(o.Scheduled) {
					notes = append(notes, "due "+instant(env, o.Due))
				}
				if o.Window != nil {
					notes = append(notes, inWindow(env, o.Window))
				}
				rows = append(rows, []string{instant(env, o.Scheduled), distance(env, o.Due), strings.Join(notes, "; ")})
			}
			table(w, styleFor(env, env.StdoutIsTerminal), []string{"SCHEDULED", "LEFT", ""}, rows)
		})
	}
	if err != nil {
		return err
	}
	if len(next.Items) == 0 {
		return failed("%s", next.Reason)
	}
	return nil
}

func newJobHistory(env Env) *cobra.Command {
	ask := runListFlags{limit: 20}
	cmd := &cobra.Command{
		Use:   "history NAME [flags]",
		Short: "List finished runs of a job, latest first",
		Example: `belfry job history nightly
belfry job history nightly --outcome failed --since 7d`,
		Args: oneName("job"),
		RunE: askingJob(env, &ask.connection, func(ctx context.Context, server *remote, name jobName) error {
			ask.job, ask.states = name.String(), []string{string(job.StateDone)}
			return listRuns(ctx, server, ask)
		}),
	}
	ask.addFlags(env, cmd)
	cmd.ValidArgsFunction = jobNames(env, &ask.connection)
	return cmd
}
