package service

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// counted counts the questions of those who follow output.
type counted struct {
	*memory.Store
	runs, outputs atomic.Int64
	// behind is done once, after output was read and before it is returned.
	behind atomic.Pointer[func()]
}

func (c *counted) ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error) {
	c.runs.Add(1)
	return c.Store.ListActive(ctx, q)
}

func (c *counted) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]store.OutputChunk, error) {
	c.outputs.Add(1)
	list, err := c.Store.Output(ctx, run, attempt, fromSeq, limit)
	if behind := c.behind.Swap(nil); behind != nil {
		(*behind)()
	}
	return list, err
}

// asked returns how many questions there were since the last time.
func (c *counted) asked() (runs, outputs int64) { return c.runs.Swap(0), c.outputs.Swap(0) }

// heard is what one follower has received.
type heard struct {
	text  strings.Builder
	ended atomic.Bool
	err   error
}

func (h *heard) Part(part client.OutputPart, _ *Place) error {
	h.text.WriteString(part.Text)
	return nil
}

func (h *heard) Alive() error { return nil }

// watched is a service with a running run that has followers.
type watched struct {
	*bench
	store     *counted
	service   *Service
	followers *Followers
	name      string // of the node
	run       client.Run
	query     client.OutputQuery
	leave     context.CancelFunc // of all followers
	group     sync.WaitGroup
	heard     []*heard
}

// follows makes one in a bubble of synctest, on a node of this name. hears is whether the
// node hears what happens in the store.
func follows(t *testing.T, name string, hears bool) *watched {
	t.Helper()
	b := newBench(t)
	w := &watched{bench: b, store: &counted{Store: b.store}, name: name, followers: NewFollowers(b.store)}
	if hears {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { _ = w.followers.Run(ctx); close(done) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	w.serve()
	w.starts(`{"name": "nightly", "run": {"shell": "true"}}`)
	return w
}

// serve makes the service with its followers.
func (w *watched) serve() {
	w.service = w.serviceOn(Config{Store: w.store, Node: w.name, Followers: w.followers})
}

// starts creates a job and starts a run of it.
func (w *watched) starts(document string) {
	w.t.Helper()
	w.run = w.runOf(w.service, document)
	w.start(w.run)
}

// follow begins to follow, n times.
func (w *watched) follow(n int) {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.leave = cancel
	for range n {
		h := &heard{}
		w.heard = append(w.heard, h)
		w.group.Go(func() {
			reader, err := w.service.Output.Open(ctx, admin, w.run.ID, w.query, nil, true)
			if err != nil {
				h.err = err
				return
			}
			defer reader.Close()
			_, h.err = reader.Follow(ctx, h)
			h.ended.Store(h.err == nil)
		})
	}
	synctest.Wait()
}

// writes stores output of the run.
func (w *watched) writes(seq int, offset int64, text string) {
	w.t.Helper()
	chunks := w.wrote(w.run, text)
	chunks[0].Seq, chunks[0].Offset = seq, offset
	if err := w.store.AppendOutput(w.t.Context(), chunks); err != nil {
		w.t.Fatal(err)
	}
}

// told requires all followers to have received a text once.
func (w *watched) told(text string) {
	w.t.Helper()
	synctest.Wait()
	for i, h := range w.heard {
		if strings.Count(h.text.String(), text) != 1 {
			w.t.Errorf("follower %d has not received %q once: %v: %s", i, text, h.err, h.text.String())
		}
	}
}

// over requires all followers to know that the run has ended.
func (w *watched) over() {
	w.t.Helper()
	synctest.Wait()
	for i, h := range w.heard {
		if !h.ended.Load() {
			w.t.Errorf("follower %d does not know the end: %v", i, h.err)
		}
	}
}

func TestFollowersOfARunShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 50
		w := follows(t, "one", true)
		w.follow(clients)
		time.Sleep(2 * time.Second) // so that it is known where it runs
		w.store.asked()
		time.Sleep(20 * time.Second)
		if runs, outputs := w.store.asked(); runs+outputs > 4 {
			t.Errorf("while nothing happened the store was asked %d times for the run and %d times for output", runs, outputs)
		}
		long := strings.Repeat("it is compressed ", 1000)
		w.writes(0, 0, "one\n")
		w.writes(1, 4, long)
		w.followers.Wrote(w.run.ID)
		time.Sleep(clients * time.Millisecond) // each has its turn
		w.told("one\n" + long)
		if runs, outputs := w.store.asked(); runs != 1 || outputs != 1 {
			t.Errorf("the store was asked %d times for the run and %d times for output", runs, outputs)
		}
		if kept := w.followers.shared.Load(); kept == 0 {
			t.Error("nothing is shared")
		}
		w.finish(w.run, job.OutcomeSucceeded)
		time.Sleep(clients * time.Millisecond)
		w.over()
		w.group.Wait()
	})
}

