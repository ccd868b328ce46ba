package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/config"
)

func newNode(env Env) *cobra.Command {
	cmd := group("node", "nodes", "List the nodes that run jobs", "belfry node list\nbelfry node list -o wide")
	cmd.AddCommand(newNodeList(env))
	return cmd
}

// addServer adds the flags of commands that ask a server about itself: no
// namespace belongs to that.
func addServer(cmd *cobra.Command, asked *config.Asked) {
	f := cmd.Flags()
	addWord(f, &asked.Server, "server", "", "URL", "address of the server; else BELFRY_SERVER")
	addWord(f, &asked.Context, "context", "", "NAME", "context of the client's configuration")
	addWord(f, &asked.Data, "data", "", "DIRECTORY", "data directory of a server on this machine; else BELFRY_DATA")
}

func newNodeList(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Aliases: []string{"ls"},
		Short:   "List the nodes with what they run",
		Long: `List the nodes by name, with what they run. A node that is leaving ends what it
runs and takes nothing new; one that is silent was not heard of for some seconds,
and what it ran counts as lost after the time that its jobs say.`,
		Example: "belfry node list\nbelfry node list -o wide\nbelfry node list -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := connect(env, asked)
			if err != nil {
				return err
			}
			return server.refused(listNodes(cmd.Context(), server, output))
		},
	}
	addServer(cmd, &asked)
	addOutput(cmd, &output, asTable, asWide, asJSON, asYAML, asJSONL, asName)
	return cmd
}

func listNodes(ctx context.Context, server *remote, output string) error {
	page, err := server.Nodes(ctx)
	if err != nil {
		return err
	}
	data, err := renderList(output, page.Items, page.NextPageToken, func(n client.Node) string { return n.Name }, func(w io.Writer) {
		nodeTable(w, server.env, page.Items, output == asWide)
	})
	if err != nil {
		return err
	}
	return write(server.env, data)
}

// nodeTable writes nodes for people.
func nodeTable(w io.Writer, env Env, nodes []client.Node, wide bool) {
	head := []string{"NAME", "STATE", "RUNNING", "CAPACITY", "LABELS", "JOINED", "VERSION"}
	if wide {
		head = append(head, "ADDRESS", "ROLES", "HANDLERS", "RENEWED", "ZONES", "SESSION")
	}
	var rows [][]string
	for i := range nodes {
		n := &nodes[i]
		row := []string{n.Name, n.State, fmt.Sprint(n.Running), fmt.Sprint(n.Capacity), orDash(labelText(n.Labels)), instant(env, n.Joined), orDash(n.Version)}
		if wide {
			row = append(row, orDash(n.Address), orDash(strings.Join(n.Roles, ",")), orDash(strings.Join(n.Handlers, ",")),
				instant(env, n.Renewed), orDash(n.Zones), n.Session.String())
		}
		rows = append(rows, row)
	}
	table(w, styleFor(env, env.StdoutIsTerminal), head, rows)
}

// labelText writes labels in the order of their keys.
func labelText(labels map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return strings.Join(parts, ",")
}
