package httpapi

import (
	"sync"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/store"
)

const (
	// streamsMax is how many answers without an end are given at a time. Each
	// takes some 60 KB, and whoever follows output costs a look into the store
	// now and then.
	streamsMax = 4096
	// streamsOfOne is how many of them one token has, so that one program which
	// opens more and more leaves room for the others.
	streamsOfOne = 2560
)

// places are those for answers without an end.
type places struct {
	mu    sync.Mutex
	taken int
	of    map[store.TokenHash]int
}

// take takes a place for a caller, who must leave it.
func (p *places) take(who store.Token) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.taken >= streamsMax:
		return refuse(client.TypeTooMany, "%d clients follow something already", p.taken).withHeader("Retry-After", "10")
	case p.of[who.Hash] >= streamsOfOne:
		return refuse(client.TypeTooMany, "%d clients with the token %s follow something already", p.of[who.Hash], who.Name).withHeader("Retry-After", "10")
	}
	if p.of == nil {
		p.of = map[store.TokenHash]int{}
	}
	p.taken++
	p.of[who.Hash]++
	return nil
}

// leave gives a place back.
func (p *places) leave(who store.Token) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[who.Hash]--; p.of[who.Hash] == 0 {
		delete(p.of, who.Hash)
	}
}
