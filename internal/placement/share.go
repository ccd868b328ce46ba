package placement

import (
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Share is which partitions a session plans, for who asks again and again: they are
// worked out anew when sessions come or go. The zero Share is ready. It is used by one
// goroutine.
type Share struct {
	self       job.ID
	live       []job.ID // for which it was worked out; nil before
	partitions store.Partitions
}

// Of returns what Partitions does.
func (s *Share) Of(self job.ID, live []store.Session) store.Partitions {
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
