package client

import (
	"encoding/json"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Page is a part of a list.
type Page[T any] struct {
	Items []T `json:"items" nullable:"false" doc:"The items of this page."`
	// NextPageToken is empty on the last page.
	NextPageToken string `json:"next_page_token" doc:"What to ask the next page with; empty on the last page."`
}

// JobPage is a part of a list of jobs.
type JobPage struct {
	Page[Document]
	// Recent has the last runs of jobs by full name, if [JobQuery.Recent] is set.
	Recent map[string][]RecentRun `json:"recent,omitempty" doc:"If asked for: the last runs of the jobs that were not withdrawn, the latest first, by the full name of the job."`
}

// RecentRun is one of the last runs of a job, for a chart of its outcomes.
type RecentRun struct {
	ID      job.ID      `json:"id" doc:"The identity of the run."`
	Outcome job.Outcome `json:"outcome" enum:"succeeded,failed,timed_out,cancelled,lost,skipped,missed,withdrawn" doc:"How it ended."`
	Started time.Time   `json:"started,omitzero" doc:"When its first attempt started."`
	Ended   time.Time   `json:"ended" doc:"When it ended."`
	Attempt int         `json:"attempt" doc:"The number of its last attempt; 0 if there was none."`
	Steps   []string    `json:"steps,omitempty" nullable:"false" doc:"Of the latest run of a flow: how far its steps came, in their order."`
}

// Document is a job, calendar or pool in the form of files.
type Document struct{ json.RawMessage }

// Job returns the job that the document describes.
func (d Document) Job() (*job.Job, error) {
	list, err := job.Decode("", d.RawMessage)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || list[0].Job == nil {
		return nil, errNoJob
	}
	return list[0].Job, nil
}

// DocumentOf returns a document in the form of the API.
func DocumentOf(d job.Document) (Document, error) {
	const likely = 512 // typical bytes of a document
	return Document{job.AppendJSON(make([]byte, 0, likely), d)}, nil
}

// Change is the response to a change of a job.
type Change struct {
	Result ChangeResult `json:"result" enum:"created,changed,unchanged,deleted" doc:"What has happened."`
	Job    Document     `json:"job" doc:"The job as it is now; as it was, if it was deleted."`
	// Running are the runs that were running at the change. They continue to their end
	// under the definition of their claim.
	Running []Run `json:"running" nullable:"false" doc:"The runs that were running at the change. They continue to their end as they began."`
	// MayStart are runs that were not due at the change: their nodes claimed them ahead and have
	// not released them.
	MayStart []Run `json:"may_start,omitempty" nullable:"false" doc:"The runs that a node had claimed before they were due and has not released, such as while it cannot be reached: each may still start, once, as it was claimed."`
	// Warnings are about the resulting job.
	Warnings []string `json:"warnings,omitempty" nullable:"false" doc:"What is allowed and yet probably not meant: a job that it follows and that does not exist, or a resume that has nothing to make up for."`
}

// ChangeResult is the effect on a document.
type ChangeResult string

// The effects on a document.
const (
	Created   ChangeResult = "created"
	Changed   ChangeResult = "changed"
	Unchanged ChangeResult = "unchanged"
	Deleted   ChangeResult = "deleted"
)

// Apply is a request to make the server match documents.
type Apply struct {
	Documents []Document `json:"documents" nullable:"false" maxItems:"10000" doc:"Jobs, calendars and pools."`
	Owner     string     `json:"owner,omitempty" maxLength:"128" doc:"Whose documents these are. Each job is marked with it, and a job with the mark of another owner is refused."`
	Prune     bool       `json:"prune,omitempty" doc:"Delete the jobs with the mark of the owner that are not among the documents."`
	DryRun    bool       `json:"dry_run,omitempty" doc:"Check all and say what would happen, and change nothing."`
	Diff      bool       `json:"diff,omitempty" doc:"Say of what changes which lines do."`
	Source    *Commit    `json:"source,omitempty" doc:"The commit of a repository that has the documents. It needs an owner, whose jobs show it."`
}

// Commit is a commit of a repository that a client follows.
type Commit struct {
	URL     string   `json:"url" minLength:"1" maxLength:"1024" doc:"The address of the repository, without user and password."`
	Branch  string   `json:"branch,omitempty" maxLength:"255" doc:"The branch, if it is not the default one."`
	Commit  string   `json:"commit,omitempty" pattern:"^[0-9a-f]{7,64}$" doc:"The hash of the commit. Only with unreached there may be none."`
	Files   []string `json:"files,omitempty" maxItems:"10000" doc:"The file of each document in the repository, in the order of the documents."`
	Mistake string   `json:"mistake,omitempty" maxLength:"2000" doc:"Why the client cannot apply the commit. Then nothing is applied or deleted, whatever the documents are, and the mistake needs attention until a request of the owner succeeds."`
	// Unreached and Reached are said by a client without a new commit.
	Unreached string `json:"unreached,omitempty" maxLength:"2000" doc:"Why the client has not reached the repository for long. Nothing is applied or deleted, and it needs attention until a request of the owner without it."`
	Reached   bool   `json:"reached,omitempty" doc:"The client reaches the repository again and has no other commit than before. Nothing is applied or deleted."`
}

// body encodes the request like encoding/json, but copies the documents without parsing
// them, since they may be many: the server reports invalid JSON.
func (a Apply) body() ([]byte, error) {
	documents := a.Documents
	if len(documents) > 0 {
		a.Documents = []Document{}
	}
	rest, err := json.Marshal(a)
	if len(documents) == 0 || err != nil {
		return rest, err
	}
	begin := []byte(`{"documents":[`)
	length := len(rest)
	for _, d := range documents {
		length += len(d.RawMessage) + len(",")
	}
	b := append(make([]byte, 0, length), begin...)
	for i, d := range documents {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, d.RawMessage...)
	}
	return append(b, rest[len(begin):]...), nil
}

// Applied is the answer to [Apply].
type Applied struct {
	DryRun  bool          `json:"dry_run" doc:"Nothing was changed."`
	Results []ApplyResult `json:"results" nullable:"false" doc:"What has happened to each document, in their order, and then what was deleted."`
}

// ApplyResult is the effect on one document.
type ApplyResult struct {
	Kind     job.Kind     `json:"kind" enum:"job,calendar,pool" doc:"What the document describes."`
	Name     string       `json:"name" doc:"The full name, namespace/name."`
	Result   ChangeResult `json:"result" enum:"created,changed,unchanged,deleted" doc:"What has happened, or would."`
	Version  int64        `json:"version,omitempty" doc:"The version that it has now."`
	Warnings []string     `json:"warnings,omitempty" nullable:"false" doc:"What is allowed and yet probably not meant."`
	MayStart []Run        `json:"may_start,omitempty" nullable:"false" doc:"The runs that a node had claimed before they were due and has not released, such as while it cannot be reached: each may still start, once, as it was claimed."`
	Barred   string       `json:"barred,omitempty" doc:"Why no live node may run the job, and what to change. It is among the warnings, too."`
	Diff     string       `json:"diff,omitempty" doc:"If it was asked for: which lines of the document change."`
}

