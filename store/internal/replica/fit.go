package replica

import (
	"bytes"
	"maps"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// fitMask marks the fields of a run with a key of its own that follow from the fit in the cell of
// its job, and are not in its value. So an edit that moves a backlog to another slot, or changes
// its latest start, only writes the cell: one commit, however long the backlog is.
type fitMask int

const (
	fitsSlot fitMask = 1 << iota
	fitsLate
	fitsPrevious // it awaits the previous occurrence if the job requires that
)

// fitting returns which fields of a run follow from a fit. It is no more than what Batch.Refit
// changes.
func fitting(fit *engine.Fit, r *store.Run) (f fitMask) {
	if fit == nil || r.State == job.StateRunning || r.Kind == job.RunStep || r.Flow != nil {
		return 0
	}
	if r.State == job.StateWaiting && !r.AwaitsPrevious && !r.HoldsSlot && r.Slot == fit.Slot(r) {
		f |= fitsSlot
	}
	if r.Attempt == 1 && r.First.IsZero() && r.LateAfter.Equal(fit.LateAfter(r)) {
		f |= fitsLate
	}
	if fit.NeedsPrevious && r.State == job.StateWaiting && r.AwaitsPrevious && !r.HoldsSlot {
		f |= fitsPrevious
	}
	return f
}

// refit returns a run with the fields that follow from its cell, which may be nil.
func (c *cell) refit(r *store.Run, f fitMask) *store.Run {
	if f == 0 {
		return r
	}
	own, fit := *r, &engine.Fit{}
	if c != nil && c.fit != nil {
		fit = c.fit
	}
	if f&fitsSlot != 0 {
		own.Slot = fit.Slot(r)
	}
	if f&fitsLate != 0 {
		own.LateAfter = fit.LateAfter(r)
	}
	if is := f&fitsPrevious != 0; is && fit.NeedsPrevious {
		own.State, own.AwaitsPrevious = job.StateWaiting, true
	} else if is {
		own.State, own.AwaitsPrevious, own.Reason = job.StateReady, false, job.Reason{}
	}
	return &own
}

// refit applies the fit of a cell to the runs of its job that have keys of their own.
func (s *state) refit(was, c *cell) {
	tree := s.apart[c.job.UID]
	if tree == nil || c.fit == nil || was.fit != nil && *was.fit == *c.fit {
		return
	}
	all := make([]*store.Run, 0, tree.Len())
	tree.Ascend(func(r *store.Run) bool { all = append(all, r); return true })
	for _, r := range all {
		f := s.fitted[r.ID]
		if now := c.refit(r, f); now.Slot != r.Slot || !now.LateAfter.Equal(r.LateAfter) || now.State != r.State {
			s.putApart(now, f)
		}
	}
}

// encodeRun encodes a run with a key of its own.
func encodeRun(is *apartRun) []byte {
	w := writing(runFixed)
	w.b[0] = formatApart
	own := *is.run
	if f := int(is.fits); f > 0 {
		w.b[0] = formatFitted
		w.int(&f)
		if is.fits&fitsSlot != 0 {
			own.Slot = ""
		}
		if is.fits&fitsLate != 0 {
			own.LateAfter = own.First // zero
		}
	}
	codeRun(w, &own)
	return w.b
}

func decodeRun(value []byte) (run store.Run, f fitMask, err error) {
	r := reading(value)
	if len(value) > 0 && value[0] >= formatFitted {
		r.int((*int)(&f))
	}
	codeRun(r, &run)
	return run, f, r.err()
}

// chooseFit chooses the fit of a cell after a step: the fit of the resulting policy, if it explains
// more of the step's changes to the runs with keys of their own. Those runs need not be written
// then; others, which it would change, must be.
func (w *writer) chooseFit(c *stagedCell) {
	if c.apart == 0 {
		c.fit = nil
		return
	}
	policy := c.policy
	if doc := w.t.b.knownDocument(&c.cell); policy == nil && c.fit == nil && doc != nil {
		policy = doc.Policy
	}
	if policy == nil {
		return
	}
	next := policy.Fit()
	if c.fit == nil {
		c.fit = &next
		return
	}
	if *c.fit == next || len(c.set) <= w.t.b.opt.InCell { // the step does not edit a backlog
		return
	}
	set, with := maps.Clone(c.set), cell{fit: &next}
	w.t.b.mu.RLock()
	defer w.t.b.mu.RUnlock()
	s := w.t.b.state
	tree := s.apart[c.job.UID]
	if tree == nil {
		return
	}
	tree.Ascend(func(was *store.Run) bool {
		left, changed := c.set[was.ID]
		if f := s.fitted[was.ID]; f > 0 && !c.gone[was.ID] {
			if now := with.refit(was, f); !changed && !isSame(now, was) {
				set[was.ID] = was
			} else if changed && isSame(now, left) {
				delete(set, was.ID)
			}
		}
		return true
	})
	if len(set) < len(c.set) {
		c.fit, c.set = &next, set
	}
}

// isSame reports whether two states of a run are written alike.
func isSame(a, b *store.Run) bool {
	x, y := writing(runFixed), writing(runFixed)
	codeRun(x, a)
	codeRun(y, b)
	return bytes.Equal(x.b, y.b)
}
