package job

// Policy is the rules for runs that overlap, are missed, take too long or fail.
type Policy struct {
	Overlap        Overlap   `json:"overlap,omitzero" doc:"What a due run does when the previous one has not ended: skip (default), queue, replace or allow."`
	QueueLimit     int       `json:"queue_limit,omitzero" min:"1" max:"10000" doc:"With overlap queue: how many runs wait at most; more are skipped. Default: 1."`
	MaxParallel    int       `json:"max_parallel,omitzero" min:"1" max:"1000" doc:"How many runs of the job may run side by side before overlap applies. Not with overlap allow. Default: 1."`
	ConcurrencyKey string    `json:"concurrency_key,omitzero" max:"128" doc:"The name of a pool whose slots the job shares with other jobs. A pool that is not declared has one slot."`
	Missed         Missed    `json:"missed,omitzero" doc:"What happens with occurrences that fell due while no server was running or were not planned in time: none, latest (default) or all of them run late."`
	MissedLimit    int       `json:"missed_limit,omitzero" min:"1" max:"10000" doc:"With missed all: how many are caught up at most. Default: 100."`
	LateBy         *Duration `json:"late_by,omitzero" min:"0s" max:"forever" doc:"How late a run may start its first attempt; after that it is missed. A duration, 0 or forever. Default: 1h."`
	NeedsPrevious  *bool     `json:"needs_previous,omitzero" doc:"A run waits until the occurrence before it has succeeded, each of its shards. Default: false."`

	Timeout        *Duration `json:"timeout,omitzero" min:"0s" max:"365d" doc:"How long an attempt may take; 0 is without end. Default: without end."`
	KillGrace      *Duration `json:"kill_grace,omitzero" min:"0s" max:"1h" doc:"How long a run that must end has to do so before it is killed. Default: 10s."`
	Retry          *Retry    `json:"retry,omitzero" doc:"Further attempts after one that did not succeed."`
	LostAfter      Duration  `json:"lost_after,omitzero" min:"1s" max:"7d" doc:"How long after the last sign of life of its node a run counts as lost. Default: 60s, and 20s for a job that can be due more often than each minute; with a long kill_grace that and 9s."`
	Success        *Success  `json:"success,omitzero" doc:"What counts as success. Default: exit status 0, or an expected HTTP status."`
	PauseOnFailure *int      `json:"pause_on_failure,omitzero" min:"0" max:"1000000" doc:"The job is paused after so many failed runs in a row; 0 is never. Default: never."`

	Expect   *Expect `json:"expect,omitzero" doc:"What is worth an alert and a mark, and ends nothing."`
	Priority *int    `json:"priority,omitzero" min:"-100" max:"100" doc:"The order of runs that are due together on a full node, the highest first. Default: 0."`
	Keep     *Keep   `json:"keep,omitzero" doc:"How long history is kept. Default: the server's."`
}

// Overlap is the rule for a due run when the slots of its job are taken.
type Overlap string

// The rules for overlapping runs.
const (
	OverlapSkip    Overlap = "skip"    // it is recorded as skipped
	OverlapQueue   Overlap = "queue"   // it waits for a slot
	OverlapReplace Overlap = "replace" // the running one is cancelled, and it starts when that is gone
	OverlapAllow   Overlap = "allow"   // it runs beside the others
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
	MissedLatest Missed = "latest" // the latest runs late
	MissedAll    Missed = "all"    // all run late, in order
)

// DefaultMissedLimit is how many occurrences are caught up at most where all are
// and the job does not say it.
const DefaultMissedLimit = 100

// Values returns all policies for missed occurrences.
func (Missed) Values() []string { return texts(MissedNone, MissedLatest, MissedAll) }

// Retry is whether and when an attempt that did not succeed is followed by
// another. The n-th retry waits Backoff times Factor to the power of n-1, at
// most Max, and up to Jitter more.
type Retry struct {
	Attempts  *int      `json:"attempts,omitzero" min:"0" max:"1000" doc:"How many further attempts a run has. Default: 0."`
	Backoff   *Duration `json:"backoff,omitzero" min:"0s" max:"7d" doc:"The time before the first retry. Default: 10s."`
	Factor    float64   `json:"factor,omitzero" min:"1" max:"100" doc:"What the time is multiplied with for each further retry. Default: 2."`
	Max       Duration  `json:"max,omitzero" min:"1ms" max:"7d" doc:"The longest time before a retry. Default: 10m, or backoff if that is longer."`
	Jitter    *Duration `json:"jitter,omitzero" min:"0s" max:"1d" doc:"Each time is lengthened by up to this, at random. Default: 0."`
	Within    Duration  `json:"within,omitzero" min:"1s" max:"365d" doc:"No attempt starts later than this after the first. Default: no bound."`
	On        []RetryOn `json:"on,omitzero" doc:"What is retried: failed, timed_out, lost. Default: all three."`
	ExitCodes []int     `json:"exit_codes,omitzero" min:"0" max:"255" doc:"With run.shell: only these exit codes are retried when an attempt failed. Default: all."`
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

// Success is what counts as success.
type Success struct {
	ExitCodes []int  `json:"exit_codes,omitzero" min:"0" max:"255" doc:"The exit codes of success. Only with run.shell. Default: 0."`
	Match     string `json:"match,omitzero" max:"4096" doc:"A regular expression (RE2) that the output must match."`
}

// Expect is the expectations whose violation raises an alert.
type Expect struct {
	StartWithin   Duration `json:"start_within,omitzero" min:"1ms" max:"365d" doc:"A run should start within this time after it was due."`
	FinishWithin  Duration `json:"finish_within,omitzero" min:"1ms" max:"365d" doc:"A run should end within this time after it was due."`
	DurationBelow Duration `json:"duration_below,omitzero" min:"1ms" max:"365d" doc:"An attempt should take less than this."`
}

// Keep is how long history is kept.
type Keep struct {
	Runs      int      `json:"runs,omitzero" min:"1" max:"1000000000" doc:"At most so many finished runs."`
	For       Duration `json:"for,omitzero" min:"1s" max:"forever" doc:"Finished runs for this long; forever is allowed."`
	OutputFor Duration `json:"output_for,omitzero" min:"1s" max:"forever" doc:"Their output for this long; forever is allowed."`
}