// Run is a planned, running or finished run.
type Run struct {
	ID      job.ID       `json:"id" doc:"The identity of the run."`
	Job     string       `json:"job" doc:"The full name of the job, namespace/name."`
	JobUID  job.ID       `json:"job_uid" doc:"The identity of the job."`
	Version int64        `json:"job_version,omitempty" doc:"The version of the job that the latest attempt ran under, or the run was planned under."`
	Kind    job.RunKind  `json:"kind" enum:"schedule,backfill,hand,on,after_end,boot,step,flow" doc:"What the run was made by."`
	Key     string       `json:"key" doc:"With kind and shard it tells the run apart from the others of the job."`
	Shard   int          `json:"shard,omitempty" doc:"The share of the work, from 0, where it is split."`
	Shards  int          `json:"shards,omitempty" doc:"How many shares there are, where the work is split."`
	State   job.RunState `json:"state" enum:"ready,waiting,running,done" doc:"How far the run has come."`
	Outcome job.Outcome  `json:"outcome,omitempty" enum:"succeeded,failed,timed_out,cancelled,lost,skipped,missed,withdrawn" doc:"How it ended, once it is done."`
	Why
	Failure
	Scheduled   time.Time         `json:"scheduled" doc:"The moment that the run stands for."`
	Previous    time.Time         `json:"previous,omitzero" doc:"Where the interval of its data begins, if the request for it has chosen that; else the previous scheduled time begins it."`
	Due         time.Time         `json:"due" doc:"When its attempt may start."`
	Planned     time.Time         `json:"planned,omitzero" doc:"When the run was made: a scheduled one some time before it is due. Not for a step of a flow."`
	Claimed     time.Time         `json:"claimed,omitzero" doc:"When a node took its latest attempt, up to some seconds before it was due. Unknown for what ended before version 17 of the store."`
	Started     time.Time         `json:"started,omitzero" doc:"When its first attempt started."`
	Ended       time.Time         `json:"ended,omitzero" doc:"When it ended."`
	Attempt     int               `json:"attempt" doc:"The number of the latest attempt or, while it is ready, of the next; 0 if there was none."`
	AttemptsMax int               `json:"attempts_max,omitempty" doc:"How many attempts policy.retry allows. Only in the answer about a single run, and not for flows and their steps."`
	Deadline    time.Time         `json:"deadline,omitzero" doc:"When its running attempt ends at the latest: timeout and kill_grace after its start. Only in the answer about a single run, if it has a timeout that counts from its start."`
	Node        string            `json:"node,omitempty" doc:"The node that it is assigned to, or ran on."`
	Executor    string            `json:"executor,omitempty" doc:"Who outside was asked last to do the work, such as the address of an executor of XXL-JOB; before that, the executor that the run was started for. Only for one run alone."`
	Slot        string            `json:"slot,omitempty" doc:"The slot that it needs or holds: the full name of the job, with /N for share N of its work or @NODE for a node of a broadcast; or that of a pool, pool:NAMESPACE/NAME, or of the line of its rate, rate:NAMESPACE/NAME."`
	Pool        string            `json:"pool,omitempty" doc:"The pool of that slot, namespace/name."`
	Params      map[string]string `json:"params,omitempty" doc:"The parameters that were given."`
	Parent      job.ID            `json:"parent,omitzero" doc:"The run that made this one."`
	RetryOf     job.ID            `json:"retry_of,omitzero" doc:"The run that this one repeats."`
	Window      *Opening          `json:"window,omitempty" doc:"The maintenance window that is open for the job, in which a run by hand starts all the same. Only in the answer that creates the run."`
	Retried     *RetryRequest     `json:"retried,omitempty" doc:"Of a flow that is run again: which of its steps."`

	ExitCode    *int            `json:"exit_code,omitempty" doc:"The exit code of the latest attempt, unless a signal ended the command."`
	Signal      string          `json:"signal,omitempty" doc:"The signal that ended the latest attempt."`
	HTTPStatus  int             `json:"http_status,omitempty" doc:"The status that the latest attempt was answered with."`
	OutputBytes int64           `json:"output_bytes,omitempty" doc:"How much the latest attempt wrote, once it has ended; unknown for a lost one."`
	Usage       job.Usage       `json:"usage,omitzero" doc:"What the latest attempt used of its machine, as far as that is known."`
	Unmet       string          `json:"unmet,omitempty" doc:"What its job expects (policy.expect) and was not so, in English, once it has ended."`
	UnmetCode   string          `json:"unmet_code,omitempty" doc:"The same for programs, as reason_code."`
	UnmetArgs   *job.ReasonArgs `json:"unmet_args,omitempty" doc:"The arguments of the code by name."`

	StoreLoss     string          `json:"store_loss,omitempty" doc:"That the store lost steps that it had acknowledged while the run was under way, so that parts of this record may be missing, or done twice; in English. Only in the answer about a single run."`
	StoreLossCode string          `json:"store_loss_code,omitempty" doc:"The same for programs, as reason_code."`
	StoreLossArgs *job.ReasonArgs `json:"store_loss_args,omitempty" doc:"The arguments of the code by name."`

	CancelBy     string `json:"cancel_by,omitempty" doc:"Who has asked for the end of the run."`
	CancelReason string `json:"cancel_reason,omitempty" doc:"Why."`

	Count int       `json:"count,omitempty" doc:"How many occurrences this stands for, where several were missed in a row."`
	Until time.Time `json:"until,omitzero" doc:"The scheduled time of the last of them."`

	Step  string      `json:"step,omitempty" doc:"The step of a flow that this is a run of; parent is the run of the flow."`
	Item  *int        `json:"item,omitempty" doc:"The place of the item, from 0, where the step has several."`
	Steps []StepState `json:"steps,omitempty" nullable:"false" doc:"Of the run of a flow that has begun: how far its steps have come."`

	Attempts []Attempt `json:"attempts,omitempty" nullable:"false" doc:"The attempts that have ended, by number. Only in the answer about a single run."`
	Others   []job.ID  `json:"others,omitempty" nullable:"false" doc:"The runs of the other shards. Only in the answer to a request that made them."`
}

// Attempt is a finished attempt of a run.
type Attempt struct {
	Number  int         `json:"number" doc:"Its number, from 1."`
	Node    string      `json:"node,omitempty" doc:"The node that it ran on."`
	Started time.Time   `json:"started,omitzero" doc:"When it started."`
	Ended   time.Time   `json:"ended" doc:"When it ended."`
	Outcome job.Outcome `json:"outcome" enum:"succeeded,failed,timed_out,cancelled,lost,skipped,missed,withdrawn" doc:"How it ended."`
	Why
	Failure
	ExitCode    *int            `json:"exit_code,omitempty" doc:"Its exit code, unless a signal ended the command."`
	Signal      string          `json:"signal,omitempty" doc:"The signal that ended it."`
	HTTPStatus  int             `json:"http_status,omitempty" doc:"The status of the answer."`
	OutputBytes int64           `json:"output_bytes" doc:"How much it wrote. 0 for a lost attempt, whose output is not counted; what arrived before is kept."`
	Usage       job.Usage       `json:"usage,omitzero" doc:"What it used of its machine, as far as that is known."`
	Unmet       string          `json:"unmet,omitempty" doc:"What the job expects and was not so, in English."`
	UnmetCode   string          `json:"unmet_code,omitempty" doc:"The same for programs, as reason_code."`
	UnmetArgs   *job.ReasonArgs `json:"unmet_args,omitempty" doc:"The arguments of the code by name."`
	Late        bool            `json:"late,omitempty" doc:"Its result came after the attempt counted as lost, and has replaced that."`
}

// Occurrence is a scheduled time of a job.
type Occurrence struct {
	Scheduled time.Time `json:"scheduled" doc:"The moment that the run will stand for, in the time zone of the job."`
	Due       time.Time `json:"due" doc:"When it may start: later by jitter and spread."`
	Window    *Opening  `json:"window,omitempty" doc:"The maintenance window that will be open then, by the windows of now."`
}

// HookCalled is the answer to the call of a hook.
type HookCalled struct {
	Run      job.ID `json:"run,omitzero" doc:"The run that the call has started. Absent if it started none."`
	Repeated bool   `json:"repeated,omitempty" doc:"An earlier call with the same delivery has started the run."`
}

