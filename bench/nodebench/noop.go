package nodebench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// noopLoad is jobs whose executor does nothing, so that the node and its store are measured:
// planner, durable commits, claims, history with every index, all in the process of the benchmark
// except a database server.
type noopLoad struct {
	name, about string
	jobs        int
	cron        string
	p50, p99    time.Duration // goals
}

const everySecond = "* * * * * *"

var noopLoads = []noopLoad{
	{name: "noop-1000", about: "1,000 runs that do nothing at the same instant, each second", jobs: 1000, cron: everySecond},
	{
		name: "noop-10000", about: "10,000 runs that do nothing at the same instant, every 5 seconds",
		jobs: 10_000, cron: "*/5 * * * * *", p50: 5 * time.Millisecond, p99: 20 * time.Millisecond,
	},
}

// backlog is the missed work of a node that was down: enough to keep it at full speed from planned
// to finished.
type backlog struct {
	name, about string
	jobs        int
	down        int // seconds, in each of which each job fell due once
	output      int // bytes per run
	rate        float64
	overlap     job.Overlap // "" is OverlapAllow
	// key and rateKey are the concurrency_key and rate_key of all jobs; params has a value for each.
	key, rateKey string
}

var backlogs = []backlog{
	{
		name: "rate", about: "200,000 missed runs that do nothing, from planned to finished",
		jobs: 2000, down: 100, rate: 20_000,
	},
	{
		name: "rate-output", about: "200,000 missed runs that write 200 bytes, from planned to finished",
		jobs: 2000, down: 100, output: 200,
	},
}

