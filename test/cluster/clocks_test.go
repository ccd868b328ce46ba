//go:build servers

package cluster_test

import (
	"path/filepath"
	"sync"
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

// clockOff reports whether a node says that it waits because of its clock, and how far that is off.
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

// The wall clock of one of three nodes is set while the jobs run, and back. With databases that tell the time
// it does not matter; etcd tells none, and its node waits.
func TestAClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{10 * time.Minute, 90 * time.Second, -10 * time.Minute} {
		t.Run(by.String(), func(t *testing.T) {
			for _, name := range databases() {
				t.Run(name, func(t *testing.T) {
					program, err := ownClock()
					if err != nil {
						t.Fatal(err)
					}
					c := startWith(t, name, three, func(n *node) {
						n.program, n.clock = program, filepath.Join(n.dir, "clock")
						n.setClock(0)
					})
					wrong := c.nodes[2]
					h := c.withstand(beyondSession, func() {
						wrong.setClock(by)
						eventually(t, "the others see it", func() bool {
							off, ahead := c.nodes[0].clockOff("c")
							return off == (name == "etcd") && (ahead-by).Abs() < by.Abs()/2
						})
					}, func() {
						wrong.setClock(0)
						eventually(t, "the others see that it is right", func() bool {
							off, ahead := c.nodes[0].clockOff("c")
							return !off && ahead.Abs() < by.Abs()/2
						})
					})
					for _, e := range h.Events {
						if e.Kind == evidence.Start && e.At.Before(e.Scheduled) {
							t.Errorf("%s of %s has started at %s", e.Job, e.Scheduled, e.At)
						}
					}
					h.punctual(lateMax)
				})
			}
		})
	}
}
