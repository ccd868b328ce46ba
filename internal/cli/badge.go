package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newBadge(env Env) *cobra.Command {
	cmd := group("badge", "badges", "Create, list and revoke badges", "belfry badge create --job shop/price-import")
	cmd.AddCommand(
		listCommand(env, &cobra.Command{
			Short:   "List badges",
			Long:    "List the badges of the jobs that you may change, without their links.",
			Example: "belfry badge list",
		}, false, listBadges),
		newBadgeVerb(env, "create", "Create the badge of a job or label", `Create a badge: a link that shows to everyone who has it whether a job is passing, failing
or paused, or how many jobs with a label fail, as a picture and as JSON for shields.io. The
link allows nothing else, cannot be guessed and is shown once. Creating it again ends the
link before.`, (*client.Client).CreateBadge),
		newBadgeVerb(env, "revoke", "End the link of a badge", "End the link of the badge of a job or label.", (*client.Client).RevokeBadge),
	)
	return cmd
}

func listBadges(ctx context.Context, server *remote, _, output string) error {
	page, err := server.Badges(ctx)
	if err != nil {
		return err
	}
	return showList(server.env, output, page.Items, page.NextPageToken, func(b client.Badge) string { return b.Token }, func(w io.Writer) {
		var rows [][]string
		for i := range page.Items {
			b := &page.Items[i]
			rows = append(rows, []string{b.Token, instant(server.env, b.Created), b.By})
		}
		table(w, styleFor(server.env, server.env.StdoutIsTerminal), []string{"TOKEN", "CREATED", "BY"}, rows)
	})
}

func newBadgeVerb(env Env, verb, short, long string, do func(*client.Client, context.Context, client.BadgeOf) (client.Badge, error)) *cobra.Command {
	var (
		asked  config.Asked
		of     client.BadgeOf
		output string
	)
	cmd := &cobra.Command{
		Use:     verb + " --job NAME | --label KEY=VALUE [flags]",
		Short:   short,
		Long:    long,
		Example: "belfry badge " + verb + " --job shop/price-import\nbelfry badge " + verb + " --label team=shop --namespace shop",
		Args:    cobra.NoArgs,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, _ []string) error {
			if of.Label != "" {
				of.Namespace = server.listed
			}
			if of.Job != "" {
				full, err := server.named(of.Job)
				if err != nil {
					return err
				}
				of.Job = full.namespace + "/" + full.name
			}
			badge, err := do(server.Client, ctx, of)
			if err != nil {
				return err
			}
			return showOne(server.env, output, badge, badge.Token, func(w io.Writer) {
				for _, path := range []string{badge.SVG, badge.JSON} {
					if path != "" {
						fmt.Fprintln(w, strings.TrimSuffix(server.URL(), "/")+path)
					}
				}
			})
		}),
	}
	addWord(cmd.Flags(), &of.Job, "job", "", "NAME", "the job that the badge shows")
	addWord(cmd.Flags(), &of.Label, "label", "", "KEY=VALUE", "the label of the jobs that the badge shows")
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	return cmd
}
