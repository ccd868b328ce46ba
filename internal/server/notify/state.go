package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ref is a note of the store with the version that was read.
type ref struct {
	note    string
	version int64
}

// group is a group with its note.
type group struct {
	*notification.Group
	ref
}

// state is the state of a channel with its note.
type state struct {
	*notification.ChannelState
	ref
}

// errStale means that another process has changed the state cached here.
var errStale = errors.New("another node has changed the notifications")

// read reads the state from the store.
func (n *Notifier) read(ctx context.Context) error {
	groups, states := map[string]*group{}, map[job.ID]*state{}
	err := eachNote(ctx, n.Store, notification.GroupNotes, func(note store.Note) error {
		g := &group{&notification.Group{}, ref{note.Name, note.Version}}
		groups[note.Name] = g
		return decode(note, g.Group)
	})
	if err == nil {
		err = eachNote(ctx, n.Store, notification.ChannelNotes, func(note store.Note) error {
			s := &state{&notification.ChannelState{}, ref{note.Name, note.Version}}
			if err := decode(note, s.ChannelState); err != nil {
				return err
			}
			states[s.UID] = s
			return nil
		})
	}
	if err == nil {
		n.groups, n.states = groups, states
	}
	return err
}

// eachNote calls f for each note whose name has a prefix.
func eachNote(ctx context.Context, s store.Notes, prefix string, f func(store.Note) error) error {
	for after := ""; ; {
		page, err := s.Notes(ctx, prefix, after, notesPage)
		if err != nil {
			return err
		}
		for _, note := range page {
			if err := f(note); err != nil {
				return err
			}
			after = note.Name
		}
		if len(page) < notesPage {
			return nil
		}
	}
}

func decode(note store.Note, into any) error {
	if err := json.Unmarshal(note.Text, into); err != nil {
		return fmt.Errorf("note %s: %w: %w", note.Name, store.ErrDamaged, err)
	}
	return nil
}

// put writes a value to its note; nil removes the note.
func put(ctx context.Context, s store.Notes, r *ref, what any) error {
	note := store.Note{Name: r.note, Version: r.version}
	switch {
	case what != nil:
		var err error
		if note.Text, err = json.Marshal(what); err != nil {
			return err
		}
	case r.version == 0:
		return nil // it was never written
	}
	version, err := s.PutNote(ctx, note)
	if errors.Is(err, store.ErrConflict) {
		return errStale
	}
	if err == nil {
		r.version = version
	}
	return err
}

func (n *Notifier) remove(ctx context.Context, g *group) error {
	if err := put(ctx, n.Store, &g.ref, nil); err != nil {
		return err
	}
	delete(n.groups, g.note)
	return nil
}

// state returns the state of a channel's deliveries.
func (n *Notifier) state(c *job.Channel) *state {
	s := n.states[c.UID]
	if s == nil {
		s = &state{&notification.ChannelState{UID: c.UID}, ref{note: notification.ChannelNotes + c.UID.String()}}
		n.states[c.UID] = s
	}
	s.Channel = c.FullName()
	return s
}

// changes are the changes of an event or an end, to be written.
type changes struct {
	groups map[*group]bool
	states map[*state]bool
}

func newChanges() *changes {
	return &changes{map[*group]bool{}, map[*state]bool{}}
}

// save writes the changes.
func (n *Notifier) save(ctx context.Context, c *changes) error {
	for g := range c.groups {
		if err := put(ctx, n.Store, &g.ref, g.Group); err != nil {
			return err
		}
	}
	for s := range c.states {
		if err := put(ctx, n.Store, &s.ref, s.ChannelState); err != nil {
			return err
		}
	}
	return nil
}

// note adds an event to the groups of the channels that want it.
func (n *Notifier) note(e notification.Event, now time.Time, done *changes) {
	for _, c := range n.channels {
		if !notification.Wants(c, &e, now) {
			continue
		}
		name := notification.GroupNotes + c.UID.String() + "/" + notification.GroupID(c, &e)
		g := n.groups[name]
		if g == nil {
			if !n.room(c) {
				s := n.state(c)
				s.Dropped += int64(max(e.Count, 1))
				done.states[s] = true
				n.count(func(s *Stats) { s.Dropped += int64(max(e.Count, 1)) })
				continue
			}
			g = &group{notification.NewGroup(c, &e), ref{note: name}}
			n.groups[name] = g
		}
		if g.Add(c, e, now) {
			done.groups[g] = true
		}
	}
}

// room reports whether a channel may have one more group.
func (n *Notifier) room(c *job.Channel) bool {
	if len(n.groups) >= allGroupsMax {
		return false
	}
	own := 0
	for _, g := range n.groups {
		if g.UID == c.UID {
			own++
		}
	}
	return own < groupsMax
}
