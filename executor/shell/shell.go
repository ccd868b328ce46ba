// Package shell runs commands and scripts as processes of the node's machine.
//
// Each attempt has its own process group and, if possible, its own cgroup. When it must end, the
// group gets SIGTERM and after the grace SIGKILL, and so do processes that a command leaves
// running. A process that has left its group gets both in its cgroup or, without one, SIGKILL when
// it is found by its environment (see [Watch]); it never delays a run, whose pipes are closed soon
// after its end.
//
// # What a command is
//
// A command is run by sh -c, or by the interpreter that the job names. A program with plain words
// is executed without a shell, which is faster and equivalent: see [job.PlainWords]. Its exit code is
// the program's; as in a shell it is 127 when there is no such program, and 126 when it cannot be
// executed. A command with args is always executed without a shell. A script is written to a file
// that only its user can read, and removed at the end.
//
// # The environment of a command
//
// The environment is clean: PATH, LANG, HOME, USER, LOGNAME, SHELL and PWD, the variables
// of Config.Env and the job, and the BELFRY_ variables. Standard input comes from the job,
// or is empty. A node that is root runs nothing as root unless its configuration allows it;
// see Config.DefaultUser.
//
// # How it is started
//
// On Linux, umask, nice and no_new_privs belong to threads, so a few dedicated threads create the
// processes. Where this is not possible, and for limits without cgroups, a command is started
// through a one-line sh script that sets them and is replaced by the command. The threads also have
// few files open, where that is possible: see link.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// Watch is notified of all processes, so that they end when the node dies. Its methods
// are called from many goroutines.
type Watch interface {
	// Spawning is called right before a process is started. If it returns an error, none
	// is started.
	Spawning(executor.Process) error
	// Spawned is called with the PID as soon as it is known.
	Spawned(executor.Process)
	// Ended is called when the process has ended, or could not be started.
	Ended(executor.Process)
	// Fenced reports, before Ended, whether the process was ended because the node was
	// silent past the fence of the attempt.
	Fenced(executor.Process) bool
	// EndRest kills processes of an attempt that have left its process group, and returns their
	// number.
	EndRest(executor.Process) int
}

// Config configures an [Executor]. New copies it.
type Config struct {
	// Watch is notified of each process. Default: none.
	Watch Watch
	// Dir is the directory of commands that name none. Default: the working
	// directory of the node.
	Dir string
	// TempDir is where scripts are written, each in its own folder. The users of jobs must be able
	// to reach it. Default: the system's.
	TempDir string
	// FlowsDir has the shared directories of flows whose steps run on one node. Each node needs its
	// own. The users of jobs must be able to reach it. Default: a directory in TempDir for this
	// process.
	FlowsDir string
	// Path is the PATH of commands. Default: the directories of the system's
	// programs, and none of a user.
	Path string
	// Env is added to the environment of all commands. The job's own variables come after it.
	Env map[string]string

	// DefaultUser runs the jobs without a user if the node runs as root. By default there is none,
	// and such jobs are refused. A node that cannot switch users must not name another user.
	DefaultUser string
	// AllowUsers are the users, by name or number, that jobs may name in addition to
	// DefaultUser if the node is root; "*" is every user but root, which must be named.
	// Default: none. A node that is not root runs all commands as its own user.
	AllowUsers []string
	// AllowGroups are the groups, by name or number, that jobs of a root node may name besides
	// their user's groups. Default: none.
	AllowGroups []string
	// File is the file with these settings, for errors.
	File string
	// AllowNewPrivileges lets commands gain privileges, for example by sudo. By default they
	// cannot, if the system supports no_new_privs.
	AllowNewPrivileges bool

	// Umask is the default umask of commands. A job may only add to it, so that its files
	// are never more accessible than the node allows. Default: 022.
	Umask *job.Umask
	// NiceMin is the lowest nice value that a job may name: below 0 its commands precede all other
	// programs of the machine. Default: 0.
	NiceMin int

	// Spawns is the most processes that are started at the same time; more would delay
	// each other. Default: 4 for each processor.
	Spawns int
	// Cgroup is the folder of a cgroup (version 2) that the node may fill, or
	// "none". Default: the node's own, if it was delegated to it.
	Cgroup string
}

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultLang = "C.UTF-8"
	// DefaultUmask lets other users read but not change the files of commands, as on most systems.
	DefaultUmask job.Umask = 0o022

	// spawnsPerProcessor is the number of concurrent spawns beyond which the rate no
	// longer grew and only the latency did.
	spawnsPerProcessor = 4
	// leftoverWait is how long processes left by a command may run after it, before they get
	// SIGTERM: enough for the end of a pipeline.
	leftoverWait = time.Second
	// drainWait is how long the pipes are read after the last known process has ended.
	drainWait = time.Second
	// killWait is how long to wait for a process after SIGKILL. A process that remains hangs in the
	// kernel.
	killWait = 10 * time.Second
	// watchAfter is the delay before a command is watched: longer than most commands take, whose
	// end shows as the end of their output. If another process keeps the output open, the end is
	// noticed that much later.
	watchAfter = 100 * time.Millisecond
	// pollFirst and pollMost bound the interval of checks whether a process group is empty, which
	// the system does not report.
	pollFirst, pollMost = time.Millisecond, 50 * time.Millisecond
	// shortageRest is how long an attempt on an overloaded machine keeps its capacity
	// before it is retried: a shortage lasts seconds, and each try costs the store two
	// calls.
	shortageRest = 2 * time.Second
)

