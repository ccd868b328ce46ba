package store

import "context"

// Transactional is the additional contract of a store in a database in which programs have transactions of
// their own.
type Transactional interface {
	// NoteIn writes a new note in a transaction of the program, such as a *sql.Tx: the note exists if
	// and only if that is committed.
	NoteIn(ctx context.Context, tx any, n Note) error
	// Noted receives when such a note may have been committed, in databases that notify their clients.
	Noted() <-chan struct{}
}

// Pooled is the additional contract of a store whose database may be behind a connection pooler, where
// it polls instead of being notified.
type Pooled interface{ Pooled() bool }

// IsPooled reports whether a store is behind a connection pooler.
func IsPooled(s Store) bool {
	p, ok := s.(Pooled)
	return ok && p.Pooled()
}
