package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// weather is how the store treats one node: it answers slowly, fails before or after a step, or is
// away.
type weather struct {
	store.Store

	mu     sync.Mutex
	random *rand.Rand
	fails  float64 // of the calls
	slow   float64
	away   bool
	acked  map[store.Attempt]job.Outcome // results acknowledged by the store
	// claimed is when the store started attempts, whether or not its answer arrived.
	claimed map[attempt]time.Time
}

// attempt is a try of a run.
type attempt struct {
	run    job.ID
	number int
}

// errWeather is the store's random failure.
var errWeather = errors.New("the store fails at random")

// call makes a call or fails it.
func (w *weather) call(ctx context.Context, do func() error) error {
	w.mu.Lock()
	before, after := w.wait(), w.wait()
	refused, lost := w.away || w.random.Float64() < w.fails/2, w.random.Float64() < w.fails/2
	w.mu.Unlock()
	if err := elapse(ctx, before); err != nil {
		return err
	}
	if refused {
		return errWeather
	}
	err := do()
	if waited := elapse(ctx, after); waited != nil {
		return waited // the answer is lost
	}
	if lost {
		return errWeather
	}
	return err
}

// wait draws the time of one way: mostly a moment, sometimes seconds.
func (w *weather) wait() time.Duration {
	// Odd nanoseconds keep the actors of this world apart.
	d := time.Duration(w.random.IntN(2_000_000))
	switch x := w.random.Float64(); {
	case x < w.slow/10:
		d += time.Duration(w.random.IntN(int(4 * time.Second)))
	case x < w.slow:
		d += time.Duration(w.random.IntN(int(200 * time.Millisecond)))
	}
	return d
}

// elapse lets time pass, unless ctx ends.
func elapse(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// set changes the weather of the store.
func (w *weather) set(fails, slow float64, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails, w.slow, w.away = fails, slow, away
}

func (w *weather) Claim(ctx context.Context, s job.ID, a []store.Attempt) (out []store.ClaimOutcome, err error) {
	err = w.call(ctx, func() (err error) {
		out, err = w.Store.Claim(ctx, s, a)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range out {
			if r := out[i].Run; out[i].Verdict == store.Started {
				w.claimed[attempt{r.ID, r.Attempt}] = r.Claimed
			}
		}
		return err
	})
	return out, err
}

func (w *weather) Finish(ctx context.Context, s job.ID, r []store.Result) (out []store.FinishOutcome, err error) {
	err = w.call(ctx, func() (err error) { out, err = w.Store.Finish(ctx, s, r); return err })
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range r {
			if out[i].Accepted {
				w.acked[r[i].Attempt] = r[i].Outcome
			}
		}
	}
	return out, err
}

func (w *weather) Release(ctx context.Context, s job.ID, a []store.Attempt) error {
	return w.call(ctx, func() error { return w.Store.Release(ctx, s, a) })
}

func (w *weather) Plan(ctx context.Context, s job.ID, items []store.PlanItem) (out []store.PlanOutcome, claims []store.ClaimOutcome, err error) {
	err = w.call(ctx, func() (err error) { out, claims, err = w.Store.Plan(ctx, s, items); return err })
	return out, claims, err
}

func (w *weather) JobsChanged(ctx context.Context, p store.Partitions, since int64, limit int) (out []store.PlannedJob, next int64, err error) {
	err = w.call(ctx, func() (err error) { out, next, err = w.Store.JobsChanged(ctx, p, since, limit); return err })
	return out, next, err
}

func (w *weather) Cursors(ctx context.Context, uids []job.ID) (out []store.JobCursor, err error) {
	err = w.call(ctx, func() (err error) { out, err = w.Store.Cursors(ctx, uids); return err })
	return out, err
}

func (w *weather) JobsByUID(ctx context.Context, uids []job.ID) (out []*store.Job, err error) {
	err = w.call(ctx, func() (err error) { out, err = w.Store.JobsByUID(ctx, uids); return err })
	return out, err
}

