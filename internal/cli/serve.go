package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/executor/shell"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/store"
)

func newServe(env Env) *cobra.Command {
	var (
		file  string
		flags config.Server
	)
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run a server",
		Long: `Run a server, which schedules jobs, runs them and serves the API. By default it
needs nothing but its data directory. Servers that share a PostgreSQL, MySQL or MariaDB
database, an etcd or a Redis form a cluster; --roles says what each of them does.

The first start creates the admin token in a file in the data directory, where the
CLI finds it when run as the same user.

The first interrupt stops the server gracefully: no new attempts start, and running
commands get the drain timeout to end. The second one stops it at once. SIGHUP reloads
the configuration. SIGUSR2 executes the program file again after an upgrade: running
commands continue under the new version.`,
		Example: `belfry serve
belfry serve --data ./belfry --listen 127.0.0.1:9000
belfry serve --config /etc/belfry.yaml
belfry serve --store postgres://belfry@db.example.com/belfry
belfry serve --store mysql://belfry@db.example.com/belfry
belfry serve --store etcd://etcd1.example.com/belfry --history postgres://belfry@db.example.com/history
belfry serve --listen :8420 --tls-cert server.pem --tls-key server.key`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, c, err := serverConfig(env, file, flags)
			if err != nil {
				return err
			}
			if flags.History.Password() {
				logger(env, c).Warn("the password of the history store is visible to other users of this machine on the command line", "better", "BELFRY_HISTORY or the configuration file")
			}
			if flags.Store.Password() {
				logger(env, c).Warn("the password of the store is visible to other users of this machine on the command line", "better", "BELFRY_STORE or the configuration file")
			}
			return serve(cmd.Context(), env, c, l, func(env Env) (config.Server, error) {
				_, c, err := serverConfig(env, file, flags)
				return c, err
			})
		},
	}
	addServerFlags(cmd, &file, &flags)
	return cmd
}

// serve runs a server until ctx ends or a signal comes. from names settings in errors; read rereads
// the configuration.
func serve(ctx context.Context, env Env, c config.Server, from config.Layers, read func(Env) (config.Server, error)) (err error) {
	var level slog.LevelVar
	level.Set(c.Level())
	log := loggerAt(env, c, &level)
	carried, checked, err := inherited(env)
	if err != nil || checked {
		return err
	}
	if err := watchdog.HideMemory(); err != nil {
		return failed("%v", err)
	}
	asRoot, err := chooseUser(&c, from, os.Geteuid() == 0, log)
	if err != nil {
		return err
	}
	var opened atomic.Pointer[server.Server]
	ctx, stop := untilSignal(ctx, func(by os.Signal) {
		if s := opened.Load(); s != nil {
			logLost(log, s.Running, by)
			return
		}
		logLost(log, nil, by)
	}, func() {
		if s := opened.Load(); s != nil {
			s.Reload()
		}
	}, upgrades(log, func() bool { return opened.Load() != nil }))
	defer stop()
	file := from.FileName
	if file != "" { // messages for other machines and directories name it
		if file, err = filepath.Abs(env.path(file)); err != nil {
			return failed("%v", err)
		}
	}
	s, err := server.Open(ctx, server.Config{
		Settings: c, SettingsFile: file, Version: versionOf(buildInfo()).Version,
		Read: func() (config.Server, []string, error) {
			var mistakes bytes.Buffer
			env := env
			env.Stderr = &mistakes
			next, err := read(env)
			if asRoot && next.Shell.DefaultUser == "" {
				next.Shell.DefaultUser = "root"
			}
			return next, strings.FieldsFunc(mistakes.String(), func(r rune) bool { return r == '\n' }), err
		},
		Getenv: env.Getenv, Now: env.Now, Log: log, Level: &level, CarryOver: carried,
		Listening: func(ctx context.Context, s *server.Server) {
			announce(env, c, s, asRoot, s.Log)
			welcome(ctx, env, c, s, s.Log)
		},
	})
	switch {
	case errors.Is(err, server.ErrStopped):
		log.Info("stopped; the store was not reached")
		return nil
	case err != nil:
		return startFailure(err, c, from)
	}
	opened.Store(s)
	if err := s.Run(ctx); err != nil {
		return errors.Join(failed("%v", err), s.Close())
	}
	if err := s.Close(); err != nil {
		return err
	}
	return continueAs(s.ToCarry(), c.Data, log)
}

