package httpapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/assistant"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// assistantPath is where assistants call, by the streamable HTTP of the Model Context Protocol.
const assistantPath = "/mcp"

// assistantKey is the key of the tools of a caller in the context of a request.
type assistantKey struct{}

// assistantRoute adds the door of assistants. Its tools send requests to this API within the process,
// with the token of the caller, so that each is checked, bounded and audited as from outside. It has no
// sessions: any node answers any request.
func (a *api) assistantRoute() {
	inside := a.recovering(a.fromSomewhere(a.bounded(a.authenticated(a.straight(a.mux)))))
	// The host and the origin were checked around all routes.
	protocol := mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		tools, _ := r.Context().Value(assistantKey{}).(*mcp.Server)
		return tools
	}, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true, DisableLocalhostProtection: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: assistantBody.bytes})
	a.mux.add("POST "+assistantPath, may(service.Read, assistantBody), func(w http.ResponseWriter, r *http.Request) {
		_, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if secret == "" { // the session of a browser is not for assistants
			a.writeProblem(w, unauthenticated(phrase.TokenRequired, phrase.SendToken))
			return
		}
		api, err := client.New(client.Config{URL: "http://localhost", Token: secret, UserAgent: assistant.Agent + a.Version, HTTP: &http.Client{Transport: within{inside, r}}})
		if err != nil {
			a.writeProblem(w, a.asProblem(r.Context(), err))
			return
		}
		tools := assistant.New(assistant.Config{Client: api, Changes: a.AssistantChanges, Key: []byte(secret), Version: a.Version, Now: a.Now, Log: a.Log})
		protocol.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), assistantKey{}, tools)))
	})
}

// within sends requests to a handler of this process, on behalf of a request from outside.
type within struct {
	handler http.Handler
	outside *http.Request
}

// RoundTrip implements [http.RoundTripper].
func (t within) RoundTrip(r *http.Request) (*http.Response, error) {
	inner := r.Clone(r.Context())
	inner.RequestURI, inner.RemoteAddr, inner.TLS = r.URL.RequestURI(), t.outside.RemoteAddr, t.outside.TLS
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	w := &written{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(w, inner)
	return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), Request: r}, nil
}

// written is an answer that is kept.
type written struct {
	header http.Header
	status int
	begun  bool
	body   bytes.Buffer
}

func (w *written) Header() http.Header { return w.header }

func (w *written) WriteHeader(status int) {
	if !w.begun {
		w.status, w.begun = status, true
	}
}

func (w *written) Write(p []byte) (int, error) {
	w.begun = true
	return w.body.Write(p)
}
