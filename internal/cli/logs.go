package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// logsFlags are the flags of belfry logs.
type logsFlags struct {
	connection config.Asked
	follow     bool
	query      client.OutputQuery
}

func newLogs(env Env) *cobra.Command {
	var ask logsFlags
	cmd := &cobra.Command{
		Use:   "logs NAME|RUN|RUN/STEP [flags]",
		Short: "Show the output of a run, or of the latest run of a job",
		Long: `Show the output of a run, or of the latest run of a job. -f follows the output until
the run has ended; a broken connection is resumed. Of a flow the output of all steps is shown,
each line with its step; RUN/STEP is one step with all its items, and RUN/STEP/0 its
first item. Why a run failed is said below its output, on standard error.

On a terminal colours are kept, other control sequences are removed, and characters
that change the direction of text are shown as <U+202E>. Piped, the output is
unchanged.`,
		Example: `belfry logs nightly
belfry logs -f nightly
belfry logs 01M7WSD70J4JVRQ9N4TN6P9NR3 --attempt 1 --timestamps
belfry logs 01M7WSD70J4JVRQ9N4TN6P9NR3/load
belfry logs nightly --tail 100
belfry logs nightly --since 10m`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return misused("the name of a job or the id of a run is missing")
			case len(args) > 1:
				return misused("found %d arguments, one job or run is wanted", len(args))
			}
			return nil
		},
		RunE: asking(env, &ask.connection, func(ctx context.Context, server *remote, args []string) error {
			return logs(ctx, server, ask, args[0])
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&ask.follow, "follow", "f", false, "follow the output until the run has ended")
	addParsed(f, &ask.query.Tail, "tail", "", "all", "N", "how many of the last lines to show", parsePositive)
	addParsed(f, &ask.query.Attempt, "attempt", "", "the latest", "N", "attempt whose output to show", parsePositive)
	addChoice(cmd, &ask.query.Stream, "stream", "", "only this stream", "stdout", "stderr")
	addParsed(f, &ask.query.Since, "since", "", "", "TIME|DURATION", "only output since this time", momentFrom(env, -1))
	f.BoolVar(&ask.query.Times, "timestamps", false, "the time, and | for stdout or ! for stderr, before each line")
	addConnection(cmd, &ask.connection)
	cmd.ValidArgsFunction = jobNames(env, &ask.connection)
	return cmd
}

func logs(ctx context.Context, server *remote, ask logsFlags, text string) error {
	before, step, isPath := strings.Cut(text, "/")
	id, err := job.ParseID(before)
	switch {
	case err == nil && isPath:
		flow, err := server.Run(ctx, id)
		if err != nil {
			return err
		}
		if s := stepOf(&flow, step); s != nil && len(s.Items) > 0 {
			return flowLogs(ctx, server, ask, &flow, step)
		}
		if id, err = runOfStep(&flow, step); err != nil {
			return err
		}
	case err != nil:
		run, err := latestRun(ctx, server, text)
		if err != nil {
			return err
		}
		if id = run.ID; run.Shards > 1 {
			server.env.tell("run %s of %s; belfry run list --job %s lists the others\n", id, jobAndShard(&run), run.Job)
		}
	}
	run, err := server.Run(ctx, id)
	if err != nil {
		return err
	}
	if server.isFlow(ctx, &run) {
		return flowLogs(ctx, server, ask, &run, "")
	}
	if !ask.follow {
		w := io.Writer(server.env.Stdout)
		if server.env.StdoutIsTerminal {
			w = &safeWriter{w: w}
		}
		if err := server.Output(ctx, id, ask.query, w); err != nil {
			return err
		}
		sayFailure(server.env, &run, ask.query.Attempt)
		return nil
	}
	defer server.sayKept(ctx, id)()
	if run, err = server.Follow(ctx, id, ask.query, showPart(server.env)); err == nil {
		sayFailure(server.env, &run, ask.query.Attempt)
	}
	return err
}

// sayFailure writes below the output why a run or one of its attempts failed.
func sayFailure(env Env, run *client.Run, attempt int) {
	about, outcome, why := "run "+run.ID.String(), run.Outcome, reason.Beside(run.Reason, run.Cause)
	for i := range run.Attempts {
		if a := &run.Attempts[i]; a.Number == attempt {
			about, outcome, why = fmt.Sprintf("attempt %d of %s", attempt, about), a.Outcome, reason.Beside(a.Reason, a.Cause)
		}
	}
	if outcome.Failed() {
		env.tell("%s %s: %s\n", about, outcome, oneLine(why))
	}
}

// flowLogs shows the output of a flow, or of the items of one step.
func flowLogs(ctx context.Context, server *remote, ask logsFlags, run *client.Run, only string) error {
	if !ask.follow {
		if err := flowOutput(ctx, server, run, only, ask.query); err != nil {
			return err
		}
	} else {
		defer server.sayKept(ctx, run.ID)()
		last, err := followFlow(ctx, server, run.ID, only, ask.query)
		if err != nil {
			return err
		}
		run = &last
	}
	if only == "" {
		sayFailure(server.env, run, 0)
	}
	return nil
}

