package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// MendKeys finds unreadable keys, and jobs whose runs with keys of their own are not as many as the
// job counts. Any of them makes all steps fail. With fix it sets the counts of such jobs; which runs
// are missing no key says.
func (s *Store) MendKeys(ctx context.Context, fix bool) ([]engine.Damage, error) {
	return s.ControlBackend.(*Backend).mendKeys(ctx, fix)
}

// MendKeys implements [Store].
func (c *Control) MendKeys(ctx context.Context, fix bool) ([]engine.Damage, error) {
	return c.b.mendKeys(ctx, fix)
}

func (b *Backend) mendKeys(ctx context.Context, fix bool) (list []engine.Damage, err error) {
	if err := b.fresh(ctx); err == nil || ctx.Err() != nil || errors.Is(err, store.ErrAway) {
		return nil, err
	}
	now, err := b.Now(ctx)
	if err != nil {
		return nil, err
	}
	var counts []*part
	b.mu.RLock()
	for key, err := range b.state.unread {
		if !errors.Is(err, errApart) {
			list = append(list, engine.Damage{Check: engine.CheckStore, Object: fmt.Sprintf("key %q", key), Found: err.Error()})
			continue
		}
		is := &stagedCell{cell: *b.state.cells[idIn(key, cellKeys)]}
		have := b.state.apartOf(is.job.UID)
		found := fmt.Sprintf("%d of the runs that wait or run are gone: %d keys are there, of %d", is.apart-have, have, is.apart)
		mend := "keep the remaining runs; the missing ones cannot be identified, never end and have no record in history"
		if have > is.apart {
			found = fmt.Sprintf("%d keys of runs that wait or run are there, of %d", have, is.apart)
			mend = "take all that are there for runs that have not ended"
		}
		full := is.job.FullName()
		list = append(list, engine.Damage{Check: engine.CheckRuns, Object: "job " + full, Found: found, Mend: mend})
		p := newPart()
		p.Compares[key] = b.state.versions[key]
		p.audit = []store.AuditRecord{{Time: now, Actor: engine.System, Action: "job.mend", Object: full, Version: is.job.Version, Detail: reason.CheckFound.Of(reason.Words(found))}}
		if is.apart = have; have == 0 {
			is.fit = nil
		}
		p.cells = []*stagedCell{is}
		b.set(&p.Txn, signalKey, &signal{b.writer, store.HintRuns})
		counts = append(counts, p)
	}
	b.mu.RUnlock()
	for _, p := range counts {
		if !fix {
			break
		}
		if _, err := p.write(ctx, b); err != nil {
			return list, err
		}
		object := "job " + p.cells[0].job.FullName()
		i := slices.IndexFunc(list, func(d engine.Damage) bool { return d.Object == object && d.Mend != "" })
		list[i].Mended = true
	}
	slices.SortFunc(list, func(a, b engine.Damage) int { return strings.Compare(a.Object, b.Object) })
	return list, nil
}

// apartOf returns how many runs of a job have keys of their own.
func (s *state) apartOf(uid job.ID) int {
	if tree := s.apart[uid]; tree != nil {
		return tree.Len()
	}
	return 0
}
