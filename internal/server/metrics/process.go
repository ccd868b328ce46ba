package metrics

import (
	"bytes"
	"os"
	"runtime"
	runtimemetrics "runtime/metrics"
	"strconv"
	"syscall"
	"time"
)

// began is the start of the process, as far as this package can tell.
var began = time.Now()

func goVersion() string { return runtime.Version() }

// goMetrics are the metrics of the Go runtime, under their usual names in dashboards.
var goMetrics = []struct {
	name, source, help string
	kind               Kind
}{
	{"go_goroutines", "/sched/goroutines:goroutines", "Goroutines.", Gauge},
	{"go_memstats_heap_alloc_bytes", "/memory/classes/heap/objects:bytes", "Memory of objects on the heap.", Gauge},
	{"go_memstats_sys_bytes", "/memory/classes/total:bytes", "Memory that the Go runtime has from the system.", Gauge},
	{"go_gc_cycles_total", "/gc/cycles/total:gc-cycles", "Garbage collections.", Counter},
}

// writeProcess writes the runtime's and the system's figures about the process.
func writeProcess(p *page) {
	samples := make([]runtimemetrics.Sample, len(goMetrics))
	for i := range goMetrics {
		samples[i].Name = goMetrics[i].source
	}
	runtimemetrics.Read(samples)
	for i, g := range goMetrics {
		if samples[i].Value.Kind() == runtimemetrics.KindUint64 {
			p.family(g.name, g.kind, g.help)
			p.sample(float64(samples[i].Value.Uint64()))
		}
	}
	p.family("process_start_time_seconds", Gauge, "When the process has begun.")
	p.sample(seconds(began))
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		p.family("process_cpu_seconds_total", Counter, "Processor time that was used, without that of commands.")
		p.sample(float64(usage.Utime.Nano()+usage.Stime.Nano()) / float64(time.Second))
	}
	// The rest exists on Linux only.
	if resident, ok := residentBytes(); ok {
		p.family("process_resident_memory_bytes", Gauge, "Memory that is in use.")
		p.sample(resident)
	}
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.family("process_open_fds", Gauge, "Open files and connections.")
		p.sample(float64(len(list)))
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		p.family("process_max_fds", Gauge, "How many files and connections may be open.")
		p.sample(float64(limit.Cur))
	}
}

// residentBytes returns how much memory is in use.
func residentBytes() (float64, bool) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	return float64(pages) * float64(os.Getpagesize()), err == nil
}
