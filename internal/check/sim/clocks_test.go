package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest/shelf"
)

const (
	// beats is how many jobs are due each second.
	beats = 8
	// clockSlice is how long a world of TestClocks lasts on average.
	clockSlice = 10 * time.Minute
	// clockApart is how far the clocks of planning nodes may differ.
	clockApart = time.Second
	// noticedMax is how soon a node notices that its clock was set: until then its store must not
	// write, but claimed runs may start.
	noticedMax = 250 * time.Millisecond
	// takenOverMax bounds how late a run starts whose node begins to wait: other nodes take it over a
	// second after it was due, and poll once a second.
	takenOverMax = 3 * time.Second
	// confirmedMax is how long an only node needs to confirm its clock: two renewals.
	confirmedMax = 5 * time.Second
)

// clockWorld has some whole nodes on a store without a clock. Each has its own wall clock and boot
// clock; the true time is the time of the bubble.
type clockWorld struct {
	t     *testing.T
	shelf *shelf.Shelf
	hosts []*clockHost
	begun time.Time
	group sync.WaitGroup

	mu     sync.Mutex
	starts []beat
}

// beat is a start of a run.
type beat struct {
	job  string
	due  time.Time
	at   time.Time // the true time
	wall time.Time // of its node
	node string
}

type clockHost struct {
	name string
	log  logtest.Log
	wall atomic.Int64 // how far its wall clock is ahead of the true time
	// pace is how many nanoseconds its wall clock gains per second since paced, and boot the same for
	// its boot clock, which gained bootAhead before.
	pace, boot, bootAhead atomic.Int64
	paced                 atomic.Pointer[time.Time]
	away                  atomic.Bool  // it cannot reach the store
	late                  atomic.Int64 // the largest delay of every other renewal
	stop                  func()
}

func (h *clockHost) gained(pace *atomic.Int64) time.Duration {
	return time.Duration(time.Since(*h.paced.Load()).Seconds() * float64(pace.Load()))
}

func (h *clockHost) now() time.Time {
	return time.Now().Add(time.Duration(h.wall.Load()) + h.gained(&h.pace))
}

// bootClock returns the boot clock of a machine that was started at a moment.
func (h *clockHost) bootClock(booted time.Time) func() time.Duration {
	return func() time.Duration {
		return time.Since(booted) + time.Duration(h.bootAhead.Load()) + h.gained(&h.boot)
	}
}

// drift makes the clocks of the machine faster or slower: the wall clock alone, by small steps, or both.
func (h *clockHost) drift(pace time.Duration, both bool) {
	now := time.Now()
	h.paced.Store(&now)
	if h.pace.Store(int64(pace)); both {
		h.boot.Store(int64(pace))
	}
}

// host returns a machine whose clocks are right.
func (*clockWorld) host(name string) *clockHost {
	h, now := &clockHost{name: name}, time.Now()
	h.paced.Store(&now)
	return h
}

