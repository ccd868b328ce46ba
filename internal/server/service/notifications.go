package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// noticeStore is the part of a store that notifications use.
type noticeStore interface {
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutNote(ctx context.Context, n store.Note) (int64, error)
}

const (
	// noticesMax is the most notifications in a list: people do not read more.
	noticesMax = 1000
	// ackTries is how often an acknowledgement is repeated when the node that delivers writes
	// at the same time.
	ackTries = 5
)

// Notifications shows the notifications and deliveries of channels.
type Notifications struct {
	*base
	store noticeStore
	send  func(ctx context.Context, c *job.Channel, m *notification.Message) error
}

// channels returns the channels that a caller sees in a namespace, or in all.
func (s *Notifications) channels(ctx context.Context, who Caller, namespace string) (map[job.ID]*job.Channel, error) {
	of, err := who.reads(namespace)
	if err != nil {
		return nil, err
	}
	list, err := store.Channels(ctx, s.store)
	if err != nil {
		return nil, err
	}
	seen := map[job.ID]*job.Channel{}
	for _, c := range list {
		if of.hasObject(c.FullName()) {
			seen[c.UID] = c
		}
	}
	return seen, nil
}

// eachNote calls f with all notes whose names have a prefix.
func (s *Notifications) eachNote(ctx context.Context, prefix string, f func(store.Note) error) error {
	for after := ""; ; {
		page, err := s.store.Notes(ctx, prefix, after, store.MaxBatch)
		if err != nil {
			return err
		}
		for _, n := range page {
			if err := f(n); err != nil {
				return err
			}
			after = n.Name
		}
		if len(page) < store.MaxBatch {
			return nil
		}
	}
}

func decodeNote(n store.Note, into any) error {
	if err := json.Unmarshal(n.Text, into); err != nil {
		return fmt.Errorf("note %s: %w: %w", n.Name, store.ErrDamaged, err)
	}
	return nil
}

// List returns the notifications of the channels of a namespace, or of all, by channel.
func (s *Notifications) List(ctx context.Context, who Caller, namespace string) ([]client.Notification, error) {
	channels, err := s.channels(ctx, who, namespace)
	if err != nil {
		return nil, err
	}
	list := []client.Notification{}
	err = s.eachNote(ctx, notification.GroupNotes, func(n store.Note) error {
		var g notification.Group
		if err := decodeNote(n, &g); err != nil {
			return err
		}
		if channels[g.UID] != nil && len(list) < noticesMax && (g.Pending() || len(g.Open()) > 0) {
			list = append(list, notificationOf(&g))
		}
		return nil
	})
	slices.SortStableFunc(list, func(x, y client.Notification) int { return strings.Compare(x.Channel, y.Channel) })
	return list, err
}

func notificationOf(g *notification.Group) client.Notification {
	n := client.Notification{
		ID: g.UID.String() + "-" + g.ID, Channel: g.Channel, About: g.About, State: client.NotificationSent, Open: len(g.Open()) > 0,
		Events: []client.NotifiedEvent{}, More: g.Left, Messages: g.Messages, SentAt: g.SaidAt, Tries: g.Tries, Error: g.Error.String(),
		AckedBy: g.AckedBy, AckedAt: g.Acked,
	}
	n.ErrorCode, n.ErrorArgs = g.Error.For()
	switch {
	case g.Refused:
		n.State = client.NotificationRefused
	case g.Tries > 0:
		n.State = client.NotificationRetrying
	case g.Pending():
		n.State = client.NotificationWaiting
	}
	for _, is := range g.Items {
		p := client.NotifiedEvent{Event: is.Kind, Node: is.Node, Owner: is.Owner, Run: is.Run, Count: is.Count, First: is.First, Last: is.Time, Over: is.Over, Text: is.Text.String(), Cause: is.Cause}
		p.TextCode, p.TextArgs = is.Text.For()
		if is.Job != "" {
			p.Job = is.Namespace + "/" + is.Job
		}
		n.Events = append(n.Events, p)
	}
	return n
}