// Opening is a span in which a maintenance window is open.
type Opening struct {
	Window string           `json:"window" doc:"The full name of the window, namespace/name."`
	Action job.WindowAction `json:"action" doc:"What happens to a run that falls due in it."`
	Opened time.Time        `json:"opened" doc:"When it opens."`
	Until  time.Time        `json:"until" doc:"When it closes."`
	Why                     // that a run does not start
}

// Occurrences are the next scheduled times of a job.
type Occurrences struct {
	Timezone string       `json:"timezone" doc:"The time zone of the schedule."`
	Items    []Occurrence `json:"items" nullable:"false" doc:"The next occurrences; fewer than asked for if there are no more."`
	Why                   // there are none
}

// Preview explains a schedule before its first run.
type Preview struct {
	Expression  string      `json:"expression" doc:"The canonical form: equal schedules have equal ones. Several are separated by |."`
	Timezone    string      `json:"timezone" doc:"The time zone whose clock is meant."`
	Description string      `json:"description" doc:"The schedule in words."`
	Next        []time.Time `json:"next" nullable:"false" doc:"The next occurrences, in the time zone; fewer than asked for if there are no more."`
	Notes       []string    `json:"notes" nullable:"false" doc:"What changes of the clock do to it, for what is shown and the year to come."`
	Reason      string      `json:"reason,omitempty" doc:"Why there are no occurrences."`
}

// NumberRequest raises the next number of runs at executors.
type NumberRequest struct {
	From int64 `json:"from" minimum:"1" maximum:"4503599627370496" doc:"The least number that a run may have."`
}

// Number is the answer to [NumberRequest].
type Number struct {
	First int64 `json:"first" doc:"The number that was reserved: runs have higher ones, except for those that a node has reserved before."`
}

// PastRunsMax is the most runs in a [PastRuns] request.
const PastRunsMax = 500

// PastRuns are runs of an xxl-job-admin that have ended, for the history.
type PastRuns struct {
	Items []PastRun `json:"items" nullable:"false" maxItems:"500" doc:"The runs."`
}

// PastRun is a past run to import. An existing run with its number and job stays unchanged.
type PastRun struct {
	Number   int64       `json:"number" minimum:"1" doc:"Its number in the old admin."`
	Job      string      `json:"job" maxLength:"257" doc:"The job: namespace/name."`
	ByHand   bool        `json:"by_hand,omitempty" doc:"Whether a person started it."`
	Executor string      `json:"executor,omitempty" maxLength:"255" doc:"Where it ran."`
	Started  time.Time   `json:"started" doc:"When it was sent."`
	Ended    time.Time   `json:"ended" doc:"When its result came."`
	Outcome  job.Outcome `json:"outcome" enum:"succeeded,failed,timed_out" doc:"How it ended."`
	Reason   string      `json:"reason,omitempty" maxLength:"4096" doc:"Why, in words."`
}

// PastRunsTaken is the answer to [PastRuns].
type PastRunsTaken struct {
	Taken int `json:"taken" doc:"How many are in the history, those that were there before included."`
}

// Executor is an executor of XXL-JOB that is registered or listed in a document.
type Executor struct {
	Group      string    `json:"group" doc:"The group that it belongs to: the appname that it registers with."`
	Address    string    `json:"address" doc:"Where it is called."`
	Generation string    `json:"generation,omitempty" doc:"D for XXL-JOB 3.5, which speaks another form of the protocol."`
	Listed     bool      `json:"listed,omitempty" doc:"Whether a document of kind executors lists it: it gets runs without registering."`
	Running    int       `json:"running" doc:"How many runs it has, of those that have not ended."`
	Seen       time.Time `json:"seen,omitzero" doc:"When it gave its last sign of life. One that is only listed gives none."`
}

// ExecutorPage is the list of executors of XXL-JOB, with their groups.
type ExecutorPage struct {
	Page[Executor]
	Groups []ExecutorGroup `json:"groups" nullable:"false" doc:"The groups that executors are in or jobs name, by name."`
	// AllJobs is false if jobs were left out: too many to read, or not visible to the caller.
	AllJobs bool `json:"all_jobs" doc:"Whether all jobs were looked at. If not, more may name a group than its jobs says."`
}

// ExecutorGroup is a group of executors of XXL-JOB. In a group without executors all runs fail; a
// group without jobs is unused.
type ExecutorGroup struct {
	Group     string `json:"group" doc:"The appname that executors register with and run.xxl.group names."`
	Executors int    `json:"executors" doc:"How many executors are registered or listed."`
	Jobs      int    `json:"jobs" doc:"How many jobs name it, in run.xxl or in a step of a flow."`
}

// Node is a process of the cluster.
type Node struct {
	Name     string            `json:"name" doc:"The name of the node."`
	Session  job.ID            `json:"session" doc:"Its present session."`
	State    string            `json:"state" enum:"live,drained,leaving,silent,left" doc:"Whether it takes runs: a drained node takes none until it is undrained, a leaving one is stopping, a silent one is no longer heard of, a left one has ended."`
	Roles    []string          `json:"roles" nullable:"false" doc:"What it does."`
	Labels   map[string]string `json:"labels,omitempty" doc:"What jobs choose it by."`
	Handlers []string          `json:"handlers,omitempty" nullable:"false" doc:"The functions that it can run."`
	Engine   string            `json:"engine,omitempty" doc:"Its container engine and the version of that, while it works."`
	Capacity int               `json:"capacity" doc:"How many attempts it runs at once."`
	Running  int               `json:"running" doc:"How many attempts it has claimed, those whose results the store has not taken included."`
	Ready    int               `json:"ready" doc:"How many of its runs are due and not claimed."`
	Version  string            `json:"version" doc:"The version of the program."`
	Zones    string            `json:"zone_table" doc:"The version of its time zone data."`
	Address  string            `json:"address,omitempty" doc:"Where its API listens; of a worker that reaches no store, via and the name of the server that it has joined through."`
	Joined   time.Time         `json:"joined" doc:"When the session began."`
	Renewed  time.Time         `json:"renewed" doc:"When it last renewed its session."`
	// ClockAhead is rounded to milliseconds.
	ClockAhead float64 `json:"clock_ahead_seconds" doc:"By how many seconds the clock of its machine is ahead of the store's, which jobs go by; below 0 it is behind. As it said when it was last heard of."`
	ClockOff   bool    `json:"clock_off,omitempty" doc:"The node plans and claims nothing: its clock is off the clock that the nodes of a store without one agree on, or was just set."`

	// The latest report of the node, within the last minute. A worker without a store
	// reports nothing.
	StoreRead  float64  `json:"store_read_seconds,omitempty" doc:"How long the store took to answer its last read of a note."`
	StoreWrite float64  `json:"store_write_seconds,omitempty" doc:"How long the store took for its last write of a note."`
	StoreP50   float64  `json:"store_p50_seconds,omitempty" doc:"Half of its last calls of the store, at most 1000 that were answered, took at most this."`
	StoreP99   float64  `json:"store_p99_seconds,omitempty" doc:"99 of 100 of them took at most this."`
	Partitions int      `json:"partitions,omitempty" doc:"For how many of the 256 partitions of jobs it plans."`
	Starts     []int    `json:"starts,omitempty" nullable:"false" doc:"How many attempts it has started in each of the last 60 minutes, the earliest first."`
	Warnings   []string `json:"warnings,omitempty" nullable:"false" doc:"What a person should change about it, although it works."`
	Disk       string   `json:"disk,omitempty" doc:"How little space the disk of its data directory has, if it is less than 1 GiB."`

	Left time.Time `json:"left,omitzero" doc:"Of a node that has left: when it said so, or when it was last heard of."`

	DrainedBy    string    `json:"drained_by,omitempty" doc:"Who has drained it."`
	DrainReason  string    `json:"drain_reason,omitempty" doc:"Why."`
	DrainedSince time.Time `json:"drained_since,omitzero" doc:"Since when."`
}

