// Package signin signs people in at an OpenID provider: it redirects a browser there, checks the
// browser's return, and determines the person's rights. Package auth keeps the sessions.
//
// It uses the authorization code flow with PKCE, state and nonce. The state of a sign-in is in a
// cookie, so that the browser may return to any node. It is sealed with a key derived from the
// client secret, which all nodes have.
package signin

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/store"
)

const (
	// Within is how long a sign-in may take: a person may need to find a second factor.
	Within = 10 * time.Minute
	// requestTime bounds a request to the provider: a person waits for it.
	requestTime = 10 * time.Second
	// answerMax bounds an answer of the provider: a token with hundreds of groups has some ten
	// kilobytes.
	answerMax = 1 << 20
	// finishingMax bounds the concurrently finishing sign-ins, and finishingFrom the ones of one
	// address: anyone can start one, and each makes this node call the provider.
	finishingMax  = 16
	finishingFrom = 4
	// finishingWait is how long a sign-in waits for its turn: the person sees an empty page.
	finishingWait = 5 * time.Second
	// usedMax bounds the cached used cookies, each of which stands for a requested page.
	usedMax = 10_000
	// aheadMax is how far the provider's clock may be ahead.
	aheadMax = 5 * time.Minute
	// restMin and restMax bound the backoff after a provider that could not be reached.
	restMin = time.Second
	restMax = time.Minute
	// freshFor is how long the provider's metadata is cached.
	freshFor = time.Hour
	// nextMax bounds the page after the sign-in: it is in a cookie, and cookies have 4 KiB.
	nextMax = 2048
	// nameMax bounds the name of a person in the audit.
	nameMax = 128
	// groupsMax bounds the evaluated groups of a person.
	groupsMax = 1000
)

// Config configures the provider.
type Config struct {
	// Name is the provider's name in the audit.
	Name string
	// Issuer is its address, as its tokens have it.
	Issuer   string
	ClientID string
	// Secret reads the secret of the client. Nil: it has none.
	Secret func(ctx context.Context) (string, error)
	// RedirectURL is where the provider sends browsers back to.
	RedirectURL string
	// Scopes are the requested scopes besides openid.
	Scopes []string
	// GroupsClaim is the claim with the groups of a person. Dots lead into objects.
	GroupsClaim string
	// NameClaim is the claim with the name of a person in the audit. "" is the verified address, or
	// the user name. Any name but a verified address is followed by the subject.
	NameClaim string
	// Lasts is how long a session lasts.
	Lasts time.Duration
	// CA is a file with authorities to trust, "" for the authorities of the system.
	CA string
	// Now is the clock of the machine.
	Now func() time.Time
	Log *slog.Logger
}

// Grant is a role in a namespace, or in all if that is "".
type Grant struct {
	Namespace string
	Role      store.Role
}

// Mapping is the roles of people.
type Mapping struct {
	Groups   map[string][]Grant
	People   map[string][]Grant // by verified mail address, in lower case
	Everyone []Grant            // everyone who signs in
	// Domains of the mail addresses that may sign in; nil for any.
	Domains []string
}

// roles returns the roles of a person, by namespace.
func (m *Mapping) roles(p *store.Person) map[string]store.Role {
	roles := map[string]store.Role{}
	if !m.allows(p.Email) {
		return roles
	}
	add := func(grants []Grant) {
		for _, g := range grants {
			if g.Role.Allows(cmp.Or(roles[g.Namespace], store.RoleViewer)) {
				roles[g.Namespace] = g.Role
			}
		}
	}
	add(m.Everyone)
	if p.Email != "" {
		add(m.People[strings.ToLower(p.Email)])
	}
	for _, group := range p.Groups {
		add(m.Groups[group])
	}
	return roles
}

// allows reports whether a person with a verified address may sign in.
func (m *Mapping) allows(email string) bool {
	_, domain, found := strings.Cut(email, "@")
	return len(m.Domains) == 0 || found && slices.ContainsFunc(m.Domains, func(d string) bool { return strings.EqualFold(d, domain) })
}

