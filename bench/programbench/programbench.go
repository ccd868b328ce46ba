// Package programbench compares schedulers inside a Go program: robfig/cron, gocron and Belfry in
// memory and on SQLite, with as many jobs due at each full second.
package programbench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/robfig"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// Options select the measurements.
type Options struct {
	Only    string
	Jobs    int
	Seconds int
}

// library starts a scheduler with a number of jobs due each second, and returns a function that
// stops it.
type library struct {
	name  string
	start func(ctx context.Context, jobs int, fire func()) (stop func() error, err error)
}

var libraries = []library{
	{"robfig", startRobfig},
	{"gocron", startGocron},
	{"light", startLight},
	{"light-robfig", startLightRobfig},
	{"memory", startMemory},
	{"sqlite", startSQLite},
}

// sizes are how many jobs are due each second. SQLite commits each run, which bounds it.
var sizes = map[string][]int{
	"robfig":       {1000, 10_000, 100_000},
	"gocron":       {1000, 10_000, 100_000},
	"light":        {1000, 10_000, 100_000},
	"light-robfig": {1000, 10_000, 100_000},
	"memory":       {1000, 10_000, 100_000},
	"sqlite":       {1000, 5000, 10_000},
}

// settling is how long a library runs before the measurement.
const settling = 5 * time.Second

// Run measures and prints a table.
func Run(ctx context.Context, out io.Writer, o Options) error {
	if o.Only != "" {
		r, err := Measure(ctx, o.Only, o.Jobs, o.Seconds)
		if err == nil {
			_, err = fmt.Fprintln(out, r.row())
		}
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, %d processors, %s/%s\n\n", runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintln(out, "| | jobs a second | fired | late, p50 | late, p99 | the latest | processor time of a run | allocated | memory |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, l := range libraries {
		list := sizes[l.name]
		if o.Jobs > 0 {
			list = []int{o.Jobs}
		}
		for _, jobs := range list {
			// A separate process, so that its memory is only the library's.
			one := exec.CommandContext(ctx, program, "-only", l.name, "-jobs", strconv.Itoa(jobs), "-seconds", strconv.Itoa(o.Seconds))
			one.Stderr = os.Stderr
			line, err := one.Output()
			if err != nil {
				return fmt.Errorf("%s with %d jobs: %w", l.name, jobs, err)
			}
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// fires records how late jobs start, without locks or allocations: its memory is allocated at the
// beginning.
type fires struct {
	first time.Time // the first measured second
	late  []int32   // in microseconds
	next  atomic.Int64
	extra atomic.Int64 // of other seconds
}

// fire records the start of a job in the full second before it: a start more than a second late is then
// missing from an earlier second.
func (f *fires) fire(seconds int) {
	since := time.Since(f.first)
	if since < 0 || since >= time.Duration(seconds)*time.Second {
		f.extra.Add(1)
		return
	}
	if i := f.next.Add(1) - 1; int(i) < len(f.late) {
		f.late[i] = int32((since % time.Second).Microseconds())
	}
}

// Result is what a library has cost with a number of jobs due each second.
type Result struct {
	Library string
	Jobs    int
	Fired   float64 // part of the due runs
	// P50, P99 and Latest are how late runs began. Used is the processor time of a run and Allocated its
	// bytes. Peak is the most memory of the process, in MB.
	P50, P99, Latest, Used time.Duration
	Allocated              float64
	Peak                   int
}

// row is its row of the table.
func (r *Result) row() string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1e3) }
	return fmt.Sprintf("| %s | %d | %.1f %% | %s | %s | %s | %.2f µs | %.2f kB | %d MB |", r.Library, r.Jobs, 100*r.Fired, ms(r.P50), ms(r.P99), ms(r.Latest),
		r.Used.Seconds()*1e6, r.Allocated/1e3, r.Peak)
}

// Measure measures a library, in a process of its own if its memory counts.
func Measure(ctx context.Context, name string, jobs, seconds int) (*Result, error) {
	i := slices.IndexFunc(libraries, func(l library) bool { return l.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no library %q", name)
	}
	return measure(ctx, libraries[i], max(1, jobs), seconds)
}

func measure(ctx context.Context, l library, jobs, seconds int) (*Result, error) {
	f := &fires{late: make([]int32, jobs*seconds*2)}
	var begun atomic.Bool
	stop, err := l.start(ctx, jobs, func() {
		if begun.Load() {
			f.fire(seconds)
		}
	})
	if err != nil {
		return nil, err
	}
	// Between two seconds, so that no herd is cut.
	f.first = time.Now().Add(settling).Truncate(time.Second).Add(time.Second)
	begun.Store(true)
	time.Sleep(time.Until(f.first))
	before, had := processorTime(), allocatedBytes()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Until(f.first.Add(time.Duration(seconds)*time.Second + 500*time.Millisecond))):
	}
	used, allocated := processorTime()-before, allocatedBytes()-had
	r := &Result{Library: l.name, Jobs: jobs, Peak: memoryPeak()}
	n := min(int(f.next.Load()), len(f.late))
	late := slices.Clone(f.late[:n])
	if err := stop(); err != nil || n == 0 {
		return r, err
	}
	slices.Sort(late)
	at := func(q float64) time.Duration {
		return time.Duration(late[int(q*float64(n-1))]) * time.Microsecond
	}
	r.Fired = float64(n) / float64(jobs*seconds)
	r.P50, r.P99, r.Latest = at(.5), at(.99), at(1)
	r.Used, r.Allocated = used/time.Duration(n), float64(allocated)/float64(n)
	return r, nil
}

