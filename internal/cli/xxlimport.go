package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/cli/xxlmysql"
	"github.com/belfry-cron/belfry/internal/cli/xxltables"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/job"
)

// xxlImportFlags are the flags of belfry xxl import.
type xxlImportFlags struct {
	connection config.Asked
	from, dump string
	zone       string
	overlap    string
	out        string
	history    int
	mailServer string
	mailFrom   string
	report     string
	lang       string
	apply      bool
	skip       bool
	output     string
}

func newXXLImport(env Env) *cobra.Command {
	ask := xxlImportFlags{overlap: "executor"}
	cmd := &cobra.Command{
		Use:   "import --from URL|--dump FILE --zone ZONE [flags]",
		Short: "Turn the jobs of an xxl-job-admin into jobs; without --apply, show what would become of each",
		Long: `Turn the jobs of an xxl-job-admin of XXL-JOB 2.2 to 3.5 into equivalent jobs for the same
executors. It reads the tables from MySQL or MariaDB, or from a mysqldump file. Without
--apply nothing is written: the command shows the new job for each old one, and the
differences.

--zone is the time zone of the old admin process, in which it reads cron expressions.

Imported jobs are paused, and the label xxl-status says which were started. The old
admin keeps triggering them until belfry xxl take-over. The same tables become the same
jobs, so a second import changes nothing; jobs that were taken over stay paused or
active as they are.

A note that concerns three jobs or more is said once, before the jobs, with their count.
--report also writes the result as a page for browsers and printers. The page is in
Chinese, and in English with --lang en; the text is in English, and in Chinese with
--lang zh.`,
		Example: `belfry xxl import --dump xxl_job.sql --zone Asia/Shanghai
belfry xxl import --from mysql://root@db:3306/xxl_job --zone Asia/Shanghai --apply
belfry xxl import --dump xxl_job.sql --zone Asia/Shanghai --out jobs/
belfry xxl import --dump xxl_job.sql --zone Asia/Shanghai --report report.html`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return importXXL(cmd.Context(), env, ask) },
	}
	f := cmd.Flags()
	addWord(f, &ask.from, "from", "", "URL", "database of the old admin: mysql://user:password@host:3306/xxl_job; MYSQL_PWD may have the password")
	addWord(f, &ask.dump, "dump", "", "FILE", "file of mysqldump with the tables; - is standard input")
	addWord(f, &ask.zone, "zone", "", "ZONE", "time zone of the process of the old admin, such as Asia/Shanghai")
	addChoice(cmd, &ask.overlap, "overlap", "", "what block strategies hold for where a job may run on several executors: each executor, or the job as a whole", "executor", "job")
	addWord(f, &ask.out, "out", "", "DIRECTORY", "write the jobs there, a file for each group")
	addWord(f, &ask.report, "report", "", "FILE", "write the report as a page in HTML; a file that is there is replaced")
	addChoice(cmd, &ask.lang, "lang", "", "language of the result, as a text and as a page; without it the text is in English and the page in Chinese", string(i18n.Chinese), string(i18n.English))
	addParsed(f, &ask.history, "history", "", "", "DAYS", "with --apply, take over the runs that began within this many days, without their logs", parsePositive)
	addWord(f, &ask.mailServer, "mail-server", "", "HOST:PORT", "make channels that send mail by this server, as alarm_email has it")
	addWord(f, &ask.mailFrom, "mail-from", "", "ADDRESS", "with --mail-server, the address of the sender")
	f.BoolVar(&ask.apply, "apply", false, "create and update the jobs on the server")
	f.BoolVar(&ask.skip, "skip-errors", false, "with --apply or --out, take the other jobs where some cannot be imported")
	addServer(cmd, &ask.connection)
	addOutput(cmd, &ask.output, asTable, asYAML, asJSON)
	return cmd
}

