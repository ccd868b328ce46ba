// Command etcdcron measures go-etcd-cron: jobs that do nothing and are due each second. It prints
// how late each call was, in microseconds, a line each.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/diagridio/go-etcd-cron/api"
	"github.com/diagridio/go-etcd-cron/cron"
	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	endpoint := flag.String("endpoint", "127.0.0.1:2379", "the address of etcd")
	jobs := flag.Int("jobs", 10_000, "how many jobs are due each second")
	settle := flag.Duration("settle", 4*time.Second, "how long after they were made the measurement begins")
	seconds := flag.Int("seconds", 10, "how long it lasts")
	flag.Parse()
	if err := measure(*endpoint, *jobs, *settle, *seconds); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// startMax bounds how long a job is offered again.
const startMax = time.Minute

// calls are the calls of one job, which is due each second from its creation. As go-etcd-cron does
// not report when that was, the lateness is relative to the job's earliest call within a second.
type calls struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func measure(endpoint string, jobs int, settle time.Duration, seconds int) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	called := calls{at: make(map[string][]time.Time, jobs)}
	c, err := cron.New(cron.Options{
		Log: logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil)), Client: client, Namespace: "bench", ID: "0",
		TriggerFn: func(_ context.Context, r *api.TriggerRequest) *api.TriggerResponse {
			now := time.Now()
			called.mu.Lock()
			called.at[r.GetName()] = append(called.at[r.GetName()], now)
			called.mu.Unlock()
			return &api.TriggerResponse{Result: api.TriggerResponseResult_SUCCESS}
		},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	const callers = 32
	var add sync.WaitGroup
	errs := make([]error, callers)
	every := "@every 1s"
	for caller := range callers {
		add.Go(func() {
			for i := caller; i < jobs && errs[caller] == nil; i += callers {
				// It accepts no jobs before it knows the nodes.
				for deadline := time.Now().Add(startMax); ; time.Sleep(100 * time.Millisecond) {
					if errs[caller] = c.Add(ctx, fmt.Sprintf("job-%d", i), &api.Job{Schedule: &every}); errs[caller] == nil || time.Now().After(deadline) {
						break
					}
				}
			}
		})
	}
	add.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	from := time.Now().Add(settle)
	until := from.Add(time.Duration(seconds) * time.Second)
	time.Sleep(time.Until(until.Add(time.Second)))
	stop()
	<-ended
	out := bufio.NewWriter(os.Stdout)
	called.mu.Lock()
	defer called.mu.Unlock()
	for _, list := range called.at {
		earliest := time.Second
		for _, at := range list {
			earliest = min(earliest, at.Sub(list[0])%time.Second)
		}
		phase := list[0].Add(earliest)
		for _, at := range list {
			if !at.Before(from) && at.Before(until) {
				fmt.Fprintln(out, ((at.Sub(phase)%time.Second + time.Second) % time.Second).Microseconds())
			}
		}
	}
	return out.Flush()
}
