package belfry

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/node/unreported"
	"github.com/belfry-cron/belfry/internal/remote"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ErrClosed is returned by methods of a [Scheduler] that is closed, or whose [Run] has
// returned.
var ErrClosed = errors.New("the scheduler is closed")

// Scheduler runs the jobs of a program. Create one with [New], or with [Connect] if the program has no
// store. Register handlers and declare jobs before [Run]; the other methods may be called from any
// goroutine, even before [Run] or without it.
type Scheduler struct {
	settings settings
	opener   store.Opener
	remote   *remote.Client // set by Connect, which has no opener
	light    *light         // of Light

	mu       sync.Mutex
	handlers map[string]*handler
	jobs     map[string]*declaration
	flows    []*flow
	names    []string // names of the jobs, in the order of declaration
	mistakes []error
	running  bool
	closed   bool
	store    store.Store
	service  *service.Service
	node     *node.Node // once it runs
	metrics  *metrics.Metrics

	// abandon is closed when the stopping program abandons handlers that ignore their context.
	abandon chan struct{}
}

// New returns a scheduler on a store, such as postgres.URL(url) or sqlite.File(path), or without
// one: see [Light]. [Scheduler.Run], or the first call that needs the store, opens it.
func New(open store.Opener, options ...Option) *Scheduler {
	s := newScheduler(options)
	s.opener = open
	if isLight(open) {
		s.light = newLight(s)
		if s.settings.handlersOnly || s.settings.spool != "" {
			s.mistake(caller(), "belfry.New: WithHandlersOnly and WithSpool are for programs with a store, and light mode has none")
		}
	}
	if open == nil {
		s.mistake(caller(), "belfry.New: the store is missing: give sqlite.File(path), postgres.URL(url) or memory.Empty()")
	}
	if s.settings.connection.isSet() {
		s.mistake(caller(), "belfry.New: WithServers, WithToken, WithTransport and WithPlainHTTP are for Connect")
	}
	return s
}

func newScheduler(options []Option) *Scheduler {
	s := &Scheduler{
		settings: defaultSettings(), abandon: make(chan struct{}), metrics: metrics.New(),
		handlers: map[string]*handler{}, jobs: map[string]*declaration{},
	}
	for _, option := range options {
		option(&s.settings)
	}
	return s
}

// mistake records a mistake in the code at a place, for Check and [Run].
func (s *Scheduler) mistake(place, format string, args ...any) {
	s.mu.Lock()
	s.mistakes = append(s.mistakes, fmt.Errorf(place+": "+format, args...))
	late := s.running
	s.mu.Unlock()
	if late {
		s.settings.log.Error("a handler or job was registered wrongly and is ignored", "error", fmt.Sprintf(format, args...), "at", place)
	}
}

// caller returns the file and line of the program that called this package.
func caller() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		own := packageOf(f.Function) == "github.com/belfry-cron/belfry" && !isTest(f.File)
		if !own || !more {
			return fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)
		}
	}
}

func isTest(file string) bool {
	const suffix = "_test.go"
	return len(file) > len(suffix) && file[len(file)-len(suffix):] == suffix
}

// packageOf returns the import path of a function by its full name.
func packageOf(function string) string {
	dir, name := path.Split(function)
	for i := range name {
		if name[i] == '.' {
			return dir + name[:i]
		}
	}
	return function
}

// Check reports all mistakes in the registrations and declarations so far, each with its
// file and line. Run calls it first. It opens no store, so that tests of the program can
// call it.
func (s *Scheduler) Check() error {
	s.mu.Lock()
	mistakes := slices.Clone(s.mistakes)
	declared := make([]*declaration, len(s.names))
	for i, name := range s.names {
		declared[i] = s.jobs[name]
	}
	handlers, flows := maps.Clone(s.handlers), slices.Clone(s.flows)
	s.mu.Unlock()
	for _, f := range flows {
		mistakes = append(mistakes, f.check()...)
	}
	for _, d := range declared {
		mistakes = append(mistakes, d.check(handlers)...)
	}
	if s.light != nil {
		mistakes = append(mistakes, s.light.check(handlers)...)
	}
	if s.remote != nil && len(handlers) == 0 {
		mistakes = append(mistakes, errors.New("belfry.Connect: the program has no handlers and would run nothing: register them with Handle"))
	}
	return errors.Join(mistakes...)
}

