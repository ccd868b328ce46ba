package job

import "github.com/belfry-cron/belfry/internal/phrase"

// WorkExternal is the kind of work that happens outside of Belfry and is reported.
const WorkExternal Work = "external"

// External is work that Belfry does not start: a line of a crontab, or a job of another system.
// Without a report in time it is missed.
type External struct {
	Grace Duration `json:"grace,omitzero" default:"5m" min:"30s" max:"30d" doc:"How late a report may come after the due time, and an end after a reported start."`
}

// GraceDefault is the grace of a job that does not set it.
const GraceDefault = Duration(5 * 60 * 1e9)

func (e *External) kind() Work { return WorkExternal }

func (e *External) spec() RunSpec { return RunSpec{External: e} }

func (e *External) traits() traits { return traits{isReported: true} }

func (e *External) filled() work {
	own := *e
	if own.Grace == 0 {
		own.Grace = GraceDefault
	}
	return &own
}

func (e *External) expand(visitor, *path) work { return e }

func (e *External) check(v *validator, j *Job, _ *path) {
	schedule, policy := root.field("schedule"), root.field("policy")
	s, p := &j.Schedule, &j.Policy
	v.refuse(len(s.On) > 0, schedule.field("on"), phrase.OnlyStarted)
	v.refuse(s.AfterEnd != 0, schedule.field("after_end"), phrase.OnlyStarted)
	v.refuse(s.Boot, schedule.field("boot"), phrase.OnlyStarted)
	v.refuse(p.ConcurrencyKey != "", policy.field("concurrency_key"), phrase.OnlyStarted)
	v.refuse(p.RateKey != "", policy.field("rate_key"), phrase.OnlyStarted)
	v.refuse(j.Place.Shards > 0, root.field("place").field("shards"), phrase.OnlyStarted)
	v.refuse(j.Place.Strategy == StrategyBroadcast, root.field("place").field("strategy"), phrase.OnlyStarted)
}
