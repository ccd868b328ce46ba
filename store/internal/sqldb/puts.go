package sqldb

import (
	"context"
	"errors"
	"sync"

	"github.com/belfry-cron/belfry/store"
)

// putsMax is how many calls with one job are made in one step: a refused one makes all of them
// be made one by one.
const putsMax = 32

// puts gathers the calls with one job that come while another one is being made. Each step that
// changes a job locks the numbers of the feed until its commit is on disk, so that such steps
// come one after the other: many clients get as far as one unless their jobs go together.
type puts struct {
	mu    sync.Mutex
	busy  bool // a call makes a step, and then those for the calls that wait
	queue []*put
}

// put is a call that waits.
type put struct {
	ctx  context.Context
	item store.PutJob
	jobs []*store.Job
	err  error
	done chan struct{}
}

// PutJobs implements store.Jobs.
func (s *Store) PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error) {
	if s.b.db.Alone() || len(list) != 1 { // one that is alone has a writer, which gathers all calls
		return s.Store.PutJobs(ctx, list)
	}
	p := &put{ctx: ctx, item: list[0], done: make(chan struct{})}
	g := &s.b.puts
	g.mu.Lock()
	if g.busy {
		g.queue = append(g.queue, p)
		g.mu.Unlock()
		<-p.done
		return p.jobs, p.err
	}
	g.busy = true
	g.mu.Unlock()
	s.putOne(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy = len(g.queue) > 0; g.busy {
		s.b.work.Go(s.putWaiting) // beside this call, which has its answer
	}
	return p.jobs, p.err
}

// putWaiting makes steps for the calls that wait until there are none.
func (s *Store) putWaiting() {
	g := &s.b.puts
	for {
		g.mu.Lock()
		n := min(len(g.queue), putsMax)
		some := g.queue[:n:n]
		g.queue = g.queue[n:]
		g.busy = n > 0
		g.mu.Unlock()
		if n == 0 {
			return
		}
		s.putTogether(some)
	}
}

// putTogether makes one step for some calls, or one for each where that is refused.
func (s *Store) putTogether(some []*put) {
	list := make([]store.PutJob, len(some))
	for i, p := range some {
		list[i] = p.item
	}
	if len(some) > 1 {
		// A call whose context ends in the meantime is still made, as if it had been in
		// flight.
		jobs, err := s.Store.PutJobs(context.WithoutCancel(some[0].ctx), list)
		if refused := (*store.ItemError)(nil); !errors.As(err, &refused) {
			for i, p := range some {
				if p.err = err; err == nil {
					p.jobs = jobs[i : i+1]
				}
				close(p.done)
			}
			return
		}
	}
	for _, p := range some {
		s.putOne(p)
	}
}

func (s *Store) putOne(p *put) {
	p.jobs, p.err = s.Store.PutJobs(p.ctx, []store.PutJob{p.item})
	close(p.done)
}
