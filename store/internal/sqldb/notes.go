package sqldb

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

var noteRows = &Table{Name: "notes", Key: 1, Columns: []Column{{"name", Text}, {"version", Int}, {"note", Text}}}

// Notes implements [store.Notes].
func (s *backend) Notes(ctx context.Context, prefix, after string, limit int) (list []store.Note, err error) {
	err = s.read(ctx, func(t *tx) error {
		list = nil
		// Names are ASCII, so that all sort before DEL.
		q := t.query("select name, version, note from notes where name > ? and name >= ? and name < ? order by name limit ?",
			after, prefix, prefix+"\x7f", int64(limit))
		for q.Next() {
			n := store.Note{Name: q.Text(), Version: q.Int()}
			n.Text = append(n.Text, q.View()...)
			list = append(list, n)
		}
		return q.Err()
	})
	return list, err
}

// PutNote implements [store.Notes].
func (s *backend) PutNote(ctx context.Context, n store.Note) (version int64, err error) {
	err = s.write(ctx, func(t *tx) error {
		if !s.db.Alone() {
			if err := t.lock(notesLock); err != nil {
				return err
			}
		}
		is, err := t.noteVersion(n.Name)
		if err != nil {
			return err
		}
		if is != n.Version {
			return store.ErrConflict
		}
		version = n.Version + 1
		return t.writeNote(n)
	})
	return version, err
}

func (t *tx) noteVersion(name string) (int64, error) {
	return t.number("select coalesce(max(version), 0) from notes where name = ?", name)
}

// writeNote writes a note in place of the version that it had.
func (t *tx) writeNote(n store.Note) error {
	if len(n.Text) == 0 {
		return t.exec("delete from notes where name = ?", n.Name)
	}
	return t.writeRows(Upsert, t.rows(noteRows, 1).text(n.Name).int(n.Version+1).text(string(n.Text)))
}