// open opens the store when it is first needed.
func (s *Scheduler) open(ctx context.Context) (*service.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.light != nil {
		return nil, errLight
	}
	if s.service != nil {
		return s.service, nil
	}
	if s.remote != nil {
		return nil, ErrNoStore
	}
	if s.opener == nil {
		return nil, errors.Join(s.mistakes...)
	}
	opened, err := s.opener(ctx)
	if err != nil {
		return nil, err
	}
	svc, err := s.serviceOn(opened, nil)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	if store.IsPooled(opened) {
		s.settings.log.Info("the store is behind a connection pooler: each transaction brings its settings, and hints of other programs are polled for")
	}
	s.store, s.service = opened, svc
	return svc, nil
}

// serviceOn returns the service for the calls of the program. Without a planner, other nodes plan
// the changes.
func (s *Scheduler) serviceOn(st store.Store, planner service.Planner) (*service.Service, error) {
	transactions, _ := st.(store.Transactional)
	return service.New(service.Config{
		Store: st, Transactions: transactions, Planner: planner, Tokens: auth.New(st, s.settings.now), Node: s.settings.node,
		Now: s.settings.now, Log: s.settings.log,
	})
}

// Close closes the store of a scheduler that does not run. [Scheduler.Run] closes it at its end.
func (s *Scheduler) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running || s.closed {
		return nil
	}
	s.closed = true
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// begin notes that [Run] was called.
func (s *Scheduler) begin() error {
	if err := s.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.running:
		return errors.New("belfry: Run was called twice")
	}
	s.running = true
	for _, h := range s.handlers {
		h.chain = chainOf(s.settings.middleware, h.call)
	}
	return nil
}

// end releases the resources of [Run].
func (s *Scheduler) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.closed = false, true
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// Run runs a node until ctx ends: it writes the declared jobs to the store, plans jobs
// together with the other nodes, and runs its share. Then it claims no more runs, waits
// for its handlers for at most the drain timeout (see [WithDrainTimeout]), closes the store
// and returns nil. It returns an error for mistakes in the program, see Check, or if it
// cannot open the store; later failures of the store are retried.
func (s *Scheduler) Run(ctx context.Context) (err error) {
	if err := s.begin(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	switch {
	case s.remote != nil:
		return s.runConnected(ctx)
	case s.light != nil:
		return s.light.run(ctx)
	}
	svc, err := s.open(ctx)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	// The planner is not running yet: runs of declared jobs would wait for it.
	owner := s.ownership(svc)
	if err := owner.start(ctx); err != nil {
		return unlessStopped(ctx, err)
	}
	spool, err := s.openSpool(ctx, nil)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer func() { err = errors.Join(err, spool.Close()) }()
	n, err := s.makeNode(ctx, spool)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	if svc, err = s.serviceOn(s.store, n.Planner()); err != nil {
		return unlessStopped(ctx, err)
	}
	s.mu.Lock()
	s.service = svc
	s.mu.Unlock()
	owner.service = svc
	var group sync.WaitGroup
	owning, stopOwning := context.WithCancel(ctx)
	group.Go(func() { owner.run(owning) })
	group.Go(func() { svc.Requests.Run(owning) })
	err = s.runNode(ctx, n)
	stopOwning()
	group.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // it was stopped before it began
	}
	return err
}

// unlessStopped returns the error of a start, and nil if that was stopped before its end.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// runNode runs a node, and abandons handlers that ignore their context.
func (s *Scheduler) runNode(ctx context.Context, n *node.Node) error {
	s.mu.Lock()
	s.node = n
	s.mu.Unlock()
	var group sync.WaitGroup
	over := make(chan struct{})
	group.Go(func() { s.abandonAfter(ctx, over) })
	err := n.Run(ctx)
	close(over)
	group.Wait()
	return err
}