// Executor runs commands. Use [New].
type Executor struct {
	config   Config
	accounts atomic.Pointer[accounts]
	spawners *spawners
	cgroups  *cgroups // nil if the system has none that it may use
	flows    *flowDirs
	features Features
	memory   ownMemory
	null     *os.File
	buffers  sync.Pool // *[]byte of bufferSize

	shortageRest time.Duration
	carries      bool
}

var _ executor.Executor = (*Executor)(nil)

// Features are the detected features of a machine.
type Features struct {
	// Cgroup is the folder in which each command gets a cgroup, or "".
	Cgroup string
	// Memory and CPU are how limits are enforced: "cgroup" for all processes of a run together, or
	// "process" for each: with RLIMIT_AS for memory, which also counts reserved memory, and with
	// RLIMIT_CPU of cpu times timeout, so that without a timeout no limit applies.
	Memory, CPU string
	// NoNewPrivileges reports whether commands cannot gain privileges.
	NoNewPrivileges bool
	// OwnFiles reports whether the node's open files do not slow down the start of
	// commands.
	OwnFiles bool
	// Missing describes missing features and their consequences, in sentences.
	Missing []string
}

// New returns an executor and detects the features of its machine.
func New(config Config) (*Executor, error) {
	if config.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, fmt.Errorf("shell executor: find the working directory: %w", err)
		}
		config.Dir = dir
	}
	if !filepath.IsAbs(config.Dir) {
		return nil, fmt.Errorf("shell executor: the directory %s is not absolute", config.Dir)
	}
	if config.TempDir == "" {
		config.TempDir = os.TempDir()
	}
	if config.FlowsDir == "" {
		config.FlowsDir = filepath.Join(config.TempDir, "belfry-flows-"+strconv.Itoa(os.Getpid()))
	}
	if config.Path == "" {
		config.Path = defaultPath
	}
	if config.Spawns <= 0 {
		config.Spawns = spawnsPerProcessor * runtime.GOMAXPROCS(0)
	}
	if config.Watch == nil {
		config.Watch = noWatch{}
	}
	if config.Umask == nil {
		config.Umask = new(DefaultUmask)
	}
	config.Env = maps.Clone(config.Env)
	config.AllowUsers = slices.Clone(config.AllowUsers)
	config.AllowGroups = slices.Clone(config.AllowGroups)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("shell executor: %w", err)
	}
	e := &Executor{config: config, null: null, shortageRest: shortageRest, carries: hasPidfd(), flows: newFlowDirs(config.FlowsDir), features: Features{Memory: "process", CPU: "process"}}
	e.buffers.New = func() any { b := make([]byte, bufferSize); return &b }
	accounts, err := newAccounts(config)
	if err != nil {
		null.Close()
		return nil, fmt.Errorf("shell executor: %w", err)
	}
	e.accounts.Store(accounts)
	e.spawners = newSpawners(config.Spawns, *config.Umask, !config.AllowNewPrivileges, &e.features)
	e.cgroups = newCgroups(config.Cgroup, &e.features)
	RemoveOldScripts(config.TempDir)
	return e, nil
}

// Features returns the features of the machine.
func (e *Executor) Features() Features {
	f := e.features
	f.Missing = slices.Clone(f.Missing)
	return f
}

