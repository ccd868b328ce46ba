// Command nodebench measures a whole node on the embedded store, with an executor
// that does nothing.
//
//	go -C bench run ./cmd/nodebench
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/belfry-cron/belfry/bench/nodebench"
)

func main() {
	log.SetFlags(0)
	seconds := flag.Int("seconds", 20, "how long each load is measured")
	dir := flag.String("dir", "", "folder for the stores; default: a temporary one")
	flag.Parse()
	if err := run(context.Background(), *dir, *seconds); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string, seconds int) error {
	everySecond := func(int) string { return "* * * * * *" }
	loads := []nodebench.Load{
		{Name: "100 each second", Jobs: 100, Schedule: everySecond},
		{Name: "1,000 each second", Jobs: 1000, Schedule: everySecond},
		{Name: "10,000 at one instant, every 10 s", Jobs: 10_000, Schedule: func(int) string { return "*/10 * * * * *" }},
		{Name: "20,000 each second", Jobs: 20_000, Schedule: everySecond},
		{Name: "20,000 each second, 200 bytes of output", Jobs: 20_000, Schedule: everySecond, Output: 200},
	}
	fmt.Println("| load | started | finished/s | p50 late | p99 late | latest | heap |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|")
	for _, load := range loads {
		load.Seconds = seconds
		folder, err := os.MkdirTemp(dir, "nodebench")
		if err != nil {
			return err
		}
		r, err := nodebench.Run(ctx, folder, load)
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
		if err != nil {
			return fmt.Errorf("%s: %w", load.Name, err)
		}
		fmt.Printf("| %s | %d | %.0f | %s | %s | %s | %.0f MB |\n", load.Name, r.Started, r.Rate,
			r.P50.Round(10*time.Microsecond), r.P99.Round(10*time.Microsecond), r.Max.Round(time.Millisecond), r.HeapMB)
	}
	return nil
}
