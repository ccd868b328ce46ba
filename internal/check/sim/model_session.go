package sim

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// join begins a session, and settles the attempts of the previous process.
func (n *model) join() {
	n.newRunQueue()
	n.session = job.ID{}
	id := n.core.newID()
	zone := "b"
	if n.name < "node-2" {
		zone = "a"
	}
	s := store.Session{
		ID: id, Node: n.name, Machine: n.machine, DataDir: "/data", Capacity: capacity, Labels: map[string]string{"zone": zone},
		Roles: []string{store.RolePlanner, store.RoleWorker},
	}
	var try func()
	try = func() {
		sent := n.core.now
		var joined store.Session
		n.call(func() (err error) { joined, err = n.core.store.Join(context.Background(), s); return err }, func(err error) {
			if err != nil {
				n.later(retryEvery, try)
				return
			}
			n.session, n.renewed = id, sent
			n.settle(joined.Predecessors)
			n.renew()
		})
	}
	try()
}

// settle records attempts of earlier processes as lost.
func (n *model) settle(predecessors []job.ID) {
	for _, p := range predecessors {
		var mine []store.Run
		n.call(func() (err error) { mine, err = store.RunsOn(context.Background(), n.core.store, p); return err }, func(err error) {
			if err != nil {
				n.later(retryEvery, func() { n.settle([]job.ID{p}) })
				return
			}
			var lost []store.Attempt
			for i := range mine {
				lost = append(lost, mine[i].Present())
			}
			if len(lost) > 0 {
				n.reapThese(lost, func(err error) {
					if err != nil {
						n.later(retryEvery, func() { n.settle([]job.ID{p}) })
					}
				})
			}
		})
	}
}

func (n *model) reapThese(lost []store.Attempt, then func(error)) {
	session := n.session
	n.call(func() error { return n.core.store.Reap(context.Background(), session, lost) }, then)
}

// over begins another session, because the store has ended this one.
func (n *model) over() {
	for _, it := range n.queue.All(runqueue.Running) {
		n.end(it, job.OutcomeLost)
	}
	n.giveBack()
	n.live = nil
	n.join()
}

// renew renews the session, and reads the other sessions.
func (n *model) renew() {
	n.enforceFences()
	if n.session.IsZero() {
		return
	}
	session, sent, load := n.session, n.core.now, store.Load{Running: n.working(), Unreported: n.unreported()}
	var sessions []store.Session
	var at time.Time
	n.once(errandRenew, func() (err error) {
		ctx := context.Background()
		if err := n.core.store.Renew(ctx, session, load); err != nil {
			return err
		}
		at = n.core.now
		sessions, err = n.core.store.Sessions(ctx)
		return err
	}, func(err error) {
		switch {
		case session != n.session:
		case errors.Is(err, store.ErrSessionOver):
			if !n.leaving {
				n.over()
			}
		case err == nil:
			n.renewed = sent
			n.live = nil
			for i := range sessions {
				if engine.IsLive(at, &sessions[i], each(sessions)) {
					n.live = append(n.live, sessions[i])
				}
			}
		}
	})
}

// each ranges over sessions, for the engine.
func each(sessions []store.Session) iter.Seq[*store.Session] {
	return func(yield func(*store.Session) bool) {
		for i := range sessions {
			if !yield(&sessions[i]) {
				return
			}
		}
	}
}

// tidy does the housekeeping that any node may do.
func (n *model) tidy() {
	if n.session.IsZero() || n.leaving {
		return
	}
	ctx := context.Background()
	var lost []store.Attempt
	n.once(errandTidy, func() (err error) {
		if _, err := n.core.store.Tidy(ctx); err != nil {
			return err
		}
		lost, err = n.core.store.Lost(ctx, store.MaxBatch)
		return err
	}, func(err error) {
		if err == nil && len(lost) > 0 && !n.session.IsZero() {
			n.reapThese(lost, func(error) {})
		}
	})
}
