//go:build servers

package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
	"github.com/belfry-cron/belfry/store/storetest"
)

func TestWhatAnotherNodeHasChangedIsNotGuessed(t *testing.T) {
	t.Parallel()
	storetest.Apart(t, func(t *testing.T, o storetest.Options) (one, other store.Store) {
		opt := Options{Now: o.Now, LookAhead: o.LookAhead, NewID: o.NewID, Revisions: o.Revisions}
		address := emptySchema(t)
		return open(t, address, opt), open(t, address, opt)
	})
}

// lossy is a database that can lose the answers to commits, and counts the guesses that
// were wrong, the messages with questions, and the questions for whole runs.
type lossy struct {
	*database
	// lost is called at the next commit, whose answer is lost, if it is not nil. With undone
	// that is before the commit is made.
	lost   func()
	undone bool
	wrong  int
	asked  int
	read   int
}

var errLost = io.ErrUnexpectedEOF // as a connection that breaks

func (l *lossy) Begin(ctx context.Context) (sqldb.Tx, error) {
	t, err := l.database.Begin(ctx)
	return &lossyTx{t, l}, err
}

func (l *lossy) Fault(err error) sqldb.Fault {
	fault := l.database.Fault(err)
	if fault == sqldb.Stale {
		l.wrong++
	}
	return fault
}

type lossyTx struct {
	sqldb.Tx
	db *lossy
}

func (t *lossyTx) Ask(ctx context.Context, questions ...sqldb.Question) sqldb.Rows {
	t.db.asked++
	for _, q := range questions {
		if strings.Contains(q.Text, "a.run_key") {
			t.db.read++
		}
	}
	return t.Tx.Ask(ctx, questions...)
}

func (t *lossyTx) Commit(ctx context.Context) (unknown bool, err error) {
	lost := t.db.lost
	if lost == nil {
		return t.Tx.Commit(ctx)
	}
	t.db.lost = nil
	lost()
	if !t.db.undone {
		if unknown, err := t.Tx.Commit(ctx); err != nil {
			return unknown, err
		}
	}
	return true, errLost
}

// guesser is a node by itself. All that it does goes over one connection, so that nothing
// but a test begins an era, and what it counts is of one goroutine.
type guesser struct {
	*testing.T
	*sqldb.Store
	db      *lossy
	address string
	ids     uint64
	session store.Session
}

