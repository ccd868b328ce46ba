package node

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/store"
)

// keepEvery is the interval of keepers: a timeout is noticed at most a second late.
const keepEvery = time.Second

// Keeper polls the receivers of handed-over work of one kind, and ends cancelled and timed-out
// work. Each worker node has one, and the store assigns each handover to one of them.
type Keeper interface {
	// Kind is the kind of the handovers, for the log.
	Kind() string
	// Look is called each second, and after a cancel, by one goroutine.
	Look(ctx context.Context) error
}

// keep runs a keeper.
func (n *Node) keep(ctx context.Context, k Keeper, wake <-chan store.Hint) {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	looks := failurelog.New(n.config.Log, "cannot look after handed over work of kind "+k.Kind(), "looking after handed over work of kind "+k.Kind()+" works again")
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

// keeps starts the keepers of a worker node.
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
	looks := failurelog.New(n.config.Log, "cannot remove the directories of flows that have ended", "removing the directories of flows works again")
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