// Allow replaces Config.AllowUsers and Config.AllowGroups for later attempts. It must not be called
// concurrently with itself.
func (e *Executor) Allow(users, groups []string) error {
	config := e.config
	config.AllowUsers, config.AllowGroups = users, groups
	accounts, err := newAccounts(config)
	if err != nil {
		return fmt.Errorf("shell executor: %w", err)
	}
	e.accounts.Store(accounts)
	return nil
}

// Close releases the executor's resources. No attempt may be running.
func (e *Executor) Close() error {
	e.spawners.close()
	if e.cgroups != nil {
		e.cgroups.close()
	}
	return e.null.Close()
}

// noWatch is a [Watch] without effect.
type noWatch struct{}

func (noWatch) Spawning(executor.Process) error { return nil }
func (noWatch) Spawned(executor.Process)        {}
func (noWatch) Ended(executor.Process)          {}
func (noWatch) Fenced(executor.Process) bool    { return false }
func (noWatch) EndRest(executor.Process) int    { return 0 }

// Run executes an attempt of a job with run.shell.
func (e *Executor) Run(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	if out.Stdout == nil {
		out.Stdout = io.Discard
	}
	if out.Stderr == nil {
		out.Stderr = io.Discard
	}
	if a.CarryOver != nil {
		return e.resume(ctx, a, out)
	}
	p, err := e.prepare(a)
	if err != nil {
		return e.notRun(ctx, err)
	}
	defer p.release()
	match, err := verdict.NewMatcher(a.Job.Policy.Success)
	if err != nil {
		return e.notRun(ctx, err)
	}
	p.watched = executor.Process{Run: a.Run.ID, Number: a.Number, Grace: a.Grace, Fence: a.Fence}

	proc, err := e.spawn(ctx, a, p)
	if err != nil {
		p.closePipes()
		return e.notSpawned(ctx, p, err, out)
	}
	return e.follow(ctx, a, p, &supervision{proc: proc, began: time.Now()}, match, out)
}

// follow reads the output of an attempt's command, and waits for its end.
func (e *Executor) follow(ctx context.Context, a executor.Attempt, p *preparedCommand, s *supervision, match *verdict.Matcher, out executor.Output) executor.Result {
	drained := make(chan struct{}) // closed at the end of both pipes
	var ended atomic.Int32
	pump := func(from *os.File, to io.Writer, match *verdict.StreamMatcher) {
		e.pump(from, to, match)
		if ended.Add(1) == 2 {
			close(drained)
		}
	}
	go pump(p.stdout, out.Stdout, match.Stream(0))
	go pump(p.stderr, out.Stderr, match.Stream(1))

	s.prepared, s.watch, s.grace, s.drained = p, e.config.Watch, a.Grace, drained
	s.run(ctx)
	select {
	case <-drained:
	default:
		// Processes that still have the pipes open are unreachable, or continue.
		now := time.Now()
		_ = p.stdout.SetReadDeadline(now)
		_ = p.stderr.SetReadDeadline(now)
		<-drained
	}
	if s.carried {
		return p.carry(s, match)
	}
	match.End()
	p.closePipes()
	if s.fenced = e.config.Watch.Fenced(p.watched); s.fenced {
		// The watchdog may still use it: no other attempt gets this cgroup.
		p.cgroup.kill()
	}
	e.config.Watch.Ended(p.watched)
	result := s.result(ctx, a.Job.Policy.Success, match)
	result.Usage = e.used(s)
	if result.Outcome == job.OutcomeSucceeded {
		var err error
		if result.Value, err = p.readResult(); err != nil {
			result.Outcome, result.Reason = job.OutcomeFailed, job.Text(err.Error())
		}
	}
	return result
}

// errUnstarted wraps errors of Attempt.Start or the watchdog, errRefused errors of the
// system about a setting of the job, and errUnopened errors at opening the files of the
// command.
type (
	errUnstarted struct{ error }
	errRefused   struct{ error }
	errUnopened  struct{ error }
)

