// Package kubeexec runs each attempt as a Job in a cluster of Kubernetes, over the API of the cluster.
//
// An attempt belongs to no node: [store.Handovers] keeps it, with the manifest of its Job until the Job
// is seen. The name of the Job comes from the run and the attempt, so that it is created once however
// often a node tries. The keeper of any node polls the Job and its pod, stores the output and reports
// the end; the first report counts. Polls see after an outage what they would have seen before, and keep
// nothing that could break.
package kubeexec

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/remote/kube"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Kind of the handovers of this package.
const Kind = string(job.WorkKubernetes)

const (
	// createWithin bounds creating a Job. After it only the keeper creates the Job, so that a node that
	// hung does not create one for an attempt that is over.
	createWithin = 10 * time.Second
	// aboutSpare is left in a handover for findings of keepers.
	aboutSpare = 2 << 10
	// wordsMax is the length at which texts of clusters are cut.
	wordsMax = 300
)

// Store is the part of a store that an [Executor] needs.
type Store interface {
	Handovers(ctx context.Context, q store.HandoverQuery) ([]store.Handover, error)
	ToAsk(ctx context.Context, kind string, limit int) ([]store.Outstanding, error)
	Asked(ctx context.Context, list []store.Answer) error
	Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)
	AppendOutput(ctx context.Context, chunks []store.OutputChunk) error
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutNote(ctx context.Context, n store.Note) (version int64, err error)
	Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]store.OutputChunk, error)
}

// Cluster is a cluster with what jobs may do there.
type Cluster struct {
	Client *kube.Client
	// Namespaces are patterns of the namespaces of Belfry whose jobs may use the cluster. Default: all.
	Namespaces []string
	// KubeNamespaces are patterns of namespaces of the cluster. Default: that of the client.
	KubeNamespaces []string
	// Images are patterns of images. Default: all.
	Images []string
	// ServiceAccounts are patterns of service accounts that pods may have. Default: none.
	ServiceAccounts []string
	// Capabilities are those that containers have. Default: none.
	Capabilities []string
	// UnsafePods permits templates to ask for rights on the nodes of the cluster.
	UnsafePods bool
}

// Config configures an [Executor].
type Config struct {
	Store Store
	// OutputLimit bounds the stored output of an attempt.
	OutputLimit int
	// Wrote is called for each run whose output was stored. May be nil.
	Wrote func(run job.ID)
	// Log receives outages of clusters. Default: nothing.
	Log *slog.Logger
}

// Executor creates Jobs and looks after them. Use [New].
type Executor struct {
	config   Config
	clusters atomic.Pointer[map[string]Cluster]

	looked time.Time // the last look
	looks  int       // at the Jobs of clusters

	mu sync.Mutex
	// tried are the handovers whose Jobs this node has just created, or tried to.
	tried []tried
	// outages say when a cluster does not answer, and when it does again.
	outages map[string]*failurelog.Log
	// away has the clusters that did not answer when they were last asked.
	away map[string]bool
}

// tried is a handover after the first try to create its Job, with the failure.
type tried struct {
	number int64
	waits  job.Reason
}

var _ executor.Executor = (*Executor)(nil)

// New returns an executor without clusters.
func New(config Config) *Executor {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Wrote == nil {
		config.Wrote = func(job.ID) {}
	}
	e := &Executor{config: config, outages: map[string]*failurelog.Log{}, away: map[string]bool{}}
	e.clusters.Store(&map[string]Cluster{})
	return e
}

// Set replaces the clusters.
func (e *Executor) Set(clusters map[string]Cluster) {
	before := *e.clusters.Swap(&clusters)
	closeAll(before)
}

// Away returns the clusters of this node, and whether each did not answer when it was last asked.
func (e *Executor) Away() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	away := map[string]bool{}
	for name := range *e.clusters.Load() {
		away[name] = e.away[name]
	}
	return away
}

// Close releases the connections.
func (e *Executor) Close() { closeAll(*e.clusters.Load()) }

func closeAll(clusters map[string]Cluster) {
	for _, c := range clusters {
		c.Client.Close()
	}
}

// Handlers returns the handlers of the clusters, for the session of the node.
func (e *Executor) Handlers() (list []string) {
	for name := range *e.clusters.Load() {
		list = append(list, job.ClusterHandler(name))
	}
	slices.Sort(list)
	return list
}

// Kind returns the kind of the handovers.
func (e *Executor) Kind() string { return Kind }

