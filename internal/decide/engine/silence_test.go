package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/store"
)

// A node was last heard at 100 s. Each witness lists its renewals in seconds; the last one is just
// before now.
func TestSilenceDuringAnOutageDoesNotCount(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	every2s := func(from, to int) (renewals []int) {
		for s := from; s <= to; s += 2 {
			renewals = append(renewals, s)
		}
		return renewals
	}
	silent := &store.Session{Joined: at(50), Renewed: at(100), Steady: at(50)}
	for _, c := range []struct {
		name      string
		now       int
		witnesses [][]int
		silence   time.Duration
		live      bool
	}{
		{"no node is there", 400, nil, 0, false},
		{"the witness is silent as well", 400, [][]int{every2s(50, 390)}, 0, false},
		{"a steady witness vouches for all of it", 160, [][]int{every2s(50, 160)}, 60 * time.Second, false},
		{"a witness that came later vouches since then", 160, [][]int{every2s(120, 160)}, 40 * time.Second, false},
		{"the store was away, and is just back", 180, [][]int{append(every2s(51, 101), 180)}, 0, true},
		{"the store is back since 4 s", 184, [][]int{append(every2s(51, 101), every2s(180, 184)...)}, 4 * time.Second, true},
		{"the store is back since 6 s", 186, [][]int{append(every2s(51, 101), every2s(180, 186)...)}, 6 * time.Second, false},
		{"silent before the store went away", 300, [][]int{append(every2s(50, 200), 300)}, 0, false},
		{"the store was away twice", 300, [][]int{append(every2s(51, 101), 180, 280, 282, 284, 286, 288, 290, 292, 294, 296, 298, 300)}, 20 * time.Second, false},
		{"one witness had an outage of its own", 180, [][]int{append(every2s(51, 101), 180), every2s(50, 180)}, 80 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			sessions := []*store.Session{silent}
			for _, renewals := range c.witnesses {
				first := at(renewals[0])
				w := &store.Session{Joined: first, Renewed: first, Steady: first}
				for _, r := range renewals[1:] {
					engine.Renew(w, at(r))
				}
				sessions = append(sessions, w)
			}
			if got := engine.Silence(at(c.now), silent.Renewed, slices.Values(sessions)); got != c.silence {
				t.Errorf("silent for %s, want %s", got, c.silence)
			}
			if got := engine.IsLive(at(c.now), silent, slices.Values(sessions)); got != c.live {
				t.Errorf("live: %t, want %t", got, c.live)
			}
			if got := engine.IsLost(at(c.now), time.Minute, silent, slices.Values(sessions)); got != (c.silence > time.Minute) {
				t.Errorf("lost: %t after %s", got, c.silence)
			}
		})
	}
	// An older Belfry renews its session without a record of since when.
	old := &store.Session{Joined: at(50), Renewed: at(160)}
	if got := engine.Silence(at(160), silent.Renewed, slices.Values([]*store.Session{silent, old})); got != 0 {
		t.Errorf("a session of an older belfry vouches for %s", got)
	}
	leaving := *silent
	leaving.Renewed, leaving.Leaving = at(160), true
	if engine.IsLive(at(160), &leaving, slices.Values([]*store.Session{&leaving})) {
		t.Error("a session that leaves is live")
	}
}
