package worker

import (
	"context"
	"crypto/rand"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// inLane returns a job of a stripe.
func inLane(stripe int) (uid job.ID) {
	uid[0], uid[len(uid)-1] = 1, byte(stripe)
	return uid
}

func TestResultBatchUsesOneIdleLane(t *testing.T) {
	q := &results{}
	var busy stripes.Set
	busy.Add(0)
	for i := range 4 * store.MaxBatch {
		r := &result{item: &item{Ready: store.ReadyRun{Job: inLane(i % 3)}}}
		r.Number = i
		q.add(r)
	}
	batch, within := q.take(store.MaxBatch, busy)
	var one stripes.Set
	one.Add(1)
	if within != one || len(batch) != store.MaxBatch || batch[0].Number != 1 || batch[1].Number != 4 {
		t.Errorf("%d results of stripes %b are taken, the first is %d", len(batch), within, batch[0].Number)
	}
	// All are taken eventually, the runs of a job in order.
	last := [3]int{1: batch[len(batch)-1].Number}
	for n := store.MaxBatch; n < 4*store.MaxBatch; n += len(batch) {
		batch, _ = q.take(store.MaxBatch, busy)
		for _, r := range batch {
			if stripe := r.stripe(); r.Number < last[stripe] {
				t.Fatalf("result %d is taken behind %d", r.Number, last[stripe])
			} else {
				last[stripe] = r.Number
			}
		}
	}
	if len(q.waiting) > 0 {
		t.Errorf("%d results are left", len(q.waiting))
	}
}

// calls is a slow store that counts concurrent calls about the same jobs.
type calls struct {
	*herd
	underWay map[int]map[job.ID]bool
	began    int
	met      int // calls during another one with a common job
}

func (c *calls) Ready(ctx context.Context, session job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error) {
	list, err := c.herd.Ready(ctx, session, after, until, limit)
	for i := range list {
		list[i].Job = c.jobOf(list[i].ID)
	}
	return list, err
}

// jobOf maps a run to one of 400 jobs.
func (c *calls) jobOf(run job.ID) job.ID {
	return job.ID{14: run[14] % 50, 15: run[15] % stripes.Number}
}

func (c *calls) call(runs []job.ID) {
	jobs := map[job.ID]bool{}
	for _, run := range runs {
		jobs[c.jobOf(run)] = true
	}
	c.mu.Lock()
	c.began++
	number, meets := c.began, false
	for _, others := range c.underWay {
		for uid := range jobs {
			meets = meets || others[uid]
		}
	}
	if meets {
		c.met++
	}
	c.underWay[number] = jobs
	c.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	c.mu.Lock()
	delete(c.underWay, number)
	c.mu.Unlock()
}

func (c *calls) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	var runs []job.ID
	for _, a := range attempts {
		runs = append(runs, a.Run)
	}
	c.call(runs)
	return c.herd.Claim(ctx, session, attempts)
}

func (c *calls) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	var runs []job.ID
	for _, r := range results {
		runs = append(runs, r.Run)
	}
	c.call(runs)
	return c.herd.Finish(ctx, session, results)
}

func TestConcurrentBacklogCallsCoverDifferentJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		due := time.Now().Add(-time.Minute)
		c := &calls{herd: newHerd(n, due), underWay: map[int]map[job.ID]bool{}}
		collector, err := output.New(output.Config{Sink: nowhere{}})
		if err != nil {
			t.Fatal(err)
		}
		exec := &noop{due: due}
		w := New(Config{
			Store: c, Self: store.Session{ID: job.ID{1}}, Executors: func(*job.Job) executor.Executor { return exec },
			Output: collector, Capacity: n, StealAfter: time.Second, Now: time.Now, Stripes: &stripes.Stripes{},
			Renewed: func() time.Duration { return 0 }, Boot: func() time.Duration { return 0 },
			NewID: func() (job.ID, error) { return job.NewID(time.Now(), rand.Reader) }, Log: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); _ = w.Run(ctx) }()
		<-c.done
		c.mu.Lock()
		// At the end the last runs of all stripes share a batch.
		if c.met > c.began/5 {
			t.Errorf("%d of %d calls were about jobs that others were about", c.met, c.began)
		}
		c.mu.Unlock()
		cancel()
		<-stopped
	})
}