func (w *weather) Ready(ctx context.Context, q store.ReadyQuery) (out []store.ReadyRun, err error) {
	err = w.call(ctx, func() (err error) { out, err = w.Store.Ready(ctx, q); return err })
	return out, err
}

func (w *weather) ListActive(ctx context.Context, q store.ActiveQuery) (out []store.Run, err error) {
	err = w.call(ctx, func() (err error) { out, err = w.Store.ListActive(ctx, q); return err })
	return out, err
}

func (w *weather) Unplaced(ctx context.Context, after store.RunRef, limit int) (out []store.Run, err error) {
	err = w.call(ctx, func() (err error) { out, err = w.Store.Unplaced(ctx, after, limit); return err })
	return out, err
}

func (w *weather) Place(ctx context.Context, p []store.Placement) error {
	return w.call(ctx, func() error { return w.Store.Place(ctx, p) })
}

func (w *weather) Renew(ctx context.Context, s job.ID, load store.Load) error {
	return w.call(ctx, func() error { return w.Store.Renew(ctx, s, load) })
}

func (w *weather) Reap(ctx context.Context, s job.ID, a []store.Attempt) error {
	return w.call(ctx, func() error { return w.Store.Reap(ctx, s, a) })
}

// Hints of a store in bad weather are lost now and then.
func (w *weather) Hints(ctx context.Context) <-chan store.Hint {
	from, to := w.Store.Hints(ctx), make(chan store.Hint, 1)
	go func() {
		defer close(to)
		for hint := range from {
			w.mu.Lock()
			lost := w.away || w.random.Float64() < w.fails
			w.mu.Unlock()
			if !lost {
				select {
				case to <- hint:
				default:
				}
			}
		}
	}()
	return to
}

// evidence is what an attempt has observed.
type evidence struct {
	run        job.ID
	number     int
	uid        job.ID
	name       string
	kind       job.RunKind
	epoch      int64
	due        time.Time
	began, end time.Time
	outcome    job.Outcome
}

// witness is an executor that writes down what happens.
type witness struct {
	mu     sync.Mutex
	random *rand.Rand
	list   []*evidence
}

func (x *witness) Run(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
	if err := a.Start(); err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	x.mu.Lock()
	e := &evidence{
		run: a.Run.ID, number: a.Number, uid: a.Run.JobUID, name: a.Run.Name, kind: a.Run.Kind, epoch: a.Run.Epoch, due: a.Run.Due, began: time.Now(),
	}
	x.list = append(x.list, e)
	takes, failed := time.Duration(x.random.IntN(int(6*time.Second))), x.random.IntN(8) == 0
	if x.random.IntN(40) == 0 {
		takes *= 20
	}
	x.mu.Unlock()
	var r executor.Result
	select {
	case <-time.After(takes):
		r.Outcome = job.OutcomeSucceeded
		if failed {
			r = executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text("exit status 1")}
		}
	case <-ctx.Done():
		r.Outcome, r.Reason = executor.ByCause(ctx)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	e.end, e.outcome = time.Now(), r.Outcome
	return r
}

