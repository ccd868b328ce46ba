package sqldb

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// putsMax is how many calls with one job share a step: if one is refused, all are made one by one.
const putsMax = 32

// gatherMax is how long a step waits for the clients of the previous step, which call again after
// their answers: a fraction of their shared commit.
const gatherMax = 2 * time.Millisecond

// puts gathers calls with one job that arrive during another such call. Each step that changes a
// job locks the numbers of the feed until its commit is on disk, so that such steps are serial:
// without gathering, many clients are no faster than one.
type puts struct {
	mu    sync.Mutex
	busy  bool // a call makes a step, and then the steps of waiting calls
	queue []*put
	// want is the number of queued calls that a step waits for; the last of them closes full, which
	// is nil while no step waits.
	want int
	full chan struct{}
}

// put is a call that waits.
type put struct {
	ctx  context.Context
	item store.PutJob
	jobs []*store.Job
	err  error
	done chan struct{}
}

// PutJobs implements [store.Jobs].
func (s *Store) PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error) {
	if s.b.db.Alone() || len(list) != 1 { // a database of one process has a writer that gathers all calls
		return s.Store.PutJobs(ctx, list)
	}
	p := &put{ctx: ctx, item: list[0], done: make(chan struct{})}
	p.item.Origin = cmp.Or(p.item.Origin, store.OriginOf(ctx))
	g := &s.b.puts
	if g.queues(p) {
		<-p.done
		return p.jobs, p.err
	}
	s.putOne(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy = len(g.queue) > 0; g.busy {
		s.b.work.Go(s.putWaiting) // in the background, since this call has its answer
	}
	return p.jobs, p.err
}

// queues reports whether a call waits in the queue, because another call makes a step.
func (g *puts) queues(p *put) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.busy {
		g.busy = true
		return false
	}
	g.queue = append(g.queue, p)
	if g.full != nil && len(g.queue) >= g.want {
		close(g.full)
		g.full = nil
	}
	return true
}

// gather waits until the callers of the last step have called again, or for gatherMax. Otherwise
// the callers of two steps take turns, and each step has half of them.
func (g *puts) gather(answered int) {
	g.mu.Lock()
	want := min(putsMax, len(g.queue)+answered)
	if want < 2 || len(g.queue) >= want {
		g.mu.Unlock()
		return
	}
	full := make(chan struct{})
	g.want, g.full = want, full
	g.mu.Unlock()
	timer := time.NewTimer(gatherMax)
	defer timer.Stop()
	select {
	case <-full:
	case <-timer.C:
		g.mu.Lock()
		g.full = nil
		g.mu.Unlock()
	}
}

// putWaiting makes steps for the waiting calls until none waits, after a step that answered one.
func (s *Store) putWaiting() {
	g := &s.b.puts
	for answered := 1; ; {
		g.gather(answered)
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
		answered = n
	}
}

// putTogether makes one step for some calls, or one for each where that is refused.
func (s *Store) putTogether(some []*put) {
	list := make([]store.PutJob, len(some))
	for i, p := range some {
		list[i] = p.item
	}
	if len(some) > 1 {
		// A call whose context has ended is still made, as if it had been in flight. Each has its
		// own origin.
		jobs, err := s.Store.PutJobs(store.WithOrigin(context.WithoutCancel(some[0].ctx), store.Origin{}), list)
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
