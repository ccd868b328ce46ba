package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newRun(env Env) *cobra.Command {
	cmd := group("run", "runs", "List, show, cancel and retry runs", `belfry run list
belfry run list --job nightly --outcome failed --since 7d
belfry run get 01M7WSD70J4JVRQ9N4TN6P9NR3
belfry run cancel 01M7WSD70J4JVRQ9N4TN6P9NR3`)
	logs := newLogs(env)
	logs.Use = strings.Replace(logs.Use, "NAME|RUN", "RUN", 1)
	logs.Example = "belfry run logs 01M7WSD70J4JVRQ9N4TN6P9NR3"
	logs.ValidArgsFunction = nil // ids are copied, not typed
	cmd.AddCommand(newRunList(env), newRunGet(env), logs, newRunCancel(env), newRunRetry(env), newRunApprove(env), newRunReject(env), newRunSignal(env))
	return cmd
}

// oneRun requires the id of one run.
func oneRun(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return misused("the id of a run is missing").withHint("belfry run list shows them")
	case len(args) > 1:
		return misused("found %d arguments, expected the id of one run", len(args))
	}
	return nil
}

func parseRun(text string) (job.ID, error) {
	id, err := job.ParseID(text)
	if err != nil {
		return id, misused("%q is not the id of a run, which is 26 letters and digits", text).withHint("belfry run list shows them")
	}
	return id, nil
}

func newRunGet(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:     "get RUN [flags]",
		Aliases: []string{"show"},
		Short:   "Show a run with its attempts",
		Example: "belfry run get 01M7WSD70J4JVRQ9N4TN6P9NR3 -o json",
		Args:    oneRun,
		RunE: askingRun(env, &asked, func(ctx context.Context, server *remote, id job.ID) error {
			run, err := server.Run(ctx, id)
			if err != nil {
				return err
			}
			return showRun(env, output, run)
		}),
	}
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}

// showRun writes all data of a run.
func showRun(env Env, output string, run client.Run) error {
	return showOne(env, output, run, run.ID.String(), func(w io.Writer) { runText(w, env, &run) })
}

func runText(w io.Writer, env Env, r *client.Run) {
	s := styleFor(env, env.StdoutIsTerminal)
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return instant(env, t)
	}
	var params []string
	for _, name := range slices.Sorted(maps.Keys(r.Params)) {
		params = append(params, name+"="+r.Params[name])
	}
	id := func(id job.ID) string {
		if id.IsZero() {
			return ""
		}
		return id.String()
	}
	pairs := []string{
		"run", r.ID.String(), "job", jobAndShard(r), "version", fmt.Sprint(r.Version), "kind", string(r.Kind),
		"status", runStatus(r), "reason", reasonOf(r), "doubt", r.StoreLoss, "scheduled", at(r.Scheduled), "previous", at(r.Previous), "until", at(r.Until), "planned", at(r.Planned), "due", at(r.Due),
		"claimed", at(r.Claimed), "started", at(r.Started), "deadline", at(r.Deadline), "ended", at(r.Ended), "node", r.Node, "executor", r.Executor, "slot", r.Slot, "params", strings.Join(params, " "), "parent", id(r.Parent), "repeats", id(r.RetryOf),
	}
	if !r.Started.IsZero() {
		pairs = append(pairs, "took", took(env, r), "used", usageText(&r.Usage))
	}
	fieldLines(w, s, pairs...)
	stepTable(w, env, s, r)
	if len(r.Attempts) == 0 || len(r.Steps) > 0 { // a flow only has its steps' attempts

		return
	}
	fmt.Fprintln(w)
	var rows [][]string
	for _, a := range r.Attempts {
		rows = append(rows, []string{
			fmt.Sprint(a.Number), string(a.Outcome), orDash(a.Node), instant(env, a.Started), shortDuration(a.Ended.Sub(a.Started)),
			outputSize(a.Outcome, a.OutputBytes), orDash(reason.Beside(a.Reason, a.Cause)),
		})
	}
	table(w, s, []string{"ATTEMPT", "OUTCOME", "NODE", "STARTED", "TOOK", "OUTPUT", "REASON"}, rows)
}

