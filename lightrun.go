package belfry

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/timer"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// light runs the jobs of a scheduler with [Light]: one goroutine waits for due jobs, and as few
// others as possible call handlers.
type light struct {
	s *Scheduler

	mu      sync.Mutex
	jobs    map[string]*lightJob
	kinds   map[lightKey]*lightKind
	handler *lightHandler // the last declaration's
	timers  timer.Queue
	alarms  []func(now time.Time) // by the handles of timers
	spare   []uint32              // handles
	due     []uint32              // due timers of a moment, for reuse
	ready   herds
	first   *lightRun   // unfinished runs
	free    *lightRun   // unused runs of plain jobs, linked by after
	results []*lightRun // the last ended runs of Trigger
	running bool
	closed  bool          // nothing more falls due
	begun   atomic.Int64  // how many runs
	looking int           // goroutines between two handlers
	busy    int           // goroutines in a handler
	idle    chan struct{} // closed once closed is set and the last handler has returned
	wake    chan struct{} // of capacity one: there is an earlier alarm
	wakesAt int64
}

const (
	// lookAtLeast is how often the clock is read at least: it may be set while no job is due.
	lookAtLeast = 10 * time.Second
	// keptMax is how many triggered runs Wait and [Result] find after their end; each may have a
	// result of [ResultMax] bytes.
	keptMax = 100
	// passedMax bounds the search for the latest occurrence that passed while the process stood
	// still.
	passedMax = 1000
)

func newLight(s *Scheduler) *light {
	return &light{s: s, jobs: map[string]*lightJob{}, kinds: map[lightKey]*lightKind{}, wake: make(chan struct{}, 1), idle: make(chan struct{})}
}

func (l *light) now() time.Time { return l.s.settings.now() }

// lightRun is a run with its handler's view, in one allocation.
type lightRun struct {
	Run
	l             *light
	job           *lightJob
	kind          *lightKind
	due, began    time.Time
	state         job.RunState
	holds         bool // it holds a slot of its job
	returned      bool // its handler has returned; guarded by mu of Run
	forWait       bool // for Wait
	before, after *lightRun
	waitsBefore   *lightRun // the next in the same job to get a slot
	logger        slog.Logger
	ctx           context.Context // created on first use
	cancel        context.CancelCauseFunc
	done          chan struct{}
	how           lightEnd
}

// herd are jobs that fall due at one moment, or one run that may start.
type herd struct {
	run            *lightRun
	kind           *lightKind
	jobs           []*lightJob
	at, prev, next time.Time
}

// herds is a queue.
type herds struct {
	list []herd
	head int
}

func (q *herds) push(h herd) { q.list = append(q.list, h) }

func (q *herds) pop() {
	q.list[q.head] = herd{}
	if q.head++; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
}

// at calls a function at a moment or soon after, with l.mu held.
func (l *light) at(at time.Time, f func(now time.Time)) {
	if l.closed {
		return
	}
	handle := uint32(len(l.alarms))
	if n := len(l.spare); n > 0 {
		handle, l.spare = l.spare[n-1], l.spare[:n-1]
		l.alarms[handle] = f
	} else {
		l.alarms = append(l.alarms, f)
	}
	l.timers.Push(at.UnixNano(), handle)
	if at.UnixNano() < l.wakesAt {
		select {
		case l.wake <- struct{}{}:
		default: // it is already waking up
		}
	}
}

// run runs the jobs until ctx ends and the handlers have returned.
func (l *light) run(ctx context.Context) error {
	l.start() //nolint:contextcheck // runs have contexts of their own
	sleep := time.NewTimer(0)
	defer sleep.Stop()
	for ctx.Err() == nil {
		l.mu.Lock()
		now := l.now()
		l.due = l.timers.Due(now.UnixNano(), l.due[:0])
		for _, handle := range l.due {
			ring := l.alarms[handle]
			l.alarms[handle], l.spare = nil, append(l.spare, handle)
			ring(now)
		}
		l.help() //nolint:contextcheck // runs have contexts of their own
		l.wakesAt = now.Add(lookAtLeast).UnixNano()
		if next, ok := l.timers.Next(); ok {
			l.wakesAt = min(l.wakesAt, next)
		}
		sleep.Reset(time.Duration(l.wakesAt - l.now().UnixNano()))
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-sleep.C:
		}
	}
	l.stop() //nolint:contextcheck // runs have contexts of their own
	return nil
}

