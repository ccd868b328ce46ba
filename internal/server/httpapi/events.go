package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// eventsPath is the route whose answers have no end.
const eventsPath = "/api/v1/events"

func (a *api) eventRoutes() {
	a.mux.needs["GET "+eventsPath] = may(service.Read)
	huma.Register(a.huma, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: eventsPath,
		Summary: "Follow events",
		Description: "Server-sent events, one for each change of a job, a run or a node from now on, and counts each 5 s if the kind stats is asked for. Last-Event-ID resumes after an event; " +
			"events that are no longer kept are replaced by one of the kind gap, after which the client must read again what it shows. " +
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
	Label       []string `query:"label,explode" nullable:"false" maxItems:"16" doc:"Only events of jobs with this label, key=value, and of their runs. May be repeated; all must match."`
	Text        string   `query:"text" maxLength:"256" doc:"Only events of jobs with this text in the name or the description, and of their runs."`
	Kind        []string `query:"kind,explode" nullable:"false" maxItems:"64" doc:"Only events of this kind, such as run.done, or of all that begin so, such as run. May be repeated; any may match. The counts of the kind stats come only if it is named."`
	LastEventID string   `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that was seen."`
}

func (a *api) listEvents(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	labels, err := labelsOf(in.Label)
	if err != nil {
		return nil, a.asProblem(ctx, err)
	}
	followed, err := a.Service.Events.Follow(ctx, caller(ctx), client.EventQuery{
		Namespace: in.Namespace, Job: in.Job, Labels: labels, Text: in.Text, Kinds: in.Kind, After: in.LastEventID,
	})
	if err != nil {
		return nil, a.asProblem(ctx, err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) { //nolint:contextcheck // hc has the context of the stream
		defer followed.Close()
		following, stop := followed.Within(hc.Context())
		defer stop()
		_, w := humago.Unwrap(hc)
		e := &eventStream{api: a, events: followed, stream: openStream(w)}
		err := e.run(following)
		if following.Err() != nil {
			err = context.Cause(following)
		}
		if err != nil && hc.Context().Err() == nil && e.stream.err == nil {
			_ = e.stream.event("problem", "", a.asProblem(hc.Context(), err))
		}
	}}, nil
}

// eventStream writes events to one client.
type eventStream struct {
	api    *api
	events *service.EventStream
	stream *stream
	buffer bytes.Buffer
}

// run writes events until the client has left.
func (e *eventStream) run(ctx context.Context) error {
	// A client that loses the connection before the first event continues from here.
	if err := e.mark(); err != nil {
		return err
	}
	var counted time.Time // when counts were last written
	for {
		rest := service.AliveEvery - time.Since(e.stream.last)
		if e.events.WantsStats() {
			if time.Since(counted) >= service.StatsEvery {
				counted = time.Now()
				if err := e.count(ctx); err != nil {
					return err
				}
			}
			rest = min(rest, service.StatsEvery-time.Since(counted))
		}
		wait, cancel := context.WithTimeout(ctx, rest)
		err := e.events.Wait(wait)
		cancel()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		for more := true; more; {
			if more, err = e.write(ctx); err != nil {
				return err
			}
		}
	}
}

// mark writes the place to continue from, which also keeps the connection alive.
func (e *eventStream) mark() error {
	return e.stream.write(fmt.Appendf(nil, ": alive\nid: %s\n\n", e.events.Place()))
}

// count writes the counts of the last minute.
func (e *eventStream) count(ctx context.Context) error {
	stats, err := e.events.Stats(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(stats)
	if err != nil {
		return err
	}
	return e.stream.write(fmt.Appendf(nil, "data: %s\n\n", text))
}

// write writes the next events, and reports whether there may be more.
func (e *eventStream) write(ctx context.Context) (more bool, err error) {
	list, gap, more, err := e.events.Take(ctx)
	if err != nil {
		return false, err
	}
	e.buffer.Reset()
	if gap != nil {
		text, err := json.Marshal(gap)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(&e.buffer, "data: %s\n\n", text)
	}
	for _, event := range list {
		e.buffer.Write(event.Text(e.api.eventText))
	}
	if e.buffer.Len() > 0 {
		return more, e.stream.write(e.buffer.Bytes())
	}
	if time.Since(e.stream.last) < service.AliveEvery {
		return more, nil
	}
	// The place moves on with events that the client does not want: it would else resume at a
	// place that is no longer known.
	return more, e.mark()
}

// eventText writes an event as clients get it.
func (a *api) eventText(event *events.Event) []byte {
	text, err := json.Marshal(service.EventOf(event))
	if err != nil {
		a.Log.Error("an event could not be written", "kind", event.Kind, "error", err)
		return nil
	}
	return fmt.Appendf(nil, "id: %s\ndata: %s\n\n", event.ID, text)
}
