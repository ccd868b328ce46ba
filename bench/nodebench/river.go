package nodebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/belfry-cron/belfry/job"
)

// River has as many connections as a Belfry server, and the settings of its own benchmark
// (riverbench): it works jobs while they are inserted.
const (
	riverConnections = 10
	riverTogether    = 500 // jobs per insert
	riverWorkers     = 2000
	riverCooldown    = 2 * time.Millisecond
	riverPoll        = 20 * time.Millisecond
)

// nothing is an empty River job.
type nothing struct {
	N int `json:"n"`
}

// Kind implements river.JobArgs.
func (nothing) Kind() string { return "nothing" }

// doer works nothings.
type doer struct {
	river.WorkerDefaults[nothing]
	done *atomic.Int64
	all  int64
	last chan struct{}
}

// Work implements river.Worker.
func (d *doer) Work(context.Context, *river.Job[nothing]) error {
	if d.done.Add(1) == d.all {
		close(d.last)
	}
	return nil
}

// river compares a node with River, with equal numbers of empty jobs, and with bare statements,
// each on a separate server.
func (b *bench) river(ctx context.Context) ([]Figure, error) {
	load := backlog{jobs: b.scaled(1000, 20), down: b.scaled(100, 10)}
	n := load.jobs * load.down
	theirs, err := runRiver(ctx, n)
	if err != nil {
		return nil, err
	}
	ours, err := b.fresh(ctx, onPostgres, load, 1, patience)
	if err != nil {
		return nil, err
	}
	load.overlap = job.OverlapSkip
	usual, err := b.fresh(ctx, onPostgres, load, 1, patience)
	if err != nil {
		return nil, err
	}
	least, err := b.runBare(ctx)
	if err != nil {
		return nil, err
	}
	return []Figure{
		above("River: inserted and worked, a second", theirs.rate(), 0).beside(theirs.cost()),
		above("a node, overlap allow: planned and finished with history, a second", ours.rate(), 0).beside(ours.cost()),
		fact("the node, times River", number(ours.rate()/theirs.rate(), 2)),
		fact("processor time, River's to the node's", number(float64(theirs.nodes+theirs.server)/float64(ours.nodes+ours.server), 2)),
		above("a node, the default overlap skip: the same", usual.rate(), 0).beside(usual.cost()),
		fact("the node, times River, by default", number(usual.rate()/theirs.rate(), 2)),
		fact("processor time, River's to the node's by default", number(float64(theirs.nodes+theirs.server)/float64(usual.nodes+usual.server), 2)),
		above("bare statements: planned and finished, a second", least.rate(), 0).beside(least.cost()),
		fact("the node, times bare statements", number(ours.rate()/least.rate(), 2)),
	}, nil
}

// runRiver inserts jobs while clients work on them.
func runRiver(ctx context.Context, n int) (r caughtUp, err error) {
	p, err := onPostgres.make("")
	if err != nil {
		return r, err
	}
	defer p.close()
	pool, err := p.connect(ctx, riverConnections)
	if err != nil {
		return r, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return r, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return r, err
	}
	d := &doer{done: &atomic.Int64{}, all: int64(n), last: make(chan struct{})}
	workers := river.NewWorkers()
	river.AddWorker(workers, d)
	client, err := river.NewClient(driver, &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		FetchCooldown:     riverCooldown,
		FetchPollInterval: riverPoll,
		Workers:           workers,
		Logger:            slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return r, err
	}
	own, server, err := p.spent()
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return r, err
	}
	for from := 0; from < n; from += riverTogether {
		jobs := make([]river.InsertManyParams, min(riverTogether, n-from))
		for i := range jobs {
			jobs[i].Args = nothing{from + i}
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return r, err
		}
	}
	select {
	case <-d.last:
	case <-time.After(patience):
		return r, errors.New("not all jobs were worked by River")
	case <-ctx.Done():
		return r, ctx.Err()
	}
	// It writes ended jobs in batches.
	if err := client.Stop(ctx); err != nil {
		return r, err
	}
	r.took = time.Since(began)
	if err := pool.QueryRow(ctx, "select count(*) from river_job where state = 'completed'").Scan(&r.finished); err != nil {
		return r, err
	}
	if r.finished != n {
		return r, fmt.Errorf("%d of %d jobs were completed by River", r.finished, n)
	}
	return r, r.charge(p, own, server)
}
