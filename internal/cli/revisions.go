package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newJobRevisions(env Env) *cobra.Command {
	var (
		asked  config.Asked
		limit  = 20
		output string
	)
	cmd := &cobra.Command{
		Use:   "revisions NAME [flags]",
		Short: "List the versions of a job, latest first",
		Long: `List the versions of a job, latest first, with their authors and times. belfry job
diff compares two of them, and belfry job rollback restores one.`,
		Example: `belfry job revisions nightly
belfry job revisions nightly --limit 1 -o name     # the current version`,
		Args: oneName("job"),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			list, err := revisionsOf(ctx, server, name, limit)
			if err != nil {
				return err
			}
			return showList(env, output, list, "", func(r client.Revision) string { return fmt.Sprint(r.Version) }, func(w io.Writer) {
				var rows [][]string
				for _, r := range list {
					rows = append(rows, []string{fmt.Sprint(r.Version), instant(env, r.Changed.UTC()), distance(env, r.Changed), orDash(r.Actor)})
				}
				table(w, styleFor(env, env.StdoutIsTerminal), []string{"VERSION", "CHANGED", "", "BY"}, rows)
			})
		}),
	}
	addParsed(cmd.Flags(), &limit, "limit", "", "20", "N", "how many versions to show", parsePositive)
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// revisionsOf returns the latest versions of a job.
func revisionsOf(ctx context.Context, server *remote, name jobName, limit int) (list []client.Revision, err error) {
	for token := ""; ; {
		page, err := server.Revisions(ctx, name.namespace, name.name, min(limit-len(list), pageSize), token)
		if err != nil {
			return nil, err
		}
		list = append(list, page.Items...)
		if token = page.NextPageToken; token == "" || len(list) >= limit {
			return list, nil
		}
	}
}

func newJobDiff(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "diff NAME [VERSION [VERSION]] [flags]",
		Short: "Compare two versions of a job",
		Long: `Compare two versions of a job: the current one and the one before it, a version and
the current one, or two versions.

The exit code is 1 if they differ.`,
		Example: `belfry job diff nightly
belfry job diff nightly 3
belfry job diff nightly 3 5`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return misused("the name of a job is missing")
			}
			if len(args) > 3 {
				return misused("found %d arguments, expected the name of a job and at most two versions", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			server, name, err := connectFor(env, asked, args[0])
			if err != nil {
				return err
			}
			var versions []int64
			for _, text := range args[1:] {
				version, err := parseVersion(text)
				if err != nil {
					return err
				}
				versions = append(versions, version)
			}
			return server.refused(diffJob(cmd.Context(), server, name, versions, output))
		},
	}
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = onlyFirst(jobNames(env, &asked)) // a version follows
	addOutput(cmd, &output, asTable, asJSON, asYAML)
	return cmd
}

// parseVersion reads an argument that is the version of a job.
func parseVersion(text string) (int64, error) {
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version < 1 {
		return 0, misused("%q is not a version, which is a number from 1", text)
	}
	return version, nil
}

// diffJob shows the differences between two versions, by default the present one and its
// predecessor.
func diffJob(ctx context.Context, server *remote, name jobName, versions []int64, output string) error {
	if len(versions) < 2 {
		list, err := revisionsOf(ctx, server, name, 2)
		if err != nil {
			return err
		}
		if len(versions) == 0 {
			versions = append(versions, list[len(list)-1].Version)
		}
		versions = append(versions, list[0].Version)
	}
	r, err := server.Revision(ctx, name.namespace, name.name, versions[1], versions[0])
	if err != nil {
		return err
	}
	if err := showOne(server.env, output, r, "", func(w io.Writer) { diffText(w, styleFor(server.env, server.env.StdoutIsTerminal), r.Diff) }); err != nil {
		return err
	}
	if r.Diff != "" {
		return differs
	}
	return nil
}

func newJobRollback(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "rollback NAME VERSION [flags]",
		Short: "Restore a version of a job",
		Long: `Restore a version of a job. The result is a new version, so it can be undone in the
same way. A paused job stays paused.`,
		Example: `belfry job revisions nightly
belfry job diff nightly 3
belfry job rollback nightly 3`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return misused("found %d arguments, expected the name of a job and a version", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := parseVersion(args[1])
			if err != nil {
				return err
			}
			server, name, err := connectFor(env, asked, args[0])
			if err != nil {
				return err
			}
			change, err := server.Rollback(cmd.Context(), name.namespace, name.name, client.RollbackRequest{Version: version}, 0)
			if err != nil {
				return server.refused(err)
			}
			return showChange(env, output, name, change, fmt.Sprintf("rolled back to version %d", version))
		},
	}
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = onlyFirst(jobNames(env, &asked)) // a version follows
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}
