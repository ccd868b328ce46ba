package replica

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A step decides with the sessions that it has read, while others come and go.
func TestSessionsOfABatchStay(t *testing.T) {
	s, a, b := newState(false), job.ID{1}, job.ID{2}
	s.setSession(&store.Session{ID: a})
	held := s.sessions
	s.setSession(&store.Session{ID: b})
	if len(held) != 1 || held[a] == nil {
		t.Errorf("beside a session that comes a batch holds %v, want %s alone", held, a)
	}
	held = s.sessions
	s.remove(sessionKey(a), time.Now())
	if len(held) != 2 || len(s.sessions) != 1 || s.sessions[b] == nil {
		t.Errorf("beside a session that goes a batch holds %v, want both; %v is left", held, s.sessions)
	}
}