// Server describes a server.
type Server struct {
	Version string    `json:"version" doc:"The version of the program."`
	Built   string    `json:"built,omitempty" doc:"What the program was built with, such as go1.26.0 linux/amd64."`
	Node    string    `json:"node" doc:"The name of its node."`
	Roles   []string  `json:"roles" nullable:"false" doc:"What it does."`
	Started time.Time `json:"started,omitzero" doc:"When it started."`
	Store   string    `json:"store" doc:"Where it keeps its state, without passwords."`
	// StoreVersion is unknown while the store does not answer.
	StoreVersion string `json:"store_version,omitempty" doc:"The program that keeps the store, with its version, such as PostgreSQL 17.2."`
	History      string `json:"history,omitempty" doc:"Where it keeps history, if that is elsewhere."`
	Zones        string `json:"zone_table" doc:"The version of its time zone data."`
	Timezone     string `json:"timezone" doc:"The time zone of schedules that name none."`
	Nodes        int    `json:"nodes" doc:"How many nodes are live."`
	// Backup is unknown for stores in database servers.
	Backup time.Time `json:"backup,omitzero" doc:"When belfry backup made its last backup of the store; absent if it made none, and for stores in database servers."`
	Hints  []Hint    `json:"hints" nullable:"false" doc:"What belfry doctor would say of it at once, and what differs between nodes. Only for tokens without a namespace."`
}

// Hint is a possible improvement found by a check of a server.
type Hint struct {
	Check     string          `json:"check" doc:"What was checked."`
	CheckCode string          `json:"check_code" doc:"The code of what was checked. docs/problems.md lists them."`
	CheckArgs *job.ReasonArgs `json:"check_args,omitempty" doc:"The arguments of the code by name."`
	Status    string          `json:"status" enum:"note,wrong" doc:"Whether it works and could be better, or is wrong."`
	Found     string          `json:"found" doc:"What was found, in English."`
	FoundCode string          `json:"found_code" doc:"The code of what was found."`
	FoundArgs *job.ReasonArgs `json:"found_args,omitempty" doc:"The arguments of the code by name."`
	Do        string          `json:"do,omitempty" doc:"How to make it right, in English."`
	DoCode    string          `json:"do_code,omitempty" doc:"The code of how to make it right."`
	DoArgs    *job.ReasonArgs `json:"do_args,omitempty" doc:"The arguments of the code by name."`
}

// Attention is a problem that needs a person.
type Attention struct {
	Kind     AttentionKind   `json:"kind" enum:"failing,late,slow,paused,barred,occurrence,approval,node_silent,clock_off,node,store,alarms,source" doc:"What it is: runs of a job that failed in a row; runs that are due and do not start; a run that takes much longer than usual; a job that Belfry has paused; a job that no live node may run; an occurrence that was lost, run twice or started early; a step of a flow that waits for a person; a node that is no longer heard of; a node whose clock is off; a node with a setting or a machine that a person should change; a store that a node cannot write, or whose history is behind or away; channels whose last delivery failed; a repository whose last commit was not applied."`
	Severity Severity        `json:"severity" enum:"bad,warning" doc:"How urgent it is."`
	Job      string          `json:"job,omitempty" doc:"The job, namespace/name."`
	Run      job.ID          `json:"run,omitzero" doc:"The latest run that shows it."`
	Node     string          `json:"node,omitempty" doc:"The node."`
	Source   string          `json:"source,omitempty" doc:"The owner of the jobs that a repository has."`
	Channel  string          `json:"channel,omitempty" doc:"The channel, namespace/name: of several the one that failed last."`
	Count    int             `json:"count,omitempty" doc:"How many runs it is about, or channels."`
	Since    time.Time       `json:"since,omitzero" doc:"Since when, as far back as was looked."`
	Text     string          `json:"text" doc:"What is wrong, in English."`
	TextCode string          `json:"text_code,omitempty" doc:"The same for programs, as reason_code of runs."`
	TextArgs *job.ReasonArgs `json:"text_args,omitempty" doc:"The arguments of the code by name."`
	Failure
	SinceVersion int64 `json:"since_version,omitempty" doc:"The version of the definition with which the failures began, if the last success had another."`

	TakenBy string  `json:"taken_by,omitempty" doc:"Who looks after it."`
	Note    string  `json:"note,omitempty" doc:"A note for others."`
	NoteBy  string  `json:"note_by,omitempty" doc:"Who wrote the note."`
	Snoozed *Snooze `json:"snoozed,omitempty" doc:"Who put it aside, and until when. It stands at the end of the list, and comes back alone."`
}

// Snooze hides a problem until any of its conditions is met.
type Snooze struct {
	By           string    `json:"by" doc:"Who put it aside."`
	At           time.Time `json:"at" doc:"When."`
	Until        time.Time `json:"until,omitzero" doc:"It comes back at this instant."`
	NextVersion  bool      `json:"next_version,omitempty" doc:"It comes back when the definition of the job changes."`
	AnotherCause bool      `json:"another_cause,omitempty" doc:"It comes back when the fingerprint of its cause changes or, without one, its text in more than numbers."`
}

// AttentionRequest names a job, a node, the channels or a repository with a problem, and a mark for it.
type AttentionRequest struct {
	Job          string    `json:"job,omitempty" maxLength:"257" doc:"The job, namespace/name."`
	Node         string    `json:"node,omitempty" maxLength:"128" doc:"The name of the node."`
	Channels     bool      `json:"channels,omitempty" doc:"The channels that do not deliver."`
	Source       string    `json:"source,omitempty" maxLength:"128" doc:"The owner of the jobs of a repository."`
	Until        time.Time `json:"until,omitzero" doc:"Of a snooze: until this instant."`
	NextVersion  bool      `json:"next_version,omitempty" doc:"Of a snooze: until the definition of the job changes."`
	AnotherCause bool      `json:"another_cause,omitempty" doc:"Of a snooze: until the fingerprint of its cause changes."`
	Note         string    `json:"note,omitempty" maxLength:"1024" doc:"A note for others."`
}

// AttentionKind is the kind of an [Attention].
type AttentionKind string

// The kinds of an [Attention].
const (
	AttentionFailing    AttentionKind = "failing"
	AttentionLate       AttentionKind = "late"
	AttentionSlow       AttentionKind = "slow"
	AttentionPaused     AttentionKind = "paused"
	AttentionBarred     AttentionKind = "barred"
	AttentionOccurrence AttentionKind = "occurrence"
	AttentionApproval   AttentionKind = "approval"
	AttentionNodeSilent AttentionKind = "node_silent"
	AttentionClockOff   AttentionKind = "clock_off"
	AttentionNode       AttentionKind = "node"
	AttentionStore      AttentionKind = "store"
	AttentionAlarms     AttentionKind = "alarms"
	AttentionSource     AttentionKind = "source"
)

// Severity is how urgent an [Attention] is.
type Severity string

// The urgencies of problems.
const (
	SeverityBad     Severity = "bad"
	SeverityWarning Severity = "warning"
)

// Report is another program's report on its own work, for a job with run.external.
type Report struct {
	State    ReportState `json:"state" enum:"started,succeeded,failed,skipped" doc:"What has become of the work."`
	Run      job.ID      `json:"run,omitzero" doc:"The run that a report of the start has returned. Default: the latest whose start was reported. With started: it is still running."`
	At       time.Time   `json:"at,omitzero" doc:"When it started or ended. Default: now."`
	Started  time.Time   `json:"started,omitzero" doc:"When what has ended had started. Default: as its start was reported."`
	ExitCode *int        `json:"exit_code,omitempty" doc:"With which the command exited."`
	Signal   string      `json:"signal,omitempty" maxLength:"32" doc:"Which signal ended it, such as SIGKILL."`
	Reason   string      `json:"reason,omitempty" maxLength:"1024" doc:"Why, in words."`
	Output   string      `json:"output,omitempty" maxLength:"262144" doc:"What it wrote."`
	Lock     bool        `json:"lock,omitempty" doc:"Refuse a start while another one has not ended."`
}

