// Package wire has the messages between a worker without a store and a server: the calls of package
// work as JSON. They are versioned together: a worker lists its versions in [Join], and the server
// chooses one.
package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The versions of the protocol that this program speaks.
const (
	Oldest = 1
	Newest = 1
)

const (
	// BodyMax bounds a request with a body. A worker sends more output than that in parts.
	BodyMax = 4 << 20
	// OutputMax bounds the output in a request: base64 adds a third, and the rest of the body needs
	// room.
	OutputMax = 2 << 20
	// WaitMax is how long a request for hints may wait: less than a server allows a request.
	WaitMax = 20 * time.Second
)

// Join begins a session of a worker.
type Join struct {
	Oldest   int               `json:"oldest_protocol" minimum:"1" doc:"The oldest version of the protocol that the worker speaks."`
	Newest   int               `json:"newest_protocol" minimum:"1" doc:"The newest one."`
	Session  job.ID            `json:"session" doc:"The identity of the session, which the worker has made: a ULID."`
	Node     string            `json:"node" minLength:"1" maxLength:"128" doc:"The name of the worker."`
	Machine  string            `json:"machine" minLength:"1" maxLength:"512" doc:"Tells machines and their boots apart: a new session with the same machine and directory says that what ran in the one before is gone."`
	DataDir  string            `json:"directory" maxLength:"4096" doc:"The data directory of the worker."`
	Handlers []string          `json:"handlers,omitempty" nullable:"false" maxItems:"10000" doc:"The handlers that it has."`
	Only     bool              `json:"handlers_only,omitempty" doc:"It runs its handlers and nothing else."`
	Labels   map[string]string `json:"labels,omitempty" doc:"What jobs choose it by."`
	Capacity int               `json:"capacity" minimum:"1" maximum:"100000" doc:"How many attempts it runs at once."`
	Version  string            `json:"version,omitempty" maxLength:"128" doc:"The version of its program."`
	Zones    string            `json:"zone_table,omitempty" maxLength:"128" doc:"The version of its time zone data."`
}

// JoinOf writes a session.
func JoinOf(s *store.Session) Join {
	return Join{
		Oldest: Oldest, Newest: Newest, Session: s.ID, Node: s.Node, Machine: s.Machine, DataDir: s.DataDir,
		Handlers: s.Handlers, Only: !s.Has(store.RoleWorker), Labels: s.Labels, Capacity: s.Capacity, Version: s.Version, Zones: s.Zones,
	}
}

// OwnToken exchanges a joining token for a token of the worker's own.
type OwnToken struct {
	Node string `json:"node" minLength:"1" maxLength:"128" doc:"The name of the worker."`
	Hash string `json:"hash" minLength:"43" maxLength:"43" doc:"The SHA-256 of the token that the worker has made and keeps, in base64url without padding. A token is belfry_ and 32 random bytes in base64url without padding. The same hash again is the same exchange."`
}

// Granted answers [OwnToken].
type Granted struct {
	Name        string   `json:"name" doc:"The name of the token: that of the joining token, a dot, and that of the worker."`
	Namespace   string   `json:"namespace,omitempty" doc:"The namespace whose jobs the worker may run; all, if there is none."`
	Labels      []string `json:"labels,omitempty" nullable:"false" doc:"The labels that the worker may have, as key=value or key=*. Missing: any."`
	Certificate string   `json:"certificate,omitempty" doc:"The name of the client certificate that the token is bound to."`
}

// Joined answers [Join].
type Joined struct {
	Protocol     int       `json:"protocol" doc:"The version of the protocol that both use."`
	Now          time.Time `json:"now" doc:"The clock of the store, which decides when runs are due."`
	Predecessors []job.ID  `json:"predecessors" nullable:"false" doc:"The sessions of earlier processes on the same directory, which the worker settles: it releases what they have not begun and reports the rest as lost."`
}

// Clock is the clock of the store.
type Clock struct {
	Now time.Time `json:"now" doc:"What the clock of the store shows."`
}

