// Command nodebench measures a node, with the limits of the machine beside what it
// does, and prints the tables of docs/benchmarks.md.
//
//	go -C bench run ./cmd/nodebench
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/bench/nodebench"
)

func main() {
	log.SetFlags(0)
	var o nodebench.Options
	only := flag.String("only", "", "the scenarios to run, separated by commas; default: all that need no database server")
	list := flag.Bool("list", false, "list the scenarios and do nothing else")
	flag.IntVar(&o.Seconds, "seconds", 10, "how long each load is measured")
	flag.DurationVar(&o.Hold, "hold", 30*time.Second, "how long the loads last that a node must hold")
	flag.DurationVar(&o.Idle, "idle", time.Minute, "how long a node without jobs is watched")
	flag.BoolVar(&o.Quick, "quick", false, "only show that it works: the figures mean little")
	flag.BoolVar(&o.Servers, "servers", false, "add the scenarios with database servers, which must be installed: make servers")
	flag.StringVar(&o.Dir, "dir", "", "folder for the stores; default: the system's temporary one")
	flag.StringVar(&o.Profile, "profile", "", "folder for processor profiles of the scenarios with flows, keys or sketches; default: none")
	flag.Parse()
	if *list {
		for _, s := range nodebench.Scenarios() {
			fmt.Printf("%-14s %s\n", s.Name, s.About)
		}
		return
	}
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	if o.Quick {
		o.Seconds, o.Hold, o.Idle = 2, 2*time.Second, 2*time.Second
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := nodebench.Run(ctx, os.Stdout, o); err != nil {
		log.Fatal(err)
	}
}
