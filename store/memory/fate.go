package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

// Fate is the fate of a part of a step.
type Fate uint8

// The possible fates of a part of a step.
const (
	Done  Fate = iota
	Again      // neither it nor later parts are done: the step is repeated
	Away       // neither it nor later parts are done, which the caller does not know
	Lost       // it is done and later parts are not, which the caller does not know
	Late       // it is done after the repetition of the call, which the caller does not know
)

// faultyDriver is a driver whose commits of steps may go wrong.
type faultyDriver struct {
	*table
	fate func(part, parts int) Fate
	late []*late
}

// late is a commit in flight for a number of further commits.
type late struct {
	commits int
	txn     *replica.Txn
}

// lateBy is the number of commits before a late one: it follows its repetition.
const lateBy = 2

// Commit implements [replica.Driver].
func (d *faultyDriver) Commit(_ context.Context, t *replica.Txn) (version int64, done bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.arrive()
	fate := Done
	if t.Parts > 0 {
		fate = d.fate(t.Part, t.Parts)
	}
	switch fate {
	case Again:
		return 0, false, nil
	case Lost:
		if _, done = d.commit(t); !done {
			return 0, false, nil
		}
	case Late:
		d.late = append(d.late, &late{lateBy, t})
	case Done:
		version, done = d.commit(t)
		return version, done, nil
	}
	return 0, false, fmt.Errorf("part %d of %d: %w", t.Part+1, t.Parts, store.ErrAway)
}

// arrive commits parts that are due, if what they compare has not changed.
func (d *faultyDriver) arrive() {
	d.late = slices.DeleteFunc(d.late, func(l *late) bool {
		if l.commits--; l.commits == 0 {
			d.commit(l.txn)
		}
		return l.commits == 0
	})
}
