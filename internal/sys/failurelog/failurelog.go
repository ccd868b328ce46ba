// Package failurelog says in the log when something that is tried again and again begins
// to fail and when that is over, and nothing in between. What is done about it is not
// decided here.
package failurelog

import (
	"log/slog"
	"sync"
)

// Trouble tracks the failures of one thing. Several goroutines may share one.
type Trouble struct {
	log          *slog.Logger
	begins, ends string

	mu   sync.Mutex
	told error // that it began with; nil: all is well
}

// With returns the trouble with something, and what the log says when it begins and
// when it ends.
func With(log *slog.Logger, begins, ends string) *Trouble {
	return &Trouble{log: log, begins: begins, ends: ends}
}

// Saw takes note of how a try went.
func (t *Trouble) Saw(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && t.told == nil:
		t.told = err
		t.log.Error(t.begins, "error", err)
	case err == nil && t.told != nil:
		// With the same error, so that a log which leaves out the beginning for its
		// sake leaves out the end as well.
		t.log.Info(t.ends, "after", t.told)
		t.told = nil
	}
}
