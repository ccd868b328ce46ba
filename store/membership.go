package store

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Membership keeps the sessions of nodes.
type Membership interface {
	// Join begins a session and returns it as it is kept, with the sessions of
	// earlier processes on the same data directory and boot of the machine,
	// whose attempts can be reaped at once. They take no more runs. Joining again with the
	// same ID renews the session and describes it anew, and what it runs stays its own: so
	// does a process that executes another version of its program. ErrSessionOver: something
	// of it was reaped, it leaves, or a later process has joined on its data directory.
	Join(ctx context.Context, s Session) (Session, error)
	// Renew says that the node lives. ErrSessionOver: something of it was
	// reaped, or it has left; the node must begin anew.
	Renew(ctx context.Context, session job.ID, load Load) error
	// Leave says that the node takes no more runs. Its ready runs are to be
	// placed again; it keeps renewing until its attempts have ended.
	Leave(ctx context.Context, session job.ID) error
	// End removes a session that runs nothing; ErrConflict if it does.
	End(ctx context.Context, session job.ID) error
	// Drain makes a node take no more runs, or do so again, and writes the audit
	// record in the same step: what it has not claimed is to be placed again, and
	// what it has claimed runs to its end. It holds for the node by its name,
	// whatever session it has, until it is undone. Saying again what holds changes
	// nothing. ErrNotFound is for a node that is not known.
	Drain(ctx context.Context, d DrainNode) error
	// Sessions returns all that have not ended, members or not.
	Sessions(ctx context.Context) ([]Session, error)
}

// Session is the presence of a node's process.
type Session struct {
	ID       job.ID
	Node     string // the name of the node
	Machine  string // tells machines, their boots and data directories apart
	DataDir  string
	Roles    []string
	Labels   map[string]string
	Handlers []string
	Capacity int
	Version  string
	Zones    string // the version of the zone table
	Address  string

	// What the store adds.
	Joined  time.Time
	Renewed time.Time
	// Steady is since when it was renewed without a gap longer than SessionLife, and
	// BeforeGap its last renewal before that gap; zero if there was none.
	Steady, BeforeGap time.Time
	Leaving           bool
	// Drain is set while the node is drained by an operator.
	Drain        *Drain
	Load         Load
	Predecessors []job.ID
	// Left is since when a node that stops takes no runs, zero before: the moment at which
	// it said so, or its last renewal if it was silent by then.
	Left time.Time
	// Absences are the spans without a live node that were known when the session
	// began, the latest last. The session of the first node after such a span adds it.
	Absences []Absence
}

// Absence is a span of the store's clock in which no node was running.
type Absence struct {
	From time.Time // the last sign of life of the last node
	To   time.Time // when the first node was back
}

// Has reports whether a moment lies in the span.
func (a Absence) Has(at time.Time) bool { return !at.Before(a.From) && at.Before(a.To) }

// The roles of a node: what of the work of a cluster it does.
const (
	RolePlanner = "planner" // plans jobs
	RoleWorker  = "worker"  // runs them
	RoleAPI     = "api"     // answers requests
	// RoleHandlers is the role of a program that has handlers and runs nothing else. A node
	// with RoleWorker runs the jobs of handlers too, if it has them.
	RoleHandlers = "handlers"
	// RoleBound is the role of a worker that takes only jobs that choose it by
	// job.LabelWorker.
	RoleBound = "bound"
)

// Has reports whether the node has a role.
func (s *Session) Has(role string) bool { return slices.Contains(s.Roles, role) }

// Works reports whether the node runs jobs, all or those of its handlers.
func (s *Session) Works() bool { return s.Has(RoleWorker) || s.Has(RoleHandlers) }

// Suits reports whether the node has what a job wants: all of the labels, and the
// handler unless that is "". A bound node suits only jobs that name it.
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
			continue // it takes jobs of all
		}
		if !ok || has != want {
			return false
		}
	}
	return true
}

// Live reports whether the session was renewed lately, at a moment of the store's clock.
// Whether it is a member decides the engine, which knows of outages of the store.
func (s *Session) Live(now time.Time) bool {
	return !s.Leaving && now.Sub(s.Renewed) < SessionLife
}

// SessionState says in a word how it is with a session.
type SessionState string

// The states of a session.
const (
	SessionLive    SessionState = "live"
	SessionDrained SessionState = "drained" // its node was drained by an operator
	SessionLeaving SessionState = "leaving" // its node stops
	SessionSilent  SessionState = "silent"  // it was not heard of
	SessionLeft    SessionState = "left"    // it has ended, and is not kept
)

// Takes reports whether the node may be given runs, as far as that does not depend on
// the time.
func (s *Session) Takes() bool { return !s.Leaving && s.Drain == nil }

// State returns the state of a session that is kept.
func (s *Session) State(now time.Time) SessionState {
	switch {
	case now.Sub(s.Renewed) >= SessionLife:
		return SessionSilent // also one whose watchdog has said that it died
	case s.Leaving:
		return SessionLeaving
	case s.Drain != nil:
		return SessionDrained
	}
	return SessionLive
}

// Drain says why a node takes no runs.
type Drain struct {
	Since      time.Time
	By, Reason string
}

// InWords says that a node is drained, by whom and why.
func (d *Drain) InWords(node string) string {
	text := "node " + node + " was drained by " + d.By
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}

// DrainNode asks for a node to take no more runs.
type DrainNode struct {
	Node   string
	Undo   bool // to take runs again
	Reason string
	Actor  string
}

// Load is what a node says of itself each time that it renews its session: what it
// has to do, and how its clock is.
type Load struct {
	Running int
	Ready   int
	// ClockAhead is by how much its wall clock is ahead of the store's, less than 0
	// if it is behind. Nothing is decided by it.
	ClockAhead time.Duration
}
