package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// timingText is the part of a job that determines when it is due and where. Its JSON is
// the text that equal jobs share.
type timingText struct {
	// Namespace is where calendars are looked up, and [Calendars] the versions of the named ones: a
	// changed calendar yields another text. So does a recreated one, whose versions restart, by its
	// uid.
	Namespace    string            `json:"namespace,omitzero"`
	Calendars    map[string]int64  `json:"calendars,omitzero"`
	CalendarUIDs map[string]job.ID `json:"calendar_uids,omitzero"`
	Schedule     job.Schedule      `json:"schedule,omitzero"`
	Missed       job.Missed        `json:"missed,omitzero"`
	MissedLimit  int               `json:"missed_limit,omitzero"`
	LateBy       *job.Duration     `json:"late_by,omitzero"`
	Place        job.Place         `json:"place,omitzero"`
	Handler      string            `json:"handler,omitzero"`
	User         string            `json:"user,omitzero"`
	// Split is the group of executors that each get a run.
	Split string `json:"split,omitzero"`
	// Serial is set if the speed of planning missed occurrences matters.
	Serial bool `json:"serial,omitzero"`
}

// TimingText writes the part of a job that determines when it is due and where it is
// placed. The job's defaults are filled in. Two jobs with the same text are planned
// alike, except for jitter and spread, which depend on the uid.
func TimingText(filled *job.Job, calendars job.Calendars) (string, error) {
	t, err := timingOf(filled, calendars)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("schedule of %s: %w", filled.FullName(), err)
	}
	return string(text), nil
}

// timingOf returns what decides when a job is due and where it is placed.
func timingOf(filled *job.Job, calendars job.Calendars) (timingText, error) {
	t := timingText{
		Schedule:    filled.Schedule,
		Missed:      filled.Policy.Missed,
		MissedLimit: filled.Policy.MissedLimit,
		LateBy:      filled.Policy.LateBy,
		Place:       filled.Nodes(),
		Split:       filled.SplitBy(),
		Handler:     filled.Run.HandlerName(),
		User:        userOf(filled),
		Serial:      filled.Policy.Missed == job.MissedAll && (filled.Policy.Overlap != job.OverlapAllow || filled.Policy.ConcurrencyKey != ""),
	}
	if t.Schedule.Dialect == job.DialectDefault {
		t.Schedule.Dialect = ""
	}
	// H and ~ depend on the name: their drawn values can be shared.
	if len(t.Schedule.Cron) > 0 {
		exprs := make([]string, len(t.Schedule.Cron))
		for i, expr := range t.Schedule.Cron {
			parsed, err := cron.ParseSchedule(expr, cron.WithJob(filled.Namespace, filled.Name), cron.WithDialect(filled.Schedule.Dialect.Grammar()))
			if err != nil {
				return t, fmt.Errorf("schedule of %s: %w", filled.FullName(), err)
			}
			exprs[i] = fmt.Sprint(parsed)
		}
		t.Schedule.Cron = exprs
	}
	for _, names := range [...][]string{t.Schedule.Only, t.Schedule.Except} {
		for _, name := range names {
			c := lookUp(calendars, filled.Namespace, name)
			if c == nil {
				continue // a weekday, date or time
			}
			if t.Calendars == nil {
				t.Namespace, t.Calendars, t.CalendarUIDs = filled.Namespace, map[string]int64{}, map[string]job.ID{}
			}
			t.Calendars[name], t.CalendarUIDs[name] = c.Version, c.UID
		}
	}
	// The planner does not plan runs that follow other runs.
	t.Schedule.On, t.Schedule.AfterEnd, t.Schedule.Boot, t.Schedule.DeleteAfter = nil, 0, false, nil
	return t, nil
}

// WhyDefaults compares two timing texts of a job, and names the server defaults whose change
// affects its schedule.
func WhyDefaults(was, is string) job.Reason {
	var of [2]struct {
		Schedule struct{ Timezone string }
	}
	for i, text := range []string{was, is} {
		if json.Unmarshal([]byte(text), &of[i]) != nil {
			return reason.DefaultsChanged.Of()
		}
	}
	if before, after := of[0].Schedule.Timezone, of[1].Schedule.Timezone; before != after {
		return reason.ZoneChanged.Of(cmp.Or(before, "UTC"), cmp.Or(after, "UTC"))
	}
	return reason.DefaultsChanged.Of()
}

// SameOccurrences reports whether two timing texts of a job, with the same calendars,
// have the same occurrences.
func SameOccurrences(a, b string) bool {
	type part struct{ Namespace, Calendars, Schedule json.RawMessage }
	var of [2]part
	for i, text := range []string{a, b} {
		if json.Unmarshal([]byte(text), &of[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(of[0], of[1])
}

func lookUp(calendars job.Calendars, namespace, name string) *job.Calendar {
	if calendars == nil {
		return nil
	}
	return calendars(namespace, name)
}

// TimingOf returns the timing of a job. The job's defaults are filled in.
func TimingOf(filled *job.Job, uid job.ID, calendars job.Calendars) (Timing, error) {
	t, err := timingOf(filled, calendars)
	if err != nil {
		return Timing{}, err
	}
	timing, err := t.compile(calendars)
	timing.UID = uid
	return timing, err
}

// NamesCalendars reports whether a timing text has calendars. Within a string the quotes
// would be escaped.
func NamesCalendars(text string) bool { return strings.Contains(text, `"calendars":`) }

// Whereabouts are where the runs of a job are placed.
type Whereabouts struct {
	Place   job.Place
	Handler string
	// User runs the commands; "" is the default of the node.
	User string
	// Split is the group of executors that each get a run of an occurrence; "" for none.
	Split string
}

// WhereaboutsOf returns where the runs of a job are placed.
func WhereaboutsOf(filled *job.Job) Whereabouts {
	return Whereabouts{filled.Nodes(), filled.Run.HandlerName(), userOf(filled), filled.SplitBy()}
}

// userOf returns the user that a command of a job names.
func userOf(filled *job.Job) string {
	user, _, _ := filled.Run.AsCommand()
	return user
}

// CompileTiming compiles the output of [TimingText]. The result lacks the uid; it includes the place
// of the runs.
func CompileTiming(text string, calendars job.Calendars) (Timing, Whereabouts, error) {
	var t timingText
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return Timing{}, Whereabouts{}, fmt.Errorf("read the timing of a job: %w", err)
	}
	timing, err := t.compile(calendars)
	return timing, Whereabouts{t.Place, t.Handler, t.User, t.Split}, err
}

// compile returns the timing without a uid.
func (t *timingText) compile(calendars job.Calendars) (Timing, error) {
	j := job.Job{Namespace: t.Namespace, Name: "timing", Schedule: t.Schedule}
	schedule, err := j.CompileSchedule(calendars)
	if err != nil {
		return Timing{}, fmt.Errorf("compile the timing of a job: %w", err)
	}
	timing := Timing{
		Schedule:    schedule,
		Planned:     len(t.Schedule.Cron) > 0 || t.Schedule.Every > 0 || len(t.Schedule.At) > 0,
		Jitter:      time.Duration(t.Schedule.Jitter),
		Spread:      time.Duration(t.Schedule.Spread),
		Missed:      t.Missed,
		MissedLimit: t.MissedLimit,
		LateBy:      -1,
		MaxRuns:     t.Schedule.MaxRuns,
		Serial:      t.Serial,
	}
	if t.LateBy != nil && *t.LateBy != job.Forever {
		timing.LateBy = time.Duration(*t.LateBy)
	}
	return timing, nil
}
