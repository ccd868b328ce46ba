package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// errWeather is the error of an unreachable store.
var errWeather = fmt.Errorf("%w in this weather", store.ErrAway)

// weather is the state of the network for the processes of a host.
type weather struct {
	mu     sync.Mutex
	random *rand.Rand
	loss   float64
	slow   bool
	reach  reach
}

// reach is the fate of calls to a store that is away.
type reach int

const (
	reached reach = iota
	refused       // no call arrives, and the caller soon gets an error
	silence       // half of the calls arrive, and none is answered
)

const (
	// noticed is after how long a lost call is noticed.
	noticed = 500 * time.Millisecond
	// patience is how long stores on a database wait for a silent one.
	patience = 30 * time.Second
)

func (w *weather) set(loss float64, slow bool, r reach) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loss, w.slow, w.reach = loss, slow, r
}

// way is the fate of a call in one direction.
type way struct {
	takes      time.Duration
	lost, mute bool // mute means lost without an error
}

// draw decides about one way of a call: there, or back.
func (w *weather) draw(back bool) (d way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slow {
		d.takes = time.Duration(w.random.IntN(int(300 * time.Millisecond)))
		if w.random.IntN(30) == 0 {
			d.takes += time.Duration(w.random.IntN(int(8 * time.Second)))
		}
	}
	switch w.reach {
	case refused:
		d.lost = true
	case silence:
		d.mute = back || w.random.IntN(2) == 0
		d.lost = d.mute
	default:
		d.lost = w.loss > 0 && w.random.Float64() < w.loss/2
	}
	switch {
	case d.mute:
		d.takes = patience
	case d.lost:
		d.takes += noticed
	}
	return d
}

// moment draws the duration of an ordinary call.
func (w *weather) moment() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(50_000 + w.random.IntN(2_000_000))
}

// twice draws whether a hint arrives twice.
func (w *weather) twice() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(2) == 0
}

// gate is a process's access to the store: none after a kill, and delayed while frozen.
type gate struct {
	store.Store
	weather *weather
	history *History
	killed  chan struct{}

	mu     sync.Mutex
	frozen chan struct{} // closed when it wakes; nil while it is awake
}

// errKilled is the error of a killed process's calls.
var errKilled = errors.New("this process was killed")

// awake waits until the process is awake, and reports whether it lives.
func (g *gate) awake() bool {
	for {
		g.mu.Lock()
		frozen := g.frozen
		g.mu.Unlock()
		if frozen == nil {
			break
		}
		select {
		case <-frozen:
		case <-g.killed:
		}
		if g.dead() {
			break
		}
	}
	return !g.dead()
}

func (g *gate) dead() bool {
	select {
	case <-g.killed:
		return true
	default:
		return false
	}
}

func (g *gate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen == nil {
		g.frozen = make(chan struct{})
	}
}

func (g *gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen != nil {
		close(g.frozen)
		g.frozen = nil
	}
}

// travel waits for one direction of a call.
func (g *gate) travel(ctx context.Context, takes time.Duration) error {
	if takes > 0 {
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-g.killed:
		}
	}
	if !g.awake() {
		return errKilled
	}
	return ctx.Err()
}

// write makes a writing call, which takes a moment.
func (g *gate) write(ctx context.Context, do func() error) error {
	return g.call(ctx, g.weather.moment(), do)
}

// read makes a call that changes nothing.
func (g *gate) read(ctx context.Context, do func() error) error { return g.call(ctx, 0, do) }

func (g *gate) call(ctx context.Context, moment time.Duration, do func() error) error {
	there := g.weather.draw(false)
	if there.mute {
		g.history.mute(false)
	}
	if err := g.travel(ctx, moment+there.takes); err != nil {
		return err
	}
	if there.lost {
		return errWeather
	}
	err := do()
	back := g.weather.draw(true)
	if back.mute {
		g.history.mute(true)
	}
	if waited := g.travel(ctx, back.takes); waited != nil {
		return waited // the answer is lost
	}
	if back.lost {
		return errWeather
	}
	return err
}

