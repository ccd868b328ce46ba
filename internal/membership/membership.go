// Package membership keeps the session of a node alive, knows which others are,
// and says when the node must stop because it could not say that it lives.
package membership

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is what a membership needs of a store: see store.Membership.
type Store interface {
	Join(ctx context.Context, s store.Session) (store.Session, error)
	Renew(ctx context.Context, session job.ID, load store.Load) error
	Leave(ctx context.Context, session job.ID) error
	End(ctx context.Context, session job.ID) error
	Sessions(ctx context.Context) ([]store.Session, error)
	Now(ctx context.Context) (time.Time, error)
}

// Config is what a membership needs.
type Config struct {
	Store Store
	// Session describes this node. Its ID is made anew for each session, unless it is that of
	// a session which an earlier version of the program has begun in this process.
	Session store.Session
	// NewID makes the identity of a session.
	NewID func() (job.ID, error)
	// Load says what the node has to do. How its clock is, is added.
	Load func() store.Load
	// Boot is the clock that runs during a suspend, Now the wall clock, which is
	// compared with that of the store and decides nothing.
	Boot func() time.Duration
	Now  func() time.Time
	// Renewed receives when an acknowledged renewal was sent, by Boot.
	// May be nil.
	Renewed func(sent time.Duration)
	Log     *slog.Logger
}

const (
	// renewEvery leaves room for two renewals that fail within
	// store.SessionLife.
	renewEvery = 2 * time.Second
	// renewTimeout bounds one renewal, so that a store that hangs does not
	// hide that it has come back.
	renewTimeout = 3 * time.Second

	// judgeWithin is how long after the last renewal of this session others are judged by
	// theirs: less than a renewal later, so that while no renewal succeeds the members stay
	// as they were.
	judgeWithin = renewEvery + renewEvery/4

	// skewMax is how far the wall clock may be off from the store's without a word:
	// below it the times in logs of two machines raise no question. It counts as
	// right again below half of that, so that one at the bound is not told of all
	// the time.
	skewMax = time.Second
	// compareWithin is how long the store may take to tell its time for the answer to
	// be compared: half of it is how wrong the comparison can be.
	compareWithin = 250 * time.Millisecond
)

// Member is a live session. Use Join.
type Member struct {
	config Config
	id     job.ID
	joined store.Session

	mu      sync.Mutex
	renewed time.Duration // when the last acknowledged renewal was sent, by the boot clock
	live    []store.Session
	clock   time.Time     // what the store's clock showed
	read    time.Duration // when, by the boot clock
	ahead   time.Duration // by how much the wall clock was ahead of it
	skewed  bool          // by more than skewMax, which was logged
	drained bool
	missing [len(duties)]bool // which of them no live node has
	over    chan struct{}     // closed when the session is over
}

// Join begins a session.
func Join(ctx context.Context, c Config) (*Member, error) {
	if c.Session.ID.IsZero() {
		id, err := c.NewID()
		if err != nil {
			return nil, err
		}
		c.Session.ID = id
	}
	m := &Member{config: c, id: c.Session.ID, over: make(chan struct{})}
	m.renewed = c.Boot()
	var err error
	if m.joined, err = c.Store.Join(ctx, c.Session); err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	m.tell(m.renewed)
	if err := m.Look(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// tell says when the last renewal was sent.
func (m *Member) tell(sent time.Duration) {
	if m.config.Renewed != nil {
		m.config.Renewed(sent)
	}
}

// ID returns the identity of the session.
func (m *Member) ID() job.ID { return m.id }

// Predecessors returns the sessions of earlier processes on this data directory
// and boot of the machine. They run nothing any more.
func (m *Member) Predecessors() []job.ID { return m.joined.Predecessors }

// Over is closed when the session is over: something of it was taken away, and
// the node must begin a new one.
func (m *Member) Over() <-chan struct{} { return m.over }

// Renewed returns when the last renewal that was acknowledged was sent, by the
// boot clock. What another node may do goes by it.
func (m *Member) Renewed() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.renewed
}

// Live returns the sessions that are members, as of the last look.
func (m *Member) Live() []store.Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live
}

// Now returns what the store's clock shows, which the cluster goes by, as of the last
// look. A wall clock that is wrong changes nothing.
func (m *Member) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock.Add(m.config.Boot() - m.read)
}

// ClockAhead returns by how much the wall clock of this machine was ahead of the
// store's clock when they were compared last; less than 0 if it was behind.
func (m *Member) ClockAhead() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ahead
}

// Drained reports whether this node is drained, as of the last poll.
func (m *Member) Drained() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drained
}

// Run renews the session until ctx ends or the session is over, and looks again when
// another one ends unless it was renewed meanwhile.
func (m *Member) Run(ctx context.Context) error {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	renewal := trouble.With(m.config.Log, "cannot renew the session", "renewing the session works again")
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.silence():
			_ = m.Look(ctx) // what fails is made up for, and told, by the next renewal
			continue
		case <-ticker.C:
		}
		err := m.Renew(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, store.ErrSessionOver) {
			m.config.Log.Error("the session is over: this node was silent for too long, or its clock is wrong", "session", m.id)
			close(m.over)
			return nil
		}
		renewal.Saw(err)
	}
}

