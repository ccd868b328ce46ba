package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

var _ store.Transactional = (*Store)(nil)

// NoteIn implements [store.Transactional] for a *sql.Tx on the file of the store, which the program has opened as
// well. While it has written and is not committed, the store waits.
func (s *Store) NoteIn(ctx context.Context, tx any, n store.Note) error {
	if err := n.Check(); err != nil {
		return err
	}
	if err := s.d.sameFile(ctx, tx); err != nil {
		return err
	}
	return sqldb.ExecIn(ctx, tx, "insert into notes (name, version, note) values (?, 1, ?)", n.Name, string(n.Text))
}

// sameFile returns an error if a transaction is on another file.
func (d *database) sameFile(ctx context.Context, tx any) error {
	own, ok := tx.(*sql.Tx)
	if !ok || own == nil {
		return nil // ExecIn says what it is
	}
	var path string
	if err := own.QueryRowContext(ctx, "select coalesce(file, '') from pragma_database_list where name = 'main'").Scan(&path); err != nil {
		return err
	}
	theirs, err := os.Stat(path)
	if err == nil {
		if ours, failed := os.Stat(d.path); failed == nil && os.SameFile(theirs, ours) {
			return nil
		}
	}
	return fmt.Errorf("%w: it is on the file %q, the store on %s", sqldb.ErrTx, path, d.path)
}
