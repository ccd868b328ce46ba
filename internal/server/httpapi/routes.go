package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// need is the right that a route requires before it reads the request. The service checks
// again, including the namespace.
type need struct {
	public bool // no token
	right  service.Right
	// body bounds the body of the route; without it a body is ignored.
	body limit
	// without: if the store does not answer, the cached token counts.
	without bool
}

// may returns the need of a route for callers with a right. With a bound it has a body.
func may(right service.Right, body ...limit) need {
	n := need{right: right}
	if len(body) > 0 {
		n.body = body[0]
	}
	return n
}

// routes is a mux that checks the right of a route before the route runs. No route can
// bypass it.
type routes struct {
	http.ServeMux
	patterns []string
	needs    map[string]need // by pattern
	refuse   func(http.ResponseWriter, *problem)
	bodies   bodies
	// open refuses callers of public routes whose secret is not valid, before the body is read.
	open map[string]func(*http.Request) *problem
}

// add adds a route that requires a right.
func (m *routes) add(pattern string, n need, handler http.HandlerFunc) {
	m.needs[pattern] = n
	m.HandleFunc(pattern, handler)
}

// HandleFunc adds a route. One without a declared need is for administrators of the server alone.
func (m *routes) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	wanted, declared := m.needs[pattern]
	if !declared {
		wanted.right = service.Administer
	}
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if wanted.public && !strings.Contains(pattern, " /api/") {
			handler(w, r)
			return
		}
		if err := wanted.allow(r); err != nil {
			m.refuse(w, problemOf(service.ErrorOf(err)))
			return
		}
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			// A parameter that cannot be read would be left out, and the answer be about more.
			m.refuse(w, problemOf(service.Refuse(client.TypeMalformed, phrase.QueryUnread, phrase.PercentAsCode)))
			return
		}
		within := bodyTime
		switch open := m.open[pattern]; {
		case open != nil:
			if refused := open(r); refused != nil {
				m.refuse(w, refused)
				return
			}
		case wanted.public:
			within = auth.StrangerTime
		}
		done, refused := m.bodies.take(w, r, wanted.body, within)
		defer done()
		if refused != nil {
			m.refuse(w, refused)
			return
		}
		handler(w, r)
	})
}

// allow checks the right of a route.
func (n *need) allow(r *http.Request) error {
	who, namespace := caller(r.Context()), r.PathValue("namespace")
	switch {
	case n.public:
		return nil
	case namespace != "":
		return who.MayIn(n.right, namespace)
	}
	return who.May(n.right)
}

// Handle adds a route.
func (m *routes) Handle(pattern string, handler http.Handler) {
	m.HandleFunc(pattern, handler.ServeHTTP)
}
