package agenda

import (
	"cmp"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// fenceMargin is the time between the end of an attempt, its grace included, and the moment
// when other nodes may take it for lost.
const fenceMargin = 3 * time.Second

// FenceOf returns how long after the last renewal of its session an attempt may run: as
// long as no other node can have its retry, its slot, or what follows it in its flow. 0 means
// without limit.
func FenceOf(filled *job.Job, run *store.Run) time.Duration {
	p := &filled.Policy
	// A run that excludes others frees its slot when it is lost.
	gains := p.ConcurrencyKey != "" || cmp.Or(run.Overlap, p.Overlap) != job.OverlapAllow
	// When it is lost, the flow starts its next steps or ends, and frees its slot.
	gains = gains || run.Kind == job.RunStep || run.Kind == job.RunByFlow
	if r := p.Retry; r != nil && r.Attempts != nil && *r.Attempts > 0 {
		for _, on := range r.On {
			gains = gains || on == job.RetryLost
		}
	}
	if !gains {
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
