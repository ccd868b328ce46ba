package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newWindow(env Env) *cobra.Command {
	k := setKind{
		kind: job.KindWindow, about: "Runs that it holds are due at once.", example: "db-upgrade",
		head: []string{"NAME", "ACTION", "FOR", "OPENS", "MATCHES", "CLOSED", "DESCRIPTION"},
		row: func(d job.Document) []string {
			w := d.Window
			closed := "-"
			if !w.Closed.IsZero() {
				closed = w.Closed.Format(time.RFC3339)
			}
			return []string{d.FullName(), windowAction(w), w.For.String(), windowOpens(&w.Schedule), windowMatches(w), closed, orDash(w.Description)}
		},
		list: (*client.Client).Windows, get: (*client.Client).Window, remove: (*client.Client).DeleteWindow,
	}
	cmd := newSet(env, k)
	cmd.Short = "Open, close, list, show and delete maintenance windows"
	cmd.Long = `Open, close, list, show and delete maintenance windows. While a window is open, no run
of the jobs that it matches starts, except by hand: it is skipped, or held until the
window closes. belfry apply creates and updates windows that open on a schedule.`
	cmd.AddCommand(newWindowNext(env), newWindowOpen(env, k), newWindowClose(env, k))
	return cmd
}

func windowAction(w *job.Window) string { return string(cmp.Or(w.Action, job.WindowHold)) }

func windowOpens(s *job.Schedule) string {
	switch {
	case len(s.Cron) > 0:
		return strings.Join(s.Cron, "; ")
	case s.Every > 0:
		return "every " + s.Every.String()
	case len(s.At) == 1:
		return s.At[0].Format(time.RFC3339)
	}
	return fmt.Sprintf("at %d instants", len(s.At))
}

func windowMatches(w *job.Window) string {
	list := []string{"in " + strings.Join(w.In(), ",")}
	for _, key := range slices.Sorted(maps.Keys(w.Match.Labels)) {
		list = append(list, key+"="+w.Match.Labels[key])
	}
	return strings.Join(list, " ")
}

// inWindow says what a maintenance window does to a run that falls due in it.
func inWindow(env Env, o *client.Opening) string {
	does := "held until"
	if o.Action == job.WindowSkip {
		does = "skipped until"
	}
	return fmt.Sprintf("%s %s by window %s", does, instant(env, o.Until), o.Window)
}

// windowsAhead is how far belfry window next looks: as far as the server tells.
const windowsAhead = 31 * 24 * time.Hour

func newWindowNext(env Env) *cobra.Command {
	cmd := listCommand(env, &cobra.Command{
		Short:   "List when windows are open, now and in the next 31 days",
		Example: "belfry window next\nbelfry window next --all-namespaces -o json",
	}, true, func(ctx context.Context, server *remote, namespace, output string) error {
		now := server.env.Now()
		page, err := server.Openings(ctx, namespace, now, now.Add(windowsAhead))
		if err != nil {
			return err
		}
		return showList(server.env, output, page.Items, "", func(o client.Opening) string { return o.Window }, func(w io.Writer) {
			var rows [][]string
			for i := range page.Items {
				o := &page.Items[i]
				opens := distance(server.env, o.Opened)
				if !o.Opened.After(now) {
					opens = "open"
				}
				rows = append(rows, []string{o.Window, instant(server.env, o.Opened), instant(server.env, o.Until), opens, string(o.Action)})
			}
			table(w, styleFor(server.env, server.env.StdoutIsTerminal), []string{"WINDOW", "OPENS", "CLOSES", "LEFT", "ACTION"}, rows)
		})
	})
	cmd.Use, cmd.Aliases = "next [flags]", nil
	return cmd
}

// windowFlags are the flags of belfry window open.
type windowFlags struct {
	asked      config.Asked
	span       job.Duration
	until      time.Time
	reason     string
	labels     map[string]string
	namespaces []string
	action     string
	yes        bool
}

func newWindowOpen(env Env, k setKind) *cobra.Command {
	ask := windowFlags{action: string(job.WindowHold)}
	cmd := &cobra.Command{
		Use:   "open [NAME] [flags]",
		Short: "Open a maintenance window now",
		Long: `Open a maintenance window now, for a while: no run of the jobs that it matches starts
until then, except by hand. Runs that are running continue, and those that a node has
claimed already start. Without --for and --until the window NAME, which was closed, opens again.
Without --label a new window matches each job of its namespaces, and the command asks first.`,
		Example: `belfry window open --for 2h --reason "database upgrade" --label team=db
belfry window open db-upgrade --for 30m --in shop --in billing --action skip --yes
belfry window open db-upgrade                      # again, after belfry window close`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misused("found %d arguments, expected at most one window", len(args))
			}
			return nil
		},
		RunE: asking(env, &ask.asked, func(ctx context.Context, server *remote, args []string) error {
			return openWindow(ctx, server, k, args, ask)
		}),
	}
	f := cmd.Flags()
	addParsed(f, &ask.span, "for", "", "", "DURATION", "how long the window stays open", job.ParseDuration)
	addParsed(f, &ask.until, "until", "", "", "TIME|DURATION", "when the window closes, in place of --for", momentFrom(env, 1))
	addWord(f, &ask.reason, "reason", "", "TEXT", "why, as the runs that do not start show it")
	f.VarP((*labels)(&ask.labels), "label", "l", "only jobs with this label: KEY=VALUE; may be repeated")
	f.StringArrayVar(&ask.namespaces, "in", nil, "namespace of the jobs, * for all; may be repeated; else the namespace of the window")
	f.BoolVarP(&ask.yes, "yes", "y", false, "without --label, do not ask")
	addChoice(cmd, &ask.action, "action", "", "what happens to runs that fall due", job.WindowAction("").Values()...)
	addConnection(cmd, &ask.asked)
	cmd.ValidArgsFunction = setNames(env, &ask.asked, k)
	return cmd
}