// Hints are lost in bad weather, and doubled in any.
func (g *gate) Hints(ctx context.Context) <-chan store.Hint {
	from, to := g.Store.Hints(ctx), make(chan store.Hint, 1)
	go func() {
		defer close(to)
		for hint := range from {
			if !g.awake() {
				continue
			}
			if d := g.weather.draw(true); d.lost || g.travel(ctx, d.takes) != nil {
				continue
			}
			select {
			case to <- hint:
			case <-ctx.Done():
			}
			if g.weather.twice() {
				select {
				case to <- hint:
				default: // the node has not read the first one
				}
			}
		}
	}()
	return to
}

func (g *gate) Claim(ctx context.Context, s job.ID, a []store.Attempt) (out []store.ClaimOutcome, err error) {
	err = g.write(ctx, func() (err error) { out, err = g.Store.Claim(ctx, s, a); return err })
	return out, err
}

func (g *gate) Finish(ctx context.Context, s job.ID, r []store.Result) (out []store.FinishOutcome, err error) {
	err = g.write(ctx, func() (err error) { out, err = g.Store.Finish(ctx, s, r); return err })
	if err == nil {
		g.history.ack(r, out)
	}
	return out, err
}

func (g *gate) Release(ctx context.Context, s job.ID, a []store.Attempt) error {
	return g.write(ctx, func() error { return g.Store.Release(ctx, s, a) })
}

func (g *gate) Plan(ctx context.Context, s job.ID, items []store.PlanItem) (out []store.PlanOutcome, claims []store.ClaimOutcome, err error) {
	err = g.write(ctx, func() (err error) { out, claims, err = g.Store.Plan(ctx, s, items); return err })
	return out, claims, err
}

func (g *gate) Trigger(ctx context.Context, items []store.TriggerItem) (out []store.TriggerOutcome, err error) {
	err = g.write(ctx, func() (err error) { out, err = g.Store.Trigger(ctx, items); return err })
	return out, err
}

func (g *gate) Place(ctx context.Context, p []store.Placement) error {
	return g.write(ctx, func() error { return g.Store.Place(ctx, p) })
}

func (g *gate) Reap(ctx context.Context, s job.ID, a []store.Attempt) error {
	return g.write(ctx, func() error { return g.Store.Reap(ctx, s, a) })
}

func (g *gate) Join(ctx context.Context, s store.Session) (out store.Session, err error) {
	err = g.write(ctx, func() (err error) { out, err = g.Store.Join(ctx, s); return err })
	return out, err
}

func (g *gate) Renew(ctx context.Context, s job.ID, load store.Load) error {
	return g.write(ctx, func() error { return g.Store.Renew(ctx, s, load) })
}

func (g *gate) Leave(ctx context.Context, s job.ID) error {
	return g.write(ctx, func() error { return g.Store.Leave(ctx, s) })
}

func (g *gate) End(ctx context.Context, s job.ID) error {
	return g.write(ctx, func() error { return g.Store.End(ctx, s) })
}

func (g *gate) Tidy(ctx context.Context) (more bool, err error) {
	err = g.read(ctx, func() (err error) { more, err = g.Store.Tidy(ctx); return err })
	return more, err
}

func (g *gate) Now(ctx context.Context) (now time.Time, err error) {
	err = g.read(ctx, func() (err error) { now, err = g.Store.Now(ctx); return err })
	return now, err
}

func (g *gate) Sessions(ctx context.Context) (out []store.Session, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.Sessions(ctx); return err })
	return out, err
}

func (g *gate) JobsChanged(ctx context.Context, p store.Partitions, since int64, limit int) (out []store.PlannedJob, next int64, err error) {
	err = g.read(ctx, func() (err error) { out, next, err = g.Store.JobsChanged(ctx, p, since, limit); return err })
	return out, next, err
}