// Members are the nodes that a worker may see.
type Members struct {
	Now      time.Time `json:"now" doc:"What the clock of the store shows."`
	Sessions []Member  `json:"sessions" nullable:"false" doc:"The session of the worker, and what it may know of the others."`
}

// Member is the session of a node. Of nodes other than the worker the identity is another one
// and the name is missing, unless it is the same.
type Member struct {
	ID        job.ID    `json:"id" doc:"The identity of the session."`
	Node      string    `json:"node,omitempty" doc:"The name of the node."`
	Roles     []string  `json:"roles" nullable:"false" doc:"What it does."`
	Joined    time.Time `json:"joined" doc:"When the session began."`
	Renewed   time.Time `json:"renewed" doc:"When it was renewed last."`
	Steady    time.Time `json:"steady,omitzero" doc:"Since when it was renewed without a gap."`
	BeforeGap time.Time `json:"before_gap,omitzero" doc:"The last renewal before that gap."`
	Leaving   bool      `json:"leaving,omitempty" doc:"It stops."`
	Drain     *Drain    `json:"drain,omitempty" doc:"Set while it takes no runs because a person has said so."`
}

// Drain says why a node takes no runs.
type Drain struct {
	Since  time.Time `json:"since" doc:"Since when."`
	By     string    `json:"by" doc:"Who has drained it."`
	Reason string    `json:"reason,omitempty" doc:"Why."`
}

// MemberOf writes a session.
func MemberOf(s *store.Session) Member {
	m := Member{
		ID: s.ID, Node: s.Node, Roles: s.Roles, Joined: s.Joined, Renewed: s.Renewed,
		Steady: s.Steady, BeforeGap: s.BeforeGap, Leaving: s.Leaving,
	}
	if d := s.Drain; d != nil {
		m.Drain = &Drain{d.Since, d.By, d.Reason}
	}
	return m
}

// Session reads a session.
func (m *Member) Session() store.Session {
	s := store.Session{
		ID: m.ID, Node: m.Node, Roles: m.Roles, Joined: m.Joined, Renewed: m.Renewed,
		Steady: m.Steady, BeforeGap: m.BeforeGap, Leaving: m.Leaving,
	}
	if d := m.Drain; d != nil {
		s.Drain = &store.Drain{Since: d.Since, By: d.By, Reason: d.Reason}
	}
	return s
}

// Load is a worker's report at each renewal of its session.
type Load struct {
	Running    int `json:"running" minimum:"0" doc:"How many attempts it has claimed."`
	Ready      int `json:"ready" minimum:"0" doc:"How many runs it knows of that are due and not claimed."`
	Unreported int `json:"unreported,omitempty" minimum:"0" doc:"How many results it has kept for a while because the store has not accepted them."`
	// ClockAhead is in milliseconds.
	ClockAhead int64 `json:"clock_ahead_ms" doc:"By how many milliseconds its clock is ahead of the store's."`
}

// Overdue requests overdue runs of other nodes.
type Overdue struct {
	Now   time.Time `json:"now" doc:"The clock of the store."`
	By    int64     `json:"by_ms" minimum:"0" doc:"For how many milliseconds they are overdue."`
	After Place     `json:"after,omitzero" doc:"The place behind which to look."`
	Limit int       `json:"limit" minimum:"1" maximum:"5000" doc:"How many runs to look at."`
}

// Place is a place in the order of due time and identity.
type Place struct {
	Due time.Time `json:"due,omitzero" doc:"When the run is due."`
	ID  job.ID    `json:"id,omitzero" doc:"The run."`
}

// Runs are ready runs.
type Runs struct {
	Runs []Ready `json:"runs" nullable:"false" doc:"The runs, by due time and identity."`
	Next Place   `json:"next,omitzero" doc:"The place behind which the next page begins; none at the end."`
}

// Ready is what a worker needs of a run to claim it.
type Ready struct {
	ID       job.ID    `json:"id" doc:"The run."`
	Due      time.Time `json:"due" doc:"When it may start, by the clock of the store."`
	Job      job.ID    `json:"job" doc:"Its job."`
	Session  job.ID    `json:"session,omitzero" doc:"The session of the worker, if the run is assigned to it."`
	Attempt  int       `json:"attempt" doc:"The number of the next attempt."`
	Priority int       `json:"priority,omitempty" doc:"Orders runs that are due together."`
}

