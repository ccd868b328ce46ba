// Command handlers has functions that jobs of others call, and declares no job itself: the jobs
// are in a file, and a server that shares the database plans them.
//
//	belfry serve --store "$DATABASE_URL"
//	belfry apply -f examples/handlers/jobs.yaml
//	DATABASE_URL=postgres://… go run ./examples/handlers
//
// Start it on as many machines as the work needs: each takes its share.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/store/postgres"
)

// Picture is the input: jobs give its fields as parameters.
type Picture struct {
	Path  string `json:"path"`
	Width int    `json:"width"`
}

// Resized is the result.
type Resized struct {
	Path string `json:"path"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := belfry.New(postgres.URL(os.Getenv("DATABASE_URL")), belfry.WithHandlersOnly(), belfry.WithCapacity(8))
	belfry.Handle(s, "resize", resize)
	if err := s.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func resize(_ context.Context, run *belfry.Run, in Picture) (Resized, error) {
	if in.Width <= 0 {
		return Resized{}, belfry.Permanent(fmt.Errorf("a width of %d", in.Width))
	}
	run.Log.Info("resizing", "path", in.Path, "width", in.Width)
	return Resized{fmt.Sprintf("%s@%d", in.Path, in.Width)}, nil
}
