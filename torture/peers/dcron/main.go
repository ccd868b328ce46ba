// Command dcron is a node with the jobs in dcron, with its driver for Redis.
package main

import (
	"github.com/dcron-contrib/redisdriver"
	"github.com/libi/dcron"
	"github.com/libi/dcron/cron"
	"github.com/redis/go-redis/v9"

	"github.com/belfry-cron/belfry/torture/peers/node"
)

func main() {
	ctx, o := node.Start()
	address, err := redis.ParseURL(o.Store)
	node.Must(err)
	d := dcron.NewDcron("torture", redisdriver.NewDriver(redis.NewClient(address)), cron.WithSeconds())
	for _, j := range o.Jobs {
		node.Must(d.AddFunc(j.Name, j.Cron(), func() { _ = j.Run() }))
	}
	d.Start()
	<-ctx.Done()
	d.Stop()
}
