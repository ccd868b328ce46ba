// Package server puts the process of a server together and runs it: it opens the store, makes
// the executors, the node with its roles, the service and the HTTP API, and stops them in
// order. It decides nothing about jobs, and has no command line: package cli reads flags and
// files, and words what went wrong.
package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/executor/container"
	httpexec "github.com/belfry-cron/belfry/executor/http"
	kubeexec "github.com/belfry-cron/belfry/executor/kubernetes"
	"github.com/belfry-cron/belfry/executor/shell"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/callback"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/internal/server/notify"
	"github.com/belfry-cron/belfry/internal/server/runlog"
	"github.com/belfry-cron/belfry/internal/server/scan"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/server/signin"
	"github.com/belfry-cron/belfry/internal/server/telemetry"
	"github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/joined"
)

// Config configures a server.
type Config struct {
	// Settings are validated, and include the user of commands.
	Settings config.Server
	// SettingsFile is the name of the configuration file, for errors about it.
	SettingsFile string
	// Read rereads the settings, with their mistakes. Nil: they stay.
	Read func() (c config.Server, mistakes []string, err error)
	// Version is the version of the program.
	Version string
	// Getenv reads the environment, in which systemd names its socket.
	Getenv func(string) string
	// Now is the clock of the machine.
	Now func() time.Time
	Log *slog.Logger
	// Level is the level of Log, which a reload changes.
	Level *slog.LevelVar
	// CarryOver is the state of the previous version in this process; nil for none.
	CarryOver *CarryOver
	// Listening is called once, when the server listens on its address and will answer requests.
	// Its context ends with the last answer.
	Listening func(context.Context, *Server)
}

// Server is an open server. Use [Open].
type Server struct {
	Config
	manager  systemd
	started  func()        // ends the progress reports of the start
	loaded   config.Server // the settings last read
	commands *shell.Executor
	requests *httpexec.Executor
	// containers is nil on a machine without a container engine.
	containers *container.Executor
	jobs       *kubeexec.Executor
	store      store.Store
	apart      *joined.Store // the store, if history is separate
	metrics    *metrics.Metrics
	telemetry  *telemetry.Telemetry
	losses     *losses
	ends       *runlog.Log
	secrets    *secret.Keeper
	unopened   atomic.Pointer[secret.Unopened] // unopened secrets; nil before the first check
	sender     *notify.Sender
	notifier   *notify.Notifier
	waking     atomic.Pointer[notify.Notifier] // the same, for commits before it was set
	measured   store.Store                     // the store, with its calls measured
	tokens     *auth.Tokens
	signIn     *signin.Provider // nil if people sign in only with tokens
	watchdog   *watchdog.Node
	node       *node.Node
	working    atomic.Pointer[node.Node] // the node, while it runs
	events     *events.Hub
	// followers are the followers of the output of runs.
	followers *service.Followers
	service   *service.Service
	workers   *host.Workers
	http      *http.Server
	xxl       executorsOfXXL
	own       *certificate // nil without TLS
	listen    *connections
	address   string    // the address with which listen was opened
	since     time.Time // when it was opened
	version   struct {  // of the store
		sync.Mutex
		text string
		read time.Time
	}
	starting *starts
	reloads  chan struct{}  // of capacity one
	closers  []func() error // in the order of opening
	socket   *net.TCPListener
	carrying *CarryOver // state for the next version of the program
}

// spawning gives the runtime one more processor than the machine has, unless the number is
// configured: a thread that starts a process holds one while it waits for the kernel.
var spawning = sync.OnceFunc(func() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
})

