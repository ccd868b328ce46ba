package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

func newNode(env Env) *cobra.Command {
	cmd := group("node", "nodes", "List and drain nodes", "belfry node list\nbelfry node drain one --reason 'a new disk' --wait")
	cmd.AddCommand(newNodeList(env), newNodeDrain(env), newNodeUndrain(env))
	return cmd
}

func newNodeList(env Env) *cobra.Command {
	var (
		asked  config.Asked
		gone   bool
		output string
	)
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Aliases: []string{"ls"},
		Short:   "List nodes",
		Long: `List the nodes by name, with what they run. A leaving node finishes its runs and
accepts no new ones; a drained node does not accept runs until it is undrained; a
silent node has not renewed its session for some seconds, and its runs are lost after
the lost_after of their jobs.

CLOCK is how far the clock of the machine is ahead of the clock of the store, which
decides when jobs start: a wrong clock starts nothing early or late. With etcd, which has
no clock, the nodes agree on one; "off" is a node whose clock is off it, or was just set,
and which plans and claims nothing.

With -o wide, PARTITIONS is how many of the 256 partitions of jobs the node plans, STORE
how long the store took for its last read and write of a note, CALLS how long half and 99
of 100 of its last 1,000 calls of the store took at most, and HOUR how many attempts it
started within the last hour. Nodes report this once a minute. LATE is how long after they
were due half and 99 of 100 runs started at most, of those that ended within the last
hour, at most 500 of all nodes together.`,
		Example: "belfry node list\nbelfry node list -o wide\nbelfry node list --gone\nbelfry node list -o json",
		Args:    noArguments,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, _ []string) error {
			return listNodes(ctx, server, gone, output)
		}),
	}
	cmd.Flags().BoolVar(&gone, "gone", false, "also nodes that are gone and were there within the last 7 days")
	addServer(cmd, &asked)
	addOutput(cmd, &output, asTable, asWide, asJSON, asYAML, asJSONL, asName)
	return cmd
}

func listNodes(ctx context.Context, server *remote, gone bool, output string) error {
	list := server.Nodes
	if gone {
		list = server.GoneNodes
	}
	page, err := list(ctx)
	if err != nil {
		return err
	}
	var late map[string][]time.Duration
	if output == asWide {
		if late, err = lateness(ctx, server); err != nil {
			return err
		}
	}
	return showList(server.env, output, page.Items, page.NextPageToken, func(n client.Node) string { return n.Name }, func(w io.Writer) {
		nodeTable(w, server.env, page.Items, output == asWide, late)
	})
}

const (
	// lateSpan and lateRuns bound the runs that show a node's lateness: their age, and a page of
	// the API.
	lateSpan = time.Hour
	lateRuns = 500
)

// lateness returns how long after they were due the runs started that ended lately, in order, by their
// nodes. First attempts count: a retry is due later.
func lateness(ctx context.Context, server *remote) (map[string][]time.Duration, error) {
	page, err := server.Runs(ctx, client.RunQuery{States: []job.RunState{job.StateDone}, From: server.env.Now().Add(-lateSpan), PageSize: lateRuns})
	if err != nil {
		return nil, err
	}
	late := map[string][]time.Duration{}
	for i := range page.Items {
		if r := &page.Items[i]; r.Attempt == 1 && r.Node != "" && !r.Started.IsZero() {
			late[r.Node] = append(late[r.Node], max(r.Started.Sub(r.Due), 0))
		}
	}
	for _, list := range late {
		slices.Sort(list)
	}
	return late, nil
}

// lateText formats how late half and 99 of 100 runs of a node started at most.
func lateText(late []time.Duration) string {
	n := len(late)
	if n == 0 {
		return ""
	}
	at := func(percent int) string { return millis(late[(n*percent+99)/100-1].Seconds()) }
	return at(50) + "/" + at(99)
}

// handlersOf returns the handlers of a node for people, with the clusters that it reaches by their names.
func handlersOf(n *client.Node) []string {
	list := slices.Clone(n.Handlers)
	for i, handler := range list {
		if cluster, is := job.ClusterOf(handler); is {
			list[i] = "kubernetes:" + cluster
		}
	}
	return list
}

// nodeTable writes nodes for people.
func nodeTable(w io.Writer, env Env, nodes []client.Node, wide bool, late map[string][]time.Duration) {
	head := []string{"NAME", "STATE", "RUNNING", "CAPACITY", "CLOCK", "LABELS", "JOINED", "VERSION"}
	if wide {
		head = append(head, "ADDRESS", "ROLES", "HANDLERS", "ENGINE", "RENEWED", "ZONES", "SESSION", "PARTITIONS", "STORE", "CALLS", "HOUR", "LATE", "DRAINED")
	}
	var rows [][]string
	for i := range nodes {
		n := &nodes[i]
		row := []string{n.Name, n.State, fmt.Sprint(n.Running), fmt.Sprint(n.Capacity), clockText(n.ClockAhead, n.ClockOff), orDash(labelText(n.Labels)), instant(env, n.Joined), orDash(n.Version)}
		if wide {
			row = append(row, orDash(n.Address), orDash(strings.Join(n.Roles, ",")), orDash(strings.Join(handlersOf(n), ",")), orDash(n.Engine),
				instant(env, n.Renewed), orDash(n.Zones), n.Session.String(), orDash(countText(n.Partitions)), orDash(pairText(n.StoreRead, n.StoreWrite)), orDash(pairText(n.StoreP50, n.StoreP99)),
				orDash(hourText(n)), orDash(lateText(late[n.Name])), orDash(drainText(n)))
		}
		rows = append(rows, row)
	}
	table(w, styleFor(env, env.StdoutIsTerminal), head, rows)
}

