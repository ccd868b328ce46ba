package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// SessionIdle ends an unused session: it lasts over a night, not over a weekend.
	SessionIdle = 12 * time.Hour
	// SessionMax ends any session, so that a stolen cookie is of no use for long.
	SessionMax = 7 * 24 * time.Hour
	// CodeFor is how long a login code is valid: a browser starts within it.
	CodeFor = time.Minute
	// extendAfter is how often the use of a session is written: the session may end that much
	// before its idle time.
	extendAfter = time.Hour
	// tidyMax bounds how many ended sessions a login removes while it waits.
	tidyMax = 20
)

// Sessions are the sessions of browsers. The store keeps each as a stand-in for a token, so that a
// browser may use any node. It has only the hashes of session and token, which grant no access. A
// session has no rights of its own: its token is looked up for each request. Its methods may be
// called from many goroutines.
type Sessions struct {
	tokens *Tokens
	people People // nil: tokens only

	mu       sync.Mutex
	extended map[store.TokenHash]time.Time // when this node last extended each session
}

// extendedMax bounds the cache of extensions; a dropped session is extended once more.
const extendedMax = store.SessionsMax

// NewSessions returns the sessions for tokens and, unless nil, for people.
func NewSessions(tokens *Tokens, people People) *Sessions {
	return &Sessions{tokens: tokens, people: people, extended: map[store.TokenHash]time.Time{}}
}

// People are the rights of people who sign in at a provider.
type People interface {
	// Roles returns the roles of a person by namespace, "" for all namespaces. It is called for
	// each request, so that changes of the configuration apply at once.
	Roles(p *store.Person) map[string]store.Role
	// Lasts is how long a session of a person lasts, used or not.
	Lasts() time.Duration
}

// Holder is who has a session: the holder of a token, or a person.
type Holder struct {
	store.Token                       // for a person: the session, with the person's name
	Roles       map[string]store.Role // for a person, by namespace
}

// RolesInWords writes roles by namespace.
func RolesInWords(roles map[string]store.Role) string {
	var list []string
	for _, namespace := range slices.Sorted(maps.Keys(roles)) {
		if namespace == "" {
			list = append(list, string(roles[""])+" in all namespaces")
		} else {
			list = append(list, string(roles[namespace])+" in "+namespace)
		}
	}
	return strings.Join(list, ", ")
}

// inName writes the hash of a token.
func inName(token store.TokenHash) string { return base64.RawURLEncoding.EncodeToString(token[:]) }

// standsFor returns the hash of the token behind a session or code.
func standsFor(t *store.Token) (hash store.TokenHash, ok bool) {
	role, rest, _ := strings.Cut(t.Name, "/")
	text, _, _ := strings.Cut(rest, "/")
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) != len(hash) || role != string(t.Role) || !t.Role.StandsIn() {
		return hash, false
	}
	return store.TokenHash(data), true
}

// Begin makes a session for a token and returns its secret.
func (s *Sessions) Begin(ctx context.Context, token store.TokenHash) (secret string, err error) {
	return s.add(ctx, store.PutToken{Name: string(store.RoleSession) + "/" + inName(token), Role: store.RoleSession, Lasts: SessionIdle})
}

// BeginPerson creates a session for a person and returns its secret. If another person has a
// session under this name, as with a reassigned address, the name gets the subject added. The audit
// names the person.
func (s *Sessions) BeginPerson(ctx context.Context, p *store.Person) (secret string, err error) {
	list, err := s.tokens.store.Tokens(ctx)
	if err != nil {
		return "", err
	}
	named := *p
	if slices.ContainsFunc(list, func(t store.Token) bool {
		return t.Person != nil && t.Person.Provider == p.Provider && t.Person.Subject != p.Subject && strings.EqualFold(t.Person.Name, p.Name)
	}) {
		named.Name += "#" + p.Subject
	}
	return s.beginPerson(ctx, &named, s.people.Lasts(), reason.SessionBegun.Of)
}

// beginPerson creates a session that lasts at most for a time. begun returns the detail of the audit.
func (s *Sessions) beginPerson(ctx context.Context, p *store.Person, most time.Duration, begun func(roles, subject, provider string) job.Reason) (secret string, err error) {
	return s.add(ctx, store.PutToken{
		Name: string(store.RoleSession) + "/" + personSession, Role: store.RoleSession, Lasts: min(SessionIdle, most), Terms: store.Terms{Person: p},
		Said: begun(RolesInWords(s.people.Roles(p)), p.Subject, p.Provider),
	})
}

