package httpapi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/assistant"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// requestTime is how long a request may take that follows nothing. The store needs
// milliseconds unless it hangs.
const requestTime = 30 * time.Second

// around wraps the routes in the checks of each request, from outside to inside: compression,
// recovery, the host, the site of origin, time, the token. Pages have a time of their own and require
// the token themselves.
func (a *api) around(routes http.Handler) http.Handler {
	h := a.authenticated(routes)
	h = a.bounded(h)
	h = a.orPages(h)
	h = a.fromSomewhere(h)
	h = a.ofThisSite(h)
	h = a.ofThisHost(h)
	h = a.recovering(h)
	h = stayingSecure(h)
	return a.compressing(h)
}

// secureFor is how long browsers use TLS alone.
const secureFor = "max-age=31536000"

// stayingSecure makes browsers use TLS for later visits. It does not on a port of its own, as they
// apply it to all ports of the host, where others may answer without TLS.
func stayingSecure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, port, err := net.SplitHostPort(r.Host); r.TLS != nil && (err != nil || port == "443") {
			w.Header().Set("Strict-Transport-Security", secureFor)
		}
		next.ServeHTTP(w, r)
	})
}

// fromSomewhere sets the origin of a request's changes, for the audit. The sender chooses
// the name of its program freely: the audit is about the holder of the token.
func (a *api) fromSomewhere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by := service.ByAPI
		switch {
		case r.Header.Get("Authorization") == "" && auth.SessionOf(r) != "":
			by = service.ByUI
		case strings.HasPrefix(r.UserAgent(), "belfry/"):
			by = service.ByCLI
		case strings.HasPrefix(r.UserAgent(), assistant.Agent):
			by = service.ByMCP
		}
		address, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			address = r.RemoteAddr
		}
		next.ServeHTTP(w, r.WithContext(service.From(r.Context(), by, address)))
	})
}

// orPages passes requests for pages on.
func (a *api) orPages(next http.Handler) http.Handler {
	if a.Pages == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isForAPI(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		a.Pages.ServeHTTP(w, r)
	})
}

// isForAPI reports whether a path is one for programs.
func isForAPI(path string) bool {
	switch path {
	case "/api", "/livez", "/readyz", "/metrics", "/openapi.json", "/openapi-3.0.json", assistantPath:
		return true
	}
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/ping/") || strings.HasPrefix(path, hooksPath) || strings.HasPrefix(path, "/badge/")
}

// recovering answers a request whose handler panicked. Other requests continue.
func (a *api) recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			if err, ok := reason.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(reason) // the server's own way to end a connection
			}
			a.Log.Error("a request handler panicked", "method", r.Method, "path", r.URL.Path, "reason", fmt.Sprint(reason), "stack", string(debug.Stack()))
			a.writeProblem(w, problemOf(service.Refuse(client.TypeInternal, phrase.ReasonInLog)))
		}()
		next.ServeHTTP(w, r)
	})
}

// bounded bounds the time of a request, unless it follows something.
func (a *api) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// ofThisHost refuses requests that were sent to a name which is not this server's. A page
// of an attacker can make its own name mean 127.0.0.1, and its scripts could then call this
// server as their own.
func (a *api) ofThisHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Host
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
		_, err := netip.ParseAddr(name)
		if err != nil && !a.AnyHost && name != "localhost" && !slices.ContainsFunc(a.Hosts, func(h string) bool { return strings.EqualFold(h, name) }) {
			a.writeProblem(w, problemOf(service.Refuse(client.TypeHostRefused, phrase.OtherHost.Of(phrase.Quoted(name)), phrase.HostsOfServer)))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ofThisSite refuses changes that a browser makes for a page of another site.
func (a *api) ofThisSite(next http.Handler) http.Handler {
	var protection http.CrossOriginProtection
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.writeProblem(w, problemOf(service.Refuse(client.TypeCrossOrigin, phrase.FromOtherSite.Of(phrase.Quoted(r.Header.Get("Origin"))))))
	}))
	guarded := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == assistantPath { // its protocol refuses other sites whatever the method
			post := r.Clone(r.Context())
			post.Method = http.MethodPost
			if protection.Check(post) != nil {
				guarded.ServeHTTP(w, post)
				return
			}
		}
		guarded.ServeHTTP(w, r)
	})
}

// authenticated lets requests through that have a token, and those to public routes. It
// goes by the pattern of the route, never by the text of the path, which can be written in
// many ways. The rights of the caller are checked by the route, see routes.
func (a *api) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := a.mux.Handler(r)
		wanted := a.mux.needs[pattern]
		if wanted.public {
			next.ServeHTTP(w, r)
			return
		}
		who, refused := a.callerOf(r, wanted.without)
		if refused == nil {
			who, refused = a.certified(r, who)
		}
		if refused != nil {
			a.writeProblem(w, refused)
			return
		}
		auth.Shown(r.Context())
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

