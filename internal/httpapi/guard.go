package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
)

// The bounds of a request.
const (
	// bodyMax is the largest body: as large as the largest job file.
	bodyMax = 16 << 20
	// requestTime is how long a request may take that is not followed. The
	// store needs milliseconds; behind that there is a store which hangs.
	requestTime = 30 * time.Second
	// bodyTime is how long a body may take to arrive: the largest one on a
	// slow line.
	bodyTime = time.Minute
)

// around puts around the routes what holds for each request, from outside to
// inside: recovery, time and size, the host, the site that it comes from, the
// token.
func (a *api) around(routes http.Handler) http.Handler {
	h := a.authenticated(routes)
	h = a.ofThisSite(h)
	h = a.ofThisHost(h)
	h = a.bounded(h)
	return a.recovering(h)
}

// recovering answers a request whose handler has panicked. The others go on.
func (a *api) recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			if reason == http.ErrAbortHandler {
				panic(reason) // the server's own way to end a connection
			}
			a.Log.Error("a request has panicked", "method", r.Method, "path", r.URL.Path, "reason", fmt.Sprint(reason), "stack", string(debug.Stack()))
			a.writeProblem(w, refuse(client.TypeInternal, "the reason is in the log of the server"))
		}()
		next.ServeHTTP(w, r)
	})
}

// bounded bounds the size of a request, and its time unless it follows
// something.
func (a *api) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, bodyMax+1)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if _, pattern := a.mux.Handler(r); pattern == "GET "+outputPath && wantsEvents(r.Header.Get("Accept")) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTime)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ofThisHost refuses requests that were sent to a name which is not this
// server's. A page of an attacker can make its own name mean 127.0.0.1, and its
// scripts would then speak with this server as if it were theirs.
func (a *api) ofThisHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Host
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
		_, err := netip.ParseAddr(name)
		if err != nil && name != "localhost" && !slices.ContainsFunc(a.Hosts, func(h string) bool { return strings.EqualFold(h, name) }) {
			a.writeProblem(w, refuse(client.TypeHostRefused, "the request was sent to %q", name).
				withHint("names of this server are set with hosts in its configuration"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ofThisSite refuses changes that a browser makes for a page of another site.
func (a *api) ofThisSite(next http.Handler) http.Handler {
	var protection http.CrossOriginProtection
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.writeProblem(w, refuse(client.TypeCrossOrigin, "a page of %q has sent it", r.Header.Get("Origin")))
	}))
	return protection.Handler(next)
}

// authenticated lets requests through that have a token, and those to public
// routes. It goes by the pattern of the route, never by the text of the path,
// which can be written in many ways.
func (a *api) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := a.mux.Handler(r); publicRoutes[pattern] {
			next.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if r.Header.Get("Authorization") == "" {
			a.writeProblem(w, unauthenticated("the request has no token").
				withHint("send the header Authorization: Bearer TOKEN"))
			return
		}
		actor, ok := "", false
		if strings.EqualFold(scheme, "Bearer") {
			actor, ok = a.Authenticate(strings.TrimSpace(token))
		}
		if !ok {
			a.writeProblem(w, unauthenticated("the token is not valid here"))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, actor)))
	})
}

func unauthenticated(detail string) *problem {
	return refuse(client.TypeUnauthenticated, "%s", detail).withHeader("WWW-Authenticate", `Bearer realm="belfry"`)
}

// actorKey is the key of the actor in the context of a request.
type actorKey struct{}

// actorOf returns who makes the request, for the audit.
func actorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}