// signedIn returns when the person of a session signed in.
func signedIn(session *store.Token) time.Time {
	if at := session.Person.SignedIn; !at.IsZero() {
		return at
	}
	return session.Created
}

// Challenge returns the challenge of a command's verifier, as PKCE defines it with S256 (RFC 7636).
func Challenge(verifier string) string { return inName(HashOf(verifier)) }

// ErrChallenge is about a malformed challenge.
var ErrChallenge = errors.New("the challenge is not one of S256")

// Approve creates a code for a command's own session of the same person, for one use within
// [CodeFor]. Only a command with the verifier of the challenge can use it.
func (s *Sessions) Approve(ctx context.Context, secret, challenge string) (code string, err error) {
	if sum, err := base64.RawURLEncoding.DecodeString(challenge); err != nil || len(sum) != sha256.Size || challenge != base64.RawURLEncoding.EncodeToString(sum) {
		return "", ErrChallenge
	}
	holder, err := s.Holder(ctx, secret)
	if err != nil {
		return "", err
	}
	if holder.Person == nil {
		return "", ErrUnknown
	}
	person := *holder.Person
	person.SignedIn = signedIn(&holder.Token)
	return s.add(ctx, store.PutToken{Name: string(store.RoleCode) + "/" + challenge, Role: store.RoleCode, Lasts: CodeFor, Terms: store.Terms{Person: &person}})
}

// BeginCommand creates the session of a command for the code of Approve. It ends at the latest when
// a session from the person's sign-in would. The error is [ErrUnknown] or one of the store.
func (s *Sessions) BeginCommand(ctx context.Context, code, verifier string) (secret string, holder Holder, ends time.Time, err error) {
	token, err := s.tokens.lately(ctx, HashOf(code))
	if errors.Is(err, ErrUnknown) {
		// Another node may have created the code since the last read of this one.
		select {
		case <-time.After(reread):
		case <-ctx.Done():
			return "", Holder{}, ends, ctx.Err()
		}
		token, err = s.tokens.lately(ctx, HashOf(code))
	}
	if errors.Is(err, ErrExpired) || err == nil && (token.Role != store.RoleCode || token.Person == nil || s.people == nil) {
		err = ErrUnknown
	}
	if err != nil {
		return "", Holder{}, ends, err
	}
	_, rest, _ := strings.Cut(token.Name, "/")
	challenge, _, _ := strings.Cut(rest, "/")
	if subtle.ConstantTimeCompare([]byte(challenge), []byte(Challenge(verifier))) != 1 {
		return "", Holder{}, ends, ErrUnknown
	}
	now, err := s.tokens.storeNow(ctx)
	if err != nil {
		return "", Holder{}, ends, err
	}
	if err := s.spend(ctx, &token); err != nil {
		return "", Holder{}, ends, err
	}
	ends = token.Person.SignedIn.Add(s.people.Lasts())
	if len(s.people.Roles(token.Person)) == 0 || !now.Before(ends) {
		return "", Holder{}, ends, ErrUnknown
	}
	if secret, err = s.beginPerson(ctx, token.Person, ends.Sub(now), reason.CommandBegun.Of); err != nil {
		return "", Holder{}, ends, err
	}
	holder, err = s.Holder(ctx, secret)
	return secret, holder, ends, err
}

// personSession is in the name of a session in place of the hash of a token.
const personSession = "person"

// NewCode creates a code that begins a session for a token once, within [CodeFor].
func (s *Sessions) NewCode(ctx context.Context, token store.TokenHash) (code string, err error) {
	return s.add(ctx, store.PutToken{Name: string(store.RoleCode) + "/" + inName(token), Role: store.RoleCode, Lasts: CodeFor})
}

// add adds a stand-in for a token or a person. Its name includes the token's hash, since a later
// token may have the same name.
func (s *Sessions) add(ctx context.Context, put store.PutToken) (secret string, err error) {
	random := make([]byte, tokenBytes)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("create a session: %w", err)
	}
	secret = base64.RawURLEncoding.EncodeToString(random)
	put.Hash, put.Actor = HashOf(secret), system
	put.Name += "/" + base64.RawURLEncoding.EncodeToString(put.Hash[:8]) // distinguishes sessions
	defer s.tokens.Forget()
	if err := s.tidy(ctx, false); err != nil {
		return "", err
	}
	_, err = s.tokens.store.PutToken(ctx, put)
	if errors.Is(err, store.ErrLimit) {
		if err := s.tidy(ctx, true); err != nil {
			return "", err
		}
		_, err = s.tokens.store.PutToken(ctx, put)
	}
	return secret, err
}