// steady are jobs that the test does not change, so that each of their occurrences must be
// accounted for, with how many may run at once.
var steady = map[string]struct {
	text string
	most int
}{
	"skip":     {`{name: skip, schedule: {cron: "*/7 * * * * *"}, run: {shell: "true"}}`, 1},
	"allow":    {`{name: allow, schedule: {cron: "*/5 * * * * *"}, run: {shell: "true"}, policy: {overlap: allow}}`, 0},
	"queue":    {`{name: queue, schedule: {cron: "*/10 * * * * *"}, run: {shell: "true"}, policy: {overlap: queue, queue_limit: 3}}`, 1},
	"replace":  {`{name: replace, schedule: {cron: "*/11 * * * * *"}, run: {shell: "true"}, policy: {overlap: replace}}`, 1},
	"retry":    {`{name: retry, schedule: {cron: "*/13 * * * * *"}, run: {shell: "true"}, policy: {lost_after: 20s, kill_grace: 1s, retry: {attempts: 2, backoff: 2s, on: [failed, lost]}}}`, 1},
	"parallel": {`{name: parallel, schedule: {cron: "*/3 * * * * *"}, run: {shell: "true"}, policy: {max_parallel: 2}}`, 2},
	"all":      {`{name: all, schedule: {cron: "*/6 * * * * *"}, run: {shell: "true"}, policy: {missed: all, late_by: 1h, overlap: queue, queue_limit: 100, max_parallel: 3}}`, 3},
	"shards":   {`{name: shards, schedule: {cron: "*/9 * * * * *"}, run: {shell: "true"}, place: {shards: 3}}`, 3},
	"every":    {`{name: every, schedule: {every: 4s}, run: {shell: "true"}, policy: {timeout: 3s}}`, 1},
}

// simulation is a store, two nodes with their own weather, and what happened.
type simulation struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	memory  *memory.Store
	witness *witness
	boot    time.Time
	jobs    map[string]*store.Job
	nodes   [2]*simulated

	// quiet is when no run of an ended epoch may be claimed any more.
	quiet   map[job.ID]map[int64]time.Time
	changed map[string]*store.Job // the current versions of the edited jobs
	calm    time.Time             // when all runs had ended
}

type simulated struct {
	weather *weather
	stop    func()
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), boot: time.Now(), jobs: map[string]*store.Job{},
		witness: &witness{random: rand.New(rand.NewPCG(seed, 2))},
		quiet:   map[job.ID]map[int64]time.Time{}, changed: map[string]*store.Job{},
	}
	uids := seeded{rand.New(rand.NewPCG(seed, 3))} // the planner of a job depends on its uid
	s.memory = memory.New(memory.Options{NewID: func() job.ID {
		id, _ := job.NewID(time.Now(), uids) // its reader never fails
		return id
	}})
	for _, name := range slices.Sorted(maps.Keys(steady)) {
		s.jobs[name] = s.put(steady[name].text)
	}
	for i := range s.nodes {
		s.nodes[i] = &simulated{weather: &weather{
			Store: s.memory, random: rand.New(rand.NewPCG(seed, uint64(10+i))),
			acked: map[store.Attempt]job.Outcome{}, claimed: map[attempt]time.Time{},
		}}
		s.start(i)
	}
	return s
}

func (s *simulation) put(text string) *store.Job {
	s.t.Helper()
	return put(s.t, s.memory, text)
}

// start starts a node.
func (s *simulation) start(i int) {
	s.t.Helper()
	name := string(rune('a' + i))
	n, err := New(Config{
		Session:   store.Session{Node: name, Machine: "m" + name, DataDir: "/" + name, Roles: []string{store.RolePlanner, store.RoleWorker}, Capacity: 30},
		Executors: func(*job.Job) executor.Executor { return s.witness },
		Capacity:  30, DrainTimeout: 5 * time.Second,
		Boot: func() time.Duration { return time.Since(s.boot) },
		Log:  slog.New(slog.DiscardHandler),
	}.On(s.nodes[i].weather))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	s.nodes[i].stop = func() {
		s.t.Helper()
		select {
		case err := <-done:
			s.t.Errorf("node %s has ended by itself: %v", name, err)
			return
		default:
		}
		cancel()
		// A node that cannot reach the store until its end only reports that.
		if err := <-done; err != nil && !errors.Is(err, errWeather) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, context.DeadlineExceeded) {
			s.t.Errorf("node %s: %v", name, err)
		}
	}
	// A starting node needs the store: until it has started the weather stays.
	for began := time.Now(); n.worker.Load() == nil && time.Since(began) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
}

