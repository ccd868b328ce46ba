package ledger

import (
	"context"

	"github.com/belfry-cron/belfry/internal/decide/engine"
)

// Do makes a step of any operation.
func Do(ctx context.Context, s *Control, op engine.Operation) error { return s.do(ctx, Order{}, op) }
