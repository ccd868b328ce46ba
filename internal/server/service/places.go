package service

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/store"
)

// Tokens is the cache of the tokens of the store.
type Tokens interface {
	// ByHash returns a token that is valid. Else the error is [auth.ErrUnknown],
	// [auth.ErrExpired] or one of the store.
	ByHash(ctx context.Context, hash store.TokenHash) (store.Token, error)
	// Forget makes the next call read the store.
	Forget()
}

const (
	// streamsMax is the most concurrent streams. Each takes some 60 KB.
	streamsMax = 4096
	// streamsOfOne is the limit for one token, so that a program that leaks streams leaves
	// capacity for others.
	streamsOfOne = 2560
	// streamsRetry is how long a refused caller should wait: streams of browsers and
	// terminals end all the time.
	streamsRetry = 10 * time.Second
	// validEvery is how often the token of streams is checked, once for all streams of it.
	validEvery = time.Second
)

// places bounds the streams of callers, and ends those whose token is no longer valid.
type places struct {
	tokens Tokens
	people auth.People // nil for none

	mu    sync.Mutex // guards what follows
	taken int
	of    map[placeKey]*holder
}

// placeKey is the owner of places: a token or a session, or a part of this process by its
// name.
type placeKey struct {
	token store.TokenHash
	name  string
}

func keyOf(who Caller) placeKey { return placeKey{who.Token, who.Name} }

// holder is a caller with places.
type holder struct {
	who    Caller
	places map[*place]bool
	stop   context.CancelFunc
	done   chan struct{} // closed when the token is no longer checked
}

// place is room for one stream.
type place struct {
	of     *places
	holder *holder
	ended  context.Context // its cause is why the stream must end
	end    context.CancelCauseFunc
}

// take takes a place for a caller, who must leave it.
func (p *places) take(who Caller) (*place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of[keyOf(who)]
	var full *Error
	switch {
	case p.taken >= streamsMax:
		full = Refuse(client.TypeTooMany, phrase.StreamsFull.Of(p.taken))
	case h != nil && len(h.places) >= streamsOfOne:
		full = Refuse(client.TypeTooMany, phrase.StreamsOfOne.Of(len(h.places), who.who()))
	}
	if full != nil {
		full.RetryAfter = streamsRetry
		return nil, full
	}
	if h == nil {
		watching, stop := context.WithCancel(context.Background())
		h = &holder{who: who, places: map[*place]bool{}, stop: stop, done: make(chan struct{})}
		if p.of == nil {
			p.of = map[placeKey]*holder{}
		}
		p.of[keyOf(who)] = h
		go p.watch(watching, h)
	}
	p.taken++
	one := &place{of: p, holder: h}
	one.ended, one.end = context.WithCancelCause(context.Background())
	h.places[one] = true
	return one, nil
}

// watch ends the streams of a token that is no longer valid, until ctx ends.
func (p *places) watch(ctx context.Context, h *holder) {
	defer close(h.done)
	if h.who.Token == (store.TokenHash{}) {
		return
	}
	ticker := time.NewTicker(validEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		t, err := p.tokens.ByHash(ctx, h.who.Token)
		if err == nil && t.Person != nil && (p.people == nil || !maps.Equal(p.people.Roles(t.Person), h.who.Roles)) {
			err = auth.ErrUnknown // another request has the present roles
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		if errors.Is(err, auth.ErrUnknown) || errors.Is(err, auth.ErrExpired) {
			err = Refuse(client.TypeUnauthenticated, phrase.TokenInvalid, phrase.CreateToken)
		}
		p.mu.Lock()
		for one := range h.places {
			one.end(err)
		}
		p.mu.Unlock()
	}
}

// within returns a context that ends with ctx, or when the stream must end: then its cause
// says why.
func (one *place) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(one.ended, func() { cancel(context.Cause(one.ended)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// leave gives the place back.
func (one *place) leave() {
	one.end(nil)
	p, h := one.of, one.holder
	p.mu.Lock()
	p.taken--
	delete(h.places, one)
	last := len(h.places) == 0
	if last {
		delete(p.of, keyOf(h.who))
	}
	p.mu.Unlock()
	if last {
		h.stop()
		<-h.done
	}
}