func (g *gate) Cursors(ctx context.Context, uids []job.ID) (out []store.JobCursor, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.Cursors(ctx, uids); return err })
	return out, err
}

func (g *gate) JobsByUID(ctx context.Context, uids []job.ID) (out []*store.Job, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.JobsByUID(ctx, uids); return err })
	return out, err
}

func (g *gate) ListJobs(ctx context.Context, q store.JobQuery) (out []*store.Job, next string, err error) {
	err = g.read(ctx, func() (err error) { out, next, err = g.Store.ListJobs(ctx, q); return err })
	return out, next, err
}

func (g *gate) Ready(ctx context.Context, q store.ReadyQuery) (out []store.ReadyRun, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.Ready(ctx, q); return err })
	return out, err
}

func (g *gate) ListActive(ctx context.Context, q store.ActiveQuery) (out []store.Run, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.ListActive(ctx, q); return err })
	return out, err
}

func (g *gate) Backlog(ctx context.Context, limit int) (out map[job.ID]int, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.Backlog(ctx, limit); return err })
	return out, err
}

func (g *gate) Unplaced(ctx context.Context, after store.RunRef, limit int) (out []store.Run, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.Unplaced(ctx, after, limit); return err })
	return out, err
}

func (g *gate) Lost(ctx context.Context, limit int) (out []store.Attempt, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.Lost(ctx, limit); return err })
	return out, err
}

func (g *gate) Alerts(ctx context.Context, limit int) (out []store.Alert, err error) {
	err = g.read(ctx, func() (err error) { out, err = g.Store.Alerts(ctx, limit); return err })
	return out, err
}

// witness is an executor that records the events of one process.
type witness struct {
	node    string
	gate    *gate
	history *History
	cluster *cluster
	calm    func() bool

	mu      sync.Mutex
	random  *rand.Rand
	running map[*Attempt]bool
}

// Run implements executor.Executor.
func (x *witness) Run(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
	if !x.gate.awake() {
		return executor.Result{Unstarted: true, Reason: job.Text("killed")}
	}
	if err := a.Start(); err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	if specOf(a.Run.Name).handed {
		return x.handOver(ctx, a)
	}
	x.mu.Lock()
	seen := &Attempt{Run: a.Run, Number: a.Number, Node: x.node, Gains: gainsBy(&a.Run), Started: time.Now()}
	x.running[seen] = true
	takes := time.Duration(x.random.IntN(int(6 * time.Second)))
	if x.random.IntN(16) == 0 && !x.calm() {
		takes *= 20
	}
	failed := x.random.IntN(8) == 0
	x.mu.Unlock()
	x.history.begin(seen)

	r := executor.Result{Outcome: job.OutcomeSucceeded}
	if failed {
		r = executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text("exit status 1")}
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		r = executor.Result{}
		r.Outcome, r.Reason = executor.ByCause(ctx)
	case <-x.gate.killed:
	}
	if !x.gate.awake() {
		r = executor.Result{Outcome: job.OutcomeLost, Reason: job.Text("killed")}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.running, seen)
	if seen.Ended.IsZero() {
		x.history.end(seen, time.Now(), r.Outcome)
	}
	return r
}

// freeze notes that running attempts stop, and wake that they continue.
func (x *witness) freeze() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a := range x.running {
		if a.Frozen.IsZero() {
			a.Frozen = time.Now()
		}
	}
}

func (x *witness) wake() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a := range x.running {
		if !a.Frozen.IsZero() {
			a.Woken = time.Now()
		}
	}
}

// kill ends what runs.
func (x *witness) kill() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a := range x.running {
		if !a.Frozen.IsZero() && a.Woken.IsZero() {
			a.Woken = time.Now() // it no longer runs, and did not run before
		}
		x.history.end(a, time.Now(), job.OutcomeLost)
	}
}
