// Package service implements the operations of a server: apply documents, run, backfill,
// cancel and explain runs, follow output and events, and list everything. The HTTP API, web
// pages and other protocols parse a request, call a method here and print its result.
//
// Every method takes its [Caller] and checks the caller's role and namespace first, so that
// no interface of the server can forget it. Arguments and results are the plain types of
// package client, the same for every interface. An error is an *Error, or [ErrorOf] makes one
// of it.
package service

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/forecast"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is the part of a store that the topics use together.
type Store interface {
	jobStore
	applyStore
	revisionStore
	kindStore
	runStore
	outputStore
	nodeStore
	auditStore
	tokenStore
	statsStore
	noticeStore
	secret.Notes
	Asked(ctx context.Context, list []store.Answer) error
	Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)
	pastStore
}

// Planner is the part of the node that plans.
type Planner interface {
	// NextAfter returns the first moment, not before at, at which a job falls due.
	NextAfter(uid job.ID, at time.Time) (time.Time, bool)
	// Upcoming returns at most n jobs in the order of their next moments, not before at,
	// beginning behind a place in that order.
	Upcoming(at time.Time, after engine.Upcoming, n int) []engine.Upcoming
	// Timings returns the schedules of some active jobs, nil for all.
	Timings(of []job.ID) []forecast.Timing
	// Sync plans recent changes now.
	Sync(ctx context.Context) error
	// Ready is closed when all jobs are loaded.
	Ready() <-chan struct{}
}

// Config configures a [Service].
type Config struct {
	Store Store
	// Transactions has the transactions of programs, nil for a store without them.
	Transactions store.Transactional
	// Planner may be nil: then the next moments of jobs are unknown.
	Planner Planner
	// Events has the events of the store while its Run works. Nil: events cannot be
	// followed.
	Events *events.Hub
	// Followers wakes the streams of output. Default: they poll.
	Followers *Followers
	// LiveLogs reads the logs of running runs elsewhere. May be nil.
	LiveLogs LiveLogs
	// Tokens caches the tokens of the store.
	Tokens Tokens
	// People has the roles of people who sign in at a provider. Nil: no one can.
	People auth.People
	// Remark returns a warning for readiness checks, such as a full store or a history
	// store that lags, and an error if the server is not ready because of that. May be nil.
	Remark func() (warning phrase.Text, err error)
	// About describes the server, without the reports of others: nodes, and hints about
	// those. Nil: little is known.
	About func() client.Server
	// Secrets keeps secrets. Default: the store's secrets, without keys.
	Secrets *secret.Keeper
	// Send delivers a message to the service of a channel, for tests of channels. Nil: channels
	// cannot be tested.
	Send func(ctx context.Context, c *job.Channel, m *notification.Message) error
	// Node is the name of this node, "" for none.
	Node string
	// SharedUser is the user that both this server and commands of jobs run as, "" where
	// these are different ones.
	SharedUser string
	// Kept returns the retention of jobs without their own. Nil: everything is kept.
	Kept func() store.Retention
	// MayLose is set if the store may lose steps that it has acknowledged.
	MayLose bool
	// Defaults are the server's defaults for documents. The store has the same.
	Defaults job.Defaults
	// Now is the clock of this machine, which makes ids and measures waiting. Due times go
	// by the clock of the store. Default: [time.Now].
	Now func() time.Time
	// Log takes internal failures. Default: nothing.
	Log *slog.Logger
}

// Service has the operations of a server by topic. Use [New]. The methods of all topics may
// be called from many goroutines.
type Service struct {
	Jobs      *Jobs
	Documents *Documents
	Schedules *Schedules
	Calendars *KindDocuments
	Pools     *KindDocuments
	Windows   *KindDocuments
	Channels  *KindDocuments
	Listed    *KindDocuments // executors
	Hooks     *Hooks
	Runs      *Runs
	Requests  *Requests
	Output    *Output
	Lines     *Lines
	Events    *Events
	Nodes     *Nodes
	Executors *Executors
	Audit     *Audit
	Access    *Access
	Reports   *Reports
	Badges    *Badges
	Callbacks *Callbacks
	Attention *Attention
	Stats     *Stats
	Load      *Load
	Bulk      *Bulk
	Secrets   *Secrets
	// Notifications are the notifications of channels.
	Notifications *Notifications
}