// startFailure explains why a server did not start.
func startFailure(err error, c config.Server, from config.Layers) error {
	var listen *server.ListenError
	var opening *server.StoreError
	switch {
	case errors.As(err, &opening):
		return openFailure(opening, c, from.NameOf("store"), "--data names another directory, --listen another address")
	case errors.As(err, &listen):
		return listenFailure(listen, "--listen")
	}
	return failed("%v", err)
}

// listenFailure explains why the address of a flag could not be bound.
func listenFailure(err *server.ListenError, flag string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return failed("the address %s is in use", err.Address).withHint("is another belfry running? %s names another address", flag)
	case errors.Is(err, syscall.EACCES):
		return failed("this user may not listen on %s", err.Address).withHint("ports below 1024 are for root; %s names another address", flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return failed("%s is not an address of this machine", err.Address).withHint("%s names another address; :PORT listens on all of them", flag)
	}
	return failed("%v", err).withHint("%s names another address", flag)
}

// logger returns the log of a command.
func logger(env Env, c config.Server) *slog.Logger { return loggerAt(env, c, c.Level()) }

func loggerAt(env Env, c config.Server, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(env.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(env.Stderr, options))
}

// chooseUser decides which user runs the commands of jobs that name none, and reports whether it is
// root because no user is configured. Root runs them as root, like cron, if only users of this
// machine can define jobs.
func chooseUser(c *config.Server, from config.Layers, root bool, log *slog.Logger) (asRoot bool, err error) {
	if !c.Has(store.RoleWorker) {
		return false, nil
	}
	if c.Shell.DefaultUser != "" {
		if err := shell.CheckDefaultUser(c.Shell.DefaultUser); err != nil {
			return false, &failure{code: ExitUsage, message: fmt.Sprintf("%s: %v", from.NameOf("shell.default_user"), err)}
		}
		return false, nil
	}
	switch {
	case !root:
	case c.LocalOnly():
		c.Shell.DefaultUser = "root"
		return true, nil
	case len(c.Shell.AllowUsers) == 0:
		through := string(c.Listen)
		switch {
		case len(c.Worker.Servers) > 0:
			through = "its servers"
		case c.Listen.Loopback():
			through = "the database " + c.Store.Shown()
		}
		return false, (&failure{code: ExitUsage, message: fmt.Sprintf("this process runs as root and other machines can give it jobs through %s, so it needs a user to run commands as", through)}).
			withHint("--run-as names one; shell.allow_users in the configuration file lets jobs choose one in run.user")
	default:
		log.Warn("this server runs as root and other machines can give it jobs: jobs without run.user will fail; --run-as names a user for them", "allowed", c.Shell.AllowUsers)
	}
	return false, nil
}

func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
}

// announce logs the address of the server and other facts for its user.
func announce(env Env, c config.Server, s *server.Server, asRoot bool, log *slog.Logger) {
	where := []any{"url", s.URL(), "node", c.Name, "data", c.Data}
	if file, there := s.TokenFile(); there {
		where = append(where, "token", file)
	}
	log.Info("listening", append(where, "version", versionOf(buildInfo()).Version)...)
	if c.Has(store.RoleAPI) {
		log.Info("the web UI is at this address; belfry ui opens it, signed in", "url", s.URL()+"/")
	}
	if asRoot {
		log.Info("commands run as root, because only this machine can reach the server; --run-as names another user")
	}
	if c.AllowsPlainHTTP() && !c.Listen.Loopback() && c.TLS.Cert == "" {
		log.Warn("other machines can reach this address, and without TLS tokens can be read in transit", "address", c.Listen)
	}
	if zone := machineZone(env.Getenv); zone != "" && zone != string(c.Timezone) {
		log.Info("schedules without a time zone do not use the zone of this machine; set timezone to change that", "timezone", c.Timezone, "machine", zone)
	}
}