// ReadyOf encodes runs for a session, which does not learn the sessions of others.
func ReadyOf(runs []store.ReadyRun, own job.ID) []Ready {
	list := make([]Ready, len(runs))
	for i, r := range runs {
		list[i] = Ready{ID: r.ID, Due: r.Due, Job: r.Job, Attempt: r.Attempt, Priority: r.Priority}
		if r.Session == own {
			list[i].Session = own
		}
	}
	return list
}

// ReadyRuns reads runs.
func ReadyRuns(list []Ready) []store.ReadyRun {
	var runs []store.ReadyRun
	for _, r := range list {
		runs = append(runs, store.ReadyRun{RunRef: store.RunRef{Due: r.Due, ID: r.ID}, Job: r.Job, Session: r.Session, Attempt: r.Attempt, Priority: r.Priority})
	}
	return runs
}

// Attempt names an attempt. The worker makes its token before the claim, so that a repeated claim
// is recognized and no other worker can report on the attempt.
type Attempt struct {
	Job    job.ID `json:"job" doc:"The job."`
	Run    job.ID `json:"run" doc:"The run."`
	Number int    `json:"attempt" minimum:"1" maximum:"1000000000" doc:"The number of the attempt."`
	Token  job.ID `json:"token" doc:"Made by the worker for this attempt and told to no other: a ULID."`
}

// Attempts is the body of a request about several attempts.
type Attempts struct {
	Attempts []Attempt `json:"attempts" nullable:"false" maxItems:"500" doc:"The attempts."`
}

// AttemptsOf writes attempts.
func AttemptsOf(list []store.Attempt) Attempts {
	a := Attempts{Attempts: make([]Attempt, len(list))}
	for i := range list {
		a.Attempts[i] = Attempt(list[i])
	}
	return a
}

// List reads attempts.
func (a *Attempts) List() []store.Attempt {
	list := make([]store.Attempt, len(a.Attempts))
	for i := range list {
		list[i] = store.Attempt(a.Attempts[i])
	}
	return list
}

// Document is a job or a calendar, as files have it.
type Document struct{ json.RawMessage }

// verdicts are the names of a store's verdicts on claims.
var verdicts = [...]string{
	store.Started: "started", store.Taken: "taken", store.Gone: "gone", store.Early: "early",
	store.Late: "late", store.Waiting: "waiting", store.Skipped: "skipped",
}

// Claims answer attempts, in their order.
type Claims struct {
	Claims []Claim `json:"claims" nullable:"false" doc:"What became of each, in their order."`
}

// Claim is the outcome of a claim.
type Claim struct {
	Verdict string     `json:"verdict" enum:"started,taken,gone,early,late,waiting,skipped" doc:"started: it is yours, and starts when it is due; taken: another has it; gone: it was withdrawn; early: ask again when it is due; late: it was too late and is recorded as missed; waiting: it waits for its slot; skipped: another run of the job has not ended."`
	Now     time.Time  `json:"now" doc:"The clock of the store."`
	Reason  job.Reason `json:"reason,omitzero" doc:"Why it does not start."`
	Job     Document   `json:"job,omitzero" doc:"The definition to run under, with all defaults; with started alone."`
	Epoch   int64      `json:"epoch,omitempty" doc:"The epoch of the definition."`
	Changed time.Time  `json:"changed,omitzero" doc:"When the definition was changed last."`
	// Steps and the following fields are set for a step's run.
	Steps    map[string]Step `json:"steps,omitempty" doc:"For the run of a step of a flow: the steps whose results it reads."`
	Item     []byte          `json:"item,omitempty" doc:"The item of the step, in JSON, in base64."`
	Index    int             `json:"index,omitempty" doc:"The place of the item."`
	Together bool            `json:"together,omitempty" doc:"The steps of the flow are kept on one node."`
	Run      *Run            `json:"run,omitempty" doc:"The run; with started alone."`
}

