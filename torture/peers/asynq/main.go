// Command asynq is a node that works on asynq's tasks. The first node also is the scheduler: the documentation asks
// for one only.
package main

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/belfry-cron/belfry/torture/peers/node"
)

func main() {
	ctx, o := node.Start()
	address, err := asynq.ParseRedisURI(o.Store)
	node.Must(err)
	work := asynq.NewServeMux()
	for _, j := range o.Jobs {
		work.HandleFunc(j.Name, func(context.Context, *asynq.Task) error { return j.Run() })
	}
	server := asynq.NewServer(address, asynq.Config{Concurrency: 50})
	node.Must(server.Start(work))
	if o.Name == "node1" {
		s := asynq.NewScheduler(address, nil)
		for _, j := range o.Jobs {
			// It has no field for seconds.
			schedule := fmt.Sprintf("@every %s", j.Every)
			if j.Every%60e9 == 0 {
				schedule = "* * * * *"
			}
			_, err := s.Register(schedule, asynq.NewTask(j.Name, nil), asynq.MaxRetry(0))
			node.Must(err)
		}
		node.Must(s.Start())
		defer s.Shutdown()
	}
	<-ctx.Done()
	server.Shutdown()
}
