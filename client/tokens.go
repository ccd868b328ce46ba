package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Role is the set of rights of a token.
type Role string

// The roles; each includes the rights of the previous ones.
const (
	RoleViewer Role = "viewer" // reads
	RoleRunner Role = "runner" // runs and cancels defined jobs
	RoleAdmin  Role = "admin"  // defines
	RoleWorker Role = "worker" // only runs jobs, as a worker without a store
)

// Token is a token, without the secret.
type Token struct {
	Name      string    `json:"name" doc:"The name of the token, which is who its holder is in the audit."`
	Role      Role      `json:"role" enum:"viewer,runner,admin,worker" doc:"What its holder may do: a viewer reads, a runner also runs, cancels and retries, an admin does everything but the part of a worker. A worker takes runs and reports on them, and does nothing else."`
	Namespace string    `json:"namespace,omitempty" doc:"The namespace that it is for; all, if there is none."`
	Created   time.Time `json:"created" doc:"When it was made."`
	By        string    `json:"by" doc:"Who made it."`
	Expires   time.Time `json:"expires,omitzero" doc:"When it expires, if it does."`
	Expired   bool      `json:"expired,omitempty" doc:"It is not valid any more."`
	LastUsed  time.Time `json:"last_used,omitzero" doc:"When it was last used, to the hour. Missing: never."`
	// Labels, Certificate and Joins are of tokens of workers.
	Labels      []string `json:"labels,omitempty" nullable:"false" doc:"The labels that workers with it may have, as key=value or key=*. Missing: any."`
	Certificate string   `json:"certificate,omitempty" doc:"The name that the client certificate of its worker must have."`
	Joins       *int     `json:"joins,omitempty" doc:"Of a joining token: how many workers may still exchange it for tokens of their own. It is good for nothing else."`
}

// TokenRequest requests a token.
type TokenRequest struct {
	Name      string `json:"name" minLength:"1" maxLength:"128" pattern:"^[a-z0-9][a-z0-9._-]*$" patternDescription:"a name: small letters, digits, and dots, dashes and underscores behind the first" doc:"Its name."`
	Role      Role   `json:"role" enum:"viewer,runner,admin,worker" doc:"What its holder may do."`
	Namespace string `json:"namespace,omitempty" maxLength:"128" pattern:"^[a-z0-9][a-z0-9._-]*$" patternDescription:"the name of a namespace, which has small letters, digits, and dots, dashes and underscores behind the first" doc:"The namespace that it is for. Default: all."`
	// ExpiresIn counts from now, by the store's clock. It has the form of durations in
	// job files.
	ExpiresIn string `json:"expires_in,omitempty" minLength:"1" doc:"How long it is valid, such as 30d. Default: until it is revoked; one hour for a joining token."`
	// The following fields are for tokens of workers.
	Labels      []string `json:"labels,omitempty" nullable:"false" maxItems:"64" doc:"The labels that workers with it may have, as key=value or key=*. Default: any."`
	Certificate string   `json:"certificate,omitempty" maxLength:"256" doc:"The name that the client certificate of its worker must have: a subject or an alternative name. *. at the beginning stands for one label of a host name. Default: no certificate is needed."`
	Joins       int      `json:"joins,omitempty" minimum:"0" maximum:"1000" doc:"Makes a joining token, which this number of workers exchange for tokens of their own. Default: it is no joining token."`
}

// NewToken is a token that was just created.
type NewToken struct {
	Token
	// Secret is only shown here: the server keeps a hash of it.
	Secret string `json:"secret" doc:"The token itself. It is shown this once."`
	// Warnings say what the token does not isolate.
	Warnings []string `json:"warnings,omitempty" nullable:"false" doc:"What is allowed and yet probably not meant: a namespace whose jobs run as the user of the server."`
}

// Tokens returns all tokens by name.
func (c *Client) Tokens(ctx context.Context) (Page[Token], error) {
	var page Page[Token]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/tokens", answer: &page})
}

