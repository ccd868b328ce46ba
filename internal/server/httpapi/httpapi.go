// Package httpapi answers requests under /api/v1: it parses them, asks package service, and
// prints the result in the types of package client. It decides nothing about jobs and runs,
// and reads no store. docs/api.md describes the API for its users.
//
// Handler is the whole of it, with what surrounds every request: the check of the host and
// of the token, the bounds on size and time, and the recovery from a panic.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
)

// Config configures an API.
type Config struct {
	// Service performs the operations.
	Service *service.Service
	// Workers answers workers without a store. Nil: it has none.
	Workers *host.Workers
	// Tokens knows the caller of a request by its token.
	Tokens *auth.Tokens
	// Sessions of browsers. Default: the sessions of the store of Tokens.
	Sessions *auth.Sessions
	// SignInAt is the address of the pages at which people sign in, without a path. "": people
	// have no provider to sign in at.
	SignInAt string
	// Pages answers requests outside the API: the pages of the web UI. Nil: none.
	Pages http.Handler
	// Node is the name of this node. "" is for none.
	Node string
	// Hosts are the allowed host names of requests besides localhost. Addresses are always
	// allowed, since no attacker can redirect them.
	Hosts []string
	// AnyHost allows all host names: the program that mounts the handler goes by credentials of its own,
	// which a browser does not send to another name.
	AnyHost bool
	// WorkerCertificates refuses workers without a client certificate.
	WorkerCertificates bool
	// WithoutAPI is set on a node without the role api: it answers about its health and its
	// metrics, and else names the nodes that answer.
	WithoutAPI bool
	// AssistantChanges lets assistants change what their tokens may change.
	AssistantChanges bool
	// Version is the version of the program.
	Version string
	// Metrics answers at /metrics. Nil: no metrics.
	Metrics http.Handler
	// Now is the clock of this machine, by which failures to authenticate are counted.
	// Default: [time.Now].
	Now func() time.Time
	// Log takes internal failures. Default: nothing.
	Log *slog.Logger
}

// api is the state shared by the handlers.
type api struct {
	Config
	huma huma.API
	mux  *routes
	// document is the description of the API, written on the first request for it: that
	// takes most of the time of making an API, and few ask.
	document func() ([]byte, error)
	// document30 is the same in OpenAPI 3.0.
	document30 func() ([]byte, error)
	// lookups logs failed look-ups of tokens.
	lookups *failurelog.Log
}

// Handler returns what answers requests.
func Handler(c Config) (http.Handler, error) {
	a, err := newAPI(c)
	if err != nil {
		return nil, err
	}
	return a.around(a.straight(a.mux)), nil
}

func newAPI(c Config) (*api, error) {
	if c.Service == nil || c.Tokens == nil {
		return nil, errors.New("make the API: a service and its tokens are needed")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Sessions == nil {
		c.Sessions = auth.NewSessions(c.Tokens, nil)
	}
	a := &api{Config: c, mux: &routes{needs: map[string]need{}}, lookups: failurelog.New(c.Log, "cannot look up tokens", "looking up tokens works again")}
	a.mux.refuse, a.mux.bodies = a.writeProblem, newBodies()
	a.mux.open = map[string]func(*http.Request) *problem{callbackPattern: func(r *http.Request) *problem {
		if err := a.openCallback(r); err != nil {
			return a.asProblem(r.Context(), err)
		}
		return nil
	}}
	a.healthRoutes()
	a.pingRoutes()
	a.hookRoutes()
	a.mux.add("GET /badge/{file}", need{public: true}, a.badge) // its secret says what it shows
	a.metricsRoute()
	if c.WithoutAPI {
		a.elsewhereRoute()
		return a, nil
	}
	a.huma = humago.New(a.mux, a.humaConfig())
	a.huma.UseMiddleware(a.once)
	a.jobRoutes()
	a.setRoutes()
	a.callbackRoutes()
	a.runRoutes()
	a.outputRoutes()
	a.eventRoutes()
	a.serverRoutes()
	a.statsRoutes()
	a.notificationRoutes()
	a.sessionRoutes()
	if a.Workers != nil {
		a.workerRoutes()
	}
	a.assistantRoute()
	a.plainRoutes()
	a.describe()
	return a, nil
}

// register declares an operation of the API: its route, the right that it requires and the bound
// of its body, and a handler that answers in JSON. An error becomes a problem. The answers are
// for the description: the statuses of success, if not just 200 or 204, and of
// problems that do not follow from its type.
func register[I, O any](a *api, route, id, summary string, n need, handle func(context.Context, *I) (*O, error), answers ...int) {
	method, path, _ := strings.Cut(route, " ")
	path = "/api/v1" + path
	a.mux.needs[method+" "+path] = n
	huma.Register(a.huma, huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary,
		MaxBodyBytes: -1, BodyReadTimeout: -1, Metadata: map[string]any{answersKey: answers},
	}, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.asProblem(ctx, err)
		}
		return out, nil
	})
}

