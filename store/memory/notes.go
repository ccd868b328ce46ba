package memory

import (
	"context"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/store"
)

// Notes implements ledger.Backend.
func (s *backend) Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error) {
	return locked(ctx, s, func() (list []store.Note) {
		for _, name := range sortedKeys(s.notes) {
			if name > after && strings.HasPrefix(name, prefix) && len(list) < limit {
				n := s.notes[name]
				n.Text = slices.Clone(n.Text)
				list = append(list, n)
			}
		}
		return list
	})
}

// PutNote implements ledger.Backend.
func (s *backend) PutNote(ctx context.Context, n store.Note) (version int64, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if s.notes[n.Name].Version != n.Version {
		return 0, store.ErrConflict
	}
	s.writeNote(n)
	return n.Version + 1, nil
}

// writeNote writes a note in the place of one with its version.
func (s *backend) writeNote(n store.Note) {
	if len(n.Text) == 0 {
		delete(s.notes, n.Name)
		return
	}
	n.Version++
	n.Text = slices.Clone(n.Text)
	s.notes[n.Name] = n
}
