package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newAttention(env Env) *cobra.Command {
	cmd := newAttentionList(env, "attention", "Show what needs attention, and mark it for others")
	list := newAttentionList(env, "list", "Show what needs attention")
	list.Long, list.Example = "The same as belfry attention alone.", "belfry attention list"
	cmd.AddCommand(append(newMarks(env), list)...)
	return cmd
}

func newAttentionList(env Env, use, short string) *cobra.Command {
	var (
		asked  config.Asked
		all    bool
		output string
	)
	cmd := &cobra.Command{
		Use:   use + " [flags]",
		Short: short,
		Long: `Show what needs attention, the worst first: jobs whose latest runs failed, runs that
are due and do not start or take much longer than usual, jobs that were paused after
failures, jobs that no live node may run, silent nodes, nodes whose clock is off,
warnings of nodes about their settings, channels that do not deliver, and repositories
that are not reached or whose last commit has a mistake. Jobs that fail with the same error
stand below the worst of them. At most 100 things are shown, what is snoozed last. The
commands below mark them for other people.

The exit code is 0 whatever is found.`,
		Example: "belfry attention\nbelfry attention -n shop\nbelfry attention -o json",
		Args:    noArguments,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, _ []string) error {
			return showAttention(ctx, server, all, output)
		}),
	}
	addConnection(cmd, &asked)
	addAll(cmd, &all)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL)
	return cmd
}

func showAttention(ctx context.Context, server *remote, all bool, output string) error {
	page, err := server.Attention(ctx, server.listNamespace(all))
	if err != nil {
		return err
	}
	return showList(server.env, output, page.Items, page.NextPageToken, func(a client.Attention) string { return a.Job }, func(w io.Writer) {
		attentionTable(w, server.env, page.Items)
	})
}

// attentionTable writes problems for people.
func attentionTable(w io.Writer, env Env, list []client.Attention) {
	if len(list) == 0 {
		fmt.Fprintln(w, "Nothing needs attention.")
		return
	}
	var rows [][]string
	first := map[string]*client.Attention{}
	for _, a := range bySameError(list) {
		about := orDash(a.Job)
		if a.Channel != "" {
			about = "channel " + a.Channel
		}
		if a.Source != "" {
			about = "jobs of " + a.Source
		}
		if a.Node != "" {
			about = cmp.Or(a.Job, "node "+a.Node)
		}
		what := reason.Beside(a.Text, a.Cause)
		switch worst := first[a.CauseFingerprint]; {
		case worst != nil:
			what = a.Text + ": the same error as " + worst.Job
		case a.CauseFingerprint != "":
			first[a.CauseFingerprint] = a
		}
		rows = append(rows, []string{string(a.Severity), string(a.Kind), about, instant(env, a.Since), what + marksOf(env, a)})
	}
	table(w, styleFor(env, env.StdoutIsTerminal), []string{"SEVERITY", "KIND", "ABOUT", "SINCE", "WHAT"}, rows)
}

// bySameError groups problems by error, below the worst of each group.
func bySameError(list []client.Attention) []*client.Attention {
	groups := make([][]*client.Attention, 0, len(list))
	at := map[string]int{}
	for i := range list {
		a := &list[i]
		if n, known := at[a.CauseFingerprint]; known && a.CauseFingerprint != "" {
			groups[n] = append(groups[n], a)
			continue
		}
		at[a.CauseFingerprint] = len(groups)
		groups = append(groups, []*client.Attention{a})
	}
	return slices.Concat(groups...)
}

// marksOf describes people's marks on a problem.
func marksOf(env Env, a *client.Attention) (text string) {
	if a.TakenBy != "" {
		text += "; " + a.TakenBy + " has it"
	}
	if a.Note != "" {
		text += "; " + a.NoteBy + ": " + a.Note
	}
	switch z := a.Snoozed; {
	case z == nil:
	case z.NextVersion:
		text += "; snoozed by " + z.By + " until the next version"
	case z.AnotherCause:
		text += "; snoozed by " + z.By + " until another cause"
	default:
		text += "; snoozed by " + z.By + " until " + instant(env, z.Until)
	}
	return text
}
