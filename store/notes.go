package store

import (
	"context"
	"fmt"
)

// Notes are small texts that nodes share and change by compare-and-set, such as pending
// notifications and the lease of their deliverer. They hold state of services that does not belong
// to jobs or runs.
type Notes interface {
	// Notes returns notes whose names have a prefix, in the order of names, after a name;
	// "" begins with the first.
	Notes(ctx context.Context, prefix, after string, limit int) ([]Note, error)
	// PutNote writes a note if the stored note still has its Version, 0 for none, and returns the
	// new version. An empty Text removes the note. [ErrConflict] means that the note has another
	// version.
	PutNote(ctx context.Context, n Note) (version int64, err error)
	// PutAudited is PutNote for changes by users: it writes an audit record in the same step.
	PutAudited(ctx context.Context, n AuditedNote) error
}

// AuditedNote is a note with the audit record of its change.
type AuditedNote struct {
	Note
	Audit AuditRecord // Seq and Time are unset
}

const (
	// NoteMax is the most bytes of a note: each is one row or key, read as a whole.
	NoteMax = 256 << 10
	// noteNameMax is the longest name of a note: keys of indexes are bounded.
	noteNameMax = 200
)

// Note is a small text with a name. Its versions are positive and grow, not always by one;
// they may begin anew after the note was removed.
type Note struct {
	Name    string
	Version int64
	Text    []byte
}

// Check returns the mistakes in a note.
func (n *Note) Check() error {
	if n.Name == "" || len(n.Name) > noteNameMax {
		return fmt.Errorf("note %q: a name has 1 to %d bytes", n.Name, noteNameMax)
	}
	for _, b := range []byte(n.Name) {
		if b <= ' ' || b >= 0x7f {
			return fmt.Errorf("note %q: a name has printable ASCII without spaces", n.Name)
		}
	}
	if len(n.Text) > NoteMax {
		return fmt.Errorf("note %s: it has %d bytes, at most %d are allowed: %w", n.Name, len(n.Text), NoteMax, ErrTooMany)
	}
	return nil
}