// Step is a step of a flow that has ended.
type Step struct {
	Outcome job.Outcome `json:"outcome,omitempty" doc:"How it ended."`
	Attempt int         `json:"attempt,omitempty" doc:"The number of its last attempt."`
	Result  []byte      `json:"result,omitempty" doc:"Its result, in JSON, in base64."`
}

// ClaimOf writes what became of a claim.
func ClaimOf(o *store.ClaimOutcome) (Claim, error) {
	c := Claim{Verdict: verdicts[o.Verdict], Now: o.Now, Reason: o.Reason}
	if o.Verdict != store.Started {
		return c, nil
	}
	text, err := json.Marshal(o.Job.Filled)
	if err != nil {
		return c, fmt.Errorf("write job %s: %w", o.Job.Filled.FullName(), err)
	}
	run := RunOf(o.Run)
	for name, s := range o.Steps {
		if c.Steps == nil {
			c.Steps = map[string]Step{}
		}
		c.Steps[name] = Step{Outcome: s.Outcome, Attempt: s.Attempt, Result: s.Result}
	}
	c.Item, c.Index, c.Together = o.Item, o.Index, o.Together
	c.Job.RawMessage, c.Epoch, c.Run = text, o.Job.Definition.Epoch, &run
	if status := o.Job.Definition.Status; status != nil {
		c.Changed = status.Changed
	}
	return c, nil
}

// Outcome reads what became of a claim.
func (c *Claim) Outcome() (store.ClaimOutcome, error) {
	o := store.ClaimOutcome{Now: c.Now, Reason: c.Reason}
	known := false
	for v, text := range verdicts {
		if text == c.Verdict {
			o.Verdict, known = store.Verdict(v), true
		}
	}
	if !known {
		return o, fmt.Errorf("the verdict %q is not known", c.Verdict)
	}
	if o.Verdict != store.Started {
		return o, nil
	}
	if c.Run == nil {
		return o, fmt.Errorf("the claim has started without a run")
	}
	var filled job.Job
	if err := json.Unmarshal(c.Job.RawMessage, &filled); err != nil {
		return o, fmt.Errorf("read the job of run %s: %w", c.Run.ID, err)
	}
	filled.Epoch = c.Epoch
	if filled.Status == nil {
		filled.Status = &job.Status{}
	}
	filled.Status.Changed = c.Changed
	for name, s := range c.Steps {
		if o.Steps == nil {
			o.Steps = map[string]job.StepData{}
		}
		o.Steps[name] = job.StepData{Outcome: s.Outcome, Attempt: s.Attempt, Result: s.Result}
	}
	o.Item, o.Index, o.Together = c.Item, c.Index, c.Together
	run := c.Run.Run()
	o.Job, o.Run = &store.Job{Definition: &filled, Filled: &filled}, &run
	return o, nil
}

// Run is a run of a worker.
type Run struct {
	ID        job.ID            `json:"id" doc:"The identity of the run."`
	Job       job.ID            `json:"job" doc:"Its job."`
	Namespace string            `json:"namespace" doc:"The namespace of the job."`
	Name      string            `json:"name" doc:"The name of the job."`
	Kind      job.RunKind       `json:"kind" doc:"What the run was made by."`
	Key       string            `json:"key,omitempty" doc:"What identifies it among those of the kind: the scheduled time, for example."`
	Shard     int               `json:"shard,omitempty" doc:"Its shard, from 0."`
	Shards    int               `json:"shards,omitempty" doc:"How many shards there are; 0 where the occurrence is not split."`
	Epoch     int64             `json:"epoch,omitempty" doc:"The epoch of the job when the run was planned."`
	Version   int64             `json:"version,omitempty" doc:"The version of the job that the attempt was claimed under."`
	State     job.RunState      `json:"state" doc:"Its state."`
	Scheduled time.Time         `json:"scheduled" doc:"The moment that the run stands for."`
	Due       time.Time         `json:"due" doc:"When the attempt may start, by the clock of the store."`
	Attempt   int               `json:"attempt" doc:"The number of the attempt."`
	Token     job.ID            `json:"token,omitzero" doc:"That of the attempt."`
	Node      string            `json:"node,omitempty" doc:"The name of the worker."`
	Params    map[string]string `json:"params,omitempty" doc:"The parameters. meta.traceparent, meta.tracestate and meta.baggage are the trace of the attempt, if the server has one."`
	Parent    job.ID            `json:"parent,omitzero" doc:"The run that has made this one."`
	Overlap   job.Overlap       `json:"overlap,omitempty" doc:"The overlap policy of a backfill; none is the job's."`
	Priority  int               `json:"priority,omitempty" doc:"Its priority."`
	Claimed   time.Time         `json:"claimed,omitzero" doc:"When the attempt was claimed."`
	// LostAfter is in milliseconds.
	LostAfter    int64      `json:"lost_after_ms" doc:"For how many milliseconds the worker may be silent before the attempt counts as lost: it must have ended by then."`
	Unfenced     bool       `json:"unfenced,omitempty" doc:"It need not have ended by then: no other attempt follows from its loss."`
	CancelBy     string     `json:"cancel_by,omitempty" doc:"Who wants it ended; the worker ends it then."`
	CancelReason job.Reason `json:"cancel_reason,omitzero" doc:"Why."`
}

