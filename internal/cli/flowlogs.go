package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

const (
	// stepsFollowedMax bounds the followed steps of a flow: each is a connection.
	stepsFollowedMax = 32
	// heldLineMax bounds the part of a line that waits for its end.
	heldLineMax = 64 << 10
)

// stepOutput is a step or an item that has a run, and so perhaps output.
type stepOutput struct {
	name string
	run  job.ID
	at   time.Time
	open bool // it writes perhaps
}

// outputsOf returns the steps of a flow that have a run, in the order of their starts, or only a
// named one.
func outputsOf(r *client.Run, only string) (list []stepOutput) {
	for i := range r.Steps {
		s := &r.Steps[i]
		if only != "" && s.Name != only {
			continue
		}
		if !s.Run.IsZero() {
			list = append(list, stepOutput{s.Name, s.Run, s.Started, s.State == "open"})
		}
		for k := range s.Items {
			if it := &s.Items[k]; !it.Run.IsZero() {
				list = append(list, stepOutput{fmt.Sprintf("%s/%d", s.Name, k), it.Run, it.Started, it.State == "open"})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b stepOutput) int { return a.at.Compare(b.at) })
	return list
}

// stepOf returns the step of a flow that has a name, or nil.
func stepOf(flow *client.Run, name string) *client.StepState {
	for i := range flow.Steps {
		if flow.Steps[i].Name == name {
			return &flow.Steps[i]
		}
	}
	return nil
}

// isOver reports whether a step writes nothing more.
func isOver(s *client.StepState) bool { return s.State != "pending" && s.State != "open" }

// runOfStep returns the run of a step of a flow, STEP or STEP/ITEM.
func runOfStep(flow *client.Run, step string) (job.ID, error) {
	var names []string
	for _, s := range outputsOf(flow, "") {
		if s.name == step {
			return s.run, nil
		}
		names = append(names, s.name)
	}
	f := &failure{code: ExitNotFound, message: fmt.Sprintf("run %s has no output of step %s", flow.ID, strconv.Quote(step))}
	if s := stepOf(flow, step); s != nil {
		f.message = fmt.Sprintf("step %s of run %s is %s: %s", step, flow.ID, s.State, reasonOfStep(s))
	}
	if len(names) == 0 {
		return job.ID{}, f
	}
	return job.ID{}, f.withHint("it has that of %s", strings.Join(names, ", "))
}

// isFlow reports whether a run, which may not have begun, is a flow.
func (r *remote) isFlow(ctx context.Context, run *client.Run) bool {
	if len(run.Steps) > 0 || run.Step != "" {
		return len(run.Steps) > 0
	}
	namespace, name, _ := strings.Cut(run.Job, "/")
	d, err := r.Job(ctx, namespace, name, false)
	if err != nil {
		return false // the caller's next request reports the error
	}
	j, err := d.Job()
	return err == nil && j.Run.IsFlow()
}

// flowOutput writes the output of all steps of a flow, one after the other, or of all items of one
// step.
func flowOutput(ctx context.Context, server *remote, run *client.Run, only string, q client.OutputQuery) error {
	out := &stepLines{w: server.env.Stdout, tame: server.env.StdoutIsTerminal}
	for _, s := range outputsOf(run, only) {
		w := out.of(s.name)
		if err := server.Output(ctx, s.run, q, w); err != nil && !client.IsType(err, client.TypeNotFound) {
			return err
		}
		if err := w.end(); err != nil {
			return err
		}
	}
	return nil
}

// followFlow shows the output of the steps of a flow as they write it, each line with its step,
// until the flow has ended, or the items of one step until that has ended.
func followFlow(ctx context.Context, server *remote, id job.ID, only string, q client.OutputQuery) (client.Run, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &stepLines{w: server.env.Stdout, tame: server.env.StdoutIsTerminal}
	q.FromFirst = true
	known := map[job.ID]bool{}
	room := make(chan struct{}, stepsFollowedMax)
	var group sync.WaitGroup
	defer group.Wait()
	for wait := awaitFirst; ; wait = min(2*wait, awaitMost) {
		var run client.Run
		err := server.patient(ctx, func() (err error) { run, err = server.Run(ctx, id); return err })
		if err != nil {
			cancel(err)
			return run, err
		}
		for _, s := range outputsOf(&run, only) {
			if known[s.run] {
				continue
			}
			known[s.run] = true
			wait = awaitFirst
			follow := func() {
				select {
				case room <- struct{}{}:
					defer func() { <-room }()
				case <-ctx.Done():
					return
				}
				if err := out.follow(ctx, server, s.name, s.run, q); err != nil {
					cancel(err)
				}
			}
			if s.open {
				group.Go(follow)
			} else {
				follow() // shows ended steps in their order
			}
		}
		if s := stepOf(&run, only); run.State == job.StateDone || s != nil && isOver(s) {
			group.Wait()
			if ctx.Err() != nil {
				return run, context.Cause(ctx)
			}
			return run, nil
		}
		select {
		case <-ctx.Done():
			return run, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// stepLines writes lines of several steps, each with the name of its step.
type stepLines struct {
	w    io.Writer
	tame bool

	mu sync.Mutex
}

// of returns the writer of a step.
func (l *stepLines) of(name string) *stepWriter {
	w := &stepWriter{lines: l, name: name}
	w.to = &w.whole
	if l.tame {
		w.to = &safeWriter{w: &w.whole}
	}
	return w
}

// follow writes the output of a step until its run has ended. Expired output counts as none.
func (l *stepLines) follow(ctx context.Context, server *remote, name string, run job.ID, q client.OutputQuery) error {
	w := l.of(name)
	_, err := server.Follow(ctx, run, q, func(part client.OutputPart) error {
		text := part.Bytes
		if text == nil {
			text = []byte(part.Text)
		}
		_, err := w.Write(text)
		return err
	})
	if err == nil {
		err = w.end()
	}
	if client.IsType(err, client.TypeNotFound) {
		return nil
	}
	return err
}

// stepWriter prefixes the output of one step.
type stepWriter struct {
	lines *stepLines
	name  string
	to    io.Writer
	whole bytes.Buffer // unwritten lines
}

// Write implements [io.Writer].
func (w *stepWriter) Write(p []byte) (int, error) {
	if _, err := w.to.Write(p); err != nil {
		return 0, err
	}
	for {
		text := w.whole.Bytes()
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			if len(text) > heldLineMax {
				return len(p), w.end()
			}
			return len(p), nil
		}
		if err := w.line(w.whole.Next(end + 1)); err != nil {
			return 0, err
		}
	}
}

// end writes a line that has not ended.
func (w *stepWriter) end() error {
	if w.whole.Len() == 0 {
		return nil
	}
	return w.line(append(w.whole.Next(w.whole.Len()), '\n'))
}

func (w *stepWriter) line(text []byte) error {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	if _, err := fmt.Fprintf(w.lines.w, "%s | %s", w.name, text); err != nil {
		return failed("write the output: %v", err)
	}
	return nil
}
