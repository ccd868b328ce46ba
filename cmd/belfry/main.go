// Command belfry is Belfry's program.
package main

import (
	"context"
	"os"

	"github.com/belfry-cron/belfry/internal/cli"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/server"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == watchdog.Argument {
		os.Exit(server.Watchdog())
	}
	run := cli.Run
	if os.Getpid() == 1 {
		run = cli.RunAsFirst
	}
	os.Exit(int(run(context.Background(), cli.System(), os.Args[1:])))
}
