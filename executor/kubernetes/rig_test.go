package kubeexec_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/executor"
	kubeexec "github.com/belfry-cron/belfry/executor/kubernetes"
	"github.com/belfry-cron/belfry/internal/check/kubetest"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/remote/kube"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a node with an executor on a store, a cluster, and a clock that tests move.
type rig struct {
	*testing.T
	cluster *kubetest.Cluster
	store   *memory.Store
	node    *kubeexec.Executor
	session store.Session
	runs    int
	allow   kubeexec.Cluster

	mu  sync.Mutex
	now time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, cluster: kubetest.New(t), now: time.Now()}
	r.store = memory.New(memory.Options{Now: func() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now }})
	id, _ := job.NewID(r.now, strings.NewReader(strings.Repeat("s", 64)))
	var err error
	r.session, err = r.store.Join(t.Context(), store.Session{ID: id, Node: "a", Roles: []string{store.RoleWorker}, Handlers: []string{job.ClusterHandler("default"), job.ClusterHandler("gone")}})
	r.must(err)
	r.node = r.newNode()
	return r
}

// newNode returns the executor of another node.
func (r *rig) newNode() *kubeexec.Executor {
	r.Helper()
	e := kubeexec.New(kubeexec.Config{Store: r.store, OutputLimit: 64 << 10})
	r.set(e)
	r.Cleanup(e.Close)
	return e
}

func (r *rig) set(e *kubeexec.Executor) {
	r.Helper()
	c := r.allow
	c.Client = r.client()
	e.Set(map[string]kubeexec.Cluster{"default": c})
}

func (r *rig) client() *kube.Client {
	r.Helper()
	path := r.cluster.Kubeconfig(r.T)
	client, err := kube.Open(path, path, "")
	r.must(err)
	return client
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// pass lets time pass, in which the keeper of a node looks each second.
func (r *rig) pass(e *kubeexec.Executor, span time.Duration) {
	r.Helper()
	for ; span > 0; span -= time.Second {
		r.mu.Lock()
		r.now = r.now.Add(min(span, time.Second))
		r.mu.Unlock()
		r.must(e.Look(r.Context()))
	}
}

// attempt is one that a worker runs.
type attempt struct {
	store.Attempt
	result executor.Result
	name   string // of its Job
}

// start creates a run of a job and executes it, like a worker.
func (r *rig) start(text string) attempt {
	r.Helper()
	return r.startAs(text, func(*executor.Attempt) {})
}

func (r *rig) startAs(text string, change func(*executor.Attempt)) attempt {
	r.Helper()
	r.runs++
	docs, err := job.Decode("job.yaml", []byte(fmt.Sprintf("name: j%d\n%s", r.runs, text)))
	r.must(err)
	if problems := docs[0].Validate(); problems != nil {
		r.Fatal(problems)
	}
	j, err := store.PutOne(r.Context(), r.store, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "ann"})
	r.must(err)
	r.mu.Lock()
	id, err := job.NewID(r.now, strings.NewReader(fmt.Sprintf("%010d", r.runs)))
	r.mu.Unlock()
	r.must(err)
	outcomes, err := r.store.Trigger(r.Context(), []store.TriggerItem{{
		ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Key: id.String(), Session: r.session.ID, Node: "a", Actor: "ann",
	}})
	r.must(err)
	a := store.Attempt{Job: j.Definition.UID, Run: outcomes[0].Run, Number: 1, Token: id}
	r.must(r.store.Renew(r.Context(), r.session.ID, store.Load{}))
	claimed, err := r.store.Claim(r.Context(), r.session.ID, []store.Attempt{a})
	r.must(err)
	if claimed[0].Verdict != store.Started {
		r.Fatalf("the claim was answered with %d: %s", claimed[0].Verdict, claimed[0].Reason)
	}
	definition := claimed[0].Job.Filled
	at := executor.Attempt{
		Job: definition, Run: claimed[0].Run.Run, Number: 1, Grace: 10 * time.Second, Start: func() error { return nil },
		Data: job.TemplateData{Run: claimed[0].Run.ID, Attempt: 1, Namespace: "default", Name: definition.Name, Params: map[string]string{}},
	}
	at.HandOver = func(ctx context.Context, h executor.Handover) (int64, error) {
		number, err := r.store.Numbers(ctx, 1, 0)
		if err != nil {
			return 0, err
		}
		handover := store.Handover{Number: number, Attempt: a, Kind: h.Kind, To: h.To, About: h.About}
		if limit := definition.Policy.Timeout; limit != nil {
			handover.Timeout = time.Duration(*limit)
		}
		handed, err := r.store.HandOver(ctx, r.session.ID, []store.Handover{handover})
		if err == nil && handed[0] != store.Handed {
			err = fmt.Errorf("handed over: %d", handed[0])
		}
		return number, err
	}
	change(&at)
	result := r.node.Run(r.Context(), at, executor.Output{Stdout: io.Discard, Stderr: io.Discard})
	if !result.HandedOver && !result.Unstarted {
		_, err := r.store.Finish(r.Context(), r.session.ID, []store.Result{{Attempt: a, Outcome: result.Outcome, Reason: result.Reason, Permanent: result.Permanent}})
		r.must(err)
	}
	return attempt{a, result, kubeexec.JobName(a.Run, 1)}
}

// do changes the Job of an attempt.
func (r *rig) do(a attempt, change func(*kubetest.Job)) {
	r.Helper()
	if !r.cluster.Do(a.name, change) {
		r.Fatalf("there is no Job %s", a.name)
	}
}

// record returns the record of an attempt, nil while it runs. Each attempt has one.
func (r *rig) record(a attempt) *store.Record {
	r.Helper()
	records, err := r.store.AttemptsOf(r.Context(), a.Run)
	r.must(err)
	switch len(records) {
	case 0:
		return nil
	case 1:
		return &records[0]
	}
	r.Fatalf("the run was counted %d times", len(records))
	return nil
}

// wants checks the outcome of an attempt and a part of its reason; "" means that it has not ended.
func (r *rig) wants(a attempt, outcome job.Outcome, why string) {
	r.Helper()
	switch record := r.record(a); {
	case record == nil && outcome == "":
	case record == nil:
		r.Errorf("the run has not ended, want %s; it waits: %s", outcome, r.waits(a))
	case record.Attempt.Outcome != outcome || !strings.Contains(record.Attempt.Reason.String(), why):
		r.Errorf("the run ended as %q: %s; want %q: %s", record.Attempt.Outcome, record.Attempt.Reason, outcome, why)
	}
}

// waits returns why an attempt has not begun.
func (r *rig) waits(a attempt) string {
	r.Helper()
	list, err := r.store.Handovers(r.Context(), store.HandoverQuery{Run: a.Run, Limit: 10})
	r.must(err)
	var about struct{ Waits *job.Reason }
	if len(list) > 0 {
		r.must(json.Unmarshal([]byte(list[0].About), &about))
	}
	if about.Waits == nil {
		return ""
	}
	return about.Waits.String()
}

// output returns the stored output of a run.
func (r *rig) output(a attempt) string {
	r.Helper()
	var text strings.Builder
	chunks, err := r.store.Output(r.Context(), a.Run, a.Number, 0, 1000)
	r.must(err)
	for i := range chunks {
		chunk := output.Chunk(chunks[i])
		for piece, err := range chunk.Pieces() {
			r.must(err)
			text.Write(piece.Data)
		}
	}
	return text.String()
}

// cancel cancels a run.
func (r *rig) cancel(a attempt) {
	r.Helper()
	_, err := r.store.Cancel(r.Context(), a.Run, "ann", "")
	r.must(err)
}
