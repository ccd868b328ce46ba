// Package container runs commands in containers of Docker or Podman, by the API of the engine's
// socket.
//
// Each attempt has its own container. The name comes from the run and the attempt, and labels name
// the node, so that a node finds its containers again and removes the containers of ended attempts. A
// container is never privileged: it has only configured capabilities, cannot gain privileges, and
// never has the network of the machine. It sees files of the machine only below configured
// directories.
//
// The files of a job, and the file for its result, are in a volume of the container at
// [job.ContainerDir]. They are sent through the socket, so that node and engine need not see the same
// files. Steps of a flow that stay on one node share a volume at [job.FlowVolumeDir].
//
// An attempt ends when the first process of its container does, which ends all others. When it must
// end, that process gets the stop signal and after the grace SIGKILL. A container survives an
// outage of its engine's API, during which the executor waits.
package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

// The labels of containers and volumes.
const (
	labelNode    = "io.belfry.node"
	labelRun     = "io.belfry.run"
	labelAttempt = "io.belfry.attempt"
	labelJob     = "io.belfry.job"
	labelFlow    = "io.belfry.flow"
)

const (
	// PIDsDefault bounds the processes of a container that sets no limit: far more than a job
	// needs, and few enough to leave the machine usable.
	PIDsDefault = 4096

	// probeWithin bounds a probe of the engine, which is cheap but may take seconds on a machine
	// under load.
	probeWithin = 15 * time.Second
	// awayRest is how long an attempt whose engine does not answer keeps its capacity before it is
	// retried, so that it is not retried in a tight loop.
	awayRest = 2 * time.Second
	// signalWithin bounds sending a signal: it is sent again while the container runs.
	signalWithin = 5 * time.Second
	// killWait is how long to wait for the end after SIGKILL. A container that remains hangs in the
	// kernel, or its engine is away.
	killWait = 10 * time.Second
	// drainWait is how long the output is read after the end of a container.
	drainWait = 3 * time.Second
	// removeWithin bounds removing a container. Collect removes the rest later.
	removeWithin = 30 * time.Second
	// againFirst and againMost are the waits before a call is repeated during an outage of the
	// engine.
	againFirst, againMost = 50 * time.Millisecond, 2 * time.Second
	// reasonMax is the length at which texts of engines are cut.
	reasonMax = 500
)

// Settings are the limits of jobs' containers.
type Settings struct {
	// Images are patterns for the names of images, in which * matches any text. Default: all.
	Images []string
	// Mounts are the directories below which jobs may mount files. Default: none.
	Mounts []string
	// Namespaces are the namespaces whose jobs may run containers. Default: all.
	Namespaces []string
	// Capabilities are the capabilities of containers. Default: none.
	Capabilities []string
	// PIDs bounds the processes of containers without a limit of their own. Default: [PIDsDefault].
	PIDs int
}

// Watch is notified of all containers, so that they end when the node dies. Its methods are called
// from many goroutines.
type Watch interface {
	// Spawning is called right before a container is started. If it returns an error, none is
	// started.
	Spawning(executor.Process) error
	// Ended is called when the container has ended, or could not be started.
	Ended(executor.Process)
	// Fenced reports, before Ended, whether the container was ended because the node was silent past
	// the fence of the attempt.
	Fenced(executor.Process) bool
}

// noWatch is a [Watch] without effect.
type noWatch struct{}

func (noWatch) Spawning(executor.Process) error { return nil }
func (noWatch) Ended(executor.Process)          {}
func (noWatch) Fenced(executor.Process) bool    { return false }

// Config configures an [Executor].
type Config struct {
	Settings
	// Watch is notified of each container. Default: none.
	Watch Watch
	// Engine runs the containers.
	Engine *engine.Engine
	// Node identifies the node to its engine: no other node of the engine has it.
	Node string
	// Log receives outages of the engine. Default: nothing.
	Log *slog.Logger
}

