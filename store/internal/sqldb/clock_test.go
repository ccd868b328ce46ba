package sqldb

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	machine "github.com/belfry-cron/belfry/internal/sys/clock"
)

// distant is a database that has only a clock, behind a slow connection.
type distant struct {
	DB
	begun time.Time

	mu    sync.Mutex
	set   time.Duration // by how much its clock was set
	drift float64       // the part of time by which its clock is fast
	slept time.Duration // time that the asking machine slept
	away  bool
	// takes returns how long the n-th question, from 0, and its answer take.
	takes func(n int) (question, answer time.Duration)
	asked int
}

// dial returns a database, and a store that has not read its clock yet.
func dial(takes func(n int) (question, answer time.Duration)) (*distant, *backend) {
	d := &distant{begun: time.Now(), takes: takes}
	s := &backend{db: d, clock: newClock(nil), closed: make(chan struct{})}
	s.clock.boot = d.boot
	return d, s
}

func always(question, answer time.Duration) func(int) (time.Duration, time.Duration) {
	return func(int) (time.Duration, time.Duration) { return question, answer }
}

// change changes a property of it.
func (d *distant) change(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do()
}

// boot is the boot clock of the asking machine. Its wall clock, the clock of the bubble, drifts
// away from it.
func (d *distant) boot() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.begun) + d.slept
}

// shows returns the present time of the database's clock.
func (d *distant) shows() time.Time {
	gone := d.boot()
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC).Add(gone + time.Duration(d.drift*float64(gone)) + d.set)
}

func (d *distant) Alone() bool { return false }

func (d *distant) Caches() bool { return false }

func (d *distant) Lateral() bool { return false }

func (d *distant) Failures() (from, condition string) { return "", Failed }

func (d *distant) Paused() string { return "j.paused_at <> 0" }

func (d *distant) Snapshot(context.Context) (Tx, error) { return line{d: d}, nil }
func (d *distant) Fault(error) Fault                    { return Final }
func (d *distant) Clock() string                        { return "the clock" }

// line is a transaction of the database.
type line struct {
	Tx
	d *distant
}

func (l line) Rollback() {}

func (l line) Ask(ctx context.Context, _ ...Question) Rows {
	var question, answer time.Duration
	away := false
	l.d.change(func() {
		question, answer = l.d.takes(l.d.asked)
		l.d.asked++
		away = l.d.away
	})
	pass(ctx, question)
	r := &clockRow{left: 1, shows: l.d.shows()}
	pass(ctx, answer)
	if r.err = ctx.Err(); away {
		r.err = errors.New("the database is away")
	}
	return r
}

func pass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// clockRow is its answer.
type clockRow struct {
	Rows
	left  int
	shows time.Time
	err   error
}

func (r *clockRow) Next() bool { r.left--; return r.err == nil && r.left == 0 }
func (r *clockRow) Int() int64 { return r.shows.UnixNano() }
func (r *clockRow) Err() error { return r.err }

// aheadOf returns by how much the store believes the database's clock to be ahead of its true time.
func aheadOf(t *testing.T, d *distant, s *backend) time.Duration {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now.Sub(d.shows())
}

// keepsTime has the clock measured as long as the test lasts.
func keepsTime(t *testing.T, s *backend) {
	ctx, stop := context.WithCancel(t.Context())
	s.work.Go(func() { s.keepTime(ctx) })
	t.Cleanup(func() {
		stop()
		s.work.Wait()
	})
}