// ended notes that an epoch of a job is over.
func (s *simulation) ended(j *store.Job) {
	if s.quiet[j.Definition.UID] == nil {
		s.quiet[j.Definition.UID] = map[int64]time.Time{}
	}
	s.quiet[j.Definition.UID][j.Definition.Epoch] = time.Now()
}

// edit changes one of the edited jobs.
func (s *simulation) edit() {
	ctx := context.Background()
	name := fmt.Sprintf("edited-%d", s.random.IntN(4))
	old := s.changed[name]
	text := func(paused bool) string {
		return fmt.Sprintf(`{name: %s, paused: %t, schedule: {cron: "*/%d * * * * *"}, run: {shell: "echo %d"}, policy: {overlap: allow}}`,
			name, paused, 2+s.random.IntN(4), s.random.IntN(1000))
	}
	switch n := s.random.IntN(10); {
	case old == nil:
		s.changed[name] = s.put(text(false))
	case n < 2:
		if err := s.memory.DeleteJob(ctx, store.DeleteJob{UID: old.Definition.UID, IfVersion: store.AnyVersion, Actor: "test"}); err != nil {
			s.t.Fatal(err)
		}
		s.ended(old)
		delete(s.changed, name)
	case n < 4: // cancel what runs
		runs, err := s.memory.ListActive(ctx, store.ActiveQuery{Job: old.Definition.UID, State: job.StateRunning, Limit: 10})
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range runs {
			if _, err := s.memory.Cancel(ctx, runs[i].ID, "test", "at random"); err != nil {
				s.t.Fatal(err)
			}
		}
	case n < 5: // by hand
		id, err := job.NewID(time.Now(), seeded{s.random})
		if err != nil {
			s.t.Fatal(err)
		}
		item := store.TriggerItem{ID: id, Job: old.Definition.UID, Kind: job.RunByHand, Key: id.String(), Actor: "test"}
		if _, err := s.memory.Trigger(ctx, []store.TriggerItem{item}); err != nil {
			s.t.Fatal(err)
		}
	default:
		now := s.put(text(n < 7))
		if now.Definition.Epoch != old.Definition.Epoch {
			s.ended(old)
		}
		s.changed[name] = now
	}
}

// seeded reads random bytes from a generator.
type seeded struct{ random *rand.Rand }

func (r seeded) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.random.Uint32())
	}
	return len(p), nil
}

// run lets things happen for some time.
func (s *simulation) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Duration(s.random.IntN(int(2*time.Second))) + 1)
		i := s.random.IntN(len(s.nodes))
		n := s.nodes[i]
		switch x := s.random.IntN(40); {
		case x < 24:
			s.edit()
		case x < 27:
			n.weather.set(0, 0, false)
		case x < 32:
			n.weather.set(s.random.Float64()/3, s.random.Float64()/2, false)
		case x < 33: // away, sometimes longer than a session's life
			n.weather.set(0, 0, true)
			pause := time.Duration(s.random.IntN(int(15 * time.Second)))
			if s.random.IntN(3) == 0 {
				pause *= 6
			}
			time.Sleep(pause)
			n.weather.set(0, 0, false)
		case x < 34: // a restart, which needs the store at both ends
			n.weather.set(0, 0.1, false)
			n.stop()
			s.start(i)
		}
	}
}

