package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// newRunApprove makes the command that approves a step of a flow.
func newRunApprove(env Env) *cobra.Command {
	return newRunAnswer(env, "approve", "Approve a step that waits for it",
		"Approve a step of a flow that waits for it: what needs the step can start.", (*client.Client).Approve)
}

// newRunReject makes the command that rejects a step of a flow.
func newRunReject(env Env) *cobra.Command {
	return newRunAnswer(env, "reject", "Reject a step that waits for an approval",
		"Reject a step of a flow that waits for an approval: the step fails.", (*client.Client).Reject)
}

type answerStep func(c *client.Client, ctx context.Context, flow job.ID, step string, r client.AnswerRequest) (client.Run, error)

func newRunAnswer(env Env, verb, short, long string, answer answerStep) *cobra.Command {
	var (
		asked        config.Asked
		note, output string
	)
	cmd := &cobra.Command{
		Use:     verb + " RUN/STEP [flags]",
		Short:   short,
		Long:    long,
		Example: "belfry run " + verb + " 01M7WSD70J4JVRQ9N4TN6P9NR3/publish --note \"the figures are right\"",
		Args:    oneRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			run, step, ok := strings.Cut(args[0], "/")
			if !ok || step == "" {
				return misused("name the step: RUN/STEP")
			}
			id, err := parseRun(run)
			if err != nil {
				return err
			}
			server, err := connect(env, asked)
			if err != nil {
				return err
			}
			var after client.Run
			if err := server.insist(cmd.Context(), "the same command", func(ctx context.Context) (err error) {
				after, err = answer(server.Client, ctx, id, step, client.AnswerRequest{Note: note})
				return err
			}); err != nil {
				return server.refused(err)
			}
			return showOne(env, output, after, id.String(), func(w io.Writer) { stepText(w, &after, step) })
		},
	}
	addWord(cmd.Flags(), &note, "note", "", "TEXT", "why, as the run and the audit show it")
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}

// newRunSignal makes the command that sends a signal to a flow.
func newRunSignal(env Env) *cobra.Command {
	var (
		asked        config.Asked
		data, output string
	)
	cmd := &cobra.Command{
		Use:     "signal RUN NAME [flags]",
		Short:   "Send a signal to a flow",
		Long:    "Send a signal to the run of a flow. The steps that wait for it succeed, with the data as their result.",
		Example: `belfry run signal 01M7WSD70J4JVRQ9N4TN6P9NR3 ready --payload '{"rows": 12}'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return misused("give the id of a run and the name of a signal")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseRun(args[0])
			if err != nil {
				return err
			}
			if data != "" && !json.Valid([]byte(data)) {
				return misused("--payload is not JSON: quote texts, for example '\"ready\"'")
			}
			server, err := connect(env, asked)
			if err != nil {
				return err
			}
			run, err := server.Signal(cmd.Context(), id, args[1], client.SignalRequest{Data: json.RawMessage(data)})
			if err != nil {
				return server.refused(err)
			}
			return showOne(env, output, run, id.String(), func(w io.Writer) {
				fmt.Fprintf(w, "signal %s sent to run %s of %s\n", args[1], id, run.Job)
			})
		},
	}
	addWord(cmd.Flags(), &data, "payload", "", "JSON", "the result of the steps that wait for the signal")
	addConnection(cmd, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}

// stepText describes a step after an answer.
func stepText(w io.Writer, run *client.Run, name string) {
	for i := range run.Steps {
		if s := &run.Steps[i]; s.Name == name {
			fmt.Fprintf(w, "step %s of run %s %s: %s\n", name, run.ID, s.State, s.Reason)
		}
	}
}
