package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// elsewhereMin and elsewhereMax bound the interval between polls of a run on another
	// node, which sends this process no events. The interval grows while the run writes
	// nothing.
	elsewhereMin = time.Second
	elsewhereMax = 5 * time.Second
	// hereEvery is the interval for a run on this node, which sends events.
	hereEvery = 30 * time.Second
	// looksEach is the least time between two polls of any runs: with many followed runs,
	// each is polled less often.
	looksEach = 2 * time.Millisecond
	// spreadEach is the time between the wake-ups of two followers of a run, so that they
	// do not all need a processor at once.
	spreadEach = 100 * time.Microsecond
	// sharedMax bounds the output that is cached for the next followers of a run, over all
	// runs. Beyond it each follower reads separately.
	sharedMax = 32 << 20
)

// eventStore is the part of a store that followers listen to.
type eventStore interface {
	Events(ctx context.Context) <-chan []store.Event
}

// Followers wakes the followers of the output of runs, and lets the followers of one run
// share their reads. Use [NewFollowers]; its methods may be called from many goroutines.
type Followers struct {
	store eventStore
	// change has room for one message: the first run is followed, or the last one no longer.
	change chan struct{}
	shared atomic.Int64 // bytes that are kept

	mu   sync.Mutex // guards the fields below, and the fields of followedRun that name it
	runs map[job.ID]*followedRun
}

// NewFollowers returns followers of the runs of a store. Without Run and Wrote they poll.
func NewFollowers(s eventStore) *Followers {
	return &Followers{store: s, change: make(chan struct{}, 1), runs: map[job.ID]*followedRun{}}
}

// Run wakes the followers of runs that change their state, until ctx ends. It follows the
// store while there are followers.
func (f *Followers) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.change:
			f.listen(ctx)
		}
	}
}

func (f *Followers) listen(ctx context.Context) {
	if f.none() {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := f.store.Events(ctx)
	f.all() // for changes before
	for {
		select {
		case <-f.change:
			if f.none() {
				return
			}
		case list, open := <-changes:
			if !open {
				return
			}
			f.heard(list)
		}
	}
}

func (f *Followers) none() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.runs) == 0
}

// heard wakes the followers of the runs in events.
func (f *Followers) heard(list []store.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range list {
		switch e := &list[i]; {
		case e.Run != nil:
			f.runs[e.Run.ID].wake()
		case e.Record != nil:
			f.runs[e.Record.Run.ID].wake()
		case e.Kind == store.EventLost:
			for _, r := range f.runs {
				r.wake()
			}
		}
	}
}

// all wakes all followers.
func (f *Followers) all() { f.heard([]store.Event{{Kind: store.EventLost}}) }

// Wrote wakes the followers of a run whose output this node has stored.
func (f *Followers) Wrote(run job.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[run].wake()
}

// follow adds a follower of a run, who must leave.
func (f *Followers) follow(id job.ID) *followedRun {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.runs[id]
	if r == nil {
		r = &followedRun{
			of: f, id: id, more: make(chan struct{}), every: elsewhereMin,
			turn: make(chan struct{}, 1),
		}
		r.timer = time.AfterFunc(r.every, r.look)
		if f.runs[id] = r; len(f.runs) == 1 {
			f.changed()
		}
	}
	r.followers++
	return r
}

// changed notifies Run of the first follower, or of the end of the last.
func (f *Followers) changed() {
	select {
	case f.change <- struct{}{}:
	default: // it has not looked yet
	}
}

// followedRun is the state shared by the followers of a run.
type followedRun struct {
	of *Followers
	id job.ID

	// Guarded by the mutex of the followers.
	followers int
	more      chan struct{} // closed at the next news
	news      uint64        // counts them
	timer     *time.Timer   // until the next look
	every     time.Duration
	here      bool // this node runs it
	found     bool // the last poll found something

	// turn has room for one reader, who reads or uses the last read; it guards the fields
	// below.
	turn chan struct{}
	run  seenRun
	page []store.OutputChunk
	part part  // that the page begins, if one is kept
	size int64 // of the page
}

