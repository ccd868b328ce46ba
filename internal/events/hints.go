package events

import (
	"context"
	"sync"

	"github.com/belfry-cron/belfry/store"
)

// Hints wakes the listeners of this process. The zero value is ready for use.
type Hints struct {
	mu sync.Mutex
	// to holds a channel of one hint for each listener. A slow listener finds all missed hints
	// combined in it.
	to map[chan store.Hint]struct{}
}

// Listen returns a channel of hints, which is closed when ctx ends.
func (h *Hints) Listen(ctx context.Context) <-chan store.Hint {
	ch := make(chan store.Hint, 1)
	h.mu.Lock()
	if h.to == nil {
		h.to = map[chan store.Hint]struct{}{}
	}
	h.to[ch] = struct{}{}
	h.mu.Unlock()
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.to, ch)
		close(ch)
	})
	return ch
}

// Send passes a hint to all listeners.
func (h *Hints) Send(hint store.Hint) {
	if hint == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.to {
		all := hint
		select {
		case missed := <-ch:
			all = all.With(missed)
		default:
		}
		// Only this function sends, under the lock: there is room.
		ch <- all
	}
}
