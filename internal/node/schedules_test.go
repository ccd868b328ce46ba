package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// absent is a store that cannot read calendars while it is away: a read fails, or hangs until its
// context ends.
type absent struct {
	store.Store
	away, hangs bool
	reads       int
}

func (a *absent) Calendars(ctx context.Context) ([]*job.Calendar, error) {
	a.reads++
	if a.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if a.away {
		return nil, errors.New("the store is away")
	}
	return store.Calendars(ctx, a.Store)
}

// Unknown neighbours are an error, not zero times.
func TestUnknownNeighboursAreAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.store.PutDocument(t.Context(), job.Document{Calendar: &job.Calendar{Name: "holidays", Days: job.Days{Include: []string{"2030-01-02"}}}}, 0, "ann"); err != nil {
			t.Fatal(err)
		}
		j := w.apply("{name: daily, schedule: {cron: '@daily', except: [holidays]}, run: {shell: 'true'}}")
		s := &absent{Store: w.store, away: true}
		known := newSchedules(s)
		first := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		began := time.Now()
		for range 3 {
			if previous, same, next, err := known.around(t.Context(), j, first); err == nil || !previous.IsZero() || !same.IsZero() || !next.IsZero() {
				t.Errorf("got %v, %v, %v, %v while the store is away", previous, same, next, err)
			}
		}
		if s.reads != 1 {
			t.Errorf("the calendars were read %d times at once, want once", s.reads)
		}
		time.Sleep(calendarsAgain)
		s.hangs = true
		if _, _, _, err := known.around(t.Context(), j, first); err == nil || time.Since(began) > calendarsAgain+calendarsTimeout {
			t.Errorf("got %v after %s while the store hangs", err, time.Since(began))
		}
		time.Sleep(calendarsAgain)
		s.hangs, s.away = false, false
		if _, _, next, err := known.around(t.Context(), j, first); err != nil || next.Day() != 3 {
			t.Errorf("got %v, %v when the store is back", next, err)
		}
	})
}

func TestNeighboursFollowTheCalendars(t *testing.T) {
	w := newWorld(t)
	holidays := func(day string) {
		t.Helper()
		c := &job.Calendar{Name: "holidays", Days: job.Days{Include: []string{day}}}
		if _, err := w.store.PutDocument(t.Context(), job.Document{Calendar: c}, store.AnyVersion, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	holidays("2030-01-02")
	w.apply("{name: daily, schedule: {cron: '@daily', except: [holidays]}, run: {shell: 'true'}}")
	known := newSchedules(&absent{Store: w.store})
	first := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	expect := func(day int) {
		t.Helper()
		j, err := store.JobNamed(t.Context(), w.store, "default", "daily")
		if err != nil {
			t.Fatal(err)
		}
		want := time.Date(2030, 1, day, 0, 0, 0, 0, time.UTC)
		if _, same, next, err := known.around(t.Context(), j, first); err != nil || !same.Equal(first) || !next.Equal(want) {
			t.Errorf("after %v comes %v (%v), want %v", same, next, err, want)
		}
	}
	expect(3)
	holidays("2030-01-03")
	expect(2)
}

// Jobs with one schedule share its occurrences, unless their names or calendars matter.
func TestJobsWithOneScheduleShareItsOccurrences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		known := newSchedules(&absent{Store: w.store})
		of := func(name, schedule string) compiledSchedule {
			t.Helper()
			c, err := known.compile(t.Context(), w.apply("{name: "+name+", schedule: "+schedule+", run: {shell: 'true'}}"))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a, b := of("a", "{cron: '0 * * * *', timezone: Asia/Kolkata}"), of("b", "{cron: '0 * * * *', timezone: Asia/Kolkata}")
		if a.occurrences != b.occurrences {
			t.Error("equal schedules are compiled twice")
		}
		for name, other := range map[string]compiledSchedule{
			"another zone": of("c", "{cron: '0 * * * *', timezone: Asia/Tokyo}"), "a drawn minute": of("d", "{cron: 'H * * * *', timezone: Asia/Kolkata}"),
			"a rule": of("e", "{cron: '0 * * * *', timezone: Asia/Kolkata, only: [mon-fri]}"),
		} {
			if other.occurrences == a.occurrences {
				t.Errorf("%s has the same occurrences", name)
			}
		}
		if of("f", "{cron: 'H * * * *'}").occurrences == of("g", "{cron: 'H * * * *'}").occurrences {
			t.Error("two jobs with drawn minutes have the same")
		}
		for _, hour := range []int{3, 5, 3, 3} { // answers besides the last one are right, too
			at := time.Date(2030, 1, 1, hour, 30, 0, 0, time.UTC)
			if previous, next := a.around(at); at.Sub(previous) != time.Hour || next.Sub(at) != time.Hour || previous.Location().String() != "Asia/Kolkata" {
				t.Errorf("%s is between %s and %s", at, previous, next)
			}
		}
	})
}
