package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

func needOwnFiles(t *testing.T, e *Executor) {
	t.Helper()
	if f := e.Features(); !f.OwnFiles {
		t.Skip("threads cannot have files of their own: ", f.Missing)
	}
}

// The runtime uses its files on any thread: on one that sleeps after setting a timer, and on one
// that has collected garbage. Without them it ends the process.
func TestRuntimeContinuesWithFewFiles(t *testing.T) {
	t.Parallel()
	needOwnFiles(t, newExecutor(t))
	keep, err := runtimeFiles()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go onThread(func() {
		err := keepOnly(keep)
		for i := range 100 {
			<-time.After(time.Duration(i) * time.Microsecond)
			if i%10 == 0 {
				runtime.GC()
			}
		}
		done <- err
	})
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the thread hangs")
	}
}

// Not parallel: it reads all threads of the process.
func TestOpenFilesOfTheNodeAreNotInherited(t *testing.T) {
	e := newExecutor(t)
	needOwnFiles(t, e)
	const more = 100
	for range more {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	var all sync.WaitGroup
	for range more {
		a := attempt(job.RunSpec{Shell: &job.Shell{Command: "cat", Stdin: "text"}})
		all.Go(func() { e.Run(t.Context(), a, executor.Output{}) })
	}
	all.Wait()
	for range e.spawners.started { // until all of them have begun
		one := <-e.spawners.idle
		defer func() { e.spawners.idle <- one }()
	}
	tables, err := filepath.Glob("/proc/self/task/*/fd")
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for _, table := range tables {
		list, err := os.ReadDir(table)
		if err != nil || len(list) > more {
			continue // the thread has ended, or has the node's files
		}
		own++
		// The kept files, and the socket.
		if len(list) > len(e.spawners.keep)+1 {
			t.Errorf("%s has %v", table, list)
		}
	}
	if own < e.spawners.started { // threads of other tests may be ending
		t.Errorf("%d threads have files of their own, of %d", own, e.spawners.started)
	}
	first, err := os.ReadDir(fmt.Sprintf("/proc/self/task/%d/fd", os.Getpid()))
	if err != nil || len(first) <= more {
		t.Errorf("the first thread has %d files: %v", len(first), err)
	}
}

func TestEachCommandHasItsOwnFiles(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		e := newExecutor(t)
		if own {
			needOwnFiles(t, e)
		} else {
			e.spawners.keep = nil // as if close_range were forbidden
		}
		const commands = 100
		var all sync.WaitGroup
		for i := range commands {
			a := attempt(job.RunSpec{Shell: &job.Shell{Command: "cat; echo $BELFRY_RUN >&2", Stdin: fmt.Sprint(i)}})
			all.Go(func() {
				r, out, stderr := run(t, e, a)
				if out != a.Job.Run.Shell.Stdin || strings.TrimSpace(stderr) != a.Run.ID.String() || r.Outcome != job.OutcomeSucceeded {
					t.Errorf("%s: %q and %q, want %q and %s", describe(r), out, stderr, a.Job.Run.Shell.Stdin, a.Run.ID)
				}
			})
		}
		all.Wait()
		for text, want := range map[string]string{
			"/nowhere/program": "failed 127: exit status 127: /nowhere/program: not found",
			"/etc/passwd":      "failed 126: exit status 126: /etc/passwd: permission denied: the file is not executable",
		} {
			if r, _, _ := run(t, e, command(text)); describe(r) != want {
				t.Errorf("%s, want %s", describe(r), want)
			}
		}
	}
}
