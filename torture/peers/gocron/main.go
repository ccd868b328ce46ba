// Command gocron is a node with the jobs in gocron, with the lock in Redis that its documentation shows.
package main

import (
	redislock "github.com/go-co-op/gocron-redis-lock/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"

	"github.com/belfry-cron/belfry/torture/peers/node"
)

func main() {
	ctx, o := node.Start()
	address, err := redis.ParseURL(o.Store)
	node.Must(err)
	locker, err := redislock.NewRedisLocker(redis.NewClient(address), redislock.WithTries(1))
	node.Must(err)
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker), gocron.WithLogger(gocron.NewLogger(gocron.LogLevelInfo)))
	node.Must(err)
	for _, j := range o.Jobs {
		options := []gocron.JobOption{gocron.WithName(j.Name)}
		if j.NoOverlap {
			options = append(options, gocron.WithSingletonMode(gocron.LimitModeReschedule))
		}
		_, err := s.NewJob(gocron.CronJob(j.Cron(), true), gocron.NewTask(func() error { return j.Run() }), options...)
		node.Must(err)
	}
	s.Start()
	<-ctx.Done()
	node.Must(s.Shutdown())
}
