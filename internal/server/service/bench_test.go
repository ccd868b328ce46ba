package service

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// admin may do everything.
var admin = Caller{Name: "alice", Role: store.RoleAdmin}

// bench is a store in memory with a node, whose clock is set by hand.
type bench struct {
	t       *testing.T
	store   *memory.Store
	output  *output.Collector
	session job.ID
	claims  map[job.ID]job.ID

	mu  sync.Mutex
	now time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC), claims: map[job.ID]job.ID{}}
	b.store = memory.New(memory.Options{Now: b.clock})
	b.session = b.id()
	if _, err := b.store.Join(t.Context(), store.Session{ID: b.session, Node: "one", Roles: []string{store.RoleWorker}, Capacity: 10}); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.output, err = output.New(output.Config{Sink: noSink{}}); err != nil {
		t.Fatal(err)
	}
	return b
}

type noSink struct{}

func (noSink) Append(context.Context, []output.Chunk) error { return nil }

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) id() job.ID {
	id, err := job.NewID(b.clock(), rand.Reader)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// serviceOn makes a service, on the store of the bench unless the configuration says another.
func (b *bench) serviceOn(c Config) *Service {
	b.t.Helper()
	if c.Store == nil {
		c.Store = b.store
	}
	c.Tokens, c.Now = auth.New(b.store, b.clock), b.clock
	s, err := New(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// put creates a job.
func (b *bench) put(s *Service, document string) Name {
	b.t.Helper()
	draft, err := ReadDraft([]byte(document), "")
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := s.Jobs.Create(b.t.Context(), admin, draft); err != nil {
		b.t.Fatal(err)
	}
	return nameOf(draft.Job)
}

// runOf creates a job and makes a run of it.
func (b *bench) runOf(s *Service, document string) client.Run {
	b.t.Helper()
	outcome, err := s.Runs.Start(b.t.Context(), admin, b.put(s, document), client.RunRequest{}, "")
	if err != nil {
		b.t.Fatal(err)
	}
	return outcome.Run
}

// start claims a run.
func (b *bench) start(run client.Run) {
	b.t.Helper()
	b.claims[run.ID] = b.id()
	outcomes, err := b.store.Claim(b.t.Context(), b.session, []store.Attempt{{Run: run.ID, Number: run.Attempt, Token: b.claims[run.ID]}})
	if err != nil || outcomes[0].Verdict != store.Started {
		b.t.Fatalf("claim: %v, %+v", err, outcomes)
	}
}

// finish ends a run with an output.
func (b *bench) finish(run client.Run, outcome job.Outcome, chunks ...store.OutputChunk) {
	b.t.Helper()
	outcomes, err := b.store.Finish(b.t.Context(), b.session, []store.Result{{
		Attempt: store.Attempt{Run: run.ID, Number: run.Attempt, Token: b.claims[run.ID]},
		Started: b.clock(), Ended: b.clock().Add(time.Second), Outcome: outcome, Output: chunks,
	}})
	if err != nil || !outcomes[0].Accepted {
		b.t.Fatalf("finish: %v, %+v", err, outcomes)
	}
}

// wrote returns what a run has written, as a node stores it.
func (b *bench) wrote(run client.Run, text string) (list []store.OutputChunk) {
	b.t.Helper()
	capture := b.output.Capture(run.ID, run.Attempt)
	fmt.Fprint(capture.Stdout(), text)
	chunks, _ := capture.Close()
	for _, c := range chunks {
		list = append(list, store.OutputChunk(c))
	}
	return list
}
