package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// reach says what of a server a route is about, for tokens that are restricted to
// a namespace.
type reach int

const (
	ofServer reach = iota // all of it: such a token may not
	ofNobody              // nothing that belongs to a namespace
	inPath                // the namespace is in the path
	inQuery               // the parameter namespace; it becomes that of the token
	inObject              // the handler sees when it has the object
)

// need is what a route wants of its caller.
type need struct {
	public bool // no token
	role   store.Role
	reach  reach
	// without: when the store does not say whose token it is, what it said last counts.
	without bool
}

// access has each route of the API. One that is not here is for administrators
// of the server alone.
var access = map[string]need{
	"GET /livez":        {public: true},
	"GET /readyz":       {public: true},
	"GET /metrics":      {role: store.RoleViewer, without: true}, // it names jobs of all namespaces
	"GET /openapi.json": {role: store.RoleViewer, reach: ofNobody},
	"/":                 {role: store.RoleViewer, reach: ofNobody}, // there is nothing

	"GET /api/v1/jobs":                                        {role: store.RoleViewer, reach: inQuery},
	"POST /api/v1/jobs":                                       {role: store.RoleAdmin, reach: inObject},
	"POST /api/v1/jobs:apply":                                 {role: store.RoleAdmin, reach: inObject},
	"GET /api/v1/jobs/{namespace}/{name}":                     {role: store.RoleViewer, reach: inPath},
	"PUT /api/v1/jobs/{namespace}/{name}":                     {role: store.RoleAdmin, reach: inPath},
	"DELETE /api/v1/jobs/{namespace}/{name}":                  {role: store.RoleAdmin, reach: inPath},
	"POST /api/v1/jobs/{namespace}/{name}/pause":              {role: store.RoleAdmin, reach: inPath},
	"POST /api/v1/jobs/{namespace}/{name}/resume":             {role: store.RoleAdmin, reach: inPath},
	"POST /api/v1/jobs/{namespace}/{name}/run":                {role: store.RoleRunner, reach: inPath},
	"POST /api/v1/jobs/{namespace}/{name}/backfill":           {role: store.RoleRunner, reach: inPath},
	"POST /api/v1/jobs/{namespace}/{name}/backfill/cancel":    {role: store.RoleRunner, reach: inPath},
	"GET /api/v1/jobs/{namespace}/{name}/next":                {role: store.RoleViewer, reach: inPath},
	"GET /api/v1/jobs/{namespace}/{name}/revisions":           {role: store.RoleViewer, reach: inPath},
	"GET /api/v1/jobs/{namespace}/{name}/revisions/{version}": {role: store.RoleViewer, reach: inPath},
	"POST /api/v1/jobs/{namespace}/{name}/rollback":           {role: store.RoleAdmin, reach: inPath},

	// A calendar of another namespace is refused by the handler.
	"GET /api/v1/schedules:preview": {role: store.RoleViewer, reach: ofNobody},

	"GET /api/v1/calendars":                       {role: store.RoleViewer, reach: inQuery},
	"GET /api/v1/calendars/{namespace}/{name}":    {role: store.RoleViewer, reach: inPath},
	"PUT /api/v1/calendars/{namespace}/{name}":    {role: store.RoleAdmin, reach: inPath},
	"DELETE /api/v1/calendars/{namespace}/{name}": {role: store.RoleAdmin, reach: inPath},
	"GET /api/v1/pools":                           {role: store.RoleViewer, reach: inQuery},
	"GET /api/v1/pools/{namespace}/{name}":        {role: store.RoleViewer, reach: inPath},
	"PUT /api/v1/pools/{namespace}/{name}":        {role: store.RoleAdmin, reach: inPath},
	"DELETE /api/v1/pools/{namespace}/{name}":     {role: store.RoleAdmin, reach: inPath},

	"GET /api/v1/runs":              {role: store.RoleViewer, reach: inQuery},
	"GET /api/v1/runs/{id}":         {role: store.RoleViewer, reach: inObject},
	"POST /api/v1/runs/{id}/cancel": {role: store.RoleRunner, reach: inObject},
	"POST /api/v1/runs/{id}/retry":  {role: store.RoleRunner, reach: inObject},
	"GET " + outputPath:             {role: store.RoleViewer, reach: inObject},

	"GET " + eventsPath: {role: store.RoleViewer, reach: inQuery},

	"GET /api/v1/nodes":               {role: store.RoleViewer, reach: ofNobody},
	"POST /api/v1/nodes/{id}/drain":   {role: store.RoleAdmin},
	"POST /api/v1/nodes/{id}/undrain": {role: store.RoleAdmin},
	"GET /api/v1/audit":               {role: store.RoleViewer, reach: inQuery},
	"GET /api/v1/tokens":              {role: store.RoleAdmin},
	"POST /api/v1/tokens":             {role: store.RoleAdmin},
	"DELETE /api/v1/tokens/{name}":    {role: store.RoleAdmin},
}

