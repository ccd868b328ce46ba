package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/executor"
	httpexec "github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/executor/shell"
	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/internal/config"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/httpapi"
	"github.com/belfry-cron/belfry/internal/metrics"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/watchdog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func newServe(env Env) *cobra.Command {
	var (
		file  string
		flags config.Server
	)
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run a server: plan jobs, run them, answer requests",
		Long: `Run a server: plan jobs, run them, and answer requests. It keeps everything in
its data directory and needs nothing else. Servers with the same database as
their store, of PostgreSQL, MySQL or MariaDB, form a cluster, in which --roles
says what each does.

The first start makes a token for its administrator. It is in a file in the data
directory that nobody else can read; belfry on the same machine finds it there.

The first interrupt stops gently: nothing new starts, and what runs has the drain
time to end. The second one stops at once.`,
		Example: `belfry serve
belfry serve --data ./belfry --listen 127.0.0.1:9000
belfry serve --config /etc/belfry.yaml
belfry serve --store postgres://belfry@db.example.com/belfry
belfry serve --store mysql://belfry@db.example.com/belfry
belfry serve --listen :8420 --tls-cert server.pem --tls-key server.key`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, c, err := serverConfig(env, file, flags)
			if err != nil {
				return err
			}
			if flags.Store.Password() {
				logger(env, c).Warn("others on this machine can see the password of the store on the command line", "better", "BELFRY_STORE or the configuration file")
			}
			return serve(cmd.Context(), env, c, l.NameOf("store"))
		},
	}
	addServerFlags(cmd, &file, &flags)
	return cmd
}

// server is what serve puts together.
type server struct {
	env      Env
	config   config.Server
	log      *slog.Logger
	store    serverStore
	metrics  *metrics.Metrics
	measured store.Store // the store, with its calls measured
	tokens   *auth.Tokens
	hasToken bool // its file is there
	watchdog *watchdog.Node
	node     *node.Node
	events   *events.Hub
	// followers are those of the output of runs.
	followers *httpapi.Followers
	working   atomic.Pointer[node.Node] // the node, while it works
	started   func()                    // ends what says that the start goes on
	http      *http.Server
	listen    net.Listener
	closers   []func() error // in the order of opening
}

// spawning gives the runtime one processor more than the machine has, unless its user
// has said how many. Whoever makes a process keeps one of them until the program has
// begun, although it only waits for the kernel. It is once for the process, and no limit
// of a container that is changed later counts any more.
var spawning = sync.OnceFunc(func() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
})

// serve runs a server until ctx ends or a signal comes. storeName is what its user calls the
// address of the store.
func serve(ctx context.Context, env Env, c config.Server, storeName string) (err error) {
	keepInherited()
	if c.Has(store.RoleWorker) {
		spawning()
	}
	s := &server{env: env, config: c, log: logger(env, c)}
	ctx, stop := untilSignal(ctx, s.sayLost)
	defer stop()
	defer func() {
		for _, last := range slices.Backward(s.closers) {
			err = errors.Join(err, last())
		}
	}()
	manager := systemdOf(env.Getenv, s.log)
	starting, started := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { manager.starting(starting) })
	s.started = func() { started(); group.Wait() }
	defer s.started()
	if err := s.open(ctx, storeName); err != nil {
		return err
	}
	return s.run(ctx, manager)
}

// logger returns what the server tells about itself.
func logger(env Env, c config.Server) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // it was checked
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(env.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(env.Stderr, options))
}

