// Command cronbench prints the tables of docs/benchmarks.md: Belfry's cron
// expressions beside other Go libraries.
//
//	go -C bench run ./cmd/cronbench
package main

import (
	"flag"
	"log"
	"os"

	"github.com/belfry-cron/belfry/bench/cronbench"
)

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "only show that it works: the times mean little")
	path := flag.String("vectors", "../cron/testdata/vectors.json", "the vectors of package cron")
	flag.Parse()
	vectors, err := cronbench.ReadVectors(*path)
	if err != nil {
		log.Fatal(err)
	}
	effort := cronbench.Full
	if *quick {
		effort = cronbench.Quick
	}
	if err := cronbench.Report(os.Stdout, vectors, effort); err != nil {
		log.Fatal(err)
	}
}