// noop measures a node in this process.
func (b *bench) noop(ctx context.Context, on backend, load noopLoad) ([]Figure, error) {
	load.jobs = b.scaled(load.jobs, 50)
	if b.Quick {
		load.cron = everySecond
	}
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p, err := on.make(dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	goroutines := herd(load.jobs)
	r, err := runNoop(ctx, p, load, b.Seconds, b.settling())
	if err != nil {
		return nil, err
	}
	figures := []Figure{
		fact("finished with history, a second", number(r.finished, 0)),
		fact(fmt.Sprintf("started, of those due in %d s", b.Seconds), number(float64(len(r.late)), 0)),
		fact("memory in use", number(r.heap, 0)+" MB"),
	}
	if len(r.late) == 0 {
		return figures, nil // a node that is too far behind starts older runs first
	}
	return append(figures,
		atMost("late, p50", r.late.quantile(.5), load.p50).beside("as many bare goroutines: "+times(goroutines.quantile(.5))),
		atMost("late, p99", r.late.quantile(.99), load.p99).beside("as many bare goroutines: "+times(goroutines.quantile(.99))),
		atMost("late, the latest", r.late.quantile(1), 0).beside("as many bare goroutines: "+times(goroutines.quantile(1))),
	), nil
}

// scaledGoal is 0, for no goal, at a reduced scale.
func (b *bench) scaledGoal(goal float64) float64 {
	if b.Quick {
		return 0
	}
	return goal
}

// herd starts goroutines that note how late they are: the minimal work at an instant.
func herd(n int) lateness {
	r := &recorder{}
	var group sync.WaitGroup
	began := time.Now()
	for range n {
		group.Go(func() { r.note(began, time.Since(began)) })
	}
	group.Wait()
	return r.between(began, began.Add(1))
}

// noopResult is the result of a load.
type noopResult struct {
	late     lateness
	finished float64 // a second
	heap     float64 // MB
}

// runNoop runs a load on a node with an empty store.
func runNoop(ctx context.Context, p place, load noopLoad, seconds int, settle time.Duration) (noopResult, error) {
	s, err := p.open(ctx, 0)
	if err != nil {
		return noopResult{}, err
	}
	defer s.Close()
	if err := putJobs(ctx, s, noopJobs(load.jobs, load.cron, job.Policy{})); err != nil {
		return noopResult{}, err
	}
	rec := &recorder{}
	n, err := newNode(s, "bench", 2*load.jobs+1000, rec)
	if err != nil {
		return noopResult{}, err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- n.Run(running) }()
	ended := sync.OnceValue(func() error {
		stop()
		return <-done
	})
	defer func() { _ = ended() }() // before the store closes

	from := time.Now().Add(settle).Truncate(time.Second).Add(time.Second)
	until := from.Add(time.Duration(seconds) * time.Second)
	var r noopResult
	// A node on a busy machine gets more time, so that there are runs to count.
	var count int
	for moment := until; count == 0; moment = moment.Add(time.Second) {
		if moment.Sub(until) > patience {
			return noopResult{}, errors.New("no run was finished")
		}
		if err := sleep(ctx, time.Until(moment)); err != nil {
			return noopResult{}, err
		}
		if count, err = finished(ctx, s, from, moment); err != nil {
			return noopResult{}, err
		}
		r.finished = float64(count) / moment.Sub(from).Seconds()
	}
	r.late = rec.between(from, until)
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.heap = float64(memory.HeapInuse) / (1 << 20)
	return r, ended()
}

// noopJobs returns jobs that do nothing.
func noopJobs(n int, cron string, policy job.Policy) (jobs []*job.Job) {
	for i := range n {
		jobs = append(jobs, &job.Job{
			Name: fmt.Sprintf("job-%d", i), Schedule: job.Schedule{Cron: []string{cron}}, Policy: policy, Run: job.RunSpec{Handler: &job.Handler{Name: "noop"}},
		})
	}
	return jobs
}

// newNode returns a node with an executor.
func newNode(s store.Store, name string, capacity int, e executor.Executor) (*node.Node, error) {
	return node.New(node.Config{
		Session: store.Session{
			Node: name, Machine: name, DataDir: "/" + name, Capacity: capacity,
			// Like a Go program with handlers it needs no API.
			Roles: []string{store.RolePlanner, store.RoleWorker, store.RoleHandlers}, Handlers: []string{"noop"},
		},
		Executors: func(*job.Job) executor.Executor { return e },
		Capacity:  capacity,
		Log:       slog.Default(),
	}.On(s))
}

// rate measures how fast a node catches up on missed runs.
func (b *bench) rate(ctx context.Context, load backlog) ([]Figure, error) {
	load.jobs = b.scaled(load.jobs, 20)
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p, err := embedded.make(dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := load.miss(ctx, p); err != nil {
		return nil, err
	}
	r, err := load.catchUp(ctx, p, 1, patience)
	if err != nil {
		return nil, err
	}
	return []Figure{
		above("finished with history, a second", r.rate(), b.scaledGoal(load.rate)),
		fact("finished", fmt.Sprintf("%s in %.1f s", number(float64(r.finished), 0), r.took.Seconds())),
	}, nil
}

// miss makes the jobs, some time ago.
func (l backlog) miss(ctx context.Context, p place) error {
	ago := time.Duration(l.down) * time.Second
	forever := job.Forever
	policy := job.Policy{Overlap: cmp.Or(l.overlap, job.OverlapAllow), Missed: job.MissedAll, MissedLimit: l.down + 100, LateBy: &forever}
	policy.ConcurrencyKey, policy.RateKey = l.key, l.rateKey
	jobs := noopJobs(l.jobs, everySecond, policy)
	if l.key+l.rateKey != "" {
		for i, j := range jobs {
			j.Params = map[string]job.Param{"n": {Default: fmt.Sprint(i)}}
		}
	}
	if policy.Overlap != job.OverlapAllow {
		// Runs on time that overlap would be skipped instead of caught up.
		const late = engine.OnTime + time.Second
		ago += late + time.Second
		for _, j := range jobs {
			j.Schedule.End = time.Now().Add(-late)
		}
	}
	s, err := p.open(ctx, ago)
	if err != nil {
		return err
	}
	limits := job.Slots{PerKey: true, Size: 1}
	if l.rateKey != "" {
		limits = job.Slots{PerKey: true, Rate: &job.Rate{Limit: 100_000, Per: job.Duration(time.Second)}}
	}
	_, err = s.PutDocument(ctx, job.Document{Pool: &job.Pool{Name: "k", Slots: limits}}, store.AnyVersion, "bench")
	return errors.Join(err, putJobs(ctx, s, jobs), s.Close())
}

// caughtUp is the result of catching up on a backlog.
type caughtUp struct {
	finished int
	took     time.Duration
	began    []int // number of runs begun after each second
	// Cost of a run for this process and the database server.
	nodes, server time.Duration
}

func (r caughtUp) rate() float64 { return float64(r.finished) / r.took.Seconds() }

// catchUp lets n nodes make up for what was missed, for so long at most.
func (l backlog) catchUp(ctx context.Context, p place, nodes int, atMost time.Duration) (r caughtUp, err error) {
	rec := &recorder{output: make([]byte, l.output)}
	running, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	var stores []openStore
	ended := make(chan error, nodes)
	defer func() {
		stop()
		group.Wait()
		for _, s := range stores {
			err = errors.Join(err, s.Close())
		}
		for range len(ended) {
			if e := <-ended; !errors.Is(e, context.Canceled) { // it was still starting
				err = errors.Join(err, e)
			}
		}
	}()
	const capacity = 20_000
	began := time.Now()
	own, server, err := p.spent()
	if err != nil {
		return r, err
	}
	for i := range nodes {
		s, err := p.open(ctx, 0)
		if err != nil {
			return r, err
		}
		stores = append(stores, s)
		n, err := newNode(s, fmt.Sprint("bench-", i), capacity/nodes, rec)
		if err != nil {
			return r, err
		}
		group.Go(func() { ended <- n.Run(running) })
	}
	for all := l.jobs * l.down; r.finished < all && r.took < atMost; {
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return r, err
		}
		r.took = time.Since(began)
		begun := rec.count()
		for len(r.began) < int(r.took/time.Second) {
			r.began = append(r.began, begun)
		}
		if succeeded(stores) < all && r.took < atMost {
			continue // counting in the database would disturb it
		}
		if r.finished, err = finished(ctx, stores[0], began, began.Add(r.took)); err != nil {
			return r, err
		}
	}
	return r, r.charge(p, own, server)
}

// charge fills in what each run has cost since the processes had spent this.
func (r *caughtUp) charge(p place, own, server time.Duration) error {
	ownNow, serverNow, err := p.spent()
	if err == nil && r.finished > 0 {
		each := time.Duration(r.finished)
		r.nodes, r.server = (ownNow-own)/each, (serverNow-server)/each
	}
	return err
}

// succeeded counts the successful runs, by the counters of the stores.
func succeeded(stores []openStore) (n int) {
	for _, s := range stores {
		n += int(s.succeeded.Load())
	}
	return n
}

// spent is the processor time of this process, and of the database server.
func (p place) spent() (own, server time.Duration, err error) {
	if own, _, err = processorTime(os.Getpid()); err != nil {
		return 0, 0, err
	}
	server, err = p.processor()
	return own, server, err
}

// putJobs creates jobs, in batches of the store's limit.
func putJobs(ctx context.Context, s store.Jobs, jobs []*job.Job) error {
	for some := range slices.Chunk(jobs, store.PutMax) {
		list := make([]store.PutJob, len(some))
		for i, j := range some {
			list[i] = store.PutJob{Definition: j, IfVersion: store.AnyVersion, Actor: "bench"}
		}
		if _, err := s.PutJobs(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

// finished counts the runs that ended well in a stretch of time.
func finished(ctx context.Context, s store.History, from, to time.Time) (int, error) {
	counts, err := s.Aggregate(ctx, store.AggregateQuery{From: from, To: to, Bucket: time.Second})
	n := 0
	for _, c := range counts {
		n += c.Outcomes[job.OutcomeSucceeded]
	}
	return n, err
}

// recorder is an executor that only notes when it was called.
type recorder struct {
	output []byte
	mu     sync.Mutex
	starts []called
}

type called struct {
	scheduled time.Time
	late      time.Duration
}

// Run implements executor.Executor.
func (r *recorder) Run(_ context.Context, a executor.Attempt, out executor.Output) executor.Result {
	now := time.Now()
	if err := a.Start(); err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	if len(r.output) > 0 {
		_, _ = out.Stdout.Write(r.output)
	}
	r.note(a.Run.Scheduled, now.Sub(a.Run.Scheduled))
	return executor.Result{Outcome: job.OutcomeSucceeded}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.starts)
}

func (r *recorder) note(scheduled time.Time, late time.Duration) {
	r.mu.Lock()
	r.starts = append(r.starts, called{scheduled, late})
	r.mu.Unlock()
}

// between returns the lateness of runs scheduled within a span.
func (r *recorder) between(from, until time.Time) lateness {
	r.mu.Lock()
	defer r.mu.Unlock()
	var late lateness
	for _, s := range r.starts {
		if !s.scheduled.Before(from) && s.scheduled.Before(until) {
			late = append(late, s.late)
		}
	}
	return late.sort()
}