// ReportState is the reported state of the work.
type ReportState string

// The states of reported work.
const (
	ReportStarted   ReportState = "started"
	ReportSucceeded ReportState = "succeeded"
	ReportFailed    ReportState = "failed"
	ReportSkipped   ReportState = "skipped" // the work did not start
)

// Callback is a service's report on a request with run.http.callback.
type Callback struct {
	State    CallbackState `json:"state" enum:"running,succeeded,failed" doc:"What has become of the work; running is a sign of life."`
	ExitCode *int          `json:"exit_code,omitempty" doc:"With which a command exited."`
	Reason   string        `json:"reason,omitempty" maxLength:"1024" doc:"Why, in words."`
	Output   string        `json:"output,omitempty" maxLength:"262144" doc:"What the work wrote."`
}

// The bounds of a [Callback].
const (
	CallbackReasonMax = 1024
	CallbackOutputMax = 256 << 10
)

// CallbackState is the state of work that a service has accepted.
type CallbackState string

// The states of work that a service has accepted.
const (
	CallbackRunning   CallbackState = "running" // a sign of life
	CallbackSucceeded CallbackState = "succeeded"
	CallbackFailed    CallbackState = "failed"
)

// Reported is the run of a report.
type Reported struct {
	Run   job.ID    `json:"run" doc:"The run."`
	Until time.Time `json:"until,omitzero" doc:"By when a run whose start was reported must end, or be reported as started again. Absent if it is over."`
}

// PingKey is a key whose holder may only report on one job.
type PingKey struct {
	Key  string `json:"key" doc:"The key. It is shown once."`
	Path string `json:"path" doc:"Where to send pings, behind the address of the server."`
}

