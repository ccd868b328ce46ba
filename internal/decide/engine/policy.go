package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// lateGrace is the least time for a run to start: with late_by 0 it must start on time,
// but a claim takes time.
const lateGrace = time.Second

// Policy is the decision data of a version of a job. It is immutable: a store compiles it
// when it first reads the version and caches it.
type Policy struct {
	// Planned is set for a job with occurrences for a planner: by cron, every or at.
	Planned bool
	// AfterEnd is the fixed delay of a chain of runs; 0 for none.
	AfterEnd    time.Duration
	Start, End  time.Time
	MaxRuns     int
	Jitter      time.Duration
	PutOff      time.Duration // the longest delay of an occurrence after its scheduled time
	On          []Upstream
	Boot        bool
	DeleteAfter time.Duration // negative: a completed job is kept

	Overlap     job.Overlap
	QueueLimit  int
	MaxParallel int
	Pool        string // "namespace/name", or "" for none
	// Key is set instead of Pool if the parameters of a run decide.
	Key *job.Key
	// Rate names the pool whose rate bounds starts, if it is not that of the slots, or RateKey does.
	Rate          string
	RateKey       *job.Key
	Missed        job.Missed
	LateBy        time.Duration
	NeedsPrevious bool

	Retries        int // further attempts
	Backoff        time.Duration
	Factor         float64
	BackoffMax     time.Duration
	RetryJitter    time.Duration
	RetryWithin    time.Duration // 0: without end
	RetryOn        []job.RetryOn
	RetryExitCodes []int

	LostAfter      time.Duration
	PauseOnFailure int // 0: never
	Priority       int

	// The expectations of runs; 0 for none.
	StartWithin, FinishWithin, DurationBelow, CPUBelow time.Duration
	MemoryBelow                                        job.Size

	Broadcast bool
	Split     string // the group of executors that each get a run; "" for none
	Shards    int
	Bound     bool // see job.Place.Binds
	Labels    map[string]string
	Handler   string

	// Reported is set for external work, which Belfry does not start. Grace is how long after the
	// due time a report may come.
	Reported bool
	Grace    time.Duration

	// Flow is set for a job whose work is a flow. Strategy is the strategy of its place.
	Flow     *Flow
	Strategy job.Strategy
}

// Upstream is a job whose ended runs make another job due.
type Upstream struct {
	Job     string // "namespace/name"
	Outcome job.UpstreamOn
}

// forever is a late_by without an end.
const forever = time.Duration(-1)

// CompilePolicy returns the policy of a job with its defaults filled in.
func CompilePolicy(filled *job.Job) *Policy {
	s, place, policy := &filled.Schedule, filled.Nodes(), &filled.Policy
	p := &Policy{
		Planned:     len(s.Cron) > 0 || s.Every > 0 || len(s.At) > 0,
		AfterEnd:    time.Duration(s.AfterEnd),
		Start:       s.Start,
		End:         s.End,
		MaxRuns:     s.MaxRuns,
		Jitter:      time.Duration(s.Jitter),
		PutOff:      time.Duration(s.Jitter) + time.Duration(s.Spread),
		Boot:        s.Boot,
		DeleteAfter: -1,

		Overlap:       cmp.Or(policy.Overlap, job.OverlapSkip),
		QueueLimit:    max(1, policy.QueueLimit),
		MaxParallel:   max(1, policy.MaxParallel),
		Missed:        policy.Missed,
		LateBy:        forever,
		NeedsPrevious: valueOf(policy.NeedsPrevious),

		LostAfter:      time.Duration(policy.LostAfter).Truncate(time.Millisecond), // store.Run says why
		PauseOnFailure: valueOf(policy.PauseOnFailure),
		Priority:       valueOf(policy.Priority),

		Broadcast: place.Strategy == job.StrategyBroadcast,
		Shards:    place.Shards,
		Split:     filled.SplitBy(),
		Bound:     place.Binds(),
		Labels:    place.Labels,
		Handler:   filled.Run.HandlerName(),
		Strategy:  place.Strategy,
	}
	if filled.Run.IsFlow() {
		p.Flow = compileFlow(filled)
	}
	if s.DeleteAfter != nil {
		p.DeleteAfter = time.Duration(*s.DeleteAfter)
	}
	for _, up := range s.On {
		p.On = append(p.On, Upstream{Job: qualified(filled.Namespace, up.Job), Outcome: cmp.Or(up.Outcome, job.OnSucceeded)})
	}
	p.Pool, p.Key = compileKey(filled, policy.ConcurrencyKey)
	p.Rate, p.RateKey = compileKey(filled, policy.RateKey)
	if late := policy.LateBy; late != nil && *late != job.Forever {
		p.LateBy = time.Duration(*late)
	}
	if filled.Run.IsReported() {
		p.Reported, p.Grace = true, time.Duration(filled.Run.External.Grace)
		p.Overlap, p.LateBy = job.OverlapAllow, p.Grace
	}
	if expect := policy.Expect; expect != nil {
		p.StartWithin = time.Duration(expect.StartWithin)
		p.FinishWithin = time.Duration(expect.FinishWithin)
		p.DurationBelow = time.Duration(expect.DurationBelow)
		p.CPUBelow, p.MemoryBelow = time.Duration(expect.CPUBelow), expect.MemoryBelow
	}
	if retry := policy.Retry; retry != nil && !p.Reported && p.Flow == nil {
		p.Retries = valueOf(retry.Attempts)
		p.Backoff = time.Duration(valueOf(retry.Backoff))
		p.Factor = max(1, retry.Factor)
		p.BackoffMax = time.Duration(retry.Max)
		p.RetryJitter = time.Duration(valueOf(retry.Jitter))
		p.RetryWithin = time.Duration(retry.Within)
		p.RetryOn = retry.On
		p.RetryExitCodes = retry.ExitCodes
	}
	return p
}

