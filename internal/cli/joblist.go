package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/cli/checkout"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// jobListFlags are the flags of belfry job list.
type jobListFlags struct {
	connection config.Asked
	all        bool
	labels     map[string]string
	text       string
	state      string
	failing    bool
	neverRan   bool
	dueBefore  time.Time
	work       string
	sort       string
	limit      int
	output     string
}

func newJobList(env Env) *cobra.Command {
	ask := jobListFlags{sort: "name"}
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Aliases: []string{"ls"},
		Short:   "List jobs with their next due time and last outcome",
		Long: `List the jobs of all namespaces, or of one. --sort next begins with the job that is due
next, --sort last with the job that ended last (for at most 10000 jobs), --sort failure with
the job that failed last; jobs that did not fail lately follow by name. --due-before lists
jobs by when they fall due. -o wide shows the last 20 runs of each job, the latest at the end: . succeeded, F failed, T timed out,
L lost, M missed, s skipped, c cancelled.`,
		Example: `belfry job list
belfry job list --sort next --limit 10
belfry job list -n web --label team=a --state paused
belfry job list --due-before 1h
belfry job list -o name`,
		Args: noArguments,
		RunE: asking(env, &ask.connection, func(ctx context.Context, server *remote, _ []string) error {
			return listJobs(ctx, server, ask)
		}),
	}
	f := cmd.Flags()
	f.VarP((*labels)(&ask.labels), "label", "l", "only jobs with this label: KEY=VALUE; may be repeated")
	addWord(f, &ask.text, "text", "", "TEXT", "only jobs with this text in name, title or description")
	addChoice(cmd, &ask.state, "state", "", "only jobs in this state", job.JobState("").Values()...)
	f.BoolVar(&ask.failing, "failing", false, "only active jobs whose last run failed, at most the 50 that failed last")
	f.BoolVar(&ask.neverRan, "never-ran", false, "only jobs of which no finished run is kept")
	addParsed(f, &ask.dueBefore, "due-before", "", "", "TIME|DURATION", "only jobs that fall due before this instant, or within this time", momentFrom(env, 1))
	addChoice(cmd, &ask.work, "work", "", "only jobs that run this", "shell", "http", "handler", "xxl", "flow", "external")
	addChoice(cmd, &ask.sort, "sort", "", "order of the jobs", "name", "next", "last", "failure")
	addParsed(f, &ask.limit, "limit", "", "", "N", "how many jobs to show; else all", parsePositive)
	addConnection(cmd, &ask.connection)
	addAll(cmd, &ask.all)
	addOutput(cmd, &ask.output, asTable, asWide, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// sortMax is how many jobs are read to sort them: some seconds.
const sortMax = 10_000

// pageSize is how many items one request returns.
const pageSize = 500

func listJobs(ctx context.Context, server *remote, ask jobListFlags) error {
	query := client.JobQuery{Namespace: server.listNamespace(ask.all), Labels: ask.labels, Text: ask.text, State: job.JobState(ask.state), Failing: ask.failing, NeverRan: ask.neverRan, DueBefore: ask.dueBefore, Work: job.Work(ask.work), Sort: client.ByName, PageSize: pageSize}
	switch ask.sort {
	case "next":
		query.Sort = client.ByNext
	case "failure":
		query.Sort = client.ByFailure
	}
	// The server has no order by the last run: they are sorted here.
	whole := ask.sort == "last" || ask.limit == 0
	if !whole {
		query.PageSize = min(ask.limit, pageSize)
	}
	if ask.output == asWide {
		query.Recent = recentShown
	}
	recent := map[string][]client.RecentRun{}
	var rows []serverDocument
	for {
		page, err := server.Jobs(ctx, query)
		if err != nil {
			return err
		}
		for _, d := range page.Items {
			row, err := server.read(d, job.KindJob)
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		maps.Copy(recent, page.Recent)
		if query.PageToken = page.NextPageToken; query.PageToken == "" || !whole && len(rows) >= ask.limit {
			break
		}
		if ask.sort == "last" && len(rows) >= sortMax {
			return failed("there are more than %d jobs, too many to sort by their last run", sortMax).
				withHint("select some with --namespace, --label, --text or --state")
		}
	}
	if ask.sort == "last" {
		sortByLast(rows)
	}
	if ask.limit > 0 {
		rows = rows[:min(len(rows), ask.limit)]
	}
	return showList(server.env, ask.output, rows, "", serverDocument.FullName, func(w io.Writer) { jobTable(w, server.env, rows, ask.output == asWide, recent) })
}

// sortByLast sorts by the last end, latest first, jobs that never ran at the end.
func sortByLast(rows []serverDocument) {
	slices.SortStableFunc(rows, func(a, b serverDocument) int {
		return b.Job.Status.LastEnded.Compare(a.Job.Status.LastEnded)
	})
}

// jobTable writes jobs for people, in wide form with more columns and recent runs.
func jobTable(w io.Writer, env Env, rows []serverDocument, wide bool, recent map[string][]client.RecentRun) {
	s := styleFor(env, env.StdoutIsTerminal)
	head := []string{"NAME", "SCHEDULE", "NEXT", "LEFT", "LAST", "STATUS"}
	if wide {
		head = append(head, "RECENT", "ZONE", "VERSION", "LAST RUN", "UID", "SOURCE")
	}
	var lines [][]string
	for _, r := range rows {
		j, status := r.Job, r.Job.Status
		zone := zoneOf(j)
		line := []string{
			j.FullName(), scheduleText(&j.Schedule), instant(env, inZone(status.Next, zone)), distance(env, status.Next),
			distance(env, status.LastEnded), statusText(status),
		}
		if !env.StdoutIsTerminal {
			line[4] = instant(env, inZone(status.LastEnded, zone))
		}
		if wide {
			last := ""
			if !status.LastRun.IsZero() {
				last = status.LastRun.String()
			}
			line = append(line, recentText(recent[j.FullName()]), orDash(j.Schedule.Timezone), fmt.Sprint(j.Version), orDash(last), j.UID.String(), orDash(sourceText(status.Source)))
		}
		lines = append(lines, line)
	}
	table(w, s, head, lines)
}

// sourceText says which commit of a repository a job is of.
func sourceText(from *job.Source) string {
	if from == nil {
		return ""
	}
	return checkout.Commit{Hash: from.Commit}.Short() + " " + from.URL
}

// zoneOf returns the zone that a job's moments are shown in.
func zoneOf(j *job.Job) *time.Location {
	if zone, err := cron.LoadZone(j.Schedule.Timezone); err == nil && j.Schedule.Timezone != "" {
		return zone.Location()
	}
	return time.UTC
}

func inZone(t time.Time, zone *time.Location) time.Time {
	if t.IsZero() {
		return t
	}
	return t.In(zone)
}

// scheduleText describes briefly when a job falls due.
func scheduleText(s *job.Schedule) string {
	var parts []string
	switch {
	case len(s.Cron) > 0:
		parts = append(parts, strings.Join(s.Cron, " | "))
	case s.Every > 0:
		parts = append(parts, "every "+s.Every.String())
	case s.AfterEnd > 0:
		parts = append(parts, s.AfterEnd.String()+" after its end")
	case len(s.At) == 1:
		parts = append(parts, "at "+s.At[0].Format(time.RFC3339))
	case len(s.At) > 0:
		parts = append(parts, fmt.Sprintf("at %d instants", len(s.At)))
	case len(s.On) > 0:
		var names []string
		for _, u := range s.On {
			names = append(names, u.Job)
		}
		parts = append(parts, "after "+strings.Join(names, ", "))
	}
	if s.Boot {
		parts = append(parts, "at the start of a node")
	}
	if len(parts) == 0 {
		return "by hand"
	}
	return strings.Join(parts, " and ")
}

// statusText describes the state of a job: why it does not run, or how its last run ended. A
// failure is shown in any state.
func statusText(s *job.Status) string {
	if s.State == job.JobActive && s.Barred == "" {
		return orDash(string(s.LastOutcome))
	}
	text := string(s.State)
	if s.State == job.JobActive {
		text = "barred: " + s.Barred
	}
	if s.LastOutcome.Alarms() {
		text += " (" + string(s.LastOutcome) + ")"
	}
	if s.State == job.JobPaused && s.PauseReason != "" {
		text += ": " + s.PauseReason
	}
	return text
}