// DrainRequest requests a drain of a node.
type DrainRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"1024" doc:"Why, for later readers."`
}

// Event is a change of a run, a node or another object.
type Event struct {
	// ID is the position in the stream, "" for a gap and for counts. It is not in the data.
	ID      string    `json:"-"`
	Kind    string    `json:"kind" doc:"What has happened: the action of a change, such as job.change; for a run run. and its state since; for a node node. and its state, or node.left; stats; or gap."`
	Time    time.Time `json:"time" doc:"When."`
	Object  string    `json:"object,omitempty" doc:"What it is about: namespace/name of a job, or of that of a run; the name of a node or token."`
	Actor   string    `json:"actor,omitempty" doc:"Who has made a change."`
	Version int64     `json:"version,omitempty" doc:"The version that it has since."`
	Detail  string    `json:"detail,omitempty" doc:"More, in words."`
	// DetailCode and DetailArgs are the detail for programs.
	DetailCode string          `json:"detail_code,omitempty" doc:"The detail for programs, as reason_code of runs."`
	DetailArgs *job.ReasonArgs `json:"detail_args,omitempty" doc:"The arguments of the code by name."`
	Run        *Run            `json:"run,omitempty" doc:"The run as it is since."`
	Node       *Node           `json:"node,omitempty" doc:"The node as it is since."`
	// Stats are the counts of an event of the kind [EventStats].
	Stats *StatsBucket `json:"stats,omitempty" doc:"What ended within the last minute, of the kind stats."`
}

// EventStats is the kind of the events with the counts of the last minute, each 5 s.
const EventStats = "stats"

// EventGap is the kind of the event in place of lost events: the reader must reload its
// data.
const EventGap = "gap"

// AuditRecord is one change and its author.
type AuditRecord struct {
	Seq     int64     `json:"seq" doc:"Its place in the order of changes."`
	Time    time.Time `json:"time" doc:"When it was made."`
	Actor   string    `json:"actor" doc:"Who made it."`
	Action  string    `json:"action" doc:"What was done, such as job.change."`
	Object  string    `json:"object" doc:"What was changed, such as default/nightly, or the name of a token."`
	Version int64     `json:"version,omitempty" doc:"The version that it has since."`
	Detail  string    `json:"detail,omitempty" doc:"More, in words."`
	// DetailCode and DetailArgs are the detail for programs.
	DetailCode string          `json:"detail_code,omitempty" doc:"The detail for programs, as reason_code of runs."`
	DetailArgs *job.ReasonArgs `json:"detail_args,omitempty" doc:"The arguments of the code by name."`
	Client     string          `json:"client,omitempty" enum:"cli,ui,api,mcp" doc:"What asked for it: the command line, the web UI, another client of the API, or an assistant. Absent for what Belfry did by itself and for Go programs with the store."`
	Address    string          `json:"address,omitempty" doc:"The network address that asked: of a proxy, if there is one."`
	Group      string          `json:"group,omitempty" doc:"What the changes of one request have in common: an apply, or a change of many jobs."`
	// Changes are the differences of a changed definition.
	Changes []FieldChange `json:"changes,omitempty" nullable:"false" doc:"What is different in a definition that was changed."`
}

// FieldChange is the difference in one field of a definition. Long values are cut, and
// likely secrets hidden.
type FieldChange struct {
	Path   string `json:"path" doc:"The field as people write it, such as schedule.cron."`
	Before string `json:"before,omitempty" doc:"What it was: a text as it was, another value in JSON. Nothing, if it was not there."`
	After  string `json:"after,omitempty" doc:"What it is since."`
}

// Revision is a version of a job.
type Revision struct {
	Version int64     `json:"version" doc:"The version."`
	Changed time.Time `json:"changed" doc:"When it was made."`
	Actor   string    `json:"actor" doc:"Who made it."`
	Job     Document  `json:"job,omitzero" doc:"The job as it was. Only in the answer about a single version."`
	Diff    string    `json:"diff,omitempty" doc:"What is different from the version that was asked for, as lines of the two documents: empty if they say the same."`
}

// Follower is a job that runs of another one start.
type Follower struct {
	Namespace string           `json:"namespace" doc:"Its namespace."`
	Name      string           `json:"name" doc:"Its name."`
	State     job.JobState     `json:"state" enum:"active,paused,completed" doc:"Its state: only an active job is started."`
	Outcomes  []job.UpstreamOn `json:"outcomes" nullable:"false" enum:"succeeded,failed,finished" doc:"The outcomes of a run that start it; finished is succeeded or failed."`
}

// FullName returns the name with the namespace.
func (f *Follower) FullName() string { return f.Namespace + "/" + f.Name }

// RollbackRequest restores an earlier version of a job.
type RollbackRequest struct {
	Version int64 `json:"version" minimum:"1" doc:"The version that the job is to be like. Whether it is paused stays as it is."`
}

// RunRequest starts a manual run.
type RunRequest struct {
	Params map[string]string `json:"params,omitempty" doc:"Values for the parameters that the job declares."`
	// Executor is for a job of executors of XXL-JOB.
	Executor string    `json:"executor,omitempty" maxLength:"255" doc:"The executor that does the work, by its address, for a job with run.xxl: one that is registered in its group or listed. Default: chosen by place.strategy. With a broadcast there is one run then."`
	At       time.Time `json:"at,omitzero" doc:"When the run is due, at most 32 days ahead. Default: now, as for a time that has passed."`
	// Unique and Debounce take the place of an idempotency key. At most one is set.
	Unique   *Sameness `json:"unique,omitempty" doc:"A run that such a request has created in this time is the answer, whatever became of it, and none is created."`
	Debounce *Sameness `json:"debounce,omitempty" doc:"The run starts when no such request has come for this time, with the parameters of the last one; it starts at the latest ten times this time after the first. Not for a job with shards."`
	// Scheduled and Previous choose the interval of the data, for templates and the environment.
	Scheduled time.Time  `json:"scheduled,omitzero" doc:"The moment that the run stands for, not in the future. Default: now."`
	Previous  time.Time  `json:"previous,omitzero" doc:"The previous scheduled time, as the run sees it, before scheduled. Default: by the schedule of the job."`
	Notify    *RunNotice `json:"notify,omitempty" doc:"A webhook that gets the end of this run and nothing else. Needs the role admin, since it brings an address."`
}

// RunNotice is a webhook for the end of one run.
type RunNotice struct {
	URL    string `json:"url" maxLength:"2048" doc:"The address, with https or http."`
	Secret string `json:"secret,omitempty" maxLength:"64" doc:"The name of the secret in the namespace that has the key of the signature: whsec_ and base64 of 24 to 64 bytes. Default: no signature."`
}

// Sameness says which requests for a run of a job are the same.
type Sameness struct {
	For job.Duration `json:"for" doc:"The time, from 1s to 24h, such as 10m."`
	By  []string     `json:"by,omitempty" nullable:"false" maxItems:"100" doc:"The parameters whose values are the same. Default: all."`
}

// RetryRequest repeats a finished run. A repeated flow keeps the results of the steps that
// do not run again: by default the steps that succeeded and depend on no step that did not.
type RetryRequest struct {
	From   []string          `json:"from,omitempty" nullable:"false" maxItems:"500" doc:"Run these steps and all behind them again, and no others."`
	Only   []string          `json:"only,omitempty" nullable:"false" maxItems:"500" doc:"Run these steps again, and no others."`
	Skip   []string          `json:"skip,omitempty" nullable:"false" maxItems:"500" doc:"Take these steps as succeeded."`
	Params map[string]string `json:"params,omitempty" doc:"Other values for parameters that the job declares."`
}

// ChoosesSteps reports whether the request is about steps.
func (r *RetryRequest) ChoosesSteps() bool { return len(r.From)+len(r.Only)+len(r.Skip) > 0 }

// RetriesMax is the most runs of a [RetriesRequest].
const RetriesMax = 50

// RetriesRequest repeats several finished runs, each like a [RetryRequest] without choices.
type RetriesRequest struct {
	Runs []job.ID `json:"runs" nullable:"false" minItems:"1" maxItems:"50" doc:"The runs."`
}

// Retries is the answer to [RetriesRequest].
type Retries struct {
	Runs   []Run        `json:"runs" nullable:"false" doc:"The new runs."`
	Errors []RetryError `json:"errors" nullable:"false" doc:"The runs that were not repeated."`
}

// RetryError is a run that could not be repeated.
type RetryError struct {
	Run    job.ID          `json:"run" doc:"The run."`
	Detail string          `json:"detail" doc:"Why, in English."`
	Code   string          `json:"code" doc:"The code of why. docs/problems.md lists them; text is one without a code."`
	Args   *job.ReasonArgs `json:"args,omitempty" doc:"The arguments of the code by name."`
}

// PauseRequest pauses a job.
type PauseRequest struct {
	Reason string    `json:"reason,omitempty" maxLength:"1024" doc:"Why, for later readers."`
	Until  time.Time `json:"until,omitzero" doc:"When the job resumes automatically. Default: never."`
}

// ResumeRequest ends a pause.
type ResumeRequest struct {
	Missed job.Missed `json:"missed,omitempty" enum:"none,latest,all" doc:"What happens with what fell due during the pause: none (default), the latest, or all."`
}

// BackfillRequest creates runs for past scheduled times.
type BackfillRequest struct {
	From    time.Time   `json:"from" doc:"The scheduled times at this instant and later."`
	To      time.Time   `json:"to,omitzero" doc:"The scheduled times before this instant, which is not in the future. Default: now."`
	Overlap job.Overlap `json:"overlap,omitempty" enum:"skip,queue,replace,allow" doc:"What a run of the backfill does when the slot of the job is taken: queue (default) runs one after another, by scheduled time."`
	DryRun  bool        `json:"dry_run,omitempty" doc:"Say which runs would be made, and make none."`
}

// Backfill is the answer to [BackfillRequest].
type Backfill struct {
	DryRun   bool          `json:"dry_run" doc:"Nothing was made."`
	Timezone string        `json:"timezone" doc:"The time zone of the schedule."`
	Made     int           `json:"made" doc:"How many runs were made."`
	Items    []BackfillRun `json:"items" nullable:"false" doc:"The runs by scheduled time."`
}

// BackfillRun is one run of a backfill.
type BackfillRun struct {
	Scheduled time.Time `json:"scheduled" doc:"The moment that the run stands for, in the time zone of the job."`
	Shard     int       `json:"shard,omitempty" doc:"The share of the work, from 0, where it is split."`
	Shards    int       `json:"shards,omitempty" doc:"How many shares there are, where the work is split."`
	Run       job.ID    `json:"run,omitzero" doc:"The run. None in a dry run."`
	Made      bool      `json:"made" doc:"Whether this request has made it: one with the same key may have been there."`
}

// BackfillCancelled is the answer to a cancel of all backfills of a job.
type BackfillCancelled struct {
	Ended   int   `json:"ended" doc:"How many runs had not started and never will."`
	Running []Run `json:"running" nullable:"false" doc:"The running runs, which are asked to end."`
}

// StepState is the progress of a step of a flow, or of one of its items.
type StepState struct {
	Name    string      `json:"name,omitempty" doc:"The name of the step."`
	State   string      `json:"state" enum:"pending,open,succeeded,failed,skipped,blocked,unneeded" doc:"How far it has come: skipped by its own if, blocked by a failure or the end of the flow, unneeded because what it waits for has not happened."`
	Outcome job.Outcome `json:"outcome,omitempty" enum:"succeeded,failed,timed_out,cancelled,lost,skipped,missed,withdrawn" doc:"How its run ended."`
	Why
	Waits string `json:"waits,omitempty" doc:"What it waits for, or where it runs, in words, while the flow has not ended. Only of a single run."`
	// WaitsCode and WaitsArgs are Waits as a code with arguments.
	WaitsCode string          `json:"waits_code,omitempty" doc:"The same for programs, as reason_code."`
	WaitsArgs *job.ReasonArgs `json:"waits_args,omitempty" doc:"The arguments of the code by name."`
	Attempt   int             `json:"attempt,omitempty" doc:"How many attempts it took."`
	Result    json.RawMessage `json:"result,omitempty" doc:"Its result."`
	Started   time.Time       `json:"started,omitzero" doc:"When it could start and, once it has ended, when its first attempt did."`
	Ended     time.Time       `json:"ended,omitzero" doc:"When it ended."`
	Run       job.ID          `json:"run,omitzero" doc:"Its own run, once it has one: with attempts and output."`
	From      job.ID          `json:"from,omitzero" doc:"The run of the flow that it was taken over from, whose steps have its output."`
	ItemValue string          `json:"item_value,omitempty" doc:"Of an item: its text or number, or the name or first text of an object; 120 bytes at most."`
	Items     []StepState     `json:"items,omitempty" nullable:"false" doc:"Its items, in their order."`
}

// SetWaits sets the reason why the step waits.
func (s *StepState) SetWaits(r job.Reason) {
	s.Waits = r.String()
	s.WaitsCode, s.WaitsArgs = r.For()
}

// AnswerRequest answers a step that waits for an approval.
type AnswerRequest struct {
	Note string `json:"note,omitempty" maxLength:"1024" doc:"Why, for later readers."`
}

// SignalRequest is the data of a signal.
type SignalRequest struct {
	Data json.RawMessage `json:"data,omitempty" doc:"Any JSON value, which becomes the result of the steps that wait for the signal."`
}

// CancelRequest ends a run.
type CancelRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"1024" doc:"Why, for later readers."`
}

