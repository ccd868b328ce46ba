package placement

import (
	"slices"
	"sync"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Share caches a session's partitions until the sessions, or their clocks' states, change. The zero
// Share is ready, and is safe for concurrent use.
type Share struct {
	mu         sync.Mutex
	self       job.ID
	live       []job.ID // the sessions that it was computed for; nil at first
	partitions store.Partitions
}

// Of returns the result of [Partitions].
func (s *Share) Of(self job.ID, live []store.Session) store.Partitions {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off := func(one store.Session) bool { return one.ClockOff }; slices.ContainsFunc(live, off) {
		live = slices.DeleteFunc(slices.Clone(live), off)
	}
	same := s.live != nil && s.self == self && slices.EqualFunc(s.live, live, func(id job.ID, l store.Session) bool { return id == l.ID })
	if !same {
		s.self, s.live = self, make([]job.ID, len(live))
		for i := range live {
			s.live[i] = live[i].ID
		}
		s.partitions = Partitions(self, live)
	}
	return s.partitions
}
