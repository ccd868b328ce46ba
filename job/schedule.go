package job

import (
	"cmp"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

// Schedule is when a job falls due: by at most one of Cron, Every, AfterEnd, At and On,
// except that On may be combined with Cron or Every. With Boot it also falls due at the
// start of nodes; Boot cannot be combined with AfterEnd, whose chain of runs it would
// double. Without any of them the job runs only manually.
type Schedule struct {
	Cron     []string    `json:"cron,omitzero" short:"read" items:"100" max:"256" doc:"Cron expressions; the job falls due when any of them does. 5 fields, 6 with seconds first, 7 with seconds first and years last, @daily and the like, or @every 10s."`
	Every    Duration    `json:"every,omitzero" min:"10ms" max:"3650d" doc:"A fixed rate. At least 1s for shell and http, 10ms for handlers."`
	Align    Align       `json:"align,omitzero" doc:"What every counts from: epoch (1970-01-01T00:00:00Z, the default) or start."`
	Offset   Duration    `json:"offset,omitzero" max:"3650d" doc:"How long after the aligned moments of every the job falls due."`
	AfterEnd Duration    `json:"after_end,omitzero" min:"10ms" max:"3650d" doc:"Due this long after the previous run has ended, however it ended."`
	At       []time.Time `json:"at,omitzero" items:"1000" doc:"Fixed instants, RFC 3339 with an offset. The job is completed after the last."`
	On       []Upstream  `json:"on,omitzero" items:"100" doc:"Due when a run of another job ends. Its parameters and its scheduled time are passed on. Stands alone or beside cron or every."`
	Boot     bool        `json:"boot,omitzero" doc:"Due once whenever the process of a node that may run the job starts. Stands alone or beside cron, every, at or on."`

	Dialect     Dialect     `json:"dialect,omitzero" doc:"The grammar of cron: default, vixie5 (that of cronie, strictly, for lines from a crontab) or quartz (seconds first, 1 is Sunday). Default: default."`
	Timezone    string      `json:"timezone,omitzero" max:"64" doc:"The IANA time zone of the schedule, for example Asia/Shanghai. Default: the server's."`
	ClockChange ClockChange `json:"clock_change,omitzero" doc:"What cron expressions do where the clock changes. Default: vixie, a skipped time runs right after the gap and a repeated one once."`
	Start       time.Time   `json:"start,omitzero" doc:"Nothing falls due before this instant."`
	End         time.Time   `json:"end,omitzero" doc:"Nothing falls due after this instant."`
	MaxRuns     int         `json:"max_runs,omitzero" min:"1" max:"1000000000" doc:"The job is completed after this many scheduled runs."`
	DeleteAfter *Duration   `json:"delete_after,omitzero" min:"0s" max:"3650d" doc:"With at: the job is removed this long after it was completed."`

	Only   []string `json:"only,omitzero" items:"64" max:"256" doc:"Only occurrences in these exist: weekdays (mon-fri), dates (2026-10-01, 2026-10-01..2026-10-07), times of day (09:00-17:00), else names of calendars. With days and times, an occurrence must match one of each."`
	Except []string `json:"except,omitzero" items:"64" max:"256" doc:"Occurrences in any of these do not exist. The same forms as only."`
	OffDay OffDay   `json:"off_day,omitzero" doc:"What happens to occurrences on a day that only or except rule out: skip them (default), or move them to the same time of the next or previous allowed day."`

	Jitter Duration `json:"jitter,omitzero" min:"1ms" max:"1d" doc:"Delays each occurrence by up to this duration, chosen by a hash of the job and the scheduled time, but never until the next one."`
	Spread Duration `json:"spread,omitzero" min:"1ms" max:"1d" doc:"Delays all occurrences by the same part of this duration, chosen by a hash of the job, so that jobs do not all start at the full hour."`
}

// Align is the origin of a fixed rate.
type Align string

// The origins of a fixed rate.
const (
	AlignEpoch Align = "epoch"
	AlignStart Align = "start"
)

// Values returns all alignments.
func (Align) Values() []string { return texts(AlignEpoch, AlignStart) }

// Upstream names the runs of another job that make this one due.
type Upstream struct {
	Job     string     `json:"job" short:"true" max:"257" doc:"The other job: name, or namespace/name."`
	Outcome UpstreamOn `json:"outcome,omitzero" doc:"The required outcome of its run. Default: succeeded."`
}

// UpstreamOn is the required outcome of another job's run.
type UpstreamOn string

// The required outcomes of another job's run.
const (
	OnSucceeded UpstreamOn = "succeeded"
	OnFailed    UpstreamOn = "failed"   // failed, timed out or lost, without a further retry
	OnFinished  UpstreamOn = "finished" // either
)

// Values returns all endings.
func (UpstreamOn) Values() []string { return texts(OnSucceeded, OnFailed, OnFinished) }

// Dialect is the grammar of cron expressions. Package cron has the grammars.
type Dialect string

// The grammars of cron expressions.
const (
	DialectDefault Dialect = "default"
	DialectVixie5  Dialect = "vixie5"
	DialectQuartz  Dialect = "quartz"
)

// Values returns all grammars.
func (Dialect) Values() []string { return texts(DialectDefault, DialectVixie5, DialectQuartz) }

// Grammar returns the dialect of package cron: the default for unknown ones.
func (d Dialect) Grammar() cron.Dialect {
	grammar, _ := cron.ParseDialect(string(cmp.Or(d, DialectDefault)))
	return grammar
}

// ClockChange is the treatment of clock changes by cron expressions. Package cron has the
// rules.
type ClockChange string

// The policies for changes of the clock.
const (
	ClockVixie     ClockChange = "vixie"
	ClockLiteral   ClockChange = "literal"
	ClockSkipOnce  ClockChange = "skip_once"
	ClockShiftOnce ClockChange = "shift_once"
	ClockSkipLast  ClockChange = "skip_last"
)

// Values returns all policies for changes of the clock.
func (ClockChange) Values() []string {
	return texts(ClockVixie, ClockLiteral, ClockSkipOnce, ClockShiftOnce, ClockSkipLast)
}

// OffDay is the treatment of an occurrence on an excluded day.
type OffDay string

// The treatments of an occurrence on an excluded day.
const (
	OffDaySkip     OffDay = "skip"
	OffDayNext     OffDay = "next"
	OffDayPrevious OffDay = "previous"
)

// Values returns all treatments of an occurrence on an excluded day.
func (OffDay) Values() []string { return texts(OffDaySkip, OffDayNext, OffDayPrevious) }