// usageText says what an attempt used of its machine, as far as that is known.
func usageText(u *job.Usage) string {
	var parts []string
	if cpu := cpuText(u); cpu != "-" {
		parts = append(parts, cpu+" CPU")
	}
	if memory := memoryText(u); memory != "-" {
		parts = append(parts, memory+" peak")
	}
	if u.ReadBytes != nil {
		parts = append(parts, job.Size(*u.ReadBytes).Rounded()+" read")
	}
	if u.WrittenBytes != nil {
		parts = append(parts, job.Size(*u.WrittenBytes).Rounded()+" written")
	}
	return strings.Join(parts, ", ")
}

func cpuText(u *job.Usage) string {
	if u.CPUSeconds == 0 {
		return "-"
	}
	return shortDuration(u.CPU())
}

// memoryText has a sign where the system knows only a bound.
func memoryText(u *job.Usage) string {
	switch {
	case u.MemoryBytes == 0:
		return "-"
	case u.MemoryAtMost:
		return "≤ " + job.Size(u.MemoryBytes).Rounded()
	}
	return job.Size(u.MemoryBytes).Rounded()
}

func newRunCancel(env Env) *cobra.Command {
	var (
		asked  config.Asked
		which  selection
		reason string
		output string
	)
	cmd := &cobra.Command{
		Use:   "cancel RUN|--label KEY=VALUE [flags]",
		Short: "Cancel a run",
		Long: `Cancel a run. A run that has not started never starts. A running command is asked to
stop, and killed after the kill_grace of its job. With --label all runs that are
running or due are cancelled, of all jobs with the label.`,
		Example: `belfry run cancel 01M7WSD70J4JVRQ9N4TN6P9NR3 --reason "it hangs"
belfry run cancel -l team=a`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(which.labels) > 0 && len(args) == 0 {
				return nil
			}
			if len(which.labels) > 0 {
				return misused("give the id of a run or --label, not both")
			}
			return oneRun(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				server, err := connect(env, asked)
				if err != nil {
					return err
				}
				return server.refused(cancelAll(cmd.Context(), server, &which, reason, output))
			}
			id, err := parseRun(args[0])
			if err != nil {
				return err
			}
			server, err := connect(env, asked)
			if err != nil {
				return err
			}
			run, err := server.Cancel(cmd.Context(), id, client.CancelRequest{Reason: reason})
			if err != nil {
				return server.refused(err)
			}
			return showOne(env, output, run, id.String(), func(w io.Writer) { cancelText(w, &run) })
		},
	}
	which.addFlags(cmd)
	addWord(cmd.Flags(), &reason, "reason", "", "TEXT", "why, as the run shows it")
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}

func cancelText(w io.Writer, run *client.Run) {
	if run.State == job.StateDone {
		fmt.Fprintf(w, "run %s of %s cancelled\n", run.ID, run.Job)
	} else {
		fmt.Fprintf(w, "run %s of %s is stopping on node %s\n", run.ID, run.Job, oneLine(run.Node))
	}
}

// cancelAll cancels the runs that are running or due of jobs with labels.
func cancelAll(ctx context.Context, server *remote, which *selection, reason, output string) error {
	names, err := server.labelled(ctx, which.labels)
	if err != nil {
		return err
	}
	var active []client.Run
	for _, name := range names {
		query := client.RunQuery{Job: name.String(), States: []job.RunState{job.StateReady, job.StateWaiting, job.StateRunning}, PageSize: pageSize}
		for {
			page, err := server.Runs(ctx, query)
			if err != nil {
				return err
			}
			for _, r := range page.Items {
				if r.State != job.StateReady || !r.Due.After(server.env.Now()) {
					active = append(active, r)
				}
			}
			if query.PageToken = page.NextPageToken; query.PageToken == "" {
				break
			}
		}
	}
	if len(active) == 0 {
		return write(server.env, []byte("no run of these jobs is running or due\n"))
	}
	var of []string
	for i := range active {
		if !slices.Contains(of, active[i].Job) {
			of = append(of, active[i].Job)
		}
	}
	if err := agree(server.env, which.yes, "cancel %s of %s", counted(len(active), "run"), shortList(of)); err != nil {
		return err
	}
	var cancelled []client.Run
	for i := range active {
		run, err := server.Cancel(ctx, active[i].ID, client.CancelRequest{Reason: reason})
		if client.IsType(err, client.TypeConflict) || client.IsType(err, client.TypeNotFound) {
			continue // it has ended since
		}
		if err != nil {
			return err
		}
		cancelled = append(cancelled, run)
	}
	return showList(server.env, output, cancelled, "", func(r client.Run) string { return r.ID.String() }, func(w io.Writer) {
		for i := range cancelled {
			cancelText(w, &cancelled[i])
		}
	})
}

