package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newJobEdit(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "edit NAME [flags]",
		Short: "Edit a job",
		Long: `Edit a job in the editor that VISUAL or EDITOR names, else in vi. If the document has
mistakes or the job was changed meanwhile, the editor opens again with the mistakes
or the other version at the top.

A document that was not accepted is kept in a file, whose name is printed. An empty
or unchanged document changes nothing.`,
		Example: `belfry job edit nightly
EDITOR="code --wait" belfry job edit web/nightly`,
		Args: oneName("job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !env.StdinIsTerminal || !env.StdoutIsTerminal {
				return misused("an editor needs a terminal").withHint("print the document with belfry job get NAME, and apply it with belfry apply -f FILE")
			}
			server, name, err := connectFor(env, asked, args[0])
			if err != nil {
				return err
			}
			return server.refused(editJob(cmd.Context(), server, name, output))
		},
	}
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}

// editing is a document in an editor.
type editing struct {
	env    Env
	server *remote
	name   jobName
	file   string
	// version is the version from which the text was made.
	version int64
	text    string
}

func editJob(ctx context.Context, server *remote, name jobName, output string) error {
	d, err := server.Job(ctx, name.namespace, name.name, false)
	if err != nil {
		return err
	}
	read, err := server.read(d, job.KindJob)
	if err != nil {
		return err
	}
	e := &editing{env: server.env, server: server, name: name, version: read.Version()}
	var b bytes.Buffer
	if err := job.Encode(&b, []job.Document{read.Bare()}, job.YAML); err != nil {
		return failed("write job %s: %v", name, err)
	}
	e.text = b.String()
	// The document may hold secrets: the folder is for its owner alone.
	folder, err := os.MkdirTemp(e.env.Getenv("TMPDIR"), "belfry-edit-")
	if err != nil {
		return failed("make a file to edit: %v", err)
	}
	e.file = filepath.Join(folder, name.name+".yaml")
	change, err := e.run(ctx)
	if err != nil {
		f, ok := errors.AsType[*failure](server.refused(err))
		if !ok {
			return err
		}
		f.details = append(f.details, "your document is in "+e.file)
		return f
	}
	if err := os.RemoveAll(folder); err != nil {
		return failed("remove the edited file: %v", err)
	}
	if change == nil {
		return failed("nothing was changed")
	}
	return showChange(server.env, output, name, *change, "changed")
}

// run opens the editor until the document is accepted, and returns the change of the job, nil if
// the file was left empty or unchanged.
func (e *editing) run(ctx context.Context) (*client.Change, error) {
	about := fmt.Sprintf("%s, version %d. Lines that begin with %q are ignored.", e.name, e.version, strings.TrimSpace(ours))
	head := header(about, nil)
	// The meaning of an unchanged file.
	const (
		nothing = iota
		givenUp
		agreed
	)
	same := nothing
	for {
		before := e.text
		if err := e.open(head); err != nil {
			return nil, err
		}
		switch {
		case strings.TrimSpace(e.text) == "", e.text == before && same == nothing:
			return nil, nil
		case e.text == before && same == givenUp:
			return nil, failed("nothing was changed: the document was not accepted, and you left it as it was")
		}
		change, wrong, err := e.send(ctx)
		switch {
		case client.IsType(err, client.TypeChanged):
			var theirs string
			if theirs, err = e.changedMeanwhile(ctx); err != nil {
				return nil, err
			}
			head = header(about, []string{fmt.Sprintf("The job was changed meanwhile; version %d is below. Save to replace it with yours, or empty the file to keep it.", e.version)}) + commented(theirs)
			same = agreed
		case err != nil:
			return nil, err
		case len(wrong) > 0:
			head, same = header(about, complaints(wrong)), givenUp
		default:
			return change, nil
		}
	}
}

// ours is the prefix of lines that are for the editor's user, and no part of the
// document.
const ours = "#: "

// header returns the comment above the document.
func header(about string, lines []string) string {
	return commented(strings.Join(append([]string{about}, lines...), "\n") + "\n")
}

