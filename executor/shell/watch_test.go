package shell

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/executor"
)

// recorder is a watch that records its calls.
type recorder struct {
	noWatch
	mu    sync.Mutex
	lines []string
	last  executor.Process

	spawned func() // called when a command runs; may be nil
}

func (r *recorder) note(what string, p executor.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, what)
	r.last = p
}

func (r *recorder) Spawning(p executor.Process) error { r.note("spawning", p); return nil }
func (r *recorder) Ended(p executor.Process)          { r.note("ended", p) }

func (r *recorder) EndRest(p executor.Process) int {
	r.note("is asked for the rest", p)
	return 0
}

func (r *recorder) Spawned(p executor.Process) {
	group, err := unix.Getpgid(p.PID)
	r.note(fmt.Sprintf("spawned, leads its group: %t, %v", group == p.PID, err), p)
	if r.spawned != nil {
		r.spawned()
	}
}

func TestWatchdogHearsOfEachCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, command string
		want          []string
	}{
		{"that runs", "exec sleep 0.05", []string{"starts", "spawning", "spawned, leads its group: true, <nil>", "ended"}},
		{"that there is not", "/there/is/none", []string{"starts", "spawning", "ended"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := &recorder{}
			e := newExecutor(t, func(c *Config) { c.Watch = w })
			a := command(c.command)
			a.Fence = 17 * time.Second
			a.Start = func() error { w.note("starts", executor.Process{}); return nil }
			r, _, _ := run(t, e, a)
			if !slices.Equal(w.lines, c.want) {
				t.Errorf("%s: told %s, want %s", describe(r), strings.Join(w.lines, "; "), strings.Join(c.want, "; "))
			}
			if w.last.Run != a.Run.ID || w.last.Number != 1 || w.last.Grace != a.Grace || w.last.Fence != a.Fence {
				t.Errorf("the last process is %+v", w.last)
			}
		})
	}
}

func TestLeftoversOfAKilledCommandAreSearched(t *testing.T) {
	t.Parallel()
	w := &recorder{}
	e := newExecutor(t, func(c *Config) { c.Watch, c.Cgroup = w, "none" })
	a := command("exec sleep 1000")
	a.Grace = 0
	ctx, cancel := context.WithCancelCause(t.Context())
	w.spawned = func() { cancel(executor.ErrCancelled) }
	r := e.Run(ctx, a, executor.Output{})
	// It may have left its group and closed the pipes.
	want := []string{"spawning", "spawned, leads its group: true, <nil>", "is asked for the rest", "ended"}
	if !slices.Equal(w.lines, want) {
		t.Errorf("%s: told %s, want %s", describe(r), strings.Join(w.lines, "; "), strings.Join(want, "; "))
	}
}
