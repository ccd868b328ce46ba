// Package metrics counts a server's work and writes it in Prometheus' text format. Counting at the
// start and end of runs costs some atomic additions and no allocation; the rest is read at each
// scrape. It uses no library, which would need more code: docs/decisions has the reasons.
package metrics

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/account"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is what the metrics read of a store at a scrape.
type Store interface {
	Now(ctx context.Context) (time.Time, error)
	Sessions(ctx context.Context) ([]store.Session, error)
	ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error)
	Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error)
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
}

// Load is the work of a node at a moment.
type Load struct {
	// Jobs is the number of jobs that the node plans, CatchingUp how many of them wait to catch up,
	// and Ahead how far ahead the rest is planned; negative if it is behind.
	Jobs, CatchingUp int
	Ahead            time.Duration
	// Capacity is the number of attempts that may run at once. Held is the number of unclaimed runs
	// in the worker's memory, Pending of the due ones among them, and Results of the unacknowledged
	// results.
	Capacity, Held, Pending, Results int
	// ClockAhead is by how much the wall clock is ahead of the store's.
	ClockAhead time.Duration
	// ClockOff is set while the node neither plans nor claims because of its clock.
	ClockOff bool
}

// History is the backlog of a separate history.
type History struct {
	// Records and Bytes wait in the control store, the oldest for Oldest.
	Records int
	Bytes   int64
	Oldest  time.Duration
	// OutputBytes wait on this node.
	OutputBytes int64
	// Refused counts records that history refused for their content, and OutputDropped chunks of
	// output that it refused or that had no room.
	Refused, OutputDropped int
	// Away is set if the last write to history failed.
	Away bool
}

// Notifications is how notifications are delivered by this node.
type Notifications struct {
	Delivers bool  // it has the lease
	Pending  int   // groups with news to report
	Open     int   // groups with a lasting problem
	Sent     int64 // messages
	Failed   int64 // tries
	GivenUp  int64 // messages
	Dropped  int64 // events
}

// Containers is the work of a container engine.
type Containers struct {
	Works     bool // it answered when it was last asked
	Running   int
	Collected int64 // containers of attempts that were over
}

// Sources are read at each scrape. None but [History] may be nil.
type Sources struct {
	Version string
	Store   Store
	Load    func() Load
	// History is nil if the store keeps history.
	History func() History
	// Notifications is how notifications are delivered by this node. Nil: not by it.
	Notifications func() Notifications
	// Approvals counts the steps of flows that wait for a person. It may be nil.
	Approvals func(ctx context.Context) (int, error)
	// Windows returns the open maintenance windows by full name. It may be nil.
	Windows func(ctx context.Context) (map[string]job.WindowAction, error)
	// Containers is the work of this node's container engine. Nil: it has none.
	Containers func() Containers
	// Clusters returns whether each cluster of Kubernetes of this node did not answer when it was last
	// asked. It may be nil.
	Clusters func() map[string]bool
	// Hooks returns how many calls of hooks this server has had, by result. It may be nil.
	Hooks func() map[string]int64
	// OfProgram is set for the scheduler of a Go program, which does not see what else ends runs, and
	// whose calls of the store are not measured: it has no metrics of these.
	OfProgram bool
	// Next returns the next due time of a job, and whether there is one.
	Next func(uid job.ID, at time.Time) (time.Time, bool)
}

const (
	// labelledJobsMax bounds the jobs with separate metrics, the first by name. Prometheus keeps a
	// series for each, and 1,000 make an answer of some 200 KB.
	labelledJobsMax = 1000
	// lookBackMax bounds the jobs whose last success one answer looks up in history after a start.
	// Later answers cover the rest, so that a start does not read everything at once.
	lookBackMax = 100
	// namespacesMax is the number of namespaces that are labels of belfry_runs_total, with a series
	// for each outcome. Runs of other namespaces count together as otherNamespaces, which is no
	// valid name.
	namespacesMax   = 200
	otherNamespaces = "(others)"
	// failingMax bounds the jobs whose failures are counted between two answers, which drop counts
	// of jobs without separate metrics.
	failingMax = 10 * labelledJobsMax
)