// about is the data of a handover.
type about struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Main is the container whose output and exit code count.
	Main string `json:"main"`
	// Codes are the exit codes of success, if they are not 0 alone, and Match is a pattern that a line of
	// the output must match; Matched is set once one has.
	Codes       []int         `json:"codes,omitempty"`
	Match       string        `json:"match,omitempty"`
	Matched     bool          `json:"matched,omitempty"`
	WantsResult bool          `json:"wants_result,omitempty"`
	Grace       time.Duration `json:"grace,omitempty"`
	// Manifest is the Job, until it was seen.
	Manifest json.RawMessage `json:"manifest,omitempty"`

	// Findings of keepers. Waits is why the work has not begun; package service shows it.
	Waits *job.Reason `json:"waits,omitempty"`
	// Absent is when the Job was last found not to be there.
	Absent time.Time `json:"absent,omitzero"`
	// Ending is since when the Job is being deleted, and Away since when its cluster is silent while it
	// must end.
	Ending time.Time `json:"ending,omitzero"`
	Away   time.Time `json:"away,omitzero"`
	// LogTries counts failed reads of the rest of the output.
	LogTries int  `json:"log_tries,omitempty"`
	Log      mark `json:"log,omitzero"`
	// Last is the last line of the output.
	Last string `json:"last,omitempty"`
}

func (a *about) place() string { return a.Cluster + "/" + a.Namespace + "/" + a.Name }

// JobName returns the name of the Job of an attempt.
func JobName(run job.ID, attempt int) string {
	return fmt.Sprintf("belfry-%s-%d", strings.ToLower(run.String()), attempt)
}

// Run creates the Job of an attempt. It does not wait for its end.
func (e *Executor) Run(ctx context.Context, at executor.Attempt, _ executor.Output) executor.Result {
	spec, err := at.Job.Expand(at.Data)
	if err != nil {
		return failed(job.Text(err.Error()))
	}
	k := spec.Kubernetes
	c, known := (*e.clusters.Load())[k.Cluster]
	if !known {
		return failed(reason.KubeUnknown.Of(k.Cluster))
	}
	b := builder{cluster: &c, work: k, attempt: &at}
	a, why := b.about()
	if !why.IsZero() {
		return failed(why)
	}
	text, err := json.Marshal(a)
	switch most := store.HandoverAboutMax - aboutSpare; {
	case err != nil:
		return failed(job.Text(err.Error()))
	case len(text) > most:
		return failed(reason.KubeTooLong.Of(len(text), most))
	}
	if err := at.Start(); err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	begun := time.Now()
	number, err := at.HandOver(ctx, executor.Handover{Kind: Kind, To: a.place(), About: string(text)})
	if err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	left := createWithin - time.Since(begun)
	if left <= 0 {
		return executor.Result{HandedOver: true}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	why, err = create(ctx, c.Client, &a)
	if !why.IsZero() {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: why, Permanent: reason.KubeForeign.Is(why)}
	}
	t := tried{number: number}
	if err != nil { // the keeper creates it
		t.waits = unmade(&a, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tried = append(e.tried, t)
	return executor.Result{HandedOver: true}
}

// unmade returns why a Job is not there yet.
func unmade(a *about, err error) job.Reason {
	if kube.IsOverQuota(err) {
		return reason.KubeWaits.Of("the quota of the namespace is used up", words(err.Error()))
	}
	return reason.KubeAway.Of(a.Cluster, words(err.Error()))
}

// create creates the Job, or finds it created. why is set if that will never succeed, err if it may
// later.
func create(ctx context.Context, c *kube.Client, a *about) (why job.Reason, err error) {
	err = c.CreateJob(ctx, a.Namespace, a.Manifest)
	if kube.IsConflict(err) {
		var found *kube.Job
		if found, err = c.Job(ctx, a.Namespace, a.Name); err == nil && !isOurs(found, a) {
			return reason.KubeForeign.Of(a.Namespace + "/" + a.Name), nil
		}
	}
	if kube.IsRefusal(err) && !kube.IsOverQuota(err) {
		return reason.KubeRefused.Of(a.Cluster, words(err.Error())), nil
	}
	return job.Reason{}, err
}

// isOurs reports whether Belfry has created a Job, by the name in its labels.
func isOurs(j *kube.Job, a *about) bool {
	return JobNameOf(j.Metadata.Labels[labelRun], j.Metadata.Labels[labelAttempt]) == a.Name
}

// JobNameOf returns the name of a Job by its labels.
func JobNameOf(run, attempt string) string { return "belfry-" + strings.ToLower(run) + "-" + attempt }

func failed(why job.Reason) executor.Result {
	return executor.Result{Outcome: job.OutcomeFailed, Reason: why}
}

// words bounds a text of a cluster.
func words(text string) reason.Words {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > wordsMax {
		text = strings.ToValidUTF8(text[:wordsMax], "") + "…"
	}
	return reason.Words(text)
}