// waiting has the options of commands that create a run.
type waiting struct {
	connection config.Asked
	key        string
	made       string // what a run is for the command if that is not "created"
	wait, logs bool
	timeout    job.Duration
	output     string
}

func (ask *waiting) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&ask.wait, "wait", "w", false, "wait until the run, with all shards, has ended; exit code 8 if it does not succeed")
	f.BoolVar(&ask.logs, "logs", false, "follow the output until the run has ended")
	addText(f, &ask.timeout, "timeout", "", "", "DURATION", "how long to wait; exit code 7 after that, while the run continues")
	addWord(f, &ask.key, "idempotency-key", "", "KEY", "requests with the same key create one run within 24 hours; else each command has its own key")
	addConnection(cmd, &ask.connection)
	addOutput(cmd, &ask.output, asTable, asJSON, asYAML, asName)
}

func newJobRun(env Env) *cobra.Command {
	var (
		ask     waiting
		which   selection
		request client.RunRequest
		notice  client.RunNotice
		unique  job.Duration
		quiet   job.Duration
		by      []string
	)
	cmd := &cobra.Command{
		Use:   "run NAME|--label KEY=VALUE [flags]",
		Short: "Run a job now",
		Long: `Run a job now, whatever its schedule, even if it is paused. Parameters are those
that the job declares. With --label all jobs with the label run.

--executor names the XXL-JOB executor to use, instead of one that the job's strategy
chooses; a broadcast is then a single run.

With --at 2h or --at '2026-12-01 18:30' the run is due then, at most 32 days ahead:
belfry run cancel ends it before.

With --unique 10m the answer is the run that the same command has created in the last
ten minutes, if there is one. With --debounce 30s the run starts when the same command
has not come for 30 seconds. Commands are the same if the parameters named by --by,
or all, have the same values.

With --scheduled and --previous the run stands for another interval: its templates and
environment have these times.

With --notify a webhook gets the end of the run, as channels of notifications send it. It
needs the role admin.`,
		Example: `belfry job run nightly
belfry job run nightly --param day=monday --wait
belfry job run nightly --at 2h
belfry job run nightly --logs --timeout 10m
belfry job run nightly --previous 2026-11-01T00:00:00Z --scheduled 2026-11-08T00:00:00Z
belfry job run nightly --notify https://ci.example.org/belfry --notify-secret ci_key
belfry job run order-sync --executor http://10.0.0.5:9999
belfry job run reindex --param shop=7 --param reason=price --debounce 30s --by shop
belfry job run -l team=a`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return oneName("job")(cmd, args)
			}
			if len(which.labels) > 0 && (ask.wait || ask.logs) {
				return misused("--wait and --logs are for one job, not for --label")
			}
			return which.check(cmd, args)
		},
		RunE: asking(env, &ask.connection, func(ctx context.Context, server *remote, args []string) error {
			if notice.Secret != "" && notice.URL == "" {
				return misused("--notify-secret is given without --notify")
			}
			if notice.URL != "" {
				request.Notify = &notice
			}
			if unique != 0 {
				request.Unique = &client.Sameness{For: unique, By: by}
			}
			if quiet != 0 {
				request.Debounce = &client.Sameness{For: quiet, By: by}
			}
			if unique != 0 || quiet != 0 {
				ask.made = "stands for this command" // an earlier one may have created it
			}
			run := func(ctx context.Context, name jobName, key string) (client.Run, error) {
				return server.RunJob(ctx, name.namespace, name.name, request, key)
			}
			names, err := which.jobs(ctx, server, args, "run")
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return runAll(ctx, server, names, ask, run)
			}
			return makeRun(ctx, server, ask, func(ctx context.Context, key string) (client.Run, error) { return run(ctx, names[0], key) })
		}),
	}
	which.addFlags(cmd)
	addParams(cmd.Flags(), &request.Params)
	addParsed(cmd.Flags(), &request.At, "at", "", "now", "TIME|DURATION", "when the run is due", momentFrom(env, 1))
	addParsed(cmd.Flags(), &unique, "unique", "", "", "DURATION", "create no run if the same command has created one within this time, 1s to 24h", job.ParseDuration)
	addParsed(cmd.Flags(), &quiet, "debounce", "", "", "DURATION", "start when the same command has not come for this time, 1s to 24h", job.ParseDuration)
	cmd.Flags().StringArrayVar(&by, "by", nil, "`PARAM` whose value makes commands the same; may be repeated; else all")
	addParsed(cmd.Flags(), &request.Scheduled, "scheduled", "", "now", "TIME|DURATION", "scheduled time of the run, as its templates and environment have it", momentFrom(env, -1))
	addParsed(cmd.Flags(), &request.Previous, "previous", "", "", "TIME|DURATION", "the scheduled time before, as the run sees it; else by the schedule", momentFrom(env, -1))
	addWord(cmd.Flags(), &notice.URL, "notify", "", "URL", "webhook that gets the end of this run, and nothing else")
	addWord(cmd.Flags(), &notice.Secret, "notify-secret", "", "NAME", "secret of the namespace with the key of its signature")
	addWord(cmd.Flags(), &request.Executor, "executor", "", "ADDRESS", "the executor that does the work, by its address; for jobs with run.xxl")
	ask.addFlags(cmd)
	cmd.ValidArgsFunction = jobNames(env, &ask.connection)
	return cmd
}

