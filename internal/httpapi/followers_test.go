package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/httpapi"
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

func (c *counted) Active(ctx context.Context, id job.ID) (store.Run, error) {
	c.runs.Add(1)
	return c.Store.Active(ctx, id)
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

// watched is a server with a run that goes on and is followed by some.
type watched struct {
	*node
	store     *counted
	followers *httpapi.Followers
	run       client.Run
	path      string
	leave     context.CancelFunc // of all who follow
	group     sync.WaitGroup
	answers   []*httptest.ResponseRecorder
}

// follows makes it, on a node of this name, in a bubble of synctest. hears is
// whether the server hears of what happens.
func follows(t *testing.T, name string, hears bool) *watched {
	t.Helper()
	s := newServer(t)
	s.name = name
	w := &watched{node: s.node(), store: &counted{Store: s.store}}
	w.followers = httpapi.NewFollowers(s.store)
	if hears {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { _ = w.followers.Run(ctx); close(done) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	w.serve()
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	w.run = ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", "")
	w.start(w.run)
	w.path = "/api/v1/runs/" + w.run.ID.String() + "/output"
	return w
}

// serve makes the API with its followers.
func (w *watched) serve() {
	w.t.Helper()
	var err error
	w.handler, err = httpapi.Handler(httpapi.Config{Store: w.store, Node: w.name, Followers: w.followers, Tokens: w.server.tokens, Now: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
}

// follow begins to follow, by n clients.
func (w *watched) follow(n int) {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.leave = cancel
	for range n {
		r := httptest.NewRequestWithContext(ctx, "GET", w.path, nil)
		r.Host = "127.0.0.1:8420"
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Accept", "text/event-stream")
		answer := httptest.NewRecorder()
		w.answers = append(w.answers, answer)
		w.group.Go(func() { w.handler.ServeHTTP(answer, r) })
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

// told wants a text to have been told to all.
func (w *watched) told(text string) {
	w.t.Helper()
	synctest.Wait()
	for i, answer := range w.answers {
		if answer.Code != http.StatusOK || strings.Count(answer.Body.String(), text) != 1 {
			w.t.Errorf("client %d is not told %q once: status %d: %s", i, text, answer.Code, answer.Body)
		}
	}
}

func TestThoseWhoFollowARunReadItOnceForAll(t *testing.T) {
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
		w.told(`"text":"one\n` + long + `"`)
		if runs, outputs := w.store.asked(); runs != 1 || outputs != 1 {
			t.Errorf("the store was asked %d times for the run and %d times for output", runs, outputs)
		}
		if kept := w.followers.Shared(); kept == 0 {
			t.Error("nothing is shared")
		}
		w.finish(w.run, job.OutcomeSucceeded)
		time.Sleep(clients * time.Millisecond)
		w.told("event: end\n")
		w.group.Wait()
	})
}

// A run of another node of the store: nothing tells of it.
func TestARunThatIsElsewhereIsLookedAtLessAndLessOften(t *testing.T) {
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
		w.told(`"text":"hello\n"`)
		// Now that there is something, the next is found sooner.
		w.writes(1, 6, "again\n")
		time.Sleep(2 * time.Second)
		w.told(`"text":"again\n"`)
		w.finish(w.run, job.OutcomeSucceeded)
		time.Sleep(6 * time.Second)
		w.told("event: end\n")
		w.group.Wait()
	})
}

func TestTheEndOfARunIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		w.follow(1)
		time.Sleep(time.Minute)
		before := time.Now()
		w.finish(w.run, job.OutcomeSucceeded, w.wrote(w.run, "the last words\n")...)
		w.group.Wait()
		w.told("the last words")
		if took := time.Since(before); took > 0 {
			t.Errorf("the end is told after %s", took)
		}
	})
}

// What is written between two looks is not lost because the run has ended by then.
func TestTheLastWordsAreToldHoweverTheEndComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		ends := func() { w.finish(w.run, job.OutcomeSucceeded, w.wrote(w.run, "the last words\n")...) }
		w.store.behind.Store(&ends)
		w.follow(2)
		w.group.Wait()
		w.told("the last words")
		w.told("event: end\n")
	})
}

func TestNothingIsKeptForThoseWhoHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		w.follow(2)
		w.writes(0, 0, "hello\n")
		w.followers.Wrote(w.run.ID)
		time.Sleep(time.Millisecond)
		if kept := w.followers.Shared(); kept == 0 {
			t.Error("nothing is shared")
		}
		w.leave()
		w.group.Wait()
		if kept := w.followers.Shared(); kept != 0 {
			t.Errorf("%d bytes are kept for nobody", kept)
		}
	})
}

func TestTheEndOfAnAttemptIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		ok[client.Change](w.server, "POST", "/api/v1/jobs", `{"name": "again", "run": {"shell": "true"}, "policy": {"retry": {"attempts": 1, "backoff": "1h"}}}`)
		w.run = ok[client.Run](w.server, "POST", "/api/v1/jobs/default/again/run", "")
		w.start(w.run)
		w.path = "/api/v1/runs/" + w.run.ID.String() + "/output?attempt=1"
		w.follow(1)
		time.Sleep(time.Minute)
		before := time.Now()
		w.finish(w.run, job.OutcomeFailed) // the run waits for its next attempt
		w.group.Wait()
		w.told("event: end\n")
		if took := time.Since(before); took > 0 {
			t.Errorf("the end is told after %s", took)
		}
	})
}

// feed is a store that tells what the test says.
type feed struct{ events.Feed }

func (f *feed) Events(ctx context.Context) <-chan []store.Event { return f.Follow(ctx) }

// What this process was not told in time may be the end of any run.
func TestWhoeverFollowsLooksWhenEventsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", false)
		f := &feed{}
		w.followers = httpapi.NewFollowers(f)
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
			t.Errorf("the end is told after %s", took)
		}
		synctest.Wait()
		if f.Wanted() {
			t.Error("the store is followed for nobody")
		}
		cancel()
		<-done
	})
}

// What is kept for others is bounded, and what is not kept is read by each.
func TestWhatIsSharedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "one", true)
		w.followers.Share(httpapi.SharedMax) // as much as there may be
		w.follow(3)
		w.store.asked()
		w.writes(0, 0, "hello\n")
		w.followers.Wrote(w.run.ID)
		time.Sleep(time.Millisecond)
		w.told(`"text":"hello\n"`)
		if _, outputs := w.store.asked(); outputs != 3 {
			t.Errorf("the store was asked %d times", outputs)
		}
		if kept := w.followers.Shared(); kept != httpapi.SharedMax {
			t.Errorf("%d bytes are kept", kept)
		}
		w.finish(w.run, job.OutcomeSucceeded)
		w.group.Wait()
	})
}