func countText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// millis writes seconds as milliseconds.
func millis(seconds float64) string { return fmt.Sprintf("%.1fms", seconds*1000) }

// pairText formats two times that a node reports, "" before it has.
func pairText(one, other float64) string {
	if one == 0 && other == 0 {
		return ""
	}
	return millis(one) + "/" + millis(other)
}

// hourText formats how many attempts a node started within the last hour.
func hourText(n *client.Node) string {
	if n.Starts == nil {
		return ""
	}
	sum := 0
	for _, count := range n.Starts {
		sum += count
	}
	return fmt.Sprint(sum)
}

// clockText formats by how much a clock is ahead, to a tenth of a second, and whether it stops its
// node.
func clockText(ahead float64, off bool) string {
	d := time.Duration(ahead * float64(time.Second)).Round(100 * time.Millisecond)
	text := d.String()
	if d > 0 {
		text = "+" + text
	}
	if off {
		text += " off"
	}
	return text
}

// labelText writes labels in the order of their keys.
func labelText(labels map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return strings.Join(parts, ",")
}

// drainText describes who drained a node and why, "" if it is not drained.
func drainText(n *client.Node) string {
	switch {
	case n.DrainedBy == "":
		return ""
	case n.DrainReason == "":
		return "by " + n.DrainedBy
	}
	return "by " + n.DrainedBy + ": " + n.DrainReason
}

// drainFlags are the flags of belfry node drain.
type drainFlags struct {
	asked   config.Asked
	reason  string
	wait    bool
	timeout job.Duration
	output  string
}

func newNodeDrain(env Env) *cobra.Command {
	var ask drainFlags
	cmd := &cobra.Command{
		Use:   "drain NAME [flags]",
		Short: "Stop a node from accepting runs",
		Long: `Stop a node from accepting runs, including runs by hand. Its running runs continue;
runs planned for it move to other nodes, or wait for one. A node stays drained, even
after a restart, until belfry node undrain.

If it is the only node, nothing starts. Runs that wait until they are too late are
recorded as missed, by the policy of their job.`,
		Example: "belfry node drain one --reason 'a new disk'\nbelfry node drain one --wait --timeout 1h",
		Args:    oneName("node"),
		RunE: asking(env, &ask.asked, func(ctx context.Context, server *remote, args []string) error {
			return drainNode(ctx, server, ask, args[0])
		}),
	}
	f := cmd.Flags()
	addWord(f, &ask.reason, "reason", "", "TEXT", "why, as the node shows it")
	f.BoolVarP(&ask.wait, "wait", "w", false, "wait until the node runs nothing")
	addText(f, &ask.timeout, "timeout", "", "", "DURATION", "how long to wait; exit code 7 after that, and the node stays drained")
	addServer(cmd, &ask.asked)
	addOutput(cmd, &ask.output, asTable, asJSON, asYAML, asName)
	cmd.ValidArgsFunction = nodeNames(env, &ask.asked)
	return cmd
}

func newNodeUndrain(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:     "undrain NAME [flags]",
		Short:   "Let a node accept runs again",
		Example: "belfry node undrain one",
		Args:    oneName("node"),
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			n, err := server.UndrainNode(ctx, args[0])
			if err != nil {
				return err
			}
			return showNode(env, output, &n, "accepts runs again")
		}),
	}
	addServer(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	cmd.ValidArgsFunction = nodeNames(env, &asked)
	return cmd
}

// drainNode drains a node and, if requested, waits until it runs nothing.
func drainNode(ctx context.Context, server *remote, ask drainFlags, name string) error {
	n, err := server.DrainNode(ctx, name, client.DrainRequest{Reason: ask.reason})
	if err != nil {
		return err
	}
	if ask.wait && ask.timeout > 0 && ask.timeout != job.Forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ask.timeout))
		defer cancel()
	}
	if ask.wait && n.Running > 0 {
		server.env.tell("node %s is drained; waiting for %s to end\n", n.Name, counted(n.Running, "run"))
	}
	for wait := awaitFirst; ask.wait && n.Running > 0; wait = min(2*wait, awaitMost) {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			err = server.patient(ctx, func() (err error) { n, err = server.node(ctx, n); return err })
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &failure{code: ExitTimedOut, message: fmt.Sprintf("node %s still runs %s after %s and stays drained", n.Name, counted(n.Running, "attempt"), ask.timeout.InWords())}
		}
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
	}
	text := "accepts no runs, and runs nothing"
	if n.Running > 0 {
		text = "accepts no runs, and is finishing " + counted(n.Running, "run")
	}
	return showNode(server.env, ask.output, &n, text)
}

// node returns the present state of a node. A node that has left runs nothing.
func (r *remote) node(ctx context.Context, n client.Node) (client.Node, error) {
	page, err := r.Nodes(ctx)
	if err != nil {
		return n, err
	}
	for _, now := range page.Items {
		if now.Session == n.Session {
			return now, nil
		}
	}
	n.Running = 0
	return n, nil
}

// showNode writes a node after a change.
func showNode(env Env, output string, n *client.Node, text string) error {
	return showOne(env, output, n, n.Name, func(w io.Writer) { fmt.Fprintf(w, "node %s %s\n", n.Name, text) })
}

// nodeNames returns the shell completion of node names.
func nodeNames(env Env, asked *config.Asked) cobra.CompletionFunc {
	return namesOf(env, asked, func(ctx context.Context, server *remote, _ string) (names []string, err error) {
		page, err := server.Nodes(ctx)
		for _, n := range page.Items {
			names = append(names, n.Name)
		}
		return names, err
	})
}
