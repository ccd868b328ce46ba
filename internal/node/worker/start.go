package worker

import (
	"context"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/runqueue"
)

const (
	// idleMax bounds the goroutines that wait for attempts. A burst starts more, which end with it.
	idleMax = 64
	// startsFirst is how long ended attempts and their reports wait for pending starts of the same
	// instant, some hundred: a late start is visible, a late result is not.
	startsFirst = 60 * time.Millisecond
)

// startLoop starts claimed attempts at their instant.
func (w *Worker) startLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var begin []*item
		var wait time.Duration
		w.decide(func(queue *runqueue.Queue[claim]) { begin, wait = queue.Starts(w.elapsed()) })
		w.starter.add(begin)
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.startWake:
		}
	}
}

// starter executes attempts in the order of their start, on reused goroutines. While starts
// are pending, exactly one goroutine is on its way to take one: each goroutine that takes
// an attempt wakes another for the next, and then executes its own. So a burst of short
// attempts needs few goroutines, and a burst of waiting attempts one for each.
//
// The work after an attempt waits until the others have begun: in a burst of short
// attempts it is a large part of the total.
type starter struct {
	begin func(*item) // executes it
	end   func(*item) // does the rest
	// emptied is signalled when the last pending attempt was taken.
	emptied chan struct{}
	// wake has a token for each idle goroutine to continue.
	wake    chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex
	queue  []*item
	ended  endings
	coming bool // a goroutine was summoned
	idle   int
	over   bool
}

func newStarter(begin, end func(*item)) *starter {
	return &starter{begin: begin, end: end, emptied: make(chan struct{}, 1), wake: make(chan struct{}, idleMax)}
}

// add queues attempts to be started now.
func (s *starter) add(items []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, items...)
	s.summon()
}

// summon wakes a goroutine for the next attempt.
func (s *starter) summon() {
	switch {
	case len(s.queue) == 0 && s.ended.len() == 0 || s.coming:
		return
	case s.idle > 0:
		s.idle--
		s.wake <- struct{}{}
	default:
		s.running.Go(s.work)
	}
	s.coming = true
}

// work executes attempts until none is left and enough goroutines are idle.
func (s *starter) work() {
	var last *item // the item that has ended
	for summoned := true; ; summoned = false {
		switch it, ended := s.next(last, summoned); {
		case it == nil:
			return
		case ended:
			s.end(it)
			last = nil
		default:
			s.begin(it)
			last = it
		}
	}
}

// next waits for and returns the next attempt to start, or an ended one. It returns nil when the
// goroutine must end. last is the attempt that it has ended, or nil; summoned is set for a summoned
// goroutine.
func (s *starter) next(last *item, summoned bool) (it *item, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last != nil {
		s.ended.push(last)
	}
	for {
		if summoned {
			s.coming = false
		}
		if len(s.queue) > 0 && !s.ended.long() {
			break
		}
		if s.ended.len() > 0 {
			it = s.ended.pop()
			s.summon()
			return it, true
		}
		if s.over || s.idle == idleMax {
			return nil, false
		}
		s.idle++
		s.mu.Unlock()
		_, summoned = <-s.wake
		s.mu.Lock()
	}
	it = s.queue[0]
	s.queue[0] = nil
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = nil
		signal(s.emptied)
	}
	s.summon()
	return it, false
}

// endings are ended attempts, in order. The memory of a burst is reused.
type endings struct {
	items []*item
	first int
}

func (e *endings) len() int { return len(e.items) - e.first }

func (e *endings) push(it *item) { e.items = append(e.items, it) }

func (e *endings) pop() *item {
	it := e.items[e.first]
	e.items[e.first] = nil
	if e.first++; e.first == len(e.items) {
		e.items, e.first = e.items[:0], 0
	}
	return it
}

// long reports whether the first have waited for the maximum.
func (e *endings) long() bool {
	return e.len() > 0 && e.items[len(e.items)-1].With.prepared.over.Sub(e.items[e.first].With.prepared.over) > startsFirst
}

// settle waits, for a limited time, until the pending starts are done.
func (s *starter) settle() {
	var enough <-chan time.Time
	for {
		s.mu.Lock()
		left := len(s.queue)
		s.mu.Unlock()
		if left == 0 {
			return
		}
		if enough == nil { // usually none are pending
			enough = time.After(startsFirst)
		}
		select {
		case <-s.emptied:
		case <-enough:
			return
		}
	}
}

// close ends the goroutines when all added attempts have ended.
func (s *starter) close() {
	s.mu.Lock()
	s.over = true
	s.idle = 0
	s.mu.Unlock()
	close(s.wake)
	s.running.Wait()
}
