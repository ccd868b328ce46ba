package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/nodeclock"
	machine "github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// sharedClock is the clock on which nodes agree if the store has none: see package nodeclock.
type sharedClock struct {
	boot  func() time.Duration
	watch *machine.Watch // detects steps of the wall clock

	mu     sync.Mutex
	shared *nodeclock.Clock
	// listen is the boot time until which unheard nodes may still be there.
	listen time.Duration
}

func newSharedClock(wall func() time.Time, boot func() time.Duration) *sharedClock {
	c := &sharedClock{boot: boot, watch: machine.NewWatch(wall, boot)}
	c.shared = nodeclock.New(c.watch.Zero(), store.SessionLife)
	return c
}

// observe takes a renewal of a session. own is set if this process made it.
func (c *sharedClock) observe(id job.ID, r *renewal, revision int64, own bool) {
	if r.clock.IsZero() {
		return
	}
	boot := c.boot()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shared.Heard(nodeclock.Renewal{Session: id, Clock: r.clock, Standing: r.standing, Since: r.since, Revision: revision, Own: own}, boot)
}

func (c *sharedClock) forget(id job.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shared.Forget(id)
}

// now returns the shared clock. A step of the wall clock is noticed here at the latest.
func (c *sharedClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

func (c *sharedClock) read() time.Time { return c.shared.Now(c.watch.Zero(), c.boot()) }

// usable returns why this node must plan and claim nothing, or nil.
func (c *sharedClock) usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	if err := c.shared.Usable(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrClockOff, err)
	}
	return nil
}

// standing compares the clock of this process with a renewal.
func (c *sharedClock) standing() (nodeclock.Standing, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	return c.shared.Standing()
}

// known reports whether another node was heard recently.
func (c *sharedClock) known() bool {
	boot := c.boot()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shared.KnowsOthers(boot)
}

// mustListen reports whether there may be nodes that were not heard yet.
func (c *sharedClock) mustListen() bool {
	boot := c.boot()
	c.mu.Lock()
	defer c.mu.Unlock()
	if boot < c.listen && !c.shared.KnowsOthers(boot) {
		return true
	}
	c.listen = 0
	return false
}

const (
	// renewalMax is the age of the last renewal of a node that is live, which renews every 2 s,
	// with a second for the difference of the clocks.
	renewalMax = 3 * time.Second
	// renewalWait bounds the wait for the next renewal.
	renewalWait = renewalMax
)

// begin starts to listen to the other nodes, and waits for a renewal if the stored renewals are of
// another time: their nodes have crashed, or the clock of this machine is wrong.
func (b *Backend) begin(ctx context.Context) {
	_, has, err := b.driver.Now(ctx)
	if b.agrees = b.opt.Now == nil && !has && err == nil; !b.agrees {
		return
	}
	b.mu.RLock()
	now := b.localNow()
	if b.state.renewed(func(r *renewal) bool { return now.Sub(r.clock).Abs() < store.SessionLife }) {
		b.clock.listen = b.clock.boot() + renewalWait
	}
	b.mu.RUnlock()
	b.awaitRenewal(ctx, func() bool {
		now := b.localNow()
		return b.state.renewed(func(r *renewal) bool { return now.Sub(r.clock).Abs() > renewalMax }) && !b.clock.known()
	})
}

// awaitRenewal waits, at most renewalWait, for the renewals of nodes, until a condition of the copy has
// ended.
func (b *Backend) awaitRenewal(ctx context.Context, while func() bool) {
	timeout := time.NewTimer(renewalWait)
	defer timeout.Stop()
	for {
		b.mu.RLock()
		moved, waits := b.moved, while()
		b.mu.RUnlock()
		if !waits {
			return
		}
		select {
		case <-moved:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// mayStart returns why this node must plan and claim nothing by its clock, or nil.
func (b *Backend) mayStart(ctx context.Context) error {
	if !b.agrees {
		return nil
	}
	if b.clock.mustListen() {
		b.awaitRenewal(ctx, b.clock.mustListen)
	}
	return b.clock.usable()
}

// renewed reports whether the last renewal of a node that is still a member meets a condition.
func (s *state) renewed(is func(*renewal) bool) bool {
	for id, r := range s.renewals {
		of := s.sessions[id]
		if of == nil || of.Leaving || s.over[id] || r.clock.IsZero() || !of.HasStore() {
			continue
		}
		if is(&r) {
			return true
		}
	}
	return false
}

// localNow is the clock of this machine, or of a test.
func (b *Backend) localNow() time.Time {
	if b.opt.Now != nil {
		return b.opt.Now()
	}
	return b.opt.Wall()
}

// Now implements ledger.Backend.
func (b *Backend) Now(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	if b.opt.Now != nil {
		return toMicro(b.opt.Now()), nil
	}
	now, has, err := b.driver.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if !has {
		now = b.clock.now()
	}
	return toMicro(now), nil
}

// toMicro rounds a time to the precision of stores.
func toMicro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
