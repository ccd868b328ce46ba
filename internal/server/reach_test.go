package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/store"
)

// heard receives when each line of a log was written.
type heard struct {
	slog.Handler
	began time.Time
	at    []time.Duration
	last  string
}

func (h *heard) Enabled(context.Context, slog.Level) bool { return true }

func (h *heard) Handle(_ context.Context, r slog.Record) error {
	h.at, h.last = append(h.at, time.Since(h.began)), r.Message
	return nil
}

func TestStartWaitsForAStoreThatIsAway(t *testing.T) {
	wrong := errors.New("password authentication failed")
	const week = 7 * 24 * time.Hour
	for _, c := range []struct {
		name   string
		store  string
		fails  error         // until the store comes
		comes  time.Duration // when the store answers
		answer error
		silent time.Duration // how long each try lasts
		stops  time.Duration // when the server is stopped, 0 for never
		took   time.Duration
		want   error
		lines  []time.Duration // when the log says that the server waits, at first
	}{
		{name: "a store that is there"},
		{name: "a store that comes", fails: store.ErrAway, comes: 30 * time.Second, took: 30 * time.Second, lines: []time.Duration{0, 10 * time.Second, 30 * time.Second}},
		{name: "a store that comes after a week", fails: store.ErrAway, comes: week, took: week, lines: []time.Duration{0, 10 * time.Second, 30 * time.Second, 70 * time.Second, 150 * time.Second}},
		{name: "a store that answers late", comes: 20 * time.Second, silent: 20 * time.Second, took: 20 * time.Second, lines: []time.Duration{silenceMax, 15 * time.Second}},
		{name: "tries that end without an answer", fails: context.DeadlineExceeded, silent: 30 * time.Second, comes: time.Hour, took: time.Hour + 57*time.Second, lines: []time.Duration{silenceMax, 15 * time.Second, 35 * time.Second}},
		{name: "a database that is a standby", store: "postgres://db/belfry", fails: store.ErrReadOnly, comes: time.Minute, took: time.Minute, lines: []time.Duration{0}},
		{name: "a database that is full", store: "postgres://db/belfry", fails: store.ErrNoSpace, comes: time.Minute, took: time.Minute, lines: []time.Duration{0}},
		{name: "a disk that is read-only", store: "sqlite:belfry.db", fails: store.ErrReadOnly, comes: time.Hour, want: store.ErrReadOnly},
		{name: "a wrong password", answer: wrong, want: wrong},
		{name: "a wrong password of a store that comes", fails: store.ErrAway, comes: 5 * time.Second, answer: wrong, took: 5 * time.Second, want: wrong, lines: []time.Duration{0}},
		{name: "a stop meanwhile", fails: store.ErrAway, comes: week, stops: 10500 * time.Millisecond, took: 10500 * time.Millisecond, want: store.ErrAway, lines: []time.Duration{0, 10 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.stops > 0 {
					time.AfterFunc(c.stops, cancel)
				}
				said := &heard{began: time.Now()}
				s := &Server{Config: Config{Settings: config.Server{Store: config.Store(c.store)}}}
				waits, waited := 0, 0
				err := tryUntil(ctx, slog.New(said), func(context.Context) error {
					until := time.Since(said.began) < c.comes
					time.Sleep(c.silent)
					if until {
						return c.fails
					}
					return c.answer
				}, s.mayReturn, func() func() { waits++; return func() { waited++ } })
				if took := time.Since(said.began); !errors.Is(err, c.want) || took != c.took {
					t.Errorf("got %v after %s, want %v after %s", err, took, c.want, c.took)
				}
				if begins := min(1, len(c.lines)); waits != begins || waited != begins {
					t.Errorf("waiting begins %d times and ends %d times, want %d", waits, waited, begins)
				}
				if n := len(c.lines); len(said.at) < n || !slices.Equal(said.at[:n], c.lines) || n == 0 && len(said.at) > 0 {
					t.Errorf("the log says that the server waits after %s, want %s", said.at, c.lines)
				}
				for i := range len(said.at) - 1 {
					if rest := said.at[i+1] - said.at[i]; rest > remindMost {
						t.Errorf("the log is silent from %s for %s", said.at[i], rest)
					}
				}
				if reached := len(c.lines) > 0 && c.want == nil; reached != (said.last == "the store can be reached") {
					t.Errorf("the log ends with %q", said.last)
				}
			})
		})
	}
}
