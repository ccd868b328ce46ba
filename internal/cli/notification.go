package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newNotification(env Env) *cobra.Command {
	cmd := group("notification", "notifications", "List and acknowledge notifications", "belfry notification list\nbelfry notification ack 01K3V5B7M0Q8C2X9R4T6W1Y8ZD-8c2f61b09ad3e457")
	cmd.Long = "List and acknowledge notifications: what channels have to say, and problems that last."
	cmd.AddCommand(newNotificationList(env), newNotificationAck(env))
	return cmd
}

func newNotificationList(env Env) *cobra.Command {
	return listCommand(env, &cobra.Command{
		Short: "List notifications that wait or whose problems last",
		Long: `List notifications that wait or whose problems last, by channel.

The state is that of the latest message: waiting (for other events, for quiet hours or for
the limit of the channel), retrying (a try has failed), refused (by the service; tried
again each hour for a day) or sent.`,
		Example: "belfry notification list\nbelfry notification list -o json",
	}, true, listNotifications)
}

func listNotifications(ctx context.Context, server *remote, namespace, output string) error {
	page, err := server.Notifications(ctx, namespace)
	if err != nil {
		return err
	}
	env := server.env
	return showList(env, output, page.Items, page.NextPageToken, func(n client.Notification) string { return n.ID }, func(w io.Writer) {
		if len(page.Items) == 0 {
			fmt.Fprintln(w, "No notification waits, and no problem lasts.")
			return
		}
		var rows [][]string
		for i := range page.Items {
			n := &page.Items[i]
			var events []string
			for _, e := range n.Events {
				events = append(events, string(e.Event))
			}
			state := string(n.State)
			if n.AckedBy != "" {
				state += ", acknowledged by " + n.AckedBy
			}
			rows = append(rows, []string{n.ID, n.Channel, n.About, strings.Join(events, ","), state, instant(env, n.SentAt), orDash(n.Error)})
		}
		table(w, styleFor(env, env.StdoutIsTerminal), []string{"ID", "CHANNEL", "ABOUT", "EVENTS", "STATE", "SENT", "ERROR"}, rows)
	})
}

func newNotificationAck(env Env) *cobra.Command {
	var asked config.Asked
	cmd := &cobra.Command{
		Use:     "ack ID [flags]",
		Short:   "Acknowledge a notification, so that it is not repeated",
		Long:    "Acknowledge a notification, so that it is not repeated until something new happens. The end of its problem is still reported.",
		Example: "belfry notification ack 01K3V5B7M0Q8C2X9R4T6W1Y8ZD-8c2f61b09ad3e457",
		Args:    oneName("id of a notification"),
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, args []string) error {
			n, err := server.AckNotification(ctx, args[0])
			if err != nil {
				return err
			}
			return write(env, fmt.Appendf(nil, "notification about %s acknowledged\n", n.About))
		}),
	}
	addConnection(cmd, &asked)
	return cmd
}

func newChannelTest(env Env, k setKind) *cobra.Command {
	var asked config.Asked
	cmd := &cobra.Command{
		Use:   "test NAME [flags]",
		Short: "Send a test message to a channel",
		Long: `Send a test message to a channel and wait for the answer of its service. Rules, limits and
quiet hours do not matter. The exit code is 1 if the message was not delivered.`,
		Example: "belfry channel test ops",
		Args:    oneName(string(k.kind)),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			t, err := server.TestChannel(ctx, name.namespace, name.name)
			if err != nil {
				return err
			}
			if !t.Delivered {
				return failed("channel %s did not deliver the test message: %s", name, t.Error)
			}
			return write(env, fmt.Appendf(nil, "channel %s has delivered a test message\n", name))
		}),
	}
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = setNames(env, &asked, k)
	return cmd
}

func newChannelStatus(env Env) *cobra.Command {
	var (
		asked  config.Asked
		all    bool
		output string
	)
	cmd := &cobra.Command{
		Use:     "status [flags]",
		Short:   "Show how channels deliver",
		Long:    "Show how channels deliver: what waits, what was sent, what was given up or dropped, and why the latest try failed.",
		Example: "belfry channel status\nbelfry channel status -o json",
		Args:    noArguments,
		RunE: asking(env, &asked, func(ctx context.Context, server *remote, _ []string) error {
			return channelStatus(ctx, server, all, output)
		}),
	}
	addConnection(cmd, &asked)
	addAll(cmd, &all)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

func channelStatus(ctx context.Context, server *remote, all bool, output string) error {
	page, err := server.Deliveries(ctx, server.listNamespace(all))
	if err != nil {
		return err
	}
	env := server.env
	return showList(env, output, page.Items, page.NextPageToken, func(d client.Delivery) string { return d.Channel }, func(w io.Writer) {
		var rows [][]string
		for i := range page.Items {
			d := &page.Items[i]
			note := d.Error
			if d.Paused {
				note = cmp.Or(note, "paused")
			}
			number := func(n int64) string { return strconv.FormatInt(n, 10) }
			rows = append(rows, []string{
				d.Channel, d.Service, strconv.Itoa(d.Waiting), strconv.Itoa(d.Open), number(d.Sent), number(d.Failed), number(d.GivenUp), number(d.Dropped),
				instant(env, d.SentAt), orDash(note),
			})
		}
		table(w, styleFor(env, env.StdoutIsTerminal), []string{"CHANNEL", "SERVICE", "WAITING", "OPEN", "SENT", "FAILED", "GIVEN UP", "DROPPED", "LAST SENT", "ERROR"}, rows)
	})
}
