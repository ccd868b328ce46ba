package events_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/store"
)

// withOthers runs a test of a hub over a store that other processes change, too.
func withOthers(t *testing.T, test func(t *testing.T, f *fake, h *events.Hub)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{elsewhere: make(chan []store.Event)}
		h := events.New(f)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = h.Run(ctx); close(done) }()
		test(t, f, h)
		cancel()
		<-done
	})
}

// at is a step with events some milliseconds after the start of the year 2000.
func at(ms int, kinds ...string) (list []store.Event) {
	for _, kind := range kinds {
		list = append(list, store.Event{Kind: kind, Time: time.Date(2000, 1, 1, 0, 0, 0, ms*1_000_000, time.UTC)})
	}
	return list
}

func TestEventsOfSeveralProcessesAreOrderedByTime(t *testing.T) {
	withOthers(t, func(t *testing.T, f *fake, h *events.Hub) {
		l := listen(t, h, "")
		defer l.Close()
		f.Send(at(20, "claimed"))
		f.Send(at(20, "of the same time"))
		time.Sleep(300 * time.Millisecond)
		f.elsewhere <- at(10, "planned", "with it")
		f.elsewhere <- at(40, "later")
		f.Send(at(30, "ended"))
		time.Sleep(time.Second)
		want := []string{"planned", "with it", "claimed", "of the same time", "ended", "later"}
		if kinds, gap := heard(t, l); gap || !slices.Equal(kinds, want) {
			t.Errorf("heard %v, gap %v, want %v", kinds, gap, want)
		}
		// Late and lost events arrive nevertheless.
		f.elsewhere <- at(50, store.EventLost, "behind a gap")
		time.Sleep(time.Second)
		if _, gap := heard(t, l); !gap {
			t.Error("what others have lost is no gap")
		}
		f.elsewhere <- at(5, "too late")
		time.Sleep(time.Second)
		if kinds, gap := heard(t, l); gap || !slices.Equal(kinds, []string{"too late"}) {
			t.Errorf("heard %v, gap %v", kinds, gap)
		}
	})
}

func TestManyStepsAreNotHeldBack(t *testing.T) {
	withOthers(t, func(t *testing.T, f *fake, h *events.Hub) {
		l := listen(t, h, "")
		defer l.Close()
		const steps = 20_000
		for i := range steps {
			f.elsewhere <- at(i, fmt.Sprint(i))
		}
		time.Sleep(300 * time.Millisecond) // shorter than they would wait
		if list, _ := l.Take(); len(list) == 0 {
			t.Error("many steps that came at once are no event")
		}
	})
}
