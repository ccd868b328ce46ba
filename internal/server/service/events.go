package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Events streams events.
type Events struct {
	hub    *events.Hub // nil: no events
	jobs   *Jobs
	stats  *Stats
	places *places

	mu sync.Mutex
	// counted caches the latest counts by their selection: many streams share them.
	counted map[string]client.Event
}

const (
	// StatsEvery is the interval of the events with counts, and statsWithin what they count.
	StatsEvery  = 5 * time.Second
	statsWithin = time.Minute
	// statsMax and matchedMax bound the caches.
	statsMax   = 1000
	matchedMax = 10_000
)

// stopRetry is when a client of a stopping server should reconnect: another server takes
// over.
const stopRetry = time.Second

// Follow begins to follow events: from now on, or after the position q.After. ctx only
// bounds the start. The caller closes the stream.
func (s *Events) Follow(ctx context.Context, who Caller, q client.EventQuery) (*EventStream, error) {
	of, err := who.reads(q.Namespace)
	if err != nil {
		return nil, err
	}
	if s.hub == nil {
		return nil, Refuse(client.TypeUnavailable, phrase.NoEvents)
	}
	if q.Job != "" && !strings.Contains(q.Job, "/") {
		return nil, WrongParameter("job", phrase.NotFullName)
	}
	if q.Job != "" && !who.sees(q.Job) {
		return nil, who.outside()
	}
	for _, kind := range q.Kinds {
		if !validKind(kind) {
			return nil, WrongParameter("kind", phrase.NoKindOfEvents.Of(phrase.Quoted(kind)), phrase.KindsOfEvents)
		}
	}
	stream := &EventStream{topic: s, who: who, of: of, query: q, selected: store.JobQuery{Labels: q.Labels, Text: q.Text}}
	if stream.selective() && stream.WantsStats() {
		return nil, WrongParameter("kind", phrase.StatsOfJob, phrase.LeaveOutLabel)
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
	stream.listener, stream.place = listener, place
	return stream, nil
}

// overOr makes an [Error] of the end of the hub.
func overOr(err error) error {
	if errors.Is(err, events.ErrOver) {
		stops := Refuse(client.TypeUnavailable, phrase.ServerStops)
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
	who      Caller
	of       scope
	query    client.EventQuery
	listener *events.Listener
	place    *place
	// selected is the selection of jobs, and matched caches its result for each job.
	selected store.JobQuery
	matched  map[string]bool
}

// selective reports whether the query selects jobs by their definitions.
func (e *EventStream) selective() bool { return len(e.selected.Labels) > 0 || e.selected.Text != "" }

// WantsStats reports whether the client has asked for counts.
func (e *EventStream) WantsStats() bool { return slices.Contains(e.query.Kinds, client.EventStats) }

// Stats counts the runs that ended within the last minute, in what the client follows.
func (e *EventStream) Stats(ctx context.Context) (client.Event, error) {
	key := strings.Join(e.of.namespaces(), ",") + " " + e.query.Job
	now, err := e.topic.jobs.store.Now(ctx)
	if err != nil {
		return client.Event{}, err
	}
	e.topic.mu.Lock()
	known, ok := e.topic.counted[key]
	e.topic.mu.Unlock()
	if age := now.Sub(known.Time); ok && 0 <= age && age < StatsEvery {
		return known, nil
	}
	counts, err := e.topic.stats.Over(ctx, e.who, client.StatsQuery{Namespace: e.query.Namespace, Job: e.query.Job, From: now.Add(-statsWithin), To: now, Step: time.Second})
	if err != nil {
		return client.Event{}, err
	}
	sum := client.StatsBucket{Start: now.Add(-statsWithin).Truncate(time.Second).UTC(), Outcomes: map[job.Outcome]int{}}
	for i := range counts.Items {
		b := &counts.Items[i]
		for outcome, n := range b.Outcomes {
			sum.Outcomes[outcome] += n
		}
		sum.Seconds += b.Seconds
		sum.Longest = max(sum.Longest, b.Longest)
	}
	counted := client.Event{Kind: client.EventStats, Time: now.UTC(), Object: cmp.Or(e.query.Job, e.query.Namespace), Stats: &sum}
	e.topic.mu.Lock()
	defer e.topic.mu.Unlock()
	if e.topic.counted == nil || len(e.topic.counted) >= statsMax {
		e.topic.counted = map[string]client.Event{}
	}
	e.topic.counted[key] = counted
	return counted, nil
}

// Close ends the stream.
func (e *EventStream) Close() {
	e.listener.Close()
	e.place.leave()
}

// Place is the position after the taken events, for EventQuery.After.
func (e *EventStream) Place() string { return e.listener.Place() }

// Within returns a context that ends with ctx or when the caller may no longer follow: then
// its cause is an [Error].
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
		now, err := e.topic.jobs.store.Now(ctx)
		if err != nil {
			return nil, nil, more, err
		}
		gap = &client.Event{
			Kind: client.EventGap, Time: now.UTC(), Detail: "what happened before is no longer known: read again what is shown",
		}
	}
	for _, event := range taken {
		if !e.wants(event) {
			continue
		}
		selected, err := e.selects(ctx, event)
		if err != nil {
			return nil, nil, more, err
		}
		if selected {
			list = append(list, event)
		}
	}
	return list, gap, more, nil
}

// selects reports whether an event is of a job with the labels and the text of the query, or of
// one of its runs. The change that takes a label away is one of them, and so is the deletion.
func (e *EventStream) selects(ctx context.Context, event *events.Event) (bool, error) {
	if !e.selective() {
		return true, nil
	}
	ofJob := event.Run != nil || event.Record != nil || event.Audit != nil && (strings.HasPrefix(event.Kind, "job.") || strings.HasPrefix(event.Kind, "run."))
	if !ofJob {
		return false, nil
	}
	name := objectOf(event)
	known, ok := e.matched[name]
	if ok && event.Audit == nil {
		return known, nil
	}
	found, err := e.topic.jobs.store.JobsNamed(ctx, []string{name})
	if err != nil {
		return false, err
	}
	if e.matched == nil || len(e.matched) >= matchedMax {
		e.matched = map[string]bool{}
	}
	matches := found[0] != nil && e.selected.Matches(found[0].Definition)
	e.matched[name] = matches
	return known || matches, nil
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

// EventOf converts an event for clients.
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
		e.Actor, e.Version, e.Detail = event.Audit.Actor, event.Audit.Version, event.Audit.Detail.String()
		e.DetailCode, e.DetailArgs = event.Audit.Detail.For()
	}
	return e
}
