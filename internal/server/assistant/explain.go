package assistant

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

const (
	// explainedRuns is how many occurrences explain a job: as belfry why has them.
	explainedRuns = 10
	// tailLines is how many of the last lines explain a failure: most programs say why in the last few.
	tailLines = 30
)

type explainInput struct {
	part
	Job string `json:"job,omitempty" jsonschema:"the job, namespace/name; or else:"`
	Run string `json:"run,omitempty" jsonschema:"the id of a run"`
}

// explained says why a job did not run, or a run failed.
type explained struct {
	Job       string              `json:"job"`
	Status    *job.Status         `json:"status,omitempty"`
	Next      *client.Occurrences `json:"next,omitempty"`
	Attention []client.Attention  `json:"attention,omitempty"`
	Runs      []client.Run        `json:"last_runs,omitempty"` // the latest first
	Failure   *failure            `json:"failure,omitempty"`   // the latest, or that of the run
	Do        []string            `json:"do,omitempty"`        // advice of Belfry
}

// failure is a run that failed, and what changed since the last success.
type failure struct {
	Run    client.Run          `json:"run"`
	Tail   *client.OutputLines `json:"last_lines,omitempty"`
	Since  *success            `json:"last_success,omitempty"`
	Only   []string            `json:"lines_new_since_success,omitempty"`
	Gone   []string            `json:"lines_gone_since_success,omitempty"`
	Change string              `json:"definition_changed_since_success,omitempty"`
}

// success is the run that a failure is compared with.
type success struct {
	Run     job.ID    `json:"run"`
	Ended   time.Time `json:"ended"`
	Version int64     `json:"job_version"`
	Node    string    `json:"node"`
}

func (a *assistant) explain(ctx context.Context, in explainInput) (any, error) {
	if (in.Job == "") == (in.Run == "") {
		return nil, errors.New("give either job or run")
	}
	if in.Job != "" {
		return a.explainJob(ctx, in.Job)
	}
	id, err := job.ParseID(in.Run)
	if err != nil {
		return nil, err
	}
	run, err := a.Client.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	e := &explained{Job: run.Job}
	e.advise(&run)
	e.Failure, err = a.explainRun(ctx, run)
	return e, err
}

func (a *assistant) explainJob(ctx context.Context, full string) (any, error) {
	namespace, name, err := a.named(full)
	if err != nil {
		return nil, err
	}
	e := &explained{Job: namespace + "/" + name}
	d, err := a.Client.Job(ctx, namespace, name, false)
	if err != nil {
		return nil, err
	}
	read, err := d.Job()
	if err != nil {
		return nil, err
	}
	e.Status = read.Status
	next, err := a.Client.Next(ctx, namespace, name, 1)
	if err != nil {
		return nil, err
	}
	e.Next = &next
	attention, err := a.Client.Attention(ctx, namespace)
	if err != nil {
		return nil, err
	}
	e.Attention = slices.DeleteFunc(attention.Items, func(p client.Attention) bool { return p.Job != e.Job })
	runs, err := a.Client.Runs(ctx, client.RunQuery{Job: e.Job, PageSize: listMax})
	if err != nil {
		return nil, err
	}
	e.Runs = slices.DeleteFunc(runs.Items, func(r client.Run) bool {
		return r.State == job.StateReady && r.Attempt <= 1 && r.Due.After(a.Now()) // planned, and not delayed
	})
	slices.SortStableFunc(e.Runs, func(a, b client.Run) int { return b.Scheduled.Compare(a.Scheduled) })
	e.Runs = e.Runs[:min(len(e.Runs), explainedRuns)]
	for i := range e.Runs {
		e.advise(&e.Runs[i])
	}
	if i := slices.IndexFunc(e.Runs, hasFailed); i >= 0 {
		run, err := a.Client.Run(ctx, e.Runs[i].ID)
		if err != nil {
			return nil, err
		}
		if e.Failure, err = a.explainRun(ctx, run); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func hasFailed(r client.Run) bool {
	return r.Outcome == job.OutcomeFailed || r.Outcome == job.OutcomeTimedOut || r.Outcome == job.OutcomeLost
}

// advise adds the advice on a run.
func (e *explained) advise(r *client.Run) {
	why := r.Why
	if why.Reason == "" {
		why = client.Why{Reason: r.Unmet, ReasonCode: r.UnmetCode, ReasonArgs: r.UnmetArgs}
	}
	if do := reason.Advice(why.Value()); do != "" && r.Outcome != job.OutcomeSucceeded && !slices.Contains(e.Do, do) {
		e.Do = append(e.Do, do)
	}
}

// explainRun compares a run with the last success before it.
func (a *assistant) explainRun(ctx context.Context, run client.Run) (*failure, error) {
	f := &failure{Run: run}
	tail, err := a.Client.OutputLines(ctx, run.ID, client.LinesQuery{Count: tailLines})
	switch {
	case err == nil:
		f.Tail = &tail
	case !client.IsType(err, client.TypeNotFound): // it has no output
		return nil, err
	}
	if !hasFailed(run) {
		return f, nil
	}
	compared, err := a.Client.CompareOutputs(ctx, run.ID, client.CompareQuery{})
	if err != nil && !client.IsType(err, client.TypeNotFound) {
		return nil, err
	}
	if compared.With.IsZero() {
		return f, nil
	}
	for _, c := range compared.Items {
		if c.Other == nil {
			f.Only = append(f.Only, c.Line.Text)
		}
		if c.Line == nil {
			f.Gone = append(f.Gone, c.Other.Text)
		}
	}
	last, err := a.Client.Run(ctx, compared.With)
	if err != nil {
		return nil, err
	}
	f.Since = &success{last.ID, last.Ended, last.Version, last.Node}
	if namespace, name, err := a.named(run.Job); err == nil && last.Version != run.Version {
		revision, err := a.Client.Revision(ctx, namespace, name, run.Version, last.Version)
		if err != nil && !client.IsType(err, client.TypeNotFound) { // removed by its age
			return nil, err
		}
		f.Change = revision.Diff
	}
	return f, nil
}