// open opens everything that can fail before the first job runs.
func (s *server) open(ctx context.Context, storeName string) error {
	if err := os.MkdirAll(s.config.Data, 0o700); err != nil {
		return failed("make the data directory: %v", err)
	}
	info, err := os.Stat(s.config.Data)
	if err != nil {
		return failed("look at the data directory: %v", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		// A volume that somebody has mounted is often so.
		s.log.Warn("others on this machine can look into the data directory", "dir", s.config.Data, "mode", fmt.Sprintf("%04o", mode), "better", "0700")
	}
	if s.store, err = openStore(ctx, s.env, s.config, storeName, "--data names another directory, --listen another address"); err != nil {
		return err
	}
	s.closers = append(s.closers, s.store.Close)
	s.metrics = metrics.New()
	s.measured = s.metrics.Measure(s.store)
	made, err := auth.First(ctx, s.store, s.config.Data)
	if err != nil {
		return failed("%v", err)
	}
	s.tokens = auth.New(s.store, s.env.Now)
	_, err = os.Stat(s.tokenFile())
	s.hasToken = !errors.Is(err, fs.ErrNotExist)
	if made {
		s.log.Info("a token for the administrator was made; commands of this user find it", "file", s.tokenFile())
	} else if !s.hasToken {
		s.log.Info("commands on this machine find no token here: belfry token create makes one wherever there is an administrator's, and BELFRY_TOKEN has it", "missing", s.tokenFile())
	}
	if err := s.listenHTTP(); err != nil {
		return err
	}
	executors, err := s.executors(ctx)
	if err != nil {
		return failed("%v", err)
	}
	machine, err := machineOf(s.config.Data)
	if err != nil {
		return failed("%v", err)
	}
	s.followers = httpapi.NewFollowers(s.measured)
	s.node, err = node.New(node.Config{
		Store: s.measured, StoreName: s.config.Store.Shown(), Wrote: s.followers.Wrote, Executors: executors, Observer: s.metrics, Watchdog: s.watchdog, OutputLimit: int(s.config.Output), Capacity: s.config.Capacity,
		DrainTimeout: time.Duration(s.config.Drain),
		Retention: store.Retention{
			Runs: s.config.Keep.Runs, For: time.Duration(s.config.Keep.For), OutputFor: time.Duration(s.config.Keep.OutputFor),
			Audit: s.config.Keep.Audit, AuditFor: time.Duration(s.config.Keep.AuditFor),
		},
		Session: store.Session{
			Node: s.config.Name, Machine: machine, DataDir: s.config.Data, Labels: s.config.Labels,
			Roles: s.roles(), Capacity: s.capacity(), Version: versionOf(buildInfo()).Version, Zones: cron.ZoneTableVersion(),
			Address: s.url(),
		},
		Now: s.env.Now, Log: s.log,
	})
	if err != nil {
		return failed("%v", err)
	}
	return s.makeHTTP()
}

// roles returns what the node does, as the others see it.
func (s *server) roles() []string {
	var list []string
	for _, role := range s.config.Roles {
		list = append(list, string(role))
	}
	return list
}

// capacity returns how many attempts the others see room for: none without the
// role worker.
func (s *server) capacity() int {
	if !s.config.Has(store.RoleWorker) {
		return 0
	}
	return s.config.Capacity
}

func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
}

func (s *server) tokenFile() string { return filepath.Join(s.config.Data, auth.TokenFile) }

// executors makes what runs attempts, and the watchdog that ends commands when
// this process dies. A node without the role worker has them as well: the process
// before it may have had the role, and what that has left is ended and settled first.
func (s *server) executors(ctx context.Context) (func(*job.Job) executor.Executor, error) {
	log := func(text string) { s.log.Warn("watchdog: " + text) }
	// Another one that has this directory is told from the store; this waits
	// for the watchdog of a node that has just died.
	ctx, cancel := context.WithTimeout(ctx, watchdogWait)
	defer cancel()
	dog, err := watchdog.Open(ctx, watchdog.Config{Dir: s.config.Data, Log: log})
	if err != nil {
		return nil, err
	}
	s.watchdog = dog
	s.closers = append(s.closers, dog.Close)
	commands, err := shell.New(shell.Config{
		Watch: dog, Dir: s.config.Shell.Dir, Path: s.config.Shell.Path, Env: s.config.Shell.Env,
		DefaultUser: s.config.Shell.DefaultUser, AllowUsers: s.config.Shell.AllowUsers, AllowGroups: s.config.Shell.AllowGroups,
	})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, commands.Close)
	for _, text := range commands.Features().Missing {
		s.log.Debug("what commands go without: " + text)
	}
	requests, err := httpexec.New(httpexec.Config{
		Version: versionOf(buildInfo()).Version,
		Allow:   config.Prefixes(s.config.HTTP.Allow), Deny: config.Prefixes(s.config.HTTP.Deny),
	})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error { requests.Close(); return nil })
	return executorOf(commands, commands.Features(), requests, s.log), nil
}

