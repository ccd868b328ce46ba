package mysql

import (
	"context"
	"strings"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

var _ store.Transactional = (*Store)(nil)

// NoteIn implements [store.Transactional] for a *sql.Tx on the same server, in any of its databases.
func (s *Store) NoteIn(ctx context.Context, tx any, n store.Note) error {
	if err := n.Check(); err != nil {
		return err
	}
	var name string
	if err := s.d.pool.QueryRowContext(ctx, "select database()").Scan(&name); err != nil {
		return err
	}
	return sqldb.ExecIn(ctx, tx, "insert into `"+strings.ReplaceAll(name, "`", "``")+"`.notes (name, version, note) values (?, 1, ?)", n.Name, n.Text)
}