// abandonMargin is how long [Run] waits, beyond the drain timeout and the grace of its jobs,
// for handlers that ignore their context.
const abandonMargin = 15 * time.Second

// abandonAfter abandons handlers that still run long after their context ended.
func (s *Scheduler) abandonAfter(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	select {
	case <-over:
	case <-time.After(s.settings.drain + abandonMargin):
		close(s.abandon)
	}
}

// makeNode makes the node that [Run] runs.
func (s *Scheduler) makeNode(ctx context.Context, spool *unreported.Spool) (*node.Node, error) {
	machine, err := s.machine(ctx)
	if err != nil {
		return nil, err
	}
	roles := []string{store.RolePlanner, store.RoleHandlers}
	if s.settings.handlersOnly {
		roles = roles[1:]
	}
	c := s.nodeConfig(machine, roles)
	c.StoreName = "the store"
	if spool != nil {
		c.Spool = spool
	}
	return node.New(c.On(s.store))
}

// nodeConfig describes this process as a node, but for its store.
func (s *Scheduler) nodeConfig(machine string, roles []string) node.Config {
	session := store.Session{
		Node: s.settings.node, Machine: machine, DataDir: machine, Roles: roles, Labels: s.sessionLabels(),
		Handlers: slices.Sorted(maps.Keys(s.handlers)), Capacity: s.settings.capacity, Version: version(), Zones: cron.ZoneTableVersion(),
	}
	return node.Config{
		Session: session, Capacity: s.settings.capacity,
		DrainTimeout: s.settings.drain, Retention: s.settings.retention, OutputLimit: s.settings.outputLimit,
		Executors: func(j *job.Job) executor.Executor {
			if handlerOf(j) == "" {
				return nil // it was not placed on this node
			}
			return (*functions)(s)
		},
		Observer: s.metrics,
		Now:      s.settings.now, Boot: s.settings.boot, Log: s.settings.log,
	}
}

// machine distinguishes this process from others. On a single-process store, attempts of earlier
// processes have ended and are settled at once.
func (s *Scheduler) machine(ctx context.Context) (string, error) {
	if s.isAlone(ctx) {
		return "the only process", nil
	}
	id, err := job.NewID(s.settings.now(), rand.Reader)
	return id.String(), err
}

// isAlone reports whether the store serves this process alone.
func (s *Scheduler) isAlone(ctx context.Context) bool {
	probe, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.store.EventsElsewhere(probe) == nil
}

// version returns the build version of the program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}

// program returns the name of the program: the import path of its main package, or of its file
// without one.
func program() string {
	info, ok := debug.ReadBuildInfo()
	if ok && info.Path != "" && info.Path != "command-line-arguments" {
		return info.Path
	}
	return path.Base(os.Args[0])
}

// nodeName returns the name of this process among the nodes.
func nodeName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// settings are the values of options.
type settings struct {
	namespace    string
	owner        string
	node         string
	labels       map[string]string
	capacity     int
	drain        time.Duration
	retention    store.Retention
	outputLimit  int
	handlersOnly bool
	middleware   []Middleware
	inject       []func(ctx context.Context, metadata map[string]string)
	log          *slog.Logger
	logLevel     slog.Level
	now          func() time.Time
	boot         func() time.Duration
	connection   connection
	spool        string
}

// The default retention, the same as of a server.
const (
	keepHistory = 90 * 24 * time.Hour
	keepOutput  = 30 * 24 * time.Hour
	keepAudit   = 400 * 24 * time.Hour
	auditMax    = 1_000_000
)

func defaultSettings() settings {
	return settings{
		namespace: job.DefaultNamespace, owner: program(), node: nodeName(), capacity: node.DefaultCapacity, drain: node.DefaultDrainTimeout,
		retention: store.Retention{For: keepHistory, OutputFor: keepOutput, AuditFor: keepAudit, Audit: auditMax},
		log:       slog.Default(), now: time.Now, boot: clock.Boot,
	}
}