// routes is a mux that asks what a route wants of its caller before it is taken:
// where its parts are known, and none can be registered around it.
type routes struct {
	http.ServeMux
	patterns []string
	refuse   func(http.ResponseWriter, *problem)
}

// HandleFunc adds a route.
func (m *routes) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	wanted, listed := access[pattern]
	if !listed {
		wanted.role = store.RoleAdmin
	}
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if wanted.public {
			handler(w, r)
			return
		}
		if p := wanted.admit(caller(r.Context()), r); p != nil {
			m.refuse(w, p)
			return
		}
		handler(w, r)
	})
}

// Handle adds a route.
func (m *routes) Handle(pattern string, handler http.Handler) {
	m.HandleFunc(pattern, handler.ServeHTTP)
}

// admit tells why a caller may not take a route, and restricts the request to
// what may be seen. It says nothing about what there is.
func (n need) admit(who store.Token, r *http.Request) *problem {
	if !who.Role.Allows(n.role) {
		return refuse(client.TypeForbidden, "the token %s has the role %s, and this needs %s", who.Name, who.Role, n.role).
			withHint("an administrator makes one with that role with belfry token create")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		// What cannot be read would be left out, and the answer be about more.
		return refuse(client.TypeMalformed, "the query of the request cannot be read").withHint("write a %% as %%25")
	}
	if who.Namespace == "" {
		return nil
	}
	switch n.reach {
	case ofServer:
		return refuse(client.TypeForbidden, "the token %s is for the namespace %s, and this is about all of the server", who.Name, who.Namespace)
	case inPath:
		if r.PathValue("namespace") != who.Namespace {
			return outside(who)
		}
	case inQuery:
		if slices.ContainsFunc(query["namespace"], func(given string) bool { return given != "" && given != who.Namespace }) {
			return outside(who)
		}
		query["namespace"] = []string{who.Namespace}
		r.URL.RawQuery = query.Encode()
	}
	return nil
}

// outside refuses what is about another namespace than that of the token, be it
// there or not.
func outside(who store.Token) *problem {
	return refuse(client.TypeForbidden, "the token %s is for the namespace %s alone", who.Name, who.Namespace)
}

// visible tells whether the caller may know of something by its full name.
func visible(ctx context.Context, full string) bool {
	namespace := caller(ctx).Namespace
	return namespace == "" || strings.HasPrefix(full, namespace+"/")
}

// mayDefine refuses a document that is about another namespace than the caller's,
// or names what is in one: a job that follows another one, uses its calendar or
// its pool learns of it, and holds it up. The pointer is where the document
// stands in the request.
func mayDefine(ctx context.Context, d job.Document, pointer string) error {
	who := caller(ctx)
	if who.Namespace == "" {
		return nil
	}
	if !visible(ctx, d.FullName()) {
		return outside(who).withErrors(client.FieldError{Pointer: pointer + "/namespace", Path: "namespace", Detail: "is another one"})
	}
	if d.Job == nil {
		return nil
	}
	j := *d.Job
	j.Namespace = cmp.Or(j.Namespace, job.DefaultNamespace)
	var wrong []client.FieldError
	refer := func(path string, names ...string) {
		for _, full := range names {
			if !visible(ctx, full) {
				wrong = append(wrong, client.FieldError{Pointer: pointer + pointerOf(path), Path: path, Detail: "names " + full})
			}
		}
	}
	refer("schedule.on", engine.Follows(&j)...)
	refer("schedule", engine.Calendars(&j)...)
	if pool := j.Policy.ConcurrencyKey; strings.Contains(pool, "/") {
		refer("policy.concurrency_key", pool)
	}
	if len(wrong) == 0 {
		return nil
	}
	return outside(who).withErrors(wrong...)
}
