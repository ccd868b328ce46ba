package joined

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Opener opens a history.
type Opener func(ctx context.Context) (store.History, error)

// gate is a history that may be unreachable when a server starts. It opens once the history is
// reachable and belongs to the control store; until then all calls fail.
type gate struct {
	open Opener
	// use records which history belongs to the control store.
	use func(ctx context.Context, id store.HistoryID) error

	opening sync.Mutex // locked by the call that opens

	mu      sync.Mutex
	history store.History // nil until it is open
	err     error         // why it is still closed
	closed  bool
}

// meet opens the gate if it is closed.
func (g *gate) meet(ctx context.Context) error {
	g.opening.Lock()
	defer g.opening.Unlock()
	if _, err := g.there(); err == nil {
		return nil
	}
	h, err := g.known(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && g.closed {
		err = errors.Join(store.ErrAway, closeHistory(h))
	}
	if g.err = err; err == nil {
		g.history = h
	}
	return err
}

// known returns the history if it belongs to the control store.
func (g *gate) known(ctx context.Context) (store.History, error) {
	h, err := g.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("history store: %w", err)
	}
	id, err := h.HistoryID(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("history store: %w", err), closeHistory(h))
	}
	switch err := g.use(ctx, id); {
	case errors.Is(err, store.ErrConflict):
		return nil, errors.Join(ErrOtherHistory, closeHistory(h))
	case err != nil:
		return nil, errors.Join(fmt.Errorf("control store: %w", err), closeHistory(h))
	}
	return h, nil
}

func closeHistory(h store.History) error {
	if c, ok := h.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// there returns the history, or why it is not usable yet.
func (g *gate) there() (store.History, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.history != nil:
		return g.history, nil
	case g.err == nil:
		return nil, store.ErrAway
	case errors.Is(g.err, store.ErrAway):
		return nil, g.err
	}
	return nil, fmt.Errorf("%w: %w", store.ErrAway, g.err)
}

// Close closes the history.
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.history == nil {
		return nil
	}
	return closeHistory(g.history)
}

func (g *gate) Append(ctx context.Context, records []store.Record) error {
	h, err := g.there()
	if err != nil {
		return err
	}
	return h.Append(ctx, records)
}

func (g *gate) HistoryID(ctx context.Context) (store.HistoryID, error) {
	h, err := g.there()
	if err != nil {
		return 0, err
	}
	return h.HistoryID(ctx)
}

func (g *gate) Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error) {
	h, err := g.there()
	if err != nil {
		return nil, store.RecordRef{}, err
	}
	return h.Attempts(ctx, q)
}

func (g *gate) AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error) {
	h, err := g.there()
	if err != nil {
		return nil, err
	}
	return h.AttemptsOf(ctx, run)
}

func (g *gate) Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error) {
	h, err := g.there()
	if err != nil {
		return nil, err
	}
	return h.Recent(ctx, jobs, n)
}

func (g *gate) Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error) {
	h, err := g.there()
	if err != nil {
		return nil, err
	}
	return h.Aggregate(ctx, q)
}

func (g *gate) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	h, err := g.there()
	if err != nil {
		return err
	}
	return h.AppendOutput(ctx, chunks)
}

func (g *gate) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]store.OutputChunk, error) {
	h, err := g.there()
	if err != nil {
		return nil, err
	}
	return h.Output(ctx, run, attempt, fromSeq, limit)
}

func (g *gate) Expire(ctx context.Context, keep store.Retention) (more bool, err error) {
	h, err := g.there()
	if err != nil {
		return false, err
	}
	return h.Expire(ctx, keep)
}