// Stats are counts of finished runs.
type Stats struct {
	Step  int           `json:"step_seconds" doc:"The length of a bucket, in seconds."`
	Items []StatsBucket `json:"items" nullable:"false" doc:"The buckets in which something ended, the earliest first."`
}

// StatsBucket counts the runs that ended within a span.
type StatsBucket struct {
	Start    time.Time           `json:"start" doc:"The beginning of the bucket."`
	Outcomes map[job.Outcome]int `json:"outcomes" doc:"How many runs ended so, by outcome."`
	// Seconds is over the runs that had an attempt.
	Seconds float64 `json:"seconds" doc:"The sum of the durations of the last attempts."`
	Longest float64 `json:"longest_seconds" doc:"The longest of them."`
}

// Lanes are the finished runs of jobs, side by side.
type Lanes struct {
	Step  int    `json:"step_seconds" doc:"The length of a bucket, in seconds."`
	Jobs  int    `json:"jobs" doc:"How many jobs the query selects, of the jobs that were examined."`
	Items []Lane `json:"items" nullable:"false" doc:"The jobs with trouble first, the worst at the top: jobs that fail now, and those with the most failures in the span. The others follow by name."`
	Next  string `json:"next_page_token,omitempty" doc:"Continues the list; absent at its end."`
}

// Lane is the activity of a job within a span.
type Lane struct {
	Job      string            `json:"job" doc:"Its full name."`
	Labels   map[string]string `json:"labels,omitempty" doc:"Its labels."`
	Failures int               `json:"failures,omitempty" doc:"How many runs in a row have failed until now."`
	Runs     int               `json:"runs" doc:"How many runs ended in the span."`
	Failed   int               `json:"failed" doc:"How many of them failed, timed out, were lost or missed."`
	Buckets  []StatsBucket     `json:"buckets" nullable:"false" doc:"The buckets in which a run ended, the earliest first."`
}

// HasTrouble reports whether the job fails now or has failed within the span.
func (l *Lane) HasTrouble() bool { return l.Failures > 0 || l.Failed > 0 }

// LanesQuery selects the jobs, the span and the steps of [Lanes].
type LanesQuery struct {
	Namespace string
	Text      string // in the name, title or description
	Labels    map[string]string
	From, To  time.Time
	Step      time.Duration
	PageSize  int
	PageToken string
}

// StatsQuery selects what [Stats] counts.
type StatsQuery struct {
	Namespace string
	Job       string // namespace/name or uid, "" for all
	From, To  time.Time
	Step      time.Duration
}

// JobStatistics has statistics of the last runs of a job.
type JobStatistics struct {
	Runs     int                 `json:"runs" doc:"How many of the last runs were looked at, at most 2,000."`
	From     time.Time           `json:"from,omitzero" doc:"When the first of them ended."`
	To       time.Time           `json:"to,omitzero" doc:"When the last of them ended."`
	Outcomes map[job.Outcome]int `json:"outcomes" doc:"How they ended. A record of several missed occurrences counts as that many."`
	// SuccessRate counts only runs whose outcome shows whether the job works.
	SuccessRate *float64  `json:"success_rate,omitempty" doc:"Successful runs as a share of the runs that succeeded, failed, timed out, were lost or missed; absent without any."`
	Retried     int       `json:"retried" doc:"How many took more than one attempt."`
	Duration    Quantiles `json:"duration" doc:"How long successful runs took, from the start of the first attempt, in seconds."`
	Lateness    Quantiles `json:"lateness" doc:"How long after it was due the attempt of a run with one attempt started, in seconds."`
	CPU         Quantiles `json:"cpu" doc:"The processor time of the last attempts, in seconds. Attempts of which it is not known do not count."`
	Memory      Quantiles `json:"memory" doc:"The highest memory of the last attempts, in bytes. Attempts of which it is not known, or only a bound, do not count."`

	Days  []PartStatistics `json:"days" nullable:"false" doc:"The same by the day on which they ended, the earliest first; at is its beginning in the time zone that was asked for."`
	Nodes []PartStatistics `json:"nodes" nullable:"false" doc:"The same by node, by name."`
	Kinds []PartStatistics `json:"kinds" nullable:"false" doc:"The same by what made the run, by name."`
}

// PartStatistics are the statistics of a part of the runs.
type PartStatistics struct {
	Name        string    `json:"name,omitempty" doc:"The node, or the kind of the runs."`
	At          time.Time `json:"at,omitzero" doc:"The beginning of the day."`
	Runs        int       `json:"runs" doc:"How many runs these are."`
	SuccessRate *float64  `json:"success_rate,omitempty" doc:"Successful runs as a share of those that say how the job does."`
	Duration    Quantiles `json:"duration" doc:"How long successful runs took, in seconds."`
	Lateness    Quantiles `json:"lateness" doc:"How late they started, in seconds."`
}

// Quantiles describe a distribution of numbers.
type Quantiles struct {
	Count int     `json:"count" doc:"How many numbers these are of; the others are 0 if there are none."`
	P50   float64 `json:"p50" doc:"Half of them are at most this."`
	P95   float64 `json:"p95" doc:"19 of 20 are at most this."`
	P99   float64 `json:"p99" doc:"99 of 100 are at most this."`
	Max   float64 `json:"max" doc:"The largest."`
}

// Load is the number of scheduled starts in a future span.
type Load struct {
	From   time.Time `json:"from" doc:"The beginning of the first step."`
	Step   int       `json:"step_seconds" doc:"The length of a step, in seconds."`
	Starts []int     `json:"starts" nullable:"false" doc:"The starts of each step. Within a step moments that are equally far apart are counted by their distance, so numbers of schedules by the second are estimates. Jobs that follow other jobs or their own end are not counted."`
}

// LoadQuery selects what [Load] counts.
type LoadQuery struct {
	Namespace string
	Labels    map[string]string
	From, To  time.Time
	Step      time.Duration
}

// DueJob is a job that falls due.
type DueJob struct {
	Job string    `json:"job" doc:"The full name of the job."`
	Due time.Time `json:"due" doc:"The scheduled time. Spread and jitter put the start off."`
	// Spread of the schedule.
	Spread job.Duration `json:"spread,omitempty" doc:"The spread that its schedule has."`
	// Delay is in seconds.
	Delay *float64 `json:"delay_seconds,omitempty" doc:"With spread: by how much that spread would delay all starts of the job. Absent if its schedule has a spread."`
}

// LinesQuery selects lines of the output of an attempt.
type LinesQuery struct {
	Attempt int    // 0: the latest
	Stream  string // stdout or stderr; "" for both
	From    int    // the place of the first line, from 1. 0: a search begins with the first line, other requests return the last lines
	Count   int    // the most lines; 0 for the server's default
	Text    string // for a search: text of the lines, ignoring case
	Errors  bool   // for a search: only lines that name an error
}

// CompareQuery selects the outputs that are compared.
type CompareQuery struct {
	Attempt int    // 0: the latest
	With    job.ID // the other run, whose latest attempt is compared. Zero: the job's previous success
	Stream  string // stdout or stderr; "" for both
}

// ComparedOutputs are the ends of the outputs of two runs beside each other.
type ComparedOutputs struct {
	Attempt     int            `json:"attempt" doc:"The number of the attempt."`
	With        job.ID         `json:"with,omitzero" doc:"The other run; absent if no earlier run of the job has succeeded."`
	WithAttempt int            `json:"with_attempt,omitempty" doc:"The number of the attempt of the other run: its latest."`
	Cut         bool           `json:"cut,omitempty" doc:"Whether one of them has more than its last 400 lines, which are compared."`
	Only        int            `json:"only" doc:"How many lines only the run has."`
	Missing     int            `json:"missing" doc:"How many lines only the other run has."`
	Items       []ComparedLine `json:"items" nullable:"false" doc:"The lines in their order."`
}