// addParams adds the flag for values of parameters.
func addParams(f *pflag.FlagSet, params *map[string]string) {
	f.VarP((*labels)(params), "param", "p", "value of a parameter: KEY=VALUE; may be repeated")
}

// runAll runs jobs, one after the other, and shows their runs. It stops at the first job that
// cannot be run.
func runAll(ctx context.Context, server *remote, names []jobName, ask waiting, run func(context.Context, jobName, string) (client.Run, error)) error {
	var runs []client.Run
	for i, name := range names {
		one, err := server.once(ctx, ask.key, func(ctx context.Context, key string) (client.Run, error) { return run(ctx, name, key) })
		if err != nil {
			return server.partly(err, "run", textsOf(names[:i]))
		}
		runs = append(runs, one)
	}
	return showList(server.env, ask.output, runs, "", func(r client.Run) string { return r.ID.String() }, func(w io.Writer) {
		for i := range runs {
			fmt.Fprintf(w, "run %s of %s %s\n", runs[i].ID, jobAndShard(&runs[i]), cmp.Or(ask.made, "created"))
		}
	})
}

func newRunRetry(env Env) *cobra.Command {
	var (
		ask     waiting
		request client.RetryRequest
		params  map[string]string
	)
	cmd := &cobra.Command{
		Use:   "retry RUN [flags]",
		Short: "Run a finished run again",
		Long: `Run a finished run again: create a new run of the job as it is now, with the
scheduled time and the parameters of the old run.

The new run of a flow keeps the definition of the old run and reuses the results of steps
that succeeded. Steps that failed or did not start, those that depend on them, and
finally run again.`,
		Example: `belfry run retry 01M7WSD70J4JVRQ9N4TN6P9NR3 --wait
belfry run retry 01M7WSD70J4JVRQ9N4TN6P9NR3 --from load
belfry run retry 01M7WSD70J4JVRQ9N4TN6P9NR3 --skip check --param day=monday`,
		Args: oneRun,
		RunE: askingRun(env, &ask.connection, func(ctx context.Context, server *remote, id job.ID) error {
			request.Params = params
			return makeRun(ctx, server, ask, func(ctx context.Context, key string) (client.Run, error) {
				run, err := server.Retry(ctx, id, request, key)
				return run, stepsInFlags(err)
			})
		}),
	}
	f := cmd.Flags()
	f.Var(names{&request.From, "STEP"}, "from", "run this step of the flow and all behind it, and take over the others; may be repeated")
	f.Var(names{&request.Only, "STEP"}, "only", "run this step of the flow alone, and take over the others; may be repeated")
	f.Var(names{&request.Skip, "STEP"}, "skip", "take this step of the flow as succeeded; may be repeated")
	addParams(f, &params)
	ask.addFlags(cmd)
	return cmd
}