func newClockWorld(t *testing.T, nodes int) *clockWorld {
	w := &clockWorld{t: t, shelf: shelf.New(), begun: time.Now()}
	for i := range nodes {
		w.start(i)
	}
	s := w.open(w.host(""), 0)
	for i := range beats {
		docs, err := job.Decode("sim.yaml", fmt.Appendf(nil, "{name: beat%d, schedule: {every: 1s}, run: {shell: echo}, policy: {overlap: allow, missed: all, late_by: forever}}", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.PutOne(t.Context(), s, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "user"}); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.(interface{ Close() error }).Close()
	time.Sleep(20 * time.Second)
	return w
}

func (w *clockWorld) open(h *clockHost, i int) store.Store {
	booted := w.begun.Add(-time.Duration(i) * time.Hour)
	random := rand.New(rand.NewPCG(uint64(i), 8))
	s, err := w.shelf.Open(w.t.Context(), shelf.Machine{
		Wall: h.now, Boot: h.bootClock(booted), Away: h.away.Load,
		Late: func() time.Duration {
			return time.Duration(random.IntN(2)) * time.Duration(random.Float64()*float64(h.late.Load()))
		},
	}, lookAhead)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// start starts a node.
func (w *clockWorld) start(i int) {
	h := w.host(string(rune('a' + i)))
	s := w.open(h, i)
	booted := w.begun.Add(-time.Duration(i) * time.Hour)
	n, err := node.New(node.Config{
		Session:   store.Session{Node: h.name, Machine: h.name, DataDir: "/data", Capacity: 100, Roles: []string{store.RolePlanner, store.RoleWorker}},
		Executors: func(*job.Job) executor.Executor { return clockWitness{w, h} },
		Now:       h.now, Boot: h.bootClock(booted), Log: slog.New(slog.NewTextHandler(&h.log, nil)),
	}.On(s))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.group.Go(func() {
		if err := n.Run(ctx); err != nil {
			w.t.Errorf("node %s: %v", h.name, err)
		}
		_ = s.(interface{ Close() error }).Close()
	})
	h.stop = cancel
	w.hosts = append(w.hosts, h)
}

type clockWitness struct {
	w *clockWorld
	h *clockHost
}

// Run implements executor.Executor.
func (x clockWitness) Run(_ context.Context, a executor.Attempt, _ executor.Output) executor.Result {
	if err := a.Start(); err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	x.w.starts = append(x.w.starts, beat{a.Run.Name, a.Run.Due, time.Now(), x.h.now(), x.h.name})
	return executor.Result{Outcome: job.OutcomeSucceeded}
}

// set sets the wall clock of a node.
func (h *clockHost) set(ahead time.Duration) {
	h.bootAhead.Add(int64(h.gained(&h.boot)))
	h.boot.Store(0)
	h.pace.Store(0)
	h.wall.Store(int64(ahead))
}

func (w *clockWorld) end() []beat {
	for _, h := range w.hosts {
		h.stop()
	}
	w.group.Wait()
	return w.starts
}

// late returns the lateness of the occurrences of a span, largest first; for one that never started it
// is the length of the world. One that started twice, or early, is an error.
func (w *clockWorld) late(from, to time.Time, earliest time.Duration) (late []time.Duration) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]beat{}
	for _, b := range w.starts {
		key := b.job + " " + b.due.String()
		if other, twice := seen[key]; twice {
			w.t.Errorf("%s of %s has started on %s and on %s", b.job, b.due, other.node, b.node)
		}
		seen[key] = b
		if by := b.at.Sub(b.due); by < earliest && !b.at.Before(from) && b.at.Before(to) {
			w.t.Errorf("%s of %s has started on %s %s early, at %s", b.job, b.due, b.node, -by, b.at)
		}
	}
	for due := from.Truncate(time.Second).Add(time.Second); due.Before(to); due = due.Add(time.Second) {
		for i := range beats {
			b, ok := seen[fmt.Sprintf("beat%d %s", i, due)]
			if !ok {
				b.at = time.Now()
			}
			late = append(late, b.at.Sub(due))
		}
	}
	slices.Sort(late)
	slices.Reverse(late)
	return late
}

// punctual demands that all that is due in a span has started, and how late at most.
func (w *clockWorld) punctual(what string, from, to time.Time, earliest, latest time.Duration) {
	w.t.Helper()
	if late := w.late(from, to, earliest); late[0] > latest {
		w.t.Errorf("%s: of %d occurrences %d have started more than %s late, one %s", what, len(late),
			slices.IndexFunc(append(late, 0), func(d time.Duration) bool { return d <= latest }), latest, late[0])
	}
}

// One node's clock is set forward, then back.
func TestAStepOfOneClockMovesNoRun(t *testing.T) {
	for _, c := range []struct {
		nodes int
		step  time.Duration
	}{{3, 10 * time.Minute}, {3, 90 * time.Second}, {3, -90 * time.Second}, {2, 10 * time.Minute}, {2, -10 * time.Minute}, {5, time.Hour}} {
		for wrong := range c.nodes { // including the oldest node
			t.Run(fmt.Sprintf("%s of %d by %s", string(rune('a'+wrong)), c.nodes, c.step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newClockWorld(t, c.nodes)
					h := w.hosts[wrong]
					began := time.Now()
					time.Sleep(5*time.Second + 300*time.Millisecond)
					h.set(c.step)
					time.Sleep(25 * time.Second)
					if n := h.log.Count("the clock of this node is off"); n != 1 {
						t.Errorf("its log has %d lines about that:\n%s", n, h.log.String())
					}
					for i, other := range w.hosts {
						if n := other.log.Count("the clock of another node is off"); i != wrong && n != 1 {
							t.Errorf("the log of %s has %d lines about that:\n%s", other.name, n, other.log.String())
						}
					}
					back := time.Now()
					h.set(0)
					time.Sleep(20 * time.Second)
					over := time.Now()
					if n := h.log.Count("it plans and claims"); n != 2 {
						t.Errorf("its log has %d lines of the beginning and the end:\n%s", n, h.log.String())
					}
					time.Sleep(5 * time.Second)
					starts := w.end()
					w.punctual("while it is wrong", began, back, 0, takenOverMax)
					w.punctual("afterwards", back, over, 0, takenOverMax)
					w.punctual("in the end", over.Add(-10*time.Second), over, 0, lateMax)
					byIt := 0
					for _, b := range starts {
						if b.node == h.name && b.at.After(over.Add(-10*time.Second)) {
							byIt++
						}
					}
					if byIt == 0 {
						t.Error("it has started nothing afterwards")
					}
				})
			})
		}
	}
}