// once refuses a repeated parameter that has one value, since its sender means something
// else than the server would do, and a value that is not valid text, which some stores
// cannot handle.
func (a *api) once(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	query := r.URL.Query()
	for _, p := range ctx.Operation().Parameters {
		values := query[p.Name]
		switch p.In {
		case "path":
			values = []string{r.PathValue(p.Name)}
		case "header":
			continue
		}
		if len(values) > 1 && (p.Explode == nil || !*p.Explode) {
			a.writeProblem(w, wrongParameter(p.Name, "is given more than once"))
			return
		}
		for _, value := range values {
			if why := noText(value); why != "" {
				a.writeProblem(w, wrongParameter(p.Name, why))
				return
			}
		}
	}
	next(ctx)
}

// noText says why a value that is read from an address is no text, or "".
func noText(value string) string {
	switch {
	case !utf8.ValidString(value):
		return "is not encoded in UTF-8"
	case strings.Contains(value, "\x00"):
		return "has a NUL byte"
	}
	return ""
}

// healthRoutes are for programs that speak no JSON.
func (a *api) healthRoutes() {
	a.mux.add("GET /livez", need{public: true}, func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK, "ok\n")
	})
	a.mux.add("GET /readyz", need{public: true}, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTime)
		defer cancel()
		switch note, err := a.Service.Nodes.Ready(ctx); {
		case err != nil:
			plain(w, http.StatusServiceUnavailable, err.Error()+"\n")
		case note != "":
			plain(w, http.StatusOK, "ok; "+note+"\n")
		default:
			plain(w, http.StatusOK, "ok\n")
		}
	})
}

// Unready answers for a server that works and is not ready, because of an error.
func Unready(why error, log *slog.Logger) http.Handler {
	a := &api{Config: Config{Log: log}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusServiceUnavailable, why.Error()+"\n")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		a.writeProblem(w, problemOf(service.ErrorOf(why)))
	})
	return mux
}

// plainRoutes are the description of the API, and the answer for unknown paths.
func (a *api) plainRoutes() {
	a.document = sync.OnceValues(a.writeDescription)
	a.document30 = sync.OnceValues(a.writeDescription30)
	a.descriptionRoute("/openapi.json", a.document)
	a.descriptionRoute("/openapi-3.0.json", a.document30)
	a.mux.add("/", may(service.Read), func(w http.ResponseWriter, r *http.Request) {
		a.writeProblem(w, a.noRoute(r))
	})
}

func (a *api) descriptionRoute(path string, document func() ([]byte, error)) {
	a.mux.add("GET "+path, may(service.Read), func(w http.ResponseWriter, r *http.Request) {
		text, err := document()
		if err != nil {
			a.writeProblem(w, a.asProblem(r.Context(), err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
}

// readyTime is how long the store may take to answer for /readyz: it reads in a millisecond
// when it is well.
const readyTime = 5 * time.Second

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// straight answers requests with a malformed path, such as /api/v1/jobs//x: the mux would
// redirect them with a page for people.
func (a *api) straight(routes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.URL.EscapedPath()
		if clean := path.Clean(given); given != clean && given != clean+"/" {
			a.writeProblem(w, problemOf(service.Refuse(client.TypeNotFound, phrase.NoSuchPath.Of(r.URL.Path), phrase.NameBetweenSlashes)))
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// noRoute is the problem of an unknown path, or of a method that it does not have.
func (a *api) noRoute(r *http.Request) *problem {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := a.mux.Handler(other); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		return problemOf(service.Refuse(client.TypeMethodNotAllowed, phrase.NoSuchMethod.Of(r.URL.Path, r.Method), phrase.MethodsOfPath.Of(allowed))).
			withHeader("Allow", inList(allowed))
	}
	return problemOf(service.Refuse(client.TypeNotFound, phrase.NoSuchPath.Of(r.URL.Path), phrase.APIIsBelow))
}
