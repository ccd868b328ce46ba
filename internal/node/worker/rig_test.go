package worker_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errAway = errors.New("the store is away")
	// slogDiscard is a log for faults that are meant.
	slogDiscard = slog.New(slog.DiscardHandler)
)

// hooks intercept calls of the store. Each receives the call and decides whether and when it is
// made, and what is answered; nil makes it.
type hooks struct {
	claim  func(do func() ([]store.ClaimOutcome, error), attempts []store.Attempt) ([]store.ClaimOutcome, error)
	finish func(do func() error, results []store.Result) error
	hang   func(ctx context.Context) error // before finish
	// undecided selects results about which the store is undecided.
	undecided func(r store.Result) bool
	release   func(do func() error, attempts []store.Attempt) error
	now       func() (time.Time, error)
	read      func() error
	ready     time.Duration // duration of a read
	tell      time.Duration // and its answer
	mine      func(do func() ([]store.Run, error)) ([]store.Run, error)
	job       func() error
	overdue   func() error
}

// between is a wrapper of a worker's store that records the calls.
type between struct {
	store.Store
	t *testing.T

	mu       sync.Mutex
	hooks    hooks
	claims   []claimed
	finished []finished
	released []store.Attempt
	reads    int // calls of Ready
}

// claimed is one attempt of a call of Claim.
type claimed struct {
	store.Attempt
	at      time.Time // when the call was made
	verdict store.Verdict
	err     error
}

// finished is one result of a call of Finish.
type finished struct {
	store.Result
	at  time.Time
	err error
}

// set changes the hooks of later calls.
func (b *between) set(change func(h *hooks)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.hooks)
}

func (b *between) hook() hooks {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hooks
}

// bounded fails the test for a batch that exceeds a store's limit.
func (b *between) bounded(n int) {
	if n == 0 || n > store.MaxBatch {
		b.t.Errorf("the store is called with %d items", n)
	}
}

func (b *between) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	b.bounded(len(attempts))
	at := time.Now()
	do := func() ([]store.ClaimOutcome, error) { return b.Store.Claim(ctx, session, attempts) }
	var outcomes []store.ClaimOutcome
	var err error
	if hook := b.hook().claim; hook != nil {
		outcomes, err = hook(do, attempts)
	} else {
		outcomes, err = do()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, a := range attempts {
		c := claimed{Attempt: a, at: at, err: err}
		if err == nil {
			c.verdict = outcomes[i].Verdict
		}
		b.claims = append(b.claims, c)
	}
	return outcomes, err
}

func (b *between) Finish(ctx context.Context, session job.ID, results []store.Result) (outcomes []store.FinishOutcome, err error) {
	if hang := b.hook().hang; hang != nil {
		if err := hang(ctx); err != nil {
			return nil, err
		}
	}
	b.bounded(len(results))
	do := func() error {
		outcomes, err = b.Store.Finish(ctx, session, results)
		return err
	}
	if hook := b.hook().finish; hook != nil {
		err = hook(do, results)
	} else {
		err = do()
	}
	if undecided := b.hook().undecided; undecided != nil && err == nil {
		for i, r := range results {
			outcomes[i].Undecided = undecided(r)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range results {
		b.finished = append(b.finished, finished{r, time.Now(), err})
	}
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

func (b *between) Release(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	b.bounded(len(attempts))
	do := func() error { return b.Store.Release(ctx, session, attempts) }
	var err error
	if hook := b.hook().release; hook != nil {
		err = hook(do, attempts)
	} else {
		err = do()
	}
	if err == nil {
		b.mu.Lock()
		b.released = append(b.released, attempts...)
		b.mu.Unlock()
	}
	return err
}

func (b *between) Ready(ctx context.Context, q store.ReadyQuery) ([]store.ReadyRun, error) {
	b.mu.Lock()
	b.reads++
	read, takes, tell := b.hooks.read, b.hooks.ready, b.hooks.tell
	if q.Any {
		read, takes, tell = b.hooks.overdue, 0, 0
	}
	b.mu.Unlock()
	if read != nil {
		if err := read(); err != nil {
			return nil, err
		}
	}
	time.Sleep(takes)
	runs, err := b.Store.Ready(ctx, q)
	time.Sleep(tell)
	return runs, err
}

func (b *between) ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error) {
	do := func() ([]store.Run, error) { return b.Store.ListActive(ctx, q) }
	if hook := b.hook().mine; hook != nil {
		return hook(do)
	}
	return do()
}

func (b *between) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	if hook := b.hook().job; hook != nil {
		if err := hook(); err != nil {
			return nil, err
		}
	}
	return b.Store.JobsByUID(ctx, uids)
}

func (b *between) Now(ctx context.Context) (time.Time, error) {
	if hook := b.hook().now; hook != nil {
		return hook()
	}
	return b.Store.Now(ctx)
}

// claimsOf returns the claims of a run so far.
func (b *between) claimsOf(run job.ID) []claimed {
	var list []claimed
	for _, c := range b.allClaims() {
		if c.Run == run {
			list = append(list, c)
		}
	}
	return list
}

// allClaims returns the claims so far.
func (b *between) allClaims() []claimed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.claims)
}