// start begins the schedules of all jobs.
func (l *light) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = true
	now := l.now()
	armed := map[*lightKind]bool{}
	for _, j := range l.jobs {
		l.resolve(j)
		j.since = now.UnixNano()
		l.chain(j, now)
		if j.kind.policy.Boot {
			l.single(j, job.RunBoot, now)
		}
		if k := j.kind; !armed[k] {
			armed[k] = true
			l.arm(k, now)
		}
	}
}

// arm waits for the next occurrence of a kind.
func (l *light) arm(k *lightKind, now time.Time) {
	if k.schedule == nil {
		return
	}
	if k.at = k.schedule.Next(now); !k.at.IsZero() {
		l.at(k.at, func(now time.Time) { l.fall(k, now) })
	}
}

// fall makes the jobs of a kind due. If occurrences passed while the process stood still, only the
// latest runs.
func (l *light) fall(k *lightKind, now time.Time) {
	if len(k.jobs) == k.gone {
		return
	}
	at := k.at
	if !k.own {
		for range passedMax {
			next := k.schedule.Next(at)
			if next.IsZero() || next.After(now) {
				break
			}
			k.previous, at = at, next
		}
		if k.previous.IsZero() {
			k.previous = cron.Before(k.schedule, at)
		}
	}
	if now.Before(at) {
		now = at
	}
	l.arm(k, now)
	l.ready.push(herd{kind: k, jobs: k.jobs, at: at, prev: k.in(k.previous), next: k.in(k.at)})
	k.previous = at
}

// in returns a time in the zone of a kind.
func (k *lightKind) in(t time.Time) time.Time {
	if k.zone == nil || t.IsZero() {
		return t
	}
	return t.In(k.zone)
}

// chain plans the next run of a job that is due after the end of the last one.
func (l *light) chain(j *lightJob, now time.Time) {
	p, since := j.kind.policy, j.since
	if p.AfterEnd == 0 || !l.running {
		return
	}
	at := now.Add(p.AfterEnd)
	if at.Before(p.Start) {
		at = p.Start
	}
	if !p.End.IsZero() && at.After(p.End) {
		return
	}
	l.at(at, func(time.Time) {
		if j.kind != nil && j.since == since && !j.paused && j.counted() {
			l.single(j, job.RunAfterEnd, at)
		}
	})
}

// counted counts a scheduled run of a job, and reports whether max_runs permits it.
func (j *lightJob) counted() bool {
	if most := j.kind.policy.MaxRuns; most > 0 && int(j.planned) >= most {
		return false
	}
	j.planned++
	return true
}

// single creates a due run of one job.
func (l *light) single(j *lightJob, kind job.RunKind, at time.Time) {
	if j.kind == nil || l.closed {
		return
	}
	l.ready.push(herd{run: l.newRun(j, kind, at)})
	l.help()
}

// newRun makes a run.
func (l *light) newRun(j *lightJob, kind job.RunKind, at time.Time) *lightRun {
	r := l.free
	if r == nil || !j.plain {
		r = &lightRun{}
	} else {
		l.free = r.after
		*r = lightRun{}
	}
	r.l, r.job, r.kind, r.due, r.state = l, j, j.kind, at, job.StateReady
	binary.BigEndian.PutUint64(r.ID[:], uint64(at.UnixMilli())<<16|rand.Uint64()>>48)
	binary.BigEndian.PutUint64(r.ID[8:], rand.Uint64())
	r.Job, r.Namespace, r.Kind, r.Node = j.name, l.s.settings.namespace, kind, l.s.settings.node
	r.Scheduled, r.Attempt, r.Shards, r.Params = j.kind.in(at), 1, 1, j.params
	r.logger = *slog.New((*lightLog)(r))
	r.Log, r.out = &r.logger, executor.Output{Stdout: io.Discard, Stderr: (*lightLog)(r)}
	if r.after = l.first; r.after != nil {
		r.after.before = r
	}
	l.first = r
	return r
}

