package watchdog

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/engine"
)

const (
	// containerPrefix begins the place of an entry whose command runs in a container.
	containerPrefix = "container:"
	// engineWithin bounds a call to a container engine: it is repeated.
	engineWithin = 2 * time.Second
	// engineCalls bounds the concurrent calls to engines.
	engineCalls = 16
)

// container returns the engine and the name of the container of an entry. ok is false for a command
// without one.
func (e Entry) container() (of *engine.Engine, name string, ok bool) {
	place, ok := strings.CutPrefix(e.Cgroup, containerPrefix)
	if !ok {
		return nil, "", false
	}
	socket, name, ok := strings.Cut(place, "#")
	return engine.New(socket), name, ok
}

// survey finds which processes belong to the entries. A container counts as process 0.
func survey(entries []Entry) map[Key][]int {
	var commands, containers []Entry
	for _, e := range entries {
		if strings.HasPrefix(e.Cgroup, containerPrefix) {
			containers = append(containers, e)
		} else {
			commands = append(commands, e)
		}
	}
	found := surveyProcesses(commands)
	var mu sync.Mutex
	var group sync.WaitGroup
	room := make(chan struct{}, engineCalls)
	for _, e := range containers {
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			if e.containerLeft() {
				mu.Lock()
				defer mu.Unlock()
				found[e.Key] = []int{0}
			}
		})
	}
	group.Wait()
	return found
}

// containerLeft reports whether the container of an entry runs or may begin to run. If the engine
// does not answer, it may.
func (e Entry) containerLeft() bool {
	of, name, ok := e.container()
	if !ok {
		return false
	}
	defer of.Close()
	ctx, cancel := context.WithTimeout(context.Background(), engineWithin)
	defer cancel()
	c, err := of.Inspect(ctx, name)
	if err != nil {
		return !engine.IsNotFound(err)
	}
	return c.State.Running || !c.State.Begun()
}

// signalContainer sends a signal to the container of an entry, or removes a container that has not
// started.
func (e Entry) signalContainer(sig syscall.Signal) {
	of, name, _ := e.container()
	defer of.Close()
	ctx, cancel := context.WithTimeout(context.Background(), engineWithin)
	defer cancel()
	signal := "SIGTERM"
	if sig == syscall.SIGKILL {
		signal = "SIGKILL"
	}
	if err := of.Kill(ctx, name, signal); err != nil && !engine.IsAway(err) && !engine.IsNotFound(err) {
		_ = of.Remove(ctx, name) // a request of the dead node may still start it
	}
}