// Open opens everything that can fail before the first job runs. Steps without files come first, so
// that a server that cannot start leaves no files. The caller closes the server. Errors are a
// *ListenError, a *StoreError, [ErrStopped], or self-explanatory.
func Open(ctx context.Context, c Config) (*Server, error) {
	keepInherited()
	if c.Settings.Has(store.RoleWorker) {
		spawning()
	}
	s := &Server{Config: c, loaded: c.Settings, since: c.Now(), reloads: make(chan struct{}, 1), manager: systemdOf(c.Getenv, c.Log)}
	s.reportStart(ctx)
	if err := s.open(ctx); err != nil {
		if ctx.Err() != nil && (s.mayReturn(err) || errors.Is(err, context.Canceled)) {
			err = ErrStopped
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// reportStart reports progress to the service manager until started is called.
func (s *Server) reportStart(ctx context.Context) {
	s.manager.continues = s.CarryOver != nil
	starting, started := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { s.manager.starting(starting) })
	s.started = func() { started(); group.Wait() }
}

// transactions returns the transactions of programs in the database of the store, nil for none.
func (s *Server) transactions() (in store.Transactional) {
	if s.apart != nil {
		in, _ = s.apart.Control.(store.Transactional)
		return in
	}
	in, _ = s.store.(store.Transactional)
	return in
}

// ErrStopped is the error of [Open] when its context ended while it waited for the store.
var ErrStopped = errors.New("the server was stopped before it reached its store")

func (s *Server) open(ctx context.Context) error {
	s.openTelemetry(ctx, s.families)
	if err := s.listenHTTP(); err != nil {
		return err
	}
	if err := s.listenXXL(); err != nil {
		return err
	}
	if err := s.readCertificate(); err != nil {
		return err
	}
	s.metrics, s.ends = metrics.New(), runlog.New(s.Log, s.Now)
	if err := s.openData(ctx); err != nil {
		return err
	}
	s.closers = append(s.closers, s.store.Close)
	s.measured = s.metrics.Measure(s.store)
	var isNew bool
	if err := s.whenReached(ctx, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, reachTry)
		defer cancel()
		isNew, err = auth.First(ctx, s.store, s.Settings.Data)
		return err
	}); err != nil {
		return err
	}
	s.tokens = auth.New(s.store, s.Now)
	if file, there := s.TokenFile(); isNew {
		s.Log.Info("created the admin token; the CLI finds it when run as this user", "file", file)
	} else if !there {
		s.Log.Info("the admin token file is missing, so the CLI on this machine needs BELFRY_TOKEN; an administrator creates one with belfry token create, or the user of this server with belfry token reset while it is stopped", "file", file)
	}
	s.followers = service.NewFollowers(s.measured)
	if err := s.makeXXL(); err != nil {
		return err
	}
	choose, err := s.makeExecutors(ctx)
	if err != nil {
		return err
	}
	machine, err := machineOf(s.Settings.Data)
	if err != nil {
		return err
	}
	s.makeSecrets()
	s.makeSender()
	s.starting = &starts{Observer: s.metrics, now: s.Now}
	spool, err := s.openSpool(ctx, nil)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, spool.Close)
	parts := node.Config{
		CarryOver: s.CarryOver.node(), Spool: spool,
		StoreName: s.Settings.Store.Shown(), Wrote: s.followers.Wrote, Executors: choose, Observer: s.starting,
		Trace:    s.telemetry.Tracer(), //nolint:contextcheck // spans have contexts of their own
		Keepers:  []node.Keeper{callback.New(s.measured, clock.Boot), s.jobs},
		Folders:  folders{s.commands, s.containers},
		Watchdog: s.watchdog, OutputLimit: int(s.Settings.Output), Capacity: s.Settings.Capacity,
		DrainTimeout: time.Duration(s.Settings.Drain),
		Retention:    retentionOf(s.Settings),
		Session: store.Session{
			Node: s.Settings.Name, Machine: machine, DataDir: s.Settings.Data, Labels: s.Settings.Labels,
			Roles: s.roles(), Capacity: s.capacity(), Version: s.Version, Zones: cron.ZoneTableVersion(),
			Address: s.URL(), Handlers: s.handlers(),
		},
		Secrets: s.secretsOf,
		Now:     s.Now, Log: s.Log,
	}.On(s.measured)
	parts.Upkeep = overdue{parts.Upkeep, s}
	s.node, err = node.New(parts)
	if err != nil {
		return err
	}
	return s.makeHTTP() //nolint:contextcheck // requests have contexts of their own
}

// openTelemetry opens the telemetry, with metrics while a node runs in this process.
func (s *Server) openTelemetry(ctx context.Context, families func(context.Context) []metrics.Family) {
	s.telemetry = telemetry.Open(ctx, telemetry.Config{
		Getenv: s.Getenv, Node: s.Settings.Name, Version: s.Version, Level: s.Level, Log: s.Log,
		Families: func(ctx context.Context) []metrics.Family {
			if s.working.Load() == nil {
				return nil
			}
			return families(ctx)
		},
	})
	s.Log = s.telemetry.Logging(s.Log)
	s.closers = append(s.closers, func() error { s.telemetry.Close(); return nil }) //nolint:contextcheck // the last batches are sent when all else has ended
}