// latestRun returns the run of a job that started last: a running one, one waiting for its
// next attempt, or the last finished one.
func latestRun(ctx context.Context, server *remote, text string) (client.Run, error) {
	name, err := server.named(text)
	if err != nil {
		return client.Run{}, err
	}
	of := func(state job.RunState) ([]client.Run, error) {
		page, err := server.Runs(ctx, client.RunQuery{Job: name.String(), States: []job.RunState{state}, PageSize: pageSize})
		return page.Items, err
	}
	running, err := of(job.StateRunning)
	if err != nil {
		return client.Run{}, err
	}
	if n := len(running); n > 0 {
		return running[n-1], nil
	}
	ready, err := of(job.StateReady)
	if err != nil {
		return client.Run{}, err
	}
	for _, r := range slices.Backward(ready) {
		if r.Attempt > 1 {
			return r, nil
		}
	}
	ended, err := of(job.StateDone)
	if err != nil {
		return client.Run{}, err
	}
	for _, r := range ended {
		if r.Attempt > 0 { // a skipped or missed run has no output
			return r, nil
		}
	}
	return client.Run{}, &failure{code: ExitNotFound, message: fmt.Sprintf("no run of %s has started yet", name)}
}

// showPart returns a function that shows followed output. Between attempts it prints a line
// beside the data.
func showPart(env Env) func(client.OutputPart) error {
	w := io.Writer(env.Stdout)
	if env.StdoutIsTerminal {
		w = &safeWriter{w: w}
	}
	attempt := 0
	return func(part client.OutputPart) error {
		if attempt != 0 && part.Attempt != attempt {
			env.tell("attempt %d\n", part.Attempt)
		}
		attempt = part.Attempt
		text := part.Bytes
		if text == nil {
			text = []byte(part.Text)
		}
		if _, err := w.Write(text); err != nil {
			return failed("write the output: %v", err)
		}
		return nil
	}
}

// safeWriter passes only safe text to a terminal: text, line ends, tabs and colours. Other control
// sequences of a job could change how its reader sees other jobs.
type safeWriter struct {
	w       io.Writer
	state   safeState
	partial []byte // an incomplete sequence or letter
	// returned is set after a carriage return, which ends a line here, so that earlier text is not
	// overwritten.
	returned bool
}

type safeState uint8

const (
	inText   safeState = iota
	inEscape           // after ESC
	inCSI              // after ESC [
	inString           // in a sequence with a text, up to BEL or ESC \
)

// sequenceMax bounds a sequence of colours; a longer one is none.
const sequenceMax = 64

// Write implements [io.Writer].
func (t *safeWriter) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p))
	for _, b := range p {
		out = t.add(out, b)
	}
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (t *safeWriter) add(out []byte, b byte) []byte {
	const escape, bell = 0x1b, 0x07
	switch t.state {
	case inEscape:
		t.state = inText
		switch b {
		case '[':
			t.state, t.partial = inCSI, append(t.partial[:0], escape, '[')
		case ']', 'P', 'X', '^', '_':
			t.state = inString
		}
		return out
	case inCSI:
		t.partial = append(t.partial, b)
		switch {
		case b == 'm':
			if isColour(t.partial) {
				out = append(out, t.partial...)
			}
			t.state, t.partial = inText, t.partial[:0]
		case b >= 0x40 && b <= 0x7e || len(t.partial) > sequenceMax || b == escape:
			t.state, t.partial = inText, t.partial[:0]
			if b == escape {
				t.state = inEscape
			}
		}
		return out
	case inString:
		if b == bell || b == '\n' {
			t.state = inText
		} else if b == escape {
			t.state = inEscape
		}
		return out
	}
	if b >= utf8.RuneSelf {
		t.partial = append(t.partial, b)
		if !utf8.FullRune(t.partial) {
			return out
		}
		r, _ := utf8.DecodeRune(t.partial)
		t.partial = t.partial[:0]
		if r >= 0x80 && r < 0xa0 {
			return out // 8-bit controls
		}
		if unicode.Is(unicode.Bidi_Control, r) {
			return fmt.Appendf(out, "<U+%04X>", r) // it would change the reading order of a line
		}
		return utf8.AppendRune(out, r)
	}
	if len(t.partial) > 0 {
		out, t.partial = utf8.AppendRune(out, utf8.RuneError), t.partial[:0]
	}
	returned := t.returned
	t.returned = b == '\r'
	switch {
	case b == escape:
		t.state = inEscape
	case b == '\n' && returned:
	case b == '\r':
		return append(out, '\n')
	case b == '\n', b == '\t', b >= ' ' && b != 0x7f:
		return append(out, b)
	}
	return out
}

// isColour reports whether a sequence that ends in m has numbers only: others with this end set key
// codes.
func isColour(sequence []byte) bool {
	for _, b := range sequence[2 : len(sequence)-1] {
		if (b < '0' || b > '9') && b != ';' && b != ':' {
			return false
		}
	}
	return true
}
