package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
)

// auditFlags are the flags of belfry audit.
type auditFlags struct {
	connection    config.Asked
	object, actor string
	action        string
	since, until  time.Time
	limit         int
	all           bool
	output        string
}

func newAudit(env Env) *cobra.Command {
	ask := auditFlags{limit: 50}
	cmd := &cobra.Command{
		Use:   "audit [flags]",
		Short: "Show who changed what",
		Long: `Show changes of jobs, calendars, pools, channels, executors and tokens, and runs
started or cancelled by hand, latest first. The actor is the name of a token; belfry
is the server, for example when it ends a pause.

For a changed definition the table names the fields that differ; -o wide shows
their old and new values, and from where and with what the change was made. Values that often hold secrets are hidden: environment,
headers and bodies.`,
		Example: `belfry audit
belfry audit --object default/nightly -o wide
belfry audit --actor ann --since 7d
belfry audit --action job.delete
belfry audit --since 2026-11-01T00:00:00Z --limit 1000 -o jsonl`,
		Args: noArguments,
		RunE: asking(env, &ask.connection, func(ctx context.Context, server *remote, _ []string) error {
			return showAudit(ctx, server, ask)
		}),
	}
	f := cmd.Flags()
	addWord(f, &ask.object, "object", "", "NAME", "only changes of this object: NAMESPACE/NAME, or the name of a token")
	addWord(f, &ask.actor, "actor", "", "NAME", "only changes by the holder of this token")
	addWord(f, &ask.action, "action", "", "ACTION", "only these changes, such as job.change; or job, for all changes of jobs")
	addParsed(f, &ask.since, "since", "", "", "TIME|DURATION", "only changes since this time", momentFrom(env, -1))
	addParsed(f, &ask.until, "until", "", "", "TIME|DURATION", "only changes before this time", momentFrom(env, -1))
	addParsed(f, &ask.limit, "limit", "", fmt.Sprint(ask.limit), "N", "how many changes to show", parsePositive)
	addConnection(cmd, &ask.connection)
	addAll(cmd, &ask.all)
	addOutput(cmd, &ask.output, asTable, asWide, asJSON, asYAML, asJSONL)
	return cmd
}

func showAudit(ctx context.Context, server *remote, ask auditFlags) error {
	query := client.AuditQuery{Namespace: server.listNamespace(ask.all), Object: ask.object, Actor: ask.actor, Action: ask.action, From: ask.since, To: ask.until}
	if ask.object != "" {
		query.Namespace = "" // its name has one, or it is a token
	}
	var records []client.AuditRecord
	next := ""
	for len(records) < ask.limit {
		query.PageSize = min(pageSize, ask.limit-len(records))
		page, err := server.Audit(ctx, query)
		if err != nil {
			return inFlags(err, map[string]string{"from": "--since", "to": "--until"})
		}
		records = append(records, page.Items...)
		next = page.NextPageToken
		if query.PageToken = next; next == "" {
			break
		}
	}
	return showList(server.env, ask.output, records, next, func(r client.AuditRecord) string { return r.Object }, func(w io.Writer) {
		auditTable(w, server.env, records, ask.output == asWide)
	})
}

// auditTable writes changes for people.
func auditTable(w io.Writer, env Env, records []client.AuditRecord, wide bool) {
	var rows [][]string
	for i := range records {
		r := &records[i]
		version := ""
		if r.Version > 0 {
			version = fmt.Sprint(r.Version)
		}
		row := []string{instant(env, r.Time), orDash(r.Actor), r.Action, r.Object, orDash(version)}
		if wide {
			row = append(row, orDash(r.Client), orDash(r.Address))
		}
		rows = append(rows, append(row, orDash(auditDetail(r, wide))))
	}
	head := []string{"TIME", "ACTOR", "ACTION", "OBJECT", "VERSION"}
	if wide {
		head = append(head, "CLIENT", "ADDRESS")
	}
	table(w, styleFor(env, env.StdoutIsTerminal), append(head, "DETAIL"), rows)
}

// auditDetail describes a change further: in a wide table, the old and new values of each
// field.
func auditDetail(r *client.AuditRecord, wide bool) string {
	var parts []string
	if r.Detail != "" {
		parts = append(parts, r.Detail)
	}
	var fields []string
	for _, c := range r.Changes {
		if wide {
			parts = append(parts, fmt.Sprintf("%s: %s → %s", c.Path, orDash(c.Before), orDash(c.After)))
		} else {
			fields = append(fields, c.Path)
		}
	}
	if len(fields) > 0 {
		parts = append(parts, strings.Join(fields, ", "))
	}
	return strings.Join(parts, "; ")
}
