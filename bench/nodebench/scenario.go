// Package nodebench measures a node: its timer, how late it starts commands, how many runs it takes
// from planned to finished, what a million jobs cost and what an idle node costs. A limit of the
// same machine, such as the rate of starting processes, is measured in the same run and shown
// beside the figure. Commands are measured from outside: the built program receives its jobs by its
// API and is watched through /proc, and its jobs record when they started. The timer, the planner
// and empty runs are measured in the process of the benchmark.
package nodebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Options are the extent of a measurement.
type Options struct {
	// Only are the names of the scenarios to run. Default: all.
	Only []string
	// Seconds is how long each load is measured, Hold how long the loads are
	// that a node must hold, Idle how long one without jobs is watched.
	Seconds int
	Hold    time.Duration
	Idle    time.Duration
	// Quick only shows that everything works: few jobs, short times.
	Quick bool
	// Servers adds what is measured on database servers, which are started for it.
	Servers bool
	// Dir is where stores and programs are created, in a folder that is removed at the end.
	// Default: the system's temporary folder.
	Dir string
	// Profile is a folder for processor profiles of the scenarios with flows or with sketches. Default: none.
	Profile string
}

// Scenario is one measurement.
type Scenario struct {
	Name  string
	About string
	// Server is set if it needs a database server.
	Server bool
	run    func(*bench, context.Context) ([]Figure, error)
}

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	var list []Scenario
	add := func(name, about string, run func(*bench, context.Context) ([]Figure, error)) {
		list = append(list, Scenario{Name: name, About: about, run: run})
	}
	for _, l := range commandLoads {
		add(l.name, l.about, func(b *bench, ctx context.Context) ([]Figure, error) { return b.commands(ctx, l) })
	}
	for _, l := range noopLoads {
		add(l.name, l.about, func(b *bench, ctx context.Context) ([]Figure, error) { return b.noop(ctx, embedded, l) })
	}
	for _, l := range backlogs {
		add(l.name, l.about, func(b *bench, ctx context.Context) ([]Figure, error) { return b.rate(ctx, l) })
	}
	add("catch-up", "100,000 missed runs of jobs that allow, skip and queue overlaps", func(b *bench, ctx context.Context) ([]Figure, error) {
		return b.catchUps(ctx, embedded)
	})
	add("keys", "100,000 missed runs with a key for each of 10,000 jobs", func(b *bench, ctx context.Context) ([]Figure, error) { return b.keys(ctx, embedded) })
	add("counts", aboutCounts+" on "+embedded.name, func(b *bench, ctx context.Context) ([]Figure, error) { return b.counts(ctx, embedded) })
	add("flows", aboutFlows+" on "+embedded.name, func(b *bench, ctx context.Context) ([]Figure, error) { return b.flows(ctx, embedded) })
	add("store", "the store alone, from planned to finished in batches of 500", (*bench).store)
	add("api", "pages, and making jobs, with 100,000 jobs and 1,000,000 runs in the store", (*bench).api)
	add("ui", "pages of the web UI with 100,000 jobs and 1,000,000 runs in the store", (*bench).ui)
	add("apply", "belfry apply of a file with 10,000 jobs", (*bench).apply)
	add("million", "a node with 1,000,000 jobs", (*bench).million)
	add("followers", "10 commands each second beside 1,000 who follow events and 1,000 who follow an output", (*bench).followers)
	add("xxl", "1,000 runs each second at executors of XXL-JOB, 5,000 at one instant, and 500 results in a request", (*bench).xxl)
	add("idle", "a node without jobs", (*bench).idle)
	list = append(list, serverScenarios()...)
	// Last, because a million goroutines leave a large heap.
	add("timer", "a million entries of the timer that are due at one instant", (*bench).timer)
	return list
}

// bench is a run of the benchmark.
type bench struct {
	Options
	dir string
	out io.Writer
	// Built on first use.
	server  string
	program *program
}

// Run measures and writes a table for each scenario.
func Run(ctx context.Context, out io.Writer, o Options) (err error) {
	scenarios, err := choose(o.Only, o.Servers)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.Dir, "nodebench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// A root node may run jobs as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	b := &bench{Options: o, dir: dir, out: out}
	fmt.Fprintf(out, "%s, %d processors, %s, %s/%s.\n", processor(), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	var missed []string
	var failed []error
	for _, s := range scenarios {
		began := time.Now()
		fmt.Fprintf(out, "\n### %s: %s\n\n", s.Name, s.About)
		// Measurements in this process must not pay for earlier garbage.
		debug.FreeOSMemory()
		figures, err := s.run(b, ctx)
		if err != nil {
			err = fmt.Errorf("%s: %w", s.Name, err)
			if ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(out, "It has failed: %v\n", err)
			failed = append(failed, err)
			continue
		}
		writeTable(out, figures)
		fmt.Fprintf(out, "\nTook %s.\n", time.Since(began).Round(time.Second))
		for _, f := range figures {
			if f.missed {
				missed = append(missed, fmt.Sprintf("%s: %s is %s, the goal is %s", s.Name, f.What, f.Measured, f.Goal))
			}
		}
	}
	switch {
	case len(failed) > 0:
		return errors.Join(failed...)
	case o.Quick:
		fmt.Fprintln(out, "\nThis was quick: the figures mean little.")
	case len(missed) == 0:
		fmt.Fprintln(out, "\nAll goals are met.")
	default:
		fmt.Fprintf(out, "\nGoals that are not met:\n\n- %s\n", strings.Join(missed, "\n- "))
	}
	return nil
}

// choose returns the scenarios with the given names. Without names it returns all, those with
// database servers only if wanted.
func choose(only []string, servers bool) ([]Scenario, error) {
	all := Scenarios()
	if len(only) == 0 {
		return slices.DeleteFunc(all, func(s Scenario) bool { return s.Server && !servers }), nil
	}
	var chosen []Scenario
	for _, name := range only {
		i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
		if i < 0 {
			var names []string
			for _, s := range all {
				names = append(names, s.Name)
			}
			return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// scaled returns n, or quick with Options.Quick.
func (b *bench) scaled(n, quick int) int {
	if b.Quick {
		return min(n, quick)
	}
	return n
}

// settling is the time for a node to learn the duration of claims.
func (b *bench) settling() time.Duration {
	if b.Quick {
		return time.Second
	}
	return 4 * time.Second
}

// folder makes a folder for one load.
func (b *bench) folder() (string, error) {
	dir, err := os.MkdirTemp(b.dir, "load")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// processor returns the name of the processor.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "a processor without a name"
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
