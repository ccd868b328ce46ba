package sqlite

import (
	"context"
	"sync"

	"github.com/belfry-cron/belfry/store"
)

// hints tells whoever listens in this process what changed.
type hints struct {
	mu sync.Mutex
	// to holds a channel of one hint for each listener. One that is slow finds
	// all that it has missed in it, as one hint.
	to map[chan store.Hint]struct{}
}

// Hints returns a channel of hints about what is committed, which is closed when
// ctx ends.
func (s *Store) Hints(ctx context.Context) <-chan store.Hint {
	ch := make(chan store.Hint, 1)
	s.hints.mu.Lock()
	if s.hints.to == nil {
		s.hints.to = map[chan store.Hint]struct{}{}
	}
	s.hints.to[ch] = struct{}{}
	s.hints.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.hints.mu.Lock()
		defer s.hints.mu.Unlock()
		delete(s.hints.to, ch)
		close(ch)
	})
	return ch
}

func (h *hints) send(hint store.Hint) {
	if hint == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.to {
		all := hint
		select {
		case missed := <-ch:
			all |= missed
		default:
		}
		// Only this function sends, under the lock: there is room.
		ch <- all
	}
}
