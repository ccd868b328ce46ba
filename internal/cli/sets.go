package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// setKind has the differences between kinds of documents.
type setKind struct {
	kind    job.Kind
	about   string // the effect of a deletion
	example string // an example of a name
	head    []string
	row     func(job.Document) []string
	list    func(*client.Client, context.Context, string) (client.Page[client.Document], error)
	get     func(c *client.Client, ctx context.Context, namespace, name string) (client.Document, error)
	remove  func(c *client.Client, ctx context.Context, namespace, name string, version int64) error
}

func newCalendar(env Env) *cobra.Command {
	return newSet(env, setKind{
		kind: job.KindCalendar, about: "A calendar that a job names is not deleted.", example: "holidays",
		head: []string{"NAME", "WEEKDAYS", "INCLUDE", "EXCLUDE", "DESCRIPTION"},
		row: func(d job.Document) []string {
			days := d.Calendar.Days
			return []string{
				d.FullName(), orDash(strings.Join(days.Weekdays, ",")), shortDays(days.Include), shortDays(days.Exclude), orDash(d.Calendar.Description),
			}
		},
		list: (*client.Client).Calendars, get: (*client.Client).Calendar, remove: (*client.Client).DeleteCalendar,
	})
}

func newPool(env Env) *cobra.Command {
	return newSet(env, setKind{
		kind: job.KindPool, about: "Jobs that name it then share one slot, as for any undeclared pool.", example: "database",
		head: []string{"NAME", "SIZE", "RATE", "KEYS", "DESCRIPTION"},
		row: func(d job.Document) []string {
			size, rate, keys := "", "", ""
			if n := d.Pool.Slots.Size; n > 0 {
				size = fmt.Sprint(n)
			}
			if r := d.Pool.Slots.Rate; r != nil {
				rate = fmt.Sprintf("%d per %s", r.Limit, r.Per)
			}
			if d.Pool.Slots.PerKey {
				keys = "each"
			}
			return []string{d.FullName(), orDash(size), orDash(rate), orDash(keys), orDash(d.Pool.Description)}
		},
		list: (*client.Client).Pools, get: (*client.Client).Pool, remove: (*client.Client).DeletePool,
	})
}

func newChannel(env Env) *cobra.Command {
	k := setKind{
		kind: job.KindChannel, about: "What it had to say and has not said is dropped.", example: "ops",
		head: []string{"NAME", "SERVICE", "EVENTS", "DESCRIPTION"},
		row: func(d job.Document) []string {
			var events []string
			for _, r := range d.Channel.Rules {
				for _, e := range r.Events {
					if !slices.Contains(events, string(e)) {
						events = append(events, string(e))
					}
				}
			}
			return []string{d.FullName(), d.Channel.To.Kind(), strings.Join(events, ","), orDash(d.Channel.Description)}
		},
		list: (*client.Client).Channels, get: (*client.Client).Channel, remove: (*client.Client).DeleteChannel,
	}
	cmd := newSet(env, k)
	cmd.Short = "List, show, test and delete channels of notifications"
	cmd.Long = "List, show, test and delete channels, through which notifications reach people and programs. belfry apply creates and updates them."
	cmd.AddCommand(newChannelTest(env, k), newChannelStatus(env))
	return cmd
}

func newListed(env Env) *cobra.Command {
	cmd := newSet(env, setKind{
		kind: job.KindExecutors, about: "Its addresses get no runs any more, unless executors register with them.", example: "order-service",
		head: []string{"NAME", "GROUP", "ADDRESSES", "TOKEN", "TITLE"},
		row: func(d job.Document) []string {
			e := d.Executors
			return []string{d.FullName(), e.Appname(), orDash(strings.Join(e.Addresses, ",")), orDash(e.Token), orDash(e.Title)}
		},
		list: (*client.Client).ListedExecutors, get: (*client.Client).ExecutorsDocument, remove: (*client.Client).DeleteExecutors,
	})
	cmd.Long = "List, show and delete documents of kind executors: executors of XXL-JOB whose addresses are typed in. belfry apply creates and updates them; belfry xxl executors shows all executors."
	return cmd
}

// shortDays formats the first of some dates, and the number of further ones.
func shortDays(days []string) string {
	switch len(days) {
	case 0:
		return "-"
	case 1:
		return days[0]
	}
	return fmt.Sprintf("%s and %d more", days[0], len(days)-1)
}