func (ask *xxlImportFlags) check() error {
	switch {
	case (ask.from == "") == (ask.dump == ""):
		return misused("name the old admin by one of --from and --dump")
	case ask.zone == "":
		return misused("--zone is missing: the time zone of the process of the old admin, such as Asia/Shanghai")
	case ask.skip && !ask.apply && ask.out == "":
		return misused("--skip-errors needs --apply or --out")
	case (ask.mailServer == "") != (ask.mailFrom == ""):
		return misused("--mail-server and --mail-from belong together")
	case ask.history > historyDaysMax:
		return misused("--history: at most %d days are allowed", historyDaysMax)
	case ask.history > 0 && !ask.apply:
		return misused("--history needs --apply: files have no runs")
	case ask.apply && ask.output == asYAML:
		return misused("-o yaml prints the jobs and --apply sends them: choose one")
	}
	if _, err := cron.LoadZone(ask.zone); err != nil {
		return misused("--zone: %v", err)
	}
	return nil
}

func importXXL(ctx context.Context, env Env, ask xxlImportFlags) error {
	if err := ask.check(); err != nil {
		return err
	}
	admin, err := readOldAdmin(ctx, env, ask)
	if err != nil {
		return err
	}
	plan, err := xxltables.Convert(admin, xxltables.Options{Zone: ask.zone, OneRun: ask.overlap == "job", MailServer: ask.mailServer, MailFrom: ask.mailFrom, Now: env.Now()})
	if err != nil {
		return failed("%v", err)
	}
	if ask.report != "" {
		if err := writeReport(env, ask, plan); err != nil {
			return err
		}
	}
	bad := 0
	for i := range plan.Jobs {
		if plan.Jobs[i].Job == nil {
			bad++
		}
	}
	if (ask.apply || ask.out != "") && bad > 0 && !ask.skip {
		ask.text(env.Stderr, styleFor(env, env.StderrIsTerminal), plan, true)
		return failed("%s cannot be imported, and nothing was changed", counted(bad, "job")).withHint("--skip-errors imports the other jobs")
	}
	if ask.apply {
		if err := applyPlan(ctx, env, ask, plan); err != nil {
			return err
		}
	}
	if ask.out != "" {
		if err := writePlan(env, env.path(ask.out), plan); err != nil {
			return err
		}
	}
	if err := showPlan(env, ask, plan); err != nil || ask.apply {
		return err
	}
	if bad > 0 && !ask.skip {
		return failed("%s cannot be imported", counted(bad, "job"))
	}
	if ask.out == "" && ask.output == asTable {
		env.tell("Nothing was written. --apply creates the jobs, paused.\n")
	}
	return nil
}

// readOldAdmin reads the tables of the old admin.
func readOldAdmin(ctx context.Context, env Env, ask xxlImportFlags) (*xxltables.Admin, error) {
	zone, err := cron.LoadZone(ask.zone)
	if err != nil {
		return nil, misused("--zone: %v", err)
	}
	var since time.Time
	text := ""
	if ask.history > 0 {
		since = env.Now().AddDate(0, 0, -ask.history)
		text = since.In(zone.Location()).Format("2006-01-02 15:04:05")
	}
	var tables map[string]*xxltables.Table
	if ask.dump != "" {
		tables, err = readDump(env, ask.dump, text)
	} else {
		tables, err = readDatabase(ctx, env, ask.from, text)
	}
	if err != nil {
		return nil, err
	}
	admin, err := xxltables.Read(tables, zone.Location(), since)
	if err != nil {
		return nil, failed("%v", err)
	}
	return admin, nil
}

func readDump(env Env, file, since string) (map[string]*xxltables.Table, error) {
	source := env.Stdin
	if file != "-" {
		opened, err := os.Open(env.path(file))
		if err != nil {
			return nil, unreadable(file, err)
		}
		defer opened.Close()
		source = opened
	}
	tables, err := xxltables.ReadDump(source, since)
	if err != nil {
		return nil, failed("%s: %v", file, err)
	}
	return tables, nil
}

// openOldAdmin connects to the database of the old admin.
func openOldAdmin(ctx context.Context, env Env, from string) (*xxlmysql.DB, error) {
	db, err := xxlmysql.Open(ctx, from, env.Getenv("MYSQL_PWD"))
	if err != nil {
		return nil, failed("--from: %v", err)
	}
	return db, nil
}

func readDatabase(ctx context.Context, env Env, from, since string) (map[string]*xxltables.Table, error) {
	db, err := openOldAdmin(ctx, env, from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }() // it was only read
	tables, err := db.Tables(ctx, since)
	if err != nil {
		return nil, failed("%v", err)
	}
	return tables, nil
}

