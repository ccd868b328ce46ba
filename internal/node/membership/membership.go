// Package membership keeps the session of a node alive, reads the other sessions, and
// decides when the node must stop because it could not renew.
package membership

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is the membership's part of a store: see [store.Membership].
type Store interface {
	Join(ctx context.Context, s store.Session) (store.Session, error)
	Renew(ctx context.Context, session job.ID, load store.Load) error
	Leave(ctx context.Context, session job.ID) error
	End(ctx context.Context, session job.ID) error
	Sessions(ctx context.Context) ([]store.Session, error)
	Now(ctx context.Context) (time.Time, error)
}

// Config configures a membership.
type Config struct {
	Store Store
	// Session describes this node. Its ID is new for each session, unless it continues a
	// session that an earlier version of the program began in this process.
	Session store.Session
	// NewID makes the identity of a session.
	NewID func() (job.ID, error)
	// Load returns the load of the node, without the state of its clock, which is added.
	Load func() store.Load
	// Boot is the clock that runs during a suspend, Now the wall clock, which is only
	// compared with the store's.
	Boot func() time.Duration
	Now  func() time.Time
	// Renewed receives when an acknowledged renewal was sent, by Boot.
	// May be nil.
	Renewed func(sent time.Duration)
	// StoreStepped is called when the store's clock was set. May be nil.
	StoreStepped func()
	Log          *slog.Logger
}

const (
	// renewEvery leaves room for two failing renewals within [store.SessionLife].
	renewEvery = 2 * time.Second
	// renewTimeout bounds one renewal, so that a hanging store does not hide its recovery.
	renewTimeout = 3 * time.Second

	// judgeWithin is how long after this session's last renewal other sessions are judged by
	// theirs: so short that the members stay the same while no renewal succeeds.
	judgeWithin = renewEvery + renewEvery/4

	// skewMax is the accepted difference between the wall clock and the store's: below it the times
	// in logs of two machines agree. The warning ends below half of it, so that a clock at the
	// bound does not warn repeatedly.
	skewMax = time.Second
	// storeStepMin is the smallest difference from its last reading that counts as a step of the store's
	// clock.
	storeStepMin = time.Second
	// compareWithin is the longest usable duration of a reading of the store's clock: half of it is
	// the error of the comparison.
	compareWithin = 250 * time.Millisecond
)

// Member is a live session. Use [Join].
type Member struct {
	config Config
	id     job.ID
	joined store.Session

	mu      sync.Mutex
	renewed time.Duration // when the last acknowledged renewal was sent, on the boot clock
	live    []store.Session
	clock   time.Time     // the store's clock at the reading
	read    time.Duration // the boot clock at the reading
	ahead   time.Duration // by how much the wall clock was ahead
	skewed  bool          // by more than skewMax, as logged
	drained bool
	off     map[job.ID]bool   // live sessions whose clocks are off, as logged
	missing [len(duties)]bool // roles without a live node, as logged
	over    chan struct{}     // closed once the session is over
	// handlers replace the handlers of the session with the next renewal; nil if the session has them.
	handlers atomic.Pointer[[]string]
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

// tell publishes when the last renewal was sent.
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

// Over is closed when the session is over: the store no longer accepts it, and the node must begin a
// new one.
func (m *Member) Over() <-chan struct{} { return m.over }

// Renewed returns when the last acknowledged renewal was sent, by the boot clock. It
// decides what another node may do.
func (m *Member) Renewed() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.renewed
}

// Live returns the sessions that are members, as of the last refresh.
func (m *Member) Live() []store.Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live
}

// Now returns the store's clock, the clock of the cluster, as of the last refresh. A wrong
// wall clock has no effect.
func (m *Member) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock.Add(m.config.Boot() - m.read)
}

// ClockAhead returns by how much the wall clock of this machine was ahead of the store's clock at
// the last comparison; negative if it was behind.
func (m *Member) ClockAhead() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ahead
}

// ClockOff reports whether this node must not plan or claim because of its clock, as of the last
// refresh.
func (m *Member) ClockOff() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off[m.id]
}

// Drained reports whether this node is drained, as of the last poll.
func (m *Member) Drained() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drained
}

// Run renews the session until ctx ends or the session is over, and refreshes when another
// session expires without a renewal.
func (m *Member) Run(ctx context.Context) error {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	renewal := failurelog.New(m.config.Log, "cannot renew the session", "renewing the session works again")
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.silence():
			_ = m.Look(ctx) // the next renewal retries and reports a failure
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

// silence returns a channel that fires when the next other session expires without a
// renewal; nil, if this session is renewed first, which refreshes as well.
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

// Renew renews the session and refreshes the others. Run calls it regularly; it must also be called
// after a step of the wall clock, which may make the session seem old.
func (m *Member) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	load := m.config.Load()
	load.ClockAhead = m.ClockAhead()
	if err := m.publish(ctx); err != nil {
		return fmt.Errorf("publish the handlers of session %s: %w", m.id, err)
	}
	sent := m.config.Boot()
	if err := m.config.Store.Renew(ctx, m.id, load); err != nil {
		return fmt.Errorf("renew session %s: %w", m.id, err)
	}
	// The fences get the renewal before new attempts start: otherwise the old renewal would end a
	// new attempt.
	m.tell(sent)
	m.mu.Lock()
	m.renewed = sent
	m.mu.Unlock()
	return m.Look(ctx)
}

