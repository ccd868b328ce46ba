package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/store"
)

const (
	// streamsMax is how many answers without an end are given at a time. Each
	// takes some 60 KB.
	streamsMax = 4096
	// streamsOfOne is how many of them one token has, so that one program which
	// opens more and more leaves room for the others.
	streamsOfOne = 2560
	// validEvery is how often the token of those who follow is looked at again, once
	// for all who have it.
	validEvery = time.Second
)

// places are those for answers without an end.
type places struct {
	mu    sync.Mutex
	taken int
	of    map[store.TokenHash]*holder
}

// holder is a token with which places are taken.
type holder struct {
	places map[*place]bool
	stop   context.CancelFunc
	done   chan struct{} // closed when nobody looks at the token any more
}

// place is one of them.
type place struct {
	of     *places
	who    store.Token
	cancel context.CancelCauseFunc
}

// take takes a place for a caller, who must leave it. The context ends when the token
// is not valid any more, with a problem as its cause.
func (p *places) take(ctx context.Context, valid func(context.Context) error) (context.Context, *place, error) {
	who := caller(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of[who.Hash]
	switch {
	case p.taken >= streamsMax:
		return nil, nil, refuse(client.TypeTooMany, "%d clients follow something already", p.taken).withHeader("Retry-After", "10")
	case h != nil && len(h.places) >= streamsOfOne:
		return nil, nil, refuse(client.TypeTooMany, "%d clients with the token %s follow something already", len(h.places), who.Name).withHeader("Retry-After", "10")
	}
	if h == nil {
		watching, stop := context.WithCancel(context.WithValue(context.Background(), callerKey{}, who))
		h = &holder{places: map[*place]bool{}, stop: stop, done: make(chan struct{})}
		if p.of == nil {
			p.of = map[store.TokenHash]*holder{}
		}
		p.of[who.Hash] = h
		go p.watch(watching, h, valid)
	}
	p.taken++
	ctx, cancel := context.WithCancelCause(ctx)
	one := &place{p, who, cancel}
	h.places[one] = true
	return ctx, one, nil
}

// watch sends away whoever has a token that is not valid any more, until ctx ends.
func (p *places) watch(ctx context.Context, h *holder, valid func(context.Context) error) {
	defer close(h.done)
	ticker := time.NewTicker(validEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := valid(ctx); err != nil && ctx.Err() == nil {
			p.mu.Lock()
			for one := range h.places {
				one.cancel(err)
			}
			p.mu.Unlock()
		}
	}
}

// leave gives the place back.
func (one *place) leave() {
	one.cancel(nil)
	p := one.of
	p.mu.Lock()
	h := p.of[one.who.Hash]
	p.taken--
	delete(h.places, one)
	last := len(h.places) == 0
	if last {
		delete(p.of, one.who.Hash)
	}
	p.mu.Unlock()
	if last {
		h.stop()
		<-h.done
	}
}
