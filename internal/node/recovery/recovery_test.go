package recovery_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/node/recovery"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

var begun, unbegun = job.ID{1, 1}, job.ID{1, 2}

// world is a store with a node that died: it had claimed two runs, of which one began.
type world struct {
	*memory.Store
	t    *testing.T
	job  *store.Job
	dead recovery.DeadSession
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Store: memory.New(memory.Options{Now: time.Now}), t: t}
	w.join(job.ID{1}, "a")
	docs, err := job.Decode("test.yaml", []byte(`{name: j, run: {shell: "true"}, policy: {max_parallel: 2}}`))
	w.must(err)
	w.job, err = store.PutOne(t.Context(), w, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion})
	w.must(err)
	for _, id := range []job.ID{begun, unbegun} {
		w.claim(job.ID{1}, id, id)
	}
	w.dead = recovery.DeadSession{Session: job.ID{1}, Began: func(run job.ID, attempt int) bool { return run == begun && attempt == 1 }}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) join(id job.ID, node string) {
	w.t.Helper()
	_, err := w.Join(w.t.Context(), store.Session{ID: id, Node: node, Machine: "m", DataDir: "/" + node, Roles: []string{store.RoleWorker}, Capacity: 10})
	w.must(err)
}

// claim creates a manual run, unless it exists, and claims it.
func (w *world) claim(session, id, token job.ID) {
	w.t.Helper()
	ctx := w.t.Context()
	_, err := w.Trigger(ctx, []store.TriggerItem{{ID: id, Job: w.job.Definition.UID, Kind: job.RunByHand, Key: id.String(), Session: session, Actor: "test"}})
	w.must(err)
	out, err := w.Claim(ctx, session, []store.Attempt{{Run: id, Number: 1, Token: token}})
	w.must(err)
	if out[0].Verdict != store.Started {
		w.t.Fatalf("the claim of %s is answered with %v", id, out[0])
	}
}

func (w *world) Mine(ctx context.Context, session job.ID) ([]store.Run, error) {
	return store.RunsOn(ctx, w, session)
}

// outcome returns what became of a run; its state while it is active.
func (w *world) outcome(id job.ID) string {
	w.t.Helper()
	if r, err := store.ActiveRun(w.t.Context(), w, id); err == nil {
		return string(r.State)
	}
	records, err := w.AttemptsOf(w.t.Context(), id)
	w.must(err)
	if len(records) != 1 {
		w.t.Fatalf("run %s has %d records", id, len(records))
	}
	return string(records[0].Attempt.Outcome)
}

func (w *world) want(id job.ID, outcome string) {
	w.t.Helper()
	if got := w.outcome(id); got != outcome {
		w.t.Errorf("run %s is %s, want %s", id, got, outcome)
	}
}

func TestUnstartedAttemptsAreReleasedAtOnceAndStartedOnesLostAtTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ended := make(chan struct{})
		w.dead.Ended = ended
		done := make(chan recovery.Recovered)
		go func() {
			settled, err := w.dead.Recover(t.Context(), w)
			w.must(err)
			done <- settled
		}()
		synctest.Wait()
		w.want(unbegun, "ready")
		w.want(begun, "running")
		close(ended)
		settled := <-done
		w.want(begun, "lost")
		if len(settled.GivenBack) != 1 || settled.GivenBack[0].Run != unbegun || len(settled.Lost) != 1 || settled.Lost[0].ID != begun {
			t.Errorf("settled were %+v", settled)
		}
		w.join(job.ID{2}, "b")
		w.claim(job.ID{2}, unbegun, job.ID{9})
	})
}