func TestTheClockIsBehindByTheQuickestAnswerAndNeverAhead(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		takes  func(n int) (question, answer time.Duration)
		behind time.Duration
	}{
		{"no time", always(0, 0), 0},
		{"there and back alike", always(40*ms, 40*ms), 40 * ms},
		{"the question takes long", always(300*ms, 0), 0},
		{"most of it is the question", always(300*ms, 20*ms), 20 * ms},
		{"most of it is the answer", always(20*ms, 300*ms), 300 * ms},
		{"the first takes long", func(n int) (time.Duration, time.Duration) { return 2 * ms, max(5*ms, 200*ms-time.Duration(n)*200*ms) }, 5 * ms},
		{"the last takes long", func(n int) (time.Duration, time.Duration) { return 2 * ms, 5*ms + time.Duration(n/(samples-1))*200*ms }, 5 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s := dial(c.takes)
				if err := s.measure(t.Context()); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if off := aheadOf(t, d, s); off != -c.behind {
						t.Errorf("it is ahead by %s, want %s", off, -c.behind)
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

func TestTheClockRunsDuringSuspendRegardlessOfTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := dial(always(0, 0))
		if err := s.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			d.change(func() { d.slept += time.Hour })
			if off := aheadOf(t, d, s); off != 0 {
				t.Errorf("after a sleep it is ahead by %s", off)
			}
			time.Sleep(time.Second)
		}
	})
	before := machine.Boot()
	c := newClock(nil)
	shown := c.boot()
	if after := machine.Boot(); shown < before || shown > after {
		t.Errorf("between measurements it goes by a clock that shows %s, want that of the machine, which shows %s to %s", shown, before, after)
	}
}

func TestTheClockIsMeasuredAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes func(n int) (question, answer time.Duration)
		do    func(d *distant)
		off   time.Duration // at most, after a measurement
	}{
		{"it is set forward", always(0, 0), func(d *distant) { d.set += time.Hour }, 0},
		{"it is put back", always(0, 0), func(d *distant) { d.set -= time.Hour }, 0},
		{"it is put back, and far away", always(200*time.Millisecond, 200*time.Millisecond), func(d *distant) { d.set -= time.Hour }, 200 * time.Millisecond},
		{"it is put back, and answers end after the measurement", always(time.Second, 500*time.Millisecond), func(d *distant) { d.set -= time.Hour }, 500 * time.Millisecond},
		{"it goes too fast", always(0, 0), func(d *distant) { d.drift = 0.001 }, (measureEvery + measureMax) / 1000},
		{"it goes too slow", always(0, 0), func(d *distant) { d.drift = -0.001 }, (measureEvery + measureMax) / 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s := dial(c.takes)
				if err := s.measure(t.Context()); err != nil {
					t.Fatal(err)
				}
				keepsTime(t, s)
				for range 3 {
					d.change(func() { c.do(d) })
					time.Sleep(measureEvery + measureMax)
					for range 100 {
						if off := aheadOf(t, d, s).Abs(); off > c.off {
							t.Fatalf("it is off by %s, want %s at most", off, c.off)
						}
						time.Sleep(time.Second)
					}
				}
			})
		})
	}
}

func TestTheClockRunsDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := dial(always(0, 0))
		if err := s.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		keepsTime(t, s)
		d.change(func() { d.away = true })
		time.Sleep(time.Hour)
		if off := aheadOf(t, d, s); off != 0 {
			t.Errorf("while the database is away it is ahead by %s", off)
		}
		d.change(func() { d.away, d.set = false, -time.Minute }) // another server has taken over
		time.Sleep(measureEvery)
		synctest.Wait() // waits for work due at that moment
		if off := aheadOf(t, d, s); off != 0 {
			t.Errorf("when it is back it is ahead by %s", off)
		}
	})
}

func TestStepsUseTheClockRatherThanItsEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := dial(always(0, 0))
		if err := s.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.change(func() { d.set = -time.Hour }) // the clock changed after the measurement
		step := &tx{Tx: line{d: d}, ctx: t.Context(), s: s}
		want := d.shows()
		for range 2 { // a step has one moment
			if now, err := step.now(); err != nil || !now.Equal(want) {
				t.Errorf("it is %s, %v; want %s", now, err, want)
			}
			time.Sleep(time.Second)
		}
	})
}
