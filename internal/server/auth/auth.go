// Package auth authenticates callers of a server: it creates and recognizes tokens, and counts
// failed guesses. It does not decide what a caller may do.
//
// A token is 256 random bits, so guessing is hopeless and a plain SHA-256 suffices: the store keeps
// the hashes, and looks up a token by its hash, whose timing reveals nothing about the token. The
// file token in the data directory has the first token itself, for commands of its user to read or
// move elsewhere; the server does not need it.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// tokenPrefix identifies a token to people and secret scanners.
const tokenPrefix = "belfry_"

// tokenBytes are 256 bits.
const tokenBytes = 32

// NewSecret makes a token.
func NewSecret() (string, error) {
	secret := make([]byte, tokenBytes)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("create a token: %w", err)
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(secret), nil
}

// isSecret reports whether a text has the form of [NewSecret]: a secret chosen by a person
// can be guessed.
func isSecret(text string) bool {
	random, found := strings.CutPrefix(text, tokenPrefix)
	data, err := base64.RawURLEncoding.DecodeString(random)
	return found && err == nil && len(data) == tokenBytes
}

// HashOf returns the stored hash of a token.
func HashOf(secret string) store.TokenHash { return sha256.Sum256([]byte(secret)) }

// Why a token is refused.
var (
	ErrUnknown = errors.New("invalid token")
	ErrExpired = errors.New("the token has expired")
)

// Store is the token part of a store.
type Store interface {
	PutToken(ctx context.Context, p store.PutToken) (store.Token, error)
	DeleteToken(ctx context.Context, name, actor string) error
	Tokens(ctx context.Context) ([]store.Token, error)
	Now(ctx context.Context) (time.Time, error)
}

// freshFor is how long a read is cached: a token that was revoked on another node is
// refused here within that time.
const freshFor = time.Second

// knownFor is how long LastKnown uses the cache: longer than usual outages of a store, but so short
// that a revoked token expires on a node without its store.
const knownFor = 24 * time.Hour

// Tokens recognises tokens. It caches the tokens of the store, at most [store.TokensMax], so that
// guesses cost the store nothing. Its methods may be called from many goroutines.
type Tokens struct {
	store   Store
	now     func() time.Time
	known   atomic.Pointer[contents]
	changes atomic.Int64  // number of changes through this node
	reading chan struct{} // locked by the reader of the store
	// failed counts failures to authenticate at the API and at the web UI.
	failed Failures

	mu    sync.Mutex
	noted map[store.TokenHash]time.Time // when this node last wrote the use of a token
}

// contents is the cached content of the store.
type contents struct {
	byHash  map[store.TokenHash]store.Token
	changes int64     // changes at the beginning of the read
	asked   time.Time // beginning of the read, by the clock of this process
	now     time.Time // the same by the clock of the store
}

// New returns the tokens of a store. now is the clock of the process; nil is the machine's.
func New(s Store, now func() time.Time) *Tokens {
	if now == nil {
		now = time.Now
	}
	return &Tokens{store: s, now: now, reading: make(chan struct{}, 1)}
}

// Failed counts a failure to authenticate, see [Failures.Add].
func (t *Tokens) Failed(address netip.Addr, now time.Time) (wait time.Duration, first bool) {
	return t.failed.Add(address, now)
}

// Authenticate returns the token of a secret. The error is [ErrUnknown], [ErrExpired], together
// with the token, or one of the store. A session or a login code is not a token: only
// [Sessions] knows its token.
func (t *Tokens) Authenticate(ctx context.Context, secret string) (store.Token, error) {
	token, err := t.ByHash(ctx, HashOf(secret))
	if token.Role.StandsIn() {
		return store.Token{}, ErrUnknown
	}
	if err == nil {
		t.note(ctx, &token)
	}
	return token, err
}

// usedEvery is the minimum time between two writes of a token's use: few writes, and enough to see
// which tokens are in use.
const usedEvery = time.Hour

