package container

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

// sampleFirst is when an engine is first asked what a container uses, and sampleMost the longest time
// between two such questions, which doubles from the first on: the figures are gone with the container,
// and a question costs an engine some milliseconds.
const sampleFirst, sampleMost = 250 * time.Millisecond, 10 * time.Second

// sample asks the engine what the container uses until ctx ends, and returns the most memory and the
// latest of the sums.
func (r *attempt) sample(ctx context.Context) job.Usage {
	u := r.used
	for pause := sampleFirst; sleep(ctx, pause); pause = min(2*pause, sampleMost) {
		asking, cancel := context.WithTimeout(ctx, signalWithin)
		s, err := r.engine.Stats(asking, r.name)
		cancel()
		if err == nil && s.CPU.Usage.Total > 0 { // else it has ended
			add(&u, &s)
		}
	}
	return u
}

// add adds a sample.
func add(u *job.Usage, s *engine.Stats) {
	u.CPUSeconds = max(u.CPUSeconds, time.Duration(s.CPU.Usage.Total).Round(time.Microsecond).Seconds())
	// As the command stats of the engines: pages of files that can be dropped at once do not count.
	u.MemoryBytes = max(u.MemoryBytes, int64(s.Memory.Usage)-int64(min(s.Memory.Stats.Inactive, s.Memory.Usage)))
	var read, written uint64
	for _, io := range s.Block.Bytes {
		switch io.Op {
		case "read", "Read":
			read += io.Value
		case "write", "Write":
			written += io.Value
		}
	}
	if len(s.Block.Bytes) > 0 {
		u.ReadBytes, u.WrittenBytes = new(int64(read)), new(int64(written))
	}
}
