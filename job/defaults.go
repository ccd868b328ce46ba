package job

import (
	"cmp"
	"reflect"
	"slices"
	"time"
)

// Defaults are the values of a server or namespace for settings that a job omits. All
// other defaults are built in. The zero Defaults belong to a server without settings.
type Defaults struct {
	Timezone string `json:"timezone,omitzero" max:"64" doc:"The IANA time zone of schedules that name none. Default: UTC."`
	Policy   Policy `json:"policy,omitzero" doc:"The policies of jobs that say nothing about them."`
	// Namespaces take precedence for the jobs of a namespace. They have no Namespaces
	// themselves.
	Namespaces map[string]Defaults `json:"namespaces,omitzero"`
}

// Over returns d with its unset values taken from base.
func (d Defaults) Over(base Defaults) Defaults {
	fill(reflect.ValueOf(&d).Elem(), reflect.ValueOf(base))
	return d
}

// builtIn are the policies of every job, whatever its schedule: the behaviour of crontab,
// made safe.
var builtIn = Policy{
	Overlap:       OverlapSkip,
	Missed:        MissedLatest,
	LateBy:        new(Duration(time.Hour)),
	NeedsPrevious: new(false),
	KillGrace:     new(Duration(10 * time.Second)),
	Retry:         &Retry{Attempts: new(0)},
	Priority:      new(0),
}

// The built-in defaults for some jobs: those with retries, and those whose work has an exit
// code.
var (
	builtInRetry = Retry{
		Backoff: new(Duration(10 * time.Second)),
		Factor:  2,
		Jitter:  new(Duration(0)),
		On:      []RetryOn{RetryFailed, RetryTimedOut, RetryLost},
	}
	builtInSuccess = Success{ExitCodes: []int{0}}
)

// WithDefaults returns a copy of the job with the defaults filled in. The copy shares
// unchanged values with j, and filled-in values with other jobs. Filling in twice changes
// nothing.
func (j *Job) WithDefaults(d Defaults) *Job {
	in := d.in(j.Namespace)
	filled := *j
	s, r := &filled.Schedule, &filled.Run

	if s.Timezone == "" && len(s.Cron) > 0 {
		s.Timezone = prefixedZone(s.Cron[0])
	}
	filled.Policy.fill(in, j)
	filled.Namespace = namespaceOf(filled.Namespace)
	filled.Place.Strategy = cmp.Or(filled.Place.Strategy, StrategyAny)
	s.Timezone = cmp.Or(s.Timezone, in.Timezone, "UTC")

	// Defaults of dependent settings are filled in only beside their setting.
	if len(s.Cron) > 0 && s.ClockChange == "" {
		s.ClockChange = ClockVixie
	}
	if s.Every > 0 && s.Align == "" {
		s.Align = AlignEpoch
	}
	if len(s.Only)+len(s.Except) > 0 && s.OffDay == "" {
		s.OffDay = OffDaySkip
	}
	s.On = slices.Clone(s.On)
	for i := range s.On {
		if s.On[i].Outcome == "" {
			s.On[i].Outcome = OnSucceeded
		}
	}
	if w := r.work(); w != nil {
		*r = w.filled().spec()
	}
	return &filled
}

// in returns the defaults for a namespace.
func (d *Defaults) in(namespace string) *Defaults {
	if named, ok := d.Namespaces[namespaceOf(namespace)]; ok {
		all := named.Over(*d)
		return &all
	}
	return d
}

// fill fills in the policies that a job omits, from the defaults of its namespace.
func (p *Policy) fill(d *Defaults, j *Job) {
	if j.Run.traits().isFlow {
		own := p.Retry
		defer func() { p.Retry = own }() // each step has its own
	}
	hasExitCode := j.Run.traits().hasExitCode
	p.fillChosen(&d.Policy, hasExitCode)
	fill(reflect.ValueOf(p).Elem(), reflect.ValueOf(&builtIn).Elem())
	if p.LostAfter == 0 {
		p.LostAfter = j.lostAfter(*p.KillGrace)
	}

	// Defaults of dependent settings are filled in only beside their setting.
	if p.Overlap == OverlapQueue && p.QueueLimit == 0 {
		p.QueueLimit = 1
	}
	if p.Overlap != OverlapAllow && p.ConcurrencyKey == "" && p.MaxParallel == 0 {
		p.MaxParallel = 1
	}
	if p.Missed == MissedAll && p.MissedLimit == 0 {
		p.MissedLimit = DefaultMissedLimit
	}
	if *p.Retry.Attempts > 0 {
		retry := *p.Retry
		fill(reflect.ValueOf(&retry).Elem(), reflect.ValueOf(&builtInRetry).Elem())
		if retry.Max == 0 {
			retry.Max = max(Duration(10*time.Minute), *retry.Backoff)
		}
		p.Retry = &retry
	}
	switch own := p.Success; {
	case !hasExitCode:
	case own == nil:
		p.Success = &builtInSuccess
	case len(own.ExitCodes) == 0:
		success := *own
		success.ExitCodes = builtInSuccess.ExitCodes
		p.Success = &success
	}
}

// fillChosen fills in the policies of a server or namespace. A default that depends on
// another policy is omitted if the job has chosen differently, since an error about the
// combination would not help the user.
func (p *Policy) fillChosen(defaults *Policy, hasExitCode bool) {
	policy := *p
	fill(reflect.ValueOf(p).Elem(), reflect.ValueOf(defaults).Elem())
	if p.Overlap != OverlapQueue {
		p.QueueLimit = policy.QueueLimit
	}
	if p.Overlap == OverlapAllow || p.ConcurrencyKey != "" {
		p.MaxParallel = policy.MaxParallel
	}
	if p.Missed != MissedAll {
		p.MissedLimit = policy.MissedLimit
	}
	if !hasExitCode {
		p.Success = policy.Success
	}
}

// fill copies the fields of src that are zero in dst, which is settable. Structs are filled field
// by field. A pointer's target in dst is copied before it is changed.
func fill(dst, src reflect.Value) {
	switch {
	case src.IsZero():
	case dst.Kind() == reflect.Struct && dst.Type() != timeType:
		for i := range dst.NumField() {
			fill(dst.Field(i), src.Field(i))
		}
	case dst.IsZero():
		dst.Set(src)
	case dst.Kind() == reflect.Pointer && dst.Type().Elem().Kind() == reflect.Struct:
		filled := reflect.New(dst.Type().Elem())
		filled.Elem().Set(dst.Elem())
		fill(filled.Elem(), src.Elem())
		dst.Set(filled)
	}
}
