// Package httpapi answers requests under /api/v1: it checks them, calls the
// store, and writes what comes of it in the types of package client. It decides
// nothing about jobs and runs. docs/api.md describes it for those who call it.
//
// Handler is the whole of it, with what surrounds every request: the check of
// the host and of the token, the bounds on size and time, and the recovery from
// a panic.
package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is what the API wants of a store: what each group of routes wants.
type Store interface {
	jobStore
	revisionStore
	setStore
	runStore
	outputStore
	nodeStore
	auditStore
	tokenStore
}

// Planner is what the API wants of the node that plans.
type Planner interface {
	// NextAfter returns when a job falls due first at a moment or after it.
	NextAfter(uid job.ID, at time.Time) (time.Time, bool)
	// Upcoming returns at most n jobs in the order in which they fall due
	// first at a moment or after it, from a place in that order on.
	Upcoming(at time.Time, after engine.Upcoming, n int) []engine.Upcoming
	// Sync plans at once what has just been changed.
	Sync(ctx context.Context) error
	// Ready is closed when all jobs are known.
	Ready() <-chan struct{}
}

// Config is what an API needs.
type Config struct {
	Store Store
	// Planner may be nil: then nobody knows when jobs fall due next.
	Planner Planner
	// Events are what happens in the store, while its Run goes on. Nil: nobody is
	// told.
	Events *events.Hub
	// Followers wakes those who follow output. Default: they look by themselves.
	Followers *Followers
	// Tokens knows who calls. Its tokens are those of the store.
	Tokens *auth.Tokens
	// Node is the name of this node. "" is for none.
	Node string
	// Hosts are the names that requests may be sent to beside localhost.
	// Addresses are always allowed, since no attacker can give them another
	// meaning.
	Hosts []string
	// Defaults are those of the server, which documents are checked under. The
	// store has the same.
	Defaults job.Defaults
	// WithoutAPI is set on a node without the role api: it tells whether it lives
	// and is ready, and its metrics. Of all else it says which nodes answer.
	WithoutAPI bool
	// Version is that of the program.
	Version string
	// Metrics answers at /metrics. Nil: there is nothing at /metrics.
	Metrics http.Handler
	// Now is the clock of this machine, by which ids are made and waiting is measured.
	// What is due and what is past goes by that of the store. Default: time.Now.
	Now func() time.Time
	// Log takes what went wrong inside. Default: nothing.
	Log *slog.Logger
}

// api is what the handlers share.
type api struct {
	Config
	huma   huma.API
	mux    *routes
	places places // for those who follow something
	// document is the description of the API. It is written when somebody first asks: to
	// write it takes most of the time that it takes to make an API, and few ask.
	document func() ([]byte, error)
	// failures are those to authenticate.
	failures auth.Failures
	// lookups is what is wrong with finding out whose token a request has.
	lookups *trouble.Trouble
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
	if c.Store == nil || c.Tokens == nil {
		return nil, errors.New("make the API: a store and its tokens are needed")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Followers == nil {
		c.Followers = NewFollowers(nil)
	}
	a := &api{Config: c, mux: &routes{}, lookups: trouble.With(c.Log, "tokens cannot be looked up", "tokens are looked up again")}
	a.mux.refuse = a.writeProblem
	a.healthRoutes()
	a.metricsRoute()
	if c.WithoutAPI {
		a.elsewhereRoute()
		return a, nil
	}
	a.huma = humago.New(a.mux, a.humaConfig())
	a.huma.UseMiddleware(a.once)
	a.jobRoutes()
	a.revisionRoutes()
	a.scheduleRoutes()
	a.setRoutes()
	a.runRoutes()
	a.outputRoutes()
	a.nodeRoutes()
	a.eventRoutes()
	a.auditRoutes()
	a.tokenRoutes()
	a.plainRoutes()
	a.describe()
	a.document = sync.OnceValues(a.writeDescription)
	return a, nil
}

// register adds a route that answers in JSON. What it returns as an error
// becomes a problem. The answers are for the description: the statuses of success,
// where they are not 200 or 204 alone, and those of problems that do not follow
// from its type.
func register[I, O any](a *api, method, path, id, summary string, handle func(context.Context, *I) (*O, error), answers ...int) {
	huma.Register(a.huma, huma.Operation{
		OperationID: id, Method: method, Path: "/api/v1" + path, Summary: summary,
		MaxBodyBytes: bodyMax, BodyReadTimeout: bodyTime, Metadata: map[string]any{answersKey: answers},
	}, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.asProblem(ctx, err)
		}
		return out, nil
	})
}

