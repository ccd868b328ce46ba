// Package output collects the output of attempts, bounds it and ships it to a store in chunks while
// the attempts still run.
//
// A [Collector] is shared by all attempts of a node, a [Capture] belongs to one of them. A [Capture]
// keeps the first and the last half of the bound. Output goes into blocks in memory. Within
// [FlushAfter] the collector makes chunks of them and appends the chunks of all attempts together;
// a chunk, once made, never changes. The last half is shipped early, too, so that a crash does not
// lose it: each chunk names the earlier ones that it displaces. If an attempt writes faster than
// flushes, only the last half at the moment of a flush ever reaches the store.
//
// A short attempt is never flushed: Close returns its output, to be stored in one step with its
// result.
//
// The package neither blocks nor fails an attempt. When the store is slow or away the blocks stay
// in memory, within the same bound. A [Reader] converts chunks to text. Output is kept byte for
// byte, control characters included, and escaped when it is shown.
package output

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// FlushAfter is the longest wait before output is sent to the sink. With the time of the sink's
// answer it must stay below a second, the loss in a crash.
const FlushAfter = 900 * time.Millisecond

const (
	// gatherAfter is the age at which output is sent along with a flush of other output. It
	// causes at most two rounds a second, and spares attempts that end sooner.
	gatherAfter = FlushAfter / 2

	// retryAfter is the pause after the sink has failed.
	retryAfter = time.Second

	// appendTimeout bounds one call of the sink, so that a lost connection ends eventually; the
	// captures do not wait for it.
	appendTimeout = 30 * time.Second

	// stopTimeout bounds the whole last flush.
	stopTimeout = 5 * time.Second

	// batchBytes, batchChunks and batchCaptures bound a call of Append: enough to share the cost of
	// a transaction, and little enough not to delay others.
	batchBytes    = 1 << 20
	batchChunks   = 500
	batchCaptures = 500

	// wellAfter is how long the sink must work before the log reports that: it may refuse one
	// attempt and accept others.
	wellAfter = 10 * time.Second

	limitDefault     = 1 << 20
	limitMin         = 8 << 10
	memoryMaxDefault = 128 << 20
)

// Config configures a [Collector].
type Config struct {
	// Sink is where chunks go. It is called by Run alone.
	Sink Sink

	// Limit bounds the kept bytes of an attempt, including marks and chunkCost per chunk, half from
	// the start and half from the end. As whole chunks are dropped, it can be a chunk less, an
	// eighth of a half. Default: 1 MiB, some ten thousand lines. Minimum: 8 KiB.
	Limit int

	// MemoryMax is the memory of all captures, in bytes, beyond which each keeps at most four
	// unstored chunks. Only very many attempts with much output reach it. Default: 128 MiB.
	MemoryMax int64

	// Log receives when the sink fails and when it works again. Default: no log.
	Log *slog.Logger

	// Now is the time that pieces are marked with. It may step; flushes go by
	// the monotonic clock. Default: [time.Now].
	Now func() time.Time
}

// Collector ships the output of all attempts of a node. Its methods may be
// called from many goroutines.
type Collector struct {
	sink      Sink
	half      int // of Config.Limit
	chunkMax  int
	memoryMax int64
	log       *slog.Logger
	now       func() time.Time

	memory atomic.Int64 // in use by all captures

	// wake has room for one signal that the list is no longer empty; a second one would be
	// redundant. It is never closed.
	wake chan struct{}

	mu   sync.Mutex
	list dirtyList

	// Run alone uses these.
	warned    bool
	wellSince time.Time // the first success after a failure; zero until then
	notBefore time.Time
	chunks    []Chunk
	taken     []captureUpTo
	// captures bounds the captures of a call. Failures halve it and successes double it, so that an
	// attempt whose chunks the sink refuses soon has its own call and delays others for seconds at
	// most.
	captures int
}

// captureUpTo is a capture with blocks in flight, up to a number.
type captureUpTo struct {
	capture *Capture
	last    int64
}