// Executor runs commands in containers. Use [New].
type Executor struct {
	config   Config
	engine   *engine.Engine
	settings atomic.Pointer[Settings]
	found    atomic.Pointer[found] // nil while the engine is silent
	// polls is set once the engine is known to be Podman.
	polls atomic.Bool
	// The constants of these names, unless a test changes them.
	awayRest, killWait time.Duration

	mu   sync.Mutex
	live map[string]bool // containers of running attempts, by name
	// collected counts the containers that [Executor.Collect] has removed.
	collected int64
	// uses counts the attempts in each flow's volume, and idle has the flows whose unused volumes
	// wait for their end.
	uses map[job.ID]int
	idle map[job.ID]*idleFlow
}

var (
	_ executor.Carrier   = (*Executor)(nil)
	_ executor.Outliving = (*Executor)(nil)
)

// New returns an executor. It makes no call to the engine.
func New(config Config) *Executor {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Watch == nil {
		config.Watch = noWatch{}
	}
	e := &Executor{config: config, engine: config.Engine, awayRest: awayRest, killWait: killWait, live: map[string]bool{}, uses: map[job.ID]int{}, idle: map[job.ID]*idleFlow{}}
	e.Allow(config.Settings)
	return e
}

// Allow replaces the settings for later attempts.
func (e *Executor) Allow(s Settings) {
	s.PIDs = cmp.Or(s.PIDs, PIDsDefault)
	e.settings.Store(&s)
}

// Close releases the executor's resources. No attempt may be running.
func (e *Executor) Close() { e.engine.Close() }

// Carries implements [executor.Carrier]: a container does not belong to the process of the node.
func (e *Executor) Carries() bool { return true }

// Outlives implements [executor.Outliving].
func (e *Executor) Outlives() bool { return true }

// Version returns the engine's version by the last probe. ok is false if it did not answer.
func (e *Executor) Version() (v engine.Version, ok bool) {
	if f := e.found.Load(); f != nil {
		return f.version, true
	}
	return v, false
}

// Stats returns how many containers run, and how many of attempts that were over [Executor.Collect] has
// removed.
func (e *Executor) Stats() (running int, collected int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.live), e.collected
}

// found is an engine as a probe has found it.
type found struct {
	server  string // its name for itself
	version engine.Version
}

// Probe checks the engine, and reports whether the result has changed.
func (e *Executor) Probe(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	before, now := e.found.Load(), found{}
	now.server, err = e.engine.Ping(ctx)
	if err == nil && before != nil && now.server == before.server {
		return false, nil
	}
	if err == nil {
		now.version, err = e.engine.Version(ctx)
	}
	if err != nil {
		e.found.Store(nil)
		return before != nil, err
	}
	e.polls.Store(now.version.Name == podman)
	e.found.Store(&now)
	return before == nil || now.version != before.version, nil
}

// nameOf returns the name of the container of an attempt.
func nameOf(run job.ID, attempt int) string { return fmt.Sprintf("belfry-%s-%d", run, attempt) }

// attempt is an attempt and its container.
type attempt struct {
	*Executor
	executor.Attempt
	name    string
	work    *job.Container
	match   *verdict.Matcher
	out     executor.Output
	started bool // Start was called
	// stopSignal asks the container to end.
	stopSignal string
	watched    executor.Process
	began      time.Time
	mark       engine.Mark // of the output
	used       job.Usage
	// When the container was signalled, and killed; zero for never.
	asked, killed time.Time
}

// carryOver is the state of an attempt for another version of the program or another process.
type carryOver struct {
	Mark       engine.Mark `json:"mark"`
	Began      time.Time   `json:"began"`
	StopSignal string      `json:"stop_signal"`
	Found      bool        `json:"found,omitempty"` // state of the search in the output
	Searched   [2][]byte   `json:"searched"`
	Used       job.Usage   `json:"used,omitzero"`
	Anew       bool        `json:"anew,omitempty"` // the rest is not known: see executor.Anew
}

