package assistant

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// planLasts is how long a plan can be carried out: long enough to show it to a user.
const planLasts = 10 * time.Minute

// planned are the arguments of all tools that change something.
type planned struct {
	part
	Plan string `json:"plan,omitempty" jsonschema:"the fingerprint of the plan to carry out, from the answer to the same call without it"`
}

func (p *planned) given() *planned { return p }

// change is a planned change.
type change struct {
	// plan is what it would change, and all that it depends on.
	plan any
	// do makes it. Calls with the same key create one run.
	do func(ctx context.Context, key string) (any, error)
}

func (a *assistant) addChanging() {
	changing(a, "apply", "Create or change jobs, calendars and pools to match documents.", a.planApply)
	changing(a, "run_job", "Run a job now.", a.planRun)
	changing(a, "pause_job", "Pause a job: it does not fall due until it is resumed.", a.planPause)
	changing(a, "resume_job", "End the pause of a job.", a.planResume)
	changing(a, "cancel_run", "End a run that is planned or running.", a.planCancel)
	changing(a, "retry_run", "Run a finished run again, with its scheduled time and parameters.", a.planRetry)
}

// changing adds a tool that changes something: its first call answers a plan, and a call with the
// fingerprint of that plan carries it out, if the plan would still be the same.
func changing[In any, P interface {
	*In
	given() *planned
}](a *assistant, name, does string, prepare func(context.Context, In) (change, error)) {
	destructive := true
	hints := &mcp.ToolAnnotations{DestructiveHint: &destructive}
	does += " The first call answers a plan and changes nothing; show it to the user, and call again with its fingerprint if the user agrees."
	mcp.AddTool(a.server, &mcp.Tool{Name: name, Description: does, Annotations: hints}, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		arguments := P(&in).given()
		asked := *arguments
		*arguments = planned{}
		c, err := prepare(ctx, in)
		if err != nil {
			return refusal(err), nil, nil
		}
		about, err := json.Marshal([]any{name, in, c.plan})
		if err != nil {
			return refusal(err), nil, nil
		}
		if asked.Plan == "" {
			note := fmt.Sprintf("Nothing was changed: this is the plan. Show it to the user. To carry it out, call %s with the same arguments and with plan %q within %d minutes.\n", name, a.sign(about, a.Now()), int(planLasts.Minutes()))
			return result(note, c.plan, asked.part), nil, nil
		}
		if !a.holds(about, asked.Plan) {
			r := result("Refused, and nothing was changed: the plan is not of this call, is too old, or is stale, as what it depends on has changed since. The data is the plan as it would be now: ask for it without plan, and show it to the user.\n", c.plan, asked.part)
			r.IsError = true
			return r, nil, nil
		}
		done, err := c.do(ctx, "mcp-"+asked.Plan)
		if err != nil {
			return failed("Not done, or not known to be done: the data says why.\n", err), nil, nil
		}
		return result("Done.\n", done, asked.part), nil, nil
	})
}

// sign returns the fingerprint of a plan that was made at a time.
func (a *assistant) sign(about []byte, at time.Time) string {
	const length = 16 // bytes, which cannot be guessed
	mac := hmac.New(sha256.New, a.Key)
	seconds := strconv.FormatInt(at.Unix(), 36)
	mac.Write([]byte(seconds + " "))
	mac.Write(about)
	return seconds + "-" + hex.EncodeToString(mac.Sum(nil)[:length])
}

// holds reports whether a fingerprint is that of a plan, and not too old.
func (a *assistant) holds(about []byte, fingerprint string) bool {
	text, _, _ := strings.Cut(fingerprint, "-")
	seconds, err := strconv.ParseInt(text, 36, 64)
	at := time.Unix(seconds, 0)
	age := a.Now().Sub(at)
	return err == nil && age < planLasts && age > -planLasts && hmac.Equal([]byte(a.sign(about, at)), []byte(fingerprint))
}

type planApplyInput struct {
	planned
	applyInput
}

func (a *assistant) planApply(ctx context.Context, in planApplyInput) (change, error) {
	would, err := a.apply(ctx, in.applyInput, true)
	return change{would, func(ctx context.Context, _ string) (any, error) { return a.apply(ctx, in.applyInput, false) }}, err
}

// jobPlan is a planned change of a job, or a run of it.
type jobPlan struct {
	Does string `json:"does"`
	Job  fields `json:"job"` // as it is now
	With any    `json:"with,omitempty"`
}