// callerOf returns whose token a request has. The answer says what is wrong with a token only
// if it has expired, as its holder has not guessed it. With without, a store that does not
// answer is not waited for.
func (a *api) callerOf(r *http.Request, without bool) (service.Caller, *problem) {
	header := r.Header.Get("Authorization")
	if secret := auth.SessionOf(r); header == "" && secret != "" {
		return a.holderOf(r, secret)
	}
	if header == "" {
		return service.Caller{}, unauthenticated(phrase.TokenRequired, phrase.SendToken)
	}
	scheme, secret, _ := strings.Cut(header, " ")
	err := auth.ErrUnknown
	var who service.Caller
	var expires time.Time
	if strings.EqualFold(scheme, "Bearer") {
		who, expires, err = a.whose(r.Context(), strings.TrimSpace(secret), without)
	}
	switch {
	case err == nil:
		return who, nil
	case errors.Is(err, auth.ErrExpired):
		return who, unauthenticated(phrase.TokenExpired.Of(who.Name, expires.Format(time.RFC3339)), phrase.AnotherToken)
	case !errors.Is(err, auth.ErrUnknown):
		return who, storeAway()
	}
	return who, a.slowed(r, unauthenticated(phrase.WrongToken, phrase.CreateToken))
}

// certified checks the client certificate of a worker: a token may be for one alone.
func (a *api) certified(r *http.Request, who service.Caller) (service.Caller, *problem) {
	if !who.IsWorker() {
		return who, nil
	}
	var shown *x509.Certificate
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		shown = r.TLS.VerifiedChains[0][0]
	}
	wanted := who.Terms.Certificate
	switch {
	case shown == nil && wanted != "":
		return who, problemOf(service.Refuse(client.TypeForbidden, phrase.TokenCertMissing.Of(who.Name, wanted), phrase.PresentCertificate))
	case shown == nil && a.WorkerCertificates:
		return who, problemOf(service.Refuse(client.TypeForbidden, phrase.CertMissing, phrase.PresentCertificate))
	case shown == nil:
		return who, nil
	case a.Now().After(shown.NotAfter):
		// The connection is older than that. The next one has the present certificate.
		return who, problemOf(service.Refuse(client.TypeUnauthenticated, phrase.CertExpired.Of(shown.NotAfter.UTC().Format(time.RFC3339)))).
			withHeader("Connection", "close")
	}
	names := auth.CertificateNames(shown)
	if wanted == "" {
		if len(names) > 0 {
			who.Certificate = names[0]
		}
		return who, nil
	}
	if who.Certificate = auth.NameOfCertificate(shown, wanted); who.Certificate == "" {
		return who, problemOf(service.Refuse(client.TypeForbidden, phrase.TokenOtherCert.Of(who.Name, wanted, names)))
	}
	return who, nil
}

// holderOf returns the owner of a request's session.
func (a *api) holderOf(r *http.Request, secret string) (service.Caller, *problem) {
	if !auth.IsSameOrigin(r) {
		return service.Caller{}, problemOf(service.Refuse(client.TypeCrossOrigin, phrase.OfPagesAlone, phrase.SendToken))
	}
	holder, err := a.Sessions.Holder(r.Context(), secret)
	switch {
	case err == nil:
		return service.CallerFor(holder), nil
	case errors.Is(err, auth.ErrUnknown), errors.Is(err, auth.ErrExpired):
		return service.Caller{}, unauthenticated(phrase.SessionHasEnded, phrase.LogInAgain)
	}
	return service.Caller{}, storeAway()
}

// storeAway is the problem of a token that cannot be looked up.
func storeAway() *problem {
	return problemOf(service.Refuse(client.TypeUnavailable, phrase.TokensUnchecked, phrase.NothingWasDone))
}

// tokenWithin is how long a route waits for the store that can do without: it leaves
// most of the 10 s that Prometheus waits for the answer.
const tokenWithin = 2 * time.Second

// whose returns the caller of a secret, and when its token expires.
func (a *api) whose(ctx context.Context, secret string, without bool) (who service.Caller, expires time.Time, err error) {
	asked := ctx
	if without {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tokenWithin)
		defer cancel()
	}
	token, err := a.Tokens.Authenticate(ctx, secret)
	if errors.Is(err, auth.ErrUnknown) && a.SignInAt != "" {
		// A person on a command line has a session. One that stands for a token is a browser's.
		if holder, err := a.Sessions.Holder(ctx, secret); err == nil && holder.Person != nil {
			return service.CallerFor(holder), expires, nil
		}
	}
	if err == nil || errors.Is(err, auth.ErrUnknown) || errors.Is(err, auth.ErrExpired) {
		a.lookups.Saw(nil)
		return service.CallerOf(token), token.Expires, err
	}
	if asked.Err() == nil { // else the caller has given up
		a.lookups.Saw(err)
	}
	if known, ok := a.Tokens.LastKnown(secret); ok && without {
		return service.CallerOf(known), known.Expires, nil
	}
	return service.Caller{}, expires, err
}

func unauthenticated(detail, hint phrase.Text) *problem {
	return problemOf(service.Refuse(client.TypeUnauthenticated, detail, hint))
}

// challenge says how to authenticate.
const challenge = `Bearer realm="belfry"`

// callerKey is the key of the caller in the context of a request.
type callerKey struct{}

// caller returns the caller of a request. The zero Caller may do nothing.
func caller(ctx context.Context) service.Caller {
	who, _ := ctx.Value(callerKey{}).(service.Caller)
	return who
}