// take returns the next run that may start, or nil.
func (l *light) take(now time.Time) *lightRun {
	for l.ready.head < len(l.ready.list) && l.busy < l.s.settings.capacity {
		h := &l.ready.list[l.ready.head]
		if r := h.run; r != nil {
			l.ready.pop()
			if r.state == job.StateReady && (r.holds || l.admit(r, now)) {
				return r
			}
			continue
		}
		if len(h.jobs) == 0 {
			l.ready.pop()
			continue
		}
		j := h.jobs[0]
		h.jobs = h.jobs[1:]
		if j.kind != h.kind || j.paused || h.at.UnixNano() <= j.since || !j.counted() {
			continue
		}
		if p := h.kind.policy; p.Overlap == job.OverlapSkip && int(j.running) >= p.MaxParallel {
			j.counts[slices.Index(outcomes[:], job.OutcomeSkipped)]++
			continue
		}
		r := l.newRun(j, job.RunScheduled, h.at)
		r.Previous, r.Next = h.prev, h.next
		if most := h.kind.policy.Jitter; most > 0 {
			if !h.next.IsZero() {
				most = min(most, h.next.Sub(h.at)-1)
			}
			r.due = h.at.Add(rand.N(most))
			if l.closed {
				l.conclude(r, job.OutcomeLost, reason.NodeStopped.Of(), now)
				continue
			}
			l.at(r.due, func(time.Time) { l.ready.push(herd{run: r}) })
			continue
		}
		if l.admit(r, now) {
			return r
		}
	}
	return nil
}

// admit gives a run a slot of its job, or applies the overlap policy.
func (l *light) admit(r *lightRun, now time.Time) bool {
	j, p := r.job, r.kind.policy
	if late := p.LateAfter(r.Kind, r.due); !late.IsZero() && now.After(late) {
		l.conclude(r, job.OutcomeMissed, reason.NodeTooSlow.Of(r.Node), now)
		return false
	}
	if p.Overlap == job.OverlapAllow || int(j.running) < p.MaxParallel {
		j.running++
		r.holds = true
		return true
	}
	switch p.Overlap {
	case job.OverlapQueue:
		if int(j.waiting) >= p.QueueLimit {
			l.conclude(r, job.OutcomeSkipped, reason.QueueFull.Of(l.holder(j), int(j.waiting)), now)
			return false
		}
	case job.OverlapReplace:
		if j.next != nil {
			l.conclude(j.next, job.OutcomeSkipped, l.holder(j), now)
		}
		for other := l.first; other != nil; other = other.after {
			if other.job == j && other.holds {
				l.end(other, &executor.Cancelled{By: "policy overlap: replace", Reason: reason.NotEnded.Of(other.ID, other.Scheduled)})
			}
		}
	default:
		l.conclude(r, job.OutcomeSkipped, l.holder(j), now)
		return false
	}
	if l.closed {
		l.conclude(r, job.OutcomeLost, reason.NodeStopped.Of(), now)
		return false
	}
	r.state = job.StateWaiting
	j.waiting++
	last := &j.next
	for *last != nil {
		last = &(*last).waitsBefore
	}
	*last = r
	return false
}

// holder explains which run has the slot of a job.
func (l *light) holder(j *lightJob) job.Reason {
	for r := l.first; r != nil; r = r.after {
		if r.job == j && r.holds {
			return reason.StillRunning.Of(r.ID, r.Scheduled, r.Node)
		}
	}
	return job.Reason{}
}

// end ends the context of a running run, or a run that waits for its next attempt.
func (l *light) end(r *lightRun, cause *executor.Cancelled) {
	if r.state == job.StateRunning {
		r.stop(cause)
	} else {
		l.conclude(r, job.OutcomeCancelled, reason.Cancelled.Of(cause.By, cause.Reason), l.now())
	}
}

// help makes a goroutine look for work, unless one does. So a blocking handler delays no other, and
// short handlers need few goroutines.
func (l *light) help() {
	if l.running && l.looking == 0 && l.ready.head < len(l.ready.list) && l.busy < l.s.settings.capacity {
		l.looking++
		go l.work(l.begun.Load(), time.Now())
	}
}

const (
	// quickly is the duration of runs below which a second goroutine is no help: both would wait
	// for one lock.
	quickly = 3 * time.Microsecond
	// quickMin is how many runs show it.
	quickMin = 4
	// lookAgain is how long a blocking handler after such runs may delay others.
	lookAgain = 50 * time.Microsecond
)

// yield waits while another goroutine calls handlers as fast as two would.
func (l *light) yield(begun int64, since time.Time) {
	for {
		now, n := time.Now(), l.begun.Load()
		if n-begun < quickMin || now.Sub(since) > time.Duration(n-begun)*quickly {
			return
		}
		begun, since = n, now
		time.Sleep(lookAgain)
	}
}

