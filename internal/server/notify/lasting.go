package notify

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// look updates lasting problems, and closes ended ones.
func (n *Notifier) look(ctx context.Context) error {
	done, now := newChanges(), n.Now()
	if n.Look != nil {
		lasting, err := n.Look(ctx)
		if err != nil {
			return err
		}
		if err := n.lasting(ctx, &lasting, now, done); err != nil {
			return err
		}
	}
	unmet, err := n.overtime(ctx, now, done)
	if err != nil {
		return err
	}
	if err := n.recovered(ctx, now, done); err != nil {
		return err
	}
	if err := n.save(ctx, done); err != nil {
		return err
	}
	for _, note := range unmet {
		note.Text = nil
		if _, err := n.Store.PutNote(ctx, note); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.groups)) {
		if g := n.groups[name]; !n.sending[g.UID] && g.Idle(n.channels[g.UID], now) {
			if err := n.remove(ctx, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// lasting adds lasting problems, and closes ended ones.
func (n *Notifier) lasting(ctx context.Context, l *notification.Lasting, now time.Time, done *changes) error {
	uids := map[job.ID]bool{}
	is := map[string]bool{}
	for i := range l.Events {
		is[l.Events[i].Key()] = true
		if !l.Events[i].UID.IsZero() {
			uids[l.Events[i].UID] = true
		}
	}
	jobs, err := n.jobs(ctx, slices.SortedFunc(maps.Keys(uids), compareIDs))
	if err != nil {
		return err
	}
	for _, e := range l.Events {
		if j := jobs[e.UID]; j != nil {
			e.Labels = j.Definition.Labels
		}
		e.Lasting = true
		n.note(e, now, done)
	}
	for _, g := range n.groups {
		for _, item := range g.Open() {
			if !is[item.Key()] && l.Over(&item.Event, !g.Acked.IsZero()) && g.End(item.Key(), now) {
				done.groups[g] = true
			}
		}
	}
	return nil
}

// stillSo counts, by kind, how many of a job's last ends show that its problem lasts.
var stillSo = map[job.Notice]func(ended []store.Record) int{
	job.NoticeFailed: failedInARow, job.NoticeFailing: failedInARow, job.NoticeSkipped: skippedInARow,
}

// recovered ends the failures of jobs that have since succeeded, were deleted, are inactive, or run
// again.
func (n *Notifier) recovered(ctx context.Context, now time.Time, done *changes) error {
	failing := map[job.ID][]*group{}
	for _, g := range n.groups {
		for _, item := range g.Open() {
			if stillSo[item.Kind] != nil {
				failing[item.UID] = append(failing[item.UID], g)
			}
		}
	}
	// Map order is random, so that all get their turn if there are too many.
	uids := slices.Collect(maps.Keys(failing))
	uids = uids[:min(len(uids), checkMax)]
	jobs, err := n.jobs(ctx, uids)
	if err != nil {
		return err
	}
	for _, uid := range uids {
		var ended []store.Record
		if jobs[uid] != nil {
			if ended, err = n.ends(ctx, uid); err != nil {
				continue // history is away or late: wait for the next check
			}
		}
		for _, g := range failing[uid] {
			for _, item := range g.Open() {
				if count := stillSo[item.Kind]; item.UID == uid && count != nil && count(ended) == 0 && g.End(item.Key(), now) {
					done.groups[g] = true
				}
			}
		}
	}
	return nil
}