// An only node has no other clock to compare: its new time is confirmed, and until then nothing starts.
func TestAnOnlyNodeWaitsForItsClockToBeConfirmed(t *testing.T) {
	for _, step := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newClockWorld(t, 1)
			time.Sleep(300 * time.Millisecond)
			w.hosts[0].set(step)
			set := time.Now()
			time.Sleep(2 * time.Minute)
			starts := w.end()
			first := time.Duration(math.MaxInt64)
			for _, b := range starts {
				switch after := b.at.Sub(set); {
				case after < store.ClaimAhead+noticedMax: // claimed before, it starts by the boot clock
				case b.wall.Before(b.due):
					t.Errorf("%s of %s has started at %s of its clock", b.job, b.due, b.wall)
				default:
					first = min(first, after)
				}
			}
			if step > 0 && first > confirmedMax {
				t.Errorf("the first run has started %s after the step", first)
			}
			if step < 0 && first < time.Hour {
				t.Errorf("what has run is due again, and has started %s after the step", first)
			}
		})
	}
}

// TestClocks lets one clock at a time go wrong in each way, in worlds of 2, 3 and 5 nodes: an only node
// has no clock to compare its own with, see TestAnOnlyNodeWaitsForItsClockToBeConfirmed.
func TestClocks(t *testing.T) {
	first, worlds := seeds(t, "BELFRY_SIM_CLOCKS", 1, clockSlice)
	for i := range worlds {
		clocksWorld(t, first+uint64(i))
		if t.Failed() {
			return
		}
	}
}

func clocksWorld(t *testing.T, seed uint64) {
	well := false
	defer func() {
		if !well {
			fmt.Fprintln(os.Stderr, "this world again:", again("TestClocks", seed))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		x := rand.New(rand.NewPCG(seed, 7))
		nodes := []int{2, 3, 5}[seed%3]
		w := newClockWorld(t, nodes)
		began := time.Now()
		var what []string
		for range 12 {
			h := w.hosts[x.IntN(nodes)]
			by := time.Duration(math.Exp(x.Float64()*math.Log(3600)) * float64(time.Second)) // 1 s to 1 h
			if x.IntN(2) == 0 {
				by = -by
			}
			lasts := 5*time.Second + time.Duration(x.IntN(int(40*time.Second)))
			say := func(format string, args ...any) {
				what = append(what, time.Now().Format(time.TimeOnly)+": "+h.name+" "+fmt.Sprintf(format, args...))
			}
			switch x.IntN(6) {
			case 0, 1:
				say("is set by %s", by)
				h.set(by)
			case 2, 3:
				// With two nodes it cannot be known which of two never set clocks is slow.
				pace, both := time.Duration(x.Int64N(int64(100*time.Millisecond)))-50*time.Millisecond, nodes > 2 && x.IntN(2) == 0
				say("gains %s a second, its boot clock too: %t", pace, both)
				h.drift(pace, both)
			case 4:
				late := time.Duration(x.Int64N(int64(2 * time.Second)))
				say("renews up to %s late", late)
				h.late.Store(int64(late))
			default:
				say("is suspended")
				h.away.Store(true)
			}
			time.Sleep(lasts)
			h.set(0)
			h.late.Store(0)
			h.away.Store(false)
			time.Sleep(20 * time.Second)
		}
		over := time.Now()
		time.Sleep(20 * time.Second)
		w.end()
		// Clocks set by less than clockApart count.
		w.punctual("while clocks are wrong", began, over, -clockApart, clockApart+2*takenOverMax)
		w.punctual("in the end", over.Add(-5*time.Second), over, -clockApart, clockApart+lateMax)
		if well = !t.Failed(); !well {
			t.Logf("BELFRY_SEED=%d, %d nodes:\n%s", seed, nodes, strings.Join(what, "\n"))
		}
	})
}
