package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Membership keeps the sessions of nodes.
type Membership interface {
	// Join begins a session and returns it as stored, with the sessions of earlier
	// processes on the same data directory and boot of the machine, whose attempts can be
	// reaped at once. Those sessions get no more runs. Joining again with the same ID
	// renews and updates the session and keeps its runs, for a process that executes
	// another version of its program. [ErrSessionOver]: a run of the session was reaped, it
	// is leaving, or a later process has joined on its data directory.
	Join(ctx context.Context, s Session) (Session, error)
	// Renew extends the session of a live node. [ErrSessionOver]: a run of the session was reaped, or
	// it has left. The node must join again.
	Renew(ctx context.Context, session job.ID, load Load) error
	// Leave stops the assignment of runs to a node. Its ready runs are placed again; it
	// keeps renewing until its attempts have ended.
	Leave(ctx context.Context, session job.ID) error
	// End removes a session without running attempts; with them, it returns [ErrConflict].
	End(ctx context.Context, session job.ID) error
	// Drain starts or ends the drain of a node, and writes the audit record in the same step: its
	// unclaimed runs are placed again, and its claimed runs continue to their end. The drain
	// applies to the node's name, across sessions, until it is undone. Repeating it changes
	// nothing. [ErrNotFound] is for an unknown node.
	Drain(ctx context.Context, d DrainNode) error
	// Sessions returns all sessions that have not ended, members or not.
	Sessions(ctx context.Context) ([]Session, error)
}

// Session is the presence of a node's process.
type Session struct {
	ID       job.ID
	Node     string // the name of the node
	Machine  string // identifies the machine, its boot and the data directory
	DataDir  string
	Roles    []string
	Labels   map[string]string
	Handlers []string
	Capacity int
	Version  string
	Zones    string // the version of the zone table
	Address  string

	// The store sets these.
	Joined  time.Time
	Renewed time.Time
	// Steady is the time since which it was renewed without a gap longer than
	// [SessionLife], and BeforeGap its last renewal before that gap; zero if there was
	// none.
	Steady, BeforeGap time.Time
	Leaving           bool
	// ClockOff is set while the node plans and claims nothing because its clock deviates from the
	// agreed clock, in a store without a clock, or was just set.
	ClockOff bool
	// Drain is set while the node is drained by an operator.
	Drain        *Drain
	Load         Load
	Predecessors []job.ID
	// Left is the time since which a stopping node accepts no runs: the time of Leave, or its
	// last renewal if it was silent by then. Zero before.
	Left time.Time
	// Absences are the spans without a live node that were known when the session began, the latest
	// last. The first node to join after such a span adds it.
	Absences []Absence
}

// Absence is a span of the store's clock without a running node.
type Absence struct {
	From time.Time // the last sign of life of any node
	To   time.Time // when the first node returned
}

// Has reports whether a moment lies in the span.
func (a Absence) Has(at time.Time) bool { return !at.Before(a.From) && at.Before(a.To) }

// The roles of a node in a cluster.
const (
	RolePlanner = "planner" // plans jobs
	RoleWorker  = "worker"  // runs them
	RoleAPI     = "api"     // answers requests
	// RoleHandlers is the role of a program that runs only its handlers. A node with
	// [RoleWorker] also runs the jobs of its handlers.
	RoleHandlers = "handlers"
	// RoleBound is the role of a worker that accepts only jobs that select it by
	// [job.LabelWorker].
	RoleBound = "bound"
)

// ViaServer begins the address of a worker without a store of its own; the name of its server
// follows.
const ViaServer = "via "

// HasStore reports whether the node uses the store directly, not through a server.
func (s *Session) HasStore() bool { return !strings.HasPrefix(s.Address, ViaServer) }

// Has reports whether the node has a role.
func (s *Session) Has(role string) bool { return slices.Contains(s.Roles, role) }

// Works reports whether the node runs jobs, all kinds or only handlers.
func (s *Session) Works() bool { return s.Has(RoleWorker) || s.Has(RoleHandlers) }

// Suits reports whether the node meets a job's requirements: all of the labels, and the
// handler unless it is "". A bound node suits only jobs that name it.
func (s *Session) Suits(labels map[string]string, handler string) bool {
	switch {
	case handler == job.AnyNode:
	case handler != "" && !slices.Contains(s.Handlers, handler):
		return false
	case handler == "" && s.Has(RoleHandlers) && !s.Has(RoleWorker):
		return false
	}
	if labels[job.LabelWorker] == "" && s.Has(RoleBound) {
		return false
	}
	for key, want := range labels {
		has, ok := s.Labels[key]
		if !ok && key == job.LabelWorkerNamespace && labels[job.LabelWorker] != "" {
			continue // it runs the jobs of all namespaces
		}
		if !ok || has != want {
			return false
		}
	}
	return true
}

// Live reports whether the session was renewed recently, at a moment of the store's clock.
// The engine, which knows of outages of the store, decides whether it is a member.
func (s *Session) Live(now time.Time) bool {
	return !s.Leaving && now.Sub(s.Renewed) < SessionLife
}

// SessionState is the state of a session.
type SessionState string

// The states of a session.
const (
	SessionLive    SessionState = "live"
	SessionDrained SessionState = "drained" // an operator drained its node
	SessionLeaving SessionState = "leaving" // its node stops
	SessionSilent  SessionState = "silent"  // it has not renewed
	SessionLeft    SessionState = "left"    // it has ended, and is not stored
)

// Takes reports whether the node accepts runs, apart from conditions that depend on the time.
func (s *Session) Takes() bool { return !s.Leaving && s.Drain == nil && !s.ClockOff }

// State returns the state of a stored session.
func (s *Session) State(now time.Time) SessionState {
	switch {
	case now.Sub(s.Renewed) >= SessionLife:
		return SessionSilent // or its watchdog reported its death
	case s.Leaving:
		return SessionLeaving
	case s.Drain != nil:
		return SessionDrained
	}
	return SessionLive
}

// Drain is the reason why a drained node accepts no runs.
type Drain struct {
	Since      time.Time
	By, Reason string
}

// InWords describes a drain: the node, the author and the reason.
func (d *Drain) InWords(node string) string {
	text := "node " + node + " was drained by " + d.By
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}

// DrainNode drains a node or ends its drain.
type DrainNode struct {
	Node   string
	Undo   bool // ends the drain
	Reason string
	Actor  string
}

// Load is the node's report at each renewal of its session: its work and its clock.
type Load struct {
	Running int
	Ready   int
	// Unreported is the number of results that the store has not accepted for a while. Reasons name
	// it: an attempt of such a node may have ended.
	Unreported int
	// ClockAhead is the lead of its wall clock over the store's, negative if it is
	// behind. No decision uses it.
	ClockAhead time.Duration
}
