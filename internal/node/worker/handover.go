package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/store"
)

const (
	// numbersReserved is the number of handover numbers that a node reserves at once:
	// enough for a second at the highest rate.
	numbersReserved = 1000
	// numbersTries bounds how often an attempt gets new numbers for used ones: a restored store may
	// reserve some twice.
	numbersTries = 3
)

// errNotRunning means that the attempt does not run on this node, so that it cannot hand it over.
var errNotRunning = errors.New("the attempt is not running on this node any more")

// handing is an attempt that waits to be handed over.
type handing struct {
	handover *store.Handover
	// done has room for the answer.
	done chan handoverResult
}

type handoverResult struct {
	number int64
	err    error
}

// handovers are attempts that wait to be handed over: the next batch gathers while one is
// in flight.
type handovers struct {
	mu      sync.Mutex
	waiting []*handing
	wake    chan struct{}
	// free has the unused numbers while no loop has them: all loops share one block, so that the
	// numbers of a node grow.
	free chan numbers
}

func newHandovers() *handovers {
	q := &handovers{wake: make(chan struct{}, 1), free: make(chan numbers, 1)}
	q.free <- numbers{}
	return q
}

func (q *handovers) add(h *handing) {
	q.mu.Lock()
	q.waiting = append(q.waiting, h)
	q.mu.Unlock()
	signal(q.wake)
}

// take takes a batch, and leaves the rest to the next.
func (q *handovers) take() []*handing {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), store.MaxBatch)
	batch := q.waiting[:n:n]
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	} else {
		signal(q.wake)
	}
	return batch
}

// handOver records in the store that an external receiver does the work of an attempt.
func (w *Worker) handOver(ctx context.Context, it *item, h *store.Handover) (int64, error) {
	// Before the store does, since it then no longer counts the attempt as this node's.
	w.decide(func(queue *runqueue.Queue[claim]) {
		queue.HandOver(it)
		it.With.fence = 0
	})
	waits := &handing{h, make(chan handoverResult, 1)}
	w.handovers.add(waits)
	select {
	case answer := <-waits.done:
		return answer.number, answer.err
	case <-ctx.Done():
		return 0, fmt.Errorf("hand over: %w", context.Cause(ctx))
	}
}

// handOverLoop hands attempts over, in batches, until ctx ends.
func (w *Worker) handOverLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.handovers.wake:
		}
		if batch := w.handovers.take(); len(batch) > 0 {
			w.handOverAll(ctx, batch)
		}
	}
}

// handOverAll hands a batch over and answers the waiting attempts.
func (w *Worker) handOverAll(ctx context.Context, batch []*handing) {
	for try := 0; len(batch) > 0; try++ {
		list := make([]store.Handover, len(batch))
		err := w.number(ctx, batch, list, try > 0)
		var outcomes []store.HandedOver
		if err == nil {
			outcomes, err = w.Store.HandOver(ctx, w.Self.ID, list)
		}
		var again []*handing
		for i, h := range batch {
			switch {
			case err != nil:
				h.done <- handoverResult{err: err}
			case outcomes[i] == store.Handed:
				h.done <- handoverResult{number: list[i].Number}
			case outcomes[i] == store.HandEnding:
				h.done <- handoverResult{err: executor.ErrCancelled}
			case outcomes[i] == store.HandNumbers && try < numbersTries:
				again = append(again, h)
			case outcomes[i] == store.HandNumbers:
				h.done <- handoverResult{err: errors.New("the numbers of handovers are in use: the store was set back")}
			default:
				h.done <- handoverResult{err: errNotRunning}
			}
		}
		batch = again
	}
}

// number assigns numbers to handovers, from a new block if the old one is used up.
func (w *Worker) number(ctx context.Context, batch []*handing, list []store.Handover, renew bool) error {
	var free numbers
	select {
	case free = <-w.handovers.free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { w.handovers.free <- free }()
	if renew || free.left < len(batch) {
		first, err := w.Store.Numbers(ctx, numbersReserved, 0)
		if err != nil {
			return err
		}
		free = numbers{first, numbersReserved}
	}
	for i, h := range batch {
		list[i] = *h.handover
		list[i].Number = free.next
		free.next++
		free.left--
	}
	return nil
}

// numbers are reserved and unused.
type numbers struct {
	next int64
	left int
}