// settle lets all runs end in good weather, and stops.
func (s *simulation) settle() {
	for i := range s.nodes {
		s.nodes[i].weather.set(0, 0, false)
	}
	time.Sleep(3 * time.Minute)
	s.calm = time.Now()
	for i := range s.nodes {
		s.nodes[i].stop()
	}
	// The remaining runs are ready and within the look-ahead.
	if _, err := s.memory.Tidy(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

// recallAfter is how long after the end of an epoch its runs may still start: ones claimed before,
// whose recall was lost in bad weather, or whose answer and recall were slow.
const recallAfter = 30 * time.Second

// check looks for violations of the invariants in the evidence.
func (s *simulation) check() {
	s.t.Helper()
	records := s.records()
	s.checkStarts(records)
	s.checkWithdrawn()
	for name := range s.jobs {
		s.checkOccurrences(name, records)
	}
	s.checkOverlap()
}

// records returns the history of each run.
func (s *simulation) records() map[job.ID][]store.Record {
	s.t.Helper()
	records := map[job.ID][]store.Record{}
	var page []store.Record
	for next, more := (store.RecordRef{}), true; more; more = next != (store.RecordRef{}) {
		var err error
		if page, next, err = s.memory.Attempts(context.Background(), store.HistoryQuery{Before: next, Limit: 1000}); err != nil {
			s.t.Fatal(err)
		}
		for _, r := range page {
			records[r.Run.ID] = append(records[r.Run.ID], r)
		}
	}
	return records
}

// checkStarts checks that each attempt starts once, and that no acknowledged result is lost.
func (s *simulation) checkStarts(records map[job.ID][]store.Record) {
	t := s.t
	t.Helper()
	started := map[attempt]*evidence{}
	acked := map[attempt]job.Outcome{}
	for i := range s.nodes {
		for a, outcome := range s.nodes[i].weather.acked {
			acked[attempt{a.Run, a.Number}] = outcome
		}
	}
	for _, e := range s.witness.list {
		key := attempt{e.run, e.number}
		if started[key] != nil {
			t.Errorf("started once: attempt %d of %s of %s has started at %s and at %s", e.number, e.name, e.due, started[key].began, e.began)
		}
		started[key] = e
		if e.began.Before(e.due) {
			t.Errorf("an attempt of %s has started %s early", e.name, e.due.Sub(e.began))
		}
		var record *store.Record
		for i := range records[e.run] {
			if records[e.run][i].Attempt.Number == e.number {
				record = &records[e.run][i]
			}
		}
		switch outcome, ok := acked[key]; {
		case record == nil:
			t.Errorf("nothing acknowledged is lost: attempt %d of %s of %s ended as %s at %s and is nowhere", e.number, e.name, e.due, e.outcome, e.end)
		case ok && record.Attempt.Outcome != outcome:
			t.Errorf("nothing acknowledged is lost: attempt %d of %s of %s was acknowledged as %s and is kept as %s", e.number, e.name, e.due, outcome, record.Attempt.Outcome)
		case record.Attempt.Outcome != e.outcome && record.Attempt.Outcome != job.OutcomeLost:
			t.Errorf("attempt %d of %s of %s ended as %s and is kept as %s", e.number, e.name, e.due, e.outcome, record.Attempt.Outcome)
		}
	}
}

// checkWithdrawn: withdrawn means withdrawn.
func (s *simulation) checkWithdrawn() {
	t := s.t
	t.Helper()
	for _, e := range s.witness.list {
		end, ok := s.quiet[e.uid][e.epoch]
		if !ok || e.kind != job.RunScheduled {
			continue
		}
		for i := range s.nodes {
			if claimed := s.nodes[i].weather.claimed[attempt{e.run, e.number}]; claimed.After(end) {
				t.Errorf("withdrawn means withdrawn: a run of %s of %s was claimed %s after its epoch was ended", e.name, e.due, claimed.Sub(end))
			}
		}
		if e.began.After(end.Add(recallAfter)) {
			t.Errorf("withdrawn means withdrawn: a run of %s of %s has started %s after its epoch was ended", e.name, e.due, e.began.Sub(end))
		}
	}
}

// checkOccurrences: each occurrence of a job has one run, is accounted for, and planned
// in time.
func (s *simulation) checkOccurrences(name string, records map[job.ID][]store.Record) {
	t, ctx, j := s.t, context.Background(), s.jobs[name]
	t.Helper()
	now, err := store.JobByUID(ctx, s.memory, j.Definition.UID)
	if err != nil {
		t.Fatal(err)
	}
	type occurrence struct {
		scheduled time.Time
		shard     int
	}
	runs := map[occurrence]job.ID{}
	accounted := 0
	for id, list := range records {
		for _, r := range list {
			if r.Run.JobUID != j.Definition.UID || !r.Final {
				continue
			}
			accounted += max(1, r.Count)
			key := occurrence{r.Run.Scheduled, r.Run.Shard}
			if other, ok := runs[key]; ok && other != id && r.Count <= 1 {
				t.Errorf("once: the occurrence of %s of %s has the runs %s and %s", name, r.Run.Scheduled, other, id)
			}
			runs[key] = id
		}
	}
	active, err := s.memory.ListActive(ctx, store.ActiveQuery{Job: j.Definition.UID, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range active {
		if active[i].State == job.StateRunning {
			t.Errorf("liveness: the run of %s of %s is still %s in the end", name, active[i].Scheduled, active[i].State)
		}
		key := occurrence{active[i].Scheduled, active[i].Shard}
		if other, ok := runs[key]; ok {
			t.Errorf("once: the occurrence of %s of %s has the runs %s and %s", name, active[i].Scheduled, other, active[i].ID)
		}
		runs[key] = active[i].ID
	}
	schedule, err := j.Filled.CompileSchedule(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for range cron.Between(schedule, j.Cursor, now.Cursor) {
		want += max(1, j.Filled.Place.Shards)
	}
	if got := accounted + len(active); got != want {
		t.Errorf("accounted: of %d occurrences of %s %d are accounted for", want, name, got)
	}
	// At least two thirds of the look-ahead are planned, minus the time between two rounds.
	if next := schedule.Next(now.Cursor); next.Before(s.calm.Add(9 * time.Second)) {
		t.Errorf("liveness: %s is not planned for %s, which is %s ahead", name, next, next.Sub(s.calm))
	}
}

// checkOverlap checks that no job has more concurrent runs than it may.
func (s *simulation) checkOverlap() {
	t := s.t
	t.Helper()
	for name, j := range steady {
		if j.most == 0 {
			continue
		}
		type change struct {
			at   time.Time
			by   int
			kind int // at one instant, ends come before beginnings
		}
		var changes []change
		for _, e := range s.witness.list {
			if e.name == name {
				changes = append(changes, change{e.began, 1, 1}, change{e.end, -1, 0})
			}
		}
		slices.SortFunc(changes, func(a, b change) int {
			if c := a.at.Compare(b.at); c != 0 {
				return c
			}
			return a.kind - b.kind
		})
		n, most := 0, 0
		for _, c := range changes {
			n += c.by
			most = max(most, n)
		}
		if most > j.most {
			t.Errorf("overlap: %d runs of %s at once, want at most %d", most, name, j.most)
		}
	}
}

// TestInvariantsHoldInAnyWeather lets two nodes run jobs while jobs are edited, runs cancelled and
// nodes restarted, and the store fails before and after steps, is slow or away. The draws are the
// same each time, although goroutines wake in any order. BELFRY_WORLDS is a number of other, longer
// worlds to run, and BELFRY_SEED repeats one.
func TestInvariantsHoldInAnyWeather(t *testing.T) {
	first, worlds, minutes := uint64(1), 1, 4*time.Minute
	if text := os.Getenv("BELFRY_WORLDS"); text != "" {
		worlds, _ = strconv.Atoi(text)
		first, minutes = rand.Uint64(), 15*time.Minute
	}
	if text := os.Getenv("BELFRY_SEED"); text != "" {
		first, _ = strconv.ParseUint(text, 10, 64)
		worlds = 1
	}
	for i := range worlds {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("BELFRY_SEED=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(t, seed)
				s.run(minutes)
				s.settle()
				s.check()
				if len(s.witness.list) < 200 {
					t.Errorf("only %d attempts have started: this shows little", len(s.witness.list))
				}
			})
		})
	}
}
