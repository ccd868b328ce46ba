package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/server/callback"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// cluster is whole nodes over the store in memory, in a bubble of fake time.
type cluster struct {
	t       *testing.T
	seed    uint64
	history *History
	memory  *memory.Store
	tap     *Tap
	random  *rand.Rand
	user    *user
	outside *outside
	hosts   []*host
	boot    time.Time
	good    atomic.Bool   // no further faults
	gentle  chan struct{} // of capacity one: held during a gentle restart
	group   sync.WaitGroup
	done    chan struct{}
	over    chan struct{}  // the world is
	tells   sync.WaitGroup // pending reports about handed-over work
}

// host is a machine and the process on it.
type host struct {
	cluster *cluster
	name    string
	machine string
	weather *weather
	skew    atomic.Int64 // offset of its wall clock

	mu      sync.Mutex
	life    int
	process *process
}

// process is one start of a node.
type process struct {
	gate    *gate
	witness *witness
	cancel  context.CancelFunc
	ended   chan struct{}
}

func runNodes(t *testing.T, seed uint64) *History {
	c := &cluster{
		t: t, seed: seed, history: newHistory(), memory: memory.New(memory.Options{LookAhead: lookAhead}),
		random: rand.New(rand.NewPCG(seed, 1)), boot: time.Now(), done: make(chan struct{}), over: make(chan struct{}),
		gentle: make(chan struct{}, 1),
	}
	c.tap = NewTap(c.memory, c.history, time.Now, lookAhead)
	c.outside = newOutside(c.history, time.Now)
	var err error
	if c.user, err = newUser(c.tap, rand.New(rand.NewPCG(seed, 3)), time.Now); err != nil {
		t.Fatal(err)
	}
	c.history.fault(time.Now(), time.Now().Add(time.Second), false) // no node has joined yet
	for i := range nodesCount {
		h := &host{cluster: c, name: fmt.Sprint("node-", i), machine: fmt.Sprint("machine-", i), weather: &weather{random: rand.New(rand.NewPCG(seed, uint64(10+i)))}}
		c.hosts = append(c.hosts, h)
		h.start()
	}
	c.group.Go(c.edit)
	c.group.Go(c.trouble)
	time.Sleep(sliceOf)
	c.good.Store(true)
	close(c.done)
	c.group.Wait()
	for _, h := range c.hosts {
		h.recover()
	}
	time.Sleep(calmFor)
	calm := time.Now()
	if _, err := c.tap.Tidy(context.Background()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if err := c.history.Check(c.memory, calm, lookAhead, lateMax); err != nil {
		t.Fatal(err)
	}
	for _, h := range c.hosts {
		h.kill()
	}
	close(c.over)
	c.tells.Wait()
	return c.history
}

// lateMax bounds the lateness of a run when nothing is wrong: the store answers within some
// milliseconds.
const lateMax = 100 * time.Millisecond

// joinMax bounds, when nothing is wrong, the time until other nodes know of a new one.
const joinMax = 3 * time.Second

// pause waits for a random time, and reports whether the faults continue.
func (c *cluster) pause(random *rand.Rand, mean time.Duration) bool {
	timer := time.NewTimer(time.Duration(random.Int64N(int64(2*mean))) + 1)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

func (c *cluster) edit() {
	for random := rand.New(rand.NewPCG(c.seed, 4)); c.pause(random, editEvery); {
		if random.IntN(5) < 2 {
			// Right before a due time, during the claims.
			ahead := 60 * time.Millisecond
			if random.IntN(2) == 0 {
				ahead = store.ClaimAhead
			}
			next := time.Now().Add(10*time.Second + ahead).Truncate(10 * time.Second)
			time.Sleep(time.Until(next) - time.Duration(random.IntN(int(ahead))))
			c.history.within()
		}
		if err := c.user.edit(); err != nil {
			c.t.Errorf("edit: %v", err)
		}
	}
}

// trouble causes one fault after another.
func (c *cluster) trouble() {
	x := c.random
	var faults sync.WaitGroup
	for c.pause(x, faultEvery) {
		h := c.hosts[x.IntN(len(c.hosts))]
		d := 500*time.Millisecond + time.Duration(x.IntN(int(20*time.Second)))
		if x.IntN(10) < 3 {
			d = 20*time.Second + time.Duration(x.IntN(int(160*time.Second)))
		}
		c.history.wrong()
		kind, loss, slow := x.IntN(13), x.Float64()/2, x.IntN(2) == 0
		step := time.Duration(x.Int64N(int64(2*time.Hour))) - time.Hour
		if x.IntN(2) == 0 {
			step /= 1000
		}
		elsewhere := x.IntN(10) < 3
		faults.Go(func() { c.fault(h, kind, d, loss, slow, step, elsewhere) })
	}
	faults.Wait()
}

// fault causes a fault for a while.
func (c *cluster) fault(h *host, kind int, d time.Duration, loss float64, slow bool, step time.Duration, elsewhere bool) {
	began := time.Now()
	pause := func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.done:
		}
	}
	wait := func() {
		pause()
		c.history.fault(began, time.Now(), false)
	}
	away, waits := refused, time.Duration(0)
	if slow {
		away, waits = silence, patience
	}
	// Unanswered calls keep waiting once the store can be reached again.
	waitAway := func() {
		pause()
		c.history.fault(began, time.Now().Add(waits), false)
	}
	switch {
	case kind < 2:
		h.weather.set(loss, slow, reached)
		wait()
		h.weather.set(0, false, reached)
	case kind < 4:
		h.weather.set(0, false, away)
		waitAway()
		h.weather.set(0, false, reached)
	case kind < 5: // an outage
		for _, h := range c.hosts {
			h.weather.set(0, false, away)
		}
		waitAway()
		for _, h := range c.hosts {
			h.weather.set(0, false, reached)
		}
	case kind < 7:
		h.kill()
		if elsewhere {
			h.mu.Lock()
			h.machine = fmt.Sprint("machine ", time.Now().UnixNano())
			h.mu.Unlock()
		}
		pause()
		h.start()
		c.history.fault(began, time.Now().Add(time.Second), true)
	case kind < 9:
		h.freeze()
		wait()
		h.wake()
	case kind < 10: // a gentle restart is no fault: no run may be late
		// One after the other: some jobs fit only two nodes.
		c.gentle <- struct{}{}
		defer func() { <-c.gentle }()
		if slow { // right before much work is due
			next := time.Now().Add(10*time.Second + time.Second).Truncate(10 * time.Second)
			time.Sleep(time.Until(next) - d%time.Second)
		}
		h.stop()
		h.start()
		time.Sleep(joinMax)
	case kind < 11: // an absence of all nodes
		c.history.absence()
		var away sync.WaitGroup
		for _, h := range c.hosts {
			away.Go(func() {
				if slow {
					h.stop()
				} else {
					h.kill()
				}
			})
		}
		away.Wait()
		wait()
		for _, h := range c.hosts {
			h.start()
		}
		c.history.fault(began, time.Now().Add(joinMax), false)
	default: // nor is a wrong clock: the cluster uses the store's clock
		h.skew.Add(int64(step))
		pause()
		h.skew.Add(-int64(step))
	}
}

