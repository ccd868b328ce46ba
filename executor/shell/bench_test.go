package shell

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

// tinyProgram builds a static program that does nothing. It is in Go, since there may be no C
// compiler.
func tinyProgram(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	source, program := filepath.Join(dir, "tiny.go"), filepath.Join(dir, "tiny")
	text := "package main\n\nfunc main() {}\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	var out []byte
	var err error
	if cc, missing := exec.LookPath("cc"); missing == nil {
		source = filepath.Join(dir, "tiny.c")
		if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600); err != nil {
			b.Fatal(err)
		}
		out, err = exec.Command(cc, "-O2", "-static", "-o", program, source).CombinedOutput()
	} else {
		out, err = exec.Command("go", "build", "-o", program, source).CombinedOutput()
	}
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return program
}

// sideBySide runs several functions in turns, so that other load affects all alike, and returns the
// rate of each per second.
func sideBySide(rounds, each, parallel int, ways ...func()) []float64 {
	took := make([]time.Duration, len(ways))
	for range rounds {
		for i, way := range ways {
			var left atomic.Int64
			left.Store(int64(each))
			var all sync.WaitGroup
			began := time.Now()
			for range parallel {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						way()
					}
				})
			}
			all.Wait()
			took[i] += time.Since(began)
		}
	}
	rates := make([]float64, len(ways))
	for i := range ways {
		rates[i] = float64(rounds*each) / took[i].Seconds()
	}
	return rates
}

// BenchmarkSpawn compares the executor with the cheapest way to start a process in Go:
// syscall.StartProcess, on Linux vfork and exec, without pipes and readers. One operation is a
// process of each way.
func BenchmarkSpawn(b *testing.B) {
	program := tinyProgram(b)
	e := newExecutor(b)
	bare := newExecutor(b, func(c *Config) { c.Cgroup = "none" })
	raw := func(argv ...string) func() {
		return func() {
			pid, _, err := syscall.StartProcess(argv[0], argv, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	}
	ours := func(e *Executor, text string, limits *job.Limits) func() {
		a := command(text)
		a.Job.Run.Shell.Limits = limits
		return func() {
			if r := e.Run(context.Background(), a, executor.Output{}); r.Outcome != job.OutcomeSucceeded {
				b.Error(describe(r))
			}
		}
	}
	library := func() {
		cmd := exec.Command(program)
		var sink writer = func([]byte) {}
		cmd.Stdout, cmd.Stderr = sink, sink
		if err := cmd.Run(); err != nil {
			b.Error(err)
		}
	}
	const each = 100
	parallel := spawnsPerProcessor * runtime.GOMAXPROCS(0)
	rates := sideBySide(max(1, b.N/each), each, parallel,
		raw(program), ours(e, program, nil), ours(bare, program, nil), library,
		raw("/bin/sh", "-c", program+"; exit 0"), ours(e, program+"; exit 0", nil),
		ours(bare, program, &job.Limits{Memory: 1 << 30}))
	b.ReportMetric(0, "ns/op")
	for i, unit := range []string{"raw/s", "direct/s", "direct-without-cgroups/s", "os-exec-with-pipes/s", "raw-sh/s", "sh/s", "limited/s"} {
		b.ReportMetric(rates[i], unit)
	}
	b.ReportMetric(rates[1]/rates[0], "direct/raw")
	b.ReportMetric(rates[5]/rates[4], "sh/raw-sh")
}

// stopwatch is a Watch that notes when each process was there.
type stopwatch struct {
	noWatch
	mu    sync.Mutex
	began time.Time
	took  []time.Duration
}

func (w *stopwatch) Spawned(executor.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, time.Since(w.began))
}

// BenchmarkHerd starts a hundred commands at one instant. One operation is a herd. It reports how
// soon half of the processes, and nearly all, had started, and the processor time per command, here
// and in its process.
func BenchmarkHerd(b *testing.B) {
	const herd = 100
	program := tinyProgram(b)
	w := &stopwatch{}
	e := newExecutor(b, func(c *Config) { c.Watch = w })
	a := command(program)
	var before, after [2]unix.Rusage
	look := func(to *[2]unix.Rusage) {
		for i, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
			if err := unix.Getrusage(who, &to[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
	look(&before)
	b.ReportAllocs()
	var half, most time.Duration
	for b.Loop() {
		w.began, w.took = time.Now(), w.took[:0]
		var all sync.WaitGroup
		for range herd {
			all.Go(func() {
				if r := e.Run(context.Background(), a, executor.Output{}); r.Outcome != job.OutcomeSucceeded {
					b.Error(describe(r))
				}
			})
		}
		all.Wait()
		half += w.took[herd/2]
		most += w.took[herd-2]
	}
	look(&after)
	for i, unit := range []string{"own-µs/command", "command-µs/command"} {
		spent := func(u *unix.Rusage) float64 { return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3 }
		b.ReportMetric((spent(&after[i])-spent(&before[i]))/float64(herd*b.N), unit)
	}
	b.ReportMetric(float64(after[0].Nvcsw-before[0].Nvcsw)/float64(herd*b.N), "switches/command")
	b.ReportMetric(half.Seconds()*1e3/float64(b.N), "p50-ms")
	b.ReportMetric(most.Seconds()*1e3/float64(b.N), "p99-ms")
}