// stepsInFlags names the flags for fields of a request for another run.
func stepsInFlags(err error) error {
	var p *client.Problem
	if errors.As(err, &p) {
		for i := range p.Errors {
			if field, _, ok := strings.Cut(p.Errors[i].Path, "["); ok {
				p.Errors[i].Path = "--" + field
			}
		}
	}
	return err
}

// makeRun creates a run and shows it.
func makeRun(ctx context.Context, server *remote, ask waiting, make func(ctx context.Context, key string) (client.Run, error)) error {
	run, err := server.once(ctx, ask.key, make)
	if err != nil {
		return err
	}
	return showMade(ctx, server, ask, run)
}

// once creates a run. It always sends a key, so that it can send the request again when
// the answer is lost.
func (r *remote) once(ctx context.Context, key string, make func(ctx context.Context, key string) (client.Run, error)) (run client.Run, err error) {
	key = cmp.Or(key, rand.Text())
	err = r.insist(ctx, "the same command with --idempotency-key "+key, func(ctx context.Context) (err error) {
		run, err = make(ctx, key)
		return err
	})
	return run, err
}

// showMade shows a new run and, if requested, its end.
func showMade(ctx context.Context, server *remote, ask waiting, run client.Run) error {
	if !ask.wait && !ask.logs {
		return showOne(server.env, ask.output, run, run.ID.String(), func(w io.Writer) {
			fmt.Fprintf(w, "run %s of %s %s\n", run.ID, jobAndShard(&run), cmp.Or(ask.made, "created"))
			for _, other := range run.Others {
				fmt.Fprintf(w, "run %s\n", other)
			}
			if o := run.Window; o != nil {
				fmt.Fprintf(w, "The maintenance window %s is open until %s: a run by hand starts all the same.\n", o.Window, instant(server.env, o.Until))
			}
		})
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	if ask.timeout > 0 && ask.timeout != job.Forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ask.timeout))
		defer cancel()
	}
	if !ask.logs {
		more := ""
		if n := len(run.Others); n > 0 {
			more = fmt.Sprintf(", and %s", counted(n, "other"))
		}
		server.env.tell("waiting for run %s of %s%s\n", run.ID, jobAndShard(&run), more)
	}
	var ended []client.Run
	runs := []client.Run{run}
	for _, id := range run.Others {
		runs = append(runs, client.Run{ID: id})
	}
	for i := range runs {
		id := runs[i].ID
		one, err := awaitMade(ctx, server, ask, runs[i])
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			return server.outOfTime(context.WithoutCancel(ctx), id, ask.timeout)
		}
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			f := &failure{code: ExitInterrupted, message: fmt.Sprintf("interrupted; run %s continues", id)}
			return f.withHint("belfry logs -f %s follows it, belfry run cancel %s ends it", id, id)
		}
		if errors.Is(err, client.ErrUnreachable) {
			f := &failure{code: ExitUnreachable, message: fmt.Sprintf("run %s was created, but its outcome is unknown: %v", id, err)}
			return f.withHint("belfry run get %s shows it when the server is back", id)
		}
		if err != nil {
			return err
		}
		ended = append(ended, one)
	}
	ended[0].Others = run.Others
	if !ask.logs {
		if err := showOne(server.env, ask.output, ended[0], run.ID.String(), func(w io.Writer) {
			if len(ended) == 1 {
				runText(w, server.env, &ended[0])
			} else {
				runTable(w, server.env, ended, false)
			}
		}); err != nil {
			return err
		}
	}
	return unsuccessful(ended)
}

// lastLook bounds the last request for the state of a run, after the time of the wait.
const lastLook = 5 * time.Second

