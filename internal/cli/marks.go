package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
)

// newMarks returns the commands by which people mark what needs attention.
func newMarks(env Env) []*cobra.Command {
	return []*cobra.Command{
		newMark(env, "snooze", "Put a problem aside", `Put a problem aside until a time, until the definition of the job changes or until it fails
for another cause, whichever comes first. It stands at the end of the list meanwhile, and
comes back alone.`, "belfry attention snooze shop/price-import --until 2h\nbelfry attention snooze shop/price-import --next-version --note 'fixed in the next release'\nbelfry attention snooze --channels --until tomorrow", "snoozed"),
		newMark(env, "wake", "End the snooze of a problem", "End the snooze of a problem.", "belfry attention wake shop/price-import", "no longer snoozed"),
		newMark(env, "take", "Say that you look after a problem", "Say that you look after a problem: others see your name.", "belfry attention take shop/price-import\nbelfry attention take --node ber-3", "taken"),
		newMark(env, "release", "Say that you no longer look after a problem", "Say that you no longer look after a problem.", "belfry attention release shop/price-import", "released"),
		newMark(env, "note", "Write a note for others at a problem", "Write a note for others at a problem, in place of the one before.", "belfry attention note shop/price-import --note 'the supplier is informed'", "noted"),
	}
}

func newMark(env Env, verb, short, long, example, done string) *cobra.Command {
	var (
		asked config.Asked
		r     client.AttentionRequest
	)
	cmd := &cobra.Command{
		Use:     verb + " [JOB] [flags]",
		Short:   short,
		Long:    long + "\n\nThe problem is of a job or, with a flag, of a node, the channels or a repository.",
		Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			given := len(args)
			for _, isGiven := range []bool{r.Node != "", r.Channels, r.Source != ""} {
				if isGiven {
					given++
				}
			}
			if given != 1 {
				return misused("found %d problems, expected one: a job, --node, --channels or --source", given)
			}
			return nil
		},
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			about := "channels"
			switch {
			case len(args) > 0:
				name, err := server.named(args[0])
				if err != nil {
					return err
				}
				r.Job = name.String()
				about = "job " + r.Job
			case r.Node != "":
				about = "node " + r.Node
			case r.Source != "":
				about = "jobs of " + r.Source
			}
			if _, err := server.Mark(ctx, verb, r); err != nil {
				return err
			}
			fmt.Fprintf(server.env.Stdout, "%s %s\n", about, done)
			return nil
		}),
	}
	f := cmd.Flags()
	addWord(f, &r.Node, "node", "", "NAME", "the problem of a node")
	f.BoolVar(&r.Channels, "channels", false, "the problem of channels that do not deliver")
	addWord(f, &r.Source, "source", "", "OWNER", "the problem of the repository of an owner")
	switch verb {
	case "snooze":
		addParsed(f, &r.Until, "until", "", "", "TIME|DURATION", "until this time", momentFrom(env, 1))
		f.BoolVar(&r.NextVersion, "next-version", false, "until the definition of the job changes")
		f.BoolVar(&r.AnotherCause, "another-cause", false, "until it fails for another cause")
		fallthrough
	case "note":
		addWord(f, &r.Note, "note", "", "TEXT", "a note for others")
	}
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	return cmd
}
