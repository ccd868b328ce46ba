package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/config"
)

func newWorker(env Env) *cobra.Command {
	var (
		file  string
		flags config.Server
	)
	cmd := &cobra.Command{
		Use:   "worker --server URL --token-file FILE [flags]",
		Short: "Run a worker that needs no database",
		Long: `Run a worker that gets its runs from servers over HTTP and needs no database: for remote
machines, or machines that must not have the password of the database.

Its token has the role worker, which allows nothing else. The worker has the label
worker with the name of the token. With a token for a namespace it runs only jobs of
the namespace that select it by this label.

With --join-token-file it exchanges a joining token once for a token of its own, which
it keeps in worker-token in its data directory. Its label worker is then the name of the
joining token. --cert and --key present a client certificate to the servers.

With several servers it continues when one of them is down. The first interrupt stops it
gracefully: no new attempts start, and running commands get the drain timeout to end.
SIGUSR2 executes the program file again after an upgrade: running commands continue under
the new version.`,
		Example: `belfry token create edge --role worker >edge-token
belfry worker --server https://belfry.example.com:8420 --token-file edge-token
belfry worker --server https://one.example.com --server https://two.example.com --token-file edge-token
belfry worker --server https://belfry.example.com:8420 --join-token-file rack-token
belfry worker --config /etc/belfry-worker.yaml`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, c, err := workerConfig(env, file, flags)
			if err != nil {
				return err
			}
			return runWorker(cmd.Context(), env, c, l)
		},
	}
	f := cmd.Flags()
	addWord(f, &file, "config", "c", "FILE", "configuration file")
	f.StringArrayVar(&flags.Worker.Servers, "server", nil, "address of a server; may be repeated")
	addWord(f, &flags.Worker.TokenFile, "token-file", "", "FILE", "file with the token, which only its owner can read")
	addWord(f, &flags.Worker.JoinTokenFile, "join-token-file", "", "FILE", "file with a joining token, which is exchanged once for a token of the worker's own")
	addWord(f, &flags.Worker.Cert, "cert", "", "FILE", "client certificate, in PEM; it is read again when it changes")
	addWord(f, &flags.Worker.Key, "key", "", "FILE", "private key of the client certificate")
	addWord(f, &flags.Worker.CA, "ca", "", "FILE", "authorities of the certificates of servers; else those that the system trusts")
	addWord(f, &flags.Data, "data", "", "DIRECTORY", "data directory of the worker; else belfry-worker beside that of a server")
	addWord(f, &flags.Name, "name", "", "NAME", "name of this node; else the host name")
	f.Var((*labels)(&flags.Labels), "label", "label by which jobs choose this node: KEY=VALUE; may be repeated")
	addParsed(f, &flags.Capacity, "capacity", "", fmt.Sprint(node.DefaultCapacity), "N", "how many attempts may run at once", parsePositive)
	addParsed(f, &flags.Drain, "drain-timeout", "", "30s", "DURATION", "how long a stopping worker waits for running commands", parseLonger)
	addText(f, &flags.Worker.HealthListen, "health-listen", "", "", "ADDRESS", "address of /livez, /readyz and /metrics, which need no token; else the worker listens to nothing")
	addSwitch(f, &flags.PlainHTTP, "plain-http", "allow servers of other machines without TLS")
	addWord(f, &flags.Shell.DefaultUser, "run-as", "", "USER", "user that runs commands of jobs without run.user; only root can switch users")
	addChoice(cmd, (*string)(&flags.LogFormat), "log-format", "", "log format; text on a terminal, else json", flags.LogFormat.Values()...)
	addChoice(cmd, (*string)(&flags.LogLevel), "log-level", "", "lowest level that is logged; else info", flags.LogLevel.Values()...)
	return cmd
}

// workerConfig combines flags, environment and file for a worker.
func workerConfig(env Env, file string, flags config.Server) (config.Layers, config.Server, error) {
	// A server's environment does not apply to a worker beside it.
	alone := env
	alone.Getenv = func(name string) string {
		if name == "BELFRY_STORE" || name == "BELFRY_HISTORY" || name == "BELFRY_DATA" {
			return ""
		}
		return env.Getenv(name)
	}
	for _, name := range []*string{&flags.Worker.TokenFile, &flags.Worker.JoinTokenFile, &flags.Worker.Cert, &flags.Worker.Key, &flags.Worker.CA} {
		if *name != "" {
			*name = env.path(*name)
		}
	}
	l, c, err := serverConfig(alone, file, flags)
	if err != nil {
		return l, c, err
	}
	for name, isSet := range map[string]bool{
		"store": l.File.Store != "", "history": l.File.History != "", "listen": l.File.Listen != "", "roles": len(l.File.Roles) > 0, "tls": l.File.TLS != (config.TLS{}), "http.callback_url": l.File.HTTP.CallbackURL != "",
	} {
		if isSet {
			return l, c, misused("%s: %s is for belfry serve, and a worker has none", file, name)
		}
	}
	if l.Flags.Data == "" && l.File.Data == "" {
		c.Data = filepath.Join(filepath.Dir(config.DefaultData(env.Getenv)), "belfry-worker")
	}
	switch {
	case len(c.Worker.Servers) == 0:
		return l, c, misused("--server is missing: the address of a server, such as https://belfry.example.com:8420")
	case c.Worker.TokenFile == "" && c.Worker.JoinTokenFile == "":
		return l, c, misused("--token-file is missing: the file of a token that belfry token create NAME --role worker has printed; or --join-token-file, for a joining token")
	case c.Worker.TokenFile != "" && c.Worker.JoinTokenFile != "":
		return l, c, misused("--token-file and --join-token-file cannot be combined: keep one of them")
	}
	// Jobs come from other machines: defaults for a single machine do not apply.
	c.Listen = ""
	return l, c, nil
}

// runWorker runs a worker until ctx ends or a signal comes.
func runWorker(ctx context.Context, env Env, c config.Server, from config.Layers) (err error) {
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
	if _, err := chooseUser(&c, from, os.Geteuid() == 0, log); err != nil {
		return err
	}
	var opened atomic.Pointer[server.Worker]
	ctx, stop := untilSignal(ctx, func(by os.Signal) {
		if w := opened.Load(); w != nil {
			logLost(log, w.Running, by)
			return
		}
		logLost(log, nil, by)
	}, func() {
		log.Info("a worker reads its configuration at its start, and its token when a server refuses it")
	}, upgrades(log, func() bool { return opened.Load() != nil }))
	defer stop()
	w, err := server.OpenWorker(ctx, server.Config{
		Settings: c, SettingsFile: from.FileName, Version: versionOf(buildInfo()).Version, Getenv: env.Getenv, Now: env.Now, Log: log, Level: &level, CarryOver: carried,
	})
	var listen *server.ListenError
	if errors.As(err, &listen) {
		return listenFailure(listen, "--health-listen")
	}
	if err != nil {
		return failed("%v", err)
	}
	opened.Store(w)
	if err := w.Run(ctx); err != nil {
		return errors.Join(failed("%v", err), w.Close())
	}
	if err := w.Close(); err != nil {
		return err
	}
	return continueAs(w.ToCarry(), c.Data, log)
}
