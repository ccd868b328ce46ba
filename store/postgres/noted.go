package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

var _ store.Transactional = (*Store)(nil)

// place is where the tables of a store are, for transactions with another search_path.
type place struct {
	mu     sync.Mutex
	schema string // "" until it is known
}

func (s *Store) schemaName(ctx context.Context) (string, error) {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	if s.place.schema == "" {
		err := s.d.ask(ctx, func(a asker) error { return a.QueryRow(ctx, "select current_schema").Scan(&s.place.schema) })
		if err != nil {
			return "", brief(err)
		}
	}
	return s.place.schema, nil
}

// NoteIn implements [store.Transactional] for a pgx.Tx, and for a *sql.Tx of any driver. Its notification is sent
// by the commit.
func (s *Store) NoteIn(ctx context.Context, tx any, n store.Note) error {
	if err := n.Check(); err != nil {
		return err
	}
	schema, err := s.schemaName(ctx)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("with noted as (insert into %s.notes (name, version, note) values ($1, 1, $2)) select pg_notify('%s', $3)",
		pgx.Identifier{schema}.Sanitize(), channel)
	args := []any{n.Name, string(n.Text), schema + " - " + sqldb.NotedPayload}
	if own, ok := tx.(pgx.Tx); ok {
		_, err = own.Exec(ctx, text, args...)
		return err
	}
	return sqldb.ExecIn(ctx, tx, text, args...)
}