// Option configures a [Scheduler].
type Option func(*settings)

// WithNamespace puts the jobs of the program into a namespace of the store, so that several
// services can share one. Default: default.
func WithNamespace(name string) Option { return func(s *settings) { s.namespace = name } }

// WithOwner names the program that owns the declared jobs. Instances with the same owner are the
// same program, in one or more versions; two programs on one store and namespace must have
// different ones. Default: the import path of the main package.
//
// A version of the program is the set of jobs that it declares. The store records the order in
// which the versions of an owner first appeared: the latest declares, and instances of earlier
// versions leave the jobs alone while an instance of the latest is live. When none has been live
// for half a minute, as after a rollback, the running version becomes the latest.
func WithOwner(name string) Option { return func(s *settings) { s.owner = name } }

// WithNodeName names the process among the nodes. Default: the host and the process id.
func WithNodeName(name string) Option { return func(s *settings) { s.node = name } }

// WithLabels gives the node labels, for [PlaceOn].
func WithLabels(labels map[string]string) Option {
	return func(s *settings) { s.labels = maps.Clone(labels) }
}

// WithCapacity bounds the concurrent handlers of this process. Default: 512.
func WithCapacity(n int) Option { return func(s *settings) { s.capacity = cmp.Or(n, s.capacity) } }

// WithDrainTimeout bounds how long [Run] waits for handlers after its context has ended; then
// their contexts end. Default: 30 s.
func WithDrainTimeout(d time.Duration) Option {
	return func(s *settings) { s.drain = cmp.Or(d, s.drain) }
}

// WithHistory sets how long finished runs and their output are kept, and how many of each job,
// unless the job sets it; 0 means no limit. Use the same values on all nodes of one store. Default:
// any number for 90 days, and output for 30 days.
func WithHistory(keep job.Keep) Option {
	return func(s *settings) {
		s.retention.Runs = keep.Runs
		s.retention.For, s.retention.OutputFor = time.Duration(keep.For), time.Duration(cmp.Or(keep.OutputFor, keep.For))
	}
}

// WithOutputLimit sets how many bytes of the output of an attempt are kept, the first and the last
// half; at least 8 KiB. Default: 1 MiB.
func WithOutputLimit(bytes int) Option { return func(s *settings) { s.outputLimit = bytes } }

// WithMiddleware puts functions around every handler, the first outermost.
func WithMiddleware(m ...Middleware) Option {
	return func(s *settings) { s.middleware = append(s.middleware, m...) }
}

// WithMetadata calls a function with the context of each Trigger. The map that it fills,
// with a trace context for example, travels with the run, and is Run.Metadata there and in
// the runs that follow it. Package otelbelfry uses it.
func WithMetadata(inject func(ctx context.Context, metadata map[string]string)) Option {
	return func(s *settings) { s.inject = append(s.inject, inject) }
}

// WithLogger sets the logger for messages of the node to operators. Messages of handlers go into
// the output of their runs. Default: slog.Default().
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithLogLevel sets the least level that Run.Log keeps. Default: [slog.LevelInfo].
func WithLogLevel(level slog.Level) Option { return func(s *settings) { s.logLevel = level } }

// WithHandlersOnly makes a program that only runs its handlers, for jobs declared or
// applied elsewhere: it declares and plans no jobs.
func WithHandlersOnly() Option { return func(s *settings) { s.handlersOnly = true } }

// WithClock replaces the wall clock of the machine, and the monotonic one that continues
// during sleep. It is for tests; package belfrytest uses it.
func WithClock(now func() time.Time, boot func() time.Duration) Option {
	return func(s *settings) { s.now, s.boot = now, boot }
}

// WithOptions combines options.
func WithOptions(options ...Option) Option {
	return func(s *settings) {
		for _, option := range options {
			option(s)
		}
	}
}
