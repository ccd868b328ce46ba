// Command river is a node with the jobs as periodic jobs of River.
package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/robfig/cron/v3"

	"github.com/belfry-cron/belfry/torture/peers/node"
)

// A run is a job of River with the place of its job in the list.
type run struct {
	Place int `json:"place"`
}

func (run) Kind() string { return "run" }

type worker struct {
	river.WorkerDefaults[run]
	jobs []node.Job
}

func (w *worker) Work(_ context.Context, j *river.Job[run]) error { return w.jobs[j.Args.Place].Run() }

func main() {
	ctx, o := node.Start()
	pool, err := pgxpool.New(ctx, o.Store)
	node.Must(err)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	node.Must(err)
	// All nodes begin at once, and one of them makes the tables.
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if _, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err == nil || time.Since(begin) > 30*time.Second {
			break
		}
	}
	node.Must(err)
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	var periodic []*river.PeriodicJob
	for i, j := range o.Jobs {
		schedule, err := parser.Parse(j.Cron())
		node.Must(err)
		periodic = append(periodic, river.NewPeriodicJob(schedule, func() (river.JobArgs, *river.InsertOpts) {
			return run{i}, &river.InsertOpts{MaxAttempts: 1}
		}, nil))
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{jobs: o.Jobs})
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 50}}, Workers: workers, PeriodicJobs: periodic,
	})
	node.Must(err)
	node.Must(client.Start(context.WithoutCancel(ctx)))
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	node.Must(client.Stop(end))
}
