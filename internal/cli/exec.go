package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/internal/cli/wrap"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// execFlags are the flags of belfry exec.
type execFlags struct {
	connection config.Asked
	name       string
	schedule   string
	zone       string
	grace      job.Duration
	lock       bool
	timeout    job.Duration
	retries    int
	backoff    job.Duration
	silent     bool
	spool      string
	flush      bool
}

func newExec(env Env) *cobra.Command {
	var ask execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command that cron starts, and report on it",
		Long: `Run a command for a crontab line, and report its start, end and output to a job with
run.external. Streams, signals and the exit code are passed through. The command runs
even if no server answers. Reports that cannot be sent wait in a spool on disk for the
next belfry exec of this user, or for belfry exec --flush.

The exit code is that of the command, or 75 if --lock kept it from running, 124 if it
timed out, 126 if it cannot be executed, 127 if it is not found, and 128 plus the number
of the signal that ended it.

--lock allows one run at a time: on this machine for this user, with a file that stays
locked while the command runs; on all machines if the server confirms it within 5s.
Otherwise only this machine is locked, and the report says so.`,
		Example: `30 2 * * *   belfry exec --job backup -- /usr/local/bin/backup --full
*/5 * * * *  belfry exec --job poll --schedule '*/5 * * * *' --lock -- /opt/poll
0 4 * * *    belfry exec --job report --timeout 1h --retries 2 -- sh -c 'report | mail ops'
@reboot      belfry exec --flush`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case ask.flush && len(args) > 0:
				return misused("--flush takes no command")
			case ask.flush:
				return nil
			case dash > 0 || dash < 0 && len(args) > 0:
				return misused("unexpected %q: the command comes after --", args[0])
			case len(args) == 0:
				return misused("the command is missing").withHint("write it after --, such as: belfry exec --job hello -- echo hello")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if ask.flush {
				return flushReports(cmd.Context(), env, &ask)
			}
			return execute(cmd.Context(), env, &ask, args)
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	f := cmd.Flags()
	addJob(env, cmd, &ask.connection, &ask.name, "job to report to; else a name made of the user and the command")
	addParsed(f, &ask.schedule, "schedule", "", "", "EXPRESSION", "the five fields of the line: create or change the job, so that it is missed when it does not report", func(text string) (string, error) {
		_, err := cron.Parse(text, cron.WithDialect(cron.Vixie5))
		return text, err
	})
	addWord(f, &ask.zone, "tz", "", "ZONE", "time zone of --schedule; else that of this machine")
	addParsed(f, &ask.grace, "grace", "", "5m", "DURATION", "how long after it is due a report may come; for --schedule", parseLonger)
	f.BoolVar(&ask.lock, "lock", false, "do not start beside another one")
	addParsed(f, &ask.timeout, "timeout", "", "", "DURATION", "how long the command may take; then it gets SIGTERM, and 10s later SIGKILL", parseLonger)
	addParsed(f, &ask.retries, "retries", "", "0", "N", "how often a failed command is started again", parsePositive)
	addParsed(f, &ask.backoff, "backoff", "", "10s", "DURATION", "wait before the first retry; it doubles up to 10m", parseLonger)
	f.BoolVar(&ask.silent, "no-output", false, "report no output; the command gets the streams themselves")
	addWord(f, &ask.spool, "spool", "", "DIRECTORY", "directory of reports to be sent; else BELFRY_SPOOL, or exec below the default of --data")
	f.BoolVar(&ask.flush, "flush", false, "send what waits in the spool, and run nothing")
	addConnection(cmd, &ask.connection)
	return cmd
}

// openSpool opens the spool that the flags select.
func (ask *execFlags) openSpool(env Env) (*wrap.Spool, error) {
	dir := cmp.Or(ask.spool, env.Getenv("BELFRY_SPOOL"), filepath.Join(config.DefaultData(env.Getenv), "exec"))
	return wrap.OpenSpool(env.path(dir))
}

// warner reports problems with reports where cron mails them.
func warner(env Env) func(format string, args ...any) {
	return func(format string, args ...any) {
		env.tell("belfry exec: %s\n", printable(fmt.Sprintf(format, args...)))
	}
}

// execute runs a command. Problems with the connection do not keep it from running.
func execute(ctx context.Context, env Env, ask *execFlags, command []string) error {
	warn := warner(env)
	name, err := ask.jobName(command)
	if err != nil {
		return err
	}
	c := wrap.Config{
		Name: name.name, Command: command, Stdin: env.Stdin, Stdout: env.Stdout, Stderr: env.Stderr, Silent: ask.silent,
		Lock: ask.lock, Timeout: time.Duration(ask.timeout), Retries: ask.retries, RetryFirst: time.Duration(ask.backoff),
		Now: env.Now, Warn: warn,
	}
	if c.Spool, err = ask.openSpool(env); err != nil {
		warn("reports are not kept when they cannot be sent: %v", err)
	}
	namespace := "default"
	if server, err := connect(env, ask.connection); err == nil {
		c.Server, c.Address, namespace = server, server.URL(), server.namespace
	} else {
		warn("nothing is reported: %v", err)
	}
	name.namespace = cmp.Or(name.namespace, namespace)
	c.Namespace = name.namespace
	if ask.schedule != "" {
		if c.Document, err = ask.document(env, name); err != nil {
			return err
		}
	}
	if code := wrap.Run(ctx, c); code != 0 {
		return &failure{code: ExitCode(code)} // the command has reported why
	}
	return nil
}

// jobName returns the job to report to. Its namespace may come from the connection.
func (ask *execFlags) jobName(command []string) (jobName, error) {
	if ask.name == "" {
		who := strconv.Itoa(os.Geteuid())
		if u, err := user.Current(); err == nil {
			who = u.Username
		}
		return jobName{"", crontab.NameOf(who, strings.Join(command, " "))}, nil
	}
	namespace, name, found := strings.Cut(ask.name, "/")
	if !found {
		namespace, name = "", ask.name
	}
	if name == "" || found && namespace == "" || strings.Contains(name, "/") {
		return jobName{}, misused("--job: %q is not the name of a job; write NAME or NAMESPACE/NAME", ask.name)
	}
	return jobName{namespace, name}, nil
}

// document returns the job for --schedule.
func (ask *execFlags) document(env Env, name jobName) ([]byte, error) {
	j := &job.Job{Namespace: name.namespace, Name: name.name}
	j.Schedule = job.Schedule{Cron: []string{ask.schedule}, Dialect: job.DialectVixie5, Timezone: cmp.Or(ask.zone, machineZone(env.Getenv))}
	j.Run.External = &job.External{Grace: ask.grace}
	d := job.Document{Kind: job.KindJob, Job: j}
	if err := d.Validate(job.Now(env.Now())); err != nil {
		return nil, misused("%v", err)
	}
	var b bytes.Buffer
	err := job.Encode(&b, []job.Document{d}, job.JSON)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	err = json.Compact(&line, b.Bytes())
	return line.Bytes(), err
}

// flushReports sends what waits in the spool.
func flushReports(ctx context.Context, env Env, ask *execFlags) error {
	server, err := connect(env, ask.connection)
	if err != nil {
		return err
	}
	spool, err := ask.openSpool(env)
	if err != nil {
		return failed("%v", err)
	}
	did, err := wrap.Flush(ctx, server, server.URL(), spool, warner(env))
	if _, failing := fmt.Fprintf(env.Stdout, "%d sent, %d refused, %d given up, %d left\n", did.Sent, did.Refused, did.Old, did.Left); failing != nil && err == nil {
		err = failing
	}
	return server.refused(err)
}
