package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// outputPath is the route whose answers may have no end.
const outputPath = "/api/v1/runs/{id}/output"

func (a *api) outputRoutes() {
	a.mux.needs["GET "+outputPath] = may(service.Read)
	huma.Register(a.huma, huma.Operation{
		OperationID: "run-output", Method: http.MethodGet, Path: outputPath,
		Summary: "Get the output of a run, or follow it",
		Description: "With Accept: text/event-stream the output is followed until the run has ended, over all its attempts: " +
			"events of type output with {attempt, next, text}, and at last one of type end with the run. Their ids resume by Last-Event-ID.",
		Responses: map[string]*huma.Response{"200": {
			Description: "What was written so far, or events.",
			Content: map[string]*huma.MediaType{
				"text/plain": {Schema: &huma.Schema{Type: "string"}},
				"text/event-stream": a.streamOf(map[string]reflect.Type{
					"output": reflect.TypeFor[client.OutputPart](), "end": reflect.TypeFor[client.Run](), "problem": reflect.TypeFor[client.Problem](),
				}),
			},
		}},
	}, a.runOutput)
}

type outputInput struct {
	RunInput
	Attempt     int       `query:"attempt" minimum:"0" doc:"The number of the attempt. Default: the latest; with events all from the latest on."`
	Offset      int64     `query:"offset" minimum:"0" doc:"Where to begin: a next of an earlier event."`
	Stream      string    `query:"stream" enum:"stdout,stderr" doc:"Only this stream. Default: both, in the order of writing."`
	Since       time.Time `query:"since" doc:"Only what was written at this instant or later."`
	Timestamps  bool      `query:"timestamps" doc:"The time, and | for stdout or ! for stderr, before each line."`
	Tail        int       `query:"tail" minimum:"0" maximum:"100000" doc:"How many of the last lines to return. 0: all."`
	Accept      string    `header:"Accept" doc:"text/event-stream to follow."`
	LastEventID string    `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that was seen."`
}

// wantsEvents reports whether a client follows.
func wantsEvents(accept string) bool { return strings.Contains(accept, "text/event-stream") }

func (a *api) runOutput(ctx context.Context, in *outputInput) (*huma.StreamResponse, error) {
	events := wantsEvents(in.Accept)
	var resume *service.Place
	if events && in.LastEventID != "" {
		place, ok := service.ParsePlace(in.LastEventID)
		if !ok {
			return nil, wrongParameter("Last-Event-ID", fmt.Sprintf("%q is not the id of an event of this list", in.LastEventID))
		}
		resume = &place
	}
	reader, err := a.Service.Output.Open(ctx, caller(ctx), in.ID, client.OutputQuery{
		Attempt: in.Attempt, Offset: in.Offset, Stream: in.Stream, Since: in.Since, Times: in.Timestamps, Tail: in.Tail,
	}, resume, events)
	if err != nil {
		return nil, a.asProblem(ctx, err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) { //nolint:contextcheck // hc has the context of the stream
		defer reader.Close()
		if events {
			a.followOutput(hc, reader)
			return
		}
		hc.SetHeader("Content-Type", "text/plain; charset=utf-8")
		hc.SetHeader("Cache-Control", "no-store")
		hc.SetHeader("Content-Security-Policy", "sandbox") // the output of a job is no page
		hc.SetStatus(http.StatusOK)
		err := reader.Write(hc.Context(), func(text []byte) error {
			if _, err := hc.BodyWriter().Write(text); err != nil {
				return errGone
			}
			return nil
		})
		if err != nil && !errors.Is(err, errGone) {
			a.Log.Error("output could not be read", "run", in.ID, "error", err)
			panic(http.ErrAbortHandler) // so that the client knows that the answer is not whole
		}
	}}, nil
}

// errGone is of a client that does not read its answer.
var errGone = errors.New("the client disconnected")

// followOutput answers with events until the run has ended.
func (a *api) followOutput(hc huma.Context, reader *service.OutputReader) {
	_, w := humago.Unwrap(hc)
	s := openStream(w)
	if err := s.comment("begin"); err != nil {
		return
	}
	switch run, err := reader.Follow(hc.Context(), s); {
	case err == nil:
		_ = s.event("end", "", run)
	case hc.Context().Err() == nil && s.err == nil:
		_ = s.event("problem", "", a.asProblem(hc.Context(), err))
	}
}