// RunOf writes a run.
func RunOf(r *store.Run) Run {
	return Run{
		ID: r.ID, Job: r.JobUID, Namespace: r.Namespace, Name: r.Name, Kind: r.Kind, Key: r.Key, Shard: r.Shard, Shards: r.Shards,
		Epoch: r.Epoch, Version: r.Version, State: r.State, Scheduled: r.Scheduled, Due: r.Due, Attempt: r.Attempt, Token: r.Token, Node: r.Node,
		Params: r.Params, Parent: r.Parent, Overlap: r.Overlap, Priority: r.Priority, Claimed: r.Claimed,
		LostAfter: r.LostAfter.Milliseconds(), Unfenced: r.Unfenced, CancelBy: r.CancelBy, CancelReason: r.CancelReason,
	}
}

// Run reads a run.
func (r *Run) Run() store.Run {
	return store.Run{
		Run: job.Run{
			ID: r.ID, JobUID: r.Job, Namespace: r.Namespace, Name: r.Name, Kind: r.Kind, Key: r.Key, Shard: r.Shard, Shards: r.Shards,
			Epoch: r.Epoch, Version: r.Version, State: r.State, Scheduled: r.Scheduled, Due: r.Due, Attempt: r.Attempt, Node: r.Node,
			Params: r.Params, Parent: r.Parent,
		},
		Token: r.Token, Overlap: r.Overlap, Priority: r.Priority, Claimed: r.Claimed,
		LostAfter: time.Duration(r.LostAfter) * time.Millisecond, Unfenced: r.Unfenced, CancelBy: r.CancelBy, CancelReason: r.CancelReason,
	}
}

// Mine are the running runs of a session, as the store knows them.
type Mine struct {
	Runs []Run `json:"runs" nullable:"false" doc:"The runs, with those that are to be cancelled."`
}

// Results are how attempts ended.
type Results struct {
	Results []Result `json:"results" nullable:"false" maxItems:"500" doc:"The results."`
}

// Result is how an attempt ended. Results may come late and repeatedly.
type Result struct {
	Attempt
	Started     time.Time   `json:"started,omitzero" doc:"When it took effect, by the clock of the worker."`
	Ended       time.Time   `json:"ended,omitzero" doc:"When it had ended."`
	Outcome     job.Outcome `json:"outcome" enum:"succeeded,failed,timed_out,cancelled,lost" doc:"How it ended."`
	Reason      job.Reason  `json:"reason,omitzero" doc:"Why."`
	ExitCode    *int        `json:"exit_code,omitempty" minimum:"-2147483648" maximum:"2147483647" doc:"Of a command."`
	Signal      string      `json:"signal,omitempty" doc:"The signal that has ended the command."`
	HTTPStatus  int         `json:"http_status,omitempty" minimum:"0" maximum:"999" doc:"Of the answer to a request."`
	Cause       string      `json:"cause,omitempty" maxLength:"1200" doc:"What the work said about its failure, such as the last line of its standard error."`
	Usage       job.Usage   `json:"usage,omitzero" doc:"What it used of the machine, as far as the worker knows."`
	Retryable   bool        `json:"retryable,omitempty" doc:"A failure that the exit codes of the retry policy do not stand for."`
	Permanent   bool        `json:"permanent,omitempty" doc:"A failure that another attempt would repeat."`
	Postponed   bool        `json:"postponed,omitempty" doc:"It had no effect because something that it needs could not be read: the run is due again in a while, and the outcome says nothing."`
	Value       []byte      `json:"value,omitempty" doc:"The result of a step of a flow, in JSON, in base64."`
	Output      []Chunk     `json:"output,omitempty" nullable:"false" maxItems:"10000" doc:"What of the output was not sent before."`
	OutputBytes int64       `json:"output_bytes,omitempty" minimum:"0" maximum:"1000000000000000" doc:"How much the attempt has written."`
}

