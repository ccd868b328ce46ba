package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// NotedPayload is the notification of a note in a transaction of a program, behind a sender.
const NotedPayload = "noted"

// ErrTx is returned for what is no transaction of the database.
var ErrTx = errors.New("it is no transaction of this database")

// ExecIn runs a statement in a transaction of a program, if it is one of database/sql.
func ExecIn(ctx context.Context, tx any, text string, args ...any) error {
	t, ok := tx.(*sql.Tx)
	if !ok || t == nil {
		return fmt.Errorf("%w: %T", ErrTx, tx)
	}
	_, err := t.ExecContext(ctx, text, args...)
	return err
}

// Noted implements [store.Transactional].
func (s *Store) Noted() <-chan struct{} { return s.b.noted }

// heardNote passes on that a note may have been committed.
func (s *backend) heardNote() {
	select {
	case s.noted <- struct{}{}:
	default: // it is pending
	}
}