// Metrics are the metrics of a process. Use [New].
type Metrics struct {
	lateness latencies
	running  atomic.Int64
	lost     atomic.Int64 // steps
	attempts map[job.Outcome]*atomic.Int64
	calls    map[string]*callMetrics // by method
	recent   latencyRing             // calls of the store

	mu sync.Mutex // guards the following fields; never held across a call of the store
	// succeeded has when the jobs with metrics of their own have succeeded
	// last, as seconds since 1970; 0 if they never have.
	succeeded map[job.ID]float64
	// ended counts runs by namespace and outcome, failures the runs of a job that were lost,
	// missed, failed or timed out.
	ended    map[string]map[job.Outcome]int64
	reasons  map[ending]int64      // of unsuccessful runs
	steps    map[job.Outcome]int64 // ended steps of flows
	failures map[job.ID]int64
}

// ending is how a run has ended, and the code of the reason.
type ending struct {
	outcome job.Outcome
	reason  string
}

// New makes metrics.
func New() *Metrics {
	m := &Metrics{calls: map[string]*callMetrics{}, succeeded: map[job.ID]float64{}, ended: map[string]map[job.Outcome]int64{}, reasons: map[ending]int64{}, steps: map[job.Outcome]int64{}, failures: map[job.ID]int64{}}
	for _, call := range methods {
		m.calls[call] = &callMetrics{}
	}
	m.attempts = map[job.Outcome]*atomic.Int64{}
	for _, outcome := range job.Outcome("").Values() {
		m.attempts[job.Outcome(outcome)] = &atomic.Int64{}
	}
	return m
}

// Started counts the start of an attempt and its delay after the due time. First attempts
// and retries count alike. Time spent waiting for a slot of the job counts as well: the run
// was due.
func (m *Metrics) Started(late time.Duration) {
	m.running.Add(1)
	m.lateness.observe(late)
}

// Resumed counts an attempt that continues from an earlier version of the program.
func (m *Metrics) Resumed() { m.running.Add(1) }

// Ended counts the end of a started attempt.
func (m *Metrics) Ended(uid job.ID, outcome job.Outcome, at time.Time) {
	m.running.Add(-1)
	if n := m.attempts[outcome]; n != nil {
		n.Add(1)
	}
	if outcome != job.OutcomeSucceeded {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, labelled := m.succeeded[uid]; labelled {
		m.succeeded[uid] = max(before, seconds(at))
	}
}

// StepsLost counts acknowledged steps that the store no longer has.
func (m *Metrics) StepsLost(steps int64) { m.lost.Add(steps) }

// RunsEnded counts the runs that a commit has ended. A record of several occurrences counts
// as that many.
func (m *Metrics) RunsEnded(e store.Ends) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range e.Records {
		if r.Run.Kind == job.RunStep && r.EndsRun() {
			m.steps[r.Attempt.Outcome]++
		}
		if !r.Final {
			continue
		}
		n := int64(max(1, r.Count))
		m.inNamespace(r.Run.Namespace)[r.Attempt.Outcome] += n
		if r.Attempt.Outcome != job.OutcomeSucceeded {
			m.reasons[ending{r.Attempt.Outcome, reason.Label(r.Attempt.Reason)}] += n
		}
		if _, counted := m.failures[r.Run.JobUID]; r.Attempt.Outcome.Alarms() && (counted || len(m.failures) < failingMax) {
			m.failures[r.Run.JobUID] += n
		}
	}
}

// inNamespace returns the counts of a namespace. The caller holds the mutex.
func (m *Metrics) inNamespace(name string) map[job.Outcome]int64 {
	counts := m.ended[name]
	if counts == nil && len(m.ended) >= namespacesMax {
		name = otherNamespaces
		counts = m.ended[name]
	}
	if counts == nil {
		counts = map[job.Outcome]int64{}
		m.ended[name] = counts
	}
	return counts
}

