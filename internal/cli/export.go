package cli

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// exportFlags are the flags of belfry export.
type exportFlags struct {
	connection config.Asked
	all        bool
	labels     map[string]string
	output     string
}

func newExport(env Env) *cobra.Command {
	var ask exportFlags
	cmd := &cobra.Command{
		Use:   "export [flags]",
		Short: "Print all jobs, calendars, pools, channels and executors as files for belfry apply",
		Long: `Print the calendars, pools, channels, executors and jobs of all namespaces, or of one, as users wrote
them. belfry apply reads them back, here or on another server. Runs and history
are not included.`,
		Example: `belfry export > all.yaml
belfry export -n web --label team=a
belfry export | belfry apply -f - --server https://other.example`,
		Args: noArguments,
		RunE: asking(env, &ask.connection, func(ctx context.Context, server *remote, _ []string) error {
			return export(ctx, server, ask)
		}),
	}
	f := cmd.Flags()
	f.VarP((*labels)(&ask.labels), "label", "l", "only objects with this label: KEY=VALUE; may be repeated")
	addConnection(cmd, &ask.connection)
	addAll(cmd, &ask.all)
	addOutput(cmd, &ask.output, asYAML, asJSON)
	return cmd
}

func export(ctx context.Context, server *remote, ask exportFlags) error {
	namespace := server.listNamespace(ask.all)
	var documents []job.Document
	for _, list := range [...]struct {
		kind job.Kind // in the order of their names in each other
		of   func(context.Context, string) (client.Page[client.Document], error)
	}{
		{job.KindCalendar, server.Calendars}, {job.KindPool, server.Pools}, {job.KindWindow, server.Windows}, {job.KindChannel, server.Channels}, {job.KindHook, server.Hooks}, {job.KindExecutors, server.ListedExecutors},
	} {
		page, err := list.of(ctx, namespace)
		if err != nil {
			return err
		}
		if documents, err = exported(server, documents, page.Items, list.kind, ask.labels); err != nil {
			return err
		}
	}
	query := client.JobQuery{Namespace: namespace, Labels: ask.labels, PageSize: pageSize}
	for {
		page, err := server.Jobs(ctx, query)
		if err != nil {
			return err
		}
		if documents, err = exported(server, documents, page.Items, job.KindJob, nil); err != nil {
			return err
		}
		if query.PageToken = page.NextPageToken; query.PageToken == "" {
			break
		}
	}
	var b bytes.Buffer
	if err := job.Encode(&b, documents, job.Format(ask.output)); err != nil {
		return failed("write the documents: %v", err)
	}
	return write(server.env, b.Bytes())
}

// exported appends the documents with the labels, without the server's additions.
func exported(server *remote, documents []job.Document, page []client.Document, kind job.Kind, labels map[string]string) ([]job.Document, error) {
	for _, came := range page {
		read, err := server.read(came, kind)
		if err != nil {
			return nil, err
		}
		d := read.Bare()
		has := map[string]string{}
		switch {
		case d.Job != nil:
			has = d.Job.Labels
		case d.Calendar != nil:
			has = d.Calendar.Labels
		case d.Pool != nil:
			has = d.Pool.Labels
		case d.Window != nil:
			has = d.Window.Labels
		case d.Channel != nil:
			has = d.Channel.Labels
		case d.Hook != nil:
			has = d.Hook.Labels
		case d.Executors != nil:
			has = d.Executors.Labels
		}
		if hasAll(has, labels) {
			documents = append(documents, d)
		}
	}
	return documents, nil
}

func hasAll(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}
