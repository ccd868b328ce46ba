package notify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// outcome is the result of a delivery.
type outcome struct {
	channel *job.Channel
	groups  []*group
	err     error
}

// send starts due deliveries, one message per channel at a time, so that a slow channel delays no
// other.
func (n *Notifier) send(ctx context.Context) error {
	byChannel := map[job.ID][]*notification.Group{}
	notes := map[*notification.Group]*group{}
	for _, g := range n.groups {
		byChannel[g.UID] = append(byChannel[g.UID], g.Group)
		notes[g.Group] = g
	}
	now := n.Now()
	for uid, groups := range byChannel {
		c := n.channels[uid]
		if n.sending[uid] {
			continue
		}
		s := n.state(c)
		if s.Version != c.Version { // the changed channel may work
			s.Version, s.Next, s.Tries = c.Version, time.Time{}, 0
			for _, g := range groups {
				g.Next, g.Refused = time.Time{}, false
			}
		}
		due := notification.Plan(c, s.ChannelState, groups, now)
		if len(due) == 0 {
			continue
		}
		o := outcome{channel: c}
		for _, g := range due {
			g.Begin()
			// If the process dies now, another sends the same again under the same id.
			if err := put(ctx, n.Store, &notes[g].ref, g); err != nil {
				return err
			}
			o.groups = append(o.groups, notes[g])
		}
		m := notification.MessageOf(c, due, now)
		n.sending[uid] = true
		n.sends.Go(func() {
			n.detail(ctx, c, &m)
			o.err = n.Send(ctx, c, &m)
			n.done <- o
			n.Wake()
		})
	}
	return nil
}

// detail adds details from history to failures. Details that cannot be read in time are omitted.
func (n *Notifier) detail(ctx context.Context, c *job.Channel, m *notification.Message) {
	ctx, cancel := context.WithTimeout(ctx, detailsWait)
	defer cancel()
	left := detailsMax
	for i := range m.Lines {
		l := &m.Lines[i]
		if failed := l.Kind == job.NoticeFailed || l.Kind == job.NoticeFailing || l.Outcome.Failed(); !failed || l.Command == "" || left == 0 {
			continue
		}
		left--
		l.Failing = n.failing(ctx, l.UID)
		if n.Output != nil && *c.OutputLines > 0 {
			var err error
			if l.Output, err = n.Output(ctx, l.Run, l.Attempt, *c.OutputLines); err != nil {
				n.Log.Debug("a notification is sent without output", "run", l.Run, "error", err)
			}
		}
	}
}

// failing returns since when a job fails: by its last ends or, if none succeeded, by as many as one
// call may examine; nil if unknown.
func (n *Notifier) failing(ctx context.Context, uid job.ID) *notification.Failing {
	if n.Behind != nil && n.Behind() {
		return nil
	}
	for _, most := range []int{rowMax, store.LookMax} {
		ended, err := n.Store.Recent(ctx, []job.ID{uid}, most)
		if err != nil {
			return nil
		}
		succeeded := func(r store.Record) bool { return r.Attempt.Outcome == job.OutcomeSucceeded }
		if len(ended[0]) < most || slices.ContainsFunc(ended[0], succeeded) {
			return notification.FailingOf(ended[0])
		}
	}
	return nil
}

// settle records the results of deliveries.
func (n *Notifier) settle(ctx context.Context) error {
	for {
		select {
		case o := <-n.done:
			delete(n.sending, o.channel.UID)
			if err := n.settleOne(ctx, &o); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (n *Notifier) settleOne(ctx context.Context, o *outcome) error {
	if n.channels[o.channel.UID] == nil {
		return nil // it was deleted
	}
	now, done := n.Now(), newChanges()
	s := n.state(o.channel)
	done.states[s] = true
	var failure *notification.Failure
	if o.err != nil && !errors.As(o.err, &failure) {
		failure = &notification.Failure{Err: o.err, Unsure: true}
	}
	if failure == nil {
		s.Delivered(o.channel, now)
		n.count(func(s *Stats) { s.Sent++ })
	} else {
		if s.Tries == 0 {
			n.Log.Warn("a notification was not delivered; it is tried again", "channel", o.channel.FullName(), "error", failure)
		}
		s.Fail(failure, now)
		n.count(func(s *Stats) { s.Failed++ })
	}
	for _, sent := range o.groups {
		g := n.groups[sent.note]
		if g == nil || g.Trying != sent.Trying {
			continue // it was deleted, or another node has sent it
		}
		done.groups[g] = true
		switch {
		case failure == nil:
			g.Delivered(now)
		case failure.Refused:
			if g.Refuse(failure, now) {
				s.GivenUp++
				n.count(func(s *Stats) { s.GivenUp++ })
				n.Log.Error("a notification was refused for a day and is given up", "channel", o.channel.FullName(), "about", g.About, "error", failure)
			}
		default:
			g.Retry(failure)
		}
	}
	return n.save(ctx, done)
}
