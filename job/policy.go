package job

// Policy has the rules for runs that overlap, are missed, take too long or fail.
type Policy struct {
	Overlap        Overlap   `json:"overlap,omitzero" doc:"What a due run does when the previous one has not ended: skip (default), queue, replace or allow."`
	QueueLimit     int       `json:"queue_limit,omitzero" min:"1" max:"10000" doc:"With overlap queue: the maximum number of waiting runs; further ones are skipped. Default: 1."`
	MaxParallel    int       `json:"max_parallel,omitzero" min:"1" max:"1000" doc:"How many runs of the job may run concurrently before overlap applies. Not with overlap allow. Default: 1."`
	ConcurrencyKey string    `json:"concurrency_key,omitzero" max:"256" doc:"The name of a pool whose slots the job shares with other jobs. An undeclared pool has one slot. With parameters, as in customer-{{ .Param.customer }}, each value has slots of its own."`
	RateKey        string    `json:"rate_key,omitzero" max:"256" doc:"The name of a pool whose rate bounds how often runs start, with parameters as in concurrency_key. Default: concurrency_key."`
	Missed         Missed    `json:"missed,omitzero" doc:"Which occurrences run late that fell due while no server was running or were not planned in time: none, latest (default) or all."`
	MissedLimit    int       `json:"missed_limit,omitzero" min:"1" max:"10000" doc:"With missed all: the maximum number of occurrences to catch up. Default: 100."`
	LateBy         *Duration `json:"late_by,omitzero" min:"0s" max:"forever" doc:"How late a run may start its first attempt; after that it is missed. A duration, 0 or forever. Default: 1h."`
	NeedsPrevious  *bool     `json:"needs_previous,omitzero" doc:"A run waits until the previous occurrence has succeeded, with all its shards. Default: false."`

	Timeout        *Duration `json:"timeout,omitzero" min:"0s" max:"365d" doc:"The time limit of an attempt; 0 is none. Default: none."`
	KillGrace      *Duration `json:"kill_grace,omitzero" min:"0s" max:"1h" doc:"The time between the request to end and the kill of a run. Default: 10s."`
	Retry          *Retry    `json:"retry,omitzero" doc:"Further attempts after one that did not succeed."`
	LostAfter      Duration  `json:"lost_after,omitzero" min:"1s" max:"7d" doc:"A run counts as lost when its node has been silent for this long. Default: 60s; 20s for a job that can be due more than once a minute; at least kill_grace plus 9s."`
	Success        *Success  `json:"success,omitzero" doc:"The criteria of success. Default: exit status 0, or an expected HTTP status."`
	PauseOnFailure *int      `json:"pause_on_failure,omitzero" min:"0" max:"1000000" doc:"Pauses the job after this many failed runs in a row; 0 is never. Default: never."`

	Expect   *Expect `json:"expect,omitzero" doc:"Expectations: a run that does not meet them is marked and reported, and continues."`
	Priority *int    `json:"priority,omitzero" min:"-100" max:"100" doc:"The order of runs that are due together on a full node, the highest first. Default: 0."`
	Keep     *Keep   `json:"keep,omitzero" doc:"How long history is kept. Default: the server's."`
}

// Overlap is the rule for a due run when the slots of its job are taken.
type Overlap string

// The rules for overlapping runs.
const (
	OverlapSkip    Overlap = "skip"    // it is recorded as skipped
	OverlapQueue   Overlap = "queue"   // it waits for a slot
	OverlapReplace Overlap = "replace" // the running one is cancelled, and it starts after its end
	OverlapAllow   Overlap = "allow"   // it runs at the same time
)

// Values returns all overlap policies.
func (Overlap) Values() []string {
	return texts(OverlapSkip, OverlapQueue, OverlapReplace, OverlapAllow)
}

// Missed is the rule for occurrences that fell due while no node was running, or were not
// planned in time.
type Missed string

