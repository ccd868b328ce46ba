package nodebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

const (
	// followersEach is how many follow events, and how many follow outputs.
	followersEach = 1000
	// followersMemory bounds their memory, in MB.
	followersMemory = 250
)

// followers measures the cost of clients that follow events and output, beside commands that start
// each second.
func (b *bench) followers(ctx context.Context) ([]Figure, error) {
	p, err := b.tiny(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// The followed run does not end: the server does not wait for it.
	s, err := b.serve(ctx, filepath.Join(dir, "data"), "--capacity", strconv.Itoa(512), "--drain-timeout", "1ms")
	if err != nil {
		return nil, err
	}
	defer s.kill()
	l := commandLoad{jobs: 10}
	measure := func() (*result, error) {
		r, err := s.measure(ctx, p, l, l.jobs, b.Seconds, b.settling(), filepath.Join(dir, "starts"))
		if err != nil {
			return nil, err
		}
		return r, r.read(l, l.jobs)
	}
	without, err := measure()
	if err != nil {
		return nil, err
	}
	n := b.scaled(followersEach, 20)
	crowd, err := s.follow(ctx, n)
	if err != nil {
		return nil, err
	}
	defer crowd.leave()
	with, err := measure()
	if err != nil {
		return nil, err
	}
	read, left := crowd.read.Load(), crowd.left.Load()
	crowd.leave()
	if err := s.stop(); err != nil {
		return nil, err
	}
	share := func(r *result) string {
		return fmt.Sprintf("%.1f %%", 100*float64(r.own)/float64(r.until.Sub(r.from)))
	}
	return []Figure{
		below("followers that were sent away", float64(left), 0, 0, "").beside(fmt.Sprintf("of %d of events and %d of outputs", n, n)),
		below("not started", float64(with.due-with.started), 0, 0, "").beside(fmt.Sprintf("without them: %d", without.due-without.started)),
		atMost("late, p50", with.late.quantile(.5), 0).beside("without them: " + times(without.late.quantile(.5))),
		atMost("late, p99", with.late.quantile(.99), 0).beside("without them: " + times(without.late.quantile(.99))),
		below("resident memory", with.after, followersMemory, 0, " MB").beside(fmt.Sprintf("without them: %.0f MB", without.after)),
		fact("processor time of the server, of one processor", share(with)).beside("without them: " + share(without)),
		fact("sent to them", number(float64(read)/1e6, 1)+" MB"),
	}, nil
}

// crowd are clients that follow a server.
type crowd struct {
	leave func()
	read  atomic.Int64 // bytes
	left  atomic.Int64 // number of disconnected clients
}

// follow lets n clients follow the events of a server, and n the output of a running run. It
// returns once all of them do.
func (s *server) follow(ctx context.Context, n int) (*crowd, error) {
	long := &job.Job{Name: "long", Run: job.RunSpec{Shell: &job.Shell{Command: "exec sleep 3600"}}}
	if err := s.apply(ctx, []*job.Job{long}); err != nil {
		return nil, err
	}
	run, err := s.RunJob(ctx, job.DefaultNamespace, long.Name, client.RunRequest{}, "")
	if err != nil {
		return nil, err
	}
	following, cancel := context.WithCancel(ctx)
	c := &crowd{}
	var group sync.WaitGroup
	c.leave = sync.OnceFunc(func() { cancel(); group.Wait() })
	connections := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/api/v1/events", "/api/v1/runs/" + run.ID.String() + "/output"} {
		for range n {
			request, err := http.NewRequestWithContext(following, http.MethodGet, s.url+path, nil)
			if err != nil {
				return nil, err
			}
			request.Header.Set("Authorization", "Bearer "+s.token)
			request.Header.Set("Accept", "text/event-stream")
			answer, err := connections.Do(request)
			if err == nil && answer.StatusCode != http.StatusOK {
				err = errors.New(answer.Status)
				answer.Body.Close()
			}
			if err != nil {
				c.leave()
				return nil, fmt.Errorf("follow %s: %w", path, err)
			}
			group.Go(func() {
				defer answer.Body.Close()
				_, _ = io.Copy(counting{&c.read}, answer.Body)
				if following.Err() == nil {
					c.left.Add(1)
				}
			})
		}
	}
	return c, nil
}

// counting counts what is written to it.
type counting struct{ n *atomic.Int64 }

// Write implements io.Writer.
func (c counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
