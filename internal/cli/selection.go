package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// selection is the jobs of a command: named ones, or ones with labels.
type selection struct {
	labels map[string]string
	yes    bool
}

func (s *selection) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.VarP((*labels)(&s.labels), "label", "l", "all jobs with this label: KEY=VALUE; may be repeated")
	f.BoolVarP(&s.yes, "yes", "y", false, "with --label, do not ask")
}

// check requires names or labels.
func (s *selection) check(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 && len(s.labels) == 0:
		return misused("the name of a job is missing").withHint("--label selects several")
	case len(args) > 0 && len(s.labels) > 0:
		return misused("give the names of jobs or --label, not both")
	}
	return nil
}

// jobs returns the selected jobs. For a selection by labels the user confirms before the
// command acts.
func (s *selection) jobs(ctx context.Context, server *remote, args []string, verb string) ([]jobName, error) {
	var names []jobName
	for _, text := range args {
		name, err := server.named(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(s.labels) == 0 {
		return names, nil
	}
	names, err := server.labelled(ctx, s.labels)
	if err != nil {
		return nil, err
	}
	return names, agree(server.env, s.yes, "%s %s: %s", verb, counted(len(names), "job"), shortList(textsOf(names)))
}

// labelled returns the jobs with labels, in the namespaces that lists show.
func (r *remote) labelled(ctx context.Context, labels map[string]string) ([]jobName, error) {
	query := client.JobQuery{Namespace: r.listed, Labels: labels, PageSize: pageSize}
	var names []jobName
	for {
		page, err := r.Jobs(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, d := range page.Items {
			read, err := r.read(d, job.KindJob)
			if err != nil {
				return nil, err
			}
			j := read.Job
			names = append(names, jobName{j.Namespace, j.Name})
		}
		if query.PageToken = page.NextPageToken; query.PageToken == "" {
			break
		}
	}
	if len(names) == 0 {
		return nil, &failure{code: ExitNotFound, message: "there is no job with these labels"}
	}
	return names, nil
}

func textsOf(names []jobName) []string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = name.String()
	}
	return texts
}

// jobChange is a changed job.
type jobChange struct {
	client.Change
	name jobName
}

// change changes the selected jobs, one after the other, and shows the results. It stops at the
// first failure.
func (s *selection) change(ctx context.Context, server *remote, args []string, output, verb, done string, do func(context.Context, jobName) (client.Change, error)) error {
	names, err := s.jobs(ctx, server, args, verb)
	if err != nil {
		return err
	}
	var list []jobChange
	for i, name := range names {
		change, err := do(ctx, name)
		if err != nil {
			return server.partly(err, done, textsOf(names[:i]))
		}
		list = append(list, jobChange{change, name})
	}
	if len(args) == 1 {
		return showChange(server.env, output, names[0], list[0].Change, done)
	}
	for _, c := range list {
		warnOfChange(server.env, c.name, c.Change)
	}
	return showList(server.env, output, list, "", func(c jobChange) string { return c.name.String() }, func(w io.Writer) {
		for _, c := range list {
			as := done
			if c.Result == client.Unchanged {
				as = "unchanged"
			}
			changeText(w, c.name, c.Change, as)
		}
	})
}

// partly adds earlier successes to a failure.
func (r *remote) partly(err error, done string, names []string) error {
	if len(names) == 0 {
		return err
	}
	f := asFailure(r.refused(err))
	f.details = append(f.details, fmt.Sprintf("already %s: %s", done, shortList(names)))
	return f
}
