package belfry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/memory"
)

// running runs a scheduler for an example, and returns a function that stops it.
func running(s *belfry.Scheduler) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return ctx, func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Println(err)
		}
	}
}

// eventually calls a function until it succeeds: a newly declared job may not be in the store yet.
func eventually[T any](f func() (T, error)) T {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		value, err := f()
		if !errors.Is(err, belfry.ErrNotFound) {
			if err != nil {
				fmt.Println(err)
			}
			return value
		}
		<-poll.C
	}
}

func Example() {
	s := belfry.New(memory.Empty()) // or postgres.URL(url), sqlite.File(path) …
	ticked := make(chan time.Time, 1)
	s.Job("tick", belfry.Every(time.Second), belfry.Func(func(_ context.Context, run *belfry.Run) error {
		select {
		case ticked <- run.Scheduled:
		default:
		}
		return nil
	}))
	_, stop := running(s)
	defer stop()
	fmt.Println("ticked on the second:", (<-ticked).Nanosecond() == 0)
	// Output: ticked on the second: true
}

type Cleanup struct {
	Days int `json:"days"`
}

type Report struct {
	Deleted int `json:"deleted"`
}

func ExampleHandle() {
	s := belfry.New(memory.Empty())
	cleanup := belfry.Handle(s, "cleanup", func(_ context.Context, run *belfry.Run, in Cleanup) (Report, error) {
		run.Log.Info("deleting old rows", "days", in.Days)
		return Report{Deleted: in.Days * 2}, nil
	})
	s.Job("nightly", belfry.Cron("30 2 * * *"), belfry.Timezone("Asia/Shanghai"), cleanup.Do(Cleanup{Days: 30}))
	ctx, stop := running(s)
	defer stop()

	// A manual run with another input.
	id := eventually(func() (belfry.RunID, error) { return cleanup.Trigger(ctx, "nightly", Cleanup{Days: 7}) })
	report, err := cleanup.Result(ctx, id)
	fmt.Println(report.Deleted, err)
	// Output: 14 <nil>
}

type Region struct {
	Region string `json:"region"`
}

func ExampleFlow() {
	s := belfry.New(memory.Empty())
	nightly := belfry.NewFlow[Region](s, "nightly", belfry.Retry(2, 30*time.Second))
	files := belfry.Step(nightly, "list", func(_ context.Context, _ *belfry.Run, in Region) ([]string, error) {
		return []string{in.Region + "/orders", in.Region + "/refunds"}, nil
	})
	// A run for each file, at most four side by side.
	sizes := belfry.ForEach(nightly, "load", files, func(_ context.Context, _ *belfry.Run, _ Region, file string) (int, error) {
		return len(file), nil
	}, belfry.MaxParallel(4))
	publish := belfry.Step(nightly, "publish", func(_ context.Context, run *belfry.Run, in Region) (string, error) {
		rows, err := sizes.Result(run) // []int
		return fmt.Sprintf("%v rows of %s", rows, in.Region), err
	}, belfry.Needs(sizes))
	s.Job("nightly-eu", belfry.Cron("0 2 * * *"), nightly.Do(Region{"eu"}))
	ctx, stop := running(s)
	defer stop()

	// A manual run with another input.
	id := eventually(func() (belfry.RunID, error) { return nightly.Trigger(ctx, "nightly-eu", Region{"asia"}) })
	fmt.Println(publish.Wait(ctx, id))
	// Output: [11 12] rows of asia <nil>
}

func ExampleShards() {
	s := belfry.New(memory.Empty())
	parts := make(chan string, 3)
	s.Job("reindex", belfry.Shards(3), belfry.Func(func(_ context.Context, run *belfry.Run) error {
		for row := run.Shard; row < 6; row += run.Shards { // the shard's rows
			run.Progress(int64(row), 6)
		}
		parts <- fmt.Sprintf("%d of %d", run.Shard, run.Shards)
		return nil
	}))
	ctx, stop := running(s)
	defer stop()
	eventually(func() (belfry.RunID, error) { return s.Trigger(ctx, "reindex") })
	for range 3 {
		fmt.Println(<-parts)
	}
	// Unordered output:
	// 0 of 3
	// 1 of 3
	// 2 of 3
}

func ExampleHandlerFunc() {
	s := belfry.New(memory.Empty(), belfry.WithMiddleware(func(next belfry.HandlerFunc) belfry.HandlerFunc {
		return func(ctx context.Context, run *belfry.Run) (err error) {
			defer func() { fmt.Println(run.Job, "has ended:", err) }()
			return next(ctx, run)
		}
	}))
	s.Job("fragile", belfry.Func(func(context.Context, *belfry.Run) error {
		panic("no such table")
	}))
	ctx, stop := running(s)
	defer stop()
	id := eventually(func() (belfry.RunID, error) { return s.Trigger(ctx, "fragile") })
	run, err := s.Wait(ctx, id)
	fmt.Println(run.Outcome, err)
	// Output:
	// fragile has ended: panic: no such table
	// failed <nil>
}

