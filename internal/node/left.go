package node

import (
	"context"
	"errors"
	"slices"

	"github.com/belfry-cron/belfry/internal/node/membership"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// readLeft reads the containers that an earlier process has left.
func (n *Node) readLeft() {
	if n.config.Watchdog == nil {
		return
	}
	for _, l := range n.config.Watchdog.Left() {
		k, err := worker.ReadKept(l.State)
		if err != nil || n.output == nil {
			n.config.Log.Error("cannot continue with a container that the previous process has left; ending it", "run", l.Key.Run, "attempt", l.Key.Number, "error", err)
			n.unreadable = append(n.unreadable, l.Key)
			continue
		}
		k.Output = n.output.Anew(l.Chunks)
		n.left = append(n.left, k)
	}
}

// beginAsLeft continues the session of a process that has died and left containers running, which this
// node then owns: the store accepts the session only if none of its attempts was given to others. It
// returns nil if no container is left, or after it has ended all of them.
func (n *Node) beginAsLeft(ctx context.Context) (*membership.Member, error) {
	if len(n.unreadable) > 0 {
		n.config.Watchdog.End(n.unreadable) //nolint:contextcheck // they end even if the start is cancelled
		n.unreadable = nil
	}
	if len(n.left) == 0 {
		return nil, nil
	}
	// A session of later containers has begun after all attempts of earlier sessions were settled.
	id := slices.MaxFunc(n.left, func(a, b worker.Kept) int { return slices.Compare(a.Session[:], b.Session[:]) }).Session
	if n.config.Work != nil && n.config.Session.Works() {
		m, mine, err := n.joinAsLeft(ctx, id)
		if err == nil {
			n.endLeft(func(k *worker.Kept) bool { return mine[k.Claim.Run.Token] }) //nolint:contextcheck // they end even if the start is cancelled
			return m, nil
		}
		if !errors.Is(err, store.ErrSessionOver) {
			return nil, err
		}
		n.config.Log.Warn("the previous process was away for too long: ending the containers that it has left", "session", id, "attempts", len(n.left))
	}
	n.endLeft(func(*worker.Kept) bool { return false }) //nolint:contextcheck // see above
	return nil, nil
}

// joinAsLeft begins this process under the session of the previous one, settles the attempts that ended
// with that, and returns the tokens of those that are still the session's.
func (n *Node) joinAsLeft(ctx context.Context, id job.ID) (*membership.Member, map[job.ID]bool, error) {
	m, err := n.joinAs(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if err := m.Renew(ctx); err != nil { // the fences count from it
		return nil, nil, err
	}
	dead := n.deadOf(id)
	dead.Kept = func(run job.ID, attempt int) bool {
		return slices.ContainsFunc(n.left, func(k worker.Kept) bool { return k.Claim.Run.ID == run && k.Claim.Run.Attempt == attempt })
	}
	settled, err := dead.Recover(ctx, n.config.Work)
	n.sayLeft(settled)
	if err != nil {
		return nil, nil, err
	}
	mine := map[job.ID]bool{}
	for i := range settled.Kept {
		mine[settled.Kept[i].Present().Token] = true
	}
	return m, mine, nil
}

// endLeft ends left containers but those to continue with.
func (n *Node) endLeft(goesOn func(*worker.Kept) bool) {
	var ended []worker.CarryOver
	var keys []watchdog.Key
	n.left = slices.DeleteFunc(n.left, func(k worker.Kept) bool {
		if goesOn(&k) {
			return false
		}
		ended = append(ended, k.CarryOver)
		keys = append(keys, watchdog.Key{Run: k.Claim.Run.ID, Number: k.Claim.Run.Attempt})
		return true
	})
	worker.End(ended, n.config.Executors)
	n.config.Watchdog.End(keys) // of which this node has no executor now
}