// WorkerFamilies returns the metrics of a worker without a store. live reports whether its session is
// renewed.
func (m *Metrics) WorkerFamilies(version string, load Load, live bool) []Family {
	p := &page{}
	m.writeNode(p, version, load)
	renewed := 0.0
	if live {
		renewed = 1
	}
	p.family("belfry_session_live", Gauge, "1 while a server renews the session of this worker, else 0.")
	p.sample(renewed)
	writeProcess(p)
	return p.families
}

// Handler answers with families in the text format of Prometheus.
func Handler(families func(context.Context) []Family) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := textOf(families(r.Context()))
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(text)
	})
}

// storeWithin bounds the reading of the store: a hanging store would delay the other metrics beyond
// the 10 s that Prometheus waits.
const storeWithin = 5 * time.Second

// Families returns all metrics. It omits metrics of a silent store, whose errors are counted: then the
// other metrics matter most.
func (m *Metrics) Families(ctx context.Context, s Sources) []Family {
	p := &page{}
	load := s.Load()
	m.writeNode(p, s.Version, load)
	p.family("belfry_planned_jobs", Gauge, "Jobs that this node plans: its share of the jobs that are neither paused nor completed.")
	p.sample(float64(load.Jobs))
	p.family("belfry_catching_up_jobs", Gauge, "Jobs that missed more occurrences than are planned at once and catch up when fewer runs wait.")
	p.sample(float64(load.CatchingUp))
	p.family("belfry_planned_ahead_seconds", Gauge, "How far ahead all other jobs are planned; below 0 the planner is behind.")
	p.sample(load.Ahead.Seconds())

	if !s.OfProgram {
		p.family("belfry_store_steps_lost_total", Counter, "Steps that the store had acknowledged and no longer has, as after a failover of Redis.")
		p.sample(float64(m.lost.Load()))
	}

	if s.Notifications != nil {
		writeNotifications(p, s.Notifications())
	}
	if s.History != nil {
		writeHistory(p, s.History())
	}

	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	if now, err := s.Store.Now(ctx); err == nil {
		writeFindings(ctx, p, s.Store, now)
		var live []store.Session
		if sessions, err := s.Store.Sessions(ctx); err == nil {
			writeSessions(p, sessions, now)
			for i := range sessions {
				if state := sessions[i].State(now); state == store.SessionLive || state == store.SessionDrained {
					live = append(live, sessions[i])
				}
			}
		}
		if jobs, next, err := s.Store.ListJobs(ctx, store.JobQuery{Limit: labelledJobsMax}); err == nil {
			m.writeJobs(ctx, p, s, jobs, next != "", live, now)
		}
	}
	writeElsewhere(p, s)
	if s.Hooks != nil {
		p.family("belfry_hook_calls_total", Counter, "Calls of hooks at this server, by result.")
		calls := s.Hooks()
		for _, result := range slices.Sorted(maps.Keys(calls)) {
			p.sample(float64(calls[result]), "result", result)
		}
	}
	if s.Windows != nil {
		if open, err := s.Windows(ctx); err == nil {
			p.family("belfry_window_open", Gauge, "1 for a maintenance window that is open: runs of the jobs that it matches do not start; other windows have no such series.")
			for _, full := range slices.Sorted(maps.Keys(open)) {
				namespace, name, _ := strings.Cut(full, "/")
				p.sample(1, "namespace", namespace, "name", name, "action", string(open[full]))
			}
		}
	}
	if s.Approvals != nil {
		if n, err := s.Approvals(ctx); err == nil {
			p.family("belfry_approvals_waiting", Gauge, "Steps of flows that wait for a person.")
			p.sample(float64(n))
		}
	}
	if !s.OfProgram {
		m.writeEnded(p)
		m.writeCalls(p)
	}
	writeProcess(p)
	return p.families
}

