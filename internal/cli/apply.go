package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/sys/parallel"
	"github.com/belfry-cron/belfry/job"
)

// applyFlags are the flags of belfry apply.
type applyFlags struct {
	sources
	dryRun string
	yes    bool
	output string
	run    bool
	runs   waiting // for what --run starts
	watch  bool
}

// checkRun refuses flags that contradict --run.
func (ask *applyFlags) checkRun() error {
	switch {
	case !ask.run && (ask.runs.wait || ask.runs.timeout != 0):
		return misused("--wait and --timeout are for --run")
	case ask.run && ask.dryRun != "":
		return misused("give --run or --dry-run, not both")
	case ask.run && ask.output != asTable:
		return misused("--run shows its runs as text, after what was applied: leave out --output").withHint("belfry job run NAME -o %s runs a job that is applied", ask.output)
	}
	return nil
}

// sources are the files that a command compares with a server, and whose they are.
type sources struct {
	connection config.Asked
	files      []string
	recursive  bool
	owner      string
	prune      bool
}

// check refuses incomplete flags. purpose is the use of the files.
func (ask *sources) check(purpose string) error {
	if len(ask.files) == 0 {
		return misused("nothing to %s: -f is missing", purpose).withHint("name a file, a folder, or - for standard input")
	}
	if ask.prune && ask.owner == "" {
		return misused("--prune needs --owner")
	}
	return nil
}

// request reads the files, and makes the request to the server.
func (ask *sources) request(ctx context.Context, env Env) (*validation, *remote, client.Apply, error) {
	v, err := readAll(ctx, env, ask.files, ask.recursive, ask.connection)
	if err != nil {
		return nil, nil, client.Apply{}, err
	}
	server, err := connect(env, ask.connection)
	if err != nil {
		return nil, nil, client.Apply{}, err
	}
	request, err := v.request(server.namespace)
	request.Owner, request.Prune = ask.owner, ask.prune
	return v, server, request, err
}