// givenBack returns the attempts that were released so far.
func (b *between) givenBack() []store.Attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.released)
}

// looks returns the number of polls for runs.
func (b *between) looks() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads
}

// reported returns how many results were reported.
func (b *between) reported() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.finished)
}

// begun is the start of an attempt.
type begun struct {
	store.Attempt
	name   string
	due    time.Time
	at     time.Time
	params map[string]string
	job    *job.Job
	data   job.TemplateData
}

// act is an executor whose attempts run functions of the test.
type act struct {
	before func(a executor.Attempt) // called before it asks whether it may start
	do     func(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result

	mu      sync.Mutex
	started []begun
	causes  map[job.ID]error // causes of ended runs
	now     int
	most    int // at once
}

func (e *act) Run(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	if e.before != nil {
		e.before(a)
	}
	if err := a.Start(); err != nil {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(err.Error()), Unstarted: true}
	}
	e.mu.Lock()
	e.started = append(e.started, begun{
		Attempt: store.Attempt{Run: a.Run.ID, Number: a.Number}, name: a.Run.Name, due: a.Run.Due, at: time.Now(),
		params: a.Data.Params, job: a.Job, data: a.Data,
	})
	e.now++
	e.most = max(e.most, e.now)
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.now--
		if err := context.Cause(ctx); err != nil {
			e.causes[a.Run.ID] = err
		}
	}()
	e.mu.Lock()
	do := e.do
	e.mu.Unlock()
	if do == nil {
		return executor.Result{Outcome: job.OutcomeSucceeded}
	}
	return do(ctx, a, out)
}

// does sets the function of later attempts.
func (e *act) does(do func(context.Context, executor.Attempt, executor.Output) executor.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.do = do
}

// starts returns what has started so far.
func (e *act) starts() []begun {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.started)
}

// cause returns why a run was ended, nil if it ended on its own or is running.
func (e *act) cause(run job.ID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.causes[run]
}

// lasts returns an attempt that takes some time, unless it is ended earlier.
func lasts(d time.Duration) func(context.Context, executor.Attempt, executor.Output) executor.Result {
	return func(ctx context.Context, _ executor.Attempt, _ executor.Output) executor.Result {
		select {
		case <-time.After(d):
			return executor.Result{Outcome: job.OutcomeSucceeded}
		case <-ctx.Done():
			outcome, reason := executor.ByCause(ctx)
			return executor.Result{Outcome: outcome, Reason: reason}
		}
	}
}

// book is a journal that records the order of its calls.
type book struct {
	mu    sync.Mutex
	fails bool
	lines []string
}

func (b *book) Announce(run job.ID, attempt int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails {
		return errors.New("the journal is full")
	}
	b.lines = append(b.lines, fmt.Sprintf("announce %s %d", run, attempt))
	return nil
}

func (b *book) Forget(run job.ID, attempt int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf("forget %s %d", run, attempt))
}

func (b *book) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, text)
}

func (b *book) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lines)
}

// unwritten is a sink: the output of these attempts is stored with their results.
type unwritten struct{}

func (unwritten) Append(context.Context, []output.Chunk) error { return nil }

// rig is one worker on a store in memory, in a bubble of fake time.
type rig struct {
	t      *testing.T
	memory *memory.Store
	store  *between
	exec   *act
	book   *book
	worker *worker.Worker
	wake   chan store.Hint
	silent atomic.Bool // renewals stop

	spool    worker.Spool
	observer worker.Observer
	secrets  func(context.Context, work.SecretsOf) (map[string]string, error)
	around   func(context.Context, *store.Job, time.Time) (previous, same, next time.Time, err error)
	log      *slog.Logger
	capacity int
	labels   map[string]string
	now      func() time.Time
	set      atomic.Int64 // by how much the wall clock was set
	began    time.Time
	renewed  atomic.Int64
	ids      atomic.Uint64
	self     store.Session
	ended    chan struct{} // closed once Run of the worker has returned
	cancel   context.CancelCauseFunc
	halt     func()
}