// writeNode writes what every node has, with and without a store.
func (m *Metrics) writeNode(p *page, version string, load Load) {
	p.family("belfry_build_info", Gauge, "The version of the program, as a label of the value 1.")
	p.sample(1, "version", version, "goversion", goVersion())

	p.family("belfry_start_lateness_seconds", Histogram, "How long after its due time an attempt has begun, with what it has waited for a slot of its job or for capacity.")
	m.lateness.write(p)
	p.family("belfry_attempts_running", Gauge, "Attempts that have begun and are not over.")
	p.sample(float64(m.running.Load()))
	p.family("belfry_attempts_total", Counter, "Attempts that have begun on this node and have ended, by outcome.")
	for _, outcome := range job.Outcome("").Values() {
		p.sample(float64(m.attempts[job.Outcome(outcome)].Load()), "outcome", outcome)
	}
	p.family("belfry_capacity_attempts", Gauge, "How many attempts this node runs at once.")
	p.sample(float64(load.Capacity))
	p.family("belfry_runs_held", Gauge, "Runs of the next seconds that this node holds and has not claimed.")
	p.sample(float64(load.Held))
	p.family("belfry_runs_pending", Gauge, "Runs that are due and wait for this node to claim them; more than some for long means that its capacity is used up.")
	p.sample(float64(load.Pending))
	p.family("belfry_results_waiting", Gauge, "Results of attempts that the store has not acknowledged.")
	p.sample(float64(load.Results))
	p.family("belfry_clock_ahead_seconds", Gauge, "By how much the wall clock of this machine is ahead of the store's clock, which jobs go by; below 0 it is behind.")
	p.sample(load.ClockAhead.Seconds())
	off := 0.0
	if load.ClockOff {
		off = 1
	}
	p.family("belfry_clock_off", Gauge, "1 while the node plans and claims nothing: its clock is off the clock that the nodes of a store without one agree on, or was just set.")
	p.sample(off)
}

// writeNotifications writes how notifications are delivered.
func writeNotifications(p *page, n Notifications) {
	delivers := 0.0
	if n.Delivers {
		delivers = 1
	}
	p.family("belfry_notifications_delivering", Gauge, "1 on the node that delivers notifications. The next two are 0 on the others.")
	p.sample(delivers)
	p.family("belfry_notifications_waiting", Gauge, "Notifications that are not delivered: they wait for others, for quiet hours, the limit of their channel or a service that is away.")
	p.sample(float64(n.Pending))
	p.family("belfry_notifications_open", Gauge, "Notifications about a problem that lasts.")
	p.sample(float64(n.Open))
	p.family("belfry_notifications_sent_total", Counter, "Messages that services have taken from this node.")
	p.sample(float64(n.Sent))
	p.family("belfry_notifications_failures_total", Counter, "Tries of this node to deliver a message that failed.")
	p.sample(float64(n.Failed))
	p.family("belfry_notifications_given_up_total", Counter, "Messages that services have refused for a day.")
	p.sample(float64(n.GivenUp))
	p.family("belfry_notifications_dropped_total", Counter, "Events for which notifications had no room.")
	p.sample(float64(n.Dropped))
}

// writeElsewhere writes what this node's runs use outside of its process.
func writeElsewhere(p *page, s Sources) {
	if s.Containers != nil {
		writeContainers(p, s.Containers())
	}
	if s.Clusters != nil {
		writeClusters(p, s.Clusters())
	}
}

// writeContainers writes the work of a container engine.
func writeContainers(p *page, c Containers) {
	works := 0.0
	if c.Works {
		works = 1
	}
	p.family("belfry_container_engine_works", Gauge, "1 if the container engine of this node answered when it was last asked, else 0; the node gets no containers then.")
	p.sample(works)
	p.family("belfry_containers_running", Gauge, "Containers of attempts that run on this node.")
	p.sample(float64(c.Running))
	p.family("belfry_containers_collected_total", Counter, "Containers of attempts that were over, which this node has found and removed.")
	p.sample(float64(c.Collected))
}