// Why a sign-in fails.
var (
	// ErrState is for a browser that returns without a redirect there, or too late.
	ErrState = errors.New("the sign-in did not begin in this browser, or too long ago")
	// ErrBusy is for too many concurrent sign-ins.
	ErrBusy = errors.New("too many people sign in at the same time")
)

// AwayError is why the provider could not be reached.
type AwayError struct{ Err error }

func (e *AwayError) Error() string { return "the provider cannot be reached: " + e.Err.Error() }

// Unwrap returns the error of the request.
func (e *AwayError) Unwrap() error { return e.Err }

// DeniedError is the provider's refusal.
type DeniedError struct{ Code, Text string }

func (e *DeniedError) Error() string {
	return "the provider has refused the sign-in: " + strings.TrimSuffix(e.Code+": "+e.Text, ": ")
}

// InvalidError is a mistake in the provider's answer.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string {
	return "the answer of the provider is not valid: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *InvalidError) Unwrap() error { return e.Err }

// NoRoleError is about a person who may do nothing here.
type NoRoleError struct {
	Person *store.Person
	Groups []string // all groups of the person
	// Domain is set if the address has no allowed domain, or is not verified.
	Domain bool
}

func (e *NoRoleError) Error() string {
	if e.Domain {
		return fmt.Sprintf("%s has no verified mail address of an allowed domain", e.Person.Name)
	}
	return fmt.Sprintf("%s has no role here: none of their groups has one (%s)", e.Person.Name, strings.Join(e.Groups, ", "))
}

// Provider is where people sign in. Its methods may be called from many goroutines. It contacts the
// provider only when necessary.
type Provider struct {
	config    Config
	http      *http.Client
	mapping   atomic.Pointer[Mapping]
	finishing turns
	asking    chan struct{} // of capacity one: locked by the reader of the metadata
	trouble   *failurelog.Log

	mu    sync.Mutex
	used  map[string]time.Time // states of finished sign-ins, and when they began
	found *oidc.Provider
	at    time.Time // when it was read
	err   error     // why it was not read
	rest  time.Duration
	until time.Time // not asked before
}

// New returns a provider. It reads the file of authorities, and connects to nothing.
func New(c Config, m Mapping) (*Provider, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of the provider: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read the authorities of the provider: %s has no certificate in PEM", c.CA)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	p := &Provider{
		config: c, http: &http.Client{Transport: boundedTransport{transport}, Timeout: requestTime},
		finishing: turns{from: map[netip.Prefix]int{}, freed: make(chan struct{})}, asking: make(chan struct{}, 1), used: map[string]time.Time{},
		trouble: failurelog.New(c.Log, "the provider of sign-ins cannot be reached", "the provider of sign-ins is reached again"),
	}
	p.Set(m)
	return p, nil
}

// bounded bounds the answers of the provider.
type boundedTransport struct{ http.RoundTripper }

func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, answerMax), answer.Body}
	}
	return answer, err
}

// Set changes the roles of people. Existing sessions have them from their next request.
func (p *Provider) Set(m Mapping) { p.mapping.Store(&m) }

// Roles implements auth.People.
func (p *Provider) Roles(person *store.Person) map[string]store.Role {
	if person.Provider != p.config.Name {
		return nil
	}
	return p.mapping.Load().roles(person)
}

// Lasts implements auth.People.
func (p *Provider) Lasts() time.Duration { return p.config.Lasts }

// Check returns why the provider cannot be used now, nil if it can.
func (p *Provider) Check(ctx context.Context) error {
	if _, err := p.provider(ctx); err != nil {
		return err
	}
	_, err := p.secret(ctx)
	return err
}