// ResultOf writes a result.
func ResultOf(r *store.Result) Result {
	outcome := r.Outcome
	if r.Postponed {
		outcome = job.OutcomeFailed
	}
	return Result{
		Attempt: Attempt(r.Attempt), Started: r.Started, Ended: r.Ended, Outcome: outcome, Reason: r.Reason, ExitCode: r.ExitCode,
		Signal: r.Signal, HTTPStatus: r.HTTPStatus, Cause: r.Cause, Usage: r.Usage, Retryable: r.Retryable, Permanent: r.Permanent, Postponed: r.Postponed, Value: r.Value,
		Output: ChunksOf(r.Output), OutputBytes: r.OutputBytes,
	}
}

// Result reads a result.
func (r *Result) Result() store.Result {
	return store.Result{
		Attempt: store.Attempt(r.Attempt), Started: r.Started, Ended: r.Ended, Outcome: r.Outcome, Reason: r.Reason, ExitCode: r.ExitCode,
		Signal: r.Signal, HTTPStatus: r.HTTPStatus, Cause: r.Cause, Usage: r.Usage, Retryable: r.Retryable, Permanent: r.Permanent, Postponed: r.Postponed, Value: r.Value,
		Output: OutputChunks(r.Output), OutputBytes: r.OutputBytes,
	}
}

// Output is some output of attempts that run.
type Output struct {
	Chunks []Chunk `json:"chunks" nullable:"false" maxItems:"10000" doc:"The chunks."`
}

// Chunk is a part of the output of an attempt.
type Chunk struct {
	Run      job.ID    `json:"run" doc:"The run."`
	Attempt  int       `json:"attempt" minimum:"1" maximum:"1000000000" doc:"The number of the attempt."`
	Seq      int       `json:"seq" minimum:"0" maximum:"1000000000000000" doc:"The number of the chunk, from 0. One that was sent before is left as it is."`
	Offset   int64     `json:"offset" minimum:"0" maximum:"1000000000000000" doc:"Where it begins in all that was written."`
	Bytes    int       `json:"bytes" minimum:"0" maximum:"1000000000000000" doc:"How much of it the chunk has."`
	Time     time.Time `json:"time" doc:"When the first of it was written."`
	Data     []byte    `json:"data" doc:"The bytes, in base64: a 0, and records, each of which is a varint of twice the milliseconds since the record before, plus 1 for the standard error; the length in 2 bytes, the low one first; and so many bytes of output."`
	DropFrom int       `json:"drop_from,omitempty" minimum:"0" maximum:"1000000000000000" doc:"Chunks from this number to the one before drop_to are removed: they are beyond the bound of the output."`
	DropTo   int       `json:"drop_to,omitempty" minimum:"0" maximum:"1000000000000000" doc:"See drop_from."`
}

// ChunksOf writes chunks.
func ChunksOf(list []store.OutputChunk) []Chunk {
	chunks := make([]Chunk, len(list))
	for i := range list {
		chunks[i] = Chunk(list[i])
	}
	return chunks
}

// OutputChunks reads chunks.
func OutputChunks(chunks []Chunk) []store.OutputChunk {
	var list []store.OutputChunk
	for i := range chunks {
		list = append(list, store.OutputChunk(chunks[i]))
	}
	return list
}

