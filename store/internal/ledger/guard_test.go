package ledger_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
	"github.com/belfry-cron/belfry/store/memory"
)

// forgetful is a backend whose steps do not see a part of what decisions need.
type forgetful struct {
	ledger.Backend
	forget func(*engine.Need)
}

type forgetfulTx struct {
	ledger.Tx
	forget func(*engine.Need)
}

func (f *forgetful) Step(ctx context.Context, o *ledger.Order, decide func(ledger.Tx) error) error {
	return f.Backend.Step(ctx, o, func(tx ledger.Tx) error { return decide(forgetfulTx{tx, f.forget}) })
}

// Load loads less than is needed, like an operation that declares too little.
func (f forgetfulTx) Load(n *engine.Need, b *engine.Batch) error {
	f.forget(n)
	return f.Tx.Load(n, b)
}

// TestUndeclaredReadsPanicInAGuardedBatch takes the life of a run on a store that
// leaves out a part of each need. The step never decides without that part: it panics, or
// asks for it until the ledger gives up.
func TestUndeclaredReadsPanicInAGuardedBatch(t *testing.T) {
	for _, test := range []struct {
		what   string
		forget func(*engine.Need)
	}{
		{"jobs", func(n *engine.Need) { n.Jobs = nil }},
		{"runs", func(n *engine.Need) { n.Runs = nil }},
		{"slots", func(n *engine.Need) { n.Slots = nil }},
		{"followers", func(n *engine.Need) { n.Upstreams = nil }},
		{"whole jobs", func(n *engine.Need) { n.Whole = nil }},
		{"sessions", func(n *engine.Need) { n.Sessions = false }},
		{"keys", func(n *engine.Need) { n.Keys = nil }},
		{"names", func(n *engine.Need) { n.Names = nil }},
		{"records", func(n *engine.Need) { n.Records = nil }},
	} {
		t.Run(test.what, func(t *testing.T) {
			now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
			kept := memory.New(memory.Options{Now: func() time.Time { return now }})
			s := ledger.New(&forgetful{kept.ControlBackend.(ledger.Backend), test.forget}, ledger.Options{Guard: true, LookAhead: time.Minute, NewID: func() job.ID { return job.ID{1} }})
			err := life(t, s)
			if err == nil || !strings.Contains(err.Error(), "still needs") && !strings.Contains(err.Error(), "no need has named") {
				t.Fatalf("got %v, want that the step misses the %s", err, test.what)
			}
		})
	}
}

// life takes a job through its life with everything that its policies need. It returns the first
// error or panic.
func life(t *testing.T, s store.Store) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx := t.Context()
	docs, err := job.Decode("test.yaml", []byte("name: a\nschedule: {every: 1m}\npolicy: {overlap: queue, needs_previous: true}\nrun: {shell: 'true'}"))
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.Join(ctx, store.Session{ID: job.ID{2}, Node: "n", Machine: "m", Roles: []string{store.RoleWorker}})
	if err != nil {
		return err
	}
	j, err := store.PutOne(ctx, s, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion})
	if err != nil {
		return err
	}
	outcomes, err := s.Trigger(ctx, []store.TriggerItem{{ID: job.ID{3}, Job: j.Definition.UID, Kind: job.RunByHand, Session: session.ID}})
	if err != nil {
		return err
	}
	a := store.Attempt{Run: outcomes[0].Run, Number: 1, Token: job.ID{4}}
	if _, err := s.Claim(ctx, session.ID, []store.Attempt{a}); err != nil {
		return err
	}
	for range 2 { // the second call is a repetition
		if _, err := s.Finish(ctx, session.ID, []store.Result{{Attempt: a, Outcome: job.OutcomeSucceeded}}); err != nil {
			return err
		}
	}
	return nil
}

// TestTheLifeOfARunOnACompleteBackend is the same on a backend that forgets nothing.
func TestTheLifeOfARunOnACompleteBackend(t *testing.T) {
	if err := life(t, memory.New(memory.Options{})); err != nil {
		t.Fatal(err)
	}
}

// careless is an operation that omits a part of its needs.
type careless struct {
	engine.Operation
	forget func(*engine.Need)
}

func (c careless) Need(b *engine.Batch, n *engine.Need) {
	c.Operation.Need(b, n)
	c.forget(n)
}

func TestAnOperationThatNamesTooLittlePanics(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := memory.New(memory.Options{Now: func() time.Time { return now }})
	session, err := s.Join(t.Context(), store.Session{ID: job.ID{2}, Node: "n", Machine: "m", Roles: []string{store.RoleWorker}})
	if err != nil {
		t.Fatal(err)
	}
	docs, err := job.Decode("test.yaml", []byte("name: a\nschedule: {every: 1m}\npolicy: {overlap: queue}\nrun: {shell: 'true'}"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion})
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := s.Trigger(t.Context(), []store.TriggerItem{{ID: job.ID{3}, Job: j.Definition.UID, Kind: job.RunByHand, Session: session.ID}})
	if err != nil {
		t.Fatal(err)
	}
	claim := engine.Claim{Session: session.ID, Attempts: []store.Attempt{{Run: outcomes[0].Run, Number: 1, Token: job.ID{4}}}}
	for _, test := range []struct {
		what   string
		forget func(*engine.Need)
	}{
		{"slot", func(n *engine.Need) { n.Slots = nil }},
		{"run", func(n *engine.Need) { n.Runs = nil }},
		{"session", func(n *engine.Need) { n.Sessions = false }},
	} {
		text := panics(func() { err = ledger.Do(t.Context(), s.Control, careless{&claim, test.forget}) })
		if !strings.Contains(text, "touches") || !strings.Contains(text, test.what) {
			t.Errorf("without the %s: panic %q, error %v", test.what, text, err)
		}
	}
	if err := ledger.Do(t.Context(), s.Control, &claim); err != nil {
		t.Fatal(err)
	}
	if claim.Outcomes[0].Verdict != store.Started {
		t.Errorf("the claim that has all is answered %v", claim.Outcomes[0].Verdict)
	}
}

// panics returns the panic of a function as text, "" if there is none.
func panics(do func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	do()
	return ""
}
