package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// eventsFlags are the flags of belfry events.
type eventsFlags struct {
	connection config.Asked
	query      client.EventQuery
	limit      int // 0 for none
	all        bool
	output     string
}

func newEvents(env Env) *cobra.Command {
	var ask eventsFlags
	cmd := &cobra.Command{
		Use:   "events [flags]",
		Short: "Follow events as they happen",
		Long: `Print a line for each event from now on, until interrupted: changes of jobs,
calendars, pools, channels, executors and tokens by their actions, as in belfry audit;
runs by state (run.ready, run.waiting, run.running, run.done); nodes by state (node.live,
node.drained, node.leaving, node.silent, node.left). With --kind stats also the counts of the
runs that ended within the last minute, each 5 s.

A broken connection is resumed. Events that are no longer available, because there
were too many or the server was restarted, are reported as an event gap: then read
the state again. With -o jsonl each line is an event with its id, and --after
continues after one.`,
		Example: `belfry events
belfry events --kind run.done --job nightly
belfry events --kind run.done --limit 1
belfry events --label team=shop --kind run.done
belfry events --kind job --kind node -o jsonl`,
		Args: noArguments,
		RunE: asking(env, &ask.connection, func(ctx context.Context, server *remote, _ []string) error {
			return showEvents(ctx, server, ask)
		}),
	}
	f := cmd.Flags()
	addJob(env, cmd, &ask.connection, &ask.query.Job, "only events of this job and of its runs")
	f.VarP((*labels)(&ask.query.Labels), "label", "l", "only events of jobs with this label, and of their runs: KEY=VALUE; may be repeated")
	addWord(f, &ask.query.Text, "text", "", "TEXT", "only events of jobs with this text in the name or the description, and of their runs")
	f.Var((*kinds)(&ask.query.Kinds), "kind", "only events of this kind, such as run.done, or run for all of runs; may be repeated")
	addParsed(f, &ask.limit, "limit", "", "none", "N", "stop after this many events", parsePositive)
	addWord(f, &ask.query.After, "after", "", "ID", "continue after the event with this id")
	addConnection(cmd, &ask.connection)
	addAll(cmd, &ask.all)
	addOutput(cmd, &ask.output, asTable, asJSONL)
	complete(cmd, "kind", eventKinds...)
	return cmd
}

// eventKinds are the values of --kind. The server accepts any word, as a later version may
// have more kinds, and never sends events of a misspelt one.
var eventKinds = []string{
	"job", "job.create", "job.change", "job.pause", "job.resume", "job.delete", "job.restore", "job.mend",
	"run", "run.ready", "run.waiting", "run.running", "run.done", "run.hand", "run.backfill", "run.cancel", "run.refuse", "run.approve", "run.reject", "run.signal",
	"node", "node.live", "node.drained", "node.leaving", "node.silent", "node.left", "node.drain", "node.undrain",
	"calendar", "calendar.create", "calendar.change", "calendar.delete",
	"pool", "pool.create", "pool.change", "pool.delete",
	"window", "window.create", "window.change", "window.delete",
	"channel", "channel.create", "channel.change", "channel.delete",
	"hook", "hook.create", "hook.change", "hook.delete", "hook.ignore", "hook.refuse", "hook.repeat",
	"source", "source.apply", "source.lose", "source.reach", "source.refuse",
	"executors", "executors.create", "executors.change", "executors.delete",
	"secret", "secret.create", "secret.change", "secret.delete",
	"token", "token.create", "token.replace", "token.join", "token.revoke",
	"session", "session.begin", "session.end",
	client.EventStats, client.EventGap,
}

// kinds is a repeatable flag for kinds of events.
type kinds []string

// Set is called by the flag library.
func (k *kinds) Set(text string) error {
	switch {
	case text == "":
		return errors.New("a value is missing")
	case !slices.Contains(eventKinds, text):
		hint := cmp.Or(didYouMean(text, "", eventKinds), "allowed is "+strings.Join(eventKinds, ", "))
		return fmt.Errorf("%q is not a kind of event; %s", text, hint)
	}
	*k = append(*k, text)
	return nil
}

// String is called by the flag library.
func (k *kinds) String() string { return "" }

// Type is called by the flag library.
func (k *kinds) Type() string { return "KIND" }

func showEvents(ctx context.Context, server *remote, ask eventsFlags) error {
	ask.query.Namespace = server.listNamespace(ask.all)
	if ask.query.Job != "" {
		name, err := server.named(ask.query.Job)
		if err != nil {
			return err
		}
		ask.query.Job, ask.query.Namespace = name.String(), "" // its name has one
	}
	// A user who waits for the first event must know when the following began.
	begun := func() { server.env.tell("events of %s\n", server.URL()) }
	count := 0
	err := server.Events(ctx, ask.query, begun, func(e client.Event) error {
		if err := showEvent(server.env, ask.output, e); err != nil {
			return err
		}
		if count++; count == ask.limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return inFlags(err, map[string]string{"kind": "--kind", "job": "--job", "label": "--label", "text": "--text"})
}

// errEnough ends the following after the requested number of events.
var errEnough = errors.New("the limit of events was reached")

// showEvent writes an event at once.
func showEvent(env Env, output string, e client.Event) error {
	if output != asJSONL {
		return write(env, []byte(eventLine(env, &e)+"\n"))
	}
	line := struct {
		ID string `json:"id,omitempty"`
		client.Event
	}{e.ID, e}
	if err := encodeJSONLine(env.Stdout, line); err != nil {
		return failed("write an event: %v", err)
	}
	return nil
}

// eventLine formats an event for people.
func eventLine(env Env, e *client.Event) string {
	line := fmt.Sprintf("%s  %-12s  %s", instant(env, e.Time), e.Kind, orDash(e.Object))
	var more []string
	switch r := e.Run; {
	case r != nil:
		more = append(more, "run "+r.ID.String())
		if r.Attempt > 1 {
			more = append(more, fmt.Sprintf("attempt %d", r.Attempt))
		}
		if !r.Started.IsZero() && !r.Ended.IsZero() {
			more = append(more, r.Ended.Sub(r.Started).Round(time.Millisecond).String())
		}
		if r.State == job.StateReady {
			more = append(more, "due "+instant(env, r.Due))
		}
		more = append(more, cmp.Or(string(r.Outcome), r.Node), r.Reason)
	case e.Stats != nil:
		for _, outcome := range slices.Sorted(maps.Keys(e.Stats.Outcomes)) {
			more = append(more, fmt.Sprintf("%s %d", outcome, e.Stats.Outcomes[outcome]))
		}
	case e.Kind == client.EventGap:
		more = append(more, e.Detail)
	default:
		if e.Actor != "" {
			more = append(more, "by "+e.Actor)
		}
		if e.Version > 0 {
			more = append(more, fmt.Sprintf("version %d", e.Version))
		}
		more = append(more, e.Detail)
	}
	for _, text := range more {
		if text != "" {
			line += "  " + text
		}
	}
	return strings.TrimRight(oneLine(line), " ")
}
