package membership_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/node/membership"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("the store is away")

// faulty is a store that fails or hangs when a test says so.
type faulty struct {
	membership.Store
	away, hangs, blind atomic.Bool // blind hides the other sessions
	renewals, looks    atomic.Int32
	takes              atomic.Int64 // duration of the answer to a renewal
	asks, tells        atomic.Int64 // durations of a question for the time, and of its answer
	load               atomic.Pointer[store.Load]
}

func (f *faulty) Renew(ctx context.Context, session job.ID, load store.Load) error {
	f.renewals.Add(1)
	if f.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.away.Load() {
		return errAway
	}
	f.load.Store(&load)
	err := f.Store.Renew(ctx, session, load)
	time.Sleep(time.Duration(f.takes.Load()))
	return err
}

func (f *faulty) Now(ctx context.Context) (time.Time, error) {
	time.Sleep(time.Duration(f.asks.Load()))
	now, err := f.Store.Now(ctx)
	time.Sleep(time.Duration(f.tells.Load()))
	return now, err
}

func (f *faulty) Sessions(ctx context.Context) ([]store.Session, error) {
	f.looks.Add(1)
	if f.blind.Load() {
		return nil, errAway
	}
	return f.Store.Sessions(ctx)
}

// world is a store and the members on it.
type world struct {
	t      *testing.T
	memory *memory.Store
	store  *faulty
	began  time.Time
	log    logtest.Log
	ids    atomic.Uint64
	told   atomic.Int64 // of Renewed
	ahead  atomic.Int64 // how far the nodes' wall clock is ahead of the store's
	slept  atomic.Int64 // how long the nodes' machine has slept, beyond the time of the bubble
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, memory: memory.New(memory.Options{}), began: time.Now()}
	w.store = &faulty{Store: w.memory}
	return w
}

func (w *world) boot() time.Duration { return time.Since(w.began) + time.Duration(w.slept.Load()) }

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func (w *world) config(node string) membership.Config {
	return membership.Config{
		Store: w.store, Session: store.Session{Node: node, Machine: "m", DataDir: "/" + node, Roles: []string{store.RoleWorker}, Capacity: 1},
		NewID: func() (job.ID, error) {
			var id job.ID
			binary.BigEndian.PutUint64(id[8:], w.ids.Add(1))
			return id, nil
		},
		Load: func() store.Load { return store.Load{Running: 3, Ready: 4} },
		Boot: w.boot, Now: w.now, Renewed: func(sent time.Duration) { w.told.Store(int64(sent)) },
		Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	}
}

// join begins a session and renews it until the end of the test.
func (w *world) join(node string) *membership.Member {
	w.t.Helper()
	m, _ := w.joinUntil(node)
	return m
}

// joinUntil begins a session and renews it until stop is called.
func (w *world) joinUntil(node string) (m *membership.Member, stop func()) {
	w.t.Helper()
	m, err := membership.Join(context.Background(), w.config(node))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return m, stop
}

func names(sessions []store.Session) string {
	var list []string
	for _, s := range sessions {
		list = append(list, s.Node)
	}
	return strings.Join(list, " ")
}

func TestMembersSeeEachOtherWhileLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		if got := names(a.Live()); got != "a" {
			t.Errorf("a node that has just joined sees %q", got)
		}
		_, stopB := w.joinUntil("b")
		time.Sleep(2100 * time.Millisecond)
		if got := names(a.Live()); got != "a b" && got != "b a" {
			t.Errorf("two seconds later it sees %q", got)
		}
		if load := w.store.load.Load(); load == nil || *load != (store.Load{Running: 3, Ready: 4}) {
			t.Errorf("the store receives a load of %v", load)
		}
		stopB() // as if it had crashed
		time.Sleep(store.SessionLife + 2100*time.Millisecond)
		if got := names(a.Live()); got != "a" {
			t.Errorf("after the death of the other it sees %q", got)
		}
	})
}

func TestEndOfAMemberIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		time.Sleep(time.Second)
		_, stopB := w.joinUntil("b")
		time.Sleep(2100 * time.Millisecond)
		stopB() // as if it had crashed just after a renewal
		time.Sleep(store.SessionLife - 200*time.Millisecond)
		if got := names(a.Live()); got != "a b" {
			t.Errorf("before the session ends it sees %q", got)
		}
		time.Sleep(200 * time.Millisecond)
		if got := names(a.Live()); got != "a" {
			t.Errorf("after the end of the session, between two renewals, it sees %q", got)
		}
	})
}

func TestFailedReadOfMembersBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		time.Sleep(time.Second)
		_, stopB := w.joinUntil("b")
		time.Sleep(2100 * time.Millisecond)
		stopB()
		w.store.blind.Store(true)
		before := w.store.looks.Load()
		time.Sleep(10 * time.Second)
		// One call for each renewal, and one for the end of the other node.
		if n := w.store.looks.Load() - before; n > 6 {
			t.Errorf("it has asked %d times in 10 s", n)
		}
		w.store.blind.Store(false)
		time.Sleep(2100 * time.Millisecond)
		if got := names(a.Live()); got != "a" {
			t.Errorf("when it sees again it sees %q", got)
		}
	})
}

func TestMemberKnowsWhetherItIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		b := w.join("b")
		for _, undo := range []bool{false, false, true, false, true} {
			if err := w.memory.Drain(t.Context(), store.DrainNode{Node: "a", Undo: undo, Reason: "a new disk", Actor: "ann"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2100 * time.Millisecond)
			if a.Drained() == undo || b.Drained() {
				t.Errorf("after undo %v a is drained: %v, b: %v", undo, a.Drained(), b.Drained())
			}
		}
		// Each change is logged once.
		if drained, back := w.log.Count("node is drained"), w.log.Count("node accepts runs again"); drained != 2 || back != 2 || w.log.Count("a new disk") != 2 {
			t.Errorf("logged is %d times that it is drained, and %d times that it takes runs again", drained, back)
		}
	})
}

func TestMissingRoleIsLoggedOnceAndItsReturnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		expect := func(planning, starts, again int) {
			t.Helper()
			time.Sleep(5 * time.Second)
			got := [...]int{w.log.Count("no job runs on schedule"), w.log.Count("no run starts"), w.log.Count("a live node has the role again")}
			if want := [...]int{planning, starts, again}; got != want {
				t.Errorf("that no node plans, that no node runs and that one does again is logged %d times, want %d", got, want)
			}
		}
		w.join("a") // a has the role worker
		expect(1, 0, 0)
		c := w.config("b")
		c.Session.Roles = []string{store.RolePlanner, store.RoleAPI}
		b, err := membership.Join(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2100 * time.Millisecond) // until a has refreshed
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(2, 0, 2) // and b, which leaves, logs nothing
	})
}

func TestAProgramWithHandlersNeedsNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.config("a")
		c.Session.Roles = []string{store.RolePlanner, store.RoleHandlers}
		if _, err := membership.Join(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := w.log.Count("no live node has the role"); n != 0 {
			t.Errorf("a missing role is logged %d times", n)
		}
	})
}

func TestStoreClockIsKnownBetweenPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.memory = memory.New(memory.Options{Now: func() time.Time { return time.Now().Add(time.Hour) }}) // the node is an hour behind
		w.store.Store = w.memory
		m := w.join("a")
		for range 5 {
			time.Sleep(777 * time.Millisecond)
			if off := time.Until(m.Now()) - time.Hour; off.Abs() > time.Millisecond {
				t.Errorf("it is wrong by %s", off)
			}
		}
		w.store.away.Store(true)
		time.Sleep(time.Minute)
		if off := time.Until(m.Now()) - time.Hour; off.Abs() > time.Millisecond {
			t.Errorf("without the store it is wrong by %s", off)
		}
	})
}

func TestStoreClockNeverRunsAheadHoweverSlowTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("a")
		w.store.asks.Store(int64(300 * time.Millisecond))
		w.store.tells.Store(int64(200 * time.Millisecond))
		time.Sleep(3 * time.Second) // until the next reading
		for range 20 {
			time.Sleep(777 * time.Millisecond)
			if off := time.Until(m.Now()); off > 0 || off < -200*time.Millisecond {
				t.Errorf("it is ahead by %s, want -200ms to 0s", off)
			}
		}
		w.store.away.Store(true)
		w.slept.Add(int64(time.Hour)) // and the store's clock continues
		if off := time.Until(m.Now()) - time.Hour; off > 0 || off < -200*time.Millisecond {
			t.Errorf("after a sleep of the machine it is ahead by %s, want -200ms to 0s", off)
		}
	})
}

