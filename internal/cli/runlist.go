package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// runListFlags are the flags of belfry run list.
type runListFlags struct {
	connection config.Asked
	all        bool
	job        string
	states     []string
	outcomes   []string
	reason     string
	print      string
	unmet      bool
	since      time.Time
	until      time.Time
	text       string
	limit      int
	output     string
}

// addFlags adds the flags that lists of runs have.
func (ask *runListFlags) addFlags(env Env, cmd *cobra.Command) {
	f := cmd.Flags()
	addWordsBeside(cmd, &ask.outcomes, "outcome", "only finished runs with this outcome; may be repeated", job.Outcome("").Values(), "state", job.RunState("").Values())
	addWord(f, &ask.reason, "reason", "", "CODE", "only finished runs whose reason has this code of docs/reasons.md")
	complete(cmd, "reason", reason.Names()...)
	addWord(f, &ask.print, "cause-fingerprint", "", "DIGITS", "only finished runs with failures of one kind, whose cause_fingerprint this is")
	f.BoolVar(&ask.unmet, "unmet", false, "only finished runs that did not meet the expectations of their job")
	addParsed(f, &ask.since, "since", "", "", "TIME|DURATION", "only runs that ended since this time, and unfinished ones due since then", momentFrom(env, -1))
	addParsed(f, &ask.until, "until", "", "", "TIME|DURATION", "only runs that ended before this time", momentFrom(env, -1))
	addWord(f, &ask.text, "text", "", "TEXT", "only finished runs with this text in the name of the job or in the reason")
	addParsed(f, &ask.limit, "limit", "", fmt.Sprint(ask.limit), "N", "how many runs to show", parsePositive)
	addConnection(cmd, &ask.connection)
	addOutput(cmd, &ask.output, asTable, asWide, asJSON, asYAML, asJSONL, asName)
}

func newRunList(env Env) *cobra.Command {
	ask := runListFlags{limit: 50}
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Aliases: []string{"ls"},
		Short:   "List active runs, then finished ones",
		Long: `List active runs by due time, then finished runs, latest first. Runs planned for
later are left out unless --state ready is given.`,
		Example: `belfry run list
belfry run list --state running
belfry run list --job nightly --outcome failed --since 7d
belfry run list --reason node_silent --since 7d
belfry run list --text "exit code 137" -o json`,
		Args: noArguments,
		RunE: asking(env, &ask.connection, func(ctx context.Context, server *remote, _ []string) error {
			if ask.job != "" {
				name, err := server.named(ask.job)
				if err != nil {
					return err
				}
				ask.job = name.String()
			}
			return listRuns(ctx, server, ask)
		}),
	}
	addJob(env, cmd, &ask.connection, &ask.job, "only runs of this job")
	addWordsBeside(cmd, &ask.states, "state", "only runs in this state; may be repeated", job.RunState("").Values(), "outcome", job.Outcome("").Values())
	ask.addFlags(env, cmd)
	addAll(cmd, &ask.all)
	return cmd
}

func listRuns(ctx context.Context, server *remote, ask runListFlags) error {
	query := client.RunQuery{Namespace: server.listNamespace(ask.all), Job: ask.job, Reason: ask.reason, CauseFingerprint: ask.print, Unmet: ask.unmet, From: ask.since, To: ask.until, Text: ask.text}
	for _, s := range ask.states {
		query.States = append(query.States, job.RunState(s))
	}
	for _, o := range ask.outcomes {
		query.Outcomes = append(query.Outcomes, job.Outcome(o))
	}
	if ask.job != "" {
		query.Namespace = ""
	}
	if ask.text != "" && ask.since.IsZero() {
		to := "until now"
		if !ask.until.IsZero() {
			to = "before " + instant(server.env, ask.until)
		}
		server.env.tell("searching runs that ended in the %d days %s; --since searches further back, at most %d days\n",
			client.TextWindow/(24*time.Hour), to, client.TextWindowMax/(24*time.Hour))
	}
	var runs []client.Run
	next := ""
	for len(runs) < ask.limit {
		query.PageSize = min(pageSize, ask.limit-len(runs))
		page, err := server.Runs(ctx, query)
		if err != nil {
			return inFlags(err, map[string]string{"from": "--since", "to": "--until", "reason": "--reason", "cause_fingerprint": "--cause-fingerprint"})
		}
		for _, r := range page.Items {
			// A begun run that waits for its next attempt is not planned for later.
			if len(ask.states) > 0 || r.State != job.StateReady || r.Attempt > 1 || !r.Due.After(server.env.Now()) {
				runs = append(runs, r)
			}
		}
		next = page.NextPageToken
		if query.PageToken = next; next == "" {
			break
		}
	}
	return showList(server.env, ask.output, runs, next, func(r client.Run) string { return r.ID.String() }, func(w io.Writer) {
		runTable(w, server.env, runs, ask.output == asWide)
	})
}