func newGuesser(t *testing.T) *guesser {
	address := emptySchema(t)
	d, err := connect(t.Context(), address+"&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := &guesser{T: t, db: &lossy{database: d}, address: address}
	if g.Store, err = sqldb.Open(t.Context(), g.db, Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	g.session = g.join("a")
	return g
}

func (g *guesser) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

func (g *guesser) id() (id job.ID) {
	g.ids++
	binary.BigEndian.PutUint64(id[8:], g.ids)
	return id
}

func (g *guesser) join(node string) store.Session {
	g.Helper()
	s, err := g.Join(g.Context(), store.Session{ID: g.id(), Node: node, Machine: node, DataDir: "d", Capacity: 10})
	g.must(err)
	return s
}

// put makes a job that is planned by hand, or changes it.
func (g *guesser) put(overlap job.Overlap) *store.Job {
	g.Helper()
	j, err := g.PutJob(g.Context(), store.PutJob{IfVersion: store.AnyVersion, Actor: "ann", Definition: &job.Job{
		Name: "a", Schedule: job.Schedule{Cron: []string{"0 0 1 1 *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
		Policy: job.Policy{Overlap: overlap},
	}})
	g.must(err)
	return j
}

// plan plans a run of a job that is due.
func (g *guesser) plan(j *store.Job) store.Attempt {
	g.Helper()
	return g.planOn(g.Store, g.session, j)
}

// planOn does it by a store for a session.
func (g *guesser) planOn(s *sqldb.Store, session store.Session, j *store.Job) store.Attempt {
	g.Helper()
	a := store.Attempt{Run: g.id(), Number: 1, Token: g.id()}
	j, err := s.JobByUID(g.Context(), j.Definition.UID)
	g.must(err)
	to := j.Cursor.Add(time.Microsecond)
	planned, err := s.Plan(g.Context(), session.ID, []store.PlanItem{{
		Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: to,
		Runs: []store.NewRun{{ID: a.Run, Session: session.ID, Scheduled: to, Due: to}},
	}})
	g.must(err)
	if planned[0] != store.Planned {
		g.Fatalf("planned: %v", planned[0])
	}
	return a
}

// trigger makes a run by hand.
func (g *guesser) trigger(j *store.Job) store.Attempt {
	g.Helper()
	a := store.Attempt{Run: g.id(), Number: 1, Token: g.id()}
	got, err := g.Trigger(g.Context(), []store.TriggerItem{{
		ID: a.Run, Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Session: g.session.ID, Actor: "ann", Params: map[string]string{"p": "v"},
	}})
	g.must(err)
	g.must(got[0].Err)
	return a
}

func (g *guesser) claim(a store.Attempt, want store.Verdict) {
	g.Helper()
	got, err := g.Claim(g.Context(), g.session.ID, []store.Attempt{a})
	g.must(err)
	if got[0].Verdict != want {
		g.Errorf("claim: %v, want %v", got[0].Verdict, want)
	}
}

func (g *guesser) finish(a store.Attempt, want bool) {
	g.Helper()
	got, err := g.Finish(g.Context(), g.session.ID, []store.Result{ended(a)})
	g.must(err)
	if got[0].Accepted != want {
		g.Errorf("accepted: %t, want %t", got[0].Accepted, want)
	}
}

func ended(a store.Attempt) store.Result {
	now := time.Now()
	return store.Result{Attempt: a, Started: now, Ended: now, Outcome: job.OutcomeSucceeded}
}

// guesses tells whether a call writes a run that it has not read.
func (g *guesser) guesses(call func()) bool {
	g.db.mu.Lock()
	g.db.writings = map[writing][]*written{}
	g.db.mu.Unlock()
	call()
	g.db.mu.Lock()
	defer g.db.mu.Unlock()
	for w := range g.db.writings {
		if w.stamped {
			return true
		}
	}
	return false
}

func TestWhatIsGuessed(t *testing.T) {
	t.Parallel()
	// Each plans a run, claims and finishes it.
	for _, c := range []struct {
		name          string
		overlap       job.Overlap
		byHand        bool             // and not planned
		before        func(g *guesser) // all of it
		between       func(g *guesser) // each two of it
		claim, finish bool             // are a guess
	}{
		{name: "what a node has planned and claimed", overlap: job.OverlapAllow, claim: true, finish: true},
		{name: "nothing whose slot is read", overlap: job.OverlapSkip},
		{
			name: "the same beside others", overlap: job.OverlapAllow, claim: true, finish: true,
			before: func(g *guesser) { g.join("b") },
		},
		{
			name: "nothing from before a new connection", overlap: job.OverlapAllow,
			between: func(g *guesser) { g.db.pool.Reset() },
		},
		{name: "nothing that people have asked for", overlap: job.OverlapAllow, byHand: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuesser(t)
			if c.before != nil {
				c.before(g)
			}
			j := g.put(c.overlap)
			var a store.Attempt
			if c.byHand {
				a = g.trigger(j)
			} else {
				a = g.plan(j)
			}
			if c.between != nil {
				c.between(g)
			}
			if is := g.guesses(func() { g.claim(a, store.Started) }); is != c.claim {
				t.Errorf("the claim is a guess: %t, want %t", is, c.claim)
			}
			if c.between != nil {
				c.between(g)
			}
			if is := g.guesses(func() { g.finish(a, true) }); is != c.finish {
				t.Errorf("the end is a guess: %t, want %t", is, c.finish)
			}
			if g.db.wrong != 0 {
				t.Errorf("%d guesses were wrong, want none", g.db.wrong)
			}
		})
	}
}

// While others claim what is planned for a node, it does not guess that nobody does.
func TestAfterAWrongGuessWhatIsReadyIsReadForAWhile(t *testing.T) {
	t.Parallel()
	g := newGuesser(t)
	other, b := open(t, g.address, Options{}), g.join("b")
	j := g.put(job.OverlapAllow)
	a := g.plan(j)
	theirs := a
	theirs.Token = g.id()
	got, err := other.Claim(t.Context(), b.ID, []store.Attempt{theirs})
	g.must(err)
	if got[0].Verdict != store.Started {
		t.Fatalf("claim by another: %v", got[0].Verdict)
	}
	wrong := time.Now()
	g.claim(a, store.Taken)
	if g.db.wrong != 1 {
		t.Fatalf("%d guesses were wrong, want 1", g.db.wrong)
	}
	a = g.plan(j)
	if guessed := g.guesses(func() { g.claim(a, store.Started) }); guessed && time.Since(wrong) < time.Second {
		t.Error("the next claim is a guess")
	}
	if !g.guesses(func() { g.finish(a, true) }) {
		t.Error("the end of what was claimed is none")
	}
	for guessed := false; !guessed; {
		if time.Since(wrong) > time.Minute {
			t.Fatal("nothing that is ready is guessed any more")
		}
		a = g.plan(j)
		guessed = g.guesses(func() { g.claim(a, store.Started) })
	}
}

// Runs in a slot are not read as a whole while they are as this node has written or read
// them.
func TestOfASlotOnlyTheStampsAreRead(t *testing.T) {
	t.Parallel()
	g := newGuesser(t)
	other, b := open(t, g.address, Options{}), g.join("b")
	j := g.put(job.OverlapSkip)
	// reads checks whether a call asks for whole runs.
	reads := func(what string, want bool, call func()) {
		t.Helper()
		before := g.db.read
		call()
		if reads := g.db.read > before; reads != want {
			t.Errorf("%s reads runs: %t, want %t", what, reads, want)
		}
	}
	a := g.plan(j)
	reads("the claim", false, func() { g.claim(a, store.Started) })
	reads("the end", false, func() { g.finish(a, true) })

	a = g.plan(j)
	g.db.pool.Reset()
	reads("the claim on a new connection", true, func() { g.claim(a, store.Started) })
	reads("the end on the same", false, func() { g.finish(a, true) })

	theirs := g.planOn(other.Store, b, j)
	a = g.plan(j)
	reads("the claim beside a run of another node", true, func() { g.claim(a, store.Started) })
	reads("the end beside the same", false, func() { g.finish(a, true) })

	g.db.pool.Reset()
	a = g.plan(j)
	reads("the claim beside what was read on an older connection", true, func() { g.claim(a, store.Started) })
	reads("the end beside the same", false, func() { g.finish(a, true) })

	a = g.plan(j)
	theirs.Token = g.id()
	got, err := other.Claim(t.Context(), b.ID, []store.Attempt{theirs})
	g.must(err)
	if got[0].Verdict != store.Started {
		t.Fatalf("claim by another: %v", got[0].Verdict)
	}
	reads("the claim beside a run that another node has changed", true, func() { g.claim(a, store.Skipped) })
}

// What a node claims first of a job that another one has planned takes a message more than
// what comes then, for the definition, and is not looked for.
func TestOfAJobThatIsNotKnownOnlyTheDefinitionIsReadBefore(t *testing.T) {
	t.Parallel()
	g := newGuesser(t)
	other := open(t, g.address, Options{})
	j, err := other.PutJob(t.Context(), store.PutJob{IfVersion: 0, Actor: "ann", Definition: &job.Job{
		Name: "a", Schedule: job.Schedule{Cron: []string{"0 0 1 1 *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
		Policy: job.Policy{Overlap: job.OverlapAllow},
	}})
	g.must(err)
	for i, most := range []int{2, 1} {
		a := g.planOn(other.Store, g.session, j)
		ready, err := g.Ready(t.Context(), g.session.ID, store.RunRef{}, time.Now().Add(time.Minute), 10)
		g.must(err)
		if len(ready) != 1 {
			t.Fatalf("%d runs are ready, want 1", len(ready))
		}
		before := g.db.asked
		g.claim(a, store.Started)
		if asked := g.db.asked - before; asked > most {
			t.Errorf("claim %d asks in %d messages, want %d", i+1, asked, most)
		}
	}
}

// When the answer to a commit is lost the node may remember a run as it is not: then it
// finds out, in the same call, or in the next if nobody waits for that one any more.
func TestNothingIsDecidedByACommitThatWasLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		undone bool // the commit
		gone   bool // who waits for the answer
		done   bool // what was asked for, in the end
		wrong  int  // guesses
	}{
		{name: "a call whose commit was done", done: true},
		{name: "a call whose commit was not done", undone: true, done: true},
		{name: "a call that is given up, and was done", gone: true, done: true},
		{name: "a call that is given up, and was not done", undone: true, gone: true, wrong: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuesser(t)
			j := g.put(job.OverlapAllow)
			lost := func(call func(ctx context.Context) error) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				g.db.undone = c.undone
				g.db.lost = func() {
					if c.gone {
						cancel()
					}
				}
				if err := call(ctx); (err != nil) != c.gone || g.db.lost != nil {
					t.Fatalf("the call whose answer is lost says %v", err)
				}
			}

			a := g.plan(j)
			lost(func(ctx context.Context) error {
				_, err := g.Claim(ctx, g.session.ID, []store.Attempt{a})
				return err
			})
			if run, err := g.Active(t.Context(), a.Run); err != nil || (run.State == job.StateRunning) != c.done {
				t.Fatalf("the run is %s, %v; claimed: %t", run.State, err, c.done)
			}
			g.finish(a, c.done)
			if g.db.wrong != c.wrong {
				t.Errorf("%d guesses were wrong, want %d", g.db.wrong, c.wrong)
			}

			a = g.plan(j)
			g.claim(a, store.Started)
			lost(func(ctx context.Context) error {
				_, err := g.Finish(ctx, g.session.ID, []store.Result{ended(a)})
				return err
			})
			if _, err := g.Active(t.Context(), a.Run); errors.Is(err, store.ErrNotFound) != c.done {
				t.Errorf("the run: %v; over: %t", err, c.done)
			}
			g.finish(a, true)
			if records, err := g.AttemptsOf(t.Context(), a.Run); err != nil || len(records) != 1 {
				t.Errorf("%d records of an attempt, %v, want 1", len(records), err)
			}
		})
	}
}
