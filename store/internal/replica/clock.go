package replica

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// sharedClock is the common clock of the nodes for a store without one: the clock of this
// machine plus the median offset of the clocks of live nodes. It never goes back.
type sharedClock struct {
	mu    sync.Mutex
	ahead map[job.ID]heard
	last  time.Time
}

// heard is the lead of a node's clock at the last renewal of its session.
type heard struct {
	by time.Duration
	at time.Time
}

// observe takes the renewal of a node. Its delay counts as clock error.
func (c *sharedClock) observe(p Pair, now time.Time) {
	if !strings.HasPrefix(p.Key, renewalKeys) {
		return
	}
	r, err := decode(p.Value, codeRenewal)
	if err != nil || r.clock.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead == nil {
		c.ahead = map[job.ID]heard{}
	}
	c.ahead[idIn(p.Key, renewalKeys)] = heard{r.clock.Sub(now), now}
}

func (c *sharedClock) now(local time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []time.Duration
	for id, h := range c.ahead {
		if age := local.Sub(h.at); age < 0 || age > store.SessionLife {
			delete(c.ahead, id)
			continue
		}
		all = append(all, h.by)
	}
	now := local
	if n := len(all); n > 0 {
		slices.Sort(all)
		now = local.Add((all[(n-1)/2] + all[n/2]) / 2)
	}
	if now.Before(c.last) {
		return c.last
	}
	c.last = now
	return now
}

// known reports whether a node was heard lately.
func (c *sharedClock) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ahead) > 0
}

const (
	// renewalMax is the age of the last renewal of a node that is live, which renews every 2 s,
	// with a second for the difference of the clocks.
	renewalMax = 3 * time.Second
	// renewalWait bounds the wait for the next one.
	renewalWait = renewalMax
)

// awaitRenewal waits for a node to renew if the renewals that were read are of another time: their
// nodes are gone without a word, or the clock of this machine is wrong.
func (b *Backend) awaitRenewal(ctx context.Context) {
	if b.opt.Now != nil {
		return
	}
	if _, has, err := b.driver.Now(ctx); has || err != nil {
		return // the next call fails as well
	}
	timeout := time.NewTimer(renewalWait)
	defer timeout.Stop()
	for {
		b.mu.RLock()
		moved, doubtful := b.moved, b.state.renewedAtAnotherTime(time.Now())
		b.mu.RUnlock()
		if !doubtful || b.clock.known() {
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

// renewedAtAnotherTime reports whether the last renewal of a node that has not left is not of now, by
// its own clock.
func (s *state) renewedAtAnotherTime(now time.Time) bool {
	for id, r := range s.renewals {
		of := s.sessions[id]
		if of == nil || of.Leaving || s.over[id] || r.clock.IsZero() {
			continue
		}
		if now.Sub(r.clock).Abs() > renewalMax {
			return true
		}
	}
	return false
}

// localNow is the clock of this machine, or that of a test.
func (b *Backend) localNow() time.Time {
	if b.opt.Now != nil {
		return b.opt.Now()
	}
	return time.Now()
}

// Now implements ledger.Backend.
func (b *Backend) Now(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	if b.opt.Now != nil {
		return kept(b.opt.Now()), nil
	}
	now, has, err := b.driver.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if !has {
		now = b.clock.now(time.Now())
	}
	return kept(now), nil
}

// kept rounds a time to the precision of stores.
func kept(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