// spawn starts the process, once fewer than Config.Spawns others are being started.
func (e *Executor) spawn(ctx context.Context, a executor.Attempt, p *preparedCommand) (*process, error) {
	var proc *process
	err := e.spawners.do(ctx, func(s *spawner) error {
		defer p.closeChildEnds()
		if err := e.openFiles(p); err != nil {
			return errUnopened{err}
		}
		if a.Start != nil {
			if err := a.Start(); err != nil {
				return errUnstarted{err}
			}
		}
		if err := e.config.Watch.Spawning(p.watched); err != nil {
			return errUnstarted{err}
		}
		pid, err := s.fork(p)
		if err != nil {
			e.config.Watch.Ended(p.watched)
			return err
		}
		p.watched.PID = pid
		e.config.Watch.Spawned(p.watched)
		proc = newProcess(pid)
		return nil
	})
	return proc, err
}

// notRun is the result of an attempt that failed before it had a process.
func (e *Executor) notRun(ctx context.Context, err error) executor.Result {
	if isShortage(err) {
		return e.short(ctx, err)
	}
	return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(err.Error()), Retryable: errors.Is(err, syscall.ENOSPC)}
}

// isShortage reports whether an error is about the state of the machine at the moment, and
// not about the job: no room for another process or file, or no answer about a user.
func isShortage(err error) bool {
	var lookup errLookup
	return errors.As(err, &lookup) || slices.ContainsFunc([]error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE}, func(e error) bool {
		return errors.Is(err, e)
	})
}

// short is the result of an attempt on an overloaded machine. It keeps its capacity for a while, so
// that it is not retried in a tight loop.
func (e *Executor) short(ctx context.Context, err error) executor.Result {
	timer := time.NewTimer(e.shortageRest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return executor.Result{Outcome: job.OutcomeFailed, Reason: reason.NoRoom.Of(reason.Words(err.Error())), Unstarted: true}
}

// notSpawned is the result of an attempt whose process could not be started.
func (e *Executor) notSpawned(ctx context.Context, p *preparedCommand, err error, out executor.Output) executor.Result {
	var unstarted errUnstarted
	if errors.As(err, &unstarted) {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(unstarted.Error()), Unstarted: true}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		outcome, why := executor.ByCause(ctx)
		return executor.Result{Outcome: outcome, Reason: reason.BeforeStart.Of(why), Unstarted: true}
	}
	var refused errRefused
	if errors.As(err, &refused) {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(refused.Error())}
	}
	var unopened errUnopened
	if errors.As(err, &unopened) {
		return e.notRun(ctx, unopened.error)
	}
	if isShortage(err) {
		return e.short(ctx, fmt.Errorf("fork: %w", err))
	}
	if info, statErr := os.Stat(p.dir); statErr != nil || !info.IsDir() {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: reason.NoDirectory.Of(p.dir, reason.Words(fmt.Sprint(dirProblem(statErr))))}
	}
	code, what := 126, err.Error()
	switch {
	case errors.Is(err, syscall.ENOENT):
		code, what = 127, "not found"
		if _, statErr := os.Stat(p.path); statErr == nil {
			what = "the interpreter in its first line was not found"
		} else if !strings.Contains(p.argv[0], "/") {
			what = "not found in " + p.searched
		}
	case errors.Is(err, syscall.EACCES):
		what = p.whyDenied()
	case errors.Is(err, syscall.EPERM) && p.account.change:
		return executor.Result{Outcome: job.OutcomeFailed, Reason: reason.NoUser.Of(p.account.name, reason.Words(err.Error()))}
	}
	fmt.Fprintf(out.Stderr, "belfry: %s: %s\n", p.argv[0], what)
	return executor.Result{
		Outcome: job.OutcomeFailed, ExitCode: &code, Cause: p.argv[0] + ": " + what,
		Reason: reason.NotExecuted.Of(code, p.argv[0], reason.Words(what)),
	}
}

// whyDenied explains why a program may not be executed. The user of the command may lack
// access to its directory even if the node has it.
func (p *preparedCommand) whyDenied() string {
	if p.missing == nil && strings.Contains(p.path, "/") {
		file := p.path
		if !filepath.IsAbs(file) {
			file = filepath.Join(p.dir, file)
		}
		switch info, err := os.Stat(file); {
		case err != nil:
		case info.IsDir():
			return "permission denied: it is a directory"
		case info.Mode()&0o111 == 0:
			return "permission denied: the file is not executable"
		}
	}
	if p.account.change {
		return fmt.Sprintf("permission denied: user %s cannot enter the directory %s", p.account.name, p.dir)
	}
	return "permission denied"
}

func dirProblem(err error) error {
	var path *os.PathError
	switch {
	case errors.As(err, &path):
		return path.Err
	case err == nil:
		return syscall.ENOTDIR
	}
	return err
}
