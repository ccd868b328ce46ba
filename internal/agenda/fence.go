package agenda

import (
	"cmp"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// fenceMargin is how long before others may take an attempt for lost its end begins, besides the
// grace that it is given.
const fenceMargin = 3 * time.Second

// FenceOf returns how long after the last renewal of its session an attempt may continue: as long as
// no other node can have its retry, its slot, or what follows it in its flow. 0 is without end.
func FenceOf(filled *job.Job, run *store.Run) time.Duration {
	p := &filled.Policy
	// Beside a run that overlaps nothing others may run anyway.
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

// Grace returns how long an attempt is given to end by itself.
func Grace(p *job.Policy) time.Duration {
	if p.KillGrace == nil {
		return 0
	}
	return time.Duration(*p.KillGrace)
}
