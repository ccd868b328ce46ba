package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A step decides with the sessions that it has read, while sessions begin and end.
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

// Unchanged runs of a cell stay in the indexes, whatever their order.
func TestRunsThatAnotherListLacksAreFoundInAnyOrder(t *testing.T) {
	a, b, c, d := &store.Run{}, &store.Run{}, &store.Run{}, &store.Run{}
	for _, test := range []struct{ list, other, want []*store.Run }{
		{[]*store.Run{a, b, c}, []*store.Run{a, b, c}, nil},
		{[]*store.Run{a, b, c}, []*store.Run{c, b, a}, nil},
		{[]*store.Run{a, b}, []*store.Run{b, a}, nil},
		{[]*store.Run{a, b, c, d}, []*store.Run{d, b}, []*store.Run{a, c}},
		{[]*store.Run{a, b, c}, []*store.Run{b, c, d}, []*store.Run{a}},
		{[]*store.Run{a}, nil, []*store.Run{a}},
	} {
		if got := without(test.list, test.other); !slices.Equal(got, test.want) {
			t.Errorf("%d runs without %d others are %d, want %d", len(test.list), len(test.other), len(got), len(test.want))
		}
	}
}