// A run of another node of the store: nothing tells of it.
func TestPollOfARunElsewhereBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "another", false)
		w.follow(5)
		time.Sleep(20 * time.Second)
		w.store.asked()
		time.Sleep(time.Minute)
		if runs, outputs := w.store.asked(); runs != 12 || outputs != 12 {
			t.Errorf("in a minute the store was asked %d times for the run and %d times for output", runs, outputs)
		}
		w.writes(0, 0, "hello\n")
		time.Sleep(6 * time.Second)
		w.told("hello\n")
		// Now that there is something, the next is found sooner.
		w.writes(1, 6, "again\n")
		time.Sleep(2 * time.Second)
		w.told("again\n")
		w.finish(w.run, job.OutcomeSucceeded)
		time.Sleep(6 * time.Second)
		w.over()
		w.group.Wait()
	})
}

func TestEndOfARunIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		w.follow(1)
		time.Sleep(time.Minute)
		before := time.Now()
		w.finish(w.run, job.OutcomeSucceeded, w.wrote(w.run, "the last words\n")...)
		w.group.Wait()
		w.told("the last words")
		if took := time.Since(before); took > 0 {
			t.Errorf("the end comes after %s", took)
		}
	})
}

// Output written between two polls is not lost when the run has ended by then.
func TestLastOutputIsSentHoweverTheRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		ends := func() { w.finish(w.run, job.OutcomeSucceeded, w.wrote(w.run, "the last words\n")...) }
		w.store.behind.Store(&ends)
		w.follow(2)
		w.group.Wait()
		w.told("the last words")
		w.over()
	})
}

func TestFollowStateIsDroppedWithItsLastFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		w.follow(2)
		w.writes(0, 0, "hello\n")
		w.followers.Wrote(w.run.ID)
		time.Sleep(time.Millisecond)
		if kept := w.followers.shared.Load(); kept == 0 {
			t.Error("nothing is shared")
		}
		w.leave()
		w.group.Wait()
		if kept := w.followers.shared.Load(); kept != 0 {
			t.Errorf("%d bytes are kept without a follower", kept)
		}
	})
}

func TestEndOfAnAttemptIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		w.starts(`{"name": "again", "run": {"shell": "true"}, "policy": {"retry": {"attempts": 1, "backoff": "1h"}}}`)
		w.query.Attempt = 1
		w.follow(1)
		time.Sleep(time.Minute)
		before := time.Now()
		w.finish(w.run, job.OutcomeFailed) // the run waits for its next attempt
		w.group.Wait()
		w.over()
		if took := time.Since(before); took > 0 {
			t.Errorf("the end comes after %s", took)
		}
	})
}

// feed is a store that tells what the test says.
type feed struct{ events.Feed }

func (f *feed) Events(ctx context.Context) <-chan []store.Event { return f.Follow(ctx) }

// An event that came too late may be the end of any run.
func TestFollowersPollWhenEventsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", false)
		f := &feed{}
		w.followers = NewFollowers(f)
		w.serve()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = w.followers.Run(ctx); close(done) }()
		w.follow(1)
		time.Sleep(time.Minute)
		before := time.Now()
		w.finish(w.run, job.OutcomeSucceeded)
		synctest.Wait()
		f.Send([]store.Event{{Kind: store.EventLost}})
		w.group.Wait()
		if took := time.Since(before); took > 0 {
			t.Errorf("the end comes after %s", took)
		}
		synctest.Wait()
		if f.Wanted() {
			t.Error("the store is followed without a follower")
		}
		cancel()
		<-done
	})
}

// The shared cache is bounded, and each follower reads the rest itself.
func TestSharedFollowStateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		w.followers.shared.Add(sharedMax) // as much as there may be
		w.follow(3)
		w.store.asked()
		w.writes(0, 0, "hello\n")
		w.followers.Wrote(w.run.ID)
		time.Sleep(time.Millisecond)
		w.told("hello\n")
		if _, outputs := w.store.asked(); outputs != 3 {
			t.Errorf("the store was asked %d times", outputs)
		}
		if kept := w.followers.shared.Load(); kept != sharedMax {
			t.Errorf("%d bytes are kept", kept)
		}
		w.finish(w.run, job.OutcomeSucceeded)
		w.group.Wait()
	})
}
