package remote_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/remote"
	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// world is a store behind servers.
type world struct {
	t      *testing.T
	store  *memory.Store
	tokens *auth.Tokens
	boot   time.Time
	trace  func(*job.Run, int) job.Trace
	over   sync.WaitGroup
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, store: memory.New(memory.Options{}), boot: time.Now()}
	w.tokens = auth.New(w.store, nil)
	return w
}

// server returns the handler of a server on the store.
func (w *world) server(ctx context.Context, name string) http.Handler {
	w.t.Helper()
	s, err := service.New(service.Config{Store: w.store, Tokens: w.tokens, Node: name})
	if err != nil {
		w.t.Fatal(err)
	}
	workers := host.New(host.Config{Store: w.store, Tokens: w.tokens, Node: name, OutputLimit: 4 << 20, Trace: w.trace})
	w.over.Go(func() { workers.Run(ctx) })
	h, err := httpapi.Handler(httpapi.Config{Service: s, Workers: workers, Tokens: w.tokens, Node: name, Hosts: []string{"a", "b"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// grant adds a worker's token.
func (w *world) grant(name, namespace string) string {
	w.t.Helper()
	secret, err := auth.NewSecret()
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.PutToken(w.t.Context(), store.PutToken{Name: name, Hash: auth.HashOf(secret), Role: store.RoleRemote, Namespace: namespace, Actor: "test"}); err != nil {
		w.t.Fatal(err)
	}
	w.tokens.Forget()
	return secret
}

func (w *world) apply(document string) *store.Job {
	w.t.Helper()
	list, err := job.Decode("", []byte(document))
	if err != nil {
		w.t.Fatal(err)
	}
	j, err := store.PutOne(w.t.Context(), w.store, store.PutJob{Definition: list[0].Job, Actor: "test"})
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// trigger makes a run for a session.
func (w *world) trigger(j *store.Job, session job.ID) job.ID {
	w.t.Helper()
	id := newID(w.t)
	outcomes, err := w.store.Trigger(w.t.Context(), []store.TriggerItem{{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Key: id.String(), Session: session, Actor: "test"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return outcomes[0].Run
}

func newID(t *testing.T) job.ID {
	t.Helper()
	id, err := job.NewID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// network forwards requests to servers by host, like a bad one.
type network struct {
	mu      sync.Mutex
	servers map[string]http.Handler
	down    map[string]bool
	random  *mathrand.Rand // nil for a good network
	calls   map[string]int // by host
}

var errCut = errors.New("the connection was cut")

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	handler, down := n.servers[r.URL.Hostname()], n.down[r.URL.Hostname()]
	chance, delay := 1.0, time.Duration(0)
	if n.random != nil {
		chance, delay = n.random.Float64(), time.Duration(n.random.IntN(200))*time.Millisecond
	}
	n.calls[r.URL.Hostname()]++
	n.mu.Unlock()
	if down || handler == nil || chance < 0.05 {
		return nil, errCut
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	if !wait(r.Context(), delay) {
		return nil, r.Context().Err()
	}
	answered := make(chan *http.Response, 1)
	serve := func(ctx context.Context) {
		request := httptest.NewRequestWithContext(ctx, r.Method, r.URL.String(), bytes.NewReader(body))
		request.Header, request.RemoteAddr = r.Header, "192.0.2.1:1"
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		answered <- recorder.Result()
	}
	switch {
	case chance < 0.10: // executed, and the answer lost
		serve(context.WithoutCancel(r.Context()))
		return nil, errCut
	case chance < 0.12: // done twice
		serve(context.WithoutCancel(r.Context()))
		<-answered
	}
	serve(r.Context())
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	return <-answered, nil
}

func wait(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (n *network) setDown(host string, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[host] = down
}

func connect(t *testing.T, n *network, secret string, servers ...string) *remote.Client {
	t.Helper()
	c, err := remote.New(remote.Config{Servers: servers, Token: func() (string, error) { return secret, nil }, Transport: n, PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newNetwork() *network {
	return &network{servers: map[string]http.Handler{}, down: map[string]bool{}, calls: map[string]int{}}
}

// Calls over HTTP have the answers of the store in this process.
func TestHTTPContractEqualsTheStoreContract(t *testing.T) { synctest.Test(t, contracts) }

func contracts(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := newNetwork()
	n.servers["a"] = w.server(ctx, "a")
	over := connect(t, n, w.grant("edge", ""), "http://a")
	direct := work.On(w.store, time.Now)

	self := store.Session{ID: newID(t), Node: "far", Machine: "m", DataDir: "/d", Roles: []string{store.RoleWorker}, Labels: map[string]string{"zone": "x"}, Capacity: 10}
	if _, err := over.Join(ctx, self); err != nil {
		t.Fatal(err)
	}
	if _, err := over.Join(ctx, self); err != nil {
		t.Fatal("a repeated join:", err)
	}
	sessions, err := over.Sessions(ctx)
	if err != nil || len(sessions) != 1 || sessions[0].ID != self.ID {
		t.Fatalf("the sessions are %v: %v", sessions, err)
	}
	j := w.apply(`{name: full, namespace: web, params: {day: {default: x}}, schedule: {cron: "0 30 2 * * *", timezone: Europe/Berlin},
		run: {shell: "echo $DAY", env: {A: b}}, place: {labels: {zone: x}},
		policy: {timeout: 5m, overlap: allow, kill_grace: 0s, lost_after: 45s, retry: {attempts: 2, on: [failed, lost]}}}`)
	runs := []job.ID{w.trigger(j, self.ID), w.trigger(j, self.ID), w.trigger(j, self.ID)}

	until := time.Now().Add(time.Minute)
	got, err := over.Ready(ctx, self.ID, store.RunRef{}, until, 10)
	if err != nil {
		t.Fatal(err)
	}
	want, err := direct.Ready(ctx, self.ID, store.RunRef{}, until, 10)
	if err != nil || len(want) != 3 || !same(got, want) {
		t.Fatalf("ready are\n%v\nand not\n%v: %v", got, want, err)
	}
	page, err := over.Ready(ctx, self.ID, want[0].RunRef, until, 1)
	if err != nil || !same(page, want[1:2]) {
		t.Fatalf("the second page is %v: %v", page, err)
	}

	attempts := make([]store.Attempt, len(runs))
	for i, r := range want {
		attempts[i] = store.Attempt{Job: r.Job, Run: r.ID, Number: r.Attempt, Token: newID(t)}
	}
	claimed, err := over.Claim(ctx, self.ID, attempts)
	if err != nil {
		t.Fatal(err)
	}
	again, err := direct.Claim(ctx, self.ID, attempts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range again {
		a, b := &claimed[i], &again[i]
		if a.Verdict != store.Started || b.Verdict != store.Started {
			t.Fatalf("the verdicts are %v and %v", a.Verdict, b.Verdict)
		}
		if text, want := text(t, a.Job.Filled), text(t, b.Job.Filled); text != want {
			t.Errorf("the definition is\n%s\nand not\n%s", text, want)
		}
		if a.Job.Definition.Version != b.Job.Definition.Version || a.Job.Definition.UID != b.Job.Definition.UID || a.Job.Definition.Epoch != b.Job.Definition.Epoch {
			t.Errorf("the definition has the version %d", a.Job.Definition.Version)
		}
		if a.Run.LostAfter != b.Run.LostAfter || a.Run.LostAfter != 45*time.Second || !a.Run.Due.Equal(b.Run.Due) || !reflect.DeepEqual(a.Run.Params, b.Run.Params) || a.Run.Token != b.Run.Token {
			t.Errorf("the run is\n%+v\nand not\n%+v", a.Run, b.Run)
		}
	}

	if _, err := w.store.Cancel(ctx, attempts[2].Run, "ann", "enough"); err != nil {
		t.Fatal(err)
	}
	mine, err := over.Mine(ctx, self.ID)
	if err != nil || len(mine) != 3 {
		t.Fatalf("there are %d runs: %v", len(mine), err)
	}
	for _, r := range mine {
		if (r.CancelBy == "ann" && r.CancelReason.String() == "enough") != (r.ID == attempts[2].Run) {
			t.Errorf("run %s is to be cancelled by %q", r.ID, r.CancelBy)
		}
	}
	versions, err := over.Versions(ctx, []job.ID{j.Definition.UID, newID(t)})
	if err != nil || len(versions) != 2 || versions[0].Version != j.Definition.Version || !versions[1].Deleted {
		t.Errorf("the versions are %v: %v", versions, err)
	}
	ended, err := over.Over(ctx, []job.ID{attempts[0].Run, newID(t)})
	if err != nil || len(ended) != 1 || ended[0] == attempts[0].Run {
		t.Errorf("the runs that have ended are %v: %v", ended, err)
	}

	// Output that was sent before stays unchanged; output of other attempts is refused.
	chunk := store.OutputChunk{Run: attempts[0].Run, Attempt: 1, Bytes: 3, Time: time.Now().UTC(), Data: []byte("\x00\x00\x03\x00abc")}
	foreign := chunk
	foreign.Run = w.trigger(j, self.ID)
	if err := over.AppendOutput(ctx, []store.OutputChunk{chunk, chunk, foreign}); err != nil {
		t.Fatal(err)
	}
	if err := over.Release(ctx, self.ID, attempts[1:2]); err != nil {
		t.Fatal(err)
	}
	exit := 3
	var rest []store.OutputChunk // more than fits into one request
	for i := range 100 {
		more := chunk
		more.Seq, more.Offset, more.Bytes = i+1, int64(3+i*(50<<10)), 50<<10
		more.Data = append([]byte{0, 0, 0x00, 0xc8}, bytes.Repeat([]byte("x"), 50<<10)...)
		rest = append(rest, more)
	}
	results := []store.Result{{
		Attempt: attempts[0], Started: time.Now(), Ended: time.Now(), Outcome: job.OutcomeFailed, Reason: job.Text("so"), ExitCode: &exit, Permanent: true,
		Output: rest, OutputBytes: 3 + 100*(50<<10),
	}}
	for range 2 { // the answer may be lost
		outcomes, err := over.Finish(ctx, self.ID, results)
		if err != nil || len(outcomes) != 1 || !outcomes[0].Accepted {
			t.Fatalf("the outcomes are %v: %v", outcomes, err)
		}
	}
	record, _, err := w.store.Attempts(ctx, store.HistoryQuery{Job: j.Definition.UID, Limit: 10})
	if err != nil || len(record) != 1 || record[0].Attempt.ExitCode == nil || *record[0].Attempt.ExitCode != 3 || record[0].Attempt.Reason.String() != "so" {
		t.Errorf("the records are %+v: %v", record, err)
	}
	stored, err := w.store.Output(ctx, attempts[0].Run, 1, 0, 1000)
	if err != nil || len(stored) != 101 {
		t.Errorf("%d chunks of output are kept: %v", len(stored), err)
	}
	if err := over.Release(ctx, self.ID, attempts[2:]); err != nil {
		t.Fatal(err)
	}
	if err := over.Leave(ctx, self.ID); err != nil {
		t.Fatal(err)
	}
	if err := over.End(ctx, self.ID); err != nil {
		t.Fatal(err)
	}
	if err := over.Renew(ctx, self.ID, store.Load{}); !errors.Is(err, store.ErrSessionOver) {
		t.Errorf("a renewal after the end: %v", err)
	}
	cancel()
	w.over.Wait()
}

func same(a, b []store.ReadyRun) bool {
	return fmt.Sprint(a) == fmt.Sprint(b)
}

func text(t *testing.T, j *job.Job) string {
	t.Helper()
	without := *j
	without.Status = nil // the status says when it was changed
	data, err := json.Marshal(without)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A worker receives only its own data, whatever it requests.
func TestWorkerTokenReachesNothingElse(t *testing.T) { synctest.Test(t, reach) }

func reach(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := newNetwork()
	n.servers["a"] = w.server(ctx, "a")
	join := func(c *remote.Client, labels map[string]string) store.Session {
		t.Helper()
		s, err := c.Join(ctx, store.Session{ID: newID(t), Node: "far", Machine: "m", DataDir: "/d", Roles: []string{store.RoleWorker}, Labels: labels, Capacity: 10})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	bound, other := connect(t, n, w.grant("bound", "web"), "http://a"), connect(t, n, w.grant("other", ""), "http://a")
	self, theirs := join(bound, map[string]string{"worker": "other", "worker-namespace": "pay"}), join(other, map[string]string{"worker-namespace": "pay"})

	// The same machine and directory, another token: no predecessor.
	if len(theirs.Predecessors) != 0 {
		t.Errorf("a worker settles what another token's has left: %v", theirs.Predecessors)
	}
	jobs := map[string]*store.Job{
		"meant":        w.apply(`{name: meant, namespace: web, run: {shell: 'true'}, place: {labels: {worker: bound}}}`),
		"not asked":    w.apply(`{name: plain, namespace: web, run: {shell: 'true'}}`),
		"foreign":      w.apply(`{name: foreign, namespace: pay, run: {shell: 'secret'}, place: {labels: {worker: bound}}}`),
		"other worker": w.apply(`{name: theirs, namespace: web, run: {shell: 'secret'}, place: {labels: {worker: other}}}`),
	}
	for what, j := range jobs {
		run := w.trigger(j, self.ID)
		attempt := store.Attempt{Job: j.Definition.UID, Run: run, Number: 1, Token: newID(t)}
		outcomes, err := bound.Claim(ctx, self.ID, []store.Attempt{attempt})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := outcomes[0].Verdict == store.Started, what == "meant"; got != want {
			t.Errorf("%s: the claim has the verdict %v", what, outcomes[0].Verdict)
		}
		if what == "meant" {
			continue
		}
		// Under the name of a job that it may run.
		attempt.Job, attempt.Token = jobs["meant"].Definition.UID, newID(t)
		outcomes, err = bound.Claim(ctx, self.ID, []store.Attempt{attempt})
		if err == nil && (outcomes[0].Verdict == store.Started || outcomes[0].Job != nil) {
			t.Errorf("%s: a claim under another job's name has started", what)
		}
	}
	if got := w.eligible(self.ID, jobs["not asked"]); got {
		t.Error("a bound worker suits a job that does not choose it")
	}
	if !w.eligible(self.ID, jobs["meant"]) || w.eligible(self.ID, jobs["foreign"]) {
		t.Error("a bound worker suits a job of another namespace, or not one of its own")
	}
	var refused *remote.RefusedError
	for what, err := range map[string]error{
		"runs": second(bound.Mine(ctx, theirs.ID)), "renewal": bound.Renew(ctx, theirs.ID, store.Load{}), "end": bound.End(ctx, theirs.ID),
		"ready": second(bound.Ready(ctx, theirs.ID, store.RunRef{}, time.Now(), 1)), "results": second(bound.Finish(ctx, theirs.ID, []store.Result{{Attempt: store.Attempt{Number: 1}, Outcome: job.OutcomeFailed}})),
		"releases": bound.Release(ctx, theirs.ID, []store.Attempt{{Number: 1}}), "leaving": bound.Leave(ctx, theirs.ID),
	} {
		if !errors.As(err, &refused) || refused.Problem.Type != client.TypeForbidden {
			t.Errorf("the %s of another token's session: %v", what, err)
		}
	}
	members, err := bound.Sessions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if m.ID == theirs.ID || m.Labels != nil || m.Machine != "" {
			t.Errorf("a worker is shown the session of another one: %+v", m)
		}
	}
	cancel()
	w.over.Wait()
}

// A worker gets the trace of its attempt with the claim; the run itself keeps that of its request.
func TestAWorkerGetsTheTraceOfItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		w := newWorld(t)
		defer w.over.Wait()
		defer stop()
		w.trace = func(run *job.Run, attempt int) job.Trace {
			return job.Trace{Parent: fmt.Sprintf("of %s, attempt %d", run.Name, attempt)}
		}
		n := newNetwork()
		n.servers["a"] = w.server(ctx, "a")
		c := connect(t, n, w.grant("edge", ""), "http://a")
		self, err := c.Join(ctx, store.Session{ID: newID(t), Node: "far", Machine: "m", DataDir: "/d", Roles: []string{store.RoleWorker}, Capacity: 10})
		if err != nil {
			t.Fatal(err)
		}
		j := w.apply(`{name: report, namespace: web, run: {shell: 'true'}}`)
		attempt := store.Attempt{Job: j.Definition.UID, Run: w.trigger(j, self.ID), Number: 1, Token: newID(t)}
		got, err := c.Claim(ctx, self.ID, []store.Attempt{attempt})
		if err != nil {
			t.Fatal(err)
		}
		if trace := job.TraceOf(got[0].Run.Params); trace.Parent != "of report, attempt 1" {
			t.Errorf("the worker got the trace %v", trace)
		}
		kept, err := w.store.Claim(ctx, self.ID, []store.Attempt{attempt})
		if err != nil || job.TraceOf(kept[0].Run.Params) != (job.Trace{}) {
			t.Errorf("the store keeps %v, %v", kept[0].Run.Params, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func (w *world) eligible(session job.ID, j *store.Job) bool {
	w.t.Helper()
	sessions, err := w.store.Sessions(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range sessions {
		if sessions[i].ID == session {
			place := j.Filled.Nodes()
			return sessions[i].Suits(place.Labels, j.Filled.Run.HandlerName())
		}
	}
	w.t.Fatal("the session is missing")
	return false
}

func TestWorkerOfAnotherVersionGetsAClearError(t *testing.T) {
	w := newWorld(t)
	s, err := service.New(service.Config{Store: w.store, Tokens: w.tokens, Node: "a"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := httpapi.Handler(httpapi.Config{Service: s, Workers: host.New(host.Config{Store: w.store, Tokens: w.tokens, Node: "a"}), Tokens: w.tokens, Node: "a"})
	if err != nil {
		t.Fatal(err)
	}
	secret := w.grant("edge", "")
	for versions, hint := range map[[2]int]string{{7, 9}: "upgrade the servers first", {1, 3}: ""} {
		body := fmt.Sprintf(`{"oldest_protocol": %d, "newest_protocol": %d, "session": %q, "node": "far", "machine": "m", "directory": "/", "capacity": 1}`, versions[0], versions[1], newID(t))
		r := httptest.NewRequest(http.MethodPost, "http://localhost/api/v1/worker/sessions", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		want := http.StatusOK
		if hint != "" {
			want = http.StatusUpgradeRequired
		}
		if answer.Code != want || !strings.Contains(answer.Body.String(), hint) {
			t.Errorf("the versions %v have the answer %d: %s", versions, answer.Code, answer.Body)
		}
	}
}

// witness runs attempts and counts how often each has begun.
type witness struct {
	mu    sync.Mutex
	began map[string]int
}

// Run implements executor.Executor.
func (e *witness) Run(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	if err := a.Start(); err != nil {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(err.Error()), Unstarted: true}
	}
	e.mu.Lock()
	e.began[fmt.Sprint(a.Run.ID, "/", a.Number)]++
	e.mu.Unlock()
	fmt.Fprintln(out.Stdout, "output of", a.Run.ID)
	if !wait(ctx, 200*time.Millisecond) {
		return executor.Result{Outcome: job.OutcomeCancelled, Reason: job.Text(context.Cause(ctx).Error())}
	}
	return executor.Result{Outcome: job.OutcomeSucceeded}
}

// Two workers behind a network that breaks, delays, duplicates and loses calls, with servers that
// restart: each occurrence is recorded once, and no attempt begins twice.
func TestWorkersBehindABadNetworkNeitherLoseNorDoubleRuns(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { badNetwork(t, seed) })
		})
	}
}

func badNetwork(t *testing.T, seed uint64) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	n := newNetwork()
	n.random = mathrand.New(mathrand.NewPCG(seed, 1))
	n.servers["a"], n.servers["b"] = w.server(ctx, "a"), w.server(ctx, "b")
	j := w.apply(`{name: tick, schedule: {every: 1s}, run: {shell: 'true'}, policy: {overlap: allow}}`)
	boot := func() time.Duration { return time.Since(w.boot) }
	quiet := slog.New(slog.DiscardHandler)

	planner, err := node.New(node.Config{Session: store.Session{Node: "server", Machine: "s", DataDir: "/", Roles: []string{store.RolePlanner, store.RoleAPI}}, Boot: boot, Log: quiet}.On(w.store))
	if err != nil {
		t.Fatal(err)
	}
	var nodes sync.WaitGroup
	planning, stopPlanning := context.WithCancel(ctx)
	nodes.Go(func() { _ = planner.Run(planning) })
	began := &witness{began: map[string]int{}}
	secret := w.grant("edge", "")
	working, stopWorking := context.WithCancel(ctx)
	for i := range 2 {
		c := connect(t, n, secret, "http://a", "http://b")
		nodes.Go(func() {
			if err := c.Wait(working); err != nil {
				return
			}
			far, err := node.New(node.Config{
				Members: c, Work: c, Boot: boot, Log: quiet, Capacity: 20,
				Session:   store.Session{Node: fmt.Sprint("far", i), Machine: fmt.Sprint("m", i), DataDir: "/", Roles: []string{store.RoleWorker}, Capacity: 20},
				Executors: func(*job.Job) executor.Executor { return began },
			})
			if err != nil {
				t.Error(err)
				return
			}
			for working.Err() == nil {
				if err := far.Run(working); err != nil && working.Err() == nil {
					time.Sleep(time.Second) // the first session could not begin
				}
			}
		})
	}
	time.Sleep(20 * time.Second)
	n.setDown("a", true)
	time.Sleep(15 * time.Second)
	n.setDown("b", true) // an outage
	time.Sleep(8 * time.Second)
	n.setDown("a", false)
	time.Sleep(15 * time.Second)
	n.setDown("b", false)
	time.Sleep(20 * time.Second)
	paused := *j.Definition
	paused.Paused = true
	if _, err := store.PutOne(ctx, w.store, store.PutJob{Definition: &paused, IfVersion: j.Definition.Version, Actor: "test", Pause: store.Pause{By: "test"}}); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.random = nil
	n.mu.Unlock()
	time.Sleep(time.Minute)
	stopWorking()
	time.Sleep(30 * time.Second)
	stopPlanning()
	nodes.Wait()
	cancel()
	w.over.Wait()

	ctx = context.WithoutCancel(ctx)
	records, _, err := w.store.Attempts(ctx, store.HistoryQuery{Job: j.Definition.UID, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	occurrences, succeeded := map[string]int{}, 0
	for _, r := range records {
		occurrences[r.Run.Key]++
		if r.Attempt.Outcome == job.OutcomeSucceeded {
			succeeded++
		}
		if r.Attempt.Outcome == job.OutcomeSucceeded && began.began[fmt.Sprint(r.Run.ID, "/", r.Attempt.Number)] != 1 {
			t.Errorf("attempt %d of run %s is recorded as succeeded and has begun %d times", r.Attempt.Number, r.Run.ID, began.began[fmt.Sprint(r.Run.ID, "/", r.Attempt.Number)])
		}
	}
	for attempt, times := range began.began {
		if times != 1 {
			t.Errorf("attempt %s has begun %d times", attempt, times)
		}
	}
	for key, times := range occurrences {
		if times != 1 {
			t.Errorf("the occurrence %s has %d records", key, times)
		}
	}
	if len(occurrences) < 75 || succeeded < 55 {
		t.Errorf("of some 78 occurrences %d are recorded and %d have succeeded", len(occurrences), succeeded)
	}
	if left, err := w.store.ListActive(ctx, store.ActiveQuery{Limit: 10}); err != nil || len(left) > 0 {
		t.Errorf("%d runs have not ended: %v", len(left), err)
	}
	if n.calls["a"] == 0 || n.calls["b"] == 0 {
		t.Errorf("the servers were asked %v times", n.calls)
	}
}
