package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a store whose events come from the test.
type fake struct {
	events.Feed
	mu       sync.Mutex
	follows  int
	sessions []store.Session
	broken   bool
	// elsewhere has events of other processes; nil for none.
	elsewhere chan []store.Event
}

func (f *fake) Events(ctx context.Context) <-chan []store.Event {
	f.mu.Lock()
	f.follows++
	f.mu.Unlock()
	return f.Follow(ctx)
}

func (f *fake) EventsElsewhere(context.Context) <-chan []store.Event { return f.elsewhere }

func (f *fake) Sessions(context.Context) ([]store.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return nil, errors.New("the disk is gone")
	}
	return slices.Clone(f.sessions), nil
}

func (f *fake) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (f *fake) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// tell sends n events, whose kinds are numbers from first.
func (f *fake) tell(first, n int) {
	var list []store.Event
	for i := range n {
		list = append(list, store.Event{Kind: fmt.Sprint(first + i), Time: time.Now()})
	}
	f.Send(list)
	synctest.Wait()
}

// bubble runs a test of a hub in fake time.
func bubble(t *testing.T, test func(t *testing.T, f *fake, h *events.Hub)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := events.New(f)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = h.Run(ctx); close(done) }()
		test(t, f, h)
		cancel()
		<-done
	})
}

func listen(t *testing.T, h *events.Hub, behind string) *events.Listener {
	t.Helper()
	l, err := h.Listen(t.Context(), behind)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// gathered is longer than it takes until all receive an event.
const gathered = time.Second

// heard returns the kinds of all events that a listener receives at once, and whether events before
// them are missing.
func heard(t *testing.T, l *events.Listener) (kinds []string, gap bool) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), gathered)
		err := l.Wait(ctx)
		cancel()
		list, missing := l.Take()
		if errors.Is(err, context.DeadlineExceeded) {
			return kinds, gap
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > events.PartMax {
			t.Fatalf("%d events at once, more than %d", len(list), events.PartMax)
		}
		gap = gap || missing
		for _, e := range list {
			kinds = append(kinds, e.Kind)
		}
	}
}

func TestEachListenerReceivesEverythingFromItsStart(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, h *events.Hub) {
		first := listen(t, h, "")
		defer first.Close()
		f.tell(1, 2)
		second := listen(t, h, "")
		defer second.Close()
		f.tell(3, 100)
		for l, want := range map[*events.Listener]int{first: 102, second: 100} {
			if kinds, gap := heard(t, l); gap || len(kinds) != want || kinds[len(kinds)-1] != "102" {
				t.Errorf("heard %d events, the last of them %v, gap %v, want %d", len(kinds), kinds[len(kinds)-1:], gap, want)
			}
		}
		if f.follows != 1 {
			t.Errorf("the store was followed %d times by two listeners", f.follows)
		}
	})
}

// Runs start at full seconds, and so do their events: no listener is woken then, nor are all woken
// at once.
func TestListenersAreServedInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, h *events.Hub) {
		const listeners = 64
		told := make(chan time.Duration, listeners)
		var begun time.Time
		for range listeners {
			l := listen(t, h, "")
			go func() {
				defer l.Close()
				for heard := 0; heard < 2; {
					if err := l.Wait(t.Context()); err != nil {
						t.Error(err)
						break
					}
					told <- time.Since(begun)
					list, _ := l.Take()
					heard += len(list)
				}
			}()
		}
		synctest.Wait()
		begun = time.Now()
		f.tell(1, 1)
		at := map[time.Duration]int{}
		for range listeners {
			after := <-told
			at[after]++
			if after < 100*time.Millisecond || after > 200*time.Millisecond {
				t.Errorf("a follower wakes after %s", after)
			}
		}
		if len(at) < 16 {
			t.Errorf("they wake at %d moments: %v", len(at), at)
		}
		// Events that come while listeners are woken are gathered again.
		begun = time.Now()
		f.tell(2, 1)
		for range listeners {
			if after := <-told; after < 100*time.Millisecond || after > 300*time.Millisecond {
				t.Errorf("then a follower wakes after %s", after)
			}
		}
	})
}

func TestReturningListenerResumes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, h *events.Hub) {
		l := listen(t, h, "")
		f.tell(1, 3)
		list, _ := l.Take()
		if len(list) != 3 {
			t.Fatalf("heard %d events", len(list))
		}
		l.Close()
		time.Sleep(30 * time.Second) // without listeners
		f.tell(4, 2)
		for behind, want := range map[string][]string{
			list[1].ID: {"3", "4", "5"}, list[2].ID: {"4", "5"}, l.Place(): {"4", "5"},
		} {
			again := listen(t, h, behind)
			if kinds, gap := heard(t, again); gap || !slices.Equal(kinds, want) {
				t.Errorf("behind %s heard %v, gap %v, want %v", behind, kinds, gap, want)
			}
			if kinds, gap := heard(t, again); gap || len(kinds) > 0 {
				t.Errorf("heard %v again", kinds)
			}
			again.Close()
		}
	})
}

