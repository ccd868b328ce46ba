package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/store"
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
		if r.ContentLength > bodyMax || r.ContentLength < 0 {
			// What is left of a body that is too large must not be read as the next
			// request of the connection.
			w.Header().Set("Connection", "close")
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, pattern := a.mux.Handler(r)
		if pattern == "GET "+eventsPath || pattern == "GET "+outputPath && wantsEvents(r.Header.Get("Accept")) {
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
// which can be written in many ways. What the caller may do there is asked when
// the route is taken, see routes.
func (a *api) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := a.mux.Handler(r)
		wanted := access[pattern]
		if wanted.public {
			next.ServeHTTP(w, r)
			return
		}
		who, refused := a.callerOf(r, wanted.without)
		if refused != nil {
			a.writeProblem(w, refused)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

// callerOf returns whose token a request has. What is wrong with a token is said
// in the same words whatever it is, but for one that has expired: whoever has it
// has not guessed. With without, a store that does not answer is not waited for.
func (a *api) callerOf(r *http.Request, without bool) (store.Token, *problem) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return store.Token{}, unauthenticated("the request has no token").withHint("send the header Authorization: Bearer TOKEN")
	}
	scheme, secret, _ := strings.Cut(header, " ")
	err := auth.ErrUnknown
	var who store.Token
	if strings.EqualFold(scheme, "Bearer") {
		who, err = a.whose(r.Context(), strings.TrimSpace(secret), without)
	}
	switch {
	case err == nil:
		return who, nil
	case errors.Is(err, auth.ErrExpired):
		return who, unauthenticated(fmt.Sprintf("the token %s has expired at %s", who.Name, who.Expires.Format(time.RFC3339))).
			withHint("an administrator makes another one with belfry token create")
	case !errors.Is(err, auth.ErrUnknown):
		return who, refuse(client.TypeUnavailable, "the store of the server does not answer, so that no token can be looked up").withHint("nothing was done; the log of the server says more")
	}
	var address netip.Addr
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		address = from.Addr()
	}
	wait, first := a.failures.Add(address, a.Now())
	if first {
		a.Log.Warn("an address sends many tokens that are not valid", "address", address)
	}
	if wait > 0 {
		return who, refuse(client.TypeTooManyFailures, "the token is not valid here, nor were many others from this address").
			withHint("whoever has one that is valid is not held up").
			withHeader("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	}
	return who, unauthenticated("the token is not valid here").withHint(lostHint)
}

// tokenWithin is how long a route waits for the store that can do without: it leaves
// most of the 10 s that Prometheus waits for the answer.
const tokenWithin = 2 * time.Second

// whose returns the token that a secret is.
func (a *api) whose(ctx context.Context, secret string, without bool) (store.Token, error) {
	asked := ctx
	if without {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tokenWithin)
		defer cancel()
	}
	who, err := a.Tokens.Authenticate(ctx, secret)
	if err == nil || errors.Is(err, auth.ErrUnknown) || errors.Is(err, auth.ErrExpired) {
		a.lookups.Saw(nil)
		return who, err
	}
	if asked.Err() == nil { // else it was the caller who has given up
		a.lookups.Saw(err)
	}
	if known, ok := a.Tokens.LastKnown(secret); ok && without {
		return known, nil
	}
	return who, err
}

// lostHint is for those whose token is not valid.
const lostHint = "an administrator makes another one with belfry token create; who has lost the administrator's, on the machine of the server with belfry token reset"

func unauthenticated(detail string) *problem {
	return refuse(client.TypeUnauthenticated, "%s", detail).withHeader("WWW-Authenticate", `Bearer realm="belfry"`)
}

// callerKey is the key of the caller's token in the context of a request.
type callerKey struct{}

// caller returns the token that a request was made with.
func caller(ctx context.Context) store.Token {
	who, _ := ctx.Value(callerKey{}).(store.Token)
	return who
}

// stillValid tells whoever answers a request for long whether its token has been
// revoked, or has expired, meanwhile.
func (a *api) stillValid(ctx context.Context) error {
	_, err := a.Tokens.ByHash(ctx, caller(ctx).Hash)
	if errors.Is(err, auth.ErrUnknown) || errors.Is(err, auth.ErrExpired) {
		return unauthenticated("the token is not valid any more").withHint(lostHint)
	}
	return err
}

// actorOf returns who makes the request, for the audit.
func actorOf(ctx context.Context) string { return caller(ctx).Name }
