package container

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

const (
	// podman is the engine whose output is polled: following it, Podman 4 mixes up and loses lines of
	// commands that write fast.
	podman = "Podman"
	// pollLeast is the shortest wait between polls of the output, too short to notice. pollShare is
	// the least wait as a multiple of the duration of the last poll.
	pollLeast, pollShare = 250 * time.Millisecond, 10
)

// end is the end of a container.
type end struct {
	state engine.State
	gone  bool // another program has removed it
}

// follow reads the output of the container and waits for its end. When ctx ends, it ends the
// container.
func (r *attempt) follow(ctx context.Context) executor.Result {
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReading()
	over := make(chan end, 1)       // receives the end of the container
	ended := make(chan struct{})    // closed before
	finished := make(chan struct{}) // closed once reading has ended
	sampling, stopSampling := context.WithCancel(context.WithoutCancel(ctx))
	sampled := make(chan job.Usage, 1) // receives what was used, once sampling has ended
	go func() { sampled <- r.sample(sampling) }()
	go func() {
		if e, ok := r.watch(watching); ok {
			close(ended)
			over <- e
		}
	}()
	go func() {
		defer close(finished)
		r.read(reading, ended)
	}()

	var e end
	var known bool
	select {
	case e = <-over:
		known = true
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), executor.ErrCarried) {
			stopReading()
			<-finished
			stopSampling()
			r.used = <-sampled
			return r.carry()
		}
		e, known = r.stop(ctx, over)
	}
	stopSampling()
	r.used = <-sampled
	if !known {
		stopReading()
		<-finished
		outcome, why := executor.ByCause(ctx)
		return executor.Result{Outcome: outcome, Reason: reason.Because.Of(why, reason.EngineLost.Of(words(r.whyAway(ctx))))}
	}
	r.drain(ctx, finished, stopReading, e.gone)
	r.match.End()
	fenced := r.config.Watch.Fenced(r.watched)
	result := r.concluded(ctx, e, fenced)
	result.Usage = r.used
	result.Release = func() {
		r.config.Watch.Ended(r.watched)
		r.remove(ctx)
	}
	return result
}

// concluded returns the result of an attempt whose container has ended.
func (r *attempt) concluded(ctx context.Context, e end, fenced bool) executor.Result {
	if fenced && r.asked.IsZero() && r.killed.IsZero() {
		ending := reason.ContainerGone.Of()
		if !e.gone {
			ending = reason.ExitStatus.Of(e.state.ExitCode)
		}
		return executor.Result{Outcome: job.OutcomeLost, Reason: reason.ByWatchdog.Of(reason.NodeFenced.Of(), ending)}
	}
	if e.gone {
		if !r.asked.IsZero() || !r.killed.IsZero() {
			outcome, why := executor.ByCause(ctx)
			return executor.Result{Outcome: outcome, Reason: reason.Because.Of(why, reason.ContainerGone.Of())}
		}
		return failed(reason.ContainerGone.Of())
	}
	result := r.result(ctx, e.state)
	if result.Outcome == job.OutcomeSucceeded && r.WantsResult {
		var err error
		if result.Value, err = r.readResult(ctx); err != nil {
			result.Outcome, result.Reason = job.OutcomeFailed, job.Text(err.Error())
		}
	}
	return result
}

// carry leaves the container to another process.
func (r *attempt) carry() executor.Result {
	c := carryOver{Mark: r.mark, Began: r.began, StopSignal: r.stopSignal, Used: r.used}
	c.Found, c.Searched = r.match.State()
	text, err := json.Marshal(c)
	if err != nil {
		return executor.Result{Outcome: job.OutcomeLost, Reason: reason.CannotGoOn.Of(reason.Words(err.Error()))}
	}
	return executor.Result{CarryOver: text}
}

