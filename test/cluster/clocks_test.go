//go:build servers

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/e2e/evidence"
	"github.com/belfry-cron/belfry/test/e2e/ownclock"
	"github.com/belfry-cron/belfry/test/servers"
)

// ownClock builds the program with a wall clock of its own, into a directory that outlasts the tests.
var ownClock = sync.OnceValues(func() (string, error) {
	dir := filepath.Dir(programs.belfry)
	flags, err := ownclock.Flags(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "belfry-clock")
	return path, servers.Build(path, "cmd/belfry", flags...)
})

// setClock moves the wall clock of the node's process.
func (n *node) setClock(by time.Duration) {
	n.t.Helper()
	if err := ownclock.Set(n.clock, by); err != nil {
		n.t.Fatal(err)
	}
}

// clockOff reports whether a node says that another one waits because of its clock, and how far that is off.
func (n *node) clockOff(name string) (off bool, ahead time.Duration) {
	nodes, err := n.Nodes(n.t.Context())
	if err != nil {
		return false, 0
	}
	for _, other := range nodes.Items {
		if other.Name == name {
			off, ahead = other.ClockOff, time.Duration(other.ClockAhead*float64(time.Second))
		}
	}
	return off, ahead
}

const (
	// wrongFor is how long a clock is wrong: longer than a node is believed to live that says nothing.
	wrongFor = beyondSession
	// together is how far the clocks of nodes may be apart without one of them waiting (docs/store.md).
	together = time.Second
	// surely is a difference that is seen, also on a busy machine, whose renewals are late.
	surely = 5 * time.Second
)

// wrong is what becomes of the clock of the last node. All other clocks are right.
type wrong struct {
	set time.Duration
	// drift is set if the clock gets there bit by bit.
	drift bool
	// asleep is set if the node is stopped meanwhile, and finds the clock so when it wakes.
	asleep bool
	// short is set for what each change is tested with.
	short bool
}

func (w *wrong) String() string {
	switch {
	case w.asleep:
		return fmt.Sprintf("asleep, %s when it wakes", w.set)
	case w.drift:
		return fmt.Sprintf("%s bit by bit", w.set)
	}
	return w.set.String()
}

var clocks = []wrong{
	{set: 10 * time.Minute, short: true},
	{set: time.Second},
	{set: -time.Second},
	{set: 5 * time.Second},
	{set: -5 * time.Second},
	{set: 90 * time.Second},
	{set: -10 * time.Minute},
	{set: time.Hour},
	{set: -time.Hour},
	{set: 100 * time.Millisecond, drift: true},
	{set: 8 * time.Second, drift: true},
	{set: -8 * time.Second, drift: true},
	{asleep: true},
	{set: 10 * time.Minute, asleep: true},
	{set: -time.Hour, asleep: true, short: true},
}

// misleads sets the clock of a node while the jobs run, and back.
func (c *cluster) misleads(w *wrong, of *node, telling bool) (down evidence.Span) {
	c.t.Helper()
	down.From = time.Now()
	if w.asleep {
		of.signal(syscall.SIGSTOP)
		<-time.After(wrongFor)
		of.setClock(w.set)
		of.signal(syscall.SIGCONT)
	}
	if w.drift {
		tick := time.NewTicker(wrongFor / 200)
		defer tick.Stop()
		for passed := time.Duration(0); passed < wrongFor; passed = time.Since(down.From) {
			of.setClock(time.Duration(float64(w.set) * passed.Seconds() / wrongFor.Seconds()))
			<-tick.C
		}
	}
	of.setClock(w.set)
	wrongSince := time.Now()
	if w.set.Abs() >= surely {
		eventually(c.t, "the clock is seen to be wrong by "+w.String(), func() bool {
			off, ahead := c.nodes[0].clockOff(of.name)
			return off == telling && (of == c.nodes[0] && telling || (ahead-w.set).Abs() < w.set.Abs()/2)
		})
	}
	<-time.After(time.Until(wrongSince.Add(wrongFor)))
	of.setClock(0)
	eventually(c.t, "the clock is seen to be right after "+w.String(), func() bool {
		off, ahead := c.nodes[0].clockOff(of.name)
		return !off && ahead.Abs() < together
	})
	down.To = time.Now()
	for _, n := range c.nodes {
		eventually(c.t, "node "+n.name+" is live again", func() bool { return n.live(n.name) })
	}
	c.calm()
	return down
}

// The wall clock of one of some nodes is set, drifts or is another one after a sleep, while the jobs run, and is
// set right. With databases that tell the time it does not matter. etcd tells none, and its node waits if there is
// another one; an only node follows its clock. BELFRY_CLOCKS=whole makes all of it, on all databases.
func TestAClockIsWrong(t *testing.T) {
	t.Parallel()
	whole := os.Getenv("BELFRY_CLOCKS") == "whole"
	sizes, stores := []int{2, 3}, []string{"etcd"}
	if whole {
		sizes, stores = []int{1, 2, 3, 5}, databases()
	}
	for _, nodes := range sizes {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			for _, name := range stores {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					clocksAreWrong(t, name, nodes, whole)
				})
			}
		})
	}
}

func clocksAreWrong(t *testing.T, database string, nodes int, whole bool) {
	program, err := ownClock()
	if err != nil {
		t.Fatal(err)
	}
	c := startWith(t, database, nodes, func(n *node) {
		n.program, n.clock = program, filepath.Join(n.dir, "clock")
		n.setClock(0)
	})
	agree := database == "etcd"
	c.create()
	<-time.After(time.Until(c.began.Add(4 * time.Second)))
	var down []evidence.Span
	longest := time.Duration(0)
	for i := range clocks {
		w := &clocks[i]
		if !whole && !w.short || agree && nodes == 1 && w.set > together {
			continue // an only node runs what its clock says, and waits as long when that is set back
		}
		began := time.Now()
		span := c.misleads(w, c.nodes[nodes-1], agree && nodes > 1)
		t.Logf("%s: punctual after %.1f s", w, time.Since(began).Seconds())
		down = append(down, span)
		longest = max(longest, span.To.Sub(span.From))
	}
	h := c.finish(down...)
	earliest := time.Duration(0)
	if agree {
		earliest = together
	}
	least := time.Duration(0)
	for _, e := range h.Events {
		if e.Kind != evidence.Start {
			continue
		}
		least = min(least, e.At.Sub(e.Scheduled))
		if e.At.Before(e.Scheduled.Add(-earliest)) {
			t.Errorf("%s of %s has started at %s", e.Job, e.Scheduled, e.At)
		}
	}
	t.Logf("%d clocks were wrong; the earliest start was %s early", len(down), -least)
	bound := lateMax
	if nodes == 1 {
		bound += longest
	}
	h.punctual(bound)
}