// planRow is a job of the plan as -o json prints it.
type planRow struct {
	ID          int64          `json:"id"`
	Group       string         `json:"group"`
	Description string         `json:"description"`
	Job         string         `json:"job"`
	Status      string         `json:"status"`
	TheirNext   time.Time      `json:"their_next,omitzero"`
	Next        time.Time      `json:"next,omitzero"`
	Versions    int            `json:"versions"`
	Notes       []importNote   `json:"notes"`
	Problem     string         `json:"problem"`
	ProblemCode string         `json:"problem_code,omitempty"`
	ProblemArgs map[string]any `json:"problem_args,omitempty"`
}

func showPlan(env Env, ask xxlImportFlags, plan *xxltables.Plan) error {
	var b bytes.Buffer
	switch ask.output {
	case asYAML:
		if err := job.Encode(&b, planDocuments(plan, ""), job.YAML); err != nil {
			return failed("write the jobs: %v", err)
		}
	case asJSON:
		if err := encodeJSON(&b, planJSON(plan)); err != nil {
			return err
		}
	default:
		ask.text(&b, styleFor(env, env.StdoutIsTerminal), plan, false)
	}
	return write(env, b.Bytes())
}

func planJSON(plan *xxltables.Plan) any {
	type plannedGroup struct {
		ID        int64        `json:"id"`
		Group     string       `json:"group"`
		Namespace string       `json:"namespace"`
		Notes     []importNote `json:"notes"`
	}
	notes := func(list []xxltables.Note) []importNote {
		texts := make([]importNote, len(list))
		for i, n := range list {
			texts[i] = noteOf(n.Field, n.Text)
		}
		return texts
	}
	type sharedNote struct {
		importNote
		Jobs []int64 `json:"jobs"`
	}
	shared := []sharedNote{}
	for _, n := range plan.Shared {
		shared = append(shared, sharedNote{noteOf(n.Field, n.Text), n.Jobs})
	}
	groups, jobs := []plannedGroup{}, []planRow{}
	for _, g := range plan.Groups {
		groups = append(groups, plannedGroup{g.ID, g.AppName, g.Namespace, notes(g.Notes)})
	}
	for i := range plan.Jobs {
		p := &plan.Jobs[i]
		one := planRow{
			ID: p.Old.ID, Group: p.Group, Description: p.Old.Description, TheirNext: p.Old.Next, Next: p.Next,
			Versions: len(p.Versions), Notes: notes(p.Notes), Problem: p.Problem.String(), ProblemCode: p.Problem.Code(), ProblemArgs: p.Problem.Args(),
		}
		if p.Job != nil {
			one.Job, one.Status = p.Job.FullName(), p.Job.Labels[xxltables.StatusLabel]
		}
		jobs = append(jobs, one)
	}
	return struct {
		Groups      []plannedGroup `json:"groups"`
		Notes       []sharedNote   `json:"notes"`
		Items       []planRow      `json:"items"`
		People      []importNote   `json:"people"`
		FirstNumber int64          `json:"first_number"`
	}{groups, shared, jobs, notes(plan.People), plan.FirstNumber}
}

// planText writes a plan as a text for people.
type planText struct {
	io.Writer
	style
	say i18n.Lang
}