// compileKey returns the pool that a key names, or how the parameters of a run do.
func compileKey(filled *job.Job, key string) (pool string, byParams *job.Key) {
	switch {
	case key == "":
	case !job.IsTemplate(key):
		pool = qualified(filled.Namespace, key)
	default:
		if byParams, _ = filled.CompileKey(key); byParams == nil { // validation should have refused it
			pool = qualified(filled.Namespace, "broken")
		}
	}
	return pool, byParams
}

func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// qualified returns a name with its namespace.
func qualified(namespace, name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return cmp.Or(namespace, job.DefaultNamespace) + "/" + name
}

// Calendars returns the full names of the calendars in a job's schedule, so that a store can index
// them.
func Calendars(filled *job.Job) []string {
	var names []string
	if len(filled.Schedule.Only)+len(filled.Schedule.Except) == 0 {
		return nil
	}
	// Only the compiler knows which entries are names. Its other findings are reported elsewhere.
	ask := func(namespace, name string) *job.Calendar {
		if full := namespace + "/" + name; !slices.Contains(names, full) {
			names = append(names, full)
		}
		return &job.Calendar{Namespace: namespace, Name: name}
	}
	_, _ = filled.CompileSchedule(ask)
	return names
}

// SlotKey returns the key of the slot that a run on a node needs: of the pool, of the job, of the
// job and the shard or, for broadcasts, of the job and the node. Runs of jobs with overlap allow
// have one too, so that a change of the overlap finds the running ones.
func (p *Policy) SlotKey(r *job.Run, node string) string {
	switch {
	case p.Pooled():
		return poolSlot + p.PoolOf(r)
	case p.Broadcast:
		return r.JobUID.String() + "@" + node
	case r.Shards > 0:
		return fmt.Sprintf("%s/%d", r.JobUID, r.Shard)
	}
	return r.JobUID.String()
}

// Pooled reports whether the runs of the job share slots with those of others.
func (p *Policy) Pooled() bool { return p.Pool != "" || p.Key != nil }

// PoolOf returns the full name of a run's pool, "" for none.
func (p *Policy) PoolOf(r *job.Run) string {
	if p.Key != nil {
		return p.Key.Of(r.Params)
	}
	return p.Pool
}

// PoolOfSlot returns the full name of the pool whose slot has a key.
func PoolOfSlot(slot string) (pool string, ok bool) { return strings.CutPrefix(slot, poolSlot) }

// Contends reports whether the overlap policy may stop this run or others in its slot, so that a
// step that starts or ends it must read them. In a pool the policies of other jobs may stop it,
// even after an edit by which this job has left the pool.
func (p *Policy) Contends(r *store.Run) bool {
	return p.Overlap != job.OverlapAllow || p.overlap(r) != job.OverlapAllow || p.Pooled() || strings.HasPrefix(r.Slot, poolSlot)
}

// gains reports whether the loss of an attempt may start another one: its retry, the next run in
// its slot, or the next steps of its flow. Its node must end it first.
func (p *Policy) gains(r *store.Run) bool {
	_, pooled := PoolOfSlot(r.Slot)
	return pooled || p.overlap(r) != job.OverlapAllow || r.Kind == job.RunStep || r.Kind == job.RunByFlow ||
		p.Retries > 0 && slices.Contains(p.RetryOn, job.RetryLost)
}