func commented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(ours + printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

// complaints describes the mistakes, a line each. Their places count the lines above the
// document, which are these and one more.
func complaints(wrong job.Problems) []string {
	lines := []string{"Not accepted:"}
	above := 1 + len(lines) + len(wrong)
	for _, p := range wrong {
		place := ""
		if p.Line > 0 {
			place = fmt.Sprintf("line %d: ", p.Line+above)
		}
		p.File, p.Line, p.Column = "", 0, 0
		lines = append(lines, place+oneLine(p.Error()))
	}
	return lines
}

// open lets a person edit the text, below a header.
func (e *editing) open(head string) error {
	if err := os.WriteFile(e.file, []byte(head+e.text), 0o600); err != nil {
		return failed("write the file to edit: %v", err)
	}
	editor := cmp.Or(e.env.Getenv("VISUAL"), e.env.Getenv("EDITOR"), "vi")
	// With a shell, since the variables contain commands with arguments.
	cmd := exec.Command("sh", "-c", editor+` "$1"`, "belfry", e.file)
	cmd.Stdout, cmd.Stderr = e.env.Stdout, e.env.Stderr
	if terminal, ok := e.env.Stdin.(*os.File); ok {
		// A buffered copy would swallow input for later questions.
		cmd.Stdin = terminal
	}
	if err := cmd.Run(); err != nil {
		return failed("editor %s: %v", editor, err).withHint("VISUAL or EDITOR names another one")
	}
	f, err := os.Open(e.file)
	if err != nil {
		return failed("read the edited file: %v", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err != nil {
		return failed("read the edited file: %v", err)
	}
	if len(data) > fileMax {
		return failed("the edited file has more than %d MiB", fileMax>>20)
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, strings.TrimSpace(ours)) {
			b.WriteString(line)
		}
	}
	e.text = b.String()
	return nil
}

// send sends the text to the server, and returns its mistakes.
func (e *editing) send(ctx context.Context) (*client.Change, job.Problems, error) {
	list, err := job.Decode(e.file, []byte(e.text))
	var wrong job.Problems
	switch {
	case errors.As(err, &wrong):
		return nil, wrong, nil
	case err != nil:
		return nil, nil, err
	case len(list) != 1 || list[0].Job == nil:
		return nil, job.Problems{reason.Problem(job.Problem{}, phrase.OneJobInFile)}, nil
	}
	d := list[0]
	d.PutIn(e.name.namespace)
	sent, err := client.DocumentOf(d)
	if err != nil {
		return nil, nil, err
	}
	change, err := e.server.PutJob(ctx, e.name.namespace, e.name.name, sent, e.version)
	var p *client.Problem
	if !errors.As(err, &p) || p.Type != client.TypeInvalid {
		return &change, nil, err
	}
	for _, m := range p.Errors {
		at := job.Problem{Path: m.Path, Message: m.Args.Reason(m.Detail, m.Code), Hint: m.HintArgs.Reason(m.Hint, m.HintCode)}
		// A mistake without a place is shown without one.
		_, _ = fmt.Sscanf(strings.TrimPrefix(d.Place(m.Pointer), e.file), ":%d:%d", &at.Line, &at.Column)
		wrong = append(wrong, at)
	}
	if len(wrong) == 0 {
		wrong = job.Problems{{Message: p.Args.Reason(p.Detail, p.Code), Hint: p.HintArgs.Reason(p.Hint, p.HintCode)}}
	}
	return nil, wrong, nil
}

// changedMeanwhile shows concurrent changes of another user, and asks whether to continue with the
// text on top of them.
func (e *editing) changedMeanwhile(ctx context.Context) (theirs string, err error) {
	latest, err := revisionsOf(ctx, e.server, e.name, 1)
	if err != nil {
		return "", err
	}
	r, err := e.server.Revision(ctx, e.name.namespace, e.name.name, latest[0].Version, e.version)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	diffText(&b, styleFor(e.env, e.env.StderrIsTerminal), r.Diff)
	e.env.tell("%s", b.Bytes())
	if err := agree(e.env, false, "edit yours again and replace version %d of job %s, which %s saved meanwhile", r.Version, e.name, cmp.Or(r.Actor, "another user")); err != nil {
		return "", &failure{code: ExitConflict, message: fmt.Sprintf("job %s was changed by another user; your change was not saved", e.name)}
	}
	e.version = r.Version
	return r.Diff, nil
}