// provider returns the provider's metadata. After a failure it pauses before it retries.
func (p *Provider) provider(ctx context.Context) (*oidc.Provider, error) {
	if found, err, ok := p.known(); ok {
		return found, err
	}
	select {
	case p.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, &AwayError{ctx.Err()}
	}
	defer func() { <-p.asking }()
	if found, err, ok := p.known(); ok {
		return found, err // another caller has read it since
	}
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.http), p.config.Issuer)
	p.trouble.Saw(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.config.Now()
	if err != nil {
		p.err, p.until = &AwayError{err}, now.Add(cmp.Or(p.rest, restMin))
		p.rest = min(2*cmp.Or(p.rest, restMin), restMax)
		if p.found != nil {
			return p.found, nil // the old one may still be valid
		}
		return nil, p.err
	}
	p.found, p.at, p.err, p.rest, p.until = found, now, nil, 0, time.Time{}
	return found, nil
}

// known returns the cached metadata of the provider.
func (p *Provider) known() (found *oidc.Provider, err error, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.config.Now()
	switch age := now.Sub(p.at); {
	case p.found != nil && 0 <= age && age < freshFor:
		return p.found, nil, true
	case now.Before(p.until) && p.found != nil:
		return p.found, nil, true
	case now.Before(p.until):
		return nil, p.err, true
	}
	return nil, nil, false
}

func (p *Provider) secret(ctx context.Context) (string, error) {
	if p.config.Secret == nil {
		return "", nil
	}
	secret, err := p.config.Secret(ctx)
	if err != nil {
		return "", fmt.Errorf("read the client secret: %w", err)
	}
	return secret, nil
}

func (p *Provider) oauth(found *oidc.Provider, secret string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: secret, Endpoint: found.Endpoint(), RedirectURL: p.config.RedirectURL,
		Scopes: append([]string{oidc.ScopeOpenID}, p.config.Scopes...),
	}
}

// attempt is one sign-in of a browser, as its cookie has it.
type attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Next     string `json:"u"`
	Begun    int64  `json:"t"`
}

// Begin returns the provider's address for a browser, and the cookie with which it must return.
// next is the page after that.
func (p *Provider) Begin(ctx context.Context, next string) (address, cookie string, err error) {
	found, err := p.provider(ctx)
	if err != nil {
		return "", "", err
	}
	if len(next) > nextMax {
		next = "/"
	}
	a := attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next, Begun: p.config.Now().Unix()}
	text, err := json.Marshal(a)
	if err != nil {
		return "", "", err
	}
	secret, err := p.secret(ctx)
	if err != nil {
		return "", "", err
	}
	address = p.oauth(found, "").AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier))
	return address, encode(text) + "." + encode(p.seal(secret, text)), nil
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// seal returns a proof that a node with the client secret has made a cookie. A public client has no
// secret, and its cookies prove nothing.
func (p *Provider) seal(secret string, text []byte) []byte {
	key := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(key, "cookie of a sign-in\n%s\n%s", p.config.Issuer, p.config.ClientID)
	seal := hmac.New(sha256.New, key.Sum(nil))
	seal.Write(text)
	return seal.Sum(nil)
}

// attemptOf reads a cookie of Begin.
func (p *Provider) attemptOf(ctx context.Context, cookie string) (a attempt, err error) {
	before, after, _ := strings.Cut(cookie, ".")
	text, err := base64.RawURLEncoding.DecodeString(before)
	if err != nil {
		return a, ErrState
	}
	proof, err := base64.RawURLEncoding.DecodeString(after)
	if err != nil {
		return a, ErrState
	}
	secret, err := p.secret(ctx)
	if err != nil {
		return a, err
	}
	if !hmac.Equal(proof, p.seal(secret, text)) || json.Unmarshal(text, &a) != nil || a.State == "" || a.Nonce == "" || a.Verifier == "" {
		return attempt{}, ErrState
	}
	return a, nil
}

// use reports whether a sign-in is finished for the first time on this node. The provider also
// accepts the code only once.
func (p *Provider) use(a *attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, used := p.used[a.State]; used {
		return false
	}
	if len(p.used) >= usedMax {
		maps.DeleteFunc(p.used, func(_ string, begun time.Time) bool { return p.config.Now().Sub(begun) > Within })
	}
	if len(p.used) >= usedMax {
		return false
	}
	p.used[a.State] = time.Unix(a.Begun, 0)
	return true
}