func TestUnknownEventsAreAGap(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, h *events.Hub) {
		l := listen(t, h, "")
		f.tell(1, 1)
		place := l.Place() // the listener has received none of them
		// Far more than are kept, while this listener does not read.
		for i := range 100 {
			f.tell(2+i*1000, 1000)
		}
		kinds, gap := heard(t, l)
		if !gap || len(kinds) > 0 {
			t.Errorf("a slow listener heard %d events, gap %v", len(kinds), gap)
		}
		f.tell(1, 1)
		if kinds, gap := heard(t, l); gap || !slices.Equal(kinds, []string{"1"}) {
			t.Errorf("after the gap heard %v, gap %v", kinds, gap)
		}
		for _, behind := range []string{place, "x", "-", "other-1", l.Place() + "0"} {
			again := listen(t, h, behind)
			if kinds, gap := heard(t, again); !gap || len(kinds) > 0 {
				t.Errorf("behind %q heard %v, gap %v", behind, kinds, gap)
			}
			again.Close()
		}
		// A loss in the store is a gap as well, also for listeners that are up to date.
		f.Send([]store.Event{{Kind: store.EventLost}, {Kind: "2"}})
		synctest.Wait()
		if kinds, gap := heard(t, l); !gap || len(kinds) > 0 {
			t.Errorf("after a loss in the store heard %v, gap %v", kinds, gap)
		}
		l.Close()
	})
}

func TestNothingIsFollowedWithoutListeners(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, h *events.Hub) {
		time.Sleep(time.Hour)
		if f.Wanted() {
			t.Fatal("the store is followed before anybody listens")
		}
		l := listen(t, h, "")
		f.tell(1, 1)
		place := l.Place()
		l.Close()
		time.Sleep(50 * time.Second)
		if !f.Wanted() {
			t.Error("the store is not followed any more, and a follower may come back")
		}
		time.Sleep(20 * time.Second)
		if f.Wanted() {
			t.Error("the store is still followed")
		}
		again := listen(t, h, place)
		defer again.Close()
		if _, gap := heard(t, again); !gap {
			t.Error("a follower that comes back later does not learn of the gap")
		}
		f.tell(2, 1)
		if kinds, _ := heard(t, again); !slices.Equal(kinds, []string{"2"}) {
			t.Errorf("heard %v", kinds)
		}
	})
}

func TestNodeEventsCarryTheState(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, h *events.Hub) {
		id := func(n byte) job.ID { return job.ID{n} }
		now := time.Now()
		f.set(func() { f.sessions = []store.Session{{ID: id(1), Node: "a", Renewed: now.Add(time.Minute)}} })
		l := listen(t, h, "")
		defer l.Close()
		expect := func(want ...string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			if kinds, gap := heard(t, l); gap || !slices.Equal(kinds, want) {
				t.Errorf("heard %v, gap %v, want %v", kinds, gap, want)
			}
		}
		expect() // it was there
		f.set(func() {
			f.sessions = append(f.sessions, store.Session{ID: id(2), Node: "b", Renewed: time.Now().Add(time.Hour)})
		})
		expect("node.live")
		f.set(func() { f.sessions[1].Leaving = true })
		expect("node.leaving")
		f.set(func() { f.broken = true })
		expect()
		f.set(func() { f.broken, f.sessions = false, f.sessions[:1] })
		expect("node.left")
		time.Sleep(time.Minute)
		expect("node.silent") // a was not renewed
	})
}

// Nodes that existed before the first successful read have not just joined.
func TestNodesUnreadAtFirstSendNoEvent(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, h *events.Hub) {
		f.set(func() {
			f.broken = true
			f.sessions = []store.Session{{ID: job.ID{1}, Node: "a", Renewed: time.Now().Add(time.Minute)}}
		})
		l := listen(t, h, "")
		defer l.Close()
		time.Sleep(5 * time.Second)
		f.set(func() { f.broken = false })
		time.Sleep(2 * time.Second)
		if kinds, gap := heard(t, l); gap || len(kinds) > 0 {
			t.Errorf("heard %v, gap %v", kinds, gap)
		}
	})
}

func TestListenersAreClosedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := events.New(&fake{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = h.Run(ctx) }()
		l := listen(t, h, "")
		defer l.Close()
		ended := make(chan error)
		go func() {
			ended <- l.Wait(context.Background())
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, events.ErrOver) {
			t.Errorf("the end is %v", err)
		}
		if _, err := h.Listen(t.Context(), ""); !errors.Is(err, events.ErrOver) {
			t.Errorf("a later follower receives %v", err)
		}
	})
}

func TestASlowReceiverLearnsOfItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f events.Feed
		ctx, cancel := context.WithCancel(t.Context())
		slow := f.Follow(ctx)
		for i := range 2000 {
			f.Send([]store.Event{{Kind: fmt.Sprint(i)}})
		}
		n := 0
		for len(slow) > 0 {
			<-slow
			n++
		}
		if n == 0 || n == 2000 {
			t.Fatalf("%d of 2000 batches were kept", n)
		}
		f.Send([]store.Event{{Kind: "next"}})
		if list := <-slow; len(list) != 2 || list[0].Kind != store.EventLost || list[1].Kind != "next" {
			t.Errorf("after the loss came %+v", list)
		}
		f.Send([]store.Event{{Kind: "next"}})
		if list := <-slow; len(list) != 1 {
			t.Errorf("the gap is reported twice: %+v", list)
		}
		cancel()
		if _, open := <-slow; open || f.Wanted() {
			t.Error("the feed continues behind its end")
		}
	})
}