// tidy removes expired sessions and codes, and with room also the least recently used one.
func (s *Sessions) tidy(ctx context.Context, room bool) error {
	now, err := s.tokens.store.Now(ctx)
	if err != nil {
		return err
	}
	list, err := s.tokens.store.Tokens(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(t store.Token) bool { return !t.Role.StandsIn() })
	slices.SortFunc(list, func(a, b store.Token) int { return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Name, b.Name)) })
	for i := range list[:min(len(list), tidyMax)] {
		if list[i].Valid(now) && (!room || i > 0) {
			break
		}
		if err := s.remove(ctx, list[i].Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sessions) remove(ctx context.Context, name string) error {
	err := s.tokens.store.DeleteToken(ctx, name, system)
	if errors.Is(err, store.ErrNotFound) {
		return nil // another node was first
	}
	return err
}

// Redeem returns the token of a code, once. The error is [ErrUnknown], [ErrExpired] or one of the
// store.
func (s *Sessions) Redeem(ctx context.Context, code string) (store.Token, error) {
	token, err := s.tokens.lately(ctx, HashOf(code))
	if errors.Is(err, ErrExpired) || err == nil && (token.Role != store.RoleCode || token.Person != nil) {
		return store.Token{}, ErrUnknown
	}
	if err != nil {
		return store.Token{}, err
	}
	if err := s.spend(ctx, &token); err != nil {
		return store.Token{}, err
	}
	return s.principal(ctx, &token)
}

// spend removes a code. The caller that removes it redeems it; others get [ErrUnknown].
func (s *Sessions) spend(ctx context.Context, code *store.Token) error {
	defer s.tokens.Forget()
	err := s.tokens.store.DeleteToken(ctx, code.Name, system)
	if errors.Is(err, store.ErrNotFound) {
		return ErrUnknown
	}
	return err
}

// principal returns the token behind a stand-in.
func (s *Sessions) principal(ctx context.Context, t *store.Token) (store.Token, error) {
	hash, ok := standsFor(t)
	if !ok {
		return store.Token{}, ErrUnknown
	}
	token, err := s.tokens.ByHash(ctx, hash)
	if token.Role.StandsIn() {
		return store.Token{}, ErrUnknown
	}
	return token, err
}

// Holder returns the holder of a session, and counts as its use. The error is [ErrUnknown],
// [ErrExpired] if the token has expired, or one of the store.
func (s *Sessions) Holder(ctx context.Context, secret string) (Holder, error) {
	session, err := s.tokens.lately(ctx, HashOf(secret))
	if errors.Is(err, ErrExpired) || err == nil && session.Role != store.RoleSession {
		return Holder{}, ErrUnknown
	}
	if err != nil {
		return Holder{}, err
	}
	if session.Person != nil {
		return s.person(ctx, session)
	}
	token, err := s.principal(ctx, &session)
	if err == nil {
		s.tokens.note(ctx, &token)
		s.extend(ctx, &session, session.Created.Add(SessionMax))
	}
	return Holder{Token: token}, err
}

// person returns the person of a session.
func (s *Sessions) person(ctx context.Context, session store.Token) (Holder, error) {
	if s.people == nil {
		return Holder{}, ErrUnknown
	}
	now, err := s.tokens.storeNow(ctx)
	if err != nil {
		return Holder{}, err
	}
	roles := s.people.Roles(session.Person)
	since := signedIn(&session)
	if len(roles) == 0 || now.Sub(since) >= s.people.Lasts() {
		return Holder{}, ErrUnknown
	}
	s.extend(ctx, &session, since.Add(s.people.Lasts()))
	session.Name = session.Person.Actor()
	return Holder{Token: session, Roles: roles}, nil
}

// extend writes that a session is used, unless that was written lately. When it fails, the next
// use tries again. The session ends by ends in any case.
func (s *Sessions) extend(ctx context.Context, session *store.Token, ends time.Time) {
	now, err := s.tokens.storeNow(ctx)
	lasts := min(SessionIdle, ends.Sub(now))
	if err != nil || session.Expires.Sub(now) > lasts-extendAfter || lasts <= 0 {
		return
	}
	s.mu.Lock()
	last, known := s.extended[session.Hash]
	begun := known && now.Sub(last) < extendAfter
	if !begun {
		if len(s.extended) >= extendedMax {
			clear(s.extended)
		}
		s.extended[session.Hash] = now
	}
	s.mu.Unlock()
	if begun {
		return
	}
	if _, err := s.tokens.store.PutToken(ctx, store.PutToken{
		Name: session.Name, Hash: session.Hash, Role: session.Role, Lasts: lasts, Extend: true, Actor: system,
	}); err != nil {
		s.mu.Lock()
		delete(s.extended, session.Hash)
		s.mu.Unlock()
		return
	}
	s.tokens.Forget()
}

// End ends a session, on all nodes within a second.
func (s *Sessions) End(ctx context.Context, secret string) error {
	return s.EndByHash(ctx, HashOf(secret))
}

// EndByHash is End for a session whose secret is not at hand.
func (s *Sessions) EndByHash(ctx context.Context, hash store.TokenHash) error {
	session, err := s.tokens.lately(ctx, hash)
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrExpired) {
		return nil
	}
	if err != nil || session.Role != store.RoleSession {
		return err
	}
	defer s.tokens.Forget()
	return s.remove(ctx, session.Name)
}