// The rules for missed occurrences.
const (
	MissedNone   Missed = "none"   // they are recorded as missed
	MissedLatest Missed = "latest" // the latest one runs late
	MissedAll    Missed = "all"    // all run late, in order
)

// DefaultMissedLimit is the default of missed_limit, the most occurrences that missed:
// all catches up.
const DefaultMissedLimit = 100

// Values returns all policies for missed occurrences.
func (Missed) Values() []string { return texts(MissedNone, MissedLatest, MissedAll) }

// Retry is the rule for further attempts after a failure. The n-th retry waits Backoff times Factor
// to the power of n-1, at most Max, and up to Jitter more.
type Retry struct {
	Attempts  *int      `json:"attempts,omitzero" min:"0" max:"1000" doc:"The number of further attempts. Default: 0."`
	Backoff   *Duration `json:"backoff,omitzero" min:"0s" max:"7d" doc:"The time before the first retry. Default: 10s."`
	Factor    float64   `json:"factor,omitzero" min:"1" max:"100" doc:"The factor of the time for each further retry. Default: 2."`
	Max       Duration  `json:"max,omitzero" min:"1ms" max:"7d" doc:"The longest time before a retry. Default: 10m, or backoff if that is longer."`
	Jitter    *Duration `json:"jitter,omitzero" min:"0s" max:"1d" doc:"Adds a random time of up to this. Default: 0."`
	Within    Duration  `json:"within,omitzero" min:"1s" max:"365d" doc:"No attempt starts later than this after the first. Default: no bound."`
	On        []RetryOn `json:"on,omitzero" doc:"Which outcomes are retried: failed, timed_out, lost. Default: all three."`
	ExitCodes []int     `json:"exit_codes,omitzero" min:"0" max:"255" doc:"With run.shell, run.container and run.kubernetes: the exit codes of failed attempts that are retried. Default: all."`
}

// RetryOn is an outcome that is retried.
type RetryOn string

// The outcomes that can be retried.
const (
	RetryFailed   = RetryOn(OutcomeFailed)
	RetryTimedOut = RetryOn(OutcomeTimedOut)
	RetryLost     = RetryOn(OutcomeLost)
)

// Values returns all outcomes that can be retried.
func (RetryOn) Values() []string { return texts(RetryFailed, RetryTimedOut, RetryLost) }

// Success defines success.
type Success struct {
	ExitCodes []int  `json:"exit_codes,omitzero" min:"0" max:"255" doc:"The exit codes of success. Only with run.shell, run.container and run.kubernetes. Default: 0."`
	Match     string `json:"match,omitzero" max:"4096" doc:"A regular expression (RE2) that the output must match."`
}

// Expect is the expectations whose violation raises an alert.
type Expect struct {
	StartWithin   Duration `json:"start_within,omitzero" min:"1ms" max:"365d" doc:"A run should start within this time after it was due."`
	FinishWithin  Duration `json:"finish_within,omitzero" min:"1ms" max:"365d" doc:"A run should end within this time after it was due."`
	DurationBelow Duration `json:"duration_below,omitzero" min:"1ms" max:"365d" doc:"An attempt should take less than this, from its claim or, if that was early, from its due time."`
	MemoryBelow   Size     `json:"memory_below,omitzero" min:"1MiB" max:"1024TiB" doc:"The highest memory of an attempt should be less than this, for example 200MiB. Only with run.shell and run.container. If the system does not know the figure, nothing is marked."`
	CPUBelow      Duration `json:"cpu_below,omitzero" min:"1ms" max:"365d" doc:"The processor time of an attempt should be less than this. Only with run.shell and run.container."`
}

// Keep is how long history is kept.
type Keep struct {
	Runs      int      `json:"runs,omitzero" min:"1" max:"1000000000" doc:"The maximum number of finished runs."`
	For       Duration `json:"for,omitzero" min:"1s" max:"forever" doc:"How long finished runs are kept, or forever."`
	OutputFor Duration `json:"output_for,omitzero" min:"1s" max:"forever" doc:"How long their output is kept, or forever."`
}