// CreateToken creates a token.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (NewToken, error) {
	var token NewToken
	return token, c.do(ctx, call{method: http.MethodPost, path: "/tokens", body: r, answer: &token})
}

// RevokeToken ends a token: at once on the called server, within a second on other servers of the
// store.
func (c *Client) RevokeToken(ctx context.Context, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/tokens/" + url.PathEscape(name)})
}

// Session is the session of a person who has signed in at an OpenID provider.
type Session struct {
	Person  string    `json:"person" doc:"The name of the person in the audit, such as sso:ann@example.com."`
	Subject string    `json:"subject" doc:"The identity of the person at the provider, which stays the same when the name changes."`
	Begun   time.Time `json:"begun" doc:"When the person signed in."`
	Expires time.Time `json:"expires" doc:"When the session ends unless it is used before."`
}

// SessionsEnded is the answer to the end of a person's sessions.
type SessionsEnded struct {
	Ended int `json:"ended" doc:"How many sessions were ended."`
}

// Sessions returns the sessions of people, by person.
func (c *Client) Sessions(ctx context.Context) (Page[Session], error) {
	var page Page[Session]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/sessions", answer: &page})
}

// EndSessions ends all sessions of a person: at once on the called server, within a second on other
// servers of the store.
func (c *Client) EndSessions(ctx context.Context, person string) (SessionsEnded, error) {
	var ended SessionsEnded
	return ended, c.do(ctx, call{method: http.MethodDelete, path: "/sessions/" + url.PathEscape(person), answer: &ended})
}

// SignIn describes how a person signs in on a command line.
type SignIn struct {
	URL string `json:"url" doc:"The page to open in a browser, with the parameters challenge, which is the SHA-256 of a verifier in base64url, state and, for a command that listens on 127.0.0.1, port. The page sends the browser there with code and state, or shows the code."`
}

// SignInCode begins a session.
type SignInCode struct {
	Code     string `json:"code" minLength:"1" maxLength:"128" doc:"The code of the page."`
	Verifier string `json:"verifier" minLength:"43" maxLength:"128" doc:"The verifier of the challenge."`
}

// NewSession is a new session.
type NewSession struct {
	// Secret is only shown here: the server keeps a hash of it.
	Secret  string    `json:"secret" doc:"It is sent like a token. It is shown this once."`
	Person  string    `json:"person" doc:"The name of the person in the audit, such as sso:ann@example.com."`
	Roles   string    `json:"roles" doc:"What the person may do, in words."`
	Expires time.Time `json:"expires" doc:"When the session ends at the latest. It ends before if it is not used for 12 hours."`
}

// SignIn returns how a person signs in on a command line. It needs no token.
func (c *Client) SignIn(ctx context.Context) (SignIn, error) {
	var how SignIn
	return how, c.do(ctx, call{method: http.MethodGet, path: "/sign-in", answer: &how})
}

// BeginSession begins the session of a person with a code, once. It needs no token.
func (c *Client) BeginSession(ctx context.Context, code SignInCode) (NewSession, error) {
	var session NewSession
	return session, c.do(ctx, call{method: http.MethodPost, path: "/sign-in", body: code, answer: &session})
}

// EndSession ends the session that this client has in place of a token: at once on the called
// server, within a second on other servers of the store.
func (c *Client) EndSession(ctx context.Context) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/sign-in"})
}

// LoginCode is a one-time code that logs a browser in.
type LoginCode struct {
	Code    string    `json:"code" doc:"The code: open /ui/login with it as the fragment."`
	Expires time.Time `json:"expires" doc:"Until when it is valid."`
}

// LoginCode creates a code that logs a browser in as the caller. The code belongs in the
// fragment of an address, /ui/login#CODE, so that no log contains it.
func (c *Client) LoginCode(ctx context.Context) (LoginCode, error) {
	var code LoginCode
	return code, c.do(ctx, call{method: http.MethodPost, path: "/sessions:code", answer: &code})
}
