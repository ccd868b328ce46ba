package notify

import (
	"context"
	"errors"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// unseenMax is how long the end of a run may be missing in history before its webhook is given up.
const unseenMax = time.Hour

// awaited is a run with a webhook of its own, with its note.
type awaited struct {
	*notification.Awaited
	ref
}

// awaits returns the runs with webhooks of their own.
func (n *Notifier) awaits(ctx context.Context) (list []*awaited, err error) {
	err = eachNote(ctx, n.Store, notification.RunNotes, func(note store.Note) error {
		a := &awaited{&notification.Awaited{}, ref{note.Name, note.Version}}
		list = append(list, a)
		return decode(note, a.Awaited)
	})
	return list, err
}

// report adds messages about runs that have ended, and forgets those that are delivered or given up.
func (n *Notifier) report(ctx context.Context, list []*awaited) error {
	for _, a := range list {
		if err := n.reportOne(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (n *Notifier) reportOne(ctx context.Context, a *awaited) error {
	c := n.channels[a.Run]
	e := notification.Event{Kind: job.NoticeEnded, Namespace: a.Namespace, Run: a.Run}
	name := notification.GroupNotes + a.Run.String() + "/" + notification.GroupID(c, &e)
	g := n.groups[name]
	switch {
	case g == nil && a.Ended, g != nil && !g.Pending():
		return put(ctx, n.Store, &a.ref, nil)
	case g != nil && a.Ended:
		return nil
	case g != nil:
		a.Ended = true
		return put(ctx, n.Store, &a.ref, a.Awaited)
	}
	switch _, err := store.ActiveRun(ctx, n.Store, a.Run); {
	case err == nil:
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	records, err := n.Store.AttemptsOf(ctx, a.Run)
	if err != nil && !errors.Is(err, store.ErrHistoryAway) {
		return err
	}
	for i := range records {
		if r := &records[i]; r.Final {
			e.Job, e.UID, e.Node, e.Attempt, e.Time = r.Run.Name, r.Run.JobUID, r.Attempt.Node, r.Attempt.Number, r.Attempt.Ended
			e.Outcome, e.Text, e.Cause, e.Began = r.Attempt.Outcome, r.Attempt.Reason, r.Attempt.Cause, r.Attempt.Started
			g := &group{notification.NewGroup(c, &e), ref{note: name}}
			g.Add(c, e, n.Now())
			if err := put(ctx, n.Store, &g.ref, g.Group); err != nil {
				return err
			}
			n.groups[name], a.Ended = g, true
			return put(ctx, n.Store, &a.ref, a.Awaited)
		}
	}
	switch now := n.Now(); {
	case a.Unseen.IsZero():
		a.Unseen = now
		return put(ctx, n.Store, &a.ref, a.Awaited)
	case now.Sub(a.Unseen) < unseenMax:
		return nil
	}
	n.Log.Error("the end of a run is not in history, and its webhook is given up", "run", a.Run)
	n.count(func(s *Stats) { s.Dropped++ })
	return put(ctx, n.Store, &a.ref, nil)
}