// makeData creates the data directory if necessary, and refuses one of another user.
func (s *Server) makeData() error {
	dir := s.Settings.Data
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the data directory: %w", err)
	}
	if owner, foreign := config.OtherOwner(info); foreign {
		name := config.UserName(owner)
		return fmt.Errorf("the data directory %s belongs to %s and this server runs as %s: its owner could change what the server trusts (run it as %s, or give it the directory with chown)", dir, name, config.UserName(os.Geteuid()), name)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		// Mounted volumes often have such a mode.
		s.Log.Warn("the data directory is open to other users of this machine", "dir", dir, "mode", fmt.Sprintf("%04o", mode), "better", "0700")
	}
	return nil
}

// openData opens the store and the data directory, which it makes if need be.
func (s *Server) openData(ctx context.Context) error {
	_, err := os.Stat(s.Settings.Data)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := s.makeData(); err != nil {
		return err
	}
	ended := func(e store.Ends) { //nolint:contextcheck // spans have contexts of their own
		s.metrics.RunsEnded(e)
		s.telemetry.Ended(e)
		s.ends.Ended(e)
		s.wakeNotifier(e)
	}
	s.losses = newLosses(s.Settings.Name, s.Log, s.metrics.StepsLost)
	err = s.whenReached(ctx, func(ctx context.Context) (err error) {
		s.store, err = OpenStore(ctx, s.Settings, StoreOptions{Now: s.Now, Log: s.Log, Ended: ended, Lost: s.losses.Lost})
		if err != nil {
			return err
		}
		reading, cancel := context.WithTimeout(ctx, lossTimeout)
		defer cancel()
		if err = s.losses.Restore(reading, s.store); err != nil {
			err = &StoreError{errors.Join(err, s.store.Close())}
		}
		return err
	})
	if err != nil && isNew {
		_ = os.Remove(s.Settings.Data) // fails if it is not empty
	}
	s.apart, _ = s.store.(*joined.Store)
	return err
}

// roles returns the roles of the node in the cluster.
func (s *Server) roles() []string {
	var list []string
	for _, role := range s.Settings.Roles {
		list = append(list, string(role))
	}
	return list
}

// capacity returns the published capacity: none without the role worker.
func (s *Server) capacity() int {
	if !s.Settings.Has(store.RoleWorker) {
		return 0
	}
	return s.Settings.Capacity
}

// Close closes everything that was opened, in reverse order.
func (s *Server) Close() (err error) {
	s.started()
	for _, last := range slices.Backward(s.closers) {
		err = errors.Join(err, last())
	}
	return err
}

// URL returns the address of the server for clients on this machine.
func (s *Server) URL() string {
	return config.LocalURL(s.listen.Addr(), s.Settings.TLS.Cert != "")
}

// TokenFile returns the file of the administrator's token, and whether it exists.
func (s *Server) TokenFile() (file string, there bool) {
	file = filepath.Join(s.Settings.Data, auth.TokenFile)
	_, err := os.Stat(file)
	return file, !errors.Is(err, fs.ErrNotExist)
}

// HasJobs reports whether there are jobs, if they can be read.
func (s *Server) HasJobs(ctx context.Context) bool {
	jobs, _, err := s.store.ListJobs(ctx, store.JobQuery{Limit: 1})
	return err != nil || len(jobs) > 0
}

// Running returns the running attempts; none before Run and after it. It may be called from any
// goroutine.
func (s *Server) Running() []worker.Running {
	if n := s.working.Load(); n != nil {
		return n.Running()
	}
	return nil
}

// Reload requests a reload of the settings. It may be called from any goroutine.
func (s *Server) Reload() {
	select {
	case s.reloads <- struct{}{}:
	default: // a request is already waiting
	}
}

// stopTime bounds answers that began before the end.
const stopTime = 5 * time.Second

