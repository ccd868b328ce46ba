package runqueue

import (
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// fenceMargin is the time from the end of an attempt, its grace included, until other nodes may
// count it as lost.
const fenceMargin = 3 * time.Second

// FenceOf returns how long after the last renewal of its session an attempt may run: until another
// node can have its retry, its slot, or the next steps of its flow. 0 means without limit.
func FenceOf(p *job.Policy, run *store.Run) time.Duration {
	if run.Unfenced {
		return 0
	}
	return max(time.Millisecond, run.LostAfter-Grace(p)-fenceMargin)
}

// Grace returns how long an attempt may take to end gracefully.
func Grace(p *job.Policy) time.Duration {
	if p.KillGrace == nil {
		return 0
	}
	return time.Duration(*p.KillGrace)
}
