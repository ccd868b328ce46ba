package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// feed is what has ended, for each consumer until it has taken it.
type feed struct {
	last      int
	consumers map[string]*consumer
}

type consumer struct {
	store.Consumer
	entries []entry // by place
	dropped int64
}

type entry struct {
	store.FeedEntry
	bytes int64
	since time.Time
}

// add gives a record to all consumers that want it. One that is changed in words alone is for
// history.
func (f *feed) add(r *store.Record, words bool, now time.Time) {
	f.last++
	for _, c := range f.consumers {
		if !c.Wants(r) || words && c.Name != store.ConsumerHistory {
			continue
		}
		text, _ := json.Marshal(r) // how large it would be elsewhere
		c.entries = append(c.entries, entry{
			store.FeedEntry{Ref: store.FeedRef(fmt.Sprintf("%019d", f.last)), Record: *r}, int64(len(text)), now,
		})
	}
}

// known is how many consumers there are besides history.
func (f *feed) known() int {
	n := len(f.consumers)
	if f.consumers[store.ConsumerHistory] != nil {
		n--
	}
	return n
}

// drop removes the oldest entries beyond the bound.
func (f *feed) drop() {
	for name, c := range f.consumers {
		if n := len(c.entries) - c.Most(); n > 0 && name != store.ConsumerHistory {
			c.entries, c.dropped = c.entries[n:], c.dropped+int64(n)
		}
	}
}

// PutConsumer implements ledger.Backend.
func (s *backend) PutConsumer(ctx context.Context, c store.Consumer) error {
	unlock, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	is := s.feed.consumers[c.Name]
	switch {
	case is == nil && s.feed.known() >= store.ConsumersMax:
		return store.ErrLimit
	case is == nil:
		is = &consumer{}
		s.feed.consumers[c.Name] = is
	}
	is.Consumer = c
	return nil
}

// DeleteConsumer implements ledger.Backend.
func (s *backend) DeleteConsumer(ctx context.Context, name string) error {
	unlock, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	delete(s.feed.consumers, name)
	return nil
}

// Consumers implements ledger.Backend.
func (s *backend) Consumers(ctx context.Context) ([]store.ConsumerState, error) {
	return locked(ctx, s, func() (list []store.ConsumerState) {
		for _, name := range slices.Sorted(maps.Keys(s.feed.consumers)) {
			c := s.feed.consumers[name]
			state := store.ConsumerState{Consumer: c.Consumer, Entries: len(c.entries), Dropped: c.dropped}
			for i := range c.entries {
				if state.Bytes += c.entries[i].bytes; i == 0 {
					state.Oldest = c.entries[i].since
				}
			}
			list = append(list, state)
		}
		return list
	})
}

// Ended implements ledger.Backend.
func (s *backend) Ended(ctx context.Context, name string, after store.FeedRef, limit int) (list []store.FeedEntry, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := s.feed.consumers[name]
	if c == nil {
		return nil, store.ErrNotFound
	}
	for i := range c.entries {
		if e := &c.entries[i]; e.Ref > after && len(list) < limit {
			list = append(list, e.FeedEntry)
		}
	}
	return list, nil
}

// Taken implements ledger.Backend.
func (s *backend) Taken(ctx context.Context, name string, refs []store.FeedRef) error {
	unlock, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c := s.feed.consumers[name]
	if c == nil {
		return nil
	}
	c.entries = slices.DeleteFunc(c.entries, func(e entry) bool {
		taken := slices.Contains(refs, e.Ref)
		if taken && s.outbox != nil && name == store.ConsumerHistory {
			s.outbox.taken[e.Record.Run.ID] = s.now()
		}
		return taken
	})
	return nil
}