// EndAll ends all sessions of who has this one, on all nodes within a second.
func (s *Sessions) EndAll(ctx context.Context, secret string) error {
	session, err := s.tokens.lately(ctx, HashOf(secret))
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrExpired) {
		return nil
	}
	if err != nil || session.Role != store.RoleSession {
		return err
	}
	list, err := s.tokens.store.Tokens(ctx)
	if err != nil {
		return err
	}
	defer s.tokens.Forget()
	for i := range list {
		if t := &list[i]; t.Role.StandsIn() && haveOneHolder(t, &session) { // a code would begin another session
			if err := s.remove(ctx, t.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Session is a session without its secret.
type Session struct {
	ID       string // a part of Name
	Name     string // in the store
	Holder   string // the token or the person
	Provider string // that the person signed in at; "" for a token
	Subject  string // the identity of the person there
	Begun    time.Time
	Ends     time.Time // unless it is used before
	Hash     store.TokenHash
}

// SessionsAmong returns the valid sessions among all tokens of a store, the latest first.
func SessionsAmong(tokens []store.Token, now time.Time) (sessions []Session) {
	names := map[store.TokenHash]string{}
	for i := range tokens {
		names[tokens[i].Hash] = tokens[i].Name
	}
	for i := range tokens {
		t := &tokens[i]
		if t.Role != store.RoleSession || !t.Valid(now) {
			continue
		}
		one := Session{ID: t.Name[strings.LastIndex(t.Name, "/")+1:], Name: t.Name, Begun: t.Created, Ends: t.Expires, Hash: t.Hash}
		if t.Person != nil {
			one.Holder, one.Provider, one.Subject, one.Begun = t.Person.Actor(), t.Person.Provider, t.Person.Subject, signedIn(t)
		} else if token, ok := standsFor(t); ok {
			one.Holder = names[token]
		}
		if one.Holder != "" { // its token is revoked
			sessions = append(sessions, one)
		}
	}
	slices.SortFunc(sessions, func(a, b Session) int { return cmp.Or(b.Begun.Compare(a.Begun), cmp.Compare(a.ID, b.ID)) })
	return sessions
}

// haveOneHolder reports whether two sessions are of the same token or person.
func haveOneHolder(a, b *store.Token) bool {
	if a.Person != nil || b.Person != nil {
		return a.Person != nil && b.Person != nil && a.Person.Provider == b.Person.Provider && a.Person.Subject == b.Person.Subject
	}
	one, isOne := standsFor(a)
	other, isOther := standsFor(b)
	return isOne && isOther && one == other
}

// FormToken returns the token in the forms of a session, which a page of another site cannot know.
func FormToken(secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("form"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// IsFormToken reports whether a form belongs to a session.
func IsFormToken(secret, token string) bool {
	return hmac.Equal([]byte(FormToken(secret)), []byte(token))
}