// Publish replaces the handlers of the session with the next renewal.
func (m *Member) Publish(handlers []string) { m.handlers.Store(&handlers) }

// publish writes new handlers, if there are any.
func (m *Member) publish(ctx context.Context) error {
	handlers := m.handlers.Load()
	if handlers == nil {
		return nil
	}
	s := m.config.Session
	s.Handlers = *handlers
	// A session that is over or leaving does not need them: its renewal reports that.
	if _, err := m.config.Store.Join(ctx, s); err != nil && !errors.Is(err, store.ErrSessionOver) {
		return err
	}
	m.handlers.CompareAndSwap(handlers, nil) // unless newer ones were set
	return nil
}

// Look refreshes the live sessions, the drains and the store's clock, as renewals do.
func (m *Member) Look(ctx context.Context) error {
	asked := m.config.Boot()
	now, err := m.config.Store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the clock of the store: %w", err)
	}
	wall, read := m.config.Now(), m.config.Boot()
	took := read - asked
	sessions, err := m.config.Store.Sessions(ctx)
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	var drain *store.Drain
	overdue, off := false, false
	for i := range sessions {
		if sessions[i].ID == m.id {
			drain, overdue, off = sessions[i].Drain, now.Sub(sessions[i].Renewed) > judgeWithin, sessions[i].ClockOff
		}
	}
	var live []store.Session
	for i := range sessions {
		if engine.IsLive(now, &sessions[i], each(sessions)) {
			live = append(live, sessions[i])
		}
	}
	if took <= compareWithin {
		m.compare(wall.Sub(now)-took/2, off)
	}
	m.sayOff(live)
	m.mu.Lock()
	stepped := took <= compareWithin && !m.clock.IsZero() && now.Sub(m.clock.Add(read-m.read)).Abs() > storeStepMin
	was := m.drained
	if overdue {
		live = m.live // the other nodes may also be unable to renew
	}
	m.live, m.drained, m.clock, m.read = live, drain != nil, now, read
	m.mu.Unlock()
	switch {
	case drain != nil && !was:
		m.config.Log.Warn("node is drained; not accepting runs", "by", drain.By, "reason", drain.Reason, "since", drain.Since)
	case drain == nil && was:
		m.config.Log.Info("node accepts runs again")
	}
	if stepped && m.config.StoreStepped != nil {
		m.config.StoreStepped()
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

// duties are the roles, and the work that is not done while no live node has them.
var duties = [...]struct{ role, undone string }{
	{store.RolePlanner, "no job runs on schedule"},
	{store.RoleWorker, "no run starts"},
	{store.RoleAPI, "no request to the API is answered"},
}

// sayUndone logs when a role loses its last live node and when it has one again. A leaving node is
// not live, and leaves the log to others.
func (m *Member) sayUndone(live []store.Session) {
	if !slices.ContainsFunc(live, func(s store.Session) bool { return s.ID == m.id }) {
		return
	}
	// A program with handlers needs no server: the duties of servers are not missing.
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

// sayOff logs which nodes stop planning and claiming because of their clocks, and which resume. It does
// not mention ended sessions again.
func (m *Member) sayOff(live []store.Session) {
	m.mu.Lock()
	was := m.off
	m.off = map[job.ID]bool{}
	clocks := 0
	for i := range live {
		if live[i].ClockOff {
			m.off[live[i].ID] = true
		}
		if live[i].HasStore() {
			clocks++
		}
	}
	is := m.off
	m.mu.Unlock()
	for i := range live {
		s := &live[i]
		if is[s.ID] == was[s.ID] {
			continue
		}
		who := []any{"node", s.Node, "ahead", s.Load.ClockAhead.Round(time.Millisecond)}
		if s.ID == m.id {
			who = []any{"ahead", m.ClockAhead().Round(time.Millisecond)}
		}
		switch {
		case !is[s.ID]:
			m.config.Log.Info("the clock of "+m.nodeInWords(s)+" is right again: it plans and claims", who...)
		case clocks == 2:
			m.config.Log.Warn("the clock of "+m.nodeInWords(s)+" is off: it plans and claims nothing; two clocks do not show which one is right, so check both", who...)
		default:
			m.config.Log.Warn("the clock of "+m.nodeInWords(s)+" is off, or was just set: it plans and claims nothing", who...)
		}
	}
}

func (m *Member) nodeInWords(s *store.Session) string {
	if s.ID == m.id {
		return "this node"
	}
	return "another node"
}

// compare records by how much the wall clock is ahead of the store's, and logs when that becomes
// too much, and when it ends. sayOff covers nodes whose clocks are off.
func (m *Member) compare(ahead time.Duration, off bool) {
	m.mu.Lock()
	m.ahead = ahead
	was := m.skewed
	m.skewed = ahead.Abs() > skewMax || was && ahead.Abs() > skewMax/2
	is := m.skewed
	m.mu.Unlock()
	switch {
	case off:
	case is && !was:
		m.config.Log.Warn("the clock of this machine differs from the clock of the store, which decides when jobs run", "ahead", ahead.Round(time.Millisecond), "allowed", skewMax)
	case was && !is:
		m.config.Log.Info("the clock of this machine agrees with the clock of the store again", "ahead", ahead.Round(time.Millisecond))
	}
}

// Leave stops the node from accepting runs, and releases its unclaimed ones.
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
