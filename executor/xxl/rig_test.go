package xxlexec

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

const token = "a-token-for-tests"

// network connects clients to servers in memory, so that tests have their own time.
type network struct {
	mu    sync.Mutex
	hosts map[string]*host
}

// host is an address of a network.
type host struct {
	conns  chan net.Conn
	closed chan struct{}
	addr   string
}

func (h *host) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *host) Close() error   { return nil }
func (h *host) Addr() net.Addr { return &net.UnixAddr{Name: h.addr} }

func (n *network) listen(addr string) *host {
	h := &host{conns: make(chan net.Conn), closed: make(chan struct{}), addr: addr}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[addr] = h
	return h
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	h := n.hosts[addr]
	n.mu.Unlock()
	if h == nil {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	select {
	case h.conns <- there:
		return here, nil
	case <-h.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut disconnects an address from the network.
func (n *network) cut(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[addr]; h != nil {
		close(h.closed)
		delete(n.hosts, addr)
	}
}

// stub is an executor that answers as configured, and records requests.
type stub struct {
	addr   string
	header http.Header // headers of the latest request

	mu       sync.Mutex
	asked    []string // the paths
	triggers []xxl.Trigger
	busy     bool
	log      string
	compress bool // its answers
	// answer answers a request in the place of the usual answer, unless it returns "".
	answer func(path string, t *xxl.Trigger) string
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var t xxl.Trigger
	_ = json.Unmarshal(body, &t)
	s.mu.Lock()
	s.asked, s.header = append(s.asked, r.URL.Path), r.Header
	if r.URL.Path == "/run" || r.URL.Path == "/trigger" {
		s.triggers = append(s.triggers, t)
	}
	answer, busy, log, compress := s.answer, s.busy, s.log, s.compress
	s.mu.Unlock()
	words := ""
	if answer != nil {
		words = answer(r.URL.Path, &t)
	}
	switch {
	case words == hangsUp:
		panic(http.ErrAbortHandler)
	case words != "":
	case r.URL.Path == "/idleBeat" && busy:
		words = `{"code":500,"msg":"job thread is running or has trigger queue."}`
	case r.URL.Path == "/log":
		from := struct{ FromLineNum int }{}
		_ = json.Unmarshal(body, &from)
		lines := strings.SplitAfter(log, "\n")
		lines = lines[min(from.FromLineNum-1, len(lines)-1) : len(lines)-1]
		text, _ := json.Marshal(strings.Join(lines, ""))
		words = fmt.Sprintf(`{"code":200,"content":{"fromLineNum":%d,"toLineNum":%d,"logContent":%s,"isEnd":false}}`, from.FromLineNum, from.FromLineNum+len(lines)-1, text)
	default:
		words = `{"code":200}`
	}
	w.Header().Set("Content-Type", "text/html") // as Java says
	if compress {
		w.Header().Set("Content-Encoding", "gzip")
		words = packed(words)
	}
	_, _ = io.WriteString(w, words)
}

// packed returns a text compressed.
func packed(text string) string {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// hangsUp is the answer of an executor that ends the connection.
const hangsUp = "hangs up"

// sent returns the number of requests for some paths.
func (s *stub) sent(paths ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, path := range s.asked {
		if slices.Contains(paths, path) {
			n++
		}
	}
	return n
}

func (s *stub) set(change func(*stub)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *stub) last() xxl.Trigger {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.triggers[len(s.triggers)-1]
}

// rig is an Admin on a store, with executors and the part of a worker.
type rig struct {
	*testing.T
	net     *network
	store   *memory.Store
	admin   *Admin
	session store.Session
	jobs    int
	aged    time.Duration     // of runs when they are made
	params  map[string]string // parameters of new runs
	number  int64             // number of the next handover; 0 for a new one
}

// bubble runs a test with its own time.
func bubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, net: &network{hosts: map[string]*host{}}, store: memory.New(memory.Options{})}
		var err error
		id, _ := job.NewID(time.Now(), strings.NewReader(strings.Repeat("s", 64)))
		if r.session, err = r.store.Join(t.Context(), store.Session{ID: id, Node: "a", Roles: []string{store.RoleWorker}, Handlers: []string{job.XXLHandler}}); err != nil {
			t.Fatal(err)
		}
		r.admin = r.newAdmin()
		test(r)
	})
}

// newAdmin returns an Admin on the store, as another node has.
func (r *rig) newAdmin() *Admin {
	r.Helper()
	a, err := New(Config{Store: r.store, Settings: Settings{Tokens: []string{token, "the-next-token-of-tests"}}, dial: r.net.dial})
	r.must(err)
	return a
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// keep runs the loops of an [Admin] until the test ends.
func (r *rig) keep(a *Admin) { r.Helper(); r.keepUntil(a) }

// keepUntil runs the loops of an Admin until they are stopped.
func (r *rig) keepUntil(a *Admin) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Serve(ctx) }()
	synctest.Wait() // it receives cancels from here on
	stop = func() { cancel(); <-done; a.Close() }
	r.Cleanup(stop)
	return stop
}

// executor puts an executor on the network and registers it.
func (r *rig) executor(group, addr, generation string) *stub {
	r.Helper()
	s := &stub{addr: addr}
	l := r.net.listen(addr)
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(l) }()
	r.Cleanup(func() {
		r.net.cut(addr)
		_ = server.Close()
		r.admin.Close()
	})
	r.register(group, addr, generation)
	return s
}

// cut disconnects an executor from the network, and closes its connections.
func (r *rig) cut(addr string) {
	r.net.cut(addr)
	r.admin.Close()
}

