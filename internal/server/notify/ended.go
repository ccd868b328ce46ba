package notify

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// drain takes ends from the feed. It takes an entry after storing its event.
func (n *Notifier) drain(ctx context.Context) error {
	if n.wanted.Name == "" {
		return nil
	}
	for {
		entries, err := n.Store.Ended(ctx, consumer, "", batch)
		if errors.Is(err, store.ErrNotFound) {
			n.wanted = store.Consumer{} // it was removed in the meantime
			return nil
		}
		if err != nil || len(entries) == 0 {
			return err
		}
		done, now := newChanges(), n.Now()
		events, err := n.events(ctx, entries)
		if err != nil {
			return err
		}
		for _, e := range events {
			n.note(e, now, done)
		}
		if err := n.save(ctx, done); err != nil {
			return err
		}
		refs := make([]store.FeedRef, len(entries))
		for i := range entries {
			refs[i] = entries[i].Ref
		}
		if err := n.Store.Taken(ctx, consumer, refs); err != nil || len(entries) < batch {
			return err
		}
	}
}

// KeepEnds stores the events of all ends in the feed, like the delivering node: for a store whose
// servers have stopped before that.
func KeepEnds(ctx context.Context, s Store, now func() time.Time) error {
	list, err := store.Channels(ctx, s)
	if err != nil || len(list) == 0 {
		return err
	}
	n := New(Config{Store: s, Now: now, Log: slog.New(slog.DiscardHandler)})
	runs, err := n.awaits(ctx)
	if err == nil {
		err = n.take(ctx, list, runs)
	}
	if err != nil {
		return err
	}
	return n.drain(ctx)
}

// events returns the events of feed entries.
func (n *Notifier) events(ctx context.Context, entries []store.FeedEntry) (list []notification.Event, err error) {
	uids := map[job.ID]bool{}
	for i := range entries {
		uids[entries[i].Record.Run.JobUID] = true
	}
	jobs, err := n.jobs(ctx, slices.SortedFunc(maps.Keys(uids), compareIDs))
	if err != nil {
		return nil, err
	}
	ends := map[job.ID][]store.Record{}
	recent := func(uid job.ID) []store.Record {
		if _, known := ends[uid]; !known {
			ends[uid], _ = n.ends(ctx, uid) // history may be away or late, which must not delay failures
		}
		return ends[uid]
	}
	for i := range entries {
		r := &entries[i].Record
		e := notification.Event{
			Kind: job.NoticeFailed, Namespace: r.Run.Namespace, Job: r.Run.Name, UID: r.Run.JobUID, Node: r.Attempt.Node, Run: r.Run.ID,
			Attempt: r.Attempt.Number, Time: r.Attempt.Ended, Text: r.Attempt.Reason, Cause: r.Attempt.Cause, Began: cmp.Or(r.Begun, r.Attempt.Started), Count: r.Count, Lasting: true,
		}
		if j := jobs[r.Run.JobUID]; j != nil {
			e.Labels = j.Definition.Labels
		}
		if late := notification.LateStart(e, r.Run.Due, e.Began); r.Attempt.Number == 1 && late != nil {
			list = append(list, *late)
		}
		if r.Unmet.Has(reason.UsedMemory.Name) || r.Unmet.Has(reason.UsedCPU.Name) { // others were seen before the end
			unmet := e
			unmet.Kind, unmet.Text, unmet.Cause, unmet.Began, unmet.Lasting = job.NoticeUnmet, r.Unmet, "", time.Time{}, false
			list = append(list, unmet)
		}
		switch {
		case r.Attempt.Outcome == job.OutcomeMissed:
			e.Kind, e.Lasting = job.NoticeMissed, false
			list = append(list, e)
		case reason.InWindow.Explains(r.Attempt.Reason): // the people who opened the window know
		case r.Attempt.Outcome == job.OutcomeSkipped:
			e.Kind, e.InARow, e.Attempt = job.NoticeSkipped, skippedInARow(recent(e.UID)), 0
			list = append(list, e)
		case r.Attempt.Outcome.Failed():
			list = append(list, e)
			if notification.Names(slices.Collect(maps.Values(n.channels)), job.NoticeFailing) {
				if e.Kind, e.InARow = job.NoticeFailing, failedInARow(recent(e.UID)); e.InARow == 0 {
					e.InARow = n.counted(e.UID) + 1
				}
				list = append(list, e)
			}
		}
	}
	return list, nil
}

func (n *Notifier) jobs(ctx context.Context, uids []job.ID) (map[job.ID]*store.Job, error) {
	jobs := map[job.ID]*store.Job{}
	for some := range slices.Chunk(uids, store.MaxBatch) {
		list, err := n.Store.JobsByUID(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, j := range list {
			if j != nil && !j.Deleted {
				jobs[j.Definition.UID] = j
			}
		}
	}
	return jobs, nil
}

// rowMax is the number of ends of a job that are examined: the maximum of a rule, and some
// more for ends that neither fail nor succeed.
const rowMax = 30

// errBehind is why the latest ends of a job are unknown.
var errBehind = errors.New("history is behind")

// failedInARow returns how many of the last ends have failed since the latest success.
func failedInARow(ended []store.Record) (failures int) {
	for i := range ended {
		switch outcome := ended[i].Attempt.Outcome; {
		case outcome == job.OutcomeSucceeded:
			return failures
		case outcome.Failed():
			failures++
		}
	}
	return failures
}

// skippedInARow returns how many of the last ends were skipped since a run has ended.
func skippedInARow(ended []store.Record) (skipped int) {
	for i := range ended {
		if ended[i].Attempt.Outcome != job.OutcomeSkipped {
			break
		}
		skipped++
	}
	return skipped
}

// ends returns the last ends of a job, the latest first.
func (n *Notifier) ends(ctx context.Context, uid job.ID) (list []store.Record, err error) {
	if n.Behind != nil && n.Behind() {
		return nil, errBehind
	}
	list, _, err = n.Store.Attempts(ctx, store.HistoryQuery{Job: uid, FinalOnly: true, Limit: rowMax})
	return list, err
}

// counted returns how many failures of a job were counted in a group.
func (n *Notifier) counted(uid job.ID) (count int) {
	for _, g := range n.groups {
		for _, item := range g.Open() {
			if item.UID == uid && item.Kind == job.NoticeFailed {
				count = max(count, item.Count)
			}
		}
	}
	return count
}

func compareIDs(a, b job.ID) int { return bytes.Compare(a[:], b[:]) }
