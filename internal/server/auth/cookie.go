package auth

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// cookieName returns the name of the session cookie for a request. A browser sends a __Host- cookie
// only to the host that set it, over TLS. Over plain HTTP on loopback, servers on several ports
// share their cookies, so that the name has the port.
func cookieName(r *http.Request) (name string, secure bool) {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = r.Host, "80"
	}
	address, _ := netip.ParseAddr(host)
	if r.TLS == nil && (host == "localhost" || address.IsLoopback()) {
		return "belfry-" + port, false
	}
	return "__Host-belfry", true
}

// SessionOf returns the secret of the session that a request names, or "".
func SessionOf(r *http.Request) string {
	name, _ := cookieName(r)
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// AddSession adds the secret of a session to a request.
func AddSession(r *http.Request, secret string) {
	name, _ := cookieName(r)
	r.AddCookie(&http.Cookie{Name: name, Value: secret}) //nolint:gosec // it does not leave the process
}

// SetSession sets the session cookie of a browser; "" removes it.
func SetSession(w http.ResponseWriter, r *http.Request, secret string) {
	name, secure := cookieName(r)
	age := int(SessionMax / time.Second)
	if secret == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // secure unless the server speaks plain HTTP
		Name: name, Value: secret, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	})
}

// signInName is the cookie name of a sign-in in progress. Unlike a strict cookie, it is
// sent when the browser returns from the provider.
func signInName(r *http.Request) (name string, secure bool) {
	name, secure = cookieName(r)
	return name + "-sign-in", secure
}

// SignInOf returns the state of a sign-in from [SetSignIn].
func SignInOf(r *http.Request) string {
	name, _ := signInName(r)
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// SetSignIn stores the state of a sign-in in a browser, for a while; "" removes it.
func SetSignIn(w http.ResponseWriter, r *http.Request, value string, lasts time.Duration) {
	name, secure := signInName(r)
	age := int(lasts / time.Second)
	if value == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // secure unless the server speaks plain HTTP
		Name: name, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	})
}

// IsSameOrigin reports whether a browser made a request for a page of this server. Requests without
// a cookie do not need that: they are not a browser's.
func IsSameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && origin.Host == r.Host
}
