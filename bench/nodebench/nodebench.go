// Package nodebench measures a whole node on the embedded store: how late runs
// start, and how many a second it takes from planned to finished with history.
// The executor does nothing, so that what is measured is Belfry and the disk.
package nodebench

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// Load is what a node is given to do.
type Load struct {
	Name string
	Jobs int
	// Schedule is the cron expression of job i.
	Schedule func(i int) string
	Seconds  int // how long is measured
	Output   int // bytes that each run writes
}

// Result is what was measured.
type Result struct {
	Load
	Due, Started, Finished int
	P50, P99, Max          time.Duration // how late runs start
	Rate                   float64       // finished runs with history, a second
	HeapMB                 float64
}

// Run gives a node a load on a store in a folder.
func Run(ctx context.Context, dir string, load Load) (Result, error) {
	s, err := sqlite.Open(ctx, filepath.Join(dir, "belfry.db"), sqlite.Options{})
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	if err := putJobs(ctx, s, load); err != nil {
		return Result{}, err
	}
	rec := &recorder{output: make([]byte, load.Output)}
	n, err := node.New(node.Config{
		Store: s,
		Session: store.Session{
			Node: "bench", Machine: "bench", DataDir: dir, Capacity: load.Jobs + 1000,
			Roles: []string{placement.RolePlanner, placement.RoleWorker}, Handlers: []string{"noop"},
		},
		Executors: func(*job.Job) executor.Executor { return rec },
		Capacity:  load.Jobs + 1000,
		Log:       slog.Default(),
	})
	if err != nil {
		return Result{}, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- n.Run(running) }()

	// The first look-ahead teaches the node how long claims take.
	from := time.Now().Truncate(time.Second).Add(5 * time.Second)
	until := from.Add(time.Duration(load.Seconds) * time.Second)
	if err := sleep(ctx, time.Until(until)+2*time.Second); err != nil {
		return Result{}, err
	}
	result := rec.between(from, until)
	result.Load = load
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	result.HeapMB = float64(memory.HeapInuse) / (1 << 20)
	stop()
	if err := <-done; err != nil {
		return Result{}, err
	}
	result.Finished, err = finished(ctx, s, from, until)
	result.Rate = float64(result.Finished) / float64(load.Seconds)
	return result, err
}

// putJobs makes the jobs, many at a time: they are committed together.
func putJobs(ctx context.Context, s store.Jobs, load Load) error {
	const together = 200
	var group sync.WaitGroup
	failures := make(chan error, together)
	for w := range together {
		group.Go(func() {
			for i := w; i < load.Jobs; i += together {
				definition := &job.Job{
					Name:     fmt.Sprintf("job-%d", i),
					Schedule: job.Schedule{Cron: []string{load.Schedule(i)}},
					Run:      job.RunSpec{Handler: "noop"},
				}
				if _, err := s.PutJob(ctx, store.PutJob{Definition: definition, IfVersion: store.AnyVersion, Actor: "bench"}); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// finished counts the finished runs that were scheduled in a stretch of time.
func finished(ctx context.Context, s store.History, from, to time.Time) (int, error) {
	counts, err := s.Aggregate(ctx, store.AggregateQuery{From: from, To: to, Bucket: time.Second})
	n := 0
	for _, c := range counts {
		n += c.Outcomes[job.OutcomeSucceeded]
	}
	return n, err
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

// recorder is an executor that does nothing but note when it was called.
type recorder struct {
	output []byte
	mu     sync.Mutex
	starts []start
}

type start struct {
	scheduled time.Time
	late      time.Duration
}

func (r *recorder) Run(_ context.Context, a executor.Attempt, out executor.Output) executor.Result {
	now := time.Now()
	if err := a.Start(); err != nil {
		return executor.Result{Unstarted: true, Reason: err.Error()}
	}
	if len(r.output) > 0 {
		_, _ = out.Stdout.Write(r.output)
	}
	r.mu.Lock()
	r.starts = append(r.starts, start{a.Run.Scheduled, now.Sub(a.Run.Scheduled)})
	r.mu.Unlock()
	return executor.Result{Outcome: job.OutcomeSucceeded}
}

// between returns the lateness of what was scheduled in a stretch of time.
func (r *recorder) between(from, until time.Time) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	var late []time.Duration
	for _, s := range r.starts {
		if !s.scheduled.Before(from) && s.scheduled.Before(until) {
			late = append(late, s.late)
		}
	}
	slices.Sort(late)
	result := Result{Started: len(late)}
	if len(late) > 0 {
		result.P50, result.P99, result.Max = late[len(late)/2], late[len(late)*99/100], late[len(late)-1]
	}
	return result
}
