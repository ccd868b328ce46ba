package assistant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// pageSize is how many items a list has unless more are asked for: few enough to be shown whole.
const pageSize = 20

func (a *assistant) addReading() {
	tool(a, "list_jobs", "List jobs: names, schedules, states and last outcomes. Filter by namespace, text, labels, state, or failing.", a.listJobs)
	tool(a, "get_job", "Get the whole definition of a job, and its state.", a.getJob)
	tool(a, "list_runs", "List runs, planned and running ones first, then finished ones, the latest first, each with its outcome and reason.", a.listRuns)
	tool(a, "get_run", "Get a run with its attempts, reasons and, for a flow, its steps.", a.getRun)
	tool(a, "list_attention", "List the problems that need a person, the worst first: failing, late, slow and paused jobs, silent nodes.", a.listAttention)
	tool(a, "explain", "Explain why a job did not run (job), or why a run failed (run): state, next due time, reasons of its last occurrences, and of a failure the cause, the end of the output, and what changed since the last success.", a.explain)
	tool(a, "next_runs", "List when a job is due next, or explain a cron expression and list its next occurrences.", a.nextRuns)
	tool(a, "load", "Count the starts that schedules will make, in steps of time: find full and quiet times.", a.load)
	tool(a, "search_output", "Search the output of a run for a text or for lines that name errors. Without either: its last lines.", a.searchOutput)
	tool(a, "validate", "Check a document of a job, calendar or pool in YAML or JSON, and explain its schedule. Nothing is saved.", a.validate)
	tool(a, "diff", "Say what applying documents would create, change and delete, line by line. Nothing is saved.", a.diff)
}

// paging selects a page of a list.
type paging struct {
	part
	PageSize  int    `json:"page_size,omitempty" jsonschema:"how many items, 20 unless given"`
	PageToken string `json:"page_token,omitempty" jsonschema:"next_page_token of the page before"`
}

func (p paging) size() int {
	if p.PageSize <= 0 {
		return pageSize
	}
	return min(p.PageSize, listMax)
}

type listJobsInput struct {
	paging
	Namespace string            `json:"namespace,omitempty" jsonschema:"only jobs of this namespace"`
	Text      string            `json:"text,omitempty" jsonschema:"only jobs with this in their name, title or description"`
	Labels    map[string]string `json:"labels,omitempty" jsonschema:"only jobs with these labels"`
	State     string            `json:"state,omitempty" jsonschema:"active, paused or completed"`
	Failing   bool              `json:"failing,omitempty" jsonschema:"only active jobs whose last run failed"`
}

func (a *assistant) listJobs(ctx context.Context, in listJobsInput) (any, error) {
	page, err := a.Client.Jobs(ctx, client.JobQuery{
		Namespace: in.Namespace, Text: in.Text, Labels: in.Labels, State: job.JobState(in.State), Failing: in.Failing, PageSize: in.size(), PageToken: in.PageToken,
	})
	list := client.Page[fields]{Items: []fields{}, NextPageToken: page.NextPageToken}
	for _, d := range page.Items {
		row, err := fieldsOf(d, "namespace", "name", "title", "owner", "labels", "schedule", "paused", "status")
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, row)
	}
	return list, err
}

// fields are some fields of a document.
type fields map[string]json.RawMessage

func fieldsOf(d client.Document, names ...string) (fields, error) {
	var all fields
	if err := json.Unmarshal(d.RawMessage, &all); err != nil {
		return nil, fmt.Errorf("read a job: %w", err)
	}
	some := fields{}
	for _, name := range names {
		if value, ok := all[name]; ok {
			some[name] = value
		}
	}
	return some, nil
}

type jobInput struct {
	part
	Job string `json:"job" jsonschema:"the job, namespace/name"`
}

func (a *assistant) getJob(ctx context.Context, in jobInput) (any, error) {
	namespace, name, err := a.named(in.Job)
	if err != nil {
		return nil, err
	}
	return a.Client.Job(ctx, namespace, name, false)
}

type listRunsInput struct {
	paging
	Namespace string    `json:"namespace,omitempty" jsonschema:"only runs of jobs of this namespace"`
	Job       string    `json:"job,omitempty" jsonschema:"only runs of this job, namespace/name"`
	States    []string  `json:"states,omitempty" jsonschema:"any of ready, waiting, running, done"`
	Outcomes  []string  `json:"outcomes,omitempty" jsonschema:"any of succeeded, failed, timed_out, cancelled, lost, skipped, missed, withdrawn"`
	Text      string    `json:"text,omitempty" jsonschema:"only ended runs with this in the name of the job or in the reason"`
	From      time.Time `json:"from,omitzero" jsonschema:"only runs that ended or are due then or later"`
	To        time.Time `json:"to,omitzero" jsonschema:"only runs that ended or are due before"`
}

func (a *assistant) listRuns(ctx context.Context, in listRunsInput) (any, error) {
	q := client.RunQuery{Namespace: in.Namespace, Text: in.Text, From: in.From, To: in.To, PageSize: in.size(), PageToken: in.PageToken}
	if in.Job != "" {
		namespace, name, err := a.named(in.Job)
		if err != nil {
			return nil, err
		}
		q.Job = namespace + "/" + name
	}
	for _, s := range in.States {
		q.States = append(q.States, job.RunState(s))
	}
	for _, o := range in.Outcomes {
		q.Outcomes = append(q.Outcomes, job.Outcome(o))
	}
	return a.Client.Runs(ctx, q)
}

type runInput struct {
	part
	Run string `json:"run" jsonschema:"the id of the run"`
}

