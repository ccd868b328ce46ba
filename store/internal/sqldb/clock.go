package sqldb

import (
	"context"
	"math"
	"sync"
	"time"

	machine "github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

const (
	// measureEvery is how often the clock of the database is read: steps of it are known within
	// this time. Decisions read it each time.
	measureEvery = 5 * time.Second
	// samples is how many answers a measurement takes: the first of a connection
	// takes longer.
	samples = 4
	// measureMax bounds a measurement.
	measureMax = 2 * time.Second
)

// clock is this process's estimate of the database's clock. Between measurements it advances by the
// boot clock of the machine, which cannot be set and also runs while the machine sleeps.
type clock struct {
	given func() time.Time // if set, replaces the clock
	boot  func() time.Duration

	mu   sync.Mutex
	at   time.Time     // of the database
	read time.Duration // when, by boot
}

func newClock(given func() time.Time) clock { return clock{given: given, boot: machine.Boot} }

func (c *clock) now() time.Time {
	if c.given != nil {
		return micro(c.given())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return micro(c.at.Add(c.boot() - c.read))
}

// micro returns a moment as stores keep it: in UTC, to the microsecond.
func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// measure reads the database's time, and assigns it to the moment of the answer: so the
// clock is behind by the duration of the answer, and nothing starts early. The quickest of
// several answers counts.
func (s *backend) measure(ctx context.Context) error {
	if s.clock.given != nil {
		return nil
	}
	return s.read(ctx, func(t *tx) error {
		quickest := time.Duration(math.MaxInt64)
		for range samples {
			asked := s.clock.boot()
			n, err := t.number(s.selectClock())
			if err != nil {
				return err
			}
			answered := s.clock.boot()
			if took := answered - asked; took < quickest {
				quickest = took
				s.clock.set(columns.FromNanos(n), answered)
			}
		}
		return nil
	})
}

func (c *clock) set(at time.Time, read time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.read = at, read
}

// keepTime measures until ctx ends.
func (s *backend) keepTime(ctx context.Context) {
	if s.clock.given != nil {
		return
	}
	ticker := time.NewTicker(measureEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			once, cancel := context.WithTimeout(ctx, measureMax)
			_ = s.measure(once) // the next measurement follows
			cancel()
		case <-ctx.Done():
			return
		}
	}
}

// Now returns the clock of the database.
func (s *backend) Now(ctx context.Context) (time.Time, error) { return s.clock.now(), ctx.Err() }

// now returns the moment of a transaction by the clock of the database, read at the first call.
func (t *tx) now() (time.Time, error) {
	if t.moment.IsZero() && t.s.clock.given != nil {
		t.moment = t.s.clock.now()
	}
	if t.moment.IsZero() {
		q := t.query(t.s.selectClock())
		if err := t.readClock(q); err != nil {
			return time.Time{}, err
		}
	}
	return t.moment, nil
}

func (t *tx) readClock(q reader) error {
	for q.Next() {
		t.moment = micro(columns.FromNanos(q.Int()))
	}
	return q.Err()
}

func (s *backend) selectClock() string { return "select " + s.db.Clock() }
