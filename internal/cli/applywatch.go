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

// reading is what the files say at a moment.
type reading struct {
	*validation
	request client.Apply
	err     error
	sum     [sha256.Size]byte
}

// look reads the files.
func (ask *sources) look(env Env, namespace string) (r reading) {
	if r.validation, r.err = readFiles(env, ask.files, ask.recursive); r.err == nil {
		r.request, r.err = r.validation.request(namespace)
	}
	if r.err != nil {
		r.sum = sha256.Sum256([]byte(r.err.Error()))
		return r
	}
	r.request.Owner, r.request.Prune = ask.owner, ask.prune
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

// watch applies the files whenever they change, until it is interrupted. After a mistake the jobs stay
// as the last good files had them.
func watch(cmd *cobra.Command, env Env, ask applyFlags, every time.Duration) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := connect(env, ask.connection)
	if err != nil {
		return err
	}
	env.tell("watching %s; an interrupt ends it\n", shortList(ask.files))
	var (
		before, settled [sha256.Size]byte // of the last reading, and of the one that was applied or refused
		said            string            // about the settled one
		wait            time.Duration     // until it is tried again
		due             time.Time
	)
	for tick := time.NewTicker(every); ; {
		r := ask.look(env, server.namespace)
		isNew := r.sum != settled
		if r.sum == before && (isNew || wait > 0 && !env.Now().Before(due)) {
			if isNew {
				settled, wait, said = r.sum, 0, ""
			}
			again, err := ask.applyReading(ctx, env, server, r)
			if err != nil && ctx.Err() == nil {
				if f := asFailure(err); f.Error() != said {
					said = f.Error()
					f.report(env, cmd)
					env.tell("the jobs stay as they are\n")
				}
			}
			if wait = min(max(2*wait, every), watchAgainMax); !again {
				wait = 0
			}
			due = env.Now().Add(wait)
		}
		before = r.sum
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
	}
}

// applyReading applies what the files say, and reports whether another try may succeed with the same files.
func (ask *sources) applyReading(ctx context.Context, env Env, server *remote, r reading) (again bool, err error) {
	if r.err != nil {
		return false, r.err
	}
	if r.judge(env.Now()); len(r.problems) > 0 {
		return false, r.mistaken(env, nil)
	}
	applied, err := server.Apply(ctx, r.request)
	if err != nil {
		return true, r.placed(env, server.refused(err))
	}
	if server.local {
		warnOfMissing(r.documents, applied)
	}
	warn(env, applied)
	n := len(applied.Results)
	applied.Results = slices.DeleteFunc(applied.Results, func(r client.ApplyResult) bool { return r.Result == client.Unchanged })
	var text bytes.Buffer
	applyText(&text, env, applied)
	env.tell("%s applied: %d changed\n", counted(n, "document"), len(applied.Results))
	return false, write(env, text.Bytes())
}
