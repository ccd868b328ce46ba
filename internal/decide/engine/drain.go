package engine

import (
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Drain returns the stored drain for a request to drain a node, or nil to end the drain. It
// is called only for requests that change something.
func (b *Batch) Drain(d *store.DrainNode) *store.Drain {
	b.done.Hints |= store.HintNodes | store.HintRuns
	if d.Undo {
		b.audit(d.Actor, "node.undrain", d.Node, 0, job.Reason{})
		return nil
	}
	b.audit(d.Actor, "node.drain", d.Node, 0, job.Text(d.Reason))
	return &store.Drain{Since: b.now, By: d.Actor, Reason: d.Reason}
}