func newApply(env Env) *cobra.Command {
	var ask applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE|FOLDER|- [flags]",
		Short: "Create or update jobs to match the files",
		Long: `Create or update jobs, calendars, pools, channels and executors to match the files.
All of them are checked before the first is written.

A paused job stays paused unless its file says paused: false. --owner marks the
jobs as belonging to these files, and --prune deletes jobs with that mark which
are no longer in the files. --run then runs each job of the files once, whether it
was created, changed or left as it was.

--watch stays, and applies the files again when they change: a folder that git-sync,
rsync or a ConfigMap keeps up to date. It waits until two readings, 3 s apart, are the
same. If the files have a mistake or are gone, it says so and the jobs stay as they are.
It deletes without asking, and leaves alone what is changed on the server meanwhile.`,
		Example: `belfry apply -f jobs.yaml
belfry apply -f jobs/ -R --dry-run=server        # what would change
belfry apply -f jobs/ --owner team-a --prune
belfry apply -f backup.yaml --run --wait         # and run its job now
belfry apply -f jobs/ --owner team-a --prune --watch
generate-jobs | belfry apply -f -`,
		Args: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(ask.check("apply"), ask.checkRun(), ask.checkWatch()); err != nil {
				return err
			}
			if ask.watch {
				return watch(cmd, env, ask, watchEvery)
			}
			return apply(cmd.Context(), env, ask)
		},
	}
	addFiles(cmd, &ask.files, &ask.recursive)
	f := cmd.Flags()
	addWord(f, &ask.owner, "owner", "", "NAME", "owner of the files; jobs are marked with it")
	f.BoolVar(&ask.prune, "prune", false, "delete jobs of the owner that are not in the files")
	addChoice(cmd, &ask.dryRun, "dry-run", "", "change nothing: check the files locally, or show what the server would do", "client", "server")
	f.BoolVarP(&ask.yes, "yes", "y", false, "delete without asking")
	f.BoolVar(&ask.run, "run", false, "then run each job of the files now")
	f.BoolVarP(&ask.runs.wait, "wait", "w", false, "with --run: wait until the runs have ended; exit code 8 if one does not succeed")
	addText(f, &ask.runs.timeout, "timeout", "", "", "DURATION", "with --wait: how long to wait for each run; exit code 7 after that, while it continues")
	f.BoolVar(&ask.watch, "watch", false, "stay, and apply the files again when they change")
	addConnection(cmd, &ask.connection)
	addOutput(cmd, &ask.output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// gcPercent is the memory overhead of applying, in percent: nearly all data is needed to
// the end, so that garbage collection at the default of 100 would be a fifth of the work.
const gcPercent = 400

func apply(ctx context.Context, env Env, ask applyFlags) error {
	if ask.dryRun == "client" {
		return validate(env, ask.files, ask.recursive, ask.output, "")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	v, server, request, err := ask.request(ctx, env)
	if err != nil {
		return err
	}
	request.DryRun = ask.dryRun == "server"
	if ask.prune && !request.DryRun && !ask.yes {
		if err := agreeToPrune(ctx, server, request); err != nil {
			return v.placed(server.env, server.refused(err))
		}
	}
	applied, err := server.applyAll(ctx, request)
	if err != nil {
		return v.placed(server.env, server.refused(err))
	}
	if server.local {
		warnOfMissing(v.documents, applied)
	}
	warn(env, applied)
	if err := showList(env, ask.output, applied.Results, "", resultName, func(w io.Writer) { applyText(w, env, applied) }); err != nil || !ask.run {
		return err
	}
	return server.refused(runApplied(ctx, server, ask.runs, applied))
}

// runApplied runs each job that was applied, and waits for the ends if that is wanted.
func runApplied(ctx context.Context, server *remote, ask waiting, applied client.Applied) error {
	var runs []client.Run
	var names []string
	for _, r := range applied.Results {
		if r.Kind != job.KindJob || r.Result == client.Deleted {
			continue
		}
		namespace, name, _ := strings.Cut(r.Name, "/")
		run, err := server.once(ctx, "", func(ctx context.Context, key string) (client.Run, error) {
			return server.RunJob(ctx, namespace, name, client.RunRequest{}, key)
		})
		if err != nil {
			return server.partly(err, "run", names)
		}
		runs, names = append(runs, run), append(names, r.Name)
	}
	ask.output = asTable
	var wrong error
	for i := range runs {
		wrong = cmp.Or(wrong, showMade(ctx, server, ask, runs[i]))
	}
	return wrong
}

// applyAll applies documents. If the connection breaks before the answer, it repeats the request,
// which has no further effect.
func (r *remote) applyAll(ctx context.Context, request client.Apply) (applied client.Applied, err error) {
	if applied, err = r.Apply(ctx, request); !broken(err) {
		return applied, err
	}
	r.env.tell("%v; retrying\n", err)
	err = r.patient(ctx, func() (err error) { applied, err = r.Apply(ctx, request); return err })
	if errors.Is(err, client.ErrUnreachable) {
		f := &failure{code: ExitUnreachable, message: fmt.Sprintf("some of %s may not be applied: %v", counted(len(request.Documents), "document"), err)}
		return applied, f.withHint("belfry diff shows which, when the server is back; applying again does the rest")
	}
	return applied, err
}

// broken reports whether a request may have reached a server that has not answered.
func broken(err error) bool {
	var untrusted *tls.CertificateVerificationError
	var op *net.OpError
	return errors.Is(err, client.ErrUnreachable) && !errors.As(err, &untrusted) && (!errors.As(err, &op) || op.Op != "dial")
}

// warn prints warnings about the applied documents.
func warn(env Env, applied client.Applied) {
	var notes remarks
	for _, r := range applied.Results {
		for _, warning := range r.Warnings {
			notes.add("warning: ", resultName(r), ": "+printable(warning))
		}
	}
	notes.tell(env)
}

// remarks groups messages, so that one about many places is shown once.
type remarks struct {
	order  [][2]string
	places map[[2]string][]string
}

// add adds a message, which is before, place and after.
func (r *remarks) add(before, place, after string) {
	key := [2]string{before, after}
	if r.places == nil {
		r.places = map[[2]string][]string{}
	}
	if r.places[key] == nil {
		r.order = append(r.order, key)
	}
	r.places[key] = append(r.places[key], place)
}

func (r *remarks) tell(env Env) {
	var output bytes.Buffer
	for _, key := range r.order {
		fmt.Fprintf(&output, "%s%s%s\n", key[0], shortList(r.places[key]), key[1])
	}
	env.tell("%s", output.Bytes())
}

// request returns the request that applies the documents.
func (v *validation) request(namespace string) (client.Apply, error) {
	const together = 64 // documents worth a goroutine
	request := client.Apply{Documents: make([]client.Document, len(v.documents))}
	failures := make([]error, len(v.documents))
	parallel.Each(len(v.documents), together, func(i int) {
		d, sent := v.documents[i], &request.Documents[i]
		d.PutIn(namespace)
		if *sent, failures[i] = client.DocumentOf(d); failures[i] != nil {
			return
		}
		if d.Job != nil && !d.Job.Paused && d.Says("paused") {
			sent.RawMessage = append([]byte(`{"paused":false,`), sent.RawMessage[1:]...)
		}
	})
	for i, err := range failures {
		if err != nil {
			return request, failed("%s:%d: %v", v.documents[i].File, v.documents[i].Line, err)
		}
	}
	return request, nil
}

// readAll reads files like validate. It reports all mistakes that do not need a server to be found.
func readAll(ctx context.Context, env Env, names []string, recursive bool, asked config.Asked) (*validation, error) {
	v, err := readFiles(env, names, recursive)
	if err != nil || len(v.problems) == 0 {
		return v, err
	}
	v.judge(env.Now()) // so that all mistakes are reported at once
	return nil, v.mistaken(env, v.askAboutTheRest(ctx, env, asked))
}

// mistaken reports the mistakes in files, and those that only a server has found, in documents
// without others.
func (v *validation) mistaken(env Env, found []client.FieldError) error {
	wrong, n := v.wrongFiles(), len(v.problems)
	tellProblems(env, v.problems)
	for _, e := range found {
		if i, pointer, ok := v.documentAt(e.Pointer); ok && !v.isWrong(i) {
			wrong[v.documents[i].File] = true
			env.tell("%s: %s\n", printable(v.documents[i].Place(pointer)), printable(e.String()))
			n++
		}
	}
	return failed("%s in %s; nothing was changed", counted(n, "mistake"), counted(len(wrong), "file"))
}

// askAboutTheRest returns mistakes that a server finds, such as unknown calendars. Without an answer
// it returns none.
func (v *validation) askAboutTheRest(ctx context.Context, env Env, asked config.Asked) []client.FieldError {
	server, err := connect(env, asked)
	if err != nil {
		return nil
	}
	request, err := v.request(server.namespace)
	if err != nil {
		return nil
	}
	request.DryRun = true
	var refused *client.Problem
	if _, err = server.Apply(ctx, request); !errors.As(err, &refused) {
		return nil
	}
	return refused.Errors
}

// documentAt returns which document a pointer into a request is about, and where it
// leads in that.
func (v *validation) documentAt(pointer string) (document int, rest string, ok bool) {
	m := documentPlace.FindStringSubmatch(pointer)
	if m == nil {
		return 0, "", false
	}
	i, err := strconv.Atoi(m[1])
	return i, strings.TrimPrefix(pointer, m[0]), err == nil && i < len(v.documents)
}

// isWrong reports whether the lines of a document have mistakes, which are in order.
func (v *validation) isWrong(document int) bool {
	d, end := v.documents[document], math.MaxInt
	for _, next := range v.documents[document+1:] {
		if next.File != d.File {
			break
		}
		if next.Line > d.Line {
			end = next.Line
			break
		}
	}
	at, _ := slices.BinarySearchFunc(v.problems, d, func(p job.Problem, d job.Document) int {
		return cmp.Or(cmp.Compare(p.File, d.File), cmp.Compare(p.Line, d.Line))
	})
	return at < len(v.problems) && v.problems[at].File == d.File && v.problems[at].Line < end
}

// documentPlace matches the place of a document in a request, which an error has if there is no
// better one.
var documentPlace = regexp.MustCompile(`^/documents/(\d+)`)

// placed adds files to the mistakes that the server has found. Those that validate finds too are
// reported as validate does.
func (v *validation) placed(env Env, err error) error {
	f, ok := errors.AsType[*failure](err)
	if !ok || f.problem == nil {
		return err
	}
	if len(f.problem.Errors) > 0 && !v.imported {
		if v.judge(env.Now()); len(v.problems) > 0 {
			return v.mistaken(env, f.problem.Errors)
		}
	}
	f.details = nil
	for _, e := range f.problem.Errors {
		text := e.String()
		if i, pointer, ok := v.documentAt(e.Pointer); ok {
			d := v.documents[i]
			if v.imported {
				text = fmt.Sprintf("%s %s: %s", d.Kind, d.FullName(), text)
			}
			text = fmt.Sprintf("%s: %s", d.Place(pointer), text)
		}
		f.details = append(f.details, text)
	}
	return f
}

// agreeToPrune finds out what would be deleted, and asks a person to confirm it.
func agreeToPrune(ctx context.Context, server *remote, request client.Apply) error {
	request.DryRun = true
	would, err := server.Apply(ctx, request)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range would.Results {
		if r.Result == client.Deleted {
			names = append(names, r.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return agree(server.env, false, "delete %s of %s: %s", counted(len(names), "job"), request.Owner, shortList(names))
}

// shortList names the first of many.
func shortList(names []string) string {
	const shown = 10
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func resultName(r client.ApplyResult) string { return string(r.Kind) + "/" + r.Name }

// applyText writes a line for each document.
func applyText(w io.Writer, env Env, applied client.Applied) {
	s := styleFor(env, env.StdoutIsTerminal)
	would := ""
	if applied.DryRun {
		would = " (dry run)"
	}
	for _, r := range applied.Results {
		line := fmt.Sprintf("%s %s %s%s", r.Kind, r.Name, r.Result, would)
		if r.Result == client.Unchanged {
			line = s.faint(line)
		}
		fmt.Fprintln(w, line)
		mayStartText(w, r.MayStart)
	}
}