// silence returns a channel that tells when the next of the others ends if it is not
// renewed; nil, if that is not before this one is renewed, which looks as well.
func (m *Member) silence() <-chan time.Time {
	now, first := m.Now(), renewEvery
	for _, s := range m.Live() {
		if left := s.Renewed.Add(store.SessionLife).Sub(now); s.ID != m.id && left > 0 {
			first = min(first, left)
		}
	}
	if first == renewEvery {
		return nil
	}
	return time.After(first)
}

// Renew says that the node lives, and looks who else does. Run does it all the
// time; it is to be called besides when the wall clock was set, by which the
// session may seem old.
func (m *Member) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	load := m.config.Load()
	load.ClockAhead = m.ClockAhead()
	sent := m.config.Boot()
	if err := m.config.Store.Renew(ctx, m.id, load); err != nil {
		return fmt.Errorf("renew session %s: %w", m.id, err)
	}
	// First the part that ends what is past its fence, then the part that starts: or
	// an attempt that has just begun would be ended by the renewal before.
	m.tell(sent)
	m.mu.Lock()
	m.renewed = sent
	m.mu.Unlock()
	return m.Look(ctx)
}

// Look reads who is live, who is drained, and the store's clock. Renewals do so, too.
func (m *Member) Look(ctx context.Context) error {
	asked := m.config.Boot()
	now, err := m.config.Store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the clock of the store: %w", err)
	}
	wall, read := m.config.Now(), m.config.Boot()
	if took := read - asked; took <= compareWithin {
		m.compare(wall.Sub(now) - took/2)
	}
	sessions, err := m.config.Store.Sessions(ctx)
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	var drain *store.Drain
	overdue := false
	for i := range sessions {
		if sessions[i].ID == m.id {
			drain, overdue = sessions[i].Drain, now.Sub(sessions[i].Renewed) > judgeWithin
		}
	}
	var live []store.Session
	for i := range sessions {
		if engine.IsLive(now, &sessions[i], each(sessions)) {
			live = append(live, sessions[i])
		}
	}
	m.mu.Lock()
	was := m.drained
	if overdue {
		live = m.live // the others may be unable to renew, too
	}
	m.live, m.drained, m.clock, m.read = live, drain != nil, now, read
	m.mu.Unlock()
	switch {
	case drain != nil && !was:
		m.config.Log.Warn("node is drained; not accepting runs", "by", drain.By, "reason", drain.Reason, "since", drain.Since)
	case drain == nil && was:
		m.config.Log.Info("node accepts runs again")
	}
	m.sayUndone(live)
	return nil
}

// each ranges over sessions, for the engine.
func each(sessions []store.Session) iter.Seq[*store.Session] {
	return func(yield func(*store.Session) bool) {
		for i := range sessions {
			if !yield(&sessions[i]) {
				return
			}
		}
	}
}

// duties are the roles, and what is not done while no live node has them.
var duties = [...]struct{ role, undone string }{
	{store.RolePlanner, "no job runs on schedule"},
	{store.RoleWorker, "no run starts"},
	{store.RoleAPI, "no request to the API is answered"},
}

// sayUndone logs which role no live node has, when that begins and when it ends. One
// that leaves is not live itself, and the others speak.
func (m *Member) sayUndone(live []store.Session) {
	if !slices.ContainsFunc(live, func(s store.Session) bool { return s.ID == m.id }) {
		return
	}
	// A program with handlers needs no server: what only servers do is not missing.
	embedded := slices.ContainsFunc(live, func(s store.Session) bool { return s.Has(store.RoleHandlers) })
	for i, d := range duties {
		missing := !slices.ContainsFunc(live, func(s store.Session) bool { return s.Has(d.role) })
		missing = missing && (d.role == store.RolePlanner || !embedded)
		m.mu.Lock()
		was := m.missing[i]
		m.missing[i] = missing
		m.mu.Unlock()
		switch {
		case missing && !was:
			m.config.Log.Warn(d.undone+": no live node has the role", "role", d.role)
		case was && !missing:
			m.config.Log.Info("a live node has the role again", "role", d.role)
		}
	}
}

// compare takes by how much the wall clock is ahead of the store's, and logs when
// that begins to be too much, and when it ends.
func (m *Member) compare(ahead time.Duration) {
	m.mu.Lock()
	m.ahead = ahead
	was := m.skewed
	m.skewed = ahead.Abs() > skewMax || was && ahead.Abs() > skewMax/2
	is := m.skewed
	m.mu.Unlock()
	switch {
	case is && !was:
		m.config.Log.Warn("the clock of this machine differs from the clock of the store, which decides when jobs run", "ahead", ahead.Round(time.Millisecond), "allowed", skewMax)
	case was && !is:
		m.config.Log.Info("the clock of this machine agrees with the clock of the store again", "ahead", ahead.Round(time.Millisecond))
	}
}

// Leave says that the node takes no more runs, and hands on those that it has
// not claimed.
func (m *Member) Leave(ctx context.Context) error {
	if err := m.config.Store.Leave(ctx, m.id); err != nil {
		return fmt.Errorf("leave session %s: %w", m.id, err)
	}
	return m.Look(ctx)
}

// End removes the session of a node that runs nothing any more.
func (m *Member) End(ctx context.Context) error {
	if err := m.config.Store.End(ctx, m.id); err != nil {
		return fmt.Errorf("end session %s: %w", m.id, err)
	}
	return nil
}
