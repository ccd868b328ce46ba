package sqlite

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// Hints returns a channel of hints about what is committed, which is closed when
// ctx ends.
func (s *Store) Hints(ctx context.Context) <-chan store.Hint { return s.hints.Listen(ctx) }
