package store_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store"
)

func TestTheStateOfASessionSaysFirstThatItIsSilent(t *testing.T) {
	now := time.Unix(1000, 0)
	drain := &store.Drain{By: "ann"}
	for _, c := range []struct {
		session store.Session
		renewed time.Duration
		want    store.SessionState
	}{
		{store.Session{}, 0, store.SessionLive},
		{store.Session{Drain: drain}, time.Second, store.SessionDrained},
		{store.Session{Leaving: true, Drain: drain}, 5 * time.Second, store.SessionLeaving},
		{store.Session{Leaving: true}, 6 * time.Second, store.SessionSilent}, // its process died
		{store.Session{Drain: drain}, time.Minute, store.SessionSilent},
	} {
		c.session.Renewed = now.Add(-c.renewed)
		if got := c.session.State(now); got != c.want {
			t.Errorf("renewed %s ago, %+v: %s, want %s", c.renewed, c.session, got, c.want)
		}
	}
}
