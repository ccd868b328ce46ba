// Command ticker has a job that is due each second and writes a line for each of its runs to a
// file, which all instances append to.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/redis"
	"github.com/belfry-cron/belfry/store/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Println("begun")
	if err := run(ctx, os.Getenv("STORE"), os.Getenv("LINES")); err != nil {
		log.Fatal(err)
	}
}

func open(address string) store.Opener {
	switch {
	case strings.HasPrefix(address, "postgres:"):
		return postgres.URL(address)
	case strings.HasPrefix(address, "mysql:"):
		return mysql.URL(address)
	case strings.HasPrefix(address, "etcd:"):
		return etcd.URL(address)
	case strings.HasPrefix(address, "redis:"):
		return redis.URL(address)
	}
	return sqlite.File(address)
}

func run(ctx context.Context, address, lines string) (err error) {
	file, err := os.OpenFile(lines, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if e := file.Close(); err == nil {
			err = e
		}
	}()
	s := belfry.New(open(address), belfry.WithOwner("ticker"))
	// Occurrences due while no instance was running run late: with SQLite there is one at a time.
	s.Job("tick", belfry.Every(time.Second), belfry.Overlap(job.OverlapAllow), belfry.Missed(job.MissedAll),
		belfry.Func(func(_ context.Context, run *belfry.Run) error {
			_, err := fmt.Fprintf(file, "%d %d %d\n", run.Scheduled.Unix(), time.Since(run.Scheduled).Milliseconds(), os.Getpid())
			return err
		}))
	return s.Run(ctx)
}