func newSet(env Env, k setKind) *cobra.Command {
	name, several := k.command(), k.kind.Plural()
	cmd := group(name, several, "List, show and delete "+several, fmt.Sprintf("belfry %s list\nbelfry %s get %s", name, name, k.example))
	cmd.Long = fmt.Sprintf("List, show and delete %s. belfry apply creates and updates them.", several)
	cmd.AddCommand(newSetList(env, k), newSetGet(env, k), newSetDelete(env, k))
	return cmd
}

func newSetList(env Env, k setKind) *cobra.Command {
	return listCommand(env, &cobra.Command{
		Short:   fmt.Sprintf("List %s by name", k.kind.Plural()),
		Example: fmt.Sprintf("belfry %s list\nbelfry %s list -o name", k.command(), k.command()),
	}, true, func(ctx context.Context, server *remote, namespace, output string) error {
		return listSets(ctx, server, k, namespace, output)
	})
}

func listSets(ctx context.Context, server *remote, k setKind, namespace, output string) error {
	page, err := k.list(server.Client, ctx, namespace)
	if err != nil {
		return err
	}
	var items []serverDocument
	var rows [][]string
	for _, d := range page.Items {
		read, err := server.read(d, k.kind)
		if err != nil {
			return err
		}
		items, rows = append(items, read), append(rows, k.row(read.Document))
	}
	return showList(server.env, output, items, page.NextPageToken, serverDocument.FullName, func(w io.Writer) {
		table(w, styleFor(server.env, server.env.StdoutIsTerminal), k.head, rows)
	})
}

func newSetGet(env Env, k setKind) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:     "get NAME [flags]",
		Short:   fmt.Sprintf("Show a %s as it was written", documentOf(k.kind)),
		Example: fmt.Sprintf("belfry %s get %s", k.command(), k.example),
		Args:    oneName(documentOf(k.kind)),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			d, err := k.get(server.Client, ctx, name.namespace, name.name)
			if err != nil {
				return err
			}
			return showDocument(env, output, name, d)
		}),
	}
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = setNames(env, &asked, k)
	addOutput(cmd, &output, asYAML, asJSON, asName)
	return cmd
}

func newSetDelete(env Env, k setKind) *cobra.Command {
	var (
		asked config.Asked
		yes   bool
	)
	cmd := &cobra.Command{
		Use:     "delete NAME [flags]",
		Aliases: []string{"rm"},
		Short:   fmt.Sprintf("Delete a %s", documentOf(k.kind)),
		Long:    fmt.Sprintf("Delete a %s. %s", documentOf(k.kind), k.about),
		Example: fmt.Sprintf("belfry %s delete %s --yes", k.command(), k.example),
		Args:    oneName(documentOf(k.kind)),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			return deleteSet(ctx, server, k, name, yes)
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "delete without asking")
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = setNames(env, &asked, k)
	return cmd
}

// command is the noun of the commands: singular, although a document of executors lists several.
func (k setKind) command() string {
	if k.kind == job.KindExecutors {
		return "executor"
	}
	return string(k.kind)
}

// documentOf returns the name of a kind with an article.
func documentOf(kind job.Kind) string {
	if kind == job.KindExecutors {
		return "list of executors"
	}
	return string(kind)
}

// setNames returns the shell completion of names of calendars or pools.
func setNames(env Env, asked *config.Asked, k setKind) cobra.CompletionFunc {
	return namesOf(env, asked, func(ctx context.Context, server *remote, typed string) ([]string, error) {
		page, err := k.list(server.Client, ctx, "")
		return server.namesIn(page, k.kind, typed), err
	})
}

// deleteSet deletes the version that exists when it begins: the user did not mean a version created
// since.
func deleteSet(ctx context.Context, server *remote, k setKind, name jobName, yes bool) error {
	d, err := k.get(server.Client, ctx, name.namespace, name.name)
	if err != nil {
		return err
	}
	read, err := server.read(d, k.kind)
	if err != nil {
		return err
	}
	if err := agree(server.env, yes, "delete the %s %s", k.kind, name); err != nil {
		return err
	}
	if err := k.remove(server.Client, ctx, name.namespace, name.name, read.Version()); err != nil {
		return err
	}
	return write(server.env, fmt.Appendf(nil, "%s %s deleted\n", k.kind, name))
}