// text writes what becomes of each job, or only what is wrong.
func (ask *xxlImportFlags) text(w io.Writer, s style, plan *xxltables.Plan, wrongOnly bool) {
	t := planText{w, s, cmp.Or(i18n.Lang(ask.lang), i18n.English)}
	if !wrongOnly {
		for _, n := range plan.Shared {
			t.note("", n.Field, t.say.T("xxlreport.shared", "n", len(n.Jobs), "text", n.Text.In(string(t.say))))
		}
	}
	for i := range plan.Groups {
		g := &plan.Groups[i]
		if !wrongOnly {
			fmt.Fprintln(t, t.say.T("xxlreport.group_line", "name", t.strong(printable(g.AppName)), "namespace", g.Namespace))
			for _, n := range g.Notes {
				t.note("  ", n.Field, n.Text.In(string(t.say)))
			}
			if g.Executors != nil {
				fmt.Fprintf(t, "  %s\n", t.say.T("xxlreport.executors_line", "name", g.Executors.FullName(), "addresses", printable(strings.Join(g.Executors.Addresses, ", "))))
			}
		}
		for i := range plan.Jobs {
			if plan.Jobs[i].Old.Group == g.ID {
				t.job(&plan.Jobs[i], wrongOnly)
			}
		}
	}
	for i := range plan.Jobs {
		if plan.Jobs[i].Group == "" {
			t.job(&plan.Jobs[i], wrongOnly)
		}
	}
	if wrongOnly {
		return
	}
	if len(plan.People) > 0 {
		fmt.Fprintln(t, t.strong(t.say.T("xxlreport.people_line")))
		for _, n := range plan.People {
			fmt.Fprintf(t, "  %s: %s\n", printable(n.Field), n.Text.In(string(t.say)))
		}
	}
	for _, c := range plan.Channels {
		fmt.Fprintln(t, t.say.T("xxlreport.channel_line", "name", c.FullName(), "addresses", printable(strings.Join(c.To.Mail.To, ", "))))
	}
	if len(plan.Runs) > 0 {
		fmt.Fprintln(t, t.say.T("xxlreport.runs_line", "n", len(plan.Runs)))
	}
	fmt.Fprintln(t, t.say.T("xxlreport.number", "n", plan.FirstNumber))
}

func (t planText) note(indent, field, text string) {
	fmt.Fprintf(t, "%s%s %s: %s\n", indent, t.faint("!"), field, printable(text))
}

func (t planText) job(p *xxltables.JobPlan, wrongOnly bool) {
	what := printable(p.Title())
	if p.Job == nil {
		fmt.Fprintf(t, "  %s\n    %s %s\n", what, t.wrong(t.say.T("xxlreport.not_imported_line")), printable(p.Problem.In(string(t.say))))
		return
	}
	if wrongOnly {
		return
	}
	schedule := scheduleText(&p.Job.Schedule)
	if t.say != i18n.English {
		schedule = p.Schedule()
	}
	facts := []string{t.say.T("xxlreport.status_line." + p.Job.Labels[xxltables.StatusLabel]), schedule}
	if !p.Next.IsZero() && p.Starts() {
		facts = append(facts, t.say.T("xxlreport.next_line", "time", p.Next.Format("2006-01-02 15:04:05 -07:00")))
	}
	fmt.Fprintf(t, "  %s → %s  %s\n", what, t.right(p.Job.FullName()), printable(strings.Join(facts, ", ")))
	for _, n := range p.Notes {
		t.note("    ", n.Field, n.Text.In(string(t.say)))
	}
}

// planDocuments returns the documents of a namespace, or of all for "".
func planDocuments(plan *xxltables.Plan, namespace string) (list []job.Document) {
	for i := range plan.Groups {
		if e := plan.Groups[i].Executors; e != nil && (namespace == "" || e.Namespace == namespace) {
			list = append(list, job.Document{Kind: job.KindExecutors, Executors: e})
		}
	}
	for _, c := range plan.Channels {
		if namespace == "" || c.Namespace == namespace {
			list = append(list, job.Document{Kind: job.KindChannel, Channel: c})
		}
	}
	for i := range plan.Jobs {
		if j := plan.Jobs[i].Job; j != nil && (namespace == "" || j.Namespace == namespace) {
			list = append(list, job.Document{Kind: job.KindJob, Job: j})
		}
	}
	return list
}

// writePlan writes a file for each group that has jobs. Files of an earlier import are replaced.
func writePlan(env Env, dir string, plan *xxltables.Plan) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return failed("write the jobs: %v", err)
	}
	for _, g := range plan.Groups {
		documents := planDocuments(plan, g.Namespace)
		if len(documents) == 0 {
			continue
		}
		var b bytes.Buffer
		if err := job.Encode(&b, documents, job.YAML); err != nil {
			return failed("write the jobs: %v", err)
		}
		path := filepath.Join(dir, g.Namespace+".yaml")
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			return failed("write the jobs: %v", err)
		}
		env.tell("%s has %s\n", path, counted(len(documents), "document"))
	}
	return nil
}

