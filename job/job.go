package job

import "time"

// Job is what to run, when, where and under which policies. A Job is plain data: omitted
// settings are zero values, which WithDefaults fills in.
type Job struct {
	Namespace   string            `json:"namespace,omitzero" max:"128" doc:"The group of jobs that this one belongs to. Default: default."`
	Name        string            `json:"name" max:"128" doc:"The name of the job in its namespace: lower-case letters, digits, dots, dashes and underscores."`
	Title       string            `json:"title,omitzero" max:"240" doc:"What pages call the job, in any script. It is not part of its name."`
	Description string            `json:"description,omitzero" max:"4096" doc:"What the job is for."`
	Labels      map[string]string `json:"labels,omitzero" items:"64" doc:"Labels by which to find and group jobs."`
	Paused      bool              `json:"paused,omitzero" doc:"A paused job does not fall due. It can still be run by hand."`
	Params      map[string]Param  `json:"params,omitzero" items:"64" doc:"The parameters that a run takes. Commands read them as {{ .Param.name }} or as the environment variable BELFRY_PARAM_NAME."`
	Schedule    Schedule          `json:"schedule,omitzero" doc:"When the job falls due: a mapping, or a cron expression alone. Without it the job runs only by hand, through the API or after a job that names it."`
	Run         RunSpec           `json:"run" doc:"What to run: exactly one of shell, http and handler, or a shell command alone."`
	Place       Place             `json:"place,omitzero" doc:"Which nodes run the job."`
	Policy      Policy            `json:"policy,omitzero" doc:"What happens when runs overlap, are missed, take too long or fail."`

	// The fields of the server. Documents may contain the first three, so that an
	// exported job can be applied again, but cannot change them.
	UID     ID      `json:"uid,omitzero" doc:"Read-only. The identity of the job, made when it was created."`
	Version int64   `json:"version,omitzero" min:"1" doc:"Read-only. Every change of the job increments it."`
	Status  *Status `json:"status,omitzero" doc:"Read-only. The state of the job on the server."`

	// Epoch counts the changes of the schedule, the pauses, the resumes and the deletes.
	// Runs planned in an earlier epoch never start.
	Epoch int64 `json:"-"`
}

// DefaultNamespace is the namespace of documents that name none.
const DefaultNamespace = "default"

// FullName returns "namespace/name".
func (j *Job) FullName() string { return fullName(j.Namespace, j.Name) }

func fullName(namespace, name string) string { return namespaceOf(namespace) + "/" + name }

// namespaceOf returns the namespace, or the default one.
func namespaceOf(namespace string) string {
	if namespace == "" {
		return DefaultNamespace
	}
	return namespace
}

// Status is the server's information about a job besides its definition.
type Status struct {
	State       JobState          `json:"state,omitzero" doc:"Whether the job can fall due."`
	Created     time.Time         `json:"created,omitzero" doc:"When the job was created."`
	Changed     time.Time         `json:"changed,omitzero" doc:"When the job was last changed."`
	Next        time.Time         `json:"next,omitzero" doc:"The next scheduled time, without the delays of spread and jitter, which GET …/next includes."`
	PausedBy    string            `json:"paused_by,omitzero" doc:"Who paused the job."`
	PauseReason string            `json:"pause_reason,omitzero" doc:"Why the job was paused."`
	PauseCode   string            `json:"pause_code,omitzero" doc:"Why the job was paused, for programs: a code of the reasons; text is what a user has said."`
	PauseArgs   map[string]string `json:"pause_args,omitzero" doc:"The arguments of the code by name, as texts."`
	// PausedFor is the reason of PauseReason and PauseCode.
	PausedFor   Reason    `json:"-"`
	PausedUntil time.Time `json:"paused_until,omitzero" doc:"When the job resumes automatically."`
	Barred      string    `json:"barred,omitzero" doc:"Why no live node may run the job, and what to change."`

	Failures int `json:"failures,omitzero" min:"1" max:"1000000000" doc:"How many runs have failed in a row: skipped and cancelled ones neither count nor end it."`

	LastRun     ID        `json:"last_run,omitzero" doc:"The run that ended last and was not withdrawn."`
	LastEnded   time.Time `json:"last_ended,omitzero" doc:"When it ended."`
	LastOutcome Outcome   `json:"last_outcome,omitzero" doc:"How it ended."`

	Source *Source `json:"source,omitzero" doc:"The commit of a repository that the job is of."`
}

// Source is the commit of a repository that a document is of.
type Source struct {
	URL     string `json:"url,omitzero" doc:"The address of the repository."`
	Branch  string `json:"branch,omitzero" doc:"The branch, if it is not the default one."`
	Commit  string `json:"commit,omitzero" doc:"The hash of the commit."`
	File    string `json:"file,omitzero" doc:"The file in the repository."`
	Version int64  `json:"version,omitzero" min:"1" max:"1000000000000" doc:"The version of the job that the commit has."`
	Edited  bool   `json:"edited,omitzero" doc:"Whether the document says something else by now: the next commit sets it back."`
	Diff    string `json:"diff,omitzero" doc:"How an edited document differs from the commit. That of a job is in its revisions."`
}

// JobState reports whether a job can fall due.
type JobState string

// The states of a job.
const (
	JobActive    JobState = "active"
	JobPaused    JobState = "paused"
	JobCompleted JobState = "completed" // its last instant has passed, or max_runs is reached
)

// Values returns all states of a job.
func (JobState) Values() []string { return texts(JobActive, JobPaused, JobCompleted) }

// texts returns the values of an enumeration as plain texts.
func texts[T ~string](values ...T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}