// Finished answers results, in their order.
type Finished struct {
	Results []Accepted `json:"results" nullable:"false" doc:"What became of each, in their order."`
}

// Accepted is the outcome of a result.
type Accepted struct {
	Accepted  bool    `json:"accepted" doc:"The result counts. One that does not is not to be repeated, unless it is undecided."`
	Undecided bool    `json:"undecided,omitempty" doc:"The history store, which has the record of the attempt, is away: report the result again later."`
	Ready     []Ready `json:"ready,omitempty" nullable:"false" doc:"Runs that are ready for the worker because of it."`
}

// Jobs names jobs.
type Jobs struct {
	Jobs []job.ID `json:"jobs" nullable:"false" maxItems:"500" doc:"The jobs."`
}

// RunIDs names runs.
type RunIDs struct {
	Runs []job.ID `json:"runs" nullable:"false" maxItems:"500" doc:"The runs."`
}

// Versions are the present versions of jobs, in their order.
type Versions struct {
	Versions []Version `json:"versions" nullable:"false" doc:"The versions."`
}

// Version is the version of a job.
type Version struct {
	Job     job.ID    `json:"job" doc:"The job."`
	Version int64     `json:"version" doc:"Its version."`
	Changed time.Time `json:"changed,omitzero" doc:"When it was changed last."`
	Deleted bool      `json:"deleted,omitempty" doc:"It is gone, or not one for this worker."`
}

// VersionsOf writes versions.
func VersionsOf(list []engine.JobVersion) Versions {
	v := Versions{Versions: make([]Version, len(list))}
	for i := range list {
		v.Versions[i] = Version(list[i])
	}
	return v
}

// List reads versions.
func (v *Versions) List() []engine.JobVersion {
	list := make([]engine.JobVersion, len(v.Versions))
	for i := range list {
		list[i] = engine.JobVersion(v.Versions[i])
	}
	return list
}

// Calendars are what schedules name.
type Calendars struct {
	Calendars []Document `json:"calendars" nullable:"false" doc:"The calendars."`
}

// Boot reports the start of a process.
type Boot struct {
	Process job.ID `json:"process" doc:"The identity of the process: a ULID."`
}

// Hints announce work to poll for.
type Hints struct {
	Place string   `json:"place" doc:"Where the next request continues."`
	Hints []string `json:"hints" nullable:"false" doc:"What has changed: jobs, runs that are ready, cancels of runs, runs that were assigned (placed), or nodes. Empty when nothing has for as long as the request could wait."`
}

// hints are the words for hints, each of which is a bit.
var hints = map[store.Hint]string{
	store.HintJobs: "jobs", store.HintRuns: "runs", store.HintCancels: "cancels",
	store.HintPlaced: "placed", store.HintNodes: "nodes", store.HintLost: "lost",
}

// HintNames writes hints.
func HintNames(h store.Hint) []string {
	list := []string{}
	for bit := store.Hint(1); bit != 0; bit <<= 1 {
		if name := hints[bit]; h&bit != 0 && name != "" {
			list = append(list, name)
		}
	}
	return list
}

// Hint decodes hints. Unknown ones are ignored.
func (h *Hints) Hint() (all store.Hint) {
	for bit, name := range hints {
		for _, given := range h.Hints {
			if given == name {
				all |= bit
			}
		}
	}
	return all
}

// SecretsOf requests the secrets of an attempt that the worker has claimed.
type SecretsOf struct {
	Attempt Attempt  `json:"attempt" doc:"The attempt."`
	Names   []string `json:"names" nullable:"false" minItems:"1" maxItems:"50" doc:"The names of secrets that its job names."`
}

// Secrets are the values, or the reason why there are none.
type Secrets struct {
	Values  map[string]string `json:"values,omitempty" doc:"All values by name; none beside missing and problem."`
	Missing string            `json:"missing,omitempty" doc:"The name of a secret that does not exist: the attempt fails."`
	Near    string            `json:"near,omitempty" doc:"A name that may be meant."`
	Problem string            `json:"problem,omitempty" doc:"Why a value cannot be read now: the worker asks again."`
}