func TestClockSkewIsLoggedOnceAndItsEndOnce(t *testing.T) {
	const off, right = "the clock of this machine differs from the clock of the store", "the clock of this machine agrees with the clock of the store again"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("a")
		time.Sleep(500 * time.Millisecond) // so that no change coincides with a renewal
		for _, step := range []struct {
			ahead, tells time.Duration
			want         time.Duration
			offs, rights int
		}{
			{0, 0, 0, 0, 0},
			{900 * time.Millisecond, 0, 900 * time.Millisecond, 0, 0},
			{1100 * time.Millisecond, 0, 1100 * time.Millisecond, 1, 0},
			{time.Hour, 0, time.Hour, 1, 0},
			{900 * time.Millisecond, 0, 900 * time.Millisecond, 1, 0}, // not yet: it may alternate
			{400 * time.Millisecond, 0, 400 * time.Millisecond, 1, 1},
			{900 * time.Millisecond, 0, 900 * time.Millisecond, 1, 1},
			{-2 * time.Second, 0, -2 * time.Second, 2, 1},
			{0, time.Second, -2 * time.Second, 2, 1}, // an answer that slow does not count
			{0, 200 * time.Millisecond, 100 * time.Millisecond, 2, 2},
		} {
			w.ahead.Store(int64(step.ahead))
			w.store.tells.Store(int64(step.tells))
			time.Sleep(10 * time.Second)
			if m.ClockAhead() != step.want {
				t.Errorf("with a clock that is %s ahead and an answer that takes %s it is %s ahead, want %s", step.ahead, step.tells, m.ClockAhead(), step.want)
			}
			if said := w.store.load.Load().ClockAhead; said != step.want {
				t.Errorf("with a clock that is %s ahead the others receive %s, want %s", step.ahead, said, step.want)
			}
			if offs, rights := w.log.Count(off), w.log.Count(right); offs != step.offs || rights != step.rights {
				t.Errorf("a clock that is %s ahead: logged %d times, and %d times its end; want %d and %d", step.ahead, offs, rights, step.offs, step.rights)
			}
		}
	})
}

func TestRenewalCountsFromItsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("a")
		if m.Renewed() != w.boot() || time.Duration(w.told.Load()) != w.boot() {
			t.Errorf("at %s it was renewed at %s", w.boot(), m.Renewed())
		}
		time.Sleep(9900 * time.Millisecond)
		if m.Renewed() != 8*time.Second || time.Duration(w.told.Load()) != 8*time.Second {
			t.Errorf("at 9.9 s it was renewed at %s and told so for %s, want 8 s", m.Renewed(), time.Duration(w.told.Load()))
		}
		w.store.away.Store(true)
		time.Sleep(10 * time.Second)
		if m.Renewed() != 8*time.Second || time.Duration(w.told.Load()) != 8*time.Second {
			t.Errorf("a renewal that failed counts: %s", m.Renewed())
		}
		w.store.away.Store(false)
		w.store.blind.Store(true)
		time.Sleep(2 * time.Second)
		if m.Renewed() != 20*time.Second {
			t.Errorf("a renewal that was acknowledged does not count because the others are not known: %s", m.Renewed())
		}
		w.store.blind.Store(false)
		w.store.takes.Store(int64(time.Second))
		time.Sleep(3200 * time.Millisecond) // sent at 24 s, answered at 25 s
		if m.Renewed() != 24*time.Second {
			t.Errorf("a renewal that was sent at 24 s counts from %s", m.Renewed())
		}
	})
}

func TestHangingRenewalDoesNotHideThatTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("a")
		time.Sleep(time.Second)
		w.store.hangs.Store(true)
		time.Sleep(3500 * time.Millisecond)
		w.store.hangs.Store(false)
		time.Sleep(4 * time.Second)
		if since := w.boot() - m.Renewed(); since > 2*time.Second {
			t.Errorf("it was renewed %s ago although the store is well for 4 s", since)
		}
	})
}

func TestTroubleIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.join("a")
		w.store.away.Store(true)
		time.Sleep(21 * time.Second)
		if n := w.log.Count("cannot renew"); n != 1 || w.store.renewals.Load() < 8 {
			t.Errorf("logged %d times for %d renewals", n, w.store.renewals.Load())
		}
		w.store.away.Store(false)
		time.Sleep(10 * time.Second)
		if n := w.log.Count("renewing the session works again"); n != 1 {
			t.Errorf("its end is logged %d times", n)
		}
	})
}

func TestMembersSurviveAStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		time.Sleep(time.Second) // so that a returns first
		w.join("b")
		time.Sleep(5 * time.Second)
		w.store.away.Store(true)
		time.Sleep(75 * time.Second)
		w.store.away.Store(false)
		back := a.Renewed()
		for a.Renewed() == back {
			time.Sleep(10 * time.Millisecond)
		}
		if live := a.Live(); len(live) != 2 {
			t.Errorf("%d members when the store is back, want 2", len(live))
		}
	})
}

func TestReapedSessionNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("a")
		if err := w.memory.Leave(context.Background(), m.ID()); err != nil {
			t.Fatal(err)
		}
		if err := w.memory.End(context.Background(), m.ID()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-m.Over():
		case <-time.After(3 * time.Second):
			t.Fatal("the node does not notice that its session is over")
		}
		n := w.store.renewals.Load()
		time.Sleep(20 * time.Second)
		if got := w.store.renewals.Load(); got != n {
			t.Errorf("%d renewals of a session that is over", got-n)
		}
		next := w.join("a")
		if next.ID() == m.ID() {
			t.Error("the next session has the identity of the one that is over")
		}
	})
}

func TestStoreFailureDoesNotEndASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("a")
		w.store.away.Store(true)
		time.Sleep(time.Minute)
		select {
		case <-m.Over():
			t.Error("the session is over because the store was away")
		default:
		}
		w.store.away.Store(false)
		time.Sleep(3 * time.Second)
		if got := names(m.Live()); got != "a" {
			t.Errorf("live when the store is back: %q", got)
		}
	})
}

func TestProcessKnowsItsPredecessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		before, stop := w.joinUntil("a")
		stop() // it dies
		w.join("b")
		m := w.join("a")
		if p := m.Predecessors(); len(p) != 1 || p[0] != before.ID() {
			t.Errorf("predecessors %v, want %v alone", p, before.ID())
		}
	})
}

func TestLeavingNodeIsNoMemberButKeepsRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		b := w.join("b")
		if err := a.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := names(a.Live()); got != "b" {
			t.Errorf("it sees %q itself, want b", got)
		}
		time.Sleep(10 * time.Second)
		if got := names(b.Live()); got != "b" {
			t.Errorf("the other sees %q", got)
		}
		if since := w.boot() - a.Renewed(); since > 2*time.Second {
			t.Errorf("it was renewed %s ago", since)
		}
		if err := a.End(context.Background()); err != nil {
			t.Error(err)
		}
		sessions, err := w.memory.Sessions(context.Background())
		if err != nil || names(sessions) != "b" {
			t.Errorf("sessions left: %q, %v", names(sessions), err)
		}
	})
}

func TestPublishedHandlersAreSeenWithTheNextRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		a.Publish([]string{"bake"})
		a.Publish([]string{"bake", "brew"})
		seen := func() string {
			for _, s := range b.Live() {
				if s.ID == a.ID() {
					return strings.Join(s.Handlers, " ")
				}
			}
			return "nothing: it is not live"
		}
		w.store.away.Store(true) // only renewals fail
		time.Sleep(4100 * time.Millisecond)
		w.store.away.Store(false)
		time.Sleep(4100 * time.Millisecond)
		if got := seen(); got != "bake brew" {
			t.Errorf("the other node sees %q", got)
		}
		if len(a.Predecessors()) > 0 || a.Drained() {
			t.Error("the session is another one")
		}
		if err := a.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		a.Publish(nil)
		time.Sleep(10 * time.Second)
		select {
		case <-a.Over():
			t.Error("the session of a leaving node is over: it publishes")
		default:
		}
		if since := w.boot() - a.Renewed(); since > 2*time.Second {
			t.Errorf("the leaving node was renewed %s ago", since)
		}
	})
}

func TestJoinErrorNamesTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.blind.Store(true)
		if _, err := membership.Join(context.Background(), w.config("a")); !errors.Is(err, errAway) || !strings.Contains(err.Error(), "read sessions") {
			t.Errorf("got %v", err)
		}
		c := w.config("a")
		c.NewID = func() (job.ID, error) { return job.ID{}, errAway }
		if _, err := membership.Join(context.Background(), c); !errors.Is(err, errAway) {
			t.Errorf("got %v", err)
		}
	})
}