// writeHistory writes the backlog of history.
func writeHistory(p *page, h History) {
	away := 0.0
	if h.Away {
		away = 1
	}
	p.family("belfry_history_away", Gauge, "1 if the history store could not be written when it was tried last, else 0.")
	p.sample(away)
	p.family("belfry_history_spool_records", Gauge, "Records that wait in the control store for the history store.")
	p.sample(float64(h.Records))
	p.family("belfry_history_spool_bytes", Gauge, "Bytes of the records that wait; claims stop at 80 % of 256 MiB.")
	p.sample(float64(h.Bytes))
	p.family("belfry_history_spool_oldest_seconds", Gauge, "For how long the oldest of the records has waited; 0 if none waits.")
	p.sample(h.Oldest.Seconds())
	p.family("belfry_history_output_bytes", Gauge, "Bytes of output that wait on this node for the history store, at most 1 GiB.")
	p.sample(float64(h.OutputBytes))
	p.family("belfry_history_output_dropped_total", Counter, "Chunks of output that were dropped because too much waited, or that the history store refused for what they are; the log has the latter.")
	p.sample(float64(h.OutputDropped))
	p.family("belfry_history_refused_total", Counter, "Records that the history store refused for what they are; the log has them.")
	p.sample(float64(h.Refused))
}

// writeEnded writes how many runs have ended. A namespace has all outcomes from its first job on,
// so that its first failure is an increase.
func (m *Metrics) writeEnded(p *page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.family("belfry_runs_total", Counter, "Runs that have ended by way of this process, by namespace and outcome.")
	for _, namespace := range slices.Sorted(maps.Keys(m.ended)) {
		for _, outcome := range job.Outcome("").Values() {
			p.sample(float64(m.ended[namespace][job.Outcome(outcome)]), "namespace", namespace, "outcome", outcome)
		}
	}
	p.family("belfry_run_reasons_total", Counter, "Runs that have ended by way of this process and have not succeeded, by outcome and the code of the reason, see docs/reasons.md.")
	for _, e := range slices.SortedFunc(maps.Keys(m.reasons), func(a, b ending) int {
		return cmp.Or(cmp.Compare(a.outcome, b.outcome), cmp.Compare(a.reason, b.reason))
	}) {
		p.sample(float64(m.reasons[e]), "outcome", string(e.outcome), "reason", e.reason)
	}
	p.family("belfry_flow_steps_total", Counter, "Steps and items of flows that have ended by way of this process, by outcome.")
	for _, outcome := range job.Outcome("").Values() {
		if n, some := m.steps[job.Outcome(outcome)]; some {
			p.sample(float64(n), "outcome", outcome)
		}
	}
}

// writeClusters writes which clusters of Kubernetes are away.
func writeClusters(p *page, isAway map[string]bool) {
	p.family("belfry_kubernetes_away", Gauge, "1 for a cluster of Kubernetes that did not answer when this node last asked it, else 0; its runs wait.")
	for _, name := range slices.Sorted(maps.Keys(isAway)) {
		away := 0.0
		if isAway[name] {
			away = 1
		}
		p.sample(away, "cluster", name)
	}
}

// writeFindings writes how many occurrences were found that are not as they must be.
func writeFindings(ctx context.Context, p *page, from Store, now time.Time) {
	list, err := account.Found(ctx, from, now)
	if err != nil {
		return
	}
	number := map[account.Kind]int{}
	for i := range list {
		number[list[i].Kind]++
	}
	for _, kind := range account.Kinds {
		p.family("belfry_occurrences_"+string(kind), Gauge, "Occurrences that were found in the last day, at most 100 in all: "+helps[kind])
		p.sample(float64(number[kind]))
	}
}

// helps describes the findings of each kind.
var helps = map[account.Kind]string{
	account.Unaccounted: "the cursor has passed them, and they have neither a run nor a record.",
	account.Doubled:     "two runs of them were started.",
	account.Early:       "a run of them was started before it was due.",
}