// Run works until ctx ends. The server answers requests while the node stops, so that users can see
// why.
func (s *Server) Run(ctx context.Context) error {
	answering, stopAnswering := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAnswering()
	s.http.BaseContext = func(net.Listener) context.Context { return answering }
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	var group sync.WaitGroup
	served := make(chan error, 1)
	group.Go(func() {
		served <- s.serve()
		stop()
	})
	token, _ := s.TokenFile()
	local := config.Local{URL: s.URL(), TokenFile: token, SharedUser: s.Settings.SharedUser(), File: s.SettingsFile, Reload: s.reloadCommand()}
	if err := config.WriteAddress(s.Settings.Data, local); err != nil {
		s.Log.Warn("cannot write the address file; clients on this machine need --server", "error", err)
	}
	if s.Listening != nil {
		s.Listening(answering, s)
	}
	group.Go(func() { _ = s.events.Run(answering) })
	if s.apart != nil {
		group.Go(func() { s.apart.Run(answering) })
	}
	executorsServed := make(chan error, 1)
	group.Go(func() {
		executorsServed <- s.serveXXL(answering)
		if s.xxl.admin != nil {
			stop()
		}
	})
	group.Go(func() { s.ends.Run(answering) })
	teller := s.teller()
	telling, stopTelling := context.WithCancel(answering)
	defer stopTelling()
	var reports sync.WaitGroup
	reports.Go(func() { s.tell(telling, teller) })
	if s.Settings.Has(store.RoleAPI) {
		group.Go(func() { s.notifier.Run(answering) })
	}
	group.Go(func() { s.losses.Run(answering, s.store) })
	group.Go(func() { s.watchSecrets(answering) })
	group.Go(func() { s.reloadOn(ctx, s.reloads) })
	group.Go(func() { s.watchEngine(answering, s.node.Publish) })
	group.Go(func() { _ = s.followers.Run(answering) })
	group.Go(func() { (&scan.Scanner{Store: s.measured, Turn: s.node.Turn, Log: s.Log}).Run(answering) })
	group.Go(func() { s.workers.Run(answering) })
	group.Go(func() { s.service.Requests.Run(answering) })
	if s.signIn != nil {
		// The log shows a mistake at the start, which does not wait for the provider.
		group.Go(func() { s.checkSignIn(answering) })
	}
	stopped := make(chan struct{}) // closed once the node has stopped
	group.Go(func() {
		<-ctx.Done()
		s.logWaiting(ctx, stopped)
	})
	group.Go(func() {
		s.manager.run(ctx, s.node.Planner().Ready(), stopped, s.started, s.node.Planner().Sync)
	})
	s.working.Store(s.node)
	worked := s.node.Run(ctx)
	s.working.Store(nil)
	s.carryOver(s.node.ToCarry())
	stopTelling()
	reports.Wait()
	close(stopped)
	if ctx.Err() != nil && errors.Is(worked, context.Canceled) {
		worked = nil // it was stopped before it began
	}
	stop()

	if s.carrying != nil {
		// The address stays: its requests wait for the next version.
	} else if err := config.RemoveAddress(s.Settings.Data); err != nil {
		s.Log.Debug("cannot remove the address file", "error", err)
	}
	s.stopXXL(ctx, stopTime) // results are accepted until the end
	stopAnswering()          // ends the streams
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	s.sayLeft(closing, teller)
	if err := s.http.Shutdown(closing); err != nil {
		_ = s.http.Close() // remaining answers have had enough time
	}
	group.Wait()
	if err := errors.Join(worked, <-served, <-executorsServed); err != nil {
		return err
	}
	if s.carrying == nil {
		s.Log.Info("stopped")
	}
	return nil
}

const (
	// NamedMax is how many attempts the log names when a server stops.
	NamedMax = 20
	// waitingEvery is how often a stopping server logs that it still waits.
	waitingEvery = 10 * time.Second
)

// logWaiting logs why a stopping server has not stopped yet.
func (s *Server) logWaiting(ctx context.Context, stopped <-chan struct{}) {
	list := s.node.Running()
	if isUpgrade(ctx) {
		s.Log.Info("upgrading: nothing new starts, running commands continue, other attempts may finish", "within", time.Duration(s.Settings.Drain).String(), "attempts", len(list))
		return
	}
	s.Log.Info("stopping: nothing new starts, running attempts may finish; a second interrupt stops at once",
		"within", time.Duration(s.Settings.Drain).String(), "attempts", len(list))
	for _, a := range list[:min(len(list), NamedMax)] {
		s.Log.Info("waiting for an attempt to end", "job", a.Job, "run", a.Run, "attempt", a.Attempt)
	}
	ticker := time.NewTicker(waitingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-ticker.C:
			if list := s.node.Running(); len(list) > 0 {
				s.Log.Info("still waiting for attempts to end", slog.Int("attempts", len(list)), slog.String("job", list[0].Job), slog.Any("run", list[0].Run))
			}
		}
	}
}