func newRig(t *testing.T) *rig {
	r := &rig{
		t: t, exec: &act{causes: map[job.ID]error{}}, book: &book{}, wake: make(chan store.Hint, 1), log: slogDiscard, capacity: 100,
		began: time.Now(), halt: func() {},
	}
	r.now = r.wall
	r.memory = memory.New(memory.Options{Now: r.wall})
	r.store = &between{Store: r.memory, t: t}
	t.Cleanup(func() { r.halt() })
	return r
}

// wall is the wall clock of the machine, on which node and store are.
func (r *rig) wall() time.Time { return time.Now().Add(time.Duration(r.set.Load())).Round(0) }

func (r *rig) newID() (job.ID, error) {
	var id job.ID
	binary.BigEndian.PutUint64(id[8:], r.ids.Add(1))
	return id, nil
}

// join begins a session in the store.
func (r *rig) join(node string, labels map[string]string) store.Session {
	r.t.Helper()
	id, err := job.NewID(time.Now(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := r.memory.Join(context.Background(), store.Session{
		ID: id, Node: node, Machine: "m", DataDir: "/" + node, Roles: []string{store.RoleWorker}, Capacity: r.capacity, Labels: labels,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// start makes the worker and lets it run. The session is renewed all the time.
func (r *rig) start() {
	r.t.Helper()
	if r.self.ID.IsZero() {
		r.self = r.join("a", r.labels)
	}
	collector, err := output.New(output.Config{Sink: unwritten{}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.worker = worker.New(worker.Config{
		Store: work.On(r.store, time.Now), Self: r.self, Executors: func(*job.Job) executor.Executor { return r.exec },
		Output: collector, Journal: r.book, Spool: r.spool, Observer: r.observer, Capacity: r.capacity, StealAfter: time.Second,
		Renewed: func() time.Duration { return time.Duration(r.renewed.Load()) },
		Boot:    func() time.Duration { return time.Since(r.began) },
		Now:     func() time.Time { return r.now() }, Wake: r.wake, NewID: r.newID, Log: r.log, Around: r.around, Secrets: r.secrets,
	})
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel, r.ended = cancel, make(chan struct{})
	collecting, stopCollecting := context.WithCancel(context.Background())
	var rest sync.WaitGroup
	rest.Go(func() { _ = collector.Run(collecting) })
	rest.Go(func() {
		for {
			sent := time.Since(r.began)
			if !r.silent.Load() && r.memory.Renew(collecting, r.self.ID, store.Load{}) == nil {
				r.renewed.Store(int64(sent))
			}
			select {
			case <-collecting.Done():
				return
			case <-time.After(2 * time.Second):
			}
		}
	})
	go func() { defer close(r.ended); _ = r.worker.Run(ctx) }()
	r.halt = func() {
		cancel(executor.ErrStopped)
		<-r.ended
		stopCollecting()
		rest.Wait()
	}
}

// stop stops the worker and waits for it.
func (r *rig) stop() {
	r.halt()
	r.halt = func() {}
}

// put creates or changes a job whose runs may overlap, unless its policy forbids it.
func (r *rig) put(name, rest string) *store.Job {
	r.t.Helper()
	return r.putText(fmt.Sprintf("{name: %s, schedule: {cron: '* * * * * *'}, run: {shell: 'true'}, %s}", name, rest))
}

func (r *rig) putText(text string) *store.Job {
	r.t.Helper()
	docs, err := job.Decode("test.yaml", []byte(text))
	if err != nil {
		r.t.Fatal(err)
	}
	j, err := store.PutOne(context.Background(), r.memory, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	return j
}

// plan makes the runs of scheduled times, for the session of the worker.
func (r *rig) plan(j *store.Job, due ...time.Time) []job.ID {
	r.t.Helper()
	return r.planFor(r.self.ID, j, due...)
}

func (r *rig) planFor(session job.ID, j *store.Job, due ...time.Time) []job.ID {
	r.t.Helper()
	ctx := context.Background()
	j, err := store.JobByUID(ctx, r.memory, j.Definition.UID)
	if err != nil {
		r.t.Fatal(err)
	}
	item := store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: due[len(due)-1]}
	var ids []job.ID
	for _, at := range due {
		id, err := job.NewID(time.Now(), rand.Reader)
		if err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, id)
		item.Runs = append(item.Runs, store.NewRun{ID: id, Session: session, Scheduled: at, Due: at})
	}
	outcomes, _, err := r.memory.Plan(ctx, r.self.ID, []store.PlanItem{item})
	if err != nil || outcomes[0] != store.Planned {
		r.t.Fatalf("plan: %v, %v", outcomes, err)
	}
	return ids
}

// backfill creates a run of the past with its own overlap policy and without a node, so that this
// worker takes it over.
func (r *rig) backfill(j *store.Job, overlap job.Overlap) job.ID {
	r.t.Helper()
	id, err := job.NewID(time.Now(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	item := store.TriggerItem{ID: id, Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: in(-time.Hour), Overlap: overlap, Actor: "test"}
	if _, err := r.memory.Trigger(context.Background(), []store.TriggerItem{item}); err != nil {
		r.t.Fatal(err)
	}
	return id
}

// shards creates the runs of an occurrence with many shards.
func (r *rig) shards(j *store.Job, due time.Time, n int) {
	r.t.Helper()
	item := store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: due}
	for i := range n {
		id, err := job.NewID(time.Now(), rand.Reader)
		if err != nil {
			r.t.Fatal(err)
		}
		item.Runs = append(item.Runs, store.NewRun{ID: id, Session: r.self.ID, Scheduled: due, Due: due, Shard: i, Shards: n})
	}
	outcomes, _, err := r.memory.Plan(context.Background(), r.self.ID, []store.PlanItem{item})
	if err != nil || outcomes[0] != store.Planned {
		r.t.Fatalf("plan: %v, %v", outcomes, err)
	}
}

// in returns a moment in the future, in whole milliseconds.
func in(d time.Duration) time.Time { return time.Now().Add(d).UTC().Truncate(time.Millisecond) }

// until lets time pass until a condition holds.
func (r *rig) until(what string, most time.Duration, so func() bool) {
	r.t.Helper()
	for range most / time.Millisecond {
		synctest.Wait() // the worker has done everything that follows
		if so() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	r.t.Fatalf("it has not happened within %s: %s", most, what)
}

// claimsFar teaches the worker that claims are slow, so that it makes them far ahead.
func (r *rig) claimsFar() {
	r.t.Helper()
	j := r.put("teacher", "policy: {overlap: allow}")
	r.store.set(func(h *hooks) { h.claim = slow(400 * time.Millisecond) })
	id := r.plan(j, in(3*time.Second))[0]
	r.until("the first run has ended", 6*time.Second, func() bool { return r.record(id) != nil })
	r.store.set(func(h *hooks) { h.claim = nil })
}

// slow returns a hook that delays claims.
func slow(d time.Duration) func(func() ([]store.ClaimOutcome, error), []store.Attempt) ([]store.ClaimOutcome, error) {
	return func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
		time.Sleep(d)
		return do()
	}
}

// claimedAhead waits until a run is claimed, which must be before its start.
func (r *rig) claimedAhead(run job.ID) {
	r.t.Helper()
	r.until("the run is claimed", 10*time.Second, func() bool {
		c := r.store.claimsOf(run)
		return len(c) > 0 && c[len(c)-1].err == nil && c[len(c)-1].verdict == store.Started
	})
	for _, s := range r.exec.starts() {
		if s.Run == run {
			r.t.Fatal("the run has started already")
		}
	}
}

// claimUnderWay plans a run and waits until its claim is made, while the answer is delayed.
func (r *rig) claimUnderWay(j *store.Job) job.ID {
	r.t.Helper()
	r.store.set(func(h *hooks) {
		h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
			outcomes, err := do()
			time.Sleep(300 * time.Millisecond)
			return outcomes, err
		}
	})
	id := r.plan(j, in(2*time.Second))[0]
	r.until("the claim is made", 5*time.Second, func() bool { return r.state(id) == job.StateRunning })
	return id
}

// startsOf returns how often a run was started.
func (r *rig) startsOf(run job.ID) (n int) {
	for _, s := range r.exec.starts() {
		if s.Run == run {
			n++
		}
	}
	return n
}

// record returns how the latest attempt of a run ended, nil if none has.
func (r *rig) record(run job.ID) *store.Record {
	r.t.Helper()
	records, err := r.memory.AttemptsOf(context.Background(), run)
	if errors.Is(err, store.ErrNotFound) || len(records) == 0 {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return &records[len(records)-1]
}

// outcome returns how a run ended, "" if it has not.
func (r *rig) outcome(run job.ID) job.Outcome {
	r.t.Helper()
	if record := r.record(run); record != nil {
		return record.Run.Outcome
	}
	return ""
}

// state returns the state of a run.
func (r *rig) state(run job.ID) job.RunState {
	r.t.Helper()
	active, err := store.ActiveRun(context.Background(), r.memory, run)
	if errors.Is(err, store.ErrNotFound) {
		return job.StateDone
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return active.State
}

// isOver returns the check for the end of a run.
func (r *rig) isOver(run job.ID) func() bool { return func() bool { return r.outcome(run) != "" } }