// New returns a service.
func New(c Config) (*Service, error) {
	if c.Store == nil || c.Tokens == nil {
		return nil, errors.New("make the service: a store and its tokens are needed")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Followers == nil {
		c.Followers = NewFollowers(nil)
	}
	if c.Secrets == nil {
		c.Secrets = &secret.Keeper{Store: c.Store, Ring: &secret.Ring{Now: c.Now}, Getenv: func(string) string { return "" }, Now: c.Now}
	}
	if c.Kept == nil {
		c.Kept = func() store.Retention { return store.Retention{} }
	}
	s := &base{now: c.Now, log: c.Log, planner: c.Planner, nodes: c.Store}
	rules := &rulebook{store: c.Store, defaults: c.Defaults, secrets: c.Secrets}
	streams := &places{tokens: c.Tokens, people: c.People}
	jobs := &Jobs{base: s, rules: rules, store: c.Store, revisions: c.Store}
	runs := &Runs{base: s, jobs: jobs, rules: rules, store: c.Store, retention: c.Kept, mayLose: c.MayLose}
	var outputs outputStore = c.Store
	if c.LiveLogs != nil {
		outputs = &liveOutput{c.Store, c.LiveLogs}
	}
	output := &Output{base: s, runs: runs, store: outputs, followers: c.Followers, places: streams, node: c.Node}
	stats := &Stats{base: s, jobs: jobs, runs: runs, store: c.Store}
	notifications := &Notifications{base: s, store: c.Store, send: c.Send}
	nodes := &Nodes{store: c.Store, planner: c.Planner, remark: c.Remark, about: c.About, alarms: notifications, node: c.Node}
	audit := &Audit{base: s, store: c.Store}
	return &Service{
		Jobs:          jobs,
		Documents:     &Documents{base: s, rules: rules, store: c.Store},
		Schedules:     &Schedules{rules: rules},
		Calendars:     &KindDocuments{s, rules, job.KindCalendar, c.Store},
		Pools:         &KindDocuments{s, rules, job.KindPool, c.Store},
		Windows:       &KindDocuments{s, rules, job.KindWindow, c.Store},
		Channels:      &KindDocuments{s, rules, job.KindChannel, c.Store},
		Hooks:         &Hooks{KindDocuments: &KindDocuments{s, rules, job.KindHook, c.Store}, runs: runs, secrets: c.Secrets, notes: c.Store},
		Runs:          runs,
		Requests:      &Requests{base: s, runs: runs, store: c.Store, in: c.Transactions},
		Output:        output,
		Lines:         &Lines{output: output},
		Events:        &Events{hub: c.Events, jobs: jobs, stats: stats, places: streams},
		Nodes:         nodes,
		Listed:        &KindDocuments{s, rules, job.KindExecutors, c.Store},
		Executors:     &Executors{jobs: jobs, store: c.Store},
		Audit:         audit,
		Access:        &Access{store: c.Store, tokens: c.Tokens, sharedUser: c.SharedUser},
		Reports:       &Reports{base: s, jobs: jobs, store: c.Store, tokens: c.Tokens},
		Badges:        &Badges{base: s, jobs: jobs, store: c.Store, tokens: c.Tokens},
		Callbacks:     &Callbacks{base: s, store: c.Store},
		Attention:     &Attention{jobs: jobs, runs: runs, nodes: nodes, alarms: notifications, store: c.Store},
		Stats:         stats,
		Load:          &Load{base: s, jobs: jobs},
		Bulk:          &Bulk{jobs: jobs, runs: runs, audit: audit},
		Secrets:       &Secrets{c.Secrets},
		Notifications: notifications,
	}, nil
}

// base is what several topics use.
type base struct {
	now     func() time.Time
	log     *slog.Logger
	planner Planner
	nodes   nodeStore
}

// newID makes the id of a run.
func (s *base) newID() (job.ID, error) { return job.NewID(s.now(), rand.Reader) }

// syncWithin bounds how long a change waits for the planner. Later planning delays only
// jobs that are due at once.
const syncWithin = 2 * time.Second

// sync plans changes at once, so that a job that falls due in a second is in time.
func (s *base) sync(ctx context.Context) {
	if s.planner == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	if err := s.planner.Sync(ctx); err != nil {
		s.log.Debug("a change was not planned immediately", "error", err)
	}
}