// watch waits for the end of the container, also through outages of the engine. ok is false if ctx
// ended first.
func (r *attempt) watch(ctx context.Context) (e end, ok bool) {
	away := false
	for pause := againFirst; ; pause = min(2*pause, againMost) {
		waited := r.engine.Wait(ctx, r.name)
		if ctx.Err() != nil {
			return e, false
		}
		c, err := r.engine.Inspect(ctx, r.name)
		switch {
		case ctx.Err() != nil:
			return e, false
		case engine.IsNotFound(err):
			return end{gone: true}, true
		case err == nil && !c.State.Running && c.State.Begun():
			return end{state: c.State}, true
		case err == nil && waited == nil:
			pause = againFirst
		case err != nil && !away:
			away = true
			r.config.Log.Warn("the container engine does not answer; waiting for it", "error", err)
		}
		if !sleep(ctx, pause) {
			return e, false
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// read copies the output of the container until its end, also through outages of the engine.
func (r *attempt) read(ctx context.Context, ended <-chan struct{}) {
	stdout, stderr := r.writers()
	follow := !r.polls.Load()
	for pause := againFirst; ; pause = min(2*pause, againMost) {
		before, began := r.mark, time.Now()
		err := r.engine.Logs(ctx, r.name, follow, &r.mark, stdout, stderr)
		if ctx.Err() != nil || engine.IsNotFound(err) {
			return
		}
		if r.mark != before {
			pause = againFirst
		}
		if !follow {
			// Podman reads the whole log each time.
			pause = max(pause, pollLeast, pollShare*time.Since(began))
		}
		// The output has ended, or the engine has.
		timer := time.NewTimer(pause)
		select {
		case <-ended:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// writers return the output of the attempt, which is searched on its way.
func (r *attempt) writers() (stdout, stderr io.Writer) {
	return &searchWriter{r.out.Stdout, r.match.Stream(0)}, &searchWriter{r.out.Stderr, r.match.Stream(1)}
}

// searchWriter is a writer whose text is searched.
type searchWriter struct {
	to    io.Writer
	match *verdict.StreamMatcher
}

// Write implements [io.Writer].
func (s *searchWriter) Write(p []byte) (int, error) {
	s.match.Write(p)
	_, _ = s.to.Write(p) // it never fails
	return len(p), nil
}

// drain reads the rest of the output after the end of the container.
func (r *attempt) drain(ctx context.Context, finished <-chan struct{}, stop context.CancelFunc, gone bool) {
	timer := time.NewTimer(drainWait)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
	}
	stop()
	<-finished
	if gone {
		return
	}
	// A stream that broke off with its engine, or began after the end, is not complete.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWait)
	defer cancel()
	stdout, stderr := r.writers()
	if err := r.engine.Logs(ctx, r.name, false, &r.mark, stdout, stderr); err != nil {
		_, _ = fmt.Fprintf(r.out.Stderr, "belfry: the output may lack its end: %v\n", err)
	}
}

// stop ends the container: with the stop signal, and after the grace with SIGKILL. known is false if
// its end is unknown.
func (r *attempt) stop(ctx context.Context, over <-chan end) (e end, known bool) {
	select {
	case e := <-over:
		return e, true // it was faster
	default:
	}
	if r.Grace > 0 {
		r.asked = time.Now()
		if e, known = r.signalUntil(ctx, over, r.stopSignal, r.Grace, false); known {
			return e, true
		}
	}
	r.killed = time.Now()
	return r.signalUntil(ctx, over, "SIGKILL", r.killWait, true)
}

// signalUntil sends a signal, and waits for the end of the container. It repeats an undelivered
// signal and, with again, a delivered one.
func (r *attempt) signalUntil(ctx context.Context, over <-chan end, signal string, within time.Duration, again bool) (e end, known bool) {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case e = <-over:
			return e, true
		case <-deadline.C:
			return e, false
		case <-retry.C:
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(signalWithin, within))
			err := r.engine.Kill(ctx, r.name, signal)
			cancel()
			if again || engine.IsAway(err) {
				retry.Reset(againMost)
			}
		}
	}
}

// whyAway returns why the end of the container is unknown.
func (r *attempt) whyAway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeWithin)
	defer cancel()
	if _, err := r.engine.Inspect(ctx, r.name); err != nil {
		return err
	}
	return fmt.Errorf("the container runs %s after SIGKILL", r.killWait)
}

// readResult returns the result that the command has written, in JSON; nil for none.
func (r *attempt) readResult(ctx context.Context) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	archive, err := r.engine.Download(ctx, r.name, job.ContainerDir+"/"+resultFile)
	if engine.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", resultVariable, err)
	}
	defer archive.Close()
	reader := tar.NewReader(archive)
	header, err := reader.Next()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", resultVariable, err)
	case header.Typeflag != tar.TypeReg:
		return nil, fmt.Errorf("%s is no longer a regular file", resultVariable)
	}
	text, err := io.ReadAll(io.LimitReader(reader, job.ResultMax+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", resultVariable, err)
	}
	return verdict.ParseResult(text)
}