// Deliveries returns the deliveries of the channels of a namespace, or of all, by name.
func (s *Notifications) Deliveries(ctx context.Context, who Caller, namespace string) ([]client.Delivery, error) {
	channels, err := s.channels(ctx, who, namespace)
	if err != nil {
		return nil, err
	}
	list := []client.Delivery{}
	at := map[job.ID]*client.Delivery{}
	for uid, c := range channels {
		at[uid] = &client.Delivery{Channel: c.FullName(), Service: c.To.Kind(), Paused: c.Paused}
	}
	err = s.eachNote(ctx, notification.ChannelNotes, func(n store.Note) error {
		var is notification.ChannelState
		if err := decodeNote(n, &is); err != nil {
			return err
		}
		if d := at[is.UID]; d != nil {
			d.Sent, d.Failed, d.GivenUp, d.Dropped, d.SentAt = is.Sent, is.Failed, is.GivenUp, is.Dropped, is.SentAt
			d.Error, d.FailedAt, d.Next = is.Error.String(), is.FailedAt, is.Next
			d.ErrorCode, d.ErrorArgs = is.Error.For()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = s.eachNote(ctx, notification.GroupNotes, func(n store.Note) error {
		var g notification.Group
		if err := decodeNote(n, &g); err != nil {
			return err
		}
		if d := at[g.UID]; d != nil {
			if g.Pending() {
				d.Waiting++
			}
			if len(g.Open()) > 0 {
				d.Open++
			}
		}
		return nil
	})
	for _, d := range at {
		list = append(list, *d)
	}
	slices.SortFunc(list, func(x, y client.Delivery) int { return strings.Compare(x.Channel, y.Channel) })
	return list, err
}

// Missing reports whether no channel exists, to a caller who would see it.
func (s *Notifications) Missing(ctx context.Context, who Caller) (bool, error) {
	list, err := s.channels(ctx, who, "")
	return err == nil && len(list) == 0 && who.May(Observe) == nil, err
}

// Hints say that no channel exists, and which ones do not deliver, to a caller who sees all of them.
func (s *Notifications) Hints(ctx context.Context, who Caller) (list []client.Hint, err error) {
	channels, err := s.channels(ctx, who, "")
	if err != nil || who.May(Observe) != nil {
		return nil, err
	}
	if len(channels) == 0 {
		return []client.Hint{HintOf("note", phrase.OfChannels, phrase.NoChannels, phrase.DefineChannel)}, nil
	}
	err = s.eachNote(ctx, notification.ChannelNotes, func(n store.Note) error {
		var is notification.ChannelState
		if err := decodeNote(n, &is); err != nil {
			return err
		}
		if c := channels[is.UID]; c != nil && !c.Paused && !is.Error.IsZero() {
			list = append(list, HintOf("wrong", phrase.OfChannel.Of(c.FullName()), phrase.DeliveryFailed.Of(phrase.MomentOf(is.FailedAt), is.Error.Text()),
				phrase.TestChannel.Of(strings.TrimPrefix(c.FullName(), job.DefaultNamespace+"/"))))
		}
		return nil
	})
	slices.SortFunc(list, func(x, y client.Hint) int { return strings.Compare(x.Check, y.Check) })
	return list, err
}

// Ack acknowledges a notification: it is not repeated until it has news.
func (s *Notifications) Ack(ctx context.Context, who Caller, id string) (client.Notification, error) {
	if err := who.May(Operate); err != nil {
		return client.Notification{}, err
	}
	absent := Refuse(client.TypeNotFound, phrase.NoSuchNotification.Of(id))
	uid, group, found := strings.Cut(id, "-")
	if _, err := job.ParseID(uid); err != nil || !found || strings.ContainsAny(group, "/ ") {
		return client.Notification{}, absent
	}
	name := notification.GroupNotes + uid + "/" + group
	for try := 1; ; try++ {
		notes, err := s.store.Notes(ctx, name, "", 1)
		if err != nil {
			return client.Notification{}, err
		}
		if len(notes) == 0 || notes[0].Name != name {
			return client.Notification{}, absent
		}
		var g notification.Group
		if err := decodeNote(notes[0], &g); err != nil {
			return client.Notification{}, err
		}
		if !who.sees(g.Channel) {
			return client.Notification{}, absent
		}
		if !who.has(Operate, g.Channel) {
			namespace, _, _ := strings.Cut(g.Channel, "/")
			return client.Notification{}, who.MayIn(Operate, namespace)
		}
		g.Ack(who.Name, s.now().UTC())
		text, err := json.Marshal(&g)
		if err != nil {
			return client.Notification{}, err
		}
		_, err = s.store.PutNote(ctx, store.Note{Name: name, Version: notes[0].Version, Text: text})
		if err == nil {
			return notificationOf(&g), nil
		}
		if !errors.Is(err, store.ErrConflict) || try == ackTries {
			return client.Notification{}, err
		}
	}
}

// Test sends a message to a channel now, and returns the answer of its service.
func (s *Notifications) Test(ctx context.Context, who Caller, name Name) (client.ChannelTest, error) {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return client.ChannelTest{}, err
	}
	channels, err := s.channels(ctx, who, name.Namespace)
	if err != nil {
		return client.ChannelTest{}, err
	}
	for _, c := range channels {
		if c.FullName() == name.String() {
			return s.test(ctx, who, c)
		}
	}
	return client.ChannelTest{}, Refuse(client.TypeNotFound, phrase.NoSuchChannel.Of(name.String()))
}

func (s *Notifications) test(ctx context.Context, who Caller, c *job.Channel) (client.ChannelTest, error) {
	if s.send == nil {
		return client.ChannelTest{}, Refuse(client.TypeConflict, phrase.SendsNothing)
	}
	id, err := s.newID()
	if err != nil {
		return client.ChannelTest{}, err
	}
	began := s.now()
	m := notification.Test(c, id.String(), who.Name, began)
	out := client.ChannelTest{Delivered: true}
	if err := s.send(ctx, c, &m); err != nil {
		why := reason.Say(phrase.OfError(err))
		out.Delivered, out.Error = false, why.String()
		out.ErrorCode, out.ErrorArgs = why.For()
	}
	out.Seconds = s.now().Sub(began).Round(time.Millisecond).Seconds()
	return out, nil
}