// Run implements [executor.Executor] for jobs with run.container.
func (e *Executor) Run(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	if out.Stdout == nil {
		out.Stdout = io.Discard
	}
	if out.Stderr == nil {
		out.Stderr = io.Discard
	}
	r := &attempt{Executor: e, Attempt: a, name: nameOf(a.Run.ID, a.Number), out: out}
	r.watched = executor.Process{Run: a.Run.ID, Number: a.Number, Container: e.engine.Socket() + "#" + r.name, Grace: a.Grace, Fence: a.Fence, Kept: a.Kept}
	e.hold(r.name, true)
	ended := r.run(ctx)
	if release := ended.Release; release != nil {
		ended.Release = func() {
			release()
			e.hold(r.name, false)
		}
	} else {
		e.hold(r.name, false)
	}
	return ended
}

func (r *attempt) run(ctx context.Context) executor.Result {
	var err error
	if r.match, err = verdict.NewMatcher(r.Job.Policy.Success); err != nil {
		return failed(job.Text(err.Error()))
	}
	if r.Together {
		r.enter(r.Attempt.Run.Parent)
		defer r.leave(r.Attempt.Run.Parent)
	}
	if r.CarryOver != nil {
		return r.resume(ctx)
	}
	ended, ok := r.begin(ctx)
	if !ok {
		r.remove(ctx)
		return ended
	}
	return r.follow(ctx)
}

// hold records that a container belongs to a running attempt.
func (e *Executor) hold(name string, live bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if live {
		e.live[name] = true
	} else {
		delete(e.live, name)
	}
}

func failed(why job.Reason) executor.Result {
	return executor.Result{Outcome: job.OutcomeFailed, Reason: why}
}

// begin creates and starts the container. ok is false if it does not run.
func (r *attempt) begin(ctx context.Context) (ended executor.Result, ok bool) {
	expanded, err := r.Job.Expand(r.Data)
	if err != nil {
		return failed(job.Text(err.Error())), false
	}
	if r.work = expanded.Container; r.work == nil {
		return failed(job.Text("the job has no run.container")), false
	}
	settings := r.settings.Load()
	spec, why := r.specOf(settings)
	if !why.IsZero() {
		return failed(why), false
	}
	image, why, err := r.image(ctx)
	switch {
	case err != nil:
		return r.notBegun(ctx, err), false
	case !why.IsZero():
		return r.ended(ctx, failed(why)), false
	}
	r.stopSignal = cmp.Or(r.work.StopSignal, image.Config.StopSignal, "SIGTERM")
	if err := r.create(ctx, spec); err != nil {
		return r.notBegun(ctx, err), false
	}
	if err := r.start(); err != nil {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(err.Error()), Unstarted: true}, false
	}
	if err := r.config.Watch.Spawning(r.watched); err != nil {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(err.Error()), Unstarted: true}, false
	}
	r.began = time.Now()
	if err := r.engine.Start(ctx, r.name); err != nil {
		if r.mayRun(ctx, err) {
			return ended, true
		}
		r.config.Watch.Ended(r.watched)
		return r.notBegun(ctx, err), false
	}
	return ended, true
}

// mayRun reports whether the container may run after an error of its start: the engine may have
// started it without an answer. If not, it is removed, so that it never will.
func (r *attempt) mayRun(ctx context.Context, err error) bool {
	refused := !engine.IsAway(err)
	for pause := againFirst; ; pause = min(2*pause, againMost) {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalWithin)
		c, err := r.engine.Inspect(asking, r.name)
		cancel()
		switch {
		case engine.IsNotFound(err):
			return false
		case err == nil && (refused && !c.State.Running || !c.State.Begun()):
			if r.remove(ctx) {
				return false
			}
		case err == nil:
			return true
		}
		if !sleep(ctx, pause) {
			return true // the caller ends it
		}
	}
}

// start calls Start once, before the first effect: the pull of an image or the container.
func (r *attempt) start() error {
	if r.started || r.Attempt.Start == nil {
		return nil
	}
	if err := r.Attempt.Start(); err != nil {
		return err
	}
	r.started = true
	return nil
}

