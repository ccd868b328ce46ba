package sim

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/server/callback"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	keepEvery = 5 * time.Second
	// tellAgain is how long the service waits for the answer to its report, tellMax how often it
	// reports.
	tellAgain = 10 * time.Second
	tellMax   = 60
)

// handOver records that the service does the work of an attempt, and sends it.
func (n *model) handOver(it *heldRun) {
	c, session, began := n.core, n.session, n.core.now
	n.queue.HandOver(it)
	it.With.fence, it.With.seen, it.With.handed = 0, &Attempt{}, true
	h := store.Handover{Attempt: it.Attempt, Kind: callback.Kind, To: "outside"}
	if timeout := it.With.job.Filled.Policy.Timeout; timeout != nil {
		h.Timeout = time.Duration(*timeout)
	}
	var out []store.HandedOver
	n.call(func() (err error) {
		if h.Number == 0 {
			if h.Number, err = c.store.Numbers(context.Background(), 1, 0); err != nil {
				return err
			}
		}
		out, err = c.store.HandOver(context.Background(), session, []store.Handover{h})
		return err
	}, func(err error) {
		switch {
		case it.State != runqueue.Running || it.With.queue != n.queue:
		case err != nil || out[0] != store.Handed:
			n.report(it) // nothing was sent
		default:
			n.later(n.delay(), func() {
				if it.State != runqueue.Running || it.With.queue != n.queue {
					return
				}
				if c.now.Sub(began) <= sendMax {
					c.send(it.Attempt, &it.With.run.Run)
				}
				n.queue.Reported(it)
				n.act()
			})
		}
	})
}

// send lets the service work on an attempt.
func (c *Core) send(a store.Attempt, run *job.Run) {
	f := draw(c.calm, c.chance, c.between)
	if !f.arrives {
		return
	}
	w := c.outside.begin(a, run)
	if w == nil {
		return
	}
	c.after(f.takes, func() {
		if !c.outside.end(w, f.outcome) {
			return
		}
		res := store.Result{Attempt: a, Started: w.seen.Started, Ended: w.seen.Ended, Outcome: f.outcome}
		for _, after := range f.tells {
			isSet := false
			c.after(after, func() { c.tell(&res, &isSet, tellMax) })
		}
	})
}

// tell reports the end of work to one of the nodes, and repeats that until one has answered.
func (c *Core) tell(res *store.Result, isSet *bool, tries int) {
	if *isSet || tries == 0 {
		return
	}
	n := c.nodes[c.random.IntN(len(c.nodes))]
	if n.up && n.frozen.IsZero() {
		results := []store.Result{*res}
		var out []store.FinishOutcome
		n.call(func() (err error) {
			out, err = c.store.Finish(context.Background(), job.ID{}, results)
			return err
		}, func(err error) {
			if err == nil {
				*isSet = true
				c.history.ack(results, out)
			}
		})
	}
	c.after(tellAgain, func() { c.tell(res, isSet, tries-1) })
}

// keep ends cancelled and timed-out work.
func (n *model) keep() {
	if n.session.IsZero() {
		return
	}
	ctx := context.Background()
	var list []store.Outstanding
	n.once(errandKeep, func() (err error) {
		list, err = n.core.store.ToAsk(ctx, callback.Kind, store.MaxBatch)
		return err
	}, func(err error) {
		if err != nil {
			return
		}
		var results []store.Result
		var answers []store.Answer
		for i := range list {
			if res, next := callback.Decide(&list[i], 0); res != nil {
				n.core.outside.kill(res)
				results = append(results, *res)
			} else {
				answers = append(answers, store.Answer{Handover: list[i].Handover, Next: next})
			}
		}
		if len(results) > 0 {
			n.call(func() error { _, err := n.core.store.Finish(ctx, job.ID{}, results); return err }, func(error) {})
		}
		if len(answers) > 0 {
			n.call(func() error { return n.core.store.Asked(ctx, answers) }, func(error) {})
		}
	})
}