// applyPlan creates and updates the jobs on the server. A job's older code comes first, so that it
// is among the revisions of a new job.
func applyPlan(ctx context.Context, env Env, ask xxlImportFlags, plan *xxltables.Plan) error {
	server, err := connect(env, ask.connection)
	if err != nil {
		return err
	}
	versions, created := 0, map[string]bool{}
	for i := range plan.Jobs {
		p := &plan.Jobs[i]
		if p.Job == nil {
			continue
		}
		isNew, err := keepTaken(ctx, server, p.Job)
		if err != nil {
			return server.refused(err)
		}
		if created[p.Job.FullName()] = isNew; !isNew {
			p.Versions = nil
		}
		versions = max(versions, len(p.Versions))
	}
	if _, err := server.RaiseNumbers(ctx, plan.FirstNumber); err != nil {
		return server.refused(err)
	}
	for n := range versions {
		var older []job.Document
		for _, p := range plan.Jobs {
			if n < len(p.Versions) {
				older = append(older, job.Document{Kind: job.KindJob, Job: p.Versions[n]})
			}
		}
		if _, err := applyDocuments(ctx, server, older); err != nil {
			return err
		}
	}
	applied, err := applyDocuments(ctx, server, planDocuments(plan, ""))
	if err != nil {
		return err
	}
	warn(env, applied)
	changed, jobs := map[client.ChangeResult]int{}, 0
	for _, r := range applied.Results {
		if created[r.Name] {
			r.Result = client.Created // created with older code, it was then updated
		}
		if r.Kind == job.KindJob {
			jobs++
			changed[r.Result]++
		}
	}
	if err := sendRuns(ctx, env, server, plan); err != nil {
		return err
	}
	env.tell("%s: %d created, %d changed, %d as they were\n", counted(jobs, "job"), changed[client.Created], changed[client.Changed], changed[client.Unchanged])
	return nil
}

// historyDaysMax bounds the days of --history: what is older is of no use for statistics.
const historyDaysMax = 3650

// sendRuns sends past runs. Existing ones stay unchanged.
func sendRuns(ctx context.Context, env Env, server *remote, plan *xxltables.Plan) error {
	taken := 0
	for part := range slices.Chunk(plan.Runs, client.PastRunsMax) {
		request := client.PastRuns{}
		for _, r := range part {
			request.Items = append(request.Items, client.PastRun{
				Number: r.Old.ID, Job: r.Job, ByHand: r.ByHand, Executor: r.Old.Executor, Started: r.Old.Started, Ended: r.Old.Ended,
				Outcome: r.Outcome, Reason: r.Reason,
			})
		}
		answer, err := server.AddPastRuns(ctx, request)
		if err != nil {
			return server.refused(err)
		}
		taken += answer.Taken
	}
	if len(plan.Runs) > 0 {
		env.tell("%s of the past taken over\n", counted(taken, "run"))
	}
	return nil
}

// keepTaken keeps changes of a job since an earlier import, by belfry xxl take-over or a person:
// its pause, its start, and its status in the old admin.
func keepTaken(ctx context.Context, server *remote, j *job.Job) (isNew bool, err error) {
	is, err := jobOf(ctx, server, j.Namespace, j.Name)
	if client.IsType(err, client.TypeNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if len(j.Schedule.Cron) > 0 && len(is.Schedule.Cron) > 0 || j.Schedule.Every != 0 && j.Schedule.Every == is.Schedule.Every {
		j.Schedule.Start, j.Schedule.Align = is.Schedule.Start, is.Schedule.Align
	}
	if j.Paused = is.Paused; !is.Paused && is.Labels[xxltables.StatusLabel] != "" {
		j.Labels[xxltables.StatusLabel] = is.Labels[xxltables.StatusLabel]
	}
	return false, nil
}

// jobOf returns a job as users wrote it.
func jobOf(ctx context.Context, server *remote, namespace, name string) (*job.Job, error) {
	d, err := server.Job(ctx, namespace, name, false)
	if err != nil {
		return nil, err
	}
	read, err := server.read(d, job.KindJob)
	if err != nil {
		return nil, err
	}
	return read.Job, nil
}

func applyDocuments(ctx context.Context, server *remote, documents []job.Document) (client.Applied, error) {
	v := &validation{documents: documents}
	request, err := v.request(server.namespace)
	if err != nil {
		return client.Applied{}, err
	}
	applied, err := server.applyAll(ctx, request)
	if err != nil {
		return applied, v.placed(server.env, server.refused(err))
	}
	return applied, nil
}
