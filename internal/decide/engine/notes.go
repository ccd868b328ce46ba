package engine

import (
	"fmt"

	"github.com/belfry-cron/belfry/store"
)

// PutNote writes a note with an audit record: see [store.Notes].
type PutNote struct{ store.AuditedNote }

// Need requests the version of the note.
func (o *PutNote) Need(b *Batch, n *Need) {
	if _, known := b.facts.notes[o.Name]; !known {
		n.Notes = append(n.Notes, o.Name)
	}
}

// Decide compares the version.
func (o *PutNote) Decide(b *Batch) error {
	version, known := b.facts.notes[o.Name]
	b.missing(known, "note", o.Name)
	if version != o.Version {
		return fmt.Errorf("note %s: %w", o.Name, store.ErrConflict)
	}
	b.done.Notes = append(b.done.Notes, o.Note)
	b.audit(o.Audit.Actor, o.Audit.Action, o.Audit.Object, o.Audit.Version, o.Audit.Detail, o.Audit.Changes...)
	return nil
}
