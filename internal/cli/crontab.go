package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newCrontab(env Env) *cobra.Command {
	cmd := group("crontab", "crontabs", "Import crontabs, anacrontabs and systemd timers, and export jobs as a crontab", "belfry crontab import\nbelfry crontab export")
	cmd.AddCommand(newCrontabImport(env), newCrontabExport(env))
	return cmd
}

// importFlags are the flags of belfry crontab import.
type importFlags struct {
	connection config.Asked
	user       string
	system     bool
	format     string
	zone       string
	host       string
	scripts    bool
	apply      bool
	skip       bool
	owner      string
	prune      bool
	yes        bool
	commentOut bool
	allowUsers bool
	config     string
	dryRun     bool
	undo       bool
	mailServer string
	mailFrom   string
	output     string
	takeOver   *cronJobChange
	still      string // note about the source after an import; "" for lines of crontabs
	unit       string // what each job is made of; "" for lines of crontabs
}

func newCrontabImport(env Env) *cobra.Command {
	var ask importFlags
	cmd := &cobra.Command{
		Use:   "import [FILE...] [flags]",
		Short: "Turn crontab lines into jobs; without --apply, show what would become of each line",
		Long: `Turn crontab lines into equivalent jobs. Without --apply nothing is written: the
command shows the job for each line, and what is lost.

Without a FILE it reads the crontab of the current user, with -u that of another
user, and with --system /etc/crontab, /etc/cron.d and /etc/anacrontab. The path of
a file decides its format: a system crontab has a user before each command, an
anacrontab has periods, and a .timer is a systemd unit. --format overrides it.

A line always becomes the same job, so a second import changes nothing. The jobs
are marked with an owner; --prune deletes those whose lines are gone. cron keeps
running the lines until they are removed: --comment-out comments them out once their
jobs exist, and keeps a copy of each file. It leaves a line alone whose job cannot run:
one that no live node may run, or that is paused. --allow-users lets the server on this
machine run the users of the lines. --undo restores the lines and deletes their jobs.`,
		Example: `belfry crontab import
belfry crontab import -u www-data --apply --comment-out
belfry crontab import --system --apply --allow-users --dry-run
belfry crontab import --system --undo
belfry crontab import --system --scripts
belfry crontab import /etc/systemd/system/backup.timer -o yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return importCrontabs(cmd.Context(), env, ask, args)
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	f := cmd.Flags()
	addWord(f, &ask.user, "user", "u", "USER", "read the crontab of this user; for a FILE, the user who runs its commands")
	f.BoolVar(&ask.system, "system", false, "read the crontabs of the system")
	addChoice(cmd, &ask.format, "format", "", "format of the files; default: by their paths", crontab.Formats()...)
	addWord(f, &ask.zone, "tz", "", "ZONE", "time zone of the lines; default: the zone of this machine")
	addWord(f, &ask.host, "host", "", "NAME", "run the jobs only on the node of this host")
	f.BoolVar(&ask.scripts, "scripts", false, "make a job of each script in a run-parts folder")
	f.BoolVar(&ask.apply, "apply", false, "create and update the jobs on the server")
	f.BoolVar(&ask.skip, "skip-errors", false, "apply the other lines where some make no job")
	addWord(f, &ask.owner, "owner", "", "NAME", "mark of the jobs; default: crontab: and the user, system, or the files")
	f.BoolVar(&ask.prune, "prune", false, "with --apply, delete jobs of the owner whose lines are gone")
	f.BoolVarP(&ask.yes, "yes", "y", false, "delete without asking")
	f.BoolVar(&ask.dryRun, "dry-run", false, "with --apply or --undo, change nothing and show what would change")
	f.BoolVar(&ask.allowUsers, "allow-users", false, "with --apply, add the users that no node allows to shell.allow_users of --config, and stop there")
	addWord(f, &ask.config, "config", "c", "FILE", "configuration file of the server, for --allow-users; default: the file that the running server read, or "+packagedConfig)
	addWord(f, &ask.mailServer, "mail-server", "", "HOST:PORT", "mail failures to the addresses of MAILTO by this server: makes a channel for each")
	addWord(f, &ask.mailFrom, "mail-from", "", "ADDRESS", "sender of the mail; default: belfry at this host")
	f.BoolVar(&ask.undo, "undo", false, "restore the lines that --comment-out has commented out, and delete their jobs")
	f.BoolVar(&ask.commentOut, "comment-out", false, "with --apply, comment out the imported lines and keep a copy of each file")
	addConnection(cmd, &ask.connection)
	addOutput(cmd, &ask.output, asTable, asYAML, asJSON)
	return cmd
}

// cronTable is a file with lines to import.
type cronTable struct {
	name  string // as shown
	path  string // "" for standard input and for tables of crontab(1)
	user  string // owner of the crontab in crontab(1)
	text  string
	lines []crontab.Line
	read  func() []crontab.Line // from another scheduler; nil for a crontab
}

func importCrontabs(ctx context.Context, env Env, ask importFlags, files []string) error {
	switch {
	case ask.system && (len(files) > 0 || ask.user != ""):
		return misused("--system reads the crontabs of the system: leave out the files and -u")
	case ask.undo && (ask.apply || ask.prune || ask.commentOut || ask.allowUsers):
		return misused("--undo takes the import back: leave out --apply and its flags")
	case !ask.apply && (ask.prune || ask.commentOut || ask.skip || ask.allowUsers || ask.dryRun && !ask.undo):
		return misused("--prune, --comment-out, --skip-errors, --allow-users and --dry-run need --apply")
	case ask.config != "" && !ask.allowUsers:
		return misused("--config needs --allow-users")
	case ask.apply && ask.output == asYAML:
		return misused("-o yaml prints the jobs and --apply sends them: choose one")
	}
	tables, owner, err := tablesOf(ctx, env, ask, files)
	if err != nil {
		return err
	}
	if err := checkFormats(ask, tables); err != nil {
		return err
	}
	if err := ask.askForMail(env, tables); err != nil {
		return err
	}
	ask.owner = cmp.Or(ask.owner, owner)
	if ask.undo {
		return undoImport(ctx, env, ask, tables)
	}
	documents, bad := readTables(env, ask, tables)
	if !ask.apply {
		return showImport(env, ask, tables, documents, bad)
	}
	tellWrong(env, tables)
	if bad > 0 && !ask.skip {
		return failed("%s no job, and nothing was changed", ask.makes(bad)).withHint("--skip-errors imports the other lines")
	}
	if len(documents) == 0 && !ask.prune {
		f := failed("there is no line to import")
		for _, t := range tables {
			if _, marked := crontab.Restore(t.text); len(marked) > 0 {
				return f.withHint("its lines are commented out: --undo brings them back and deletes their jobs, and a new import makes these again")
			}
		}
		return f
	}
	return applyImport(ctx, env, ask, tables, documents)
}

// of counts what jobs are made of.
func (ask *importFlags) of(n int) string { return counted(n, cmp.Or(ask.unit, "line")) }

func (ask *importFlags) makes(n int) string {
	if n == 1 {
		return ask.of(n) + " makes"
	}
	return ask.of(n) + " make"
}

// readTables converts lines to documents, and counts the lines without one. Names are distinct over
// all tables, and a shared pool occurs once.
func readTables(env Env, ask importFlags, tables []cronTable) (documents []job.Document, bad int) {
	taken := map[string]bool{}
	for i := range tables {
		t := &tables[i]
		if t.read != nil {
			t.lines = t.read()
		} else {
			t.lines = crontab.Import(t.text, importOptions(env, ask, t))
		}
		for n := range t.lines {
			l := &t.lines[n]
			var rest []job.Document
			for _, d := range l.Documents {
				d.File, d.Line = t.name, l.Number
				if d.Job == nil && taken[string(d.Kind)+"/"+documentName(d)] {
					continue
				}
				if d.Job != nil {
					for base, n := d.Job.Name, 2; taken["job/"+d.Job.Name]; n++ {
						d.Job.Name = fmt.Sprintf("%s-%d", base, n)
					}
				}
				taken[string(d.Kind)+"/"+documentName(d)] = true
				if err := d.Validate(job.Now(env.Now())); err != nil {
					l.Problem = phrase.OfError(err)
				}
				l.Notes = append(l.Notes, t.notesOf(env, d)...)
				rest = append(rest, d)
			}
			if !l.Problem.IsZero() {
				l.Documents = nil
				bad++
				continue
			}
			l.Documents = rest
			documents = append(documents, rest...)
		}
	}
	return documents, bad
}

func documentName(d job.Document) string {
	switch {
	case d.Pool != nil:
		return d.Pool.Name
	case d.Channel != nil:
		return d.Channel.Name
	}
	return d.Job.Name
}

func importOptions(env Env, ask importFlags, t *cronTable) crontab.Options {
	opt := crontab.Options{
		MailServer: ask.mailServer, MailFrom: ask.mailFrom,
		Format: crontab.Format(ask.format), Owner: cmp.Or(t.user, ask.user), Zone: cmp.Or(ask.zone, machineZone(env.Getenv)), Host: ask.host,
		Home: func(name string) string {
			account, err := user.Lookup(name)
			if err != nil {
				return ""
			}
			return account.HomeDir
		},
	}
	if opt.Format == "" {
		opt.Format = crontab.FormatOf(t.path)
	}
	opt.Unknown = func(name string) bool {
		_, err := user.Lookup(name)
		var unknown user.UnknownUserError
		return errors.As(err, &unknown)
	}
	opt.Protected = slices.ContainsFunc(unitFiles, isThere)
	if opt.Format == crontab.Timer {
		opt.Unit = strings.TrimSuffix(filepath.Base(t.path), ".timer") + ".service"
	}
	if ask.scripts {
		opt.Scripts = scriptsIn
	}
	return opt
}

// notesOf returns the notes of a job of the table.
func (t *cronTable) notesOf(env Env, d job.Document) (notes []phrase.Text) {
	for _, w := range d.Warnings(job.Now(env.Now())) {
		notes = append(notes, phrase.OfError(job.Problems{w}))
	}
	if t.read == nil { // others run their jobs elsewhere
		notes = append(notes, missingOfLine(d)...)
	}
	return notes
}

// missingOfLine says which of HOME and SHELL of a line this machine lacks, so that its job fails here.
func missingOfLine(d job.Document) (texts []phrase.Text) {
	dir, program := missingHere(d)
	if dir != "" {
		texts = append(texts, phrase.NoHomeHere.Of(dir))
	}
	if program != "" {
		texts = append(texts, phrase.NoShellHere.Of(program))
	}
	return texts
}

// missingHere returns the working directory of a job and the path of its interpreter if this machine lacks
// them. What this user may not see counts as present.
func missingHere(d job.Document) (dir, program string) {
	if d.Job == nil {
		return "", ""
	}
	missing := func(path string) string {
		if _, err := os.Stat(path); !filepath.IsAbs(path) || !errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		return path
	}
	dir, program = d.Job.Run.NodePaths()
	return missing(dir), missing(program)
}

// askForMail asks on a terminal for the mail server if lines have MAILTO, and fills in the sender.
func (ask *importFlags) askForMail(env Env, tables []cronTable) error {
	if ask.apply && ask.mailServer == "" && !ask.undo && !ask.yes && env.StdinIsTerminal && env.StderrIsTerminal {
		to := ""
		for _, t := range tables {
			to = cmp.Or(to, crontab.MailTo(t.text))
		}
		if to != "" {
			env.tell("MAILTO is %s. Server that mails failures there, as HOST:PORT (empty: none): ", printable(to))
			answer, err := bufio.NewReader(env.Stdin).ReadString('\n')
			if err != nil && answer == "" {
				return failed("cancelled; nothing was changed")
			}
			ask.mailServer = strings.TrimSpace(answer)
		}
	}
	switch {
	case ask.mailServer == "" && ask.mailFrom != "":
		return misused("--mail-from needs --mail-server")
	case ask.mailServer == "" || ask.mailFrom != "":
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return misused("--mail-from is missing: the name of this host is not known: %v", err)
	}
	ask.mailFrom = "belfry@" + host
	return nil
}

// unitFiles are the paths of a server's unit, whose protections also apply to its commands.
var unitFiles = []string{"/etc/systemd/system/belfry.service", "/usr/lib/systemd/system/belfry.service", "/lib/systemd/system/belfry.service"}

// checkFormats refuses a file that is probably a system crontab under another name: its users would
// become commands.
func checkFormats(ask importFlags, tables []cronTable) error {
	isUser := func(name string) bool {
		_, err := user.Lookup(name)
		return name == "root" || err == nil
	}
	isProgram := func(name string) bool {
		_, err := exec.LookPath(name)
		return err == nil
	}
	for _, t := range tables {
		if ask.format == "" && ask.user == "" && t.user == "" && crontab.FormatOf(t.path) == crontab.User && crontab.HasUserColumn(t.text, isUser, isProgram) {
			return misused("%s: its lines have users before their commands, as a system crontab has", t.name).
				withHint("--format system reads it as one; --format user reads these words as commands")
		}
	}
	return nil
}

// scriptsIn returns the scripts that run-parts executes in a folder.
func scriptsIn(folder string) []string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	list := []string{}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(folder, e.Name()))
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && crontab.IsScript(e.Name()) {
			list = append(list, e.Name())
		}
	}
	return list
}

// systemTables are the crontabs of the system. A folder includes the files whose names cron
// accepts.
var systemTables = []string{"/etc/crontab", "/etc/cron.d", "/etc/anacrontab"}

// tablesOf reads the tables to import, and returns the owner that its jobs get.
func tablesOf(ctx context.Context, env Env, ask importFlags, files []string) (tables []cronTable, owner string, err error) {
	switch {
	case ask.system:
		for _, path := range systemTables {
			if tables, err = appendTables(tables, path); err != nil {
				return nil, "", err
			}
		}
		if len(tables) == 0 {
			return nil, "", failed("this machine has none of %s", strings.Join(systemTables, ", "))
		}
		return tables, "crontab:system", nil
	case len(files) == 0:
		t, err := crontabOf(ctx, ask.user)
		return []cronTable{t}, "crontab:" + t.user, err
	}
	for _, file := range files {
		t := cronTable{name: file, path: env.path(file)}
		if file == "-" {
			t.name, t.path = "<stdin>", ""
		}
		if t.text, err = readTable(env, file); err != nil {
			return nil, "", err
		}
		tables = append(tables, t)
	}
	slices.Sort(files)
	owner = "crontab:" + strings.Join(files, ",")
	if len(owner) > ownerMax {
		return nil, "", misused("--owner is missing: the names of the files are too long for a mark")
	}
	return tables, owner, nil
}

// ownerMax is the longest owner mark that the API accepts.
const ownerMax = 128

// appendTables adds a file, or the files of a folder like cron. It skips missing ones.
func appendTables(tables []cronTable, path string) ([]cronTable, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return tables, nil
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	paths := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, unreadable(path, err)
		}
		paths = nil
		for _, e := range entries {
			if crontab.IsScript(e.Name()) && !e.IsDir() {
				paths = append(paths, filepath.Join(path, e.Name()))
			}
		}
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, unreadable(p, err)
		}
		tables = append(tables, cronTable{name: p, path: p, text: string(data)})
	}
	return tables, nil
}

// tableMax bounds a crontab; cron refuses far shorter ones.
const tableMax = 4 << 20

func readTable(env Env, file string) (string, error) {
	source := env.Stdin
	if file != "-" {
		opened, err := os.Open(env.path(file))
		if err != nil {
			return "", unreadable(file, err)
		}
		defer opened.Close()
		if info, err := opened.Stat(); err == nil && info.IsDir() {
			return "", misused("%s is a folder", file).withHint("name the files in it")
		}
		source = opened
	}
	data, err := io.ReadAll(io.LimitReader(source, tableMax+1))
	if err != nil {
		return "", unreadable(file, err)
	}
	if len(data) > tableMax {
		return "", failed("%s has more than %d MiB", file, tableMax>>20)
	}
	return string(data), nil
}

// crontabOf reads the table of a user from crontab(1); "" is the present one.
func crontabOf(ctx context.Context, name string) (cronTable, error) {
	args := []string{"-l"}
	if name != "" {
		args = append(args, "-u", name)
	} else if account, err := user.Current(); err == nil {
		name = account.Username
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "crontab", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return cronTable{}, failed("this machine has no crontab command").withHint("name the files to import")
	}
	if err != nil {
		return cronTable{}, failed("crontab -l: %s", cmp.Or(strings.TrimSpace(stderr.String()), err.Error()))
	}
	return cronTable{name: "crontab of " + name, user: name, text: string(out)}, nil
}

func showImport(env Env, ask importFlags, tables []cronTable, documents []job.Document, bad int) error {
	var b bytes.Buffer
	switch ask.output {
	case asYAML:
		if err := job.Encode(&b, documents, job.YAML); err != nil {
			return err
		}
	case asJSON:
		if err := encodeJSON(&b, importList(tables)); err != nil {
			return err
		}
	default:
		importText(&b, styleFor(env, env.StdoutIsTerminal), tables)
	}
	if err := write(env, b.Bytes()); err != nil {
		return err
	}
	if ask.output == asYAML && bad > 0 {
		tellWrong(env, tables)
	}
	if bad > 0 {
		return failed("%s no job", ask.makes(bad))
	}
	if ask.output == asTable {
		if ask.losesMail(tables) {
			env.tell("--mail-server HOST:PORT mails failures to the addresses of MAILTO.\n")
		}
		env.tell("Nothing was written. --apply creates the jobs.\n")
	}
	return nil
}

// losesMail reports whether cron mails output of the lines and nothing will.
func (ask *importFlags) losesMail(tables []cronTable) bool {
	return ask.still == "" && ask.mailServer == "" && slices.ContainsFunc(tables, func(t cronTable) bool { return crontab.MailTo(t.text) != "" })
}

// importedLine is a line as -o json prints it.
type importedLine struct {
	File        string         `json:"file"`
	Line        int            `json:"line"`
	Text        string         `json:"text"`
	Jobs        []string       `json:"jobs"`
	Notes       []importNote   `json:"notes"`
	Problem     string         `json:"problem"`
	ProblemCode string         `json:"problem_code,omitempty"`
	ProblemArgs map[string]any `json:"problem_args,omitempty"`
}

// importNote is a note of an import as -o json prints it: in English, and as a code with arguments.
type importNote struct {
	Field string         `json:"field,omitempty"`
	Text  string         `json:"text"`
	Code  string         `json:"code"`
	Args  map[string]any `json:"args,omitempty"`
}

func noteOf(field string, text phrase.Text) importNote {
	return importNote{field, text.String(), text.Code(), text.Args()}
}

func importList(tables []cronTable) any {
	items := []importedLine{}
	for _, t := range tables {
		for _, l := range t.lines {
			item := importedLine{File: t.name, Line: l.Number, Text: l.Text, Jobs: []string{}, Notes: []importNote{}, Problem: l.Problem.String(), ProblemCode: l.Problem.Code(), ProblemArgs: l.Problem.Args()}
			for _, note := range l.Notes {
				item.Notes = append(item.Notes, noteOf("", note))
			}
			for _, d := range l.Documents {
				if d.Job != nil {
					item.Jobs = append(item.Jobs, d.Job.FullName())
				}
			}
			items = append(items, item)
		}
	}
	return struct {
		Items []importedLine `json:"items"`
	}{items}
}

// tellWrong names the lines that make no job.
func tellWrong(env Env, tables []cronTable) {
	for _, t := range tables {
		for _, l := range t.lines {
			text := l.Problem.String()
			if t.read != nil { // a list may have all on one line
				text = l.Text + ": " + text
			}
			if !l.Problem.IsZero() {
				env.tell("%s:%d: %s\n", printable(t.name), l.Number, printable(text))
			}
		}
	}
}

// importText writes the result of each line for people.
func importText(w io.Writer, s style, tables []cronTable) {
	for _, t := range tables {
		fmt.Fprintln(w, s.strong(printable(t.name)))
		lines := map[string]int{} // by their note
		for _, l := range t.lines {
			for _, note := range l.Notes {
				lines[note.String()]++
			}
		}
		for _, l := range t.lines {
			fmt.Fprintf(w, "%4d  %s\n", l.Number, s.faint(oneLine(strings.TrimSpace(l.Text))))
			for _, d := range l.Documents {
				switch {
				case d.Job != nil:
					fmt.Fprintf(w, "      -> %s  %s\n", d.Job.FullName(), scheduleInWords(d.Job))
				case d.Channel != nil:
					fmt.Fprintf(w, "      -> channel %s  mail to %s\n", d.Channel.FullName(), strings.Join(d.Channel.To.Mail.To, ", "))
				}
			}
			for _, note := range l.Notes {
				text := note.String()
				switch n := lines[text]; n {
				case 0: // said
				case 1:
					fmt.Fprintf(w, "      note: %s\n", printable(text))
				default:
					fmt.Fprintf(w, "      note: %s (here and on %s)\n", printable(text), counted(n-1, "more line"))
					lines[text] = 0
				}
			}
			if !l.Problem.IsZero() {
				fmt.Fprintf(w, "      %s\n", s.wrong("no job: "+printable(l.Problem.String())))
			}
		}
	}
}

// scheduleInWords describes when an imported job is due, where and as whom.
func scheduleInWords(j *job.Job) string {
	var parts []string
	switch sch := &j.Schedule; {
	case sch.Boot:
		parts = append(parts, "at the start of the node")
	case sch.Every > 0:
		parts = append(parts, "every "+sch.Every.String())
	case sch.AfterEnd > 0:
		parts = append(parts, sch.AfterEnd.String()+" after the last run ended")
	case len(sch.On) > 0:
		parts = append(parts, "after "+sch.On[0].Job)
	case len(sch.At) > 0:
		parts = append(parts, "at "+sch.At[0].Format(time.RFC3339))
	case len(sch.Cron) == 0:
		parts = append(parts, "by hand")
	default:
		words := describeCron(j)
		if len(sch.Only) > 0 {
			words += ", only " + strings.Join(sch.Only, ", ")
		}
		parts = append(parts, words, cmp.Or(sch.Timezone, "the zone of the server"))
	}
	if work := workInWords(j); work != "" {
		parts = append(parts, work)
	}
	if j.Paused {
		parts = append(parts, "paused")
	}
	return strings.Join(parts, ", ")
}

// describeCron describes when a cron schedule is due.
func describeCron(j *job.Job) string {
	var words []string
	for _, text := range j.Schedule.Cron {
		e, err := cron.Parse(text, cron.WithDialect(j.Schedule.Dialect.Grammar()), cron.WithJob(j.Namespace, j.Name))
		if err != nil {
			return strings.Join(j.Schedule.Cron, ", ")
		}
		words = append(words, e.Describe(cron.English))
	}
	return strings.Join(words, "; ")
}

// crontabExportFlags are the flags of belfry crontab export.
type crontabExportFlags struct {
	connection config.Asked
	all        bool
	labels     map[string]string
	system     bool
}

func newCrontabExport(env Env) *cobra.Command {
	var ask crontabExportFlags
	cmd := &cobra.Command{
		Use:   "export [flags]",
		Short: "Print jobs as a crontab",
		Long: `Print jobs as crontab lines for cronie. What a crontab lacks, such as retries or
intervals of seconds, is lost; a job that a crontab cannot express becomes a comment
with the reason.`,
		Example: `belfry crontab export > crontab.txt
belfry crontab export --system -n web`,
		Args: noArguments,
		RunE: asking(env, &ask.connection, func(ctx context.Context, server *remote, _ []string) error {
			return exportCrontab(ctx, server, ask)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&ask.system, "system", false, "write a system crontab, with the user before each command")
	f.VarP((*labels)(&ask.labels), "label", "l", "only jobs with this label: KEY=VALUE; may be repeated")
	addConnection(cmd, &ask.connection)
	addAll(cmd, &ask.all)
	return cmd
}

func exportCrontab(ctx context.Context, server *remote, ask crontabExportFlags) error {
	query := client.JobQuery{Namespace: server.listNamespace(ask.all), Labels: ask.labels, PageSize: pageSize}
	var jobs []*job.Job
	for {
		page, err := server.Jobs(ctx, query)
		if err != nil {
			return err
		}
		documents, err := exported(server, nil, page.Items, job.KindJob, nil)
		if err != nil {
			return err
		}
		for _, d := range documents {
			jobs = append(jobs, d.Job)
		}
		if query.PageToken = page.NextPageToken; query.PageToken == "" {
			break
		}
	}
	format := crontab.User
	if ask.system {
		format = crontab.System
	}
	return write(server.env, []byte(crontab.Export(jobs, format, job.Defaults{})))
}
