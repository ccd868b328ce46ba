package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/events"
)

// eventsPath is the route whose answers have no end.
const eventsPath = "/api/v1/events"

func (a *api) eventRoutes() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: eventsPath,
		Summary: "Follow what happens",
		Description: "Server-sent events, one for each change of a job, a run or a node from now on. Last-Event-ID resumes behind an event; " +
			"what is not known any more is told by an event of the kind gap, after which the client must read again what it shows. " +
			"If the server ends the stream, the last event is named problem and says why.",
		Responses: map[string]*huma.Response{"200": {
			Description: "Events without an end. The data of each is an Event.",
			Content: map[string]*huma.MediaType{
				"text/event-stream": a.streamOf(map[string]reflect.Type{
					"message": reflect.TypeFor[client.Event](), "problem": reflect.TypeFor[client.Problem](),
				}),
			},
		}},
	}, a.listEvents)
}

type eventsInput struct {
	Namespace   string   `query:"namespace" maxLength:"128" doc:"Only events of what is in this namespace, and of nodes."`
	Job         string   `query:"job" maxLength:"257" doc:"Only events of this job, namespace/name, and of its runs."`
	Kind        []string `query:"kind,explode" nullable:"false" maxItems:"64" doc:"Only events of this kind, such as run.done, or of all that begin so, such as run. May be repeated; any may match."`
	LastEventID string   `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that was seen."`
}

func (a *api) listEvents(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	if a.Events == nil {
		return nil, refuse(client.TypeUnavailable, "this server tells no events")
	}
	if in.Job != "" && !strings.Contains(in.Job, "/") {
		return nil, wrongParameter("job", "is not the full name of a job", "write namespace/name")
	}
	for _, kind := range in.Kind {
		if !validKind(kind) {
			return nil, wrongParameter("kind", fmt.Sprintf("%q is no kind of events", kind), "such as run.done, or run for all of runs")
		}
	}
	following, place, err := a.places.take(ctx, a.stillValid)
	if err != nil {
		return nil, err
	}
	listener, err := a.Events.Listen(ctx, in.LastEventID)
	if err != nil {
		place.leave()
		return nil, a.overOr(ctx, err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer place.leave()
		defer listener.Close()
		e := &eventStream{api: a, in: in, listener: listener}
		_, w := humago.Unwrap(hc)
		e.stream = openStream(w)
		err := e.run(following)
		if following.Err() != nil {
			err = context.Cause(following)
		}
		if err != nil && hc.Context().Err() == nil && e.stream.err == nil {
			_ = e.stream.event("problem", "", a.overOr(hc.Context(), err))
		}
	}}, nil
}

// overOr makes a problem of an error of a listener.
func (a *api) overOr(ctx context.Context, err error) error {
	if errors.Is(err, events.ErrOver) {
		return refuse(client.TypeUnavailable, "the server stops").withHeader("Retry-After", "1")
	}
	return a.asProblem(ctx, err)
}

// validKind tells whether a text may be a kind of events. A kind that there is not
// yet is one that a later version has.
func validKind(kind string) bool {
	const longest = 64
	return kind != "" && len(kind) <= longest && strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz_.") == ""
}

// eventStream is what one client is told.
type eventStream struct {
	api      *api
	in       *eventsInput
	listener *events.Listener
	stream   *stream
	buffer   bytes.Buffer
}

// run tells the client what happens until it has left.
func (e *eventStream) run(ctx context.Context) error {
	// Whoever breaks off before the first event goes on from here.
	if err := e.mark(); err != nil {
		return err
	}
	for {
		wait, cancel := context.WithTimeout(ctx, aliveEvery-time.Since(e.stream.last))
		err := e.listener.Wait(wait)
		cancel()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		for more := true; more; {
			list, gap := e.listener.Take()
			if err := e.tell(ctx, list, gap); err != nil {
				return err
			}
			more = len(list) == events.PartMax
		}
	}
}

// mark tells the client where to go on, and that the connection lives.
func (e *eventStream) mark() error {
	return e.stream.write(fmt.Appendf(nil, ": alive\nid: %s\n\n", e.listener.Place()))
}

// tell writes those of the events that the client wants.
func (e *eventStream) tell(ctx context.Context, list []*events.Event, gap bool) error {
	e.buffer.Reset()
	if gap {
		now, err := e.api.Store.Now(ctx)
		if err != nil {
			return err
		}
		text, err := json.Marshal(client.Event{
			Kind: client.EventGap, Time: now.UTC(), Detail: "what happened before is not known any more: read again what is shown",
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(&e.buffer, "data: %s\n\n", text)
	}
	for _, event := range list {
		if e.wants(event) {
			e.buffer.Write(event.Text(e.api.eventText))
		}
	}
	if e.buffer.Len() == 0 {
		if time.Since(e.stream.last) < aliveEvery {
			return nil
		}
		// The id moves on with what the client does not want: it would else ask
		// for a place that is not known any more.
		return e.mark()
	}
	return e.stream.write(e.buffer.Bytes())
}

// wants tells whether an event is one that the client has asked for. The namespace
// is that of its token, if that is restricted.
func (e *eventStream) wants(event *events.Event) bool {
	object := objectOf(event)
	if e.in.Job != "" {
		if object != e.in.Job || event.Session != nil {
			return false
		}
	} else if e.in.Namespace != "" && event.Session == nil && !strings.HasPrefix(object, e.in.Namespace+"/") {
		return false
	}
	return len(e.in.Kind) == 0 || slices.ContainsFunc(e.in.Kind, func(kind string) bool {
		return event.Kind == kind || strings.HasPrefix(event.Kind, kind+".")
	})
}

// objectOf returns the name of what an event is about.
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

// eventText writes an event as clients get it.
func (a *api) eventText(event *events.Event) []byte {
	e := client.Event{Kind: event.Kind, Time: event.Time, Object: objectOf(event)}
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
	text, err := json.Marshal(e)
	if err != nil {
		a.Log.Error("an event could not be written", "kind", event.Kind, "error", err)
		return nil
	}
	return fmt.Appendf(nil, "id: %s\ndata: %s\n\n", event.ID, text)
}
