package sqldb

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/store/internal/columns"
)

const (
	// measureEvery is how often the offset to the clock of the database is
	// measured: steps of that clock, and the sleep of a machine, are known
	// within this time. Decisions read the clock of the database itself.
	measureEvery = 5 * time.Second
	// samples is how many answers a measurement takes: the first of a connection
	// takes longer.
	samples = 4
	// measureMax bounds a measurement.
	measureMax = 2 * time.Second
)

// clock is the clock of the database as this process believes it to be. It goes
// on by the monotonic clock, so that steps of the machine's do not matter.
type clock struct {
	given func() time.Time // if set, it is that

	mu       sync.Mutex
	at       time.Time // of the database
	measured time.Time // when, with the monotonic clock
}

func (c *clock) now() time.Time {
	if c.given != nil {
		return micro(c.given())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return micro(c.at.Add(time.Since(c.measured)))
}

// micro is a moment as stores keep times: in UTC, to the microsecond.
func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// measure asks the database for its time. What it says is taken to be of the moment
// at which the answer comes: so the clock is behind by what the answer took, and
// nothing starts early by it. Of several answers the quickest counts.
func (s *Store) measure(ctx context.Context) error {
	if s.clock.given != nil {
		return nil
	}
	return s.read(ctx, func(t *tx) error {
		quickest := time.Duration(math.MaxInt64)
		for range samples {
			begun := time.Now()
			n, err := t.number(s.selectClock())
			if err != nil {
				return err
			}
			answered := time.Now()
			if took := answered.Sub(begun); took < quickest {
				quickest = took
				s.clock.set(columns.FromNanos(n), answered)
			}
		}
		return nil
	})
}

func (c *clock) set(at, measured time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.measured = at, measured
}

// keepTime measures until ctx ends.
func (s *Store) keepTime(ctx context.Context) {
	if s.clock.given != nil {
		return
	}
	ticker := time.NewTicker(measureEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			once, cancel := context.WithTimeout(ctx, measureMax)
			_ = s.measure(once) // the next one will do
			cancel()
		case <-ctx.Done():
			return
		}
	}
}

// Now returns the clock of the database.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.clock.now(), ctx.Err() }

// now returns the moment of a transaction, which is that of the first call: by
// the clock of the database itself.
func (t *tx) now() (time.Time, error) {
	if t.moment.IsZero() && t.s.clock.given != nil {
		t.moment = t.s.clock.now()
	}
	if t.moment.IsZero() {
		n, err := t.number(t.s.selectClock())
		if err != nil {
			return time.Time{}, err
		}
		t.moment = micro(columns.FromNanos(n))
	}
	return t.moment, nil
}

func (s *Store) selectClock() string { return "select " + s.db.Clock() }
