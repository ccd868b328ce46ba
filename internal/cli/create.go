package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// createFlags describe the job that belfry job create makes.
type createFlags struct {
	connection config.Asked
	cron       []string
	every      job.Duration
	at         []time.Time
	zone       string
	timeout    job.Duration
	retries    int
	labels     map[string]string
	env        map[string]string
	dir, user  string
	job        job.Job
	output     string
}

func newJobCreate(env Env) *cobra.Command {
	var ask createFlags
	cmd := &cobra.Command{
		Use:   "create NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Create a job that runs a command",
		Long: `Create a job that runs a command. A single word after -- is a command for the
shell; with arguments, the program is executed as it is. Without --cron, --every
or --at the job runs only by hand. belfry apply takes jobs with everything else.`,
		Example: `belfry job create hello --every 10s -- echo hello
belfry job create backup --cron '30 2 * * *' --tz Europe/Berlin -- /usr/local/bin/backup --full
belfry job create report --cron @daily -- 'report.sh | mail -s report ops@example.org'
belfry job create orders --title 订单同步 --every 5m -- ./sync-orders
belfry job create greet --at 2027-01-01T00:00:00+01:00 -- ./happy-new-year.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return misused("the name of the job is missing")
			case dash > 1 || dash < 0 && len(args) > 1:
				return misused("unexpected %q: the command of the job comes after --", args[1])
			case len(args) == 1:
				return misused("the command of the job is missing").withHint("write it after --, such as: belfry job create %s --every 10s -- echo hello", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			server, name, err := connectFor(env, ask.connection, args[0])
			if err != nil {
				return err
			}
			return server.refused(createJob(cmd.Context(), server, ask.described(name, args[1:]), ask.output))
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	f := cmd.Flags()
	f.StringArrayVar(&ask.cron, "cron", nil, "cron `EXPRESSION` by which the job is due; may be repeated")
	addParsed(f, &ask.every, "every", "", "", "DURATION", "fixed rate at which the job is due, 1s at least", func(text string) (job.Duration, error) {
		d, err := job.ParseDuration(text)
		if err == nil && d < job.Duration(time.Second) {
			err = fmt.Errorf("%q is too short; the minimum for commands is 1s", text)
		}
		return d, err
	})
	addParsed(f, &ask.at, "at", "", "", "TIME|DURATION", "when the job is due, once", func(text string) ([]time.Time, error) {
		t, err := momentFrom(env, 1)(text)
		return []time.Time{t.Truncate(time.Second)}, err
	})
	addWord(f, &ask.zone, "tz", "", "ZONE", "time zone of --cron; else that of the server")
	addWord(f, &ask.job.Title, "title", "", "TEXT", "what pages call the job, in any script")
	addWord(f, &ask.job.Description, "description", "", "TEXT", "what the job is for")
	f.VarP((*labels)(&ask.labels), "label", "l", "label of the job: KEY=VALUE; may be repeated")
	f.Var((*labels)(&ask.env), "env", "environment variable of the command: NAME=VALUE; may be repeated")
	addWord(f, &ask.dir, "dir", "", "DIRECTORY", "working directory of the command, an absolute path on the node")
	addWord(f, &ask.user, "user", "", "USER", "user that runs the command")
	addText(f, &ask.timeout, "timeout", "", "", "DURATION", "how long the command may take")
	addParsed(f, &ask.retries, "retries", "", "0", "N", "how often a failed run is tried again", parsePositive)
	f.BoolVar(&ask.job.Paused, "paused", false, "create the job paused")
	addConnection(cmd, &ask.connection)
	addOutput(cmd, &ask.output, asTable, asJSON, asYAML, asName)
	return cmd
}

// described returns the job that the flags and the command describe.
func (ask *createFlags) described(name jobName, command []string) *job.Job {
	j := ask.job
	j.Namespace, j.Name, j.Labels = name.namespace, name.name, ask.labels
	j.Schedule = job.Schedule{Cron: ask.cron, Every: ask.every, At: ask.at, Timezone: ask.zone}
	shell := &job.Shell{Command: command[0], Args: command[1:], Env: ask.env, Dir: ask.dir, User: ask.user}
	if isPlain(command) {
		shell.Command, shell.Args = strings.Join(command, " "), nil
	}
	j.Run.Shell = shell
	if ask.timeout > 0 {
		j.Policy.Timeout = &ask.timeout
	}
	if ask.retries > 0 {
		j.Policy.Retry = &job.Retry{Attempts: &ask.retries}
	}
	return &j
}

// isPlain reports whether the words of a command mean the same to a shell when they are
// joined by blanks.
func isPlain(command []string) bool {
	for _, word := range command {
		if word == "" || quoted(word) != word {
			return false
		}
	}
	return true
}

func createJob(ctx context.Context, server *remote, j *job.Job, output string) error {
	d := job.Document{Kind: job.KindJob, Job: j}
	var b bytes.Buffer
	if err := job.Encode(&b, []job.Document{d}, job.JSON); err != nil {
		return err
	}
	change, err := server.CreateJob(ctx, client.Document{RawMessage: b.Bytes()})
	if err != nil {
		return err
	}
	name := jobName{j.Namespace, j.Name}
	warnOfChange(server.env, name, change)
	return showOne(server.env, output, change, name.String(), func(w io.Writer) {
		changeText(w, name, change, "created")
		if document, err := change.Job.Job(); err == nil && document.Status != nil && !document.Status.Next.IsZero() {
			fmt.Fprintf(w, "next run at %s\n", instant(server.env, document.Status.Next))
		}
	})
}