// notBegun is the result of an attempt whose container was not started.
func (r *attempt) notBegun(ctx context.Context, err error) executor.Result {
	var unstarted errUnstarted
	switch {
	case errors.As(err, &unstarted):
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(err.Error()), Unstarted: true}
	case ctx.Err() != nil:
		return r.endedBefore(ctx)
	case engine.IsAway(err):
		if r.started {
			ended := failed(reason.EngineAway.Of(words(err)))
			ended.Retryable = true
			return ended
		}
		rest := time.NewTimer(r.awayRest)
		defer rest.Stop()
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
		return executor.Result{Outcome: job.OutcomeFailed, Reason: reason.EngineAway.Of(words(err)), Unstarted: true}
	}
	ended := failed(reason.EngineRefused.Of(words(err)))
	if code := codeOfRefusal(err.Error()); code != 0 {
		ended.ExitCode = &code
	}
	return ended
}

// ended is the result of an attempt that failed before its container, unless its context has ended
// before.
func (r *attempt) ended(ctx context.Context, ended executor.Result) executor.Result {
	if ctx.Err() != nil {
		return r.endedBefore(ctx)
	}
	return ended
}

// endedBefore is the result of an attempt whose context has ended before its container began. A pull
// has no effect on the work: another node may run it, unless the pull has used up the timeout.
func (r *attempt) endedBefore(ctx context.Context) executor.Result {
	outcome, why := executor.ByCause(ctx)
	return executor.Result{Outcome: outcome, Reason: reason.BeforeStart.Of(why), Unstarted: !r.started || outcome != job.OutcomeTimedOut}
}

// errUnstarted wraps an error of Attempt.Start.
type errUnstarted struct{ error }

// codeOfRefusal returns the exit code that shells use for a program that cannot be executed, 0 for
// another error.
func codeOfRefusal(text string) int {
	const notFound, notExecutable = 127, 126
	switch {
	case strings.Contains(text, "executable file not found"), strings.Contains(text, "no such file or directory") && strings.Contains(text, "exec"):
		return notFound
	case strings.Contains(text, "permission denied") && strings.Contains(text, "exec"):
		return notExecutable
	}
	return 0
}

// words returns the text of an error, for a reason.
func words(err error) reason.Words {
	text := err.Error()
	if len(text) > reasonMax {
		text = strings.ToValidUTF8(text[:reasonMax], "") + "…"
	}
	return reason.Words(text)
}

// create creates the container and sends its files. It replaces a container of an earlier try.
func (r *attempt) create(ctx context.Context, spec *engine.Spec) error {
	if r.Together {
		if err := r.makeFlowVolume(ctx); err != nil {
			return err
		}
	}
	err := r.engine.Create(ctx, r.name, spec)
	if engine.IsConflict(err) || err != nil && strings.Contains(err.Error(), "already in use") {
		r.remove(ctx)
		err = r.engine.Create(ctx, r.name, spec)
	}
	if err != nil {
		return err
	}
	if archive := r.files(); archive != nil {
		if err := r.engine.Upload(ctx, r.name, job.ContainerDir, archive); err != nil {
			return fmt.Errorf("send the files of the job: %w", err)
		}
	}
	if r.Together {
		return r.openFlowVolume(ctx)
	}
	return nil
}

// remove removes the container with its volume, and reports whether it succeeded. If not, Collect
// removes it later.
func (r *attempt) remove(ctx context.Context) (gone bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	if err := r.engine.Remove(ctx, r.name); err != nil && !engine.IsNotFound(err) {
		r.config.Log.Warn("cannot remove a container; it is collected later", "container", r.name, "error", err)
		return false
	}
	return true
}

// resume continues with a container that an earlier process has started.
func (r *attempt) resume(ctx context.Context) executor.Result {
	var c carryOver
	if err := unmarshal(r.CarryOver, &c); err != nil {
		return executor.Result{Outcome: job.OutcomeLost, Reason: reason.CannotGoOn.Of(reason.Words(err.Error()))}
	}
	r.work = r.Job.Run.Container
	r.started, r.mark, r.began, r.stopSignal = true, c.Mark, c.Began, c.StopSignal
	if c.Anew {
		if why := r.find(ctx); !why.IsZero() {
			r.config.Watch.Ended(r.watched)
			return executor.Result{Outcome: job.OutcomeLost, Reason: why}
		}
		return r.follow(ctx)
	}
	r.used = c.Used
	r.match.Continue(c.Found, c.Searched)
	return r.follow(ctx)
}