// inFlags rewrites a server's refusal in terms of the flags.
func inFlags(err error, flags map[string]string) error {
	var p *client.Problem
	if errors.As(err, &p) {
		for i := range p.Errors {
			if flag, ok := flags[p.Errors[i].Parameter]; ok {
				p.Errors[i].Parameter = flag
			}
		}
	}
	return err
}

// outputSize formats how much an attempt has written, if known: a running or lost one may have
// output nevertheless.
func outputSize(outcome job.Outcome, size int64) string {
	if size == 0 && (outcome == "" || outcome == job.OutcomeLost) {
		return "-"
	}
	return fmt.Sprint(size)
}

// runTable writes runs for people.
func runTable(w io.Writer, env Env, runs []client.Run, wide bool) {
	head := []string{"RUN", "JOB", "STATUS", "SCHEDULED", "STARTED", "TOOK", "NODE", "REASON"}
	if wide {
		head = append(head, "KIND", "ATTEMPT", "VERSION", "OUTPUT", "CPU", "MEMORY")
	}
	var rows [][]string
	for i := range runs {
		r := &runs[i]
		row := []string{
			r.ID.String(), jobAndShard(r), runStatus(r), instant(env, r.Scheduled), instant(env, r.Started), took(env, r), orDash(r.Node), orDash(reasonOf(r)),
		}
		if wide {
			row = append(row, string(r.Kind), fmt.Sprint(r.Attempt), fmt.Sprint(r.Version), outputSize(r.Outcome, r.OutputBytes), cpuText(&r.Usage), memoryText(&r.Usage))
		}
		rows = append(rows, row)
	}
	table(w, styleFor(env, env.StdoutIsTerminal), head, rows)
}

func jobAndShard(r *client.Run) string {
	if r.Shards > 0 {
		return fmt.Sprintf("%s %d/%d", r.Job, r.Shard+1, r.Shards)
	}
	return r.Job
}

// runStatus is the outcome of a run, or its state before the end.
func runStatus(r *client.Run) string {
	status := string(r.State)
	if r.Outcome != "" {
		status = string(r.Outcome)
	}
	if r.Count > 1 {
		status += fmt.Sprintf(" ×%d", r.Count)
	}
	return status
}

// reasonOf explains the state of a run, and missed expectations. A success needs no reason.
func reasonOf(r *client.Run) string {
	switch {
	case r.Outcome == job.OutcomeSucceeded:
		return r.Unmet
	case r.State == job.StateRunning && r.CancelBy != "":
		return strings.TrimSuffix("is being cancelled by "+r.CancelBy+": "+r.CancelReason, ": ")
	}
	why := reason.Beside(r.Reason, r.Cause)
	if r.Unmet != "" && why != "" {
		return why + "; " + r.Unmet
	}
	return cmp.Or(why, r.Unmet)
}

// took formats how long a run took with all its attempts, or has taken so far.
func took(env Env, r *client.Run) string {
	switch {
	case r.Started.IsZero():
		return "-"
	case r.Ended.IsZero():
		return shortDuration(env.Now().Sub(r.Started))
	}
	return shortDuration(r.Ended.Sub(r.Started))
}

// shortDuration writes a duration to three digits or so.
func shortDuration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
