package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/cli/checkout"
)

const (
	// watchEvery is the interval of readings. Nothing is applied before two of them in a row are
	// the same: a half-written folder would delete jobs.
	watchEvery = 3 * time.Second
	// watchAgainMax is the longest time until a refused or unanswered request is repeated.
	watchAgainMax = time.Minute
)

// checkWatch refuses flags that contradict --watch.
func (ask *applyFlags) checkWatch() error {
	switch {
	case !ask.watch:
		return nil
	case slices.Contains(ask.files, "-"):
		return misused("--watch reads the files again and again, and standard input only once: name a file or folder")
	case ask.dryRun != "":
		return misused("give --watch or --dry-run, not both").withHint("belfry diff shows what would change")
	case ask.run:
		return misused("give --watch or --run, not both")
	case ask.output != asTable:
		return misused("--watch shows changes as text: leave out --output")
	}
	return nil
}

// reading is what a source says at a moment.
type reading struct {
	*validation
	request client.Apply
	err     error
	sum     [sha256.Size]byte
	commit  checkout.Commit // of a repository
	absent  bool            // the source was not reached, and err says why: what it said before is still so
}

// look reads the files.
func (ask *sources) look(env Env, namespace string) (r reading) {
	if r.read(env, ask, namespace); r.err != nil {
		r.sum = sha256.Sum256([]byte(r.err.Error()))
		return r
	}
	hash := sha256.New()
	for _, d := range r.request.Documents {
		hash.Write(append(d.RawMessage, '\n'))
	}
	for _, p := range r.problems {
		hash.Write([]byte(p.Error()))
	}
	hash.Sum(r.sum[:0])
	return r
}

// read reads the files into the reading.
func (r *reading) read(env Env, ask *sources, namespace string) {
	if r.validation, r.err = readFiles(env, ask.files, ask.recursive); r.err == nil {
		r.request, r.err = r.validation.request(namespace)
	}
	r.request.Owner, r.request.Prune = ask.owner, ask.prune
}

// following applies a source whenever it changes. After a mistake the jobs stay as the last good state had them.
type following struct {
	look  func(ctx context.Context) reading
	every time.Duration
	twice bool             // nothing is applied before two readings in a row are the same
	hurry <-chan os.Signal // asks for a reading at once
	// ended receives how an attempt to apply ended: applied, or err.
	ended func(r *reading, applied client.Applied, err error)
}

// watch follows files until it is interrupted.
func watch(cmd *cobra.Command, env Env, ask applyFlags, every time.Duration) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := connect(env, ask.connection)
	if err != nil {
		return err
	}
	env.tell("watching %s; an interrupt ends it\n", shortList(ask.files))
	f := following{
		look:  func(context.Context) reading { return ask.look(env, server.namespace) },
		every: every, twice: true,
		ended: func(*reading, client.Applied, error) {},
	}
	f.run(ctx, cmd, server)
	return nil
}

// run follows the source until the context ends.
func (f *following) run(ctx context.Context, cmd *cobra.Command, server *remote) {
	env := server.env
	var (
		before, settled [sha256.Size]byte // of the last reading, and of the one that was applied or refused
		said            string            // about the settled one
		away            string            // why the source is not reached
		wait            time.Duration     // until it is tried again
		due             time.Time
	)
	for ctx.Err() == nil {
		r := f.look(ctx)
		isNew := r.sum != settled
		switch {
		case ctx.Err() != nil:
			return
		case r.absent:
			away = tellOnce(env, cmd, asFailure(r.err), away)
		case (r.sum == before || !f.twice) && (isNew || wait > 0 && !env.Now().Before(due)):
			if isNew {
				settled, wait, said = r.sum, 0, ""
			}
			applied, again, err := server.applyReading(ctx, &r)
			if ctx.Err() == nil {
				f.ended(&r, applied, err)
				if err != nil {
					said = tellOnce(env, cmd, asFailure(err), said)
				}
			}
			if wait = min(max(2*wait, min(f.every, watchEvery)), watchAgainMax); !again {
				wait = 0
			}
			due = env.Now().Add(wait)
		}
		if !r.absent {
			before, away = r.sum, ""
		}
		f.rest(ctx, wait)
	}
}

// tellOnce reports a failure unless it was said before, and returns what has been said.
func tellOnce(env Env, cmd *cobra.Command, f *failure, said string) string {
	if f.Error() != said {
		f.report(env, cmd)
		env.tell("the jobs stay as they are\n")
	}
	return f.Error()
}

// rest waits for the next reading. wait is the time until another try, 0 for none.
func (f *following) rest(ctx context.Context, wait time.Duration) {
	pause := f.every
	if wait > 0 {
		pause = min(pause, wait)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-f.hurry:
	}
}

// applyReading applies what a source says, and reports whether another try may succeed with the same.
func (r *remote) applyReading(ctx context.Context, now *reading) (applied client.Applied, again bool, err error) {
	env := r.env
	if now.err != nil {
		return applied, false, now.err
	}
	if now.judge(env.Now()); len(now.problems) > 0 {
		return applied, false, now.mistaken(env, nil)
	}
	if applied, err = r.Apply(ctx, now.request); err != nil {
		return applied, true, now.placed(env, r.refused(err))
	}
	if r.local {
		warnOfMissing(now.documents, applied)
	}
	warn(env, applied)
	changed := applied
	changed.Results = slices.DeleteFunc(slices.Clone(applied.Results), func(r client.ApplyResult) bool { return r.Result == client.Unchanged })
	var text bytes.Buffer
	applyText(&text, env, changed)
	if now.commit.Hash != "" {
		env.tell("commit %s: ", commitName(now.commit))
	}
	env.tell("%s applied: %d changed\n", counted(len(applied.Results), "document"), len(changed.Results))
	return applied, false, write(env, text.Bytes())
}