// find finds the container that a dead process has left, also through outages of the engine. It
// returns why there is nothing to follow.
func (r *attempt) find(ctx context.Context) (why job.Reason) {
	r.began, r.stopSignal = time.Now(), cmp.Or(r.work.StopSignal, "SIGTERM")
	for pause := againFirst; ; pause = min(2*pause, againMost) {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalWithin)
		c, err := r.engine.Inspect(asking, r.name)
		cancel()
		switch {
		case engine.IsNotFound(err):
			// Whether the dead process had read its result and removed it is not known.
			return reason.ContainerGone.Of()
		case err == nil && !c.State.Begun():
			// The start may be under way.
			if r.remove(ctx) {
				return reason.ContainerUnbegun.Of()
			}
		case err == nil:
			r.began, r.stopSignal = c.State.StartedAt, cmp.Or(c.Config.StopSignal, r.stopSignal)
			if r.found.Load() == nil {
				_, _ = r.Probe(ctx) // only the output depends on it
			}
			return why
		}
		if !sleep(ctx, pause) {
			return why // follow ends it
		}
	}
}

// successCodes are the exit codes of success.
func successCodes(s *job.Success) []int {
	if s == nil || len(s.ExitCodes) == 0 {
		return []int{0}
	}
	return s.ExitCodes
}

// result returns the result of a container that has ended.
func (r *attempt) result(ctx context.Context, state engine.State) executor.Result {
	code := state.ExitCode
	ended := executor.Result{Outcome: job.OutcomeFailed, ExitCode: &code}
	ending := reason.ExitStatus.Of(code)
	success := r.Job.Policy.Success
	if sent := r.sent(ending); !sent.IsZero() {
		var cause job.Reason
		ended.Outcome, cause = executor.ByCause(ctx)
		if ended.Reason = sent; ended.Outcome != job.OutcomeTimedOut {
			ended.Reason = reason.Because.Of(cause, sent)
		}
		return ended
	}
	limit := job.Size(0)
	if r.work.Limits != nil {
		limit = r.work.Limits.Memory
	}
	const killed = 128 + 9
	switch {
	case state.OOMKilled && limit > 0:
		ended.Reason = reason.OverMemory.Of(ending, fmt.Sprint(limit))
	case code == killed && limit > 0 && !slices.Contains(successCodes(success), code):
		ended.Reason = reason.LikelyMemory.Of(ending, fmt.Sprint(limit))
	case code == killed && !slices.Contains(successCodes(success), code):
		ended.Reason = reason.KilledByOthers.Of(ending)
	case !slices.Contains(successCodes(success), code):
		ended.Reason = ending
	case !r.match.OK():
		ended.Reason = reason.Unmatched.Of(ending, success.Match)
	default:
		ended.Outcome = job.OutcomeSucceeded
	}
	return ended
}

// sent describes the signals to the container; none if it ended without one.
func (r *attempt) sent(ending job.Reason) (sent job.Reason) {
	if r.asked.IsZero() && r.killed.IsZero() {
		return sent
	}
	switch {
	case r.asked.IsZero():
		return reason.Killed.Of(shortly(r.killed.Sub(r.began)), job.Reason{})
	case !r.killed.IsZero():
		return reason.SignalKilled.Of(r.stopSignal, shortly(r.asked.Sub(r.began)), shortly(r.killed.Sub(r.asked)))
	}
	return reason.SignalAnswered.Of(r.stopSignal, shortly(r.asked.Sub(r.began)), ending, shortly(time.Since(r.asked)))
}

// shortly rounds a time to the precision that a reader needs.
func shortly(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

func attemptLabel(n int) string { return strconv.Itoa(n) }
