package worker

import (
	"context"
	"sync"
	"time"
)

const (
	// idleMax is how many goroutines wait for further attempts. More are made
	// for a herd and end with it.
	idleMax = 64
	// startsFirst is how long the reports of what has ended wait for those that
	// are still to be started at the same instant: a result is in no hurry,
	// and a start is late.
	startsFirst = 20 * time.Millisecond
)

// startLoop starts claimed attempts at their instant.
func (w *Worker) startLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		begin, wait := w.dueStarts()
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

// dueStarts returns the attempts to start now, and the time to the next.
func (w *Worker) dueStarts() (begin []*item, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := int64(w.elapsed())
	for _, handle := range w.starts.Due(now, nil) {
		switch it := w.slots[handle]; {
		case it == nil:
			w.free = append(w.free, handle)
		case it.state == claimed:
			it.state = running
			begin = append(begin, it)
		}
	}
	if len(begin) > 0 {
		return begin, 0 // time has passed when they are started
	}
	wait = lookEvery
	if next, ok := w.starts.Next(); ok {
		wait = min(wait, time.Duration(next-now))
	}
	return nil, wait
}

// starter executes attempts in the order of their start, on goroutines that are
// used again. As long as one is to be started, one goroutine is on its way to do
// so, and not more: each that takes an attempt sees to it that another will take
// the next, and then executes its own. So a herd of attempts that end at once
// costs a few goroutines, and one of attempts that wait costs one for each.
type starter struct {
	execute func(*item)
	// emptied is signalled when the last attempt was taken.
	emptied chan struct{}
	// wake has a token for each idle goroutine that is to go on.
	wake    chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex
	queue  []*item
	coming bool // a goroutine is on its way
	idle   int
	over   bool
}

func newStarter(execute func(*item)) *starter {
	return &starter{execute: execute, emptied: make(chan struct{}, 1), wake: make(chan struct{}, idleMax)}
}

// add queues attempts to be started now.
func (s *starter) add(items []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, items...)
	s.summon()
}

// summon sees to it that somebody takes the next attempt.
func (s *starter) summon() {
	switch {
	case len(s.queue) == 0 || s.coming:
		return
	case s.idle > 0:
		s.idle--
		s.wake <- struct{}{}
	default:
		s.running.Go(s.work)
	}
	s.coming = true
}

// work executes attempts until there are none, and enough goroutines wait.
func (s *starter) work() {
	for it := s.next(true); it != nil; it = s.next(false) {
		s.execute(it)
	}
}

// next takes the next attempt, and waits for it. It returns nil when the goroutine
// is to end. summoned is set for one that comes because there is something.
func (s *starter) next(summoned bool) *item {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if summoned {
			s.coming = false
		}
		if len(s.queue) > 0 {
			break
		}
		if s.over || s.idle == idleMax {
			return nil
		}
		s.idle++
		s.mu.Unlock()
		_, summoned = <-s.wake
		s.mu.Lock()
	}
	it := s.queue[0]
	s.queue[0] = nil
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = nil
		signal(s.emptied)
	}
	s.summon()
	return it
}

// settle waits until what is to be started now was, for a while.
func (s *starter) settle() {
	var enough <-chan time.Time
	for {
		s.mu.Lock()
		left := len(s.queue)
		s.mu.Unlock()
		if left == 0 {
			return
		}
		if enough == nil { // mostly there is nothing to wait for
			enough = time.After(startsFirst)
		}
		select {
		case <-s.emptied:
		case <-enough:
			return
		}
	}
}

// close ends the goroutines when all attempts that were added have ended.
func (s *starter) close() {
	s.mu.Lock()
	s.over = true
	s.idle = 0
	s.mu.Unlock()
	close(s.wake)
	s.running.Wait()
}
