package ledger

import (
	"context"
	"fmt"

	"github.com/belfry-cron/belfry/store"
)

// PutConsumer implements [store.Feed].
func (s *Control) PutConsumer(ctx context.Context, c store.Consumer) error {
	if err := c.Check(); err != nil {
		return err
	}
	return wrapped(s.ControlBackend.PutConsumer(ctx, c), "consumer %s", c.Name)
}

// DeleteConsumer implements [store.Feed].
func (s *Control) DeleteConsumer(ctx context.Context, name string) error {
	if name == store.ConsumerHistory {
		return fmt.Errorf("consumer %s: it belongs to the history store: %w", name, store.ErrConflict)
	}
	return wrapped(s.ControlBackend.DeleteConsumer(ctx, name), "consumer %s", name)
}

// Ended implements [store.Feed].
func (s *Control) Ended(ctx context.Context, consumer string, after store.FeedRef, limit int) ([]store.FeedEntry, error) {
	list, err := s.ControlBackend.Ended(ctx, consumer, after, limit)
	return list, wrapped(err, "entries of consumer %s", consumer)
}

// Taken implements [store.Feed].
func (s *Control) Taken(ctx context.Context, consumer string, refs []store.FeedRef) error {
	if len(refs) > store.MaxBatch {
		return store.ErrTooMany
	}
	return wrapped(s.ControlBackend.Taken(ctx, consumer, refs), "entries of consumer %s", consumer)
}