// work calls handlers until none is left to call.
func (l *light) work(begun int64, since time.Time) {
	var r *lightRun
	l.yield(begun, since)
	l.mu.Lock()
	defer func() {
		if r != nil { // the handler has called runtime.Goexit
			l.mu.Lock()
			l.busy--
			l.over(r, executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text("the handler has ended its goroutine")}, l.now())
		}
		l.help()
		if l.closed && l.busy == 0 && l.looking == 0 {
			l.closeIdle()
		}
		l.mu.Unlock()
	}()
	now := l.now()
	for {
		if r = l.take(now); r == nil {
			l.looking--
			return
		}
		if r.state = job.StateRunning; r.Attempt == 1 {
			r.began = now
		}
		l.begun.Add(1)
		l.looking--
		l.busy++
		l.help()
		l.mu.Unlock()
		result := r.call()
		now = l.now()
		l.mu.Lock()
		l.looking++
		l.busy--
		l.over(r, result, now)
	}
}

func (l *light) closeIdle() {
	select {
	case <-l.idle:
	default:
		close(l.idle)
	}
}

// call calls the handler of a run.
func (r *lightRun) call() (result executor.Result) {
	if d := r.kind.timeout; d > 0 {
		timer := time.AfterFunc(d, func() { r.stop(ErrTimeout) })
		defer timer.Stop()
	}
	result = resultOf((*lightContext)(r), &r.Run, r.chain())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.returned = true; r.cancel != nil {
		r.cancel(nil)
	}
	return result
}

func (r *lightRun) chain() (err error) {
	defer recovered(&err)
	return r.job.call((*lightContext)(r), &r.Run)
}

// over ends an attempt, and the run unless it is retried.
func (l *light) over(r *lightRun, result executor.Result, now time.Time) {
	p := r.kind.policy
	if r.Attempt <= p.Retries && !l.closed && r.job.kind != nil && p.MayRetry(&store.Result{Outcome: result.Outcome, Permanent: result.Permanent}) {
		due := now.Add(p.RetryDelay(r.ID, r.Attempt))
		if p.RetryWithin == 0 || !due.After(r.began.Add(p.RetryWithin)) {
			l.s.settings.log.Warn("a run has failed; it is tried again", "job", r.Job, "attempt", r.Attempt, "reason", result.Reason.String(), "at", due)
			again := l.newRun(r.job, r.Kind, due) // the old handler may still read its own run
			again.ID, again.Attempt, again.Scheduled, again.Previous, again.Next = r.ID, r.Attempt+1, r.Scheduled, r.Previous, r.Next
			again.Params, again.Metadata, again.began, again.holds, again.forWait, again.done = r.Params, r.Metadata, r.began, r.holds, r.forWait, r.done
			r.state, r.done = job.StateDone, nil
			l.unlink(r)
			l.at(due, func(time.Time) { l.ready.push(herd{run: again}) })
			return
		}
	}
	l.conclude(r, result.Outcome, result.Reason, now)
}

// conclude ends a run.
func (l *light) conclude(r *lightRun, outcome job.Outcome, why job.Reason, now time.Time) {
	j := r.job
	if r.state == job.StateWaiting {
		for next := &j.next; *next != nil; next = &(*next).waitsBefore {
			if *next == r {
				*next = r.waitsBefore
				j.waiting--
				break
			}
		}
	}
	ran := r.state == job.StateRunning
	r.state = job.StateDone
	l.unlink(r)
	end := lightEnd{
		id: r.ID, kind: uint8(slices.Index(kinds[:], r.Kind)), outcome: uint8(slices.Index(outcomes[:], outcome)), attempt: int32(r.Attempt),
		scheduled: r.Scheduled.UnixNano(), over: now.UnixNano(),
	}
	if !why.IsZero() {
		end.reason = new(why)
	}
	if !r.began.IsZero() {
		end.began = r.began.UnixNano()
	}
	j.last = end
	j.counts[end.outcome]++
	if ran && j.plain && !r.forWait { // no queue or alarm has it
		r.mu.Lock()
		if r.ctx == nil { // no caller has it to end it later
			defer func() { r.after, l.free = l.free, r }()
		}
		r.mu.Unlock()
	}
	if r.forWait {
		r.how = end
		if l.results = append(l.results, r); len(l.results) > keptMax {
			l.results[0] = nil
			l.results = l.results[1:]
		}
		if r.done != nil {
			close(r.done)
			r.done = nil
		}
	}
	if outcome.Failed() {
		l.s.settings.log.Error("a run has failed", "job", r.Job, "outcome", string(outcome), "reason", why.String(), "attempt", r.Attempt)
		if j.failures++; j.kind != nil && int(j.failures) == j.kind.policy.PauseOnFailure {
			l.s.settings.log.Warn("a job is paused: it has failed too often in a row", "job", r.Job, "failures", j.failures)
			j.setPaused(l, true)
		}
	} else if outcome == job.OutcomeSucceeded {
		j.failures = 0
	}
	if r.holds {
		j.running--
		if next := j.next; next != nil && !l.closed {
			j.next, next.waitsBefore, next.state = next.waitsBefore, nil, job.StateReady
			j.waiting--
			j.running++
			next.holds = true
			l.ready.push(herd{run: next})
			l.help()
		}
	}
	if r.Kind == job.RunAfterEnd && j.kind != nil && !j.paused && !l.closed {
		l.chain(j, now)
	}
}