func ExamplePermanent() {
	s := belfry.New(memory.Empty())
	s.Job("invoice", belfry.Retry(5, time.Minute), belfry.Func(func(context.Context, *belfry.Run) error {
		return belfry.Permanent(errors.New("there is no order 7"))
	}))
	ctx, stop := running(s)
	defer stop()
	id := eventually(func() (belfry.RunID, error) { return s.Trigger(ctx, "invoice") })
	run, err := s.Wait(ctx, id)
	fmt.Println(run.Outcome, "after", run.Attempt, "attempt:", run.Reason, err)
	// Output: failed after 1 attempt: there is no order 7 <nil>
}

func ExampleScheduler_Add() {
	s := belfry.New(memory.Empty())
	sent := make(chan string, 1)
	remind := belfry.Handle(s, "remind", func(_ context.Context, _ *belfry.Run, who string) (belfry.None, error) {
		sent <- who
		return belfry.None{}, nil
	})
	ctx, stop := running(s)
	defer stop()
	if err := s.Add(ctx, "remind-ada", remind.Do("Ada"), belfry.After(100*time.Millisecond)); err != nil {
		fmt.Println(err)
	}
	fmt.Println("reminded", <-sent)
	fmt.Println(s.Add(ctx, "remind-ada", remind.Do("Ada")) != nil) // the name is taken
	// Output:
	// reminded Ada
	// true
}

func ExampleScheduler_Cancel() {
	s := belfry.New(memory.Empty(), belfry.WithLogger(slog.New(slog.DiscardHandler)))
	started := make(chan struct{})
	s.Job("long", belfry.Func(func(ctx context.Context, _ *belfry.Run) error {
		close(started)
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	ctx, stop := running(s)
	defer stop()
	id := eventually(func() (belfry.RunID, error) { return s.Trigger(ctx, "long") })
	<-started
	if err := s.Cancel(ctx, id, "not needed any more"); err != nil {
		fmt.Println(err)
	}
	run, err := s.Wait(ctx, id)
	fmt.Println(run.Outcome, err)
	// Output: cancelled <nil>
}

func ExampleWithMiddleware() {
	timing := func(next belfry.HandlerFunc) belfry.HandlerFunc {
		return func(ctx context.Context, run *belfry.Run) error {
			err := next(ctx, run)
			run.Log.Info("took", "job", run.Job, "failed", err != nil)
			return err
		}
	}
	s := belfry.New(memory.Empty(), belfry.WithMiddleware(timing))
	s.Job("hello", belfry.Func(func(_ context.Context, run *belfry.Run) error {
		_, err := fmt.Fprintln(run, "hello")
		return err
	}))
	ctx, stop := running(s)
	defer stop()
	id := eventually(func() (belfry.RunID, error) { return s.Trigger(ctx, "hello") })
	if _, err := s.Wait(ctx, id); err != nil {
		fmt.Println(err)
	}
	text, err := s.Output(ctx, id)
	fmt.Println(text[:len("hello")], err)
	// Output: hello <nil>
}

func ExampleScheduler_Check() {
	s := belfry.New(memory.Empty())
	s.Job("nightly", belfry.Cron("30 25 * * *"), belfry.Overlap(job.OverlapQueue), belfry.Do("cleanup", belfry.None{}))
	fmt.Println(s.Check() != nil) // each mistake with its file and line
	// Output: true
}

type Reading struct {
	Sensor string `json:"sensor"`
}

func ExampleConnect() {
	address, token, stopServer := aServer()
	defer stopServer()
	s := belfry.Connect(address, token) // such as https://belfry.example.com:8420
	measured := make(chan string, 1)
	belfry.Handle(s, "measure", func(_ context.Context, run *belfry.Run, in Reading) (float64, error) {
		measured <- run.Job + " on the " + in.Sensor
		return 21.5, nil
	})
	_, stop := running(s)
	defer stop()
	fmt.Println(<-measured)
	// Output: temperature on the roof
}

// aServer starts a server that has a run for the handler measure.
func aServer() (address, token string, stop func()) {
	on := memory.New(memory.Options{})
	planner := belfry.New(shared(on), belfry.WithNodeName("server"), belfry.WithLogger(slog.New(slog.DiscardHandler)))
	planner.Job("temperature", belfry.Cron("0 0 * * *"), belfry.Do("measure", Reading{Sensor: "roof"}))
	ctx, stop := running(planner)
	address, token, err := newServer(ctx, on, "")
	if err != nil {
		fmt.Println(err)
	}
	eventually(func() (belfry.RunID, error) { return planner.Trigger(ctx, "temperature") })
	return address, token, stop
}
