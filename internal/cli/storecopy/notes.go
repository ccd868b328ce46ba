package storecopy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/store"
)

// notesPage is how many notes one read returns.
const notesPage = 200

// notesOf returns the notes of a store by name, but for who delivers: that is a node of the store.
func notesOf(ctx context.Context, s Store) (map[string]store.Note, error) {
	all := map[string]store.Note{}
	for after := ""; ; {
		page, err := s.Notes(ctx, "", after, notesPage)
		if err != nil {
			return nil, err
		}
		for _, n := range page {
			if after = n.Name; n.Name != notification.LeaseNote {
				all[n.Name] = n
			}
		}
		if len(page) < notesPage {
			return all, nil
		}
	}
}

// copyNotes copies the pending messages of channels and their state, so that no message is lost or
// sent twice.
func (c *copying) copyNotes(ctx context.Context) error {
	want, err := notesOf(ctx, c.from)
	if err != nil {
		return err
	}
	c.result.Notes = len(want)
	has, err := notesOf(ctx, c.to)
	if err != nil {
		return err
	}
	for name := range has {
		if _, isKept := want[name]; !isKept {
			want[name] = store.Note{Name: name} // an empty text removes it
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if old, known := has[name]; known && bytes.Equal(old.Text, want[name].Text) {
			continue
		}
		note := store.Note{Name: name, Version: has[name].Version, Text: want[name].Text}
		if _, err := c.to.PutNote(ctx, note); err != nil {
			return fmt.Errorf("note %s: %w", name, err)
		}
		c.result.Written++
	}
	return nil
}
