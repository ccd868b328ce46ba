package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// absent is a store whose calendars cannot be read while it is away.
type absent struct {
	store.Store
	away bool
}

func (a *absent) Calendars(ctx context.Context) ([]*job.Calendar, error) {
	if a.away {
		return nil, errors.New("the store is away")
	}
	return a.Store.Calendars(ctx)
}

func TestNeighboursFollowTheCalendarsOfTheJob(t *testing.T) {
	w := newWorld(t)
	holidays := func(day string) {
		t.Helper()
		c := &job.Calendar{Name: "holidays", Days: job.Days{Include: []string{day}}}
		if _, err := w.store.PutCalendar(t.Context(), c, store.AnyVersion, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	holidays("2030-01-02")
	w.apply("{name: daily, schedule: {cron: '@daily', except: [holidays]}, run: {shell: 'true'}}")
	s := &absent{w.store, true}
	known := newSchedules(s)
	first := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	expect := func(day int) {
		t.Helper()
		j, err := w.store.Job(t.Context(), "default", "daily")
		if err != nil {
			t.Fatal(err)
		}
		want := time.Time{}
		if day > 0 {
			want = time.Date(2030, 1, day, 0, 0, 0, 0, time.UTC)
		}
		if _, same, next := known.around(j, first); !same.Equal(first) || !next.Equal(want) {
			t.Errorf("after %v comes %v, want %v", same, next, want)
		}
	}
	expect(0) // nobody knows, as long as the store is away
	s.away = false
	expect(3)
	holidays("2030-01-03")
	expect(2)
}
