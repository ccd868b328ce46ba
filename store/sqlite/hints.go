package sqlite

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// Hints returns a channel of hints about what is committed, which is closed when
// ctx ends.
func (s *Store) Hints(ctx context.Context) <-chan store.Hint { return s.hints.Listen(ctx) }

// Events implements store.Store. When it returns, what was written before by calls
// that did not know of the new receiver is on disk.
func (s *Store) Events(ctx context.Context) <-chan []store.Event {
	list := s.feed.Follow(ctx)
	// If it cannot be written, nothing changes either.
	_ = s.write(ctx, func(*tx) error { return nil })
	return list
}

// EventsElsewhere implements store.Store: there is one process.
func (s *Store) EventsElsewhere(context.Context) <-chan []store.Event { return nil }