// New returns a collector that ships nothing until Run is called.
func New(config Config) (*Collector, error) {
	if config.Sink == nil {
		return nil, errors.New("collect output: there is no sink")
	}
	if config.Limit == 0 {
		config.Limit = limitDefault
	}
	if config.Limit < limitMin {
		return nil, fmt.Errorf("collect output: a limit of %d bytes is too small, it must be at least %d", config.Limit, limitMin)
	}
	if config.MemoryMax == 0 {
		config.MemoryMax = memoryMaxDefault
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	half := config.Limit / 2
	return &Collector{
		sink: config.Sink,
		half: half,
		// Eight chunks in each half limit the excess that is dropped.
		chunkMax:  min(ChunkMax, half/8),
		memoryMax: config.MemoryMax,
		log:       config.Log,
		now:       config.Now,
		wake:      make(chan struct{}, 1),
		captures:  batchCaptures,
	}, nil
}

// Capture returns the writer of an attempt. The caller closes it: only the caller has the output
// that Close returns.
func (c *Collector) Capture(run job.ID, attempt int) *Capture {
	return &Capture{collector: c, run: run, attempt: attempt, headLeft: c.half}
}

// Run ships output until ctx ends; then it ships the rest and returns the sink's error, if any.
// After a failure nothing is lost: Close, even after Run, returns all unstored output. Run is
// called once.
func (c *Collector) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			return c.flush(ctx, time.Now())
		case <-c.wake:
		case <-timer.C:
			now := time.Now()
			if due, ok := c.due(); ok && !due.After(now) {
				if err := c.flush(ctx, now.Add(-gatherAfter)); ctx.Err() == nil {
					c.report(err)
				}
			}
		}
		if due, ok := c.due(); ok {
			timer.Reset(time.Until(due))
		}
	}
}

// due returns when the next flush is.
func (c *Collector) due() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list.first == nil {
		return time.Time{}, false
	}
	due := c.list.first.since.Add(FlushAfter)
	if due.Before(c.notBefore) {
		due = c.notBefore
	}
	return due, true
}

// report records and logs the result of a flush.
func (c *Collector) report(err error) {
	now := time.Now()
	switch {
	case err != nil:
		c.notBefore = now.Add(retryAfter)
		c.wellSince = time.Time{}
		if !c.warned {
			c.warned = true
			c.log.Warn("output is kept in memory, within its bounds, until it can be stored", "error", err)
		}
	case !c.warned:
	case c.wellSince.IsZero():
		c.wellSince = now
	case now.Sub(c.wellSince) >= wellAfter:
		c.warned = false
		c.log.Info("output is stored again")
	}
}

// flush ships, in batches, the captures whose unshipped output began by a time.
func (c *Collector) flush(ctx context.Context, until time.Time) error {
	for {
		c.gather(until)
		if len(c.chunks) == 0 {
			return nil
		}
		err := c.append(ctx)
		for _, t := range c.taken {
			if err != nil {
				t.capture.retry()
			} else {
				t.capture.stored(t.last)
			}
		}
		if err != nil {
			c.captures = max(1, len(c.taken)/2)
		} else {
			c.captures = min(2*c.captures, batchCaptures)
		}
		clear(c.chunks)
		clear(c.taken)
		if err != nil {
			return fmt.Errorf("store output: %w", err)
		}
	}
}

func (c *Collector) append(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	return c.sink.Append(ctx, c.chunks)
}

// gather fills a batch with the output until a time.
func (c *Collector) gather(until time.Time) {
	c.chunks, c.taken = c.chunks[:0], c.taken[:0]
	for size := 0; size < batchBytes && len(c.chunks) < batchChunks && len(c.taken) < c.captures; {
		capture := c.next(until)
		if capture == nil {
			return
		}
		had := len(c.chunks)
		var last int64
		c.chunks, last = capture.take(c.chunks)
		if len(c.chunks) == had {
			continue // closed meanwhile
		}
		c.taken = append(c.taken, captureUpTo{capture, last})
		for i := range c.chunks[had:] {
			size += len(c.chunks[had+i].Data)
		}
	}
}

// next removes the longest waiting capture from the list.
func (c *Collector) next(until time.Time) *Capture {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.list.first
	if first == nil || first.since.After(until) {
		return nil
	}
	c.list.remove(first)
	return first
}

// enqueue puts a capture at the end of the list.
func (c *Collector) enqueue(capture *Capture) {
	now := time.Now()
	c.mu.Lock()
	wasEmpty := c.list.first == nil
	capture.since = now
	c.list.pushLast(capture)
	c.mu.Unlock()
	if wasEmpty {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// forget removes a capture from the list if it is in it.
func (c *Collector) forget(capture *Capture) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list.remove(capture)
}

// dirtyList links the captures with unshipped output, longest waiting first. It is doubly linked so
// that closing a short attempt is cheap.
type dirtyList struct {
	first, last *Capture
}

func (l *dirtyList) pushLast(c *Capture) {
	c.listed, c.previous, c.next = true, l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
}

func (l *dirtyList) remove(c *Capture) {
	if !c.listed {
		return
	}
	if c.previous == nil {
		l.first = c.next
	} else {
		c.previous.next = c.next
	}
	if c.next == nil {
		l.last = c.previous
	} else {
		c.next.previous = c.previous
	}
	c.listed, c.previous, c.next = false, nil, nil
}