// unlink removes a run from the list of all runs.
func (l *light) unlink(r *lightRun) {
	if r.before != nil {
		r.before.after = r.after
	} else {
		l.first = r.after
	}
	if r.after != nil {
		r.after.before = r.before
	}
}

// find returns a run that has not ended.
func (l *light) find(id RunID) *lightRun {
	for r := l.first; r != nil; r = r.after {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// stop waits for handlers, then ends their contexts, and finally abandons them.
func (l *light) stop() {
	l.mu.Lock()
	l.closed = true
	due := map[*lightRun]bool{} // these still start, as capacity permits
	for _, h := range l.ready.list[l.ready.head:] {
		due[h.run] = true
	}
	l.abandon(due)
	l.help()
	if l.busy == 0 && l.looking == 0 {
		l.closeIdle()
	}
	l.mu.Unlock()
	if l.isIdleWithin(l.s.settings.drain) {
		return
	}
	l.mu.Lock()
	l.ready = herds{}
	l.abandon(nil)
	var running []*lightRun
	grace := time.Duration(0)
	for r := l.first; r != nil; r = r.after {
		running = append(running, r)
		grace = max(grace, r.kind.grace)
	}
	l.mu.Unlock()
	for _, r := range running {
		r.stop(ErrStopped)
	}
	if !l.isIdleWithin(grace + abandonMargin) {
		l.s.settings.log.Warn("handlers ignore the end of their context and are left behind", "handlers", len(running))
	}
}

// abandon ends the runs that have not started, except those in but.
func (l *light) abandon(but map[*lightRun]bool) {
	now := l.now()
	for r := l.first; r != nil; {
		after := r.after
		if r.state != job.StateRunning && !but[r] {
			l.conclude(r, job.OutcomeLost, reason.NodeStopped.Of(), now)
		}
		r = after
	}
}

// isIdleWithin waits for the last handler, and reports whether it has returned.
func (l *light) isIdleWithin(d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-l.idle:
		return true
	case <-over.C:
		return false
	}
}

// stop ends the context of a run.
func (r *lightRun) stop(cause error) {
	r.context()
	r.cancel(cause)
}

// context returns the context of a run. It is made when a handler uses it: most do not.
func (r *lightRun) context() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		if r.ctx, r.cancel = context.WithCancelCause(context.Background()); r.returned {
			r.cancel(nil)
		}
	}
	return r.ctx
}

// lightContext is the context of a run. Its methods use a context of package context, which
// [context.Cause] finds by Value.
type lightContext lightRun

// Deadline implements [context.Context].
func (c *lightContext) Deadline() (time.Time, bool) { return (*lightRun)(c).context().Deadline() }

// Done implements [context.Context].
func (c *lightContext) Done() <-chan struct{} { return (*lightRun)(c).context().Done() }

// Err implements [context.Context].
func (c *lightContext) Err() error { return (*lightRun)(c).context().Err() }

// Value implements [context.Context].
func (c *lightContext) Value(key any) any { return (*lightRun)(c).context().Value(key) }

// lightLog writes what a run logs and writes to the log of the program.
type lightLog lightRun

func (g *lightLog) handler() slog.Handler { return g.l.s.settings.log.Handler() }

// Enabled implements [slog.Handler].
func (g *lightLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= g.l.s.settings.logLevel && g.handler().Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (g *lightLog) Handle(ctx context.Context, r slog.Record) error {
	return g.WithAttrs(nil).Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (g *lightLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return g.handler().WithAttrs(append([]slog.Attr{slog.String("job", g.Job), slog.Any("run", g.ID)}, attrs...))
}

// WithGroup implements [slog.Handler].
func (g *lightLog) WithGroup(name string) slog.Handler { return g.WithAttrs(nil).WithGroup(name) }

// Write logs what a handler writes.
func (g *lightLog) Write(p []byte) (int, error) {
	g.Run.Log.Info(string(bytes.TrimRight(p, "\n")))
	return len(p), nil
}
