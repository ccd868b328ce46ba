// Command table prints the first figures of docs/benchmarks.md from its own run, beside the recorded
// ratios. With -record it replaces these, which a release does.
//
//	go -C bench run ./cmd/table
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"

	"github.com/belfry-cron/belfry/bench/table"
)

func main() {
	log.SetFlags(0)
	only := flag.String("only", "", "measure one library in this process, for the process that prints the table")
	path := flag.String("recorded", "table/recorded.json", "the recorded ratios")
	record := flag.Bool("record", false, "replace the recorded ratios")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *path, *record); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, only, path string, record bool) error {
	if only != "" {
		return table.WriteOne(ctx, os.Stdout, only)
	}
	recorded, err := table.Read(path)
	if err != nil {
		return err
	}
	rows, err := table.Measure(ctx)
	if err != nil {
		return err
	}
	table.Write(os.Stdout, rows, recorded)
	if record {
		return table.Record(path, rows)
	}
	return nil
}
