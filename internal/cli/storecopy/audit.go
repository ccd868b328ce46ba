package storecopy

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/store"
)

// The first record in a target's audit names the source. Its Version is the number of the first
// copied record, and the numbers continue from there: so the audit shows the progress of the copy.
const (
	markAction = "store.copy"
	markObject = "store-"
)

// auditPlace is where the audit of the target has got to.
type auditPlace struct{ next int64 } // the next number in the source

// mark checks that the target is empty or a copy of the same source, and records that in it.
func (c *copying) mark(ctx context.Context) error {
	id, err := c.from.HistoryID(ctx)
	if err != nil {
		return err
	}
	if own, err := c.to.HistoryID(ctx); err != nil || own == id {
		if err == nil {
			err = fmt.Errorf("%w: it is the source", ErrOther)
		}
		return err
	}
	now, err := c.to.Now(ctx)
	if err != nil {
		return err
	}
	survey := engine.Survey{All: true}
	if err := c.to.Operate(ctx, &survey); err != nil {
		return err
	}
	if n := liveNodes(survey.Kept, now, c.others.Sessions); n > 0 {
		return fmt.Errorf("%w: %s in the target", ErrActive, plural(n, "live node"))
	}
	first, last, err := auditSpan(ctx, c.from)
	if err != nil {
		return err
	}
	object := fmt.Sprintf("%s%016x", markObject, uint64(id))
	toFirst, toLast, err := auditSpan(ctx, c.to)
	if err != nil {
		return err
	}
	if toLast > 0 {
		mark, err := auditAt(ctx, c.to, toFirst)
		if err != nil {
			return err
		}
		if mark.Action == markAction && mark.Object == object {
			c.audit.next = mark.Version + toLast - toFirst
			return c.sameAudit(ctx, toLast, last, toLast > toFirst)
		}
		if mark.Action == markAction && strings.HasPrefix(mark.Object, markObject) {
			return fmt.Errorf("%w: it was copied %s", ErrOther, mark.Detail)
		}
	}
	if err := isEmpty(ctx, c.to, &survey.Kept); err != nil {
		return err
	}
	if last == 0 {
		first = 1
	}
	c.audit.next = first
	return c.to.Operate(ctx, &engine.Adopt{Audit: []store.AuditRecord{{
		Time: now, Actor: engine.System, Action: markAction, Object: object, Version: first, Detail: reason.CopiedFrom.Of(c.o.From),
	}}})
}

// sameAudit ensures that the latest record of the target equals the source's: a used target has
// other records.
func (c *copying) sameAudit(ctx context.Context, toLast, last int64, any bool) error {
	if !any {
		return nil
	}
	used := fmt.Errorf("%w: something was changed in it since it was copied to", ErrOther)
	if c.audit.next-1 > last {
		return used
	}
	own, err := auditAt(ctx, c.to, toLast)
	if err != nil {
		return err
	}
	its, err := auditAt(ctx, c.from, c.audit.next-1)
	if err != nil {
		return err
	}
	if its.Seq == c.audit.next-1 && (!its.Time.Equal(own.Time) || its.Action != own.Action || its.Object != own.Object) {
		return used
	}
	return nil
}

// auditSpan returns the numbers of the first and latest record, 0 if there is none.
func auditSpan(ctx context.Context, s Store) (first, last int64, err error) {
	list, _, err := s.Audit(ctx, store.AuditQuery{Limit: 1})
	if err != nil || len(list) == 0 {
		return 0, 0, err
	}
	last = list[0].Seq
	// Numbers have no gaps, and the oldest records go first.
	n := sort.Search(int(last), func(i int) bool {
		var found []store.AuditRecord
		if err == nil {
			found, _, err = s.Audit(ctx, store.AuditQuery{Before: int64(i) + 2, Limit: 1})
		}
		return len(found) > 0
	})
	return int64(n) + 1, last, err
}

// auditAt returns the record with a number, or its predecessor.
func auditAt(ctx context.Context, s Store, seq int64) (store.AuditRecord, error) {
	list, _, err := s.Audit(ctx, store.AuditQuery{Before: seq + 1, Limit: 1})
	if err != nil || len(list) == 0 {
		return store.AuditRecord{}, err
	}
	return list[0], nil
}

// eachAudit calls f with pages of the records from a number on, the oldest first.
func eachAudit(ctx context.Context, s Store, from int64, f func([]store.AuditRecord) error) error {
	first, last, err := auditSpan(ctx, s)
	if err != nil {
		return err
	}
	for from = max(from, first); last > 0 && from <= last; from += auditPage {
		list, _, err := s.Audit(ctx, store.AuditQuery{Before: from + auditPage, Limit: auditPage})
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(r store.AuditRecord) bool { return r.Seq < from })
		slices.Reverse(list)
		if err := f(list); err != nil {
			return err
		}
	}
	return nil
}

func (c *copying) copyAudit(ctx context.Context) error {
	done := 0
	return eachAudit(ctx, c.from, c.audit.next, func(list []store.AuditRecord) error {
		if err := c.to.Operate(ctx, &engine.Adopt{Audit: list}); err != nil {
			return err
		}
		done += len(list)
		c.result.Written += len(list)
		c.o.Progress("audit", done)
		return nil
	})
}
