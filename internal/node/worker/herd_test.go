package worker

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// herd is a store with many runs due at one instant, all of whose claims succeed.
type herd struct {
	work.Runs // methods that no herd needs
	runs      []store.Run
	job       *store.Job
	mu        sync.Mutex // guards the following fields, and the tokens
	finished  int
	done      chan struct{}
}

func newHerd(n int, due time.Time) *herd {
	definition := (&job.Job{Name: "j", Run: job.RunSpec{Handler: &job.Handler{Name: "noop"}}, Status: &job.Status{}}).WithDefaults(job.Defaults{})
	h := &herd{job: &store.Job{Definition: definition, Filled: definition}, done: make(chan struct{})}
	for i := range n {
		var id job.ID
		binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
		h.runs = append(h.runs, store.Run{Run: job.Run{ID: id, State: job.StateReady, Attempt: 1, Scheduled: due, Due: due}})
	}
	return h
}

func (h *herd) Ready(_ context.Context, _ job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error) {
	from := 0
	if !after.ID.IsZero() {
		from = int(binary.BigEndian.Uint64(after.ID[8:]))
	} else if !after.Due.IsZero() {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []store.ReadyRun
	for _, r := range h.runs[from:min(len(h.runs), from+limit)] {
		list = append(list, store.ReadyRun{RunRef: store.RunRef{Due: r.Due, ID: r.ID}, Attempt: r.Attempt})
	}
	return list, nil
}

func (h *herd) Stealable(context.Context, store.Session, work.Overdue) ([]store.ReadyRun, store.RunRef, error) {
	return nil, store.RunRef{}, nil
}

func (h *herd) Claim(_ context.Context, _ job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	outcomes := make([]store.ClaimOutcome, len(attempts))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, a := range attempts {
		r := &h.runs[binary.BigEndian.Uint64(a.Run[8:])-1]
		r.Token = a.Token
		outcomes[i] = store.ClaimOutcome{Job: h.job, Run: r, Now: time.Now()}
	}
	return outcomes, nil
}

func (h *herd) Release(context.Context, job.ID, []store.Attempt) error { return nil }

func (h *herd) Finish(_ context.Context, _ job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.finished
	h.finished += len(results)
	// Some may be read, claimed and reported again: this store does not remove them.
	if before < len(h.runs) && h.finished >= len(h.runs) {
		close(h.done)
	}
	return make([]store.FinishOutcome, len(results)), nil
}

func (h *herd) Mine(context.Context, job.ID) ([]store.Run, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.runs), nil
}

func (h *herd) Versions(_ context.Context, uids []job.ID) ([]engine.JobVersion, error) {
	return slices.Repeat([]engine.JobVersion{engine.VersionOf(h.job)}, len(uids)), nil
}

func (h *herd) Now(context.Context) (time.Time, error) { return time.Now(), nil }

// noop is an executor that notes how late it was called.
type noop struct {
	due  time.Time
	wait time.Duration
	mu   sync.Mutex
	late []time.Duration
}

func (n *noop) Run(_ context.Context, a executor.Attempt, _ executor.Output) executor.Result {
	late := time.Since(n.due)
	_ = a.Start()
	n.mu.Lock()
	n.late = append(n.late, late)
	n.mu.Unlock()
	if n.wait > 0 {
		time.Sleep(n.wait)
	}
	return executor.Result{Outcome: job.OutcomeSucceeded}
}

// nowhere is a sink for output that is never written.
type nowhere struct{}

func (nowhere) Append(context.Context, []output.Chunk) error { return nil }

// BenchmarkHerd starts 10,000 runs due at one instant and claimed ahead, which end at once or wait,
// and reports the median lateness of each herd.
func BenchmarkHerd(b *testing.B) {
	b.Run("end at once", func(b *testing.B) { benchHerd(b, 0) })
	b.Run("wait 100 ms", func(b *testing.B) { benchHerd(b, 100*time.Millisecond) })
}

func benchHerd(b *testing.B, wait time.Duration) {
	const n = 10_000
	collector, err := output.New(output.Config{Sink: nowhere{}})
	if err != nil {
		b.Fatal(err)
	}
	var p50, p99 []time.Duration
	for b.Loop() {
		due := time.Now().Add(time.Second)
		h, exec := newHerd(n, due), &noop{due: due, wait: wait, late: make([]time.Duration, 0, n)}
		w := New(Config{
			Store: h, Self: store.Session{ID: job.ID{1}}, Executors: func(*job.Job) executor.Executor { return exec },
			Output: collector, Capacity: 2 * n, StealAfter: time.Second, Now: time.Now,
			Renewed: func() time.Duration { return 0 }, Boot: func() time.Duration { return 0 },
			NewID: func() (job.ID, error) { return job.NewID(time.Now(), rand.Reader) }, Log: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(context.Background())
		stopped := make(chan struct{})
		go func() { _ = w.Run(ctx); close(stopped) }()
		<-h.done
		cancel()
		<-stopped
		slices.Sort(exec.late)
		if exec.late[0] < 0 {
			b.Fatalf("one has started %s early", -exec.late[0])
		}
		p50, p99 = append(p50, exec.late[n/2]), append(p99, exec.late[n*99/100])
	}
	for unit, late := range map[string][]time.Duration{"ms-p50": p50, "ms-p99": p99} {
		slices.Sort(late)
		b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, unit)
	}
}