// start starts a process, if there is none.
func (h *host) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process != nil {
		return
	}
	h.life++
	c := h.cluster
	g := &gate{Store: c.tap, weather: h.weather, history: c.history, killed: make(chan struct{})}
	w := &witness{node: h.name, gate: g, history: c.history, cluster: c, calm: c.good.Load, running: map[*Attempt]bool{},
		random: rand.New(rand.NewPCG(c.seed, uint64(h.life)<<8+uint64(h.name[5])))}
	zone := "b"
	if h.name < "node-2" {
		zone = "a"
	}
	n, err := node.New(node.Config{
		Session: store.Session{
			Node: h.name, Machine: h.machine, DataDir: "/data", Labels: map[string]string{"zone": zone}, Capacity: 20,
			Roles: []string{store.RolePlanner, store.RoleWorker},
		},
		Executors: func(*job.Job) executor.Executor { return w },
		Keepers:   []node.Keeper{callback.New(killing{g, c.outside}, func() time.Duration { return time.Since(c.boot) })},
		Capacity:  20, DrainTimeout: 10 * time.Second,
		Now:  func() time.Time { return time.Now().Add(time.Duration(h.skew.Load())) },
		Boot: func() time.Duration { return time.Hour + time.Since(c.boot) },
		Log:  slog.New(slog.DiscardHandler),
	}.On(g))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{gate: g, witness: w, cancel: cancel, ended: make(chan struct{})}
	h.process = p
	go func() {
		defer close(p.ended)
		err := n.Run(ctx)
		h.ended(p, ctx, err)
	}()
}