// allocatedBytes returns how many bytes this process has allocated so far.
func allocatedBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memoryPeak returns the most memory that this process had, in MB, without the notes.
func memoryPeak() int {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, is := strings.CutPrefix(lines.Text(), "VmHWM:"); is {
			kb, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			return kb >> 10
		}
	}
	return 0
}

func startRobfig(_ context.Context, jobs int, fire func()) (func() error, error) {
	c := cron.New(cron.WithSeconds())
	for range jobs {
		if _, err := c.AddFunc("* * * * * *", fire); err != nil {
			return nil, err
		}
	}
	c.Start()
	return func() error { c.Stop(); return nil }, nil
}

func startGocron(_ context.Context, jobs int, fire func()) (func() error, error) {
	s, err := gocron.NewScheduler()
	if err != nil {
		return nil, err
	}
	for range jobs {
		if _, err := s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(fire)); err != nil {
			return nil, err
		}
	}
	s.Start()
	// Its Shutdown waits for jobs, which a crowd may delay.
	return func() error { return nil }, nil
}

func startLight(ctx context.Context, jobs int, fire func()) (func() error, error) {
	return startBelfry(ctx, belfry.New(belfry.Light(), options()...), jobs, fire)
}

func startLightRobfig(_ context.Context, jobs int, fire func()) (func() error, error) {
	c := robfig.New(robfig.WithSeconds())
	for range jobs {
		if _, err := c.AddFunc("* * * * * *", fire); err != nil {
			return nil, err
		}
	}
	c.Start()
	return func() error { <-c.Stop().Done(); return nil }, nil
}

func startMemory(ctx context.Context, jobs int, fire func()) (func() error, error) {
	return startBelfry(ctx, belfry.New(memory.Empty(), options()...), jobs, fire)
}

func startSQLite(ctx context.Context, jobs int, fire func()) (func() error, error) {
	dir, err := os.MkdirTemp("", "programbench")
	if err != nil {
		return nil, err
	}
	stop, err := startBelfry(ctx, belfry.New(sqlite.File(filepath.Join(dir, "belfry.db")), options()...), jobs, fire)
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := stop(); err != nil {
			return err
		}
		return os.RemoveAll(dir)
	}, nil
}

// options suit a program with very many jobs: all due runs may run at once, and history is short.
func options() []belfry.Option {
	return []belfry.Option{
		belfry.WithCapacity(200_000), belfry.WithHistory(job.Keep{Runs: 1, For: job.Duration(time.Minute)}),
		belfry.WithLogger(slog.New(slog.DiscardHandler)),
	}
}

func startBelfry(ctx context.Context, s *belfry.Scheduler, jobs int, fire func()) (func() error, error) {
	var began atomic.Bool
	h := belfry.HandleFunc(s, "fire", func(context.Context, *belfry.Run) error {
		began.Store(true)
		fire()
		return nil
	})
	for i := range jobs {
		s.Job(fmt.Sprintf("job-%06d", i), belfry.Cron("* * * * * *"), belfry.Overlap(job.OverlapAllow), belfry.Missed(job.MissedNone), h.Do(belfry.None{}))
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1) // of capacity one
	go func() { ended <- s.Run(ctx) }()
	for !began.Load() { // declaring 100,000 jobs takes a while
		select {
		case err := <-ended:
			cancel()
			return nil, err
		case <-time.After(10 * time.Millisecond):
		}
	}
	return func() error { cancel(); return <-ended }, nil
}