func writeSessions(p *page, sessions []store.Session, now time.Time) {
	number := map[store.SessionState]int{}
	for i := range sessions {
		number[sessions[i].State(now)]++
	}
	p.family("belfry_sessions", Gauge, "Sessions of nodes in the store: live, drained, leaving, or silent for longer than a session lives.")
	for _, state := range []store.SessionState{store.SessionLive, store.SessionDrained, store.SessionLeaving, store.SessionSilent} {
		p.sample(float64(number[state]), "state", string(state))
	}
}

// writeJobs writes the separate metrics of jobs.
func (m *Metrics) writeJobs(ctx context.Context, p *page, s Sources, jobs []*store.Job, more bool, live []store.Session, now time.Time) {
	beyond := 0.0
	if more {
		beyond = 1
	}
	succeeded := m.lastSuccesses(ctx, s.Store, jobs)
	p.family("belfry_jobs_beyond_labels", Gauge, "1 if there are more jobs than have metrics of their own, else 0.")
	p.sample(beyond)
	p.family("belfry_job_next_run_timestamp_seconds", Gauge, "When the job falls due next.")
	for _, j := range jobs {
		if next, ok := s.Next(j.Definition.UID, now); ok {
			p.sample(seconds(next), "namespace", j.Filled.Namespace, "name", j.Filled.Name)
		}
	}
	p.family("belfry_job_last_success_timestamp_seconds", Gauge, "When a run of the job has succeeded last; 0 if none has that is kept.")
	for _, j := range jobs {
		if at, known := succeeded[j.Definition.UID]; known {
			p.sample(at, "namespace", j.Filled.Namespace, "name", j.Filled.Name)
		}
	}
	p.family("belfry_job_barred", Gauge, "1 for a job that no live node may run; other jobs have no such series.")
	for _, j := range jobs {
		if !placement.Barred(j.Filled, live).IsZero() {
			p.sample(1, "namespace", j.Filled.Namespace, "name", j.Filled.Name)
		}
	}
	if s.OfProgram {
		return
	}
	failures := m.failuresOf(jobs)
	p.family("belfry_job_failures_total", Counter, "Runs of the job that failed, timed out, were lost or missed, and ended by way of this process.")
	for i, j := range jobs {
		p.sample(float64(failures[i]), "namespace", j.Filled.Namespace, "name", j.Filled.Name)
	}
}

// failuresOf returns the failures of the jobs with metrics of their own, and removes the counts of
// other jobs.
func (m *Metrics) failuresOf(jobs []*store.Job) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, counts := make([]int64, len(jobs)), make(map[job.ID]int64, len(jobs))
	for i, j := range jobs {
		m.inNamespace(j.Filled.Namespace)
		if n, counted := m.failures[j.Definition.UID]; counted {
			list[i], counts[j.Definition.UID] = n, n
		}
	}
	m.failures = counts
	return list
}

// lastSuccesses returns the known last successes of jobs: for some unknown ones it reads history.
func (m *Metrics) lastSuccesses(ctx context.Context, s Store, jobs []*store.Job) map[job.ID]float64 {
	var unknown []job.ID
	m.mu.Lock()
	gone := maps.Clone(m.succeeded)
	for _, j := range jobs {
		uid := j.Definition.UID
		if _, known := m.succeeded[uid]; !known && len(unknown) < lookBackMax {
			unknown = append(unknown, uid)
			m.succeeded[uid] = 0 // from here on its successes are recorded
		}
		delete(gone, uid)
	}
	for uid := range gone {
		delete(m.succeeded, uid)
	}
	m.mu.Unlock()
	for _, uid := range unknown {
		records, _, err := s.Attempts(ctx, store.HistoryQuery{
			Job: uid, Outcomes: []job.Outcome{job.OutcomeSucceeded}, FinalOnly: true, Limit: 1,
		})
		m.mu.Lock()
		switch before, labelled := m.succeeded[uid]; {
		case !labelled: // another answer has dropped it
		case err != nil && before == 0:
			delete(m.succeeded, uid) // the next answer asks again
		case len(records) > 0:
			m.succeeded[uid] = max(before, seconds(records[0].Attempt.Ended))
		}
		m.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.succeeded)
}

// seconds is a moment as Prometheus has it.
func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