func (a *assistant) getRun(ctx context.Context, in runInput) (any, error) {
	id, err := job.ParseID(in.Run)
	if err != nil {
		return nil, err
	}
	return a.Client.Run(ctx, id)
}

type attentionInput struct {
	part
	Namespace string `json:"namespace,omitempty" jsonschema:"only problems of jobs of this namespace, and of nodes"`
}

func (a *assistant) listAttention(ctx context.Context, in attentionInput) (any, error) {
	return a.Client.Attention(ctx, in.Namespace)
}

type nextInput struct {
	part
	Job        string `json:"job,omitempty" jsonschema:"the job, namespace/name; or else:"`
	Expression string `json:"expression,omitempty" jsonschema:"a cron expression"`
	Timezone   string `json:"timezone,omitempty" jsonschema:"of the expression, such as Europe/Berlin; UTC unless given"`
	Count      int    `json:"count,omitempty" jsonschema:"how many, 10 unless given"`
}

func (a *assistant) nextRuns(ctx context.Context, in nextInput) (any, error) {
	count := min(in.Count, listMax)
	if in.Expression != "" {
		return a.Client.Preview(ctx, client.PreviewQuery{Expression: in.Expression, Timezone: in.Timezone, Count: count})
	}
	namespace, name, err := a.named(in.Job)
	if err != nil {
		return nil, err
	}
	return a.Client.Next(ctx, namespace, name, count)
}

type loadInput struct {
	part
	Namespace string    `json:"namespace,omitempty" jsonschema:"only starts of jobs of this namespace"`
	From      time.Time `json:"from,omitzero" jsonschema:"the beginning, now unless given"`
	To        time.Time `json:"to,omitzero" jsonschema:"the end, a day later unless given"`
	Minutes   int       `json:"step_minutes,omitempty" jsonschema:"the length of a step, 60 unless given"`
}

func (a *assistant) load(ctx context.Context, in loadInput) (any, error) {
	const usual = 60 // minutes
	if in.Minutes <= 0 {
		in.Minutes = usual
	}
	if in.From.IsZero() {
		in.From = a.Now().Truncate(time.Minute)
	}
	if in.To.IsZero() {
		in.To = in.From.Add(24 * time.Hour)
	}
	return a.Client.Load(ctx, client.LoadQuery{Namespace: in.Namespace, From: in.From, To: in.To, Step: time.Duration(in.Minutes) * time.Minute})
}

type outputInput struct {
	runInput
	Text    string `json:"text,omitempty" jsonschema:"only lines that contain it, ignoring case"`
	Errors  bool   `json:"errors,omitempty" jsonschema:"only lines that name an error"`
	Attempt int    `json:"attempt,omitempty" jsonschema:"the number of the attempt, the latest unless given"`
	Stream  string `json:"stream,omitempty" jsonschema:"stdout or stderr, both unless given"`
	From    int    `json:"from_line,omitempty" jsonschema:"the place of the first line, such as next_line of the answer before"`
	Lines   int    `json:"lines,omitempty" jsonschema:"how many lines, 50 at most"`
}

func (a *assistant) searchOutput(ctx context.Context, in outputInput) (any, error) {
	id, err := job.ParseID(in.Run)
	if err != nil {
		return nil, err
	}
	q := client.LinesQuery{Attempt: in.Attempt, Stream: in.Stream, From: in.From, Count: listMax, Text: in.Text, Errors: in.Errors}
	if in.Lines > 0 {
		q.Count = min(in.Lines, listMax)
	}
	if in.Text == "" && !in.Errors {
		return a.Client.OutputLines(ctx, id, q)
	}
	return a.Client.SearchOutput(ctx, id, q)
}

type textInput struct {
	part
	Text string `json:"text" jsonschema:"the documents, in YAML or JSON"`
}

func (a *assistant) validate(ctx context.Context, in textInput) (any, error) {
	checked, err := a.Client.Check(ctx, client.Check{Text: in.Text})
	checked.YAML, checked.Filled = "", "" // the caller has written it
	return checked, err
}

type applyInput struct {
	Text  string `json:"text" jsonschema:"the documents, in YAML or JSON"`
	Owner string `json:"owner,omitempty" jsonschema:"whose documents these are: each job is marked with it"`
	Prune bool   `json:"prune,omitempty" jsonschema:"also delete the jobs of the owner that are not among the documents"`
}

type diffInput struct {
	part
	applyInput
}

func (a *assistant) diff(ctx context.Context, in diffInput) (any, error) {
	return a.apply(ctx, in.applyInput, true)
}

// apply applies documents, or says what that would do.
func (a *assistant) apply(ctx context.Context, in applyInput, dryRun bool) (any, error) {
	if len(in.Text) > textMax {
		return nil, fmt.Errorf("text has %d bytes; at most %d are allowed", len(in.Text), textMax)
	}
	list, err := job.Decode("", []byte(in.Text))
	if err != nil {
		return nil, err
	}
	request := client.Apply{Owner: in.Owner, Prune: in.Prune, DryRun: dryRun, Diff: true}
	for _, d := range list {
		d.PutIn(a.Namespace)
		sent, err := client.DocumentOf(d)
		if err != nil {
			return nil, err
		}
		if d.Job != nil && !d.Job.Paused && d.Says("paused") {
			sent.RawMessage = append([]byte(`{"paused":false,`), sent.RawMessage[1:]...)
		}
		request.Documents = append(request.Documents, sent)
	}
	if len(request.Documents) == 0 {
		return nil, errors.New("text has no document")
	}
	applied, err := a.Client.Apply(ctx, request)
	if dryRun {
		for i := range applied.Results {
			applied.Results[i].MayStart = nil // of now, and not of the plan
		}
	}
	return applied, err
}