// ComparedLine is a line of both outputs, or of one.
type ComparedLine struct {
	Line  *OutputLine `json:"line,omitempty" doc:"The line of the run; absent if only the other has it."`
	Other *OutputLine `json:"other,omitempty" doc:"The line of the other run; absent if it has none like it. Two lines are alike if they differ in numbers, times, ids, paths, hosts and quoted texts alone."`
}

// OutputLines are lines of the output of an attempt.
type OutputLines struct {
	Attempt int          `json:"attempt" doc:"The number of the attempt."`
	Total   int          `json:"total" doc:"How many lines are kept so far, of the stream that was asked for; of a search how far it looked."`
	Items   []OutputLine `json:"items" nullable:"false" doc:"The lines."`
	// LeftOut counts what exceeds the limit of the output.
	LeftOut     int64 `json:"left_out,omitempty" doc:"How many bytes of the output are not kept, beyond output_limit of the server. They are not found by a search."`
	LeftOutLine int   `json:"left_out_line,omitempty" doc:"The number of the line that says so: the first one that is missing."`
	LeftOutTo   int   `json:"left_out_to,omitempty" doc:"The last line that is missing; absent if less than a line is, or if an earlier version has written the output, whose numbers count what is kept."`
	NextLine    int   `json:"next_line,omitempty" doc:"The place of the next line that contains the text, if there are more than were asked for."`
}

// OutputLine is a line of output, which output of the other stream ends.
type OutputLine struct {
	Line   int       `json:"line" doc:"Its number among all that were written, from 1."`
	Place  int       `json:"place" doc:"Its place among the kept lines of the stream that was asked for, from 1."`
	Time   time.Time `json:"time,omitzero" doc:"When its beginning was written."`
	Stream string    `json:"stream,omitempty" enum:"stdout,stderr" doc:"What it was written to; absent where the line says what is left out."`
	Text   string    `json:"text" doc:"Its text, without its end."`
	Cut    int       `json:"cut,omitempty" doc:"How many bytes it has, where only the first 64 KiB are shown."`
}

// Check is a request to validate a document.
type Check struct {
	Text string `json:"text" maxLength:"1048576" doc:"A job, calendar or pool, in YAML or JSON."`
	Lang string `json:"lang,omitempty" enum:"en,zh" doc:"The language of the description. Default: en."`
}

// Checked is the explanation of an unsaved document.
type Checked struct {
	Valid    bool           `json:"valid" doc:"Whether it has no problems."`
	Problems []CheckProblem `json:"problems" nullable:"false" doc:"What is wrong, by place; 100 at most."`
	Warnings []CheckProblem `json:"warnings" nullable:"false" doc:"What is allowed and yet probably not meant."`
	Kind     job.Kind       `json:"kind,omitempty" doc:"What the document describes, as far as it can be read."`
	Name     string         `json:"name,omitempty" doc:"The full name, namespace/name."`
	Version  int64          `json:"version,omitempty" doc:"The version that is saved under this name; absent if there is none."`
	YAML     string         `json:"yaml,omitempty" doc:"A valid document in YAML, as it would be saved."`
	Filled   string         `json:"filled,omitempty" doc:"A valid document in YAML with all defaults filled in."`
	Diff     string         `json:"diff,omitempty" doc:"Which lines of the saved document would change."`
	Preview  *Preview       `json:"preview,omitempty" doc:"What the schedule of a valid job means."`
	Command  string         `json:"command,omitempty" doc:"What the next run of a valid job would execute, or the address that it would call, where templates decide that."`
}

// CheckProblem is one mistake in a document.
type CheckProblem struct {
	Line     int             `json:"line,omitempty" doc:"The line of the text, from 1."`
	Column   int             `json:"column,omitempty" doc:"The column, from 1."`
	Path     string          `json:"path,omitempty" doc:"The field as the text has it."`
	Detail   string          `json:"detail" doc:"What is wrong, in English."`
	Code     string          `json:"code,omitempty" doc:"The code of what is wrong, which stays the same when its sentence is reworded. docs/problems.md lists them."`
	Args     *job.ReasonArgs `json:"args,omitempty" doc:"The arguments of the code by name."`
	Hint     string          `json:"hint,omitempty" doc:"What would be right, in English."`
	HintCode string          `json:"hint_code,omitempty" doc:"The code of the hint."`
	HintArgs *job.ReasonArgs `json:"hint_args,omitempty" doc:"The arguments of the code of the hint by name."`
}

// Bulk changes all selected jobs in the same way.
type Bulk struct {
	Action BulkAction `json:"action" enum:"pause,resume,run,delete,restore" doc:"What happens to each job."`

	Namespace string            `json:"namespace,omitempty" maxLength:"128" doc:"Only jobs of this namespace."`
	Labels    map[string]string `json:"labels,omitempty" doc:"Only jobs with these labels."`
	Text      string            `json:"text,omitempty" maxLength:"256" doc:"Only jobs with this in their name, title or description."`
	State     job.JobState      `json:"state,omitempty" enum:"active,paused,completed" doc:"Only jobs in this state."`
	All       bool              `json:"all,omitempty" doc:"Must be true where nothing else selects jobs."`
	PausedIn  string            `json:"paused_in,omitempty" maxLength:"64" doc:"Of a resume: the jobs that a request of the last 24 hours has paused, by the group of its answer."`
	DeletedIn string            `json:"deleted_in,omitempty" maxLength:"64" doc:"Of a restore, which needs it: the jobs that a request of the last hour has deleted, by the group of its answer."`

	Reason string     `json:"reason,omitempty" maxLength:"1024" doc:"Of a pause or a deletion: why."`
	Until  time.Time  `json:"until,omitzero" doc:"Of a pause: when the jobs resume automatically."`
	Missed job.Missed `json:"missed,omitempty" enum:"none,latest,all" doc:"Of a resume: what happens with what fell due during the pause: none (default), the latest, or all."`

	Expect *int `json:"expect,omitempty" minimum:"0" doc:"Refuse if another number of jobs is selected."`
	DryRun bool `json:"dry_run,omitempty" doc:"Count the jobs, and change nothing."`
}

// BulkAction is a change of jobs in bulk.
type BulkAction string

// The changes of jobs in bulk.
const (
	BulkPause   BulkAction = "pause"
	BulkResume  BulkAction = "resume"
	BulkRun     BulkAction = "run"
	BulkDelete  BulkAction = "delete"
	BulkRestore BulkAction = "restore"
)

// BulkResult is the answer to [Bulk].
type BulkResult struct {
	DryRun  bool        `json:"dry_run" doc:"Nothing was changed."`
	Matched int         `json:"matched" doc:"How many jobs are selected."`
	Done    int         `json:"done" doc:"How many were changed, or were so already."`
	Group   string      `json:"group,omitempty" doc:"What the changes have in common in the audit."`
	Errors  []BulkError `json:"errors" nullable:"false" doc:"The jobs that were not, 100 at most."`
	// MayStart are as in [Change].
	MayStart []Run `json:"may_start,omitempty" nullable:"false" doc:"The runs that a node had claimed before they were due and has not released, such as while it cannot be reached: each may still start, once, as it was claimed."`
}

// BulkError is a job that could not be changed.
type BulkError struct {
	Job    string          `json:"job" doc:"The full name of the job."`
	Detail string          `json:"detail" doc:"Why, in English."`
	Code   string          `json:"code" doc:"The code of why. docs/problems.md lists them; text is one without a code."`
	Args   *job.ReasonArgs `json:"args,omitempty" doc:"The arguments of the code by name."`
}
