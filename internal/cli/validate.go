package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/sys/parallel"
	"github.com/belfry-cron/belfry/job"
)

// fileMax bounds a file of documents: ten thousand jobs of a kilobyte each, and
// no surprise for the memory when a disk image is named.
const fileMax = 16 << 20

func newValidate(env Env) *cobra.Command {
	var (
		names     []string
		recursive bool
		output    string
		graph     string
		asked     config.Asked
	)
	cmd := &cobra.Command{
		Use:   "validate -f FILE|FOLDER|- [flags]",
		Short: "Check job files for mistakes",
		Long: `Find all mistakes in job files, with their place and a correction, without a server.
-o yaml and json print valid documents with all defaults; --graph draws the steps of
flows: as text, or for Mermaid or Graphviz.

With --server, --context or --data the server checks valid files as well, and changes
nothing: calendars, and whether a live node may run each job.

The exit code is 1 for a file with mistakes, and 2 for a wrong command line.`,
		Example: `belfry validate -f jobs.yaml
belfry validate -f jobs/ -R              # with all folders inside
belfry validate -f jobs.yaml --server http://127.0.0.1:8420
belfry validate -f jobs.yaml -o yaml     # with every default filled in
belfry validate -f flow.yaml --graph dot | dot -Tsvg > flow.svg
generate-jobs | belfry validate -f -`,
		Args: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(names) == 0 {
				return misused("nothing to validate: -f is missing").withHint("name a file, a folder, or - for standard input")
			}
			if graph != "" && !slices.Contains(flow.Drawings(), graph) {
				return misused("--graph %q: want %s", graph, strings.Join(flow.Drawings(), ", "))
			}
			var warnings client.Applied
			if asked != (config.Asked{Namespace: asked.Namespace}) {
				var err error
				if warnings, err = validateOn(cmd.Context(), env, sources{connection: asked, files: names, recursive: recursive}); err != nil {
					return err
				}
			}
			if err := validate(env, names, recursive, output, flow.Drawing(graph)); err != nil {
				return err
			}
			warn(env, warnings)
			return nil
		},
	}
	addFiles(cmd, &names, &recursive)
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	cmd.Flags().StringVar(&graph, "graph", "", "draw the steps of flows as `FORM` in place of documents: "+strings.Join(flow.Drawings(), ", "))
	if err := cmd.RegisterFlagCompletionFunc("graph", cobra.FixedCompletions(flow.Drawings(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag does not exist
	}
	return cmd
}

// addFiles adds the flags for the documents to read.
func addFiles(cmd *cobra.Command, names *[]string, recursive *bool) {
	f := cmd.Flags()
	f.VarP((*fileNames)(names), "file", "f", "file or folder to read, - for standard input; may be repeated")
	f.BoolVarP(recursive, "recursive", "R", false, "read folders inside folders, too")
	if err := cmd.MarkFlagFilename("file", "yaml", "yml", "json"); err != nil {
		panic(err) // the flag does not exist
	}
}

// noFiles refuses files that are named without -f.
func noFiles(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return misused("unexpected %q", args[0]).withHint("name files with -f: %s -f %s", cmd.CommandPath(), args[0])
	}
	return nil
}

// fileNames is a repeatable flag. Commas are part of a name.
type fileNames []string

// Set is called by the flag library.
func (n *fileNames) Set(text string) error {
	if text == "" {
		return errors.New("a name is missing")
	}
	*n = append(*n, text)
	return nil
}

// String is called by the flag library.
func (n *fileNames) String() string { return strings.Join(*n, " ") }

// Type is called by the flag library.
func (n *fileNames) Type() string { return "NAME" }

// validation is the result of belfry validate.
type validation struct {
	documents []job.Document
	problems  job.Problems
	remarks   []string // unchecked parts
	imported  bool     // the documents have no text of their own, so that mistakes need their names
}