// executorOf returns what chooses by what a job runs. With the first job that has limits it
// says which of them do not count for a run as a whole: most jobs have none.
func executorOf(commands executor.Executor, features shell.Features, requests executor.Executor, log *slog.Logger) func(*job.Job) executor.Executor {
	tell := sync.OnceFunc(func() {
		const why = "belfry doctor says what is missing"
		if features.Memory != "cgroup" {
			log.Warn("a limit of memory counts here for each process by itself", "why", why)
		}
		if features.CPU != "cgroup" {
			log.Warn("a limit of CPU counts here for each process by itself, as processor time within the timeout; without a timeout there is none", "why", why)
		}
	})
	return func(j *job.Job) executor.Executor {
		switch {
		case j.Run.Shell != nil:
			if j.Run.Limits != nil {
				tell()
			}
			return commands
		case j.Run.HTTP != nil:
			return requests
		}
		return nil
	}
}

// watchdogWait is longer than a watchdog takes to kill what has got its signal.
const watchdogWait = 15 * time.Second

// listenHTTP takes the address of the API.
func (s *server) listenHTTP() error {
	var err error
	s.listen, err = net.Listen("tcp", string(s.config.Listen))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return failed("the address %s is in use", s.config.Listen).withHint("is another belfry serve running? --listen names another address")
	case errors.Is(err, syscall.EACCES):
		return failed("the address %s may not be used by this user", s.config.Listen).withHint("ports below 1024 are for root; --listen names another address")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return failed("the address %s is none of this machine", s.config.Listen).withHint("--listen names another address; :PORT is all that the machine has")
	case err != nil:
		return failed("%v", err).withHint("--listen names another address")
	}
	s.closers = append(s.closers, func() error {
		if err := s.listen.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

// The bounds of a connection.
const (
	headerTime = 10 * time.Second // to send the headers
	readTime   = time.Minute      // to send all of a request: 16 MiB on a slow line
	answerTime = 2 * time.Minute  // to take the answer; who follows output has it for each event
	idleTime   = 2 * time.Minute  // until the next request
	headerMax  = 64 << 10
	// stopTime is how long answers may take that were begun before the end.
	stopTime = 5 * time.Second
)

// makeHTTP makes what answers requests.
func (s *server) makeHTTP() error {
	hosts := []string{s.config.Name}
	for _, host := range s.config.Hosts {
		hosts = append(hosts, string(host))
	}
	if host, _, err := net.SplitHostPort(string(s.config.Listen)); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	s.events = events.New(s.measured)
	handler, err := httpapi.Handler(httpapi.Config{
		Store: s.measured, Node: s.config.Name, Events: s.events, Followers: s.followers, Metrics: s.metricsHandler(), Planner: s.node.Planner(), Tokens: s.tokens, Hosts: hosts,
		Defaults: s.config.JobDefaults(), Version: versionOf(buildInfo()).Version, Now: s.env.Now, Log: s.log,
		WithoutAPI: !s.config.Has(store.RoleAPI),
	})
	if err != nil {
		return failed("%v", err)
	}
	s.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: answerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: headerMax,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if c := s.config.TLS; c.Cert != "" {
		own := &certificate{cert: c.Cert, key: c.Key, now: s.env.Now, log: s.log}
		if err := own.load(); err != nil {
			return failed("read the certificate %s with the key %s: %v", c.Cert, c.Key, err)
		}
		s.http.TLSConfig = &tls.Config{GetCertificate: own.get, MinVersion: tls.VersionTLS12}
	}
	return nil
}

// metricsHandler returns what answers to Prometheus.
func (s *server) metricsHandler() http.Handler {
	return s.metrics.Handler(metrics.Sources{
		Version: versionOf(buildInfo()).Version, Store: s.measured, Next: s.node.Planner().NextAfter, Ended: s.store.Ended,
		Load: func() metrics.Load {
			stats := s.node.Stats()
			return metrics.Load{
				Jobs: stats.Planner.Jobs, CatchingUp: stats.Planner.Held, Ahead: stats.Planner.Ahead, Capacity: stats.Capacity,
				Held: stats.Worker.Held, Pending: stats.Worker.Pending, Results: stats.Worker.Results,
				ClockAhead: stats.ClockAhead,
			}
		},
	})
}

func (s *server) url() string { return config.LocalURL(s.listen.Addr(), s.config.TLS.Cert != "") }

// run answers and works until ctx ends. Requests are answered while the node
// stops, so that one can see what it waits for.
func (s *server) run(ctx context.Context, manager systemd) error {
	answering, stopAnswering := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAnswering()
	s.http.BaseContext = func(net.Listener) context.Context { return answering }
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	var group sync.WaitGroup
	served := make(chan error, 1)
	group.Go(func() {
		var err error
		if s.config.TLS.Cert != "" {
			err = s.http.ServeTLS(s.listen, "", "") // it has the certificate
		} else {
			err = s.http.Serve(s.listen)
		}
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		served <- err
		stop()
	})
	if err := config.WriteAddress(s.config.Data, s.url(), s.tokenFile()); err != nil {
		s.log.Warn("clients on this machine must be told the address", "error", err)
	}
	s.announce()
	s.welcome(answering)
	group.Go(func() { _ = s.events.Run(answering) })
	group.Go(func() { _ = s.followers.Run(answering) })
	stopped := make(chan struct{}) // closed when the node has
	group.Go(func() {
		<-ctx.Done()
		s.sayWaiting(stopped)
	})
	group.Go(func() { manager.run(ctx, s.node.Planner().Ready(), stopped, s.started, s.node.Planner().Sync) })
	s.working.Store(s.node)
	worked := s.node.Run(ctx)
	s.working.Store(nil)
	close(stopped)
	if ctx.Err() != nil && errors.Is(worked, context.Canceled) {
		worked = nil // it was stopped before it had begun
	}
	stop()

	if err := config.RemoveAddress(s.config.Data); err != nil {
		s.log.Debug("the address was not removed", "error", err)
	}
	stopAnswering() // those who follow something
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := s.http.Shutdown(closing); err != nil {
		_ = s.http.Close() // whoever is left has had the time
	}
	group.Wait()
	if err := errors.Join(worked, <-served); err != nil {
		return failed("%v", err)
	}
	s.log.Info("stopped")
	return nil
}

// announce says where the server is and what its user should know.
func (s *server) announce() {
	where := []any{"url", s.url(), "node", s.config.Name, "data", s.config.Data}
	if s.hasToken {
		where = append(where, "token", s.tokenFile())
	}
	s.log.Info("listening", append(where, "version", versionOf(buildInfo()).Version)...)
	if s.config.AllowsPlainHTTP() && !s.config.Listen.Loopback() && s.config.TLS.Cert == "" {
		s.log.Warn("others can reach this address, and without TLS they can read tokens on their way", "address", s.config.Listen)
	}
	if zone := machineZone(s.env.Getenv); zone != "" && zone != string(s.config.Timezone) {
		s.log.Info("schedules that name no time zone are not in the zone of this machine; timezone sets another", "timezone", s.config.Timezone, "machine", zone)
	}
}
