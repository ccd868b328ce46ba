// Command robfig is a node with the jobs in robfig/cron, as its documentation shows it.
package main

import (
	"log"
	"os"

	"github.com/robfig/cron/v3"

	"github.com/belfry-cron/belfry/torture/peers/node"
)

func main() {
	ctx, o := node.Start()
	logger := cron.PrintfLogger(log.New(os.Stderr, "", log.LstdFlags))
	c := cron.New(cron.WithSeconds(), cron.WithLogger(logger))
	for _, j := range o.Jobs {
		var run cron.Job = cron.FuncJob(func() { _ = j.Run() })
		if j.NoOverlap {
			run = cron.NewChain(cron.SkipIfStillRunning(logger)).Then(run)
		}
		_, err := c.AddJob(j.Cron(), run)
		node.Must(err)
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
}