// seenRun is the state of a run at a poll, numbered from 1.
type seenRun struct {
	client.Run
	look, news uint64
}

// part is the output from a chunk on, read after a poll of the run: if an attempt had ended
// then, its output is complete.
type part struct {
	look         uint64
	attempt, seq int
}

// leave removes the follower.
func (r *followedRun) leave() {
	f := r.of
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.followers--; r.followers > 0 {
		return
	}
	r.timer.Stop()
	delete(f.runs, r.id)
	f.shared.Add(-r.size) // there are no readers left
	if len(f.runs) == 0 {
		f.changed()
	}
}

// wake wakes the followers of the run. The mutex is held. Nil has no followers.
func (r *followedRun) wake() {
	if r == nil {
		return
	}
	r.news++
	close(r.more)
	r.more = make(chan struct{})
}

// look wakes the followers for a periodic poll.
func (r *followedRun) look() {
	f := r.of
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.followers == 0 {
		return // the timer was not stopped in time
	}
	switch {
	case r.here:
		r.every = hereEvery
	case !r.found:
		r.every = min(2*r.every, elsewhereMax)
	}
	r.found = false
	r.wake()
	r.again()
}

// again sets the time of the next poll. The mutex is held.
func (r *followedRun) again() { r.timer.Reset(max(r.every, time.Duration(len(r.of.runs))*looksEach)) }

// now returns which news there are, and a channel that is closed by the next.
func (r *followedRun) now() (news uint64, more <-chan struct{}) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	return r.news, r.more
}

// seen records whether the run is on this node, and whether it had news.
func (r *followedRun) seen(here, found bool) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.here, r.found = here, r.found || found
	if found && !here && r.every > elsewhereMin {
		r.every = elsewhereMin
		r.again()
	}
}

// spread returns the time within which the followers of the run are woken.
func (r *followedRun) spread() time.Duration {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	return time.Duration(r.followers-1) * spreadEach
}

// take takes the turn to read, which must be given back.
func (r *followedRun) take(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read returns the run, read once since certain news.
func (r *followedRun) read(ctx context.Context, o *Output, news uint64) (seenRun, error) {
	if err := r.take(ctx); err != nil {
		return seenRun{}, err
	}
	defer func() { <-r.turn }()
	if r.run.look > 0 && r.run.news >= news {
		return r.run, nil
	}
	run, err := o.runs.run(ctx, r.id)
	if err != nil {
		return seenRun{}, err
	}
	r.run = seenRun{run, r.run.look + 1, news}
	return r.run, nil
}

// chunks returns the next chunks of a part of the output, read once for all followers.
func (r *followedRun) chunks(ctx context.Context, o *Output, at part) ([]store.OutputChunk, error) {
	if err := r.take(ctx); err != nil {
		return nil, err
	}
	defer func() { <-r.turn }()
	if r.part == at {
		return r.page, nil
	}
	list, err := o.store.Output(ctx, r.id, at.attempt, at.seq, chunksPage)
	if err != nil {
		return nil, err
	}
	r.keep(list, at)
	return list, nil
}

// keep caches a page for other followers, if any, within the memory limit.
func (r *followedRun) keep(page []store.OutputChunk, at part) {
	shared := &r.of.shared
	shared.Add(-r.size)
	r.page, r.part, r.size = nil, part{}, 0
	if r.alone() {
		return
	}
	var size int64
	for i := range page {
		page[i] = store.OutputChunk(output.Chunk(page[i]).Unpacked())
		size += int64(len(page[i].Data))
	}
	if shared.Add(size) > sharedMax {
		shared.Add(-size)
		return
	}
	r.page, r.part, r.size = page, at, size
}

func (r *followedRun) alone() bool {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	return r.followers == 1
}
