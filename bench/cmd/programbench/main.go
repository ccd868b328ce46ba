// Command programbench compares schedulers inside of a Go program: many jobs that do nothing, all
// due at each full second.
//
//	go -C bench run ./cmd/programbench
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"

	"github.com/belfry-cron/belfry/bench/programbench"
)

func main() {
	log.SetFlags(0)
	var o programbench.Options
	flag.StringVar(&o.Only, "only", "", "the library to measure in this process: robfig, gocron, light, light-robfig (package robfig), memory or sqlite; default: all, each in a process of its own")
	flag.IntVar(&o.Jobs, "jobs", 0, "how many jobs are due each second; default: 1,000, 10,000 and 100,000")
	flag.IntVar(&o.Seconds, "seconds", 10, "how many seconds are measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := programbench.Run(ctx, os.Stdout, o); err != nil {
		log.Fatal(err)
	}
}
