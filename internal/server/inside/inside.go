// Package inside has what packages of this module take from the scheduler of a program.
package inside

import (
	"log/slog"
	"time"

	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/store"
)

// Parts are the parts of a scheduler.
type Parts struct {
	// Store is its open store.
	Store store.Store
	// Planner is that of its node; nil while it does not run.
	Planner service.Planner
	// Node is the name of its node.
	Node string
	Now  func() time.Time
	Log  *slog.Logger
}
