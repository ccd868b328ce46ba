package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// whyRuns is how many occurrences belfry why shows: enough for a screen with the rest.
const whyRuns = 10

// whyAnswer explains why a job did or did not run.
type whyAnswer struct {
	Job       string             `json:"job"`
	Verdict   string             `json:"verdict"`   // a sentence about the present
	Do        []string           `json:"do"`        // advice, for the most recent cause first
	Status    *job.Status        `json:"status"`    // of the job
	Next      *client.Occurrence `json:"next"`      // null if there is none
	NoNext    string             `json:"no_next"`   // why Next is null
	Attention []client.Attention `json:"attention"` // problems of the job for a person
	Runs      []client.Run       `json:"last"`      // the latest first
}

func newWhy(env Env) *cobra.Command {
	var (
		asked  config.Asked
		output string
	)
	cmd := &cobra.Command{
		Use:   "why NAME [flags]",
		Short: "Say why a job did or did not run",
		Long: fmt.Sprintf(`Say in one screen why a job did or did not run: its state and next due time, its last
%d occurrences with the reasons of those that waited, failed or did not start, what
needs a person, and what there is to do.

The exit code is 0 whatever is found.`, whyRuns),
		Example: "belfry why nightly\nbelfry why web/nightly -o json",
		Args:    oneName("job"),
		RunE: askingJob(env, &asked, func(ctx context.Context, server *remote, name jobName) error {
			answer, err := why(ctx, server, name)
			if err != nil {
				return err
			}
			return showOne(env, output, answer, name.String(), func(w io.Writer) { answer.print(w, env) })
		}),
	}
	addConnection(cmd, &asked)
	cmd.ValidArgsFunction = jobNames(env, &asked)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asName)
	return cmd
}

// why collects the data to explain a job.
func why(ctx context.Context, server *remote, name jobName) (whyAnswer, error) {
	answer := whyAnswer{Job: name.String(), Do: []string{}, Attention: []client.Attention{}}
	d, err := server.Job(ctx, name.namespace, name.name, false)
	if err != nil {
		return answer, err
	}
	read, err := server.read(d, job.KindJob)
	if err != nil {
		return answer, err
	}
	if answer.Status = read.Job.Status; answer.Status == nil {
		answer.Status = &job.Status{}
	}
	next, err := server.Next(ctx, name.namespace, name.name, 1)
	if err != nil {
		return answer, err
	}
	if answer.NoNext = next.Reason; len(next.Items) > 0 {
		answer.Next = &next.Items[0]
	}
	attention, err := server.Attention(ctx, name.namespace)
	if err != nil {
		return answer, err
	}
	for _, a := range attention.Items {
		if a.Job == name.String() {
			answer.Attention = append(answer.Attention, a)
		}
	}
	runs, err := server.Runs(ctx, client.RunQuery{Job: name.String(), PageSize: pageSize})
	if err != nil {
		return answer, err
	}
	for _, r := range runs.Items {
		// A run planned for later has not been delayed.
		if r.State != job.StateReady || r.Attempt > 1 || !r.Due.After(server.env.Now()) {
			answer.Runs = append(answer.Runs, r)
		}
	}
	slices.SortStableFunc(answer.Runs, func(a, b client.Run) int { return b.Scheduled.Compare(a.Scheduled) })
	answer.Runs = answer.Runs[:min(len(answer.Runs), whyRuns)]
	answer.judge(server.env)
	return answer, nil
}

// judge sets the verdict and the advice.
func (a *whyAnswer) judge(env Env) {
	s := a.Status
	switch {
	case s.Barred != "":
		a.Verdict = "It cannot run: " + s.Barred
	case s.State == job.JobPaused:
		a.Verdict = "It is paused" + suffixed(" by ", s.PausedBy) + suffixed(": ", s.PauseReason)
		until := ""
		if !s.PausedUntil.IsZero() {
			until = ", or wait until " + instant(env, s.PausedUntil)
		}
		a.Do = append(a.Do, "belfry job resume "+a.Job+until)
	case len(a.Runs) == 0 && a.Next != nil:
		a.Verdict = "It has not been due yet: it is due at " + instant(env, a.Next.Due)
	case len(a.Runs) == 0:
		a.Verdict = "It has never run, and is not due" + suffixed(": ", a.NoNext)
	default:
		last := &a.Runs[0]
		a.Verdict = fmt.Sprintf("Its last occurrence, %s, %s", instant(env, last.Scheduled), endedAs(last)) + suffixed(": ", reasonOf(last))
	}
	for i := range a.Runs {
		r := &a.Runs[i]
		if r.Outcome == job.OutcomeSucceeded && r.Unmet == "" {
			continue
		}
		why := r.Why
		if why.Reason == "" {
			why = client.Why{Reason: r.Unmet, ReasonCode: r.UnmetCode, ReasonArgs: r.UnmetArgs}
		}
		if do := reason.Advice(why.Value()); do != "" && !slices.Contains(a.Do, do) {
			a.Do = append(a.Do, do)
		}
	}
	if i := slices.IndexFunc(a.Runs, func(r client.Run) bool { return !r.Started.IsZero() && r.Outcome != job.OutcomeSucceeded }); i >= 0 {
		a.Do = append(a.Do, "belfry logs "+a.Runs[i].ID.String()+" shows the output of "+instant(env, a.Runs[i].Scheduled))
	}
}

// suffixed returns a text with a prefix, or "" without a text.
func suffixed(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// endedAs describes the state of a run with a verb.
func endedAs(r *client.Run) string {
	switch {
	case r.State == job.StateRunning:
		return "is running"
	case r.State != job.StateDone:
		return "is waiting"
	case r.Outcome == job.OutcomeSucceeded, r.Outcome == job.OutcomeFailed:
		return string(r.Outcome)
	case r.Outcome == job.OutcomeTimedOut:
		return "timed out"
	}
	return "was " + string(r.Outcome)
}

func (a *whyAnswer) print(w io.Writer, env Env) {
	s := styleFor(env, env.StdoutIsTerminal)
	next := "not due"
	switch {
	case a.Next == nil && a.Status.State != job.JobPaused: // the verdict says why it is paused
		next += suffixed(": ", a.NoNext)
	case a.Next != nil:
		next = fmt.Sprintf("due next at %s (%s)", instant(env, a.Next.Due), distance(env, a.Next.Due))
		if a.Next.Window != nil {
			next += ": " + inWindow(env, a.Next.Window)
		}
	}
	fmt.Fprintf(w, "%s is %s, %s.\n%s.\n", printable(a.Job), a.Status.State, printable(next), printable(a.Verdict))
	var rows [][]string
	for i := range a.Runs {
		r := &a.Runs[i]
		rows = append(rows, []string{instant(env, r.Scheduled), runStatus(r), instant(env, r.Started), orDash(r.Node), orDash(reasonOf(r))})
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		table(w, s, []string{"SCHEDULED", "STATUS", "STARTED", "NODE", "WHY"}, rows)
	}
	if len(a.Attention) > 0 {
		fmt.Fprintln(w, "\nNeeds attention:")
		for i := range a.Attention {
			since := ""
			if !a.Attention[i].Since.IsZero() {
				since = " since " + instant(env, a.Attention[i].Since)
			}
			fmt.Fprintf(w, "  %s%s: %s\n", a.Attention[i].Kind, since, printable(a.Attention[i].Text))
		}
	}
	if len(a.Do) > 0 {
		fmt.Fprintln(w, "\nWhat to do:")
		for _, do := range a.Do {
			fmt.Fprintf(w, "  %s\n", printable(do))
		}
	}
}
