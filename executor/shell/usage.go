package shell

import (
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// used returns what a command and the processes that it has waited for used.
func (e *Executor) used(s *supervision) job.Usage {
	r := &s.proc.usage
	cpu := time.Duration(r.Utime.Nano() + r.Stime.Nano())
	if s.prepared.cgroups != nil {
		cpu = max(cpu, s.prepared.cgroup.cpu())
	}
	u := job.Usage{
		CPUSeconds:  cpu.Round(time.Microsecond).Seconds(),
		MemoryBytes: int64(r.Maxrss) * maxrssUnit, //nolint:unconvert // it has 32 bits on some machines
	}
	u.MemoryAtMost = u.MemoryBytes > 0 && e.memory.hides(u.MemoryBytes, s.hidden)
	if peak := s.prepared.cgroup.peak(s.prepared.limits); peak > 0 {
		u.MemoryBytes, u.MemoryAtMost = peak, false
	}
	if countsBlocks && u.CPUSeconds > 0 {
		u.ReadBytes, u.WrittenBytes = new(int64(r.Inblock)*blockSize), new(int64(r.Oublock)*blockSize) //nolint:unconvert // likewise
	}
	return u
}

// blockSize is the unit of the blocks in a rusage.
const blockSize = 512

// ownMemory is the most memory that the node's process had. On Linux a new process shares the memory
// of its parent until it executes its program, and the system counts that as its own: a command that
// needs less seems to need as much as the node.
type ownMemory struct{ peak atomic.Int64 }

// hides reports whether the node, or its program before the present one, may be the reason of a
// command's figure.
func (m *ownMemory) hides(figure, before int64) bool {
	if figure > hidden(m.peak.Load()) { // else it has been less than the node's ever since
		m.peak.Store(ownPeak())
	}
	return figure <= hidden(max(m.peak.Load(), before))
}

// hidden is the least figure that is certainly a command's own: the system adds the figures of its
// processors up only roughly.
func hidden(peak int64) int64 { return peak + peak/8 }
