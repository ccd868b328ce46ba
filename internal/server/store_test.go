package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/store"
)

func TestStartWaitsForAStoreThatIsAway(t *testing.T) {
	wrong := errors.New("password authentication failed")
	for _, c := range []struct {
		name   string
		comes  time.Duration // when the store answers
		answer error
		stops  time.Duration // when the server is stopped, 0 for never
		took   time.Duration
		want   error
	}{
		{"a store that is there", 0, nil, 0, 0, nil},
		{"a store that comes", 30 * time.Second, nil, 0, 30 * time.Second, nil},
		{"a store that stays away", time.Hour, nil, 0, reachWithin, store.ErrAway},
		{"a wrong password", 0, wrong, 0, 0, wrong},
		{"a wrong password of a store that comes", 5 * time.Second, wrong, 0, 5 * time.Second, wrong},
		{"a stop meanwhile", time.Hour, nil, 10 * time.Second, 10 * time.Second, store.ErrAway},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.stops > 0 {
					time.AfterFunc(c.stops, cancel)
				}
				began := time.Now()
				err := whenReached(ctx, slog.New(slog.DiscardHandler), reachWithin, func() error {
					if time.Since(began) < c.comes {
						return store.ErrAway
					}
					return c.answer
				})
				if took := time.Since(began); !errors.Is(err, c.want) || took != c.took {
					t.Errorf("got %v after %s, want %v after %s", err, took, c.want, c.took)
				}
			})
		})
	}
}