func (r *rig) register(group, addr, generation string) {
	r.Helper()
	header := http.Header{xxl.HeaderToken: {token}}
	if generation != "" {
		header[xxl.HeaderGroup] = []string{group}
	}
	r.say(r.admin, "/xxl-job-admin/api/registry", header, fmt.Sprintf(`{"registryGroup":"EXECUTOR","registryKey":%q,"registryValue":"http://%s/"}`, group, addr), 200)
}

// say sends a request to an Admin like an executor, and checks the code of the answer.
func (r *rig) say(a *Admin, path string, header http.Header, body string, want int) xxl.Answer {
	r.Helper()
	request := httptest.NewRequest("POST", "http://belfry"+path, strings.NewReader(body))
	if header == nil {
		header = http.Header{xxl.HeaderToken: {token}}
	}
	request.Header = http.Header{}
	for name, values := range header {
		request.Header.Set(name, values[0])
	}
	answer := httptest.NewRecorder()
	a.ServeHTTP(answer, request)
	if answer.Code != 200 || !strings.HasPrefix(answer.Header().Get("Content-Type"), "application/json") {
		r.Errorf("%s: status %d, type %s", path, answer.Code, answer.Header().Get("Content-Type"))
	}
	said, err := xxl.ReadAnswer(answer.Body.Bytes())
	r.must(err)
	if said.Code != want {
		r.Errorf("%s %s: code %d %q, want %d", path, body, said.Code, said.Message, want)
	}
	return said
}

// callback reports how a run ended.
func (r *rig) callback(a *Admin, number int64, code int, message string) {
	r.Helper()
	r.say(a, "/api/callback", nil, fmt.Sprintf(`[{"logId":%d,"logDateTim":1,"handleCode":%d,"handleMsg":%q}]`, number, code, message), 200)
}

// attempt is one that a worker runs.
type attempt struct {
	store.Attempt
	result executor.Result
}

// run creates a run of a job and sends it to the executors, like a worker.
func (r *rig) run(text string) attempt {
	r.Helper()
	j := r.put(text)
	return r.runOf(j, 0, 0)
}

// put makes a job.
func (r *rig) put(text string) *store.Job {
	r.Helper()
	r.jobs++
	docs, err := job.Decode("job.yaml", []byte(fmt.Sprintf("name: j%d\n%s", r.jobs, text)))
	r.must(err)
	if problems := docs[0].Validate(); problems != nil {
		r.Fatal(problems)
	}
	j, err := store.PutOne(r.Context(), r.store, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "ann"})
	r.must(err)
	return j
}

func (r *rig) runOf(j *store.Job, shard, shards int) attempt {
	r.Helper()
	return r.claim(r.trigger(j, shard, shards))
}

func (r *rig) trigger(j *store.Job, shard, shards int) store.Attempt {
	r.Helper()
	r.jobs++
	id, err := job.NewID(time.Now().Add(-r.aged), strings.NewReader(fmt.Sprintf("%010d", r.jobs)))
	r.must(err)
	outcomes, err := r.store.Trigger(r.Context(), []store.TriggerItem{{
		ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Key: id.String(), Session: r.session.ID, Node: "a", Shard: shard, Shards: shards, Params: r.params, Actor: "ann",
	}})
	r.must(err)
	return store.Attempt{Job: j.Definition.UID, Run: outcomes[0].Run, Number: 1, Token: id}
}

// claim claims an attempt and executes it.
func (r *rig) claim(a store.Attempt) attempt {
	r.Helper()
	r.must(r.store.Renew(r.Context(), r.session.ID, store.Load{}))
	claimed, err := r.store.Claim(r.Context(), r.session.ID, []store.Attempt{a})
	r.must(err)
	if claimed[0].Verdict != store.Started {
		r.Fatalf("the claim was answered with %d: %s", claimed[0].Verdict, claimed[0].Reason)
	}
	definition := claimed[0].Job.Filled
	at := executor.Attempt{Job: definition, Run: claimed[0].Run.Run, Number: a.Number, Start: func() error { return nil }}
	at.HandOver = func(ctx context.Context, h executor.Handover) (int64, error) {
		number, err := r.number, error(nil)
		if r.number = 0; number == 0 {
			number, err = r.store.Numbers(ctx, 1, 0)
		}
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
	result := r.admin.Run(r.Context(), at, executor.Output{Stdout: io.Discard, Stderr: io.Discard})
	if !result.HandedOver && !result.Unstarted {
		_, err := r.store.Finish(r.Context(), r.session.ID, []store.Result{{Attempt: a, Outcome: result.Outcome, Reason: result.Reason}})
		r.must(err)
	}
	return attempt{a, result}
}

// wants checks the outcome of an attempt and a part of its reason; "" means that it has not ended.
func (r *rig) wants(a attempt, outcome job.Outcome, reason string) {
	r.Helper()
	records, err := r.store.AttemptsOf(r.Context(), a.Run)
	r.must(err)
	switch {
	case len(records) == 0 && outcome == "":
	case len(records) == 0:
		r.Errorf("the run has not ended, want %s", outcome)
	case records[0].Attempt.Outcome != outcome || !strings.Contains(records[0].Attempt.Reason.String(), reason):
		r.Errorf("the run ended as %s: %s; want %s: %s", records[0].Attempt.Outcome, records[0].Attempt.Reason, outcome, reason)
	}
}

// output returns the stored log of a run.
func (r *rig) output(a attempt) string {
	r.Helper()
	var text strings.Builder
	chunks, err := r.store.Output(r.Context(), a.Run, a.Number, 0, 100)
	r.must(err)
	for i := range chunks {
		chunk := outputChunk(chunks[i])
		for piece, err := range chunk.Pieces() {
			r.must(err)
			text.Write(piece.Data)
		}
	}
	return text.String()
}
