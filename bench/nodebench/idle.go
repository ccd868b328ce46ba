package nodebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The goals of a node without jobs: parts of one processor in hundredths, and MB.
const (
	idleProcessor = 0.5
	idleMemory    = 60
)

// idle measures the cost of an idle node.
func (b *bench) idle(ctx context.Context) ([]Figure, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := b.serve(ctx, filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	defer s.kill()
	// Work of the start is not idle.
	if err := sleep(ctx, time.Duration(b.scaled(5000, 100))*time.Millisecond); err != nil {
		return nil, err
	}
	watchdog := s.watchdog()
	for began := time.Now(); watchdog == 0; watchdog = s.watchdog() { // it may be in the middle of a restart
		if time.Since(began) > patience {
			return nil, errors.New("the server has no watchdog")
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	processes := []int{s.cmd.Process.Pid, watchdog}
	var before [2]time.Duration
	for i, pid := range processes {
		if before[i], _, err = processorTime(pid); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := sleep(ctx, b.Idle); err != nil {
		return nil, err
	}
	elapsed := time.Since(began)
	var worked [2]time.Duration
	var resident [2]float64
	for i, pid := range processes {
		after, _, err := processorTime(pid)
		if err != nil {
			return nil, err
		}
		worked[i] = after - before[i]
		if resident[i], _, err = memory(pid); err != nil {
			return nil, err
		}
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	share := func(d time.Duration) float64 { return 100 * float64(d) / float64(elapsed) }
	return []Figure{
		below(fmt.Sprintf("processor time in %s, of one processor", elapsed.Round(time.Second)), share(worked[0]+worked[1]), idleProcessor, 2, " %").
			beside(fmt.Sprintf("server %.2f %%, watchdog %.2f %%", share(worked[0]), share(worked[1]))),
		below("resident memory", resident[0]+resident[1], idleMemory, 0, " MB").
			beside(fmt.Sprintf("server %.0f MB, watchdog %.0f MB, what they share counted twice", resident[0], resident[1])),
	}, nil
}