// WantsShards reports whether the consequences of the end of a shard depend on the others;
// followed is set if other jobs follow the job.
func (p *Policy) WantsShards(followed bool) bool {
	return followed || p.AfterEnd > 0 || p.MaxRuns > 0 || p.PauseOnFailure > 0
}

// overlap returns the overlap policy of a run. A run that may overlap others still waits for its
// pool, whose size bounds them together.
func (p *Policy) overlap(r *store.Run) job.Overlap {
	o := cmp.Or(r.Overlap, p.Overlap)
	if o == job.OverlapAllow && p.Pooled() {
		return job.OverlapQueue
	}
	return o
}

// caughtUp returns the overlap policy of caught-up runs; "" is the job's. All of them must
// run in order, so they wait for each other and are bounded by missed_limit, not
// queue_limit.
func (p *Policy) caughtUp() job.Overlap {
	if p.Overlap == job.OverlapSkip || p.Overlap == job.OverlapQueue {
		return job.OverlapQueue
	}
	return ""
}

// unattended reports whether a late claimed run was missed, so that it waits for its slot instead
// of being skipped: it fell due while no node was running, or the policy catches up on everything
// and it is no longer on time.
func (b *Batch) unattended(p *Policy, due time.Time) bool {
	if !b.now.After(due) {
		return false
	}
	if p.Missed == job.MissedAll && b.now.Sub(due) > OnTime {
		return true
	}
	_, absent := absenceAt(due, b.absences())
	return absent
}

// LateAfter returns when the first attempt of a run is too late. Requested runs, manual
// ones and backfills, are never too late.
func (p *Policy) LateAfter(kind job.RunKind, due time.Time) time.Time {
	if p.LateBy < 0 || kind == job.RunByHand || kind == job.RunBackfill || kind == job.RunByFlow {
		return time.Time{}
	}
	return due.Add(max(p.LateBy, lateGrace))
}

// Fit is the effect of a policy on every unstarted run of its job: [Batch.Refit] applies it after an
// edit. A store may keep it once per job.
type Fit struct {
	Pool          string
	Broadcast     bool
	NeedsPrevious bool
	LateBy        time.Duration
}

// Fit returns the effect of the policy on unstarted runs.
func (p *Policy) Fit() Fit { return Fit{p.Pool, p.Broadcast, p.NeedsPrevious, p.LateBy} }

func (f *Fit) policy() *Policy {
	return &Policy{Pool: f.Pool, Broadcast: f.Broadcast, LateBy: f.LateBy}
}

// Slot returns the slot that a waiting run needs.
func (f *Fit) Slot(r *store.Run) string { return f.policy().SlotKey(&r.Run, r.Node) }

// LateAfter returns when the first attempt of a run is too late.
func (f *Fit) LateAfter(r *store.Run) time.Time { return f.policy().LateAfter(r.Kind, r.Due) }

// RetryDelay returns how long after the n-th attempt the next one is due, in
// whole milliseconds. The jitter is a hash of the run and the attempt, so that a repeated step decides
// the same.
func (p *Policy) RetryDelay(run job.ID, n int) time.Duration {
	delay := float64(p.Backoff)
	for range n - 1 {
		if delay *= p.Factor; delay >= float64(p.BackoffMax) {
			break
		}
	}
	if p.BackoffMax > 0 {
		delay = min(delay, float64(p.BackoffMax))
	}
	return time.Duration(delay).Round(time.Millisecond) + share(run, p.RetryJitter, "retry", int64(n))
}

// MayRetry reports whether the policy retries an attempt with a result.
func (p *Policy) MayRetry(r *store.Result) bool {
	if !slices.Contains(p.RetryOn, job.RetryOn(r.Outcome)) || r.Permanent && r.Outcome == job.OutcomeFailed {
		return false
	}
	if r.Outcome != job.OutcomeFailed || len(p.RetryExitCodes) == 0 || r.Retryable {
		return true
	}
	return r.ExitCode != nil && slices.Contains(p.RetryExitCodes, *r.ExitCode)
}

// fits reports whether a session may run the job, and why not.
func (p *Policy) fits(s *store.Session) (why job.Reason, ok bool) {
	switch {
	case s.Drain != nil:
		return reason.NodeDrained.Of(s.Node, s.Drain.By, reason.Words(s.Drain.Reason)), false
	case !p.suits(s):
		place := job.Place{Labels: p.Labels}
		return reason.NodeLacks.Of(s.Node, reason.Wants(&place, p.Handler)), false
	}
	return why, true
}

// suits reports whether a session meets the job's requirements.
func (p *Policy) suits(s *store.Session) bool { return s.Suits(p.Labels, p.Handler) }
