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

// PutNote implements ledger.Backend.
func (b *Backend) PutNote(ctx context.Context, n store.Note) (version int64, err error) {
	t := newTxn()
	t.Compares[noteKeys+n.Name] = n.Version
	if len(n.Text) == 0 {
		t.Deletes = []string{noteKeys + n.Name}
	} else {
		t.put(noteKeys+n.Name, n.Text)
	}
	version, done, err := b.driver.Commit(ctx, t)
	if err == nil && !done {
		err = fmt.Errorf("it has another version: %w", store.ErrConflict)
	}
	return version, err
}
