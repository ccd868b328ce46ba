package replica

import (
	"context"
	"fmt"
	"strings"

	"github.com/belfry-cron/belfry/store"
)

// noteKeys begin the keys of notes. They are not copied: one node reads them.
const noteKeys = "n/"

// Notes implements ledger.Backend.
func (b *Backend) Notes(ctx context.Context, prefix, after string, limit int) (list []store.Note, err error) {
	from := noteKeys + max(prefix, after)
	if after >= prefix && after != "" {
		from += "\x00"
	}
	pairs, err := b.driver.Range(ctx, from, noteKeys+prefix+"\x7f", limit, false)
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		list = append(list, store.Note{Name: strings.TrimPrefix(p.Key, noteKeys), Version: p.Version, Text: p.Value})
	}
	return list, nil
}

// writeNote writes a note in place of the version that it had.
func writeNote(t *Txn, n store.Note) {
	t.compare(noteKeys+n.Name, n.Version)
	if len(n.Text) == 0 {
		t.Deletes = append(t.Deletes, noteKeys+n.Name)
	} else {
		t.put(noteKeys+n.Name, n.Text)
	}
}

// noteVersion returns the version of a note, 0 for none.
func (b *Backend) noteVersion(ctx context.Context, name string) (int64, error) {
	pairs, err := b.driver.Range(ctx, noteKeys+name, noteKeys+name+"\x00", 1, false)
	if err != nil || len(pairs) == 0 {
		return 0, err
	}
	return pairs[0].Version, nil
}

// PutNote implements ledger.Backend.
func (b *Backend) PutNote(ctx context.Context, n store.Note) (version int64, err error) {
	t := newTxn()
	writeNote(t, n)
	defer b.alone()()
	version, done, err := b.commit(ctx, t)
	if err == nil && !done {
		return 0, fmt.Errorf("it has another version: %w", store.ErrConflict)
	}
	return version, err
}
