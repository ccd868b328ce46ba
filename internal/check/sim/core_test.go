package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store/memory"
)

// seeds returns the first of some worlds, and their number: the same each time, so that only
// changes matter. BELFRY_SEED=random takes others, and a number only that world. The variable is
// their least total length in hours; all are equally long, so that the seed alone identifies one.
func seeds(t *testing.T, variable string, otherwise float64, world time.Duration) (first uint64, worlds int) {
	t.Helper()
	hours := otherwise
	if text := os.Getenv(variable); text != "" {
		var err error
		if hours, err = strconv.ParseFloat(text, 64); err != nil || !(hours > 0) {
			t.Fatalf("%s: %q is not a number of hours", variable, text)
		}
	}
	// A little less, as hours may be no exact number of worlds in binary.
	worlds = int(math.Ceil(hours/world.Hours() - 1e-9))
	switch text := os.Getenv("BELFRY_SEED"); text {
	case "":
		first = 1
	case "random":
		first = rand.Uint64()
	default:
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("BELFRY_SEED: %v", err)
		}
		first, worlds = seed, 1
	}
	// Logged first, so that the world of a panic can be found.
	t.Logf("%d worlds, from BELFRY_SEED=%d on", worlds, first)
	return first, worlds
}

// again returns the command that repeats a world of a test.
func again(test string, seed uint64) string {
	return fmt.Sprintf("BELFRY_SEED=%d go test -count=1 -run '^%s$' ./internal/check/sim", seed, test)
}

// load sums up the events of some worlds.
type load struct {
	mu                               sync.Mutex
	worlds                           int
	attempts, changes, faults, steps int
	mute, unheard                    int
	within, absences                 int
	handed, outlived, planned, flows int
	late                             int
}

func (l *load) add(h *History) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worlds++
	l.attempts += len(h.attempts)
	l.changes += h.Changes
	l.faults += h.Faults
	l.steps += h.Commits
	l.mute += h.Mute
	l.unheard += h.Unheard
	l.within += h.Within
	l.absences += h.Absences
	l.handed += h.HandedOver
	l.outlived += h.Outlived
	l.planned += h.Planned
	l.flows += h.Flows
	l.late += h.Late
}

// tell logs the load, and requires two thirds of the figures in docs/testing-sim.md, since worlds
// vary.
func (l *load) tell(t *testing.T, took time.Duration) {
	t.Helper()
	ran := time.Duration(l.worlds) * sliceOf
	t.Logf("%.1f cluster-hours in %.1f s: %.1f a second; %d attempts, %d changes of jobs, %d faults, %d of them absences of all nodes, %d steps; %d requests while claims are made, %d claims by plans, %d occurrences due and not planned when a user ended their schedule",
		ran.Hours(), took.Seconds(), ran.Hours()/took.Seconds(), l.attempts, l.changes, l.faults, l.absences, l.steps, l.within, l.planned, l.late)
	for _, got := range []struct {
		what  string
		n     int
		every time.Duration
	}{{"attempts", l.attempts, time.Second}, {"changes of jobs", l.changes, 10 * time.Second}, {"faults", l.faults, time.Minute},
		{"absences of all nodes", l.absences, 30 * time.Minute}, {"attempts that were handed over", l.handed, 30 * time.Second}, {"of them that outlived an absence of all nodes", l.outlived, time.Hour}, {"requests while claims are made", l.within, 20 * time.Second}, {"claims by plans", l.planned, 4 * time.Minute}, {"runs of flows", l.flows, 20 * time.Second}, {"occurrences due and not planned when a user ended their schedule", l.late, 15 * time.Minute}} {
		if want := int(ran/got.every) * 2 / 3; got.n < want {
			t.Errorf("in %s there were %d %s, want at least %d", ran, got.n, got.what, want)
		}
	}
}

func TestCore(t *testing.T) {
	// The memory of a world is freed at its end: collecting garbage before is useless.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	first, worlds := seeds(t, "BELFRY_SIM_CORE", 4, sliceOf)
	var next atomic.Uint64
	var all load
	var group sync.WaitGroup
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= uint64(worlds) || t.Failed() {
					return
				}
				coreWorld(t, first+i, &all)
			}
		})
	}
	group.Wait()
	all.tell(t, time.Since(began))
}

// TestCoreOnCommitsInParts lets a few worlds happen on a store that commits in parts.
func TestCoreOnCommitsInParts(t *testing.T) {
	first, _ := seeds(t, "BELFRY_SIM_CORE", 4, sliceOf)
	for seed := range uint64(2) {
		c, fates, err := RunCoreInParts(first+seed, 20*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("fates of commits: %v", fates)
		for fate := memory.Again; fate <= memory.Late; fate++ {
			if fates[fate] < 10 {
				t.Errorf("BELFRY_SEED=%d: %d commits have fate %d, want more", first+seed, fates[fate], fate)
			}
		}
		for _, p := range c.History().Problems() {
			t.Errorf("BELFRY_SEED=%d: %s", first+seed, p)
		}
	}
}

func TestANodeThatStopsBeforeItHasJoinedReturns(t *testing.T) {
	c, err := newCore(1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := c.nodes[0]
	c.outage = true
	n.start()
	c.run(c.now.Add(callTimeout / 2)) // during its join
	n.leave(10 * time.Second)
	if n.up {
		t.Error("a node without a session does not stop at once")
	}
	c.outage = false
	c.run(c.now.Add(20 * time.Second))
	if !n.up || n.leaving || n.session.IsZero() {
		t.Errorf("10 s after the stop it should be there: it is up %t, leaving %t, and has the session %s", n.up, n.leaving, n.session)
	}
}

// coreWorld runs one world, and prints how to repeat it if it fails.
func coreWorld(t *testing.T, seed uint64, all *load) {
	well := false
	defer func() {
		if !well { // also by a panic, which continues
			fmt.Fprintln(os.Stderr, "this world again:", again("TestCore", seed))
		}
	}()
	c, err := RunCore(seed, sliceOf)
	if err != nil {
		t.Errorf("BELFRY_SEED=%d: %v", seed, err)
		return
	}
	all.add(c.History())
	problems := c.History().Problems()
	for _, p := range problems {
		t.Errorf("BELFRY_SEED=%d: %s", seed, p)
	}
	well = len(problems) == 0
	if name := os.Getenv("BELFRY_JOB"); name != "" {
		_ = c.Describe(os.Stdout, name)
	}
}

func TestTheSameSeedIsTheSameHistory(t *testing.T) {
	var prints [2]uint64
	for i := range prints {
		c, err := RunCore(7, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if prints[i], err = c.Fingerprint(); err != nil {
			t.Fatal(err)
		}
	}
	if prints[0] != prints[1] {
		t.Errorf("two runs of one seed differ: %x and %x", prints[0], prints[1])
	}
}