// note records the use of a token, unless that was done recently. After a failure it tries again
// after that time: the use of a token must not wait for it.
func (t *Tokens) note(ctx context.Context, token *store.Token) {
	now, err := t.storeNow(ctx)
	if err != nil || !token.LastUsed.IsZero() && now.Sub(token.LastUsed) < usedEvery {
		return
	}
	t.mu.Lock()
	last, known := t.noted[token.Hash]
	done := known && 0 <= now.Sub(last) && now.Sub(last) < usedEvery
	if !done {
		if t.noted == nil || len(t.noted) >= store.TokensMax {
			t.noted = map[store.TokenHash]time.Time{}
		}
		t.noted[token.Hash] = now
	}
	t.mu.Unlock()
	if !done {
		_, _ = t.store.PutToken(ctx, store.PutToken{Name: token.Name, Hash: token.Hash, Used: true, Actor: system})
	}
}

// ByHash is Authenticate for a hash, to check that a token is still valid.
func (t *Tokens) ByHash(ctx context.Context, hash store.TokenHash) (store.Token, error) {
	k, err := t.current(ctx)
	if err != nil {
		return store.Token{}, err
	}
	token, ok := k.byHash[hash]
	if !ok {
		return store.Token{}, ErrUnknown
	}
	if !token.Valid(k.now.Add(t.now().Sub(k.asked))) {
		return token, ErrExpired
	}
	return token, nil
}

// LastKnown is Authenticate from the cache, for the most urgent requests while the store
// does not answer.
func (t *Tokens) LastKnown(secret string) (store.Token, bool) {
	k := t.known.Load()
	if k == nil || k.changes != t.changes.Load() {
		return store.Token{}, false
	}
	age := t.now().Sub(k.asked)
	token, ok := k.byHash[HashOf(secret)]
	return token, ok && !token.Role.StandsIn() && 0 <= age && age < knownFor && token.Valid(k.now.Add(age))
}

// reread is the age at which the cache is refreshed before a session is refused: a new session of
// another node must work at once, and guesses must be cheap.
const reread = 100 * time.Millisecond

// lately is ByHash with a refresh for sessions that may be newer than the cache.
func (t *Tokens) lately(ctx context.Context, hash store.TokenHash) (store.Token, error) {
	token, err := t.ByHash(ctx, hash)
	if !errors.Is(err, ErrUnknown) {
		return token, err
	}
	if k := t.known.Load(); k != nil && t.now().Sub(k.asked) >= reread {
		t.Forget()
		return t.ByHash(ctx, hash)
	}
	return token, err
}

// Forget makes the next call read the store again: changes through this node take effect at
// once.
func (t *Tokens) Forget() { t.changes.Add(1) }

// storeNow estimates the clock of the store from the last read.
func (t *Tokens) storeNow(ctx context.Context) (time.Time, error) {
	k, err := t.current(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return k.now.Add(t.now().Sub(k.asked)), nil
}

// current returns the tokens, read within freshFor.
func (t *Tokens) current(ctx context.Context) (*contents, error) {
	if k := t.known.Load(); t.fresh(k) {
		return k, nil
	}
	select {
	case t.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-t.reading }()
	if k := t.known.Load(); t.fresh(k) {
		return k, nil // another caller has read them since
	}
	k := &contents{byHash: map[store.TokenHash]store.Token{}, changes: t.changes.Load(), asked: t.now()}
	var err error
	if k.now, err = t.store.Now(ctx); err != nil {
		return nil, err
	}
	list, err := t.store.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	for _, token := range list {
		k.byHash[token.Hash] = token
	}
	t.known.Store(k)
	return k, nil
}

func (t *Tokens) fresh(k *contents) bool {
	if k == nil || k.changes != t.changes.Load() {
		return false
	}
	// A clock that was set back would keep the cache fresh for too long.
	age := t.now().Sub(k.asked)
	return 0 <= age && age < freshFor
}