// readFiles reads the named files.
func readFiles(env Env, names []string, recursive bool) (*validation, error) {
	v := &validation{}
	for _, name := range names {
		files, err := filesOf(env, name, recursive)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := v.read(env, file); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// draw draws the flows among the documents.
func (v *validation) draw(as flow.Drawing) []byte {
	var b bytes.Buffer
	if len(v.problems) > 0 {
		return nil // a cycle has no layers
	}
	for _, d := range v.documents {
		if d.Job != nil {
			b.WriteString(flow.Draw(d.Job, as))
		}
	}
	return b.Bytes()
}

func validate(env Env, names []string, recursive bool, output string, graph flow.Drawing) error {
	v, err := readFiles(env, names, recursive)
	if err != nil {
		return err
	}
	v.judge(env.Now())

	data, err := v.render(output)
	if graph != "" {
		data, err = v.draw(graph), nil
	}
	if err != nil {
		return err
	}
	if err := write(env, data); err != nil {
		return err
	}
	for _, remark := range v.remarks {
		env.tell("%s\n", printable(remark))
	}
	tellProblems(env, v.problems)
	if n := len(v.problems); n > 0 {
		return failed("%s in %s", counted(n, "mistake"), counted(len(v.wrongFiles()), "file"))
	}
	return nil
}

// validateOn lets a server check files.
func validateOn(ctx context.Context, env Env, ask sources) (client.Applied, error) {
	v, server, request, err := ask.request(ctx, env)
	if err != nil {
		return client.Applied{}, err
	}
	request.DryRun = true
	applied, err := server.Apply(ctx, request)
	if err == nil && server.local {
		warnOfMissing(v.documents, applied)
	}
	return applied, v.placed(server.env, server.refused(err))
}

// warnOfMissing adds warnings of working directories and interpreters that this machine lacks.
func warnOfMissing(documents []job.Document, applied client.Applied) {
	for i, d := range documents { // deletions follow
		dir, program := missingHere(d)
		if dir != "" {
			applied.Results[i].Warnings = append(applied.Results[i].Warnings, phrase.NoDirHere.Of(dir).String())
		}
		if program != "" {
			applied.Results[i].Warnings = append(applied.Results[i].Warnings, phrase.NoProgramHere.Of(program).String())
		}
	}
}

// tellProblems writes problems, a line each.
func tellProblems(env Env, problems job.Problems) {
	for _, p := range problems {
		env.tell("%s\n", printable(p.Error()))
	}
}

// counted returns a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// filesOf returns the files of a name.
func filesOf(env Env, name string, recursive bool) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(env.path(name))
	if err != nil {
		return nil, unreadable(name, err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var files []string
	folder := os.DirFS(env.path(name))
	err = fs.WalkDir(folder, ".", func(inside string, entry fs.DirEntry, err error) error {
		file := filepath.Join(name, filepath.FromSlash(inside))
		switch {
		case err != nil:
			return unreadable(file, err)
		case inside == ".":
			return nil
		case strings.HasPrefix(entry.Name(), "."), entry.IsDir() && !recursive:
			if entry.IsDir() {
				return fs.SkipDir
			}
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) && !entry.IsDir() && entry.Type()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDevice) == 0:
			// A pipe in the folder may never have a writer.
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		f := misused("%s: the folder has no .yaml, .yml or .json files", name)
		if !recursive {
			f = f.withHint("-R reads the folders inside it, too")
		}
		return nil, f
	}
	return files, nil
}

// unreadable is the failure for a file that cannot be read. A missing file is a mistake in the
// command line.
func unreadable(name string, err error) *failure {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	f := failed("%s: %v", name, err)
	if errors.Is(err, fs.ErrNotExist) {
		f.code = ExitUsage
	}
	return f
}

// read adds the documents of a file.
func (v *validation) read(env Env, file string) error {
	shown, source := file, env.Stdin
	if file == "-" {
		shown = "<stdin>"
	} else {
		opened, err := env.open(file)
		if err != nil {
			return unreadable(file, err)
		}
		defer opened.Close()
		source = opened
	}
	data, err := io.ReadAll(io.LimitReader(source, fileMax+1))
	if err != nil {
		return unreadable(shown, err)
	}
	if len(data) > fileMax {
		return failed("%s: a job file has at most %d MiB", shown, fileMax>>20)
	}
	documents, err := job.DecodeInParts(shown, data, func(n int, do func(i int)) { parallel.Each(n, 1, do) })
	if err := v.note(err); err != nil {
		return err
	}
	if err == nil && len(documents) == 0 {
		v.problems = append(v.problems, reason.Problem(job.Problem{File: shown}, phrase.FileEmpty))
	}
	err = job.InlineCalendars(documents, func(name string) (io.ReadCloser, error) { return env.open(name) })
	v.documents = append(v.documents, documents...)
	return v.note(err)
}

// note keeps problems, and returns other errors.
func (v *validation) note(err error) error {
	var problems job.Problems
	if errors.As(err, &problems) {
		v.problems = append(v.problems, problems...)
		return nil
	}
	return err
}

// judge searches the documents for mistakes.
func (v *validation) judge(now time.Time) {
	type identity struct {
		kind job.Kind
		name string
	}
	first := map[identity]job.Document{}
	for _, d := range v.documents {
		id := identity{d.Kind, d.FullName()}
		if before, twice := first[id]; twice && d.IsNamed() {
			v.problems = append(v.problems, reason.Problem(job.Problem{File: d.File, Line: d.Line, Column: 1, Path: "name"},
				phrase.DefinedTwice.Of(string(d.Kind), d.FullName()), phrase.FirstIsAt.Of(fmt.Sprintf("%s:%d", before.File, before.Line))))
			continue
		}
		first[id] = d
	}
	for _, d := range v.documents {
		var absent []string
		calendars := func(namespace, name string) *job.Calendar {
			found, ok := first[identity{job.KindCalendar, namespace + "/" + name}]
			if !ok {
				absent = append(absent, namespace+"/"+name)
			}
			return found.Calendar
		}
		err := d.Validate(job.Now(now), job.Among(calendars))
		if len(absent) > 0 {
			// The server may have what these files have not.
			err = d.Validate(job.Now(now))
			slices.Sort(absent)
			for _, name := range slices.Compact(absent) {
				v.remarks = append(v.remarks, fmt.Sprintf("note: %s:%d:1: job %s names the calendar %s, which is not in these files and was not checked", d.File, d.Line, d.FullName(), name))
			}
		}
		// Validate only returns problems.
		_ = v.note(err)
		if err == nil {
			for _, w := range d.Warnings(job.Now(now)) {
				v.remarks = append(v.remarks, "warning: "+w.Error())
			}
		}
	}
	slices.SortStableFunc(v.problems, func(a, b job.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// wrongFiles returns the files with mistakes.
func (v *validation) wrongFiles() map[string]bool {
	files := map[string]bool{}
	for _, p := range v.problems {
		files[p.File] = true
	}
	return files
}

// render returns the answer for stdout. It has all documents or none, so that a pipe never applies
// half of them.
func (v *validation) render(output string) ([]byte, error) {
	var b bytes.Buffer
	if output == asTable {
		for _, d := range v.documents {
			if !slices.ContainsFunc(v.problems, func(p job.Problem) bool { return p.File == d.File }) {
				fmt.Fprintf(&b, "%s:%d: %s %s: ok\n", printable(d.File), d.Line, d.Kind, d.FullName())
			}
		}
		return b.Bytes(), nil
	}
	var documents []job.Document
	if len(v.problems) == 0 {
		for _, d := range v.documents {
			documents = append(documents, withDefaults(d))
		}
	}
	switch output {
	case asYAML:
		err := job.Encode(&b, documents, job.YAML)
		return b.Bytes(), err
	case asName:
		for _, d := range documents {
			fmt.Fprintf(&b, "%s/%s\n", d.Kind, d.FullName())
		}
		return b.Bytes(), nil
	}
	items := []json.RawMessage{}
	for _, d := range documents {
		var one bytes.Buffer
		if err := job.Encode(&one, []job.Document{d}, job.JSON); err != nil {
			return nil, err
		}
		items = append(items, bytes.TrimSpace(one.Bytes()))
	}
	if output == asJSONL {
		for _, item := range items {
			if err := encodeJSONLine(&b, item); err != nil {
				return nil, err
			}
		}
		return b.Bytes(), nil
	}
	problems := []problem{}
	for _, p := range v.problems {
		shown := problem{File: p.File, Line: p.Line, Column: p.Column, Path: p.Path, Message: p.Message.String(), Hint: p.Hint.String()}
		shown.Code, shown.Args = p.Message.For()
		shown.HintCode, shown.HintArgs = p.Hint.For()
		problems = append(problems, shown)
	}
	err := encodeJSON(&b, struct {
		Items    []json.RawMessage `json:"items"`
		Problems []problem         `json:"problems"`
	}{items, problems})
	return b.Bytes(), err
}

// problem is a [job.Problem] as -o json prints it.
type problem struct {
	File     string          `json:"file"`
	Line     int             `json:"line"`
	Column   int             `json:"column"`
	Path     string          `json:"path"`
	Message  string          `json:"message"`
	Code     string          `json:"code"`
	Args     *job.ReasonArgs `json:"args,omitempty"`
	Hint     string          `json:"hint"`
	HintCode string          `json:"hint_code,omitempty"`
	HintArgs *job.ReasonArgs `json:"hint_args,omitempty"`
}

// withDefaults fills in the defaults of a server without settings.
func withDefaults(d job.Document) job.Document {
	if d.Job != nil {
		d.Job = d.Job.WithDefaults(job.Defaults{})
	}
	return d
}
