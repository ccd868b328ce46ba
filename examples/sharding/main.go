// Command sharding splits each occurrence of a job into shares, which run side by side and on all
// instances:
//
//	go run ./examples/sharding
package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/store/memory"
)

var customers = []string{"ada", "bob", "carol", "dave", "eve", "frank", "grace", "heidi"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := belfry.New(memory.Empty())
	s.Job("invoices", belfry.Every(time.Second), belfry.Shards(4), belfry.Func(invoices))
	// It begins when all four shares have succeeded.
	s.Job("summary", belfry.On("invoices"), belfry.Func(func(_ context.Context, run *belfry.Run) error {
		fmt.Println("all invoices of", run.Scheduled.Format(time.TimeOnly), "are sent")
		return nil
	}))
	if err := s.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// invoices sends the invoices of its share of the customers.
func invoices(_ context.Context, run *belfry.Run) error {
	for _, name := range customers {
		if share(name, run.Shards) == run.Shard {
			fmt.Printf("share %d of %d: %s for %s\n", run.Shard, run.Shards, name, run.Scheduled.Format(time.TimeOnly))
		}
	}
	return nil
}

// share returns the share that a customer belongs to.
func share(name string, of int) int {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name))
	return int(sum.Sum32() % uint32(of))
}
