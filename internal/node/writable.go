package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/node/planner"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// writable notices when the store has no space or cannot be written, and when that ends. It logs
// both once for the whole node, in the operator's terms: otherwise each part would log the error of
// the database.
type writable struct {
	log   *slog.Logger
	store string // where the store is: on a disk of this or another machine

	mu  sync.Mutex
	now error // the problem: store.ErrNoSpace, store.ErrReadOnly or nil
}

// saw records the result of a write. Without space the store only refuses writes that make
// it grow: only their success shows that space is free again.
func (w *writable) saw(err error, grows bool) {
	now := noWrites(err)
	if err != nil && now == nil {
		return // the error is about something else
	}
	w.mu.Lock()
	was := w.now
	if now == nil && errors.Is(was, store.ErrNoSpace) && !grows {
		now = was
	}
	w.now = now
	w.mu.Unlock()
	switch {
	case errors.Is(now, was):
	case now == nil:
		w.log.Info("the store is writable again", "store", w.store)
	case errors.Is(now, store.ErrNoSpace):
		w.log.Error("no space left on the disk of the store: nothing starts until there is; results are kept in memory", "store", w.store, "error", err)
	default:
		w.log.Error("the store is read-only: nothing starts until it is writable; results are kept in memory", "store", w.store)
	}
}

// wrong returns why the store cannot be written, or nil.
func (w *writable) wrong() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// Unwritable returns [store.ErrNoSpace] or [store.ErrReadOnly] while the store cannot be written, or
// nil. It may be called from any goroutine.
func (n *Node) Unwritable() error { return n.writable.wrong() }

// noWrites returns which of the two an error is, or nil.
func noWrites(err error) error {
	for _, wrong := range []error{store.ErrNoSpace, store.ErrReadOnly} {
		if errors.Is(err, wrong) {
			return wrong
		}
	}
	return nil
}

// quiet drops log lines about errors that writable reports, and adds a hint to the lines of a
// damaged store.
type quiet struct{ slog.Handler }

// Handle implements [slog.Handler].
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	isSet, damaged := false, false
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		isSet = isSet || ok && noWrites(err) != nil
		damaged = damaged || ok && errors.Is(err, store.ErrDamaged)
		return !isSet
	})
	if isSet {
		return nil
	}
	if damaged {
		r = r.Clone()
		r.AddAttrs(slog.String("mend", "the store is damaged: run belfry doctor for details"))
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements [slog.Handler].
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// observer passes the regular calls of a node to writable, if they write, and to slow, if runs wait
// for them.
type observer struct {
	writable *writable
	slow     *slow
}

// observe wraps the stores of a node in an observer, and returns its view of writes.
func (c *Config) observe() *writable {
	o := observer{&writable{log: c.Log, store: c.StoreName}, &slow{log: c.Log, store: c.StoreName}}
	c.Members = &observedSession{c.Members, o}
	if c.Work != nil {
		c.Work = &observedWork{c.Work, o}
	}
	if c.Planning != nil {
		c.Planning = &observedPlanning{c.Planning, o}
	}
	if c.Upkeep != nil {
		c.Upkeep = &observedUpkeep{c.Upkeep, o}
	}
	return o.writable
}

type observedSession struct {
	work.Session
	observer
}

type observedWork struct {
	work.Store
	observer
}

type observedPlanning struct {
	planner.Store
	observer
}

type observedUpkeep struct {
	Upkeep
	observer
}

// Ready implements [work.Runs].
func (o *observedWork) Ready(ctx context.Context, session job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error) {
	ended := o.slow.call("look for runs")
	runs, err := o.Store.Ready(ctx, session, after, until, limit)
	ended(err)
	return runs, err
}

// Plan implements [planner.Store].
func (o *observedPlanning) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	ended := o.slow.call("plan")
	outcomes, claims, err := o.Store.Plan(ctx, session, items)
	ended(err)
	o.writable.saw(err, true)
	return outcomes, claims, err
}

// Claim implements [work.Runs].
func (o *observedWork) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	ended := o.slow.call("claim")
	outcomes, err := o.Store.Claim(ctx, session, attempts)
	ended(err)
	o.writable.saw(err, true)
	return outcomes, err
}

// AppendOutput implements [work.Store].
func (o *observedWork) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	ended := o.slow.call("keep output")
	err := o.Store.AppendOutput(ctx, chunks)
	ended(err)
	o.writable.saw(err, true)
	return err
}

// Finish implements [work.Runs].
func (o *observedWork) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	ended := o.slow.call("finish")
	outcomes, err := o.Store.Finish(ctx, session, results)
	ended(err)
	o.writable.saw(err, false)
	return outcomes, err
}

// Renew implements [work.Session].
func (o *observedSession) Renew(ctx context.Context, session job.ID, load store.Load) error {
	err := o.Session.Renew(ctx, session, load)
	o.writable.saw(err, false)
	return err
}

// Tidy implements [Upkeep].
func (o *observedUpkeep) Tidy(ctx context.Context) (bool, error) {
	more, err := o.Upkeep.Tidy(ctx)
	if err != nil { // there may have been nothing to write
		o.writable.saw(err, false)
	}
	return more, err
}