// turns are the sign-ins that are being finished.
type turns struct {
	mu    sync.Mutex
	n     int
	from  map[netip.Prefix]int
	freed chan struct{} // closed when a turn ends
}

// take waits for a turn, and reports whether it got one. The caller calls done.
func (t *turns) take(ctx context.Context, from netip.Prefix) (done func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, finishingWait)
	defer cancel()
	for {
		t.mu.Lock()
		if t.n < finishingMax && t.from[from] < finishingFrom {
			t.n++
			t.from[from]++
			t.mu.Unlock()
			return func() { t.end(from) }, true
		}
		freed := t.freed
		t.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

func (t *turns) end(from netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.from[from]--; t.from[from] == 0 {
		delete(t.from, from)
	}
	close(t.freed)
	t.freed = make(chan struct{})
}

// Finish returns the person who has returned from the provider with a cookie and a query, and the
// next page, which the caller checks. from are the addresses that count as one.
func (p *Provider) Finish(ctx context.Context, cookie string, query url.Values, from netip.Prefix) (person *store.Person, next string, err error) {
	a, err := p.attemptOf(ctx, cookie)
	if err != nil {
		return nil, "", err
	}
	if age := p.config.Now().Sub(time.Unix(a.Begun, 0)); age > Within || age < -Within {
		return nil, a.Next, ErrState
	}
	if subtle.ConstantTimeCompare([]byte(a.State), []byte(query.Get("state"))) != 1 {
		return nil, a.Next, ErrState
	}
	// An answer that names another issuer is for another client (RFC 9207).
	if iss := query.Get("iss"); iss != "" && iss != p.config.Issuer {
		return nil, a.Next, &InvalidError{fmt.Errorf("it is of the issuer %q", iss)}
	}
	if code := query.Get("error"); code != "" {
		return nil, a.Next, &DeniedError{code, query.Get("error_description")}
	}
	if query.Get("code") == "" || !p.use(&a) {
		return nil, a.Next, ErrState
	}
	done, ok := p.finishing.take(ctx, from)
	if !ok {
		return nil, a.Next, ErrBusy
	}
	defer done()
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.http), 2*requestTime)
	defer cancel()
	person, err = p.exchange(ctx, &a, query.Get("code"))
	return person, a.Next, err
}

// exchange exchanges the code at the provider and reads who the person is.
func (p *Provider) exchange(ctx context.Context, a *attempt, code string) (*store.Person, error) {
	found, err := p.provider(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := p.secret(ctx)
	if err != nil {
		return nil, err
	}
	token, err := p.oauth(found, secret).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused):
		return nil, &InvalidError{fmt.Errorf("it refuses the code: %s", cmp.Or(refused.ErrorCode, refused.Response.Status))}
	case err != nil:
		return nil, &AwayError{err}
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, &InvalidError{errors.New("it has no ID token")}
	}
	id, err := found.VerifierContext(ctx, &oidc.Config{ClientID: p.config.ClientID, Now: p.config.Now}).Verify(ctx, raw)
	if err != nil {
		return nil, &InvalidError{err}
	}
	if id.Subject == "" {
		return nil, &InvalidError{errors.New("its ID token names no subject")}
	}
	if ahead := id.IssuedAt.Sub(p.config.Now()); ahead > aheadMax {
		return nil, &InvalidError{fmt.Errorf("its ID token was issued %s from now", ahead.Round(time.Second))}
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.Nonce)) != 1 {
		return nil, &InvalidError{errors.New("its nonce is that of another sign-in")}
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, &InvalidError{err}
		}
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return nil, &InvalidError{err}
	}
	if azp, ok := claims["azp"]; ok && azp != p.config.ClientID || !ok && len(id.Audience) > 1 {
		return nil, &InvalidError{fmt.Errorf("the ID token is for the client %v", azp)}
	}
	// Providers may keep long claims out of the token.
	if _, has := claimOf(claims, p.config.GroupsClaim); (!has || claims["email"] == nil) && found.UserInfoEndpoint() != "" {
		if err := p.moreOf(ctx, found, token, id.Subject, claims); err != nil {
			return nil, err
		}
	}
	return p.personOf(id.Subject, claims)
}

