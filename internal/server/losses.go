package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/store"
)

const (
	// lossEvery is the wait between two tries to write it: a store that has just failed over may
	// be away.
	lossEvery = time.Second
	// lossTimeout bounds one try.
	lossTimeout = 10 * time.Second
)

// losses keeps the number of steps that the store has lost, beyond the process that noticed it.
type losses struct {
	node  string
	log   *slog.Logger
	count func(steps int64)
	fresh chan struct{} // has room for one; never closed

	mu    sync.Mutex
	steps int64 // unwritten
}

func newLosses(node string, log *slog.Logger, count func(steps int64)) *losses {
	return &losses{node: node, log: log, count: count, fresh: make(chan struct{}, 1)}
}

// mayLose reports whether the store may lose steps that it has acknowledged, and say so.
func (s *Server) mayLose() bool {
	kind := s.Settings.Store.Kind()
	return kind == config.Redis || kind == config.Etcd
}

// Lost counts steps that the store has lost. It may be called from any goroutine.
func (l *losses) Lost(steps int64) {
	l.count(steps)
	l.mu.Lock()
	l.steps += steps
	l.mu.Unlock()
	select {
	case l.fresh <- struct{}{}:
	default: // what is written next includes it
	}
}

// lossStore is the part of a store that keeps the number.
type lossStore interface {
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutAudited(ctx context.Context, n store.AuditedNote) error
}

// Restore counts what earlier processes of the node noticed.
func (l *losses) Restore(ctx context.Context, s lossStore) error {
	_, known, err := l.read(ctx, s)
	if err == nil && known.Steps > 0 {
		l.count(known.Steps)
	}
	return err
}

func (l *losses) read(ctx context.Context, s lossStore) (note store.Note, known service.Losses, err error) {
	note = store.Note{Name: service.LossNotes + l.node}
	list, err := s.Notes(ctx, note.Name, "", 1)
	if err != nil {
		return note, known, fmt.Errorf("read the lost steps of node %s: %w", l.node, err)
	}
	if len(list) == 0 || list[0].Name != note.Name {
		return note, known, nil
	}
	known, err = service.ParseLosses(list[0])
	return list[0], known, err
}

// Run writes losses, with a record in the audit each, until the context ends.
func (l *losses) Run(ctx context.Context, s lossStore) {
	fails := failurelog.New(l.log, "cannot record that the store has lost steps; retrying", "recorded that the store has lost steps")
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.fresh:
		}
		l.mu.Lock()
		steps := l.steps
		l.mu.Unlock()
		for total := int64(-1); steps > 0; {
			err := l.write(ctx, s, steps, &total)
			if ctx.Err() != nil {
				return
			}
			if fails.Saw(err); err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(lossEvery):
			}
		}
		l.mu.Lock()
		l.steps -= steps
		l.mu.Unlock()
	}
}

// write adds steps to the note once: total is what it then has, and stays for the next try.
func (l *losses) write(ctx context.Context, s lossStore, steps int64, total *int64) error {
	ctx, cancel := context.WithTimeout(ctx, lossTimeout)
	defer cancel()
	note, known, err := l.read(ctx, s)
	if err != nil {
		return err
	}
	if *total < 0 {
		*total = known.Steps + steps
	}
	if known.Steps >= *total {
		return nil // an earlier try was written, and its answer was lost
	}
	note.Text = known.Add(steps, time.Now())
	err = s.PutAudited(ctx, store.AuditedNote{Note: note, Audit: store.AuditRecord{Actor: engine.System, Action: "store.lost", Object: l.node, Detail: reason.StepsLost.Of(int(steps))}})
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("note %s was written at the same time: %w", note.Name, err)
	}
	return err
}
