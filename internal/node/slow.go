package node

import (
	"log/slog"
	"sync"
	"time"
)

// slowAfter is longer than any call of a healthy database, whatever the load, and shorter than the
// timeout of a call.
const slowAfter = 5 * time.Second

// slow reports unanswered calls of the store while they wait: they may succeed eventually, for
// instance when a table was locked manually. It reports once until the store responds again.
type slow struct {
	log   *slog.Logger
	store string

	mu     sync.Mutex
	late   int // number of calls that wait so long
	since  time.Time
	logged bool
}

// call begins a call. The returned function is called at its end.
func (s *slow) call(name string) (ended func(error)) {
	begun := time.Now()
	timer := time.AfterFunc(slowAfter, func() { s.waits(name, begun) })
	return func(err error) {
		s.ended(!timer.Stop(), err)
	}
}

func (s *slow) waits(name string, begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late++
	if s.logged {
		return
	}
	s.logged, s.since = true, begun
	s.log.Warn("the store does not respond, and starts and results of runs are delayed; it may be overloaded, or another client may hold locks",
		"call", name, "for", slowAfter.String(), "store", s.store)
}

func (s *slow) ended(late bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if late {
		s.late--
	}
	if s.logged && s.late == 0 && err == nil {
		s.logged = false
		s.log.Info("the store responds again", "after", time.Since(s.since).Round(time.Millisecond).String(), "store", s.store)
	}
}