// outOfTime reports that a run has not ended in time: it is running, or why it has not begun.
func (r *remote) outOfTime(ctx context.Context, id job.ID, after job.Duration) *failure {
	ctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	f := &failure{code: ExitTimedOut}
	if run, err := r.Run(ctx, id); err == nil && !hasBegun(&run) && run.Reason != "" {
		f.message = fmt.Sprintf("run %s has not started after %s: %s", id, after.InWords(), run.Reason)
		return f.withHint("it is still waiting; belfry run cancel %s cancels it", id)
	}
	f.message = fmt.Sprintf("run %s has not ended after %s and continues", id, after.InWords())
	return f.withHint("belfry logs -f %s follows it", id)
}

// hasBegun reports whether a run has had an attempt, or will have none any more.
func hasBegun(run *client.Run) bool {
	return run.State != job.StateReady && run.State != job.StateWaiting || len(run.Attempts) > 0
}

// keptFirst and keptMost bound the pauses between polls for the reason that delays a run.
const (
	keptFirst = 2 * time.Second
	keptMost  = time.Minute
)

// sayKept prints why a run has not begun, since its user would otherwise see nothing until it has.
// The caller calls stop after the wait.
func (r *remote) sayKept(ctx context.Context, id job.ID) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		text := ""
		for wait := keptFirst; ; wait = min(2*wait, keptMost) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			run, err := r.Run(ctx, id)
			if err != nil {
				continue // the waiting caller reports it
			}
			if hasBegun(&run) {
				return
			}
			if run.Reason != "" && run.Reason != text {
				r.env.tell("run %s has not started: %s\n", id, run.Reason)
				text = run.Reason
			}
		}
	})
	return func() { cancel(); group.Wait() }
}

// awaitMade waits for the end of a created run, and shows its output in the meantime if requested.
// Of a shard other than the first, run may have only the id.
func awaitMade(ctx context.Context, server *remote, ask waiting, run client.Run) (client.Run, error) {
	defer server.sayKept(ctx, run.ID)()
	if !ask.logs {
		return server.await(ctx, run.ID)
	}
	if run.Job == "" {
		if err := server.patient(ctx, func() (err error) { run, err = server.Run(ctx, run.ID); return err }); err != nil {
			return run, err
		}
	}
	// Standard output is the run's output; its name goes to standard error.
	server.env.tell("run %s of %s\n", run.ID, jobAndShard(&run))
	if server.isFlow(ctx, &run) {
		return followFlow(ctx, server, run.ID, "", client.OutputQuery{})
	}
	return server.Follow(ctx, run.ID, client.OutputQuery{FromFirst: true}, showPart(server.env))
}

// unsuccessful names the runs that have not succeeded, or returns nil.
func unsuccessful(runs []client.Run) error {
	bad := slices.DeleteFunc(slices.Clone(runs), func(r client.Run) bool { return r.Outcome == job.OutcomeSucceeded })
	if len(bad) == 0 {
		return nil
	}
	first := &bad[0]
	f := &failure{code: ExitRunFailed, message: fmt.Sprintf("run %s of %s: %s", first.ID, jobAndShard(first), first.Outcome)}
	if why := reason.Beside(first.Reason, first.Cause); why != "" {
		f.message += ": " + why
	}
	if len(runs) > 1 {
		return f.withHint("%d of %d runs did not succeed", len(bad), len(runs))
	}
	return f
}

// awaitFirst and awaitMost bound the waits between two polls of a run.
const (
	awaitFirst = 100 * time.Millisecond
	awaitMost  = time.Second
)

// await waits for the end of a run.
func (r *remote) await(ctx context.Context, id job.ID) (client.Run, error) {
	for wait := awaitFirst; ; wait = min(2*wait, awaitMost) {
		var run client.Run
		err := r.patient(ctx, func() (err error) { run, err = r.Run(ctx, id); return err })
		if ctx.Err() != nil {
			return run, ctx.Err()
		}
		if err != nil || run.State == job.StateDone {
			return run, err
		}
		select {
		case <-ctx.Done():
			return run, ctx.Err()
		case <-time.After(wait):
		}
	}
}