// once refuses a parameter that is given several times and has one value: whoever
// sends it means something else than what would be done. It refuses as well what is no
// text: nothing here has such a value, and not every store can be asked for it.
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
			a.writeProblem(w, wrongParameter(p.Name, "is given more than once", ""))
			return
		}
		for _, value := range values {
			if why := noText(value); why != "" {
				a.writeProblem(w, wrongParameter(p.Name, why, ""))
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

// newID makes the id of a run.
func (a *api) newID() (job.ID, error) { return job.NewID(a.Now(), rand.Reader) }

// syncWithin bounds how long the answer to a change waits for the planner. What
// it plans later is planned in time all the same, unless it was due at once.
const syncWithin = 2 * time.Second

// sync lets the planner plan what was changed, so that a job which falls due in
// a second is in time.
func (a *api) sync(ctx context.Context) {
	if a.Planner == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	if err := a.Planner.Sync(ctx); err != nil {
		a.Log.Debug("a change was not planned at once", "error", err)
	}
}

// healthRoutes are those that programs ask which speak no JSON.
func (a *api) healthRoutes() {
	a.mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK, "ok\n")
	})
	a.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		text, err := a.ready(r.Context())
		if err != nil {
			plain(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		plain(w, http.StatusOK, text+"\n")
	})
}

// plainRoutes are the description of the API, and the answer where there is nothing.
func (a *api) plainRoutes() {
	a.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, r *http.Request) {
		document, err := a.document()
		if err != nil {
			a.writeProblem(w, a.asProblem(r.Context(), err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.writeProblem(w, a.noRoute(r))
	})
}

// Why a node is not ready.
var (
	errNotRead = errors.New("the jobs have not been read yet")
	errNoStore = errors.New("the store does not answer")
)

// readyTime is how long the store may take to answer whoever asks for readiness:
// it reads in a millisecond when it is well.
const readyTime = 5 * time.Second

// ready tells whether requests can be served. It says nothing in detail, since
// anybody may ask. The clock of a store may be that of the process, so the store is
// asked for something that it must read. A node that is drained is ready: it answers
// requests as any other.
func (a *api) ready(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	sessions, err := a.Store.Sessions(ctx)
	if err != nil {
		return "", errNoStore
	}
	if a.Planner != nil {
		select {
		case <-a.Planner.Ready():
		default:
			return "", errNotRead
		}
	}
	if slices.ContainsFunc(sessions, func(s store.Session) bool { return s.Node == a.Node && s.Drain != nil }) {
		return "ok, and drained: this node takes no runs", nil
	}
	return "ok", nil
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// straight answers requests whose path goes astray, such as /api/v1/jobs//x: the
// mux would send them elsewhere with a page for people.
func (a *api) straight(routes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.URL.EscapedPath()
		if clean := path.Clean(given); given != clean && given != clean+"/" {
			a.writeProblem(w, refuse(client.TypeNotFound, "there is nothing at %s", r.URL.Path).
				withHint("a name is missing between two slashes, or is . or .."))
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// noRoute is the problem of a path that does not exist, or of a method that it
// does not have.
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
		return refuse(client.TypeMethodNotAllowed, "%s has no %s", r.URL.Path, r.Method).
			withHint("it has %s", inList(allowed)).withHeader("Allow", inList(allowed))
	}
	return refuse(client.TypeNotFound, "there is nothing at %s", r.URL.Path).
		withHint("the API is below /api/v1; /openapi.json describes it")
}
