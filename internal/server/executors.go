package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/executor"
	httpexec "github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/executor/shell"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/node/unreported"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/server/health"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// makeExecutors makes the executors, and the watchdog that ends commands when this process dies. A
// node without the role worker has them, too: an earlier process may have had the role, and its
// commands must be ended and settled.
func (s *Server) makeExecutors(ctx context.Context) (func(*job.Job) executor.Executor, error) {
	log := func(text string) { s.Log.Warn("watchdog: " + text) }
	// The store has refused a directory in use; this waits for the watchdog of a node that just
	// died.
	ctx, cancel := context.WithTimeout(ctx, watchdogWait)
	defer cancel()
	settings, err := s.reach()
	if err != nil {
		return nil, err
	}
	dog, err := watchdog.Open(ctx, watchdog.Config{Dir: s.Settings.Data, Settings: settings, CarryOver: s.CarryOver.watchdog(), Log: log})
	if err != nil {
		return nil, err
	}
	s.watchdog = dog
	s.closers = append(s.closers, s.closeWatchdog)
	flows, err := flowsDir(s.Settings.Data)
	if err != nil {
		return nil, err
	}
	commands, err := shell.New(shell.Config{
		Watch: dog, Dir: s.Settings.Shell.Dir, Path: s.Settings.Shell.Path, Env: s.Settings.Shell.Env,
		DefaultUser: s.Settings.Shell.DefaultUser, AllowUsers: s.Settings.Shell.AllowUsers, AllowGroups: s.Settings.Shell.AllowGroups,
		Umask: s.Settings.Shell.Umask, NiceMin: s.Settings.Shell.NiceMin,
		File: s.SettingsFile, FlowsDir: flows,
	})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, commands.Close)
	s.commands = commands
	if f := health.Shell(s.Settings); f.Status != health.Well {
		s.Log.Warn(f.Found.String(), "do", f.Do.String())
	}
	for _, text := range commands.Features().Missing {
		s.Log.Debug("commands run without: " + text)
	}
	requests, err := httpexec.New(s.access(s.Settings))
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error { requests.Close(); return nil })
	s.requests = requests
	all := executors{
		job.WorkShell: limitAnnouncer{commands, tellLimits(commands.Features(), s.Log)},
		job.WorkHTTP:  requests,
	}
	if s.xxl.admin != nil {
		all[job.WorkXXL] = s.xxl.admin
	}
	if err := s.makeContainers(ctx); err != nil {
		return nil, err
	}
	if s.containers != nil {
		all[job.WorkContainer] = s.containers
	}
	if err := s.makeKubernetes(); err != nil {
		return nil, err
	}
	if s.jobs != nil {
		all[job.WorkKubernetes] = s.jobs
	}
	return all.of, nil
}

// flowsFile in the data directory has the path of the directory of flows.
const flowsFile = "flows-dir"

// flowsDir returns the parent of the directories of flows on the node with a data directory, which
// users of jobs cannot enter. Its name is random, since they can write beside it, and stored, so that a
// flow that continues after a restart finds its files.
func flowsDir(data string) (string, error) {
	file := filepath.Join(data, flowsFile)
	if rest, err := os.ReadFile(file); err == nil && shell.IsFlowsDir(string(rest)) {
		return string(rest), nil
	}
	dir, err := os.MkdirTemp("", "belfry-flows-")
	if err != nil {
		return "", fmt.Errorf("make the directory of flows: %w", err)
	}
	// Users pass through it to their directories, and cannot list or change it.
	if err := os.Chmod(dir, 0o711); err != nil { // see above
		return "", fmt.Errorf("make the directory of flows: %w", err)
	}
	if err := os.WriteFile(file, []byte(dir), 0o600); err != nil {
		return "", fmt.Errorf("keep the directory of flows: %w", err)
	}
	return dir, nil
}

// executors has what executes each kind of work. A handler is registered by the program that
// has it.
type executors map[job.Work]executor.Executor

// of returns the executor of a job, nil if this node has none.
func (e executors) of(j *job.Job) executor.Executor { return e[j.Run.Work()] }

// handlers returns what the session of the node has among its handlers: work for executors of
// XXL-JOB, and the commands that it may run.
func (s *Server) handlers() []string {
	if !s.Settings.Has(store.RoleWorker) {
		return nil
	}
	users := s.commands.Users()
	list := []string{placement.Commands{
		Users: users.Names, Configured: users.Configured, Absent: users.Absent, Self: users.Self,
		File: s.SettingsFile, Reload: s.reloadCommand(), Shell: s.commands.HasShell(),
	}.Handler()}
	if s.xxl.admin != nil {
		list = append(list, job.XXLHandler)
	}
	if s.jobs != nil {
		list = append(list, s.jobs.Handlers()...)
	}
	if s.containers != nil {
		if v, ok := s.containers.Version(); ok {
			list = append(list, job.ContainerHandler, placement.Engine(v.String()))
		}
	}
	return list
}

// reloadCommand makes this process read its configuration again.
func (s *Server) reloadCommand() string {
	if s.manager.socket != "" {
		return "systemctl reload belfry"
	}
	return "kill -HUP " + strconv.Itoa(os.Getpid())
}

// limitAnnouncer is an executor that announces limits when the first job has some: most jobs
// have none.
type limitAnnouncer struct {
	executor.Carrier
	tell func()
}

// Run implements [executor.Executor].
func (t limitAnnouncer) Run(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	if a.Job.Run.Shell.Limits != nil {
		t.tell()
	}
	return t.Carrier.Run(ctx, a, out)
}

// tellLimits returns a function that logs once which limits do not cover a run as a whole.
func tellLimits(features shell.Features, log *slog.Logger) func() {
	return sync.OnceFunc(func() {
		const why = "belfry doctor says what is missing"
		if features.Memory != "cgroup" {
			log.Warn("memory limits apply to each process alone", "why", why)
		}
		if features.CPU != "cgroup" {
			log.Warn("CPU limits apply to each process alone, as processor time within the timeout; jobs without a timeout have no CPU limit", "why", why)
		}
	})
}

// openSpool opens the spool of the node.
func (s *Server) openSpool(ctx context.Context, isRefused func(error) bool) (*unreported.Spool, error) {
	ctx, cancel := context.WithTimeout(ctx, watchdogWait)
	defer cancel()
	return unreported.Open(ctx, unreported.Config{Dir: filepath.Join(s.Settings.Data, unreported.Folder), IsRefused: isRefused, Log: s.Log})
}

// watchdogWait is longer than a watchdog needs to kill signalled processes.
const watchdogWait = 15 * time.Second