// ended notes the end of a process, which only a kill or stop may cause.
func (h *host) ended(p *process, ctx context.Context, err error) {
	h.mu.Lock()
	mine := h.process == p
	if mine {
		h.process = nil
	}
	h.mu.Unlock()
	if mine && ctx.Err() == nil {
		h.cluster.t.Errorf("%s has ended by itself: %v", h.name, err)
	}
}

// kill ends the process at once.
func (h *host) kill() {
	h.mu.Lock()
	p := h.process
	h.process = nil
	h.mu.Unlock()
	if p != nil {
		p.witness.kill()
		close(p.gate.killed)
		p.cancel()
		<-p.ended
	}
}

// stop stops the process gently.
func (h *host) stop() {
	h.mu.Lock()
	p := h.process
	h.mu.Unlock()
	if p != nil {
		p.cancel()
		<-p.ended
	}
}

func (h *host) freeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.process; p != nil {
		p.gate.freeze()
		p.witness.freeze()
	}
}

func (h *host) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.process; p != nil {
		p.witness.wake()
		p.gate.wake()
	}
}

// recover ends all faults of the host.
func (h *host) recover() {
	h.weather.set(0, false, reached)
	h.wake()
	h.start()
}

// tellSilence logs how many calls were neither answered nor refused, and demands that
// there were some of both kinds: a world has 130 of each, as chance will.
func (l *load) tellSilence(t *testing.T) {
	t.Helper()
	t.Logf("of the calls without an answer %d never arrived, and %d were made", l.mute, l.unheard)
	for _, n := range []int{l.mute, l.unheard} {
		if want := l.worlds * silentCalls; n < want {
			t.Errorf("in %d worlds there were %d, want at least %d", l.worlds, n, want)
		}
	}
}

// silentCalls is how many of each kind a world has at least, on average.
const silentCalls = 10

func TestNodes(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	first, worlds := seeds(t, "BELFRY_SIM_NODES", 0.5, sliceOf)
	var all load
	began := time.Now()
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	var group sync.WaitGroup
	for i := range worlds {
		limit <- struct{}{}
		if t.Failed() {
			break
		}
		group.Go(func() {
			defer func() { <-limit }()
			nodesWorld(t, first+uint64(i), &all)
		})
	}
	group.Wait()
	all.tell(t, time.Since(began))
	all.tellSilence(t)
}

// nodesWorld runs one world, and prints how to repeat it if it fails.
func nodesWorld(t *testing.T, seed uint64, all *load) {
	well := false
	defer func() {
		if !well { // also by an end of the bubble that no code inside notices
			fmt.Fprintln(os.Stderr, "this world again:", again("TestNodes", seed))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		h := runNodes(t, seed)
		all.add(h)
		for _, p := range h.Problems() {
			t.Errorf("BELFRY_SEED=%d: %s", seed, p)
		}
		well = !t.Failed()
	})
}