// moreOf adds the provider's claims about a person besides the token.
func (p *Provider) moreOf(ctx context.Context, found *oidc.Provider, token *oauth2.Token, subject string, claims map[string]any) error {
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return &AwayError{err}
	}
	if info.Subject != subject {
		return &InvalidError{errors.New("the token and what is said of its person are about two")}
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return &InvalidError{err}
	}
	// An address and its verification must have one source.
	email, has := claims["email"]
	_, decided := claims["email_verified"]
	switch {
	case !has:
		delete(claims, "email_verified")
	case decided, email != more["email"]:
		delete(more, "email")
		delete(more, "email_verified")
	}
	for name, value := range more {
		if _, has := claims[name]; !has {
			claims[name] = value
		}
	}
	return nil
}

// personOf reads who a person is. It refuses one who may do nothing.
func (p *Provider) personOf(subject string, claims map[string]any) (*store.Person, error) {
	text := func(claim string) string {
		value, _ := claimOf(claims, claim)
		words, _ := value.(string)
		return words
	}
	person := &store.Person{Provider: p.config.Name, Subject: subject}
	// Some providers write it as a text.
	if verified := claims["email_verified"]; verified == true || verified == "true" {
		person.Email = text("email")
	}
	words := cmp.Or(person.Email, text("preferred_username"))
	if p.config.NameClaim != "" {
		words = text(p.config.NameClaim)
	}
	person.Name = nameOf(words, person.Email, subject)
	value, _ := claimOf(claims, p.config.GroupsClaim)
	all := textsOf(value)
	mapping := p.mapping.Load()
	for _, group := range all {
		if _, known := mapping.Groups[group]; known && !slices.Contains(person.Groups, group) {
			person.Groups = append(person.Groups, group)
		}
	}
	if len(p.Roles(person)) == 0 {
		return nil, &NoRoleError{Person: person, Groups: all, Domain: !mapping.allows(person.Email)}
	}
	return person, nil
}

// nameOf returns the name of a person in the audit: the verified address, or the provider's name with
// the subject, since people can choose other people's names at many providers. Only subjects with one
// verified address share a name.
func nameOf(text, verified, subject string) string {
	if text != "" && text == verified && text == shownName(text, nameMax) && strings.Contains(text, "@") && !strings.Contains(text, "#") {
		return text
	}
	if subject != shownName(subject, nameMax/2) {
		sum := sha256.Sum256([]byte(subject))
		subject = "sha256-" + hex.EncodeToString(sum[:16])
	}
	text = shownName(text, nameMax/2-1)
	switch {
	case text != "" && text != subject && !strings.ContainsAny(text, "@#"):
		return text + "#" + subject
	case strings.ContainsAny(subject, "@#"):
		return "#" + subject // it must not look like an address or a name
	}
	return subject
}

// shownName returns a name that can be shown on one line.
func shownName(name string, most int) string {
	name = strings.Join(strings.FieldsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if runes := []rune(name); len(runes) > most {
		name = string(runes[:most])
	}
	return name
}

// claimOf returns a claim by its name, or by the path to it.
func claimOf(claims map[string]any, path string) (value any, has bool) {
	if value, has = claims[path]; has {
		return value, true
	}
	first, rest, found := strings.Cut(path, ".")
	inner, ok := claims[first].(map[string]any)
	if !found || !ok {
		return nil, false
	}
	return claimOf(inner, rest)
}

// textsOf returns the texts of a claim, which may be one or a list.
func textsOf(value any) (list []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v[:min(len(v), groupsMax)] {
			if text, ok := one.(string); ok {
				list = append(list, text)
			}
		}
	}
	return list
}
