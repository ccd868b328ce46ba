package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newJobStatistics(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "statistics NAME [flags]",
		Short: "Show how the last runs of a job went",
		Long: `Show statistics of the last runs of a job, at most 2000: outcomes, durations, how
late they started, and the processor time and memory that they used. Half of the durations are at most p50, 19 of 20 at most p95,
99 of 100 at most p99.`,
		Example: "belfry job statistics nightly\nbelfry job statistics nightly -o json",
		Args:    oneName("job"),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			stats, err := server.JobStatistics(ctx, name.namespace, name.name, "")
			if err != nil {
				return err
			}
			return showOne(env, output, stats, name.namespace+"/"+name.name, func(w io.Writer) { statisticsText(w, env, stats) })
		}),
	}
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	return cmd
}

// statisticsText writes statistics for people.
func statisticsText(w io.Writer, env Env, stats client.JobStatistics) {
	if stats.Runs == 0 {
		fmt.Fprintln(w, "No run of the job has ended.")
		return
	}
	var outcomes []string
	for _, o := range slices.Sorted(maps.Keys(stats.Outcomes)) {
		outcomes = append(outcomes, fmt.Sprintf("%d %s", stats.Outcomes[o], strings.ReplaceAll(string(o), "_", " ")))
	}
	fmt.Fprintf(w, "%d runs since %s: %s", stats.Runs, instant(env, stats.From), strings.Join(outcomes, ", "))
	if stats.Retried > 0 {
		fmt.Fprintf(w, "; %d retried", stats.Retried)
	}
	fmt.Fprintln(w)
	if stats.SuccessRate != nil {
		fmt.Fprintf(w, "%s %% succeeded\n", strconv.FormatFloat(100**stats.SuccessRate, 'f', 1, 64))
	}
	row := func(name string, q client.Quantiles, text func(float64) string) []string {
		if q.Count == 0 {
			return []string{name, "-", "-", "-", "-"}
		}
		return []string{name, text(q.P50), text(q.P95), text(q.P99), text(q.Max)}
	}
	span := func(seconds float64) string { return shortDuration(time.Duration(seconds * float64(time.Second))) }
	rows := [][]string{row("duration", stats.Duration, span), row("lateness", stats.Lateness, span)}
	if stats.CPU.Count > 0 || stats.Memory.Count > 0 {
		rows = append(rows, row("cpu", stats.CPU, span), row("memory", stats.Memory, func(bytes float64) string { return job.Size(bytes).Rounded() }))
	}
	table(w, styleFor(env, env.StdoutIsTerminal), []string{"", "P50", "P95", "P99", "MAX"}, rows)
}

// loadFlags are the flags of belfry load.
type loadFlags struct {
	connection config.Asked
	all        bool
	labels     map[string]string
	within     job.Duration
	step       job.Duration
	output     string
}

func newLoad(env Env) *cobra.Command {
	ask := loadFlags{within: job.Duration(24 * time.Hour), step: job.Duration(time.Hour)}
	cmd := &cobra.Command{
		Use:   "load [flags]",
		Short: "Show how many runs schedules will start",
		Long: `Show how many runs schedules will start, by hour or another interval.
Schedules by the second are estimated. Jobs that run after other jobs or after their own
end are not counted.`,
		Example: "belfry load\nbelfry load --within 1h --step 1m\nbelfry load -l team=a -o json",
		Args:    noArguments,
		RunE: asking(env, &ask.connection, func(ctx context.Context, server *remote, _ []string) error {
			return showLoad(ctx, server, ask)
		}),
	}
	f := cmd.Flags()
	addParsed(f, &ask.within, "within", "", "24h", "DURATION", "how far ahead to look, at most 32d", job.ParseDuration)
	addParsed(f, &ask.step, "step", "", "1h", "DURATION", "count by this step, in whole seconds", job.ParseDuration)
	f.VarP((*labels)(&ask.labels), "label", "l", "only jobs with this label: KEY=VALUE; may be repeated")
	addConnection(cmd, &ask.connection)
	addAll(cmd, &ask.all)
	addOutput(cmd, &ask.output, asTable, asJSON, asYAML)
	return cmd
}

func showLoad(ctx context.Context, server *remote, ask loadFlags) error {
	from := server.env.Now()
	load, err := server.Load(ctx, client.LoadQuery{
		Namespace: server.listNamespace(ask.all), Labels: ask.labels, From: from, To: from.Add(time.Duration(ask.within)), Step: time.Duration(ask.step),
	})
	if err != nil {
		return err
	}
	return showOne(server.env, ask.output, load, "", func(w io.Writer) { loadTable(w, server.env, load) })
}

// loadBar is how wide the longest bar of belfry load is.
const loadBar = 40

// loadTable writes starts for people.
func loadTable(w io.Writer, env Env, load client.Load) {
	most := 0
	for _, n := range load.Starts {
		most = max(most, n)
	}
	var rows [][]string
	for i, n := range load.Starts {
		at := load.From.Add(time.Duration(i*load.Step) * time.Second)
		rows = append(rows, []string{instant(env, at.In(time.Local)), strconv.Itoa(n), strings.Repeat("#", n*loadBar/max(most, 1))})
	}
	table(w, styleFor(env, env.StdoutIsTerminal), []string{"FROM", "STARTS", ""}, rows)
}

// recentShown is how many of the last runs of a job belfry job list -o wide shows.
const recentShown = 20

// recentMarks are the letters of outcomes.
var recentMarks = map[job.Outcome]string{
	job.OutcomeSucceeded: ".", job.OutcomeFailed: "F", job.OutcomeTimedOut: "T", job.OutcomeLost: "L",
	job.OutcomeMissed: "M", job.OutcomeSkipped: "s", job.OutcomeCancelled: "c",
}

// recentText writes the last runs of a job in letters, the latest at the end.
func recentText(runs []client.RecentRun) string {
	var b strings.Builder
	for _, r := range slices.Backward(runs) {
		b.WriteString(cmp.Or(recentMarks[r.Outcome], "?"))
	}
	return orDash(b.String())
}
