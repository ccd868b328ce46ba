// Package failurelog logs the first failure of a repeated operation, and its recovery,
// and nothing in between.
package failurelog

import (
	"log/slog"
	"sync"
)

// Log tracks the failures of one operation. Several goroutines may share one.
type Log struct {
	log          *slog.Logger
	begins, ends string

	mu    sync.Mutex
	first error // nil while the operation succeeds
}

// New returns a [Log] of one operation. begins and ends are the messages of its first failure and of
// its recovery.
func New(log *slog.Logger, begins, ends string) *Log {
	return &Log{log: log, begins: begins, ends: ends}
}

// Saw records the result of a try.
func (t *Log) Saw(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && t.first == nil:
		t.first = err
		t.log.Error(t.begins, "error", err)
	case err == nil && t.first != nil:
		// With the same error, so that a log which omits the beginning because of it also omits the
		// end.
		t.log.Info(t.ends, "after", t.first)
		t.first = nil
	}
}
