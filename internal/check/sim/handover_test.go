package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/server/callback"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Numbers, HandOver, ToAsk and Asked travel like other calls.
func (g *gate) Numbers(ctx context.Context, n int, from int64) (first int64, err error) {
	err = g.write(ctx, func() (err error) { first, err = g.Store.Numbers(ctx, n, from); return err })
	return first, err
}

func (g *gate) HandOver(ctx context.Context, s job.ID, list []store.Handover) (out []store.HandedOver, err error) {
	err = g.write(ctx, func() (err error) { out, err = g.Store.HandOver(ctx, s, list); return err })
	return out, err
}

func (g *gate) ToAsk(ctx context.Context, kind string, limit int) (out []store.Outstanding, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.ToAsk(ctx, kind, limit); return err })
	return out, err
}

func (g *gate) Asked(ctx context.Context, list []store.Answer) error {
	return g.write(ctx, func() error { return g.Store.Asked(ctx, list) })
}

// killing is a store for the keeper of a node: the service ends what the keeper ends.
type killing struct {
	*gate
	outside *outside
}

// Finish implements callback.Store.
func (k killing) Finish(ctx context.Context, s job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	if !k.awake() {
		return nil, errKilled
	}
	for i := range results {
		k.outside.kill(&results[i])
	}
	return k.gate.Finish(ctx, s, results)
}

// handOver hands an attempt over and sends it to the service.
func (x *witness) handOver(ctx context.Context, a executor.Attempt) executor.Result {
	began := time.Now()
	number, err := a.HandOver(ctx, executor.Handover{Kind: callback.Kind, To: "outside"})
	if err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	if !x.gate.awake() || ctx.Err() != nil || time.Since(began) > sendMax {
		return executor.Result{HandedOver: true} // it cannot report what it has sent
	}
	known, err := x.cluster.tap.Handovers(context.WithoutCancel(ctx), store.HandoverQuery{Numbers: []int64{number}, Limit: store.MaxBatch})
	if err != nil || len(known) != 1 {
		x.history.broken("handed over", "handover %d of %s is not known: %v", number, a.Run.Name, err)
		return executor.Result{HandedOver: true}
	}
	x.mu.Lock()
	f := draw(x.calm(), func(permille int) bool { return x.random.IntN(1000) < permille }, func(least, most time.Duration) time.Duration {
		return least + time.Duration(x.random.Int64N(int64(most-least)))
	})
	random := rand.New(rand.NewPCG(x.random.Uint64(), 0))
	x.mu.Unlock()
	if f.arrives {
		x.cluster.send(known[0].Attempt, &a.Run, f, random) //nolint:contextcheck // the service outside outlives the attempt
	}
	return executor.Result{HandedOver: true}
}

// send makes the service work on an attempt and report its end.
func (c *cluster) send(a store.Attempt, run *job.Run, f fate, random *rand.Rand) {
	w := c.outside.begin(a, run)
	if w == nil {
		return
	}
	c.tells.Add(1)
	time.AfterFunc(f.takes, func() {
		defer c.tells.Done()
		if !c.outside.end(w, f.outcome) {
			return
		}
		res := store.Result{Attempt: a, Started: w.seen.Started, Ended: w.seen.Ended, Outcome: f.outcome}
		for i, after := range f.tells {
			hosts := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
			c.tells.Add(1)
			time.AfterFunc(after, func() {
				defer c.tells.Done()
				c.tell(res, hosts)
			})
		}
	})
}

// tell reports the end of work to one host after another, until one has answered.
func (c *cluster) tell(res store.Result, random *rand.Rand) {
	for range tellMax {
		if h := c.hosts[random.IntN(len(c.hosts))]; h.tell(res) == nil {
			return
		}
		select {
		case <-time.After(tellAgain):
		case <-c.over:
			return
		}
	}
}

func (h *host) tell(res store.Result) error {
	h.mu.Lock()
	p := h.process
	h.mu.Unlock()
	if p == nil {
		return errKilled
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellAgain)
	defer cancel()
	_, err := p.gate.Finish(ctx, job.ID{}, []store.Result{res})
	return err
}
