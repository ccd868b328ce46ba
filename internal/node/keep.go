package node

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/store"
)

// keepEvery is how often keepers look: a timeout is noticed a second late at most.
const keepEvery = time.Second

// Keeper asks after work of a kind that was handed over: it ends what was cancelled or has
// timed out. Each worker node has one, and the store gives each handover to one of them.
type Keeper interface {
	// Kind is that of the handovers, for the log.
	Kind() string
	// Look is called each second, and when something was cancelled, by one goroutine.
	Look(ctx context.Context) error
}

// keep lets a keeper look.
func (n *Node) keep(ctx context.Context, k Keeper, wake <-chan store.Hint) {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	looks := trouble.With(n.config.Log, "cannot look after handed over work of kind "+k.Kind(), "looking after handed over work of kind "+k.Kind()+" works again")
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-wake:
		}
		if err := k.Look(ctx); ctx.Err() == nil {
			looks.Saw(err)
		}
	}
}

// keeps begins the keepers of a worker node.
func (n *Node) keeps() []func(ctx context.Context) {
	if n.config.Work == nil || !n.config.Session.Works() {
		return nil
	}
	var list []func(ctx context.Context)
	for _, k := range n.config.Keepers {
		wake := make(chan store.Hint, 1)
		n.keeperWakes = append(n.keeperWakes, wake)
		list = append(list, func(ctx context.Context) { n.keep(ctx, k, wake) })
	}
	return list
}

// settleFlows removes the directories of flows that have ended.
func (n *Node) settleFlows(ctx context.Context) {
	if n.config.Folders == nil {
		return
	}
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	looks := trouble.With(n.config.Log, "cannot remove the directories of flows that have ended", "removing the directories of flows works again")
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := n.config.Folders.SettleFlows(ctx, n.config.Work.Over); ctx.Err() == nil {
			looks.Saw(err)
		}
	}
}