// Nothing starts before it is due, so no journal is needed to know that a claim made ahead never started.
func TestClaimsThatAreNotDueAreGivenBackWithoutAJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.dead.Began = func(job.ID, int) bool { return true }
		docs, err := job.Decode("test.yaml", []byte(`{name: k, schedule: {every: 1h}, run: {shell: "true"}}`))
		w.must(err)
		k, err := store.PutOne(t.Context(), w, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion})
		w.must(err)
		cursors, err := w.Cursors(t.Context(), []job.ID{k.Definition.UID})
		w.must(err)
		ahead, due := job.ID{1, 3}, time.Now().Add(store.ClaimAhead)
		_, _, err = w.Plan(t.Context(), job.ID{1}, []store.PlanItem{{Job: k.Definition.UID, Epoch: cursors[0].Epoch, From: cursors[0].Cursor, To: due, Runs: []store.NewRun{
			{ID: ahead, Session: job.ID{1}, Node: "a", Scheduled: due, Due: due, Token: ahead},
		}}})
		w.must(err)
		w.want(ahead, "running")
		settled, err := w.dead.Recover(t.Context(), w)
		w.must(err)
		w.want(ahead, "ready")
		w.want(begun, "lost")
		if len(settled.Lost) != 2 {
			t.Errorf("lost are %+v, want the two that were due", settled.Lost)
		}
	})
}

// late hides the runs of a session from its first two reads, as if their claims were committed
// after the death.
type late struct {
	*world
	asked int
}

func (l *late) Mine(ctx context.Context, session job.ID) ([]store.Run, error) {
	if l.asked++; l.asked <= 2 {
		return nil, nil
	}
	return l.world.Mine(ctx, session)
}

func TestClaimsThatAreCommittedAfterTheDeathAreSettledToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &late{world: w}
		_, err := w.dead.Recover(t.Context(), l)
		w.must(err)
		w.want(unbegun, "running")
		began := time.Now()
		settled, err := w.dead.Again(t.Context(), l)
		w.must(err)
		if len(settled.GivenBack)+len(settled.Lost) != 2 || time.Since(began) > 10*time.Second {
			t.Errorf("settled were %+v, within %s", settled, time.Since(began))
		}
		w.want(unbegun, "ready")
		w.want(begun, "lost")
	})
}

// stale is a store that answers with its state from the beginning.
type stale struct {
	*world
	mine []store.Run
}

func (s *stale) Mine(context.Context, job.ID) ([]store.Run, error) { return s.mine, nil }

// The watchdog and the next process both settle, and their reads may be old.
func TestSettledRunsStayUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		mine, err := w.Mine(t.Context(), job.ID{1})
		w.must(err)
		_, err = w.dead.Recover(t.Context(), w)
		w.must(err)
		w.must(w.End(t.Context(), job.ID{1})) // like the next process
		w.join(job.ID{2}, "b")
		w.claim(job.ID{2}, unbegun, job.ID{9})
		_, err = w.dead.Recover(t.Context(), &stale{w, mine})
		w.must(err)
		w.want(begun, "lost")
		r, err := store.ActiveRun(t.Context(), w, unbegun)
		if err != nil || r.State != job.StateRunning || r.Token != (job.ID{9}) {
			t.Errorf("the run that another node has claimed is %+v, %v", r, err)
		}
	})
}

// The next process continues the session, so it must not leave, and its later claims are its own.
func TestKeptAttemptsGoOnUnderTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ended := make(chan struct{})
		close(ended)
		replaced := false
		w.dead.Ended, w.dead.Replaced = ended, func() bool { return replaced }
		w.dead.Kept = func(run job.ID, _ int) bool { return run == begun }
		settled, err := w.dead.Recover(t.Context(), w)
		w.must(err)
		w.want(begun, "running")
		w.want(unbegun, "ready")
		if len(settled.Kept) != 1 || settled.Kept[0].ID != begun || len(settled.Lost) != 0 {
			t.Errorf("settled were %+v", settled)
		}
		replaced = true
		w.claim(job.ID{1}, unbegun, job.ID{9}) // refused if the session leaves
		_, err = w.dead.Recover(t.Context(), w)
		w.must(err)
		w.want(unbegun, "running")
		replaced, w.dead.Kept = false, nil // the process has not come back
		_, err = w.dead.Recover(t.Context(), w)
		w.must(err)
		w.want(begun, "lost")
	})
}
