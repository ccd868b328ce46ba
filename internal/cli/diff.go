package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
)

// diffFlags are the flags of belfry diff.
type diffFlags struct {
	sources
	output string
}

func newDiff(env Env) *cobra.Command {
	var ask diffFlags
	cmd := &cobra.Command{
		Use:   "diff -f FILE|FOLDER|- [flags]",
		Short: "Show what belfry apply would change",
		Long: `Show what belfry apply would change, line by line. The server checks and compares
the documents, and changes nothing.

The exit code is 1 if something would change.`,
		Example: `belfry diff -f jobs.yaml
belfry diff -f jobs/ -R --owner team-a --prune
belfry diff -f jobs/ -o name                     # only what differs`,
		Args: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ask.check("compare"); err != nil {
				return err
			}
			return diff(cmd.Context(), env, ask)
		},
	}
	addFiles(cmd, &ask.files, &ask.recursive)
	f := cmd.Flags()
	addWord(f, &ask.owner, "owner", "", "NAME", "owner of the files, as for apply")
	f.BoolVar(&ask.prune, "prune", false, "also show which jobs of the owner apply would delete")
	addConnection(cmd, &ask.connection)
	addOutput(cmd, &ask.output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

func diff(ctx context.Context, env Env, ask diffFlags) error {
	v, server, request, err := ask.request(ctx, env)
	if err != nil {
		return err
	}
	request.DryRun, request.Diff = true, true
	would, err := server.Apply(ctx, request)
	if err != nil {
		return v.placed(server.env, server.refused(err))
	}
	warn(env, would)
	var changed []client.ApplyResult
	for _, r := range would.Results {
		if r.Result != client.Unchanged {
			changed = append(changed, r)
		}
	}
	if err := showList(env, ask.output, changed, "", resultName, func(w io.Writer) {
		s := styleFor(env, env.StdoutIsTerminal)
		for _, r := range changed {
			diffText(w, s, r.Diff)
		}
	}); err != nil {
		return err
	}
	if len(changed) > 0 {
		return differs
	}
	return nil
}

// diffText writes the differences of two documents for people.
func diffText(w io.Writer, s style, text string) {
	for line := range strings.Lines(text) {
		line = printable(strings.TrimSuffix(line, "\n"))
		switch {
		case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "+++ "):
			line = s.strong(line)
		case strings.HasPrefix(line, "@@"):
			line = s.faint(line)
		case strings.HasPrefix(line, "-"):
			line = s.wrong(line)
		case strings.HasPrefix(line, "+"):
			line = s.right(line)
		}
		fmt.Fprintln(w, line)
	}
}
