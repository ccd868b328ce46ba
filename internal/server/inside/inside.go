// Package inside has what packages of this module take from the scheduler of a program.
package inside

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Parts are the parts of a scheduler.
type Parts struct {
	// Store is its open store; nil if it is connected to servers.
	Store store.Store
	// Planner is that of its node; nil while it does not run.
	Planner service.Planner
	// Metrics counts its attempts. Load is the work of its node, zero while it does not run.
	Metrics *metrics.Metrics
	Load    metrics.Load
	// Live is set while the session of the node is renewed.
	Live bool
	// Version is that of the program.
	Version string
	// Node is the name of its node.
	Node string
	Now  func() time.Time
	Log  *slog.Logger
}

// Families returns the metrics of the scheduler, without those that nothing is known for.
func (p *Parts) Families(ctx context.Context) []metrics.Family {
	var list []metrics.Family
	if p.Store == nil {
		list = p.Metrics.WorkerFamilies(p.Version, p.Load, p.Live)
	} else {
		next := func(job.ID, time.Time) (at time.Time, known bool) { return at, known }
		if p.Planner != nil {
			next = p.Planner.NextAfter
		}
		list = p.Metrics.Families(ctx, metrics.Sources{Version: p.Version, Store: p.Store, OfProgram: true, Next: next, Load: func() metrics.Load { return p.Load }})
	}
	return slices.DeleteFunc(list, func(f metrics.Family) bool { return len(f.Samples) == 0 })
}

// LoadOf returns the load of a node for its metrics.
func LoadOf(stats node.Stats) metrics.Load {
	return metrics.Load{
		Jobs: stats.Planner.Jobs, CatchingUp: stats.Planner.Held, Ahead: stats.Planner.Ahead, Capacity: stats.Capacity,
		Held: stats.Worker.Held, Pending: stats.Worker.Pending, Results: stats.Worker.Results,
		ClockAhead: stats.ClockAhead, ClockOff: stats.ClockOff,
	}
}
