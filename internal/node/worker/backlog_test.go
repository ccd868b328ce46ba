package worker_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// backlogged is a store that reads ready runs slowly.
type backlogged struct {
	*between
	mu   sync.Mutex
	runs []store.ReadyRun
	read int // number of runs read
}

func (b *backlogged) Ready(ctx context.Context, q store.ReadyQuery) ([]store.ReadyRun, error) {
	if q.Any {
		return b.between.Ready(ctx, q)
	}
	time.Sleep(40 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []store.ReadyRun
	for _, r := range b.runs {
		c := cmp.Or(r.Due.Compare(q.After.Due), bytes.Compare(r.ID[:], q.After.ID[:]))
		if c > 0 && !r.Due.After(q.Until) && len(list) < q.Limit {
			list = append(list, r)
		}
	}
	b.read += len(list)
	return list, nil
}

func (b *backlogged) add(n byte, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = append(b.runs, store.ReadyRun{RunRef: store.RunRef{Due: due, ID: job.ID{2, n}}, Attempt: 1})
	slices.SortFunc(b.runs, func(x, y store.ReadyRun) int { return cmp.Or(x.Due.Compare(y.Due), bytes.Compare(x.ID[:], y.ID[:])) })
}

func TestLongBacklogIsPolledRarelyWithoutLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 12_000
		r := newRig(t)
		b := &backlogged{between: r.store}
		long := in(-time.Hour)
		for i := range n {
			b.runs = append(b.runs, store.ReadyRun{RunRef: store.RunRef{Due: long, ID: job.ID{1, byte(i >> 8), byte(i)}}, Attempt: 1})
		}
		collector, err := output.New(output.Config{Sink: unwritten{}})
		if err != nil {
			t.Fatal(err)
		}
		wake := make(chan store.Hint)
		w := worker.New(worker.Config{
			Store: work.On(b, time.Now), Self: r.join("a", nil), Executors: func(*job.Job) executor.Executor { return r.exec }, Output: collector,
			StealAfter: time.Second, Renewed: func() time.Duration { return 0 }, Boot: func() time.Duration { return 0 },
			Now: time.Now, Wake: wake, NewID: r.newID, Log: slogDiscard,
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = w.Run(ctx) }()
		defer func() { cancel(); <-done }()
		r.until("the backlog is held", 10*time.Second, func() bool { return w.Load().Ready == n })
		b.mu.Lock()
		b.read = 0
		b.mu.Unlock()
		for range 100 {
			wake <- store.HintRuns
			time.Sleep(100 * time.Millisecond)
		}
		b.mu.Lock()
		if b.read > 5*n {
			t.Errorf("in 10 s %d runs were read, of %d", b.read, n)
		}
		b.mu.Unlock()
		b.add(1, in(0))
		wake <- store.HintRuns
		r.until("what is due now is read", time.Second, func() bool { return w.Load().Ready == n+1 })
		b.add(2, long.Add(-time.Minute))
		r.until("what was due long ago is read", 7*time.Second, func() bool { return w.Load().Ready == n+2 })
	})
}

// overdue is a store in which other nodes have left many runs.
type overdue struct {
	*memory.Store
	looks atomic.Int64
	runs  []store.ReadyRun // more than one page
	own   atomic.Pointer[[]store.ReadyRun]
}

func (o *overdue) Ready(_ context.Context, q store.ReadyQuery) ([]store.ReadyRun, error) {
	if q.Any {
		o.looks.Add(1)
		return slices.Clone(o.runs[:min(q.Limit, len(o.runs))]), nil
	}
	if own := o.own.Load(); own != nil {
		return *own, nil
	}
	return nil, nil
}

// leftLying makes n runs of a session that are overdue.
func (r *rig) leftLying(session job.ID, n int) (list []store.ReadyRun) {
	uid := r.put("j", besides).Definition.UID
	for i := range n {
		ref := store.RunRef{Due: in(-time.Hour), ID: job.ID{1, byte(i >> 8), byte(i)}}
		list = append(list, store.ReadyRun{RunRef: ref, Job: uid, Session: session, Attempt: 1})
	}
	return list
}

func TestNodeWithBacklogStealsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 50_000
		o := &overdue{Store: r.memory}
		r.store.Store = o
		r.start()
		time.Sleep(3 * time.Second)
		if o.looks.Load() == 0 {
			t.Fatal("with nothing to do it does not look at what others have left")
		}
		r.store.set(func(h *hooks) {
			h.claim = func(func() ([]store.ClaimOutcome, error), []store.Attempt) ([]store.ClaimOutcome, error) {
				time.Sleep(time.Hour)
				return nil, errAway
			}
		})
		own := r.leftLying(r.self.ID, 1900) // less than a page
		o.own.Store(&own)
		time.Sleep(3 * time.Second)
		before := o.looks.Load()
		time.Sleep(10 * time.Second)
		if n := o.looks.Load() - before; n > 0 {
			t.Errorf("with 900 of its own to claim it has looked %d times", n)
		}
	})
}

// Its share of the backlog is found with one call per batch.
func TestJobsOfStolenRunsAreReadInOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		o := &overdue{Store: r.memory}
		other := r.join("b", nil).ID
		for i := range 40 {
			for _, lying := range r.leftLying(other, 2) {
				lying.Job = r.put(fmt.Sprintf("j%d", i), "place: {labels: {elsewhere: x}}, "+besides).Definition.UID
				o.runs = append(o.runs, lying)
			}
		}
		gone := r.leftLying(other, 1)[0]
		gone.Job = job.ID{9}
		o.runs = append(o.runs, gone)
		r.store.Store = o
		var calls atomic.Int64
		r.store.set(func(h *hooks) { h.job = func() error { calls.Add(1); return nil } })
		r.start()
		time.Sleep(10 * time.Second)
		synctest.Wait() // a poll may be running at this moment
		if looks := o.looks.Load(); looks == 0 || calls.Load() != looks {
			t.Errorf("for %d looks at what others have left jobs were read %d times", looks, calls.Load())
		}
		if n := len(r.exec.starts()); n > 0 {
			t.Errorf("%d started on a node that has not their label", n)
		}
	})
}

func TestStealingNodesPickOverdueRunsAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 50_000
		const page = 2000
		o := &overdue{Store: r.memory}
		o.runs = r.leftLying(r.join("b", nil).ID, 2*page)
		r.store.Store = o
		r.start()
		r.until("half of them are taken over", 3*time.Second, func() bool { return len(r.store.allClaims()) >= page/2 })
		place := map[job.ID]int{}
		for i, run := range o.runs {
			place[run.ID] = i
		}
		claims := r.store.allClaims()
		behind := 0
		for _, c := range claims {
			if place[c.Run] >= page/2 {
				behind++
			}
		}
		if len(claims) > page/2 || behind < page/8 {
			t.Errorf("%d are taken over of %d, %d of them from the second half", len(claims), page, behind)
		}
	})
}

func TestCatchUpRunsStayWithTheirNodeBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		other := r.join("b", nil)
		r.start()
		time.Sleep(5 * time.Second)
		planned := time.Now()
		id := r.planFor(other.ID, j, in(-2*time.Second))[0]
		r.until("it is taken over", 2*time.Second, func() bool { return len(r.store.claimsOf(id)) > 0 })
		if after := r.store.claimsOf(id)[0].at.Sub(planned); after < time.Second {
			t.Errorf("it is taken over %s after it was planned, want a second", after)
		}
	})
}

func TestReconcilingBacksOffOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var calls atomic.Int64
		r.store.set(func(h *hooks) {
			h.mine = func(do func() ([]store.Run, error)) ([]store.Run, error) {
				calls.Add(1)
				time.Sleep(time.Second)
				return do()
			}
		})
		r.start()
		time.Sleep(time.Minute)
		if n := calls.Load(); n < 8 || n > 12 {
			t.Errorf("in a minute it has compared %d times, want about one in 6 s", n)
		}
	})
}
