package ledger

import (
	"context"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/store"
)

// Notes implements [store.Notes].
func (s *Control) Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error) {
	list, err := s.ControlBackend.Notes(ctx, prefix, after, limit)
	return list, wrapped(err, "notes %s", prefix)
}

// PutAudited implements [store.Notes].
func (s *Control) PutAudited(ctx context.Context, n store.AuditedNote) error {
	if err := n.Check(); err != nil {
		return err
	}
	return s.do(ctx, Order{Items: 1, Adds: len(n.Text) > 0}, &engine.PutNote{AuditedNote: n})
}

// PutNote implements [store.Notes].
func (s *Control) PutNote(ctx context.Context, n store.Note) (int64, error) {
	if err := n.Check(); err != nil {
		return 0, err
	}
	version, err := s.ControlBackend.PutNote(ctx, n)
	return version, wrapped(err, "note %s", n.Name)
}
