package node

import (
	"context"
	"errors"

	"github.com/belfry-cron/belfry/internal/node/membership"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// CarryOver is a node whose process executes another version of its program: its session and the
// attempts that continue.
type CarryOver struct {
	Session job.ID `json:"session"`
	// Process identifies the start of the process, for jobs with boot.
	Process  job.ID             `json:"process"`
	Attempts []worker.CarryOver `json:"attempts,omitempty"`
	// Unreported is set if results of ended attempts are not in the store.
	Unreported bool `json:"unreported,omitempty"`
}

// ToCarry returns the state to continue with after Run, whose context ended with
// executor.ErrCarried, or nil.
func (n *Node) ToCarry() *CarryOver { return n.carried }

// begin begins a session, or continues the session of the previous version of the program.
func (n *Node) begin(ctx context.Context) (*membership.Member, error) {
	if c := n.config.CarryOver; c != nil {
		works := n.config.Work != nil && n.config.Session.Works()
		// The session would release a run whose result the store lacks, as if it had never begun. A
		// new session reads the journal, as after any restart.
		if !c.Unreported && (works || len(c.Attempts) == 0) {
			if m, err := n.joinAs(ctx, c.Session); !errors.Is(err, store.ErrSessionOver) {
				return m, err
			}
		}
		// Another session settles the attempts of this one.
		n.config.Log.Error("cannot continue with the session of the version before; ending its attempts", "session", c.Session, "attempts", len(c.Attempts), "runs_jobs", works, "unreported", c.Unreported)
		worker.End(c.Attempts, n.config.Executors) //nolint:contextcheck // they end even if the start is cancelled
		n.config.CarryOver = nil
	}
	if m, err := n.beginAsLeft(ctx); m != nil || err != nil {
		return m, err
	}
	return n.joinAs(ctx, job.ID{})
}

// carry stops claiming and waits for attempts that cannot continue without this program.
// The session stays: its assigned runs wait for the next version of the program, or for a
// node that takes them over.
func (n *Node) carry(ctx context.Context, w *worker.Worker) {
	if w == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.config.DrainTimeout)
	defer cancel()
	n.sayEnded(w, w.Carry(ctx))
}

// carryOver records the state for the next version of the program.
func (n *Node) carryOver(m *membership.Member, w *worker.Worker) {
	n.carried = &CarryOver{Session: m.ID(), Process: n.process}
	if w != nil {
		n.carried.Attempts, n.carried.Unreported = w.TakeCarryOvers(), w.Unreported()
	}
}

// adopt gives the first worker of this program the attempts of the previous version or process.
func (n *Node) adopt(w *worker.Worker) error {
	var list []worker.CarryOver
	if c := n.config.CarryOver; c != nil {
		n.config.CarryOver, list = nil, c.Attempts
		n.config.Log.Info("continuing with the attempts of the version before", "attempts", len(list))
	} else if len(n.left) > 0 {
		for i := range n.left {
			list = append(list, n.left[i].CarryOver)
		}
		n.left = nil
		n.config.Log.Info("continuing with the containers that the previous process has left", "attempts", len(list))
	}
	return w.Adopt(list)
}