// onJob returns a change of a job.
func (a *assistant) onJob(ctx context.Context, full, does string, with any, do func(ctx context.Context, namespace, name, key string) (any, error)) (change, error) {
	namespace, name, err := a.named(full)
	if err != nil {
		return change{}, err
	}
	d, err := a.Client.Job(ctx, namespace, name, false)
	if err != nil {
		return change{}, err
	}
	now, err := fieldsOf(d, "namespace", "name", "title", "uid", "version", "paused", "schedule", "run", "params")
	return change{jobPlan{does, now, with}, func(ctx context.Context, key string) (any, error) { return do(ctx, namespace, name, key) }}, err
}

// onRun returns a change of a run.
func (a *assistant) onRun(ctx context.Context, text, does string, with any, do func(ctx context.Context, id job.ID, key string) (any, error)) (change, error) {
	id, err := job.ParseID(text)
	if err != nil {
		return change{}, err
	}
	run, err := a.Client.Run(ctx, id)
	if err != nil {
		return change{}, err
	}
	now := client.Run{ID: id, Job: run.Job, JobUID: run.JobUID, Version: run.Version, Kind: run.Kind, Key: run.Key, State: run.State, Outcome: run.Outcome, Scheduled: run.Scheduled, Due: run.Due, Attempt: run.Attempt, Node: run.Node, Params: run.Params}
	return change{struct {
		Does string     `json:"does"`
		Run  client.Run `json:"run"` // as it is now
		With any        `json:"with,omitempty"`
	}{does, now, with}, func(ctx context.Context, key string) (any, error) { return do(ctx, id, key) }}, nil
}

// shortJob is a change of a job without its definition, which the plan had.
func shortJob(c client.Change, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	now, err := fieldsOf(c.Job, "namespace", "name", "version", "paused", "status")
	return struct {
		client.Change
		Job fields `json:"job"`
	}{c, now}, err
}

type planRunInput struct {
	planned
	Job    string            `json:"job" jsonschema:"the job, namespace/name"`
	Params map[string]string `json:"params,omitempty" jsonschema:"values for the parameters that the job declares"`
}

func (a *assistant) planRun(ctx context.Context, in planRunInput) (change, error) {
	request := client.RunRequest{Params: in.Params}
	return a.onJob(ctx, in.Job, "run the job once, now", request, func(ctx context.Context, namespace, name, key string) (any, error) {
		return a.Client.RunJob(ctx, namespace, name, request, key)
	})
}

type planPauseInput struct {
	planned
	Job    string    `json:"job" jsonschema:"the job, namespace/name"`
	Reason string    `json:"reason,omitempty" jsonschema:"why, for later readers"`
	Until  time.Time `json:"until,omitzero" jsonschema:"when the job resumes by itself; never unless given"`
}

func (a *assistant) planPause(ctx context.Context, in planPauseInput) (change, error) {
	request := client.PauseRequest{Reason: in.Reason, Until: in.Until}
	return a.onJob(ctx, in.Job, "pause the job", request, func(ctx context.Context, namespace, name, _ string) (any, error) {
		return shortJob(a.Client.Pause(ctx, namespace, name, request))
	})
}

type planResumeInput struct {
	planned
	Job    string `json:"job" jsonschema:"the job, namespace/name"`
	Missed string `json:"missed,omitempty" jsonschema:"what happens with what fell due during the pause: none (unless given), latest or all"`
}

func (a *assistant) planResume(ctx context.Context, in planResumeInput) (change, error) {
	request := client.ResumeRequest{Missed: job.Missed(in.Missed)}
	return a.onJob(ctx, in.Job, "end the pause of the job", request, func(ctx context.Context, namespace, name, _ string) (any, error) {
		return shortJob(a.Client.Resume(ctx, namespace, name, request))
	})
}

type planCancelInput struct {
	planned
	Run    string `json:"run" jsonschema:"the id of the run"`
	Reason string `json:"reason,omitempty" jsonschema:"why, for later readers"`
}

func (a *assistant) planCancel(ctx context.Context, in planCancelInput) (change, error) {
	request := client.CancelRequest{Reason: in.Reason}
	return a.onRun(ctx, in.Run, "end the run", request, func(ctx context.Context, id job.ID, _ string) (any, error) {
		return a.Client.Cancel(ctx, id, request)
	})
}

type planRetryInput struct {
	planned
	Run    string            `json:"run" jsonschema:"the id of the run"`
	Params map[string]string `json:"params,omitempty" jsonschema:"other values for parameters that the job declares"`
}

func (a *assistant) planRetry(ctx context.Context, in planRetryInput) (change, error) {
	request := client.RetryRequest{Params: in.Params}
	return a.onRun(ctx, in.Run, "run the run again", request, func(ctx context.Context, id job.ID, key string) (any, error) {
		return a.Client.Retry(ctx, id, request, key)
	})
}
