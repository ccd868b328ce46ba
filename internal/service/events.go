package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/events"
)

// Events streams events.
type Events struct {
	hub   *events.Hub // nil: no events
	store interface {
		Now(ctx context.Context) (time.Time, error)
	}
	places *places
}

// stopRetry is when a client of a stopping server should reconnect: another server takes
// over.
const stopRetry = time.Second

// Follow begins to follow events: from now on, or behind the place q.After. ctx bounds the
// beginning alone. The caller closes the stream.
func (s *Events) Follow(ctx context.Context, who Caller, q client.EventQuery) (*EventStream, error) {
	of, err := who.reads(q.Namespace)
	if err != nil {
		return nil, err
	}
	if s.hub == nil {
		return nil, refuse(client.TypeUnavailable, "this server has no events")
	}
	if q.Job != "" && !strings.Contains(q.Job, "/") {
		return nil, WrongParameter("job", "is not the full name of a job", "write namespace/name")
	}
	if q.Job != "" && !who.sees(q.Job) {
		return nil, who.outside()
	}
	for _, kind := range q.Kinds {
		if !validKind(kind) {
			return nil, WrongParameter("kind", fmt.Sprintf("%q is no kind of events", kind), "such as run.done, or run for all of runs")
		}
	}
	place, err := s.places.take(who) //nolint:contextcheck // the watch of a token outlives a request
	if err != nil {
		return nil, err
	}
	listener, err := s.hub.Listen(ctx, q.After)
	if err != nil {
		place.leave()
		return nil, overOr(err)
	}
	return &EventStream{topic: s, of: of, query: q, listener: listener, place: place}, nil
}

// overOr makes an Error of the end of the hub.
func overOr(err error) error {
	if errors.Is(err, events.ErrOver) {
		stops := refuse(client.TypeUnavailable, "the server stops")
		stops.RetryAfter = stopRetry
		return stops
	}
	return err
}

// validKind reports whether a text may be a kind of events. An unknown kind may be known to a
// later version.
func validKind(kind string) bool {
	const longest = 64
	return kind != "" && len(kind) <= longest && strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz_.") == ""
}

// EventStream has the events selected by one client. It is used by one goroutine.
type EventStream struct {
	topic    *Events
	of       scope
	query    client.EventQuery
	listener *events.Listener
	place    *place
}

// Close ends the stream.
func (e *EventStream) Close() {
	e.listener.Close()
	e.place.leave()
}

// Place is what continues behind the events that were taken, as EventQuery.After.
func (e *EventStream) Place() string { return e.listener.Place() }

// Within returns a context that ends with ctx or when the caller may no longer follow: then
// its cause is an Error.
func (e *EventStream) Within(ctx context.Context) (context.Context, func()) {
	return e.place.within(ctx)
}

// Wait returns when there may be more events.
func (e *EventStream) Wait(ctx context.Context) error { return overOr(e.listener.Wait(ctx)) }

// Take returns the next selected events, and whether more may be available at once. A gap
// comes before them: events in it are lost.
func (e *EventStream) Take(ctx context.Context) (list []*events.Event, gap *client.Event, more bool, err error) {
	taken, lost := e.listener.Take()
	more = len(taken) == events.PartMax
	if lost {
		now, err := e.topic.store.Now(ctx)
		if err != nil {
			return nil, nil, more, err
		}
		gap = &client.Event{
			Kind: client.EventGap, Time: now.UTC(), Detail: "what happened before is no longer known: read again what is shown",
		}
	}
	for _, event := range taken {
		if e.wants(event) {
			list = append(list, event)
		}
	}
	return list, gap, more, nil
}

// wants reports whether the client has selected an event.
func (e *EventStream) wants(event *events.Event) bool {
	object := objectOf(event)
	if e.query.Job != "" {
		if object != e.query.Job || event.Session != nil {
			return false
		}
	} else if event.Session == nil && !e.of.hasObject(object) {
		return false
	}
	return len(e.query.Kinds) == 0 || slices.ContainsFunc(e.query.Kinds, func(kind string) bool {
		return event.Kind == kind || strings.HasPrefix(event.Kind, kind+".")
	})
}

// objectOf returns the name of the object of an event.
func objectOf(event *events.Event) string {
	switch {
	case event.Run != nil:
		return event.Run.Namespace + "/" + event.Run.Name
	case event.Record != nil:
		return event.Record.Run.Namespace + "/" + event.Record.Run.Name
	case event.Session != nil:
		return event.Session.Node
	case event.Audit != nil:
		return event.Audit.Object
	}
	return ""
}

// EventOf is an event as clients see it.
func EventOf(event *events.Event) client.Event {
	e := client.Event{ID: event.ID, Kind: event.Kind, Time: event.Time, Object: objectOf(event)}
	switch {
	case event.Run != nil:
		run := activeRun(event.Run)
		e.Run = &run
	case event.Record != nil:
		run := endedRun(event.Record)
		e.Run = &run
	case event.Session != nil:
		node := nodeOf(event.Session, event.Time)
		e.Node = &node
		_, node.State, _ = strings.Cut(event.Kind, ".")
	case event.Audit != nil:
		e.Actor, e.Version, e.Detail = event.Audit.Actor, event.Audit.Version, event.Audit.Detail
	}
	return e
}