func openWindow(ctx context.Context, server *remote, k setKind, args []string, ask windowFlags) error {
	now := server.env.Now().UTC().Truncate(time.Second)
	name := jobName{}
	switch left := ask.until.Sub(now); {
	case ask.until.IsZero():
	case ask.span != 0:
		return misused("--for and --until cannot be combined: keep one of them")
	case left < time.Second:
		return misused("--until: %s is not in the future", ask.until.Format(time.RFC3339))
	default:
		ask.span = job.Duration(left.Truncate(time.Second))
	}
	if len(args) > 0 {
		var err error
		if name, err = server.named(args[0]); err != nil {
			return err
		}
	} else if ask.span == 0 {
		return misused("neither a name nor --for or --until is given").withHint("belfry window open --for 2h opens a new window, belfry window open NAME a closed one")
	} else if named, err := server.named("window-" + now.Format("20060102-150405")); err != nil {
		return err
	} else {
		name = named
	}
	if ask.span == 0 {
		return changeWindow(ctx, server, k, name, "opened again", func(w *job.Window) { w.Closed = time.Time{} })
	}
	w := &job.Window{
		Namespace: name.namespace, Name: name.name, Description: ask.reason, Match: job.WindowMatch{Labels: ask.labels, Namespaces: ask.namespaces},
		Schedule: job.Schedule{At: []time.Time{now}}, For: ask.span, Action: job.WindowAction(ask.action),
	}
	if was, err := k.get(server.Client, ctx, name.namespace, name.name); err == nil {
		read, err := server.read(was, k.kind)
		if err != nil {
			return err
		}
		if s := &read.Window.Schedule; len(s.At) == 0 {
			return failed("the window %s opens on a schedule: %s", name, windowOpens(s)).withHint("open a window of another name, or change its document with belfry apply")
		}
	} else if !client.IsType(err, client.TypeNotFound) {
		return err
	}
	if len(ask.labels) == 0 {
		in := "all namespaces"
		if !slices.Contains(w.In(), job.AllNamespaces) {
			in = strings.Join(w.In(), ", ")
		}
		if err := agree(server.env, ask.yes, "%s the runs of every job of %s for %s", windowAction(w), in, ask.span); err != nil {
			return err
		}
	}
	return putWindow(ctx, server, w, "open until "+now.Add(time.Duration(ask.span)).Format(time.RFC3339)+" for jobs "+windowMatches(w))
}

func newWindowClose(env Env, k setKind) *cobra.Command {
	var asked config.Asked
	cmd := &cobra.Command{
		Use:   "close NAME [flags]",
		Short: "Close a maintenance window before its end",
		Long: `Close a maintenance window before its end: runs that it holds are due at once. A window
on a schedule opens at its next time. belfry window open NAME undoes this.`,
		Example: "belfry window close db-upgrade",
		Args:    oneName("window"),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			return changeWindow(ctx, server, k, name, "closed", func(w *job.Window) { w.Closed = env.Now().UTC().Truncate(time.Second) })
		}),
	}
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = setNames(env, &asked, k)
	return cmd
}

// changeWindow changes the document of a window.
func changeWindow(ctx context.Context, server *remote, k setKind, name jobName, done string, change func(*job.Window)) error {
	d, err := k.get(server.Client, ctx, name.namespace, name.name)
	if err != nil {
		return err
	}
	read, err := server.read(d, k.kind)
	if err != nil {
		return err
	}
	change(read.Window)
	return putWindow(ctx, server, read.Window, done)
}

func putWindow(ctx context.Context, server *remote, w *job.Window, done string) error {
	sent, err := client.DocumentOf(job.Document{Kind: job.KindWindow, Window: w}.Bare())
	if err != nil {
		return err
	}
	if _, err := server.Apply(ctx, client.Apply{Documents: []client.Document{sent}}); err != nil {
		return err
	}
	return write(server.env, fmt.Appendf(nil, "window %s %s\n", w.FullName(), done))
}
