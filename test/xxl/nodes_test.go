//go:build servers

package xxl

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/servers"
)

// stores makes a store of each kind that nodes share.
var stores = map[string]func(t *testing.T) (address string, err error){
	"postgres": func(t *testing.T) (string, error) { return servers.StartPostgres(t).Schema(), nil },
	"mariadb":  func(t *testing.T) (string, error) { return servers.StartMariaDB(t).Database() },
	"etcd": func(t *testing.T) (string, error) {
		return "etcd" + strings.TrimPrefix(servers.StartEtcd(t).URL(), "http"), nil
	},
	"redis": func(t *testing.T) (string, error) { return servers.StartRedis(t).URL(), nil },
}

// front forwards connections of executors to a running node, like a load balancer.
type front struct {
	t       *testing.T
	address string
	behind  []string

	mu    sync.Mutex
	open  net.Listener // nil while it is cut
	conns map[net.Conn]bool
}

func newFront(t *testing.T, nodes []*node) *front {
	f := &front{t: t, address: "127.0.0.1:" + free(t), conns: map[net.Conn]bool{}}
	for _, n := range nodes {
		f.behind = append(f.behind, strings.TrimPrefix(n.xxl, "http://"))
	}
	f.mend()
	t.Cleanup(f.cut)
	return f
}

// mend makes it accept connections.
func (f *front) mend() {
	f.t.Helper()
	l, err := net.Listen("tcp", f.address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.open = l
	f.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.pass(c)
		}
	}()
}

// cut refuses connections, and ends open ones.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open != nil {
		_ = f.open.Close()
		f.open = nil
	}
	for c := range f.conns {
		_ = c.Close()
	}
}

func (f *front) pass(c net.Conn) {
	defer c.Close()
	f.mu.Lock()
	f.conns[c] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, c)
	}()
	first := rand.IntN(len(f.behind))
	for i := range f.behind {
		there, err := net.Dial("tcp", f.behind[(first+i)%len(f.behind)])
		if err != nil {
			continue
		}
		defer there.Close()
		go func() { defer c.Close(); _, _ = io.Copy(c, there) }()
		_, _ = io.Copy(there, c)
		return
	}
}

const (
	// chaosJobs run each second, each with its own handler: in the executor in Go, two runs of one
	// handler share their state.
	chaosJobs = 10
	// chaosRuns is how many runs begin at least while nodes and executors die; BELFRY_XXL has
	// another number.
	chaosRuns = 100
)

// begun returns the runs that executors have begun, once per start.
func begun(t *testing.T, file string) (runs []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		runs = append(runs, lines.Text())
	}
	return runs
}

// Three nodes share a store and five executors: nodes and executors are killed and stopped, and
// connections between them cut. Each run has one outcome, none begins twice, and a run outlives the
// restart of all nodes.
func TestThreeNodes(t *testing.T) {
	names := []string{"redis"}
	if asked := os.Getenv("BELFRY_DATABASE"); asked != "" {
		names = strings.Split(asked, ",")
	}
	runs := chaosRuns
	if asked := os.Getenv("BELFRY_XXL"); asked != "" {
		n, err := strconv.Atoi(asked)
		if err != nil {
			t.Fatalf("BELFRY_XXL: %v", err)
		}
		runs = n
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if stores[name] == nil {
				t.Fatalf("BELFRY_DATABASE has %q, want postgres, mariadb, etcd or redis", name)
			}
			address, err := stores[name](t)
			if err != nil {
				t.Fatal(err)
			}
			chaos(t, address, runs)
		})
	}
}

func chaos(t *testing.T, store string, runs int) {
	var nodes []*node
	for i := range 3 {
		n := serve(t, "--store", store, "--name", fmt.Sprint("n", i), "--run-as", "nobody")
		if i > 0 {
			n.data = nodes[0].data // has the token; its address is in the arguments
		}
		nodes = append(nodes, n)
	}
	f := newFront(t, nodes)
	a := nodes[0]
	file := filepath.Join(t.TempDir(), "begun")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var executors []*process
	var ports []string
	launch := func(i int) { executors[i] = start(t, "goexecutor", "http://"+f.address, token, ports[i], file) }
	for i := range 5 {
		executors, ports = append(executors, nil), append(ports, free(t))
		launch(i)
		a.registered(ports[i], true)
	}
	a.apply(jobs)
	// The first executor lives to the end: its run outlives all nodes.
	over := filepath.Join(t.TempDir(), "over")
	whole := strings.TrimPrefix(strings.TrimSpace(a.cli("job", "run", "sleep", "--param", "param="+over, "--executor", "http://127.0.0.1:"+ports[0], "-o", "name")), "run/")
	a.sleeps(whole)

	var text strings.Builder
	for i := range chaosJobs {
		fmt.Fprintf(&text, "---\nname: count-%d\nschedule: {every: 1s}\nrun: {xxl: {group: go-group, handler: count-%d, param: '{{ .Run }}'}}\n"+
			"policy: {overlap: allow, lost_after: 40s}\nplace: {strategy: round_robin}\n", i, i)
	}
	a.apply(text.String())

	restart := func(i int, by os.Signal) { nodes[i].end(t, by); nodes[i].start() }
	again := func(i int, by os.Signal) { executors[i].end(t, by); launch(i) }
	reached := func(n int) {
		a.waitsFor(5*time.Minute, fmt.Sprintf("%d runs have begun", n), func() bool { return len(begun(t, file)) >= n })
	}
	steps := []func(){
		func() { restart(1, syscall.SIGKILL) },
		func() { again(1, syscall.SIGKILL) },
		func() { restart(2, syscall.SIGTERM) },
		func() { again(2, syscall.SIGTERM) },
		func() { // long enough for refused callbacks
			f.cut()
			before := len(begun(t, file))
			reached(before + chaosJobs)
			f.mend()
		},
		func() { // all at once
			for _, n := range nodes {
				n.end(t, syscall.SIGKILL)
			}
			for _, n := range nodes {
				n.start()
			}
		},
		func() { again(3, syscall.SIGKILL); restart(0, syscall.SIGKILL) },
	}
	const apart = 2 // seconds between two steps, normally
	for i := 0; i < len(steps) || len(begun(t, file)) < runs; i++ {
		reached(len(begun(t, file)) + chaosJobs*apart)
		steps[i%len(steps)]()
	}
	for i := range chaosJobs {
		a.cli("job", "pause", fmt.Sprint("count-", i))
	}
	if err := os.WriteFile(over, nil, 0o600); err != nil { // its result is sent once, and must not meet a cut
		t.Fatal(err)
	}
	a.wants(whole, "succeeded", "")
	if r := a.get(whole); len(r.Attempts) != 1 {
		t.Errorf("the run that outlived all nodes has %d attempts", len(r.Attempts))
	}
	// Executors in Go send a result once, so that a cut loses it. After the executors stop, such
	// runs are lost after 40 s.
	for _, e := range executors {
		e.end(t, syscall.SIGTERM)
	}
	a.waitsFor(5*time.Minute, "all runs have ended", func() bool {
		return a.cli("run", "list", "-A", "--state", "running", "--state", "ready", "--state", "waiting", "-o", "name") == ""
	})

	outcomes, counts := map[string]string{}, map[string]int{}
	for line := range strings.Lines(a.cli("run", "list", "-A", "--state", "done", "-o", "jsonl", "--limit", "100000")) {
		var r struct {
			ID, State, Outcome, Reason string
			Attempt                    int
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if outcomes[r.ID] != "" || r.State != "done" || r.Attempt > 1 {
			t.Errorf("run %s is there more than once, or has attempt %d in state %s", r.ID, r.Attempt, r.State)
		}
		outcomes[r.ID] = r.Outcome
		counts[r.Outcome]++
	}
	list := begun(t, file)
	slices.Sort(list)
	for i, id := range list {
		if i > 0 && id == list[i-1] {
			t.Errorf("run %s has begun twice", id)
		}
		if o := outcomes[id]; o != "succeeded" && o != "lost" {
			t.Errorf("run %s has begun, and its outcome is %q", id, o)
		}
		delete(outcomes, id)
	}
	for id, outcome := range outcomes {
		if outcome == "succeeded" && id != whole {
			t.Errorf("run %s has succeeded, and no executor has begun it", id)
		}
	}
	if len(list) < runs || counts["succeeded"] < runs/2 {
		t.Errorf("%d runs have begun, want %d; the outcomes are %v", len(list), runs, counts)
	}
	t.Logf("%d runs have begun; the outcomes are %v", len(list), counts)
}
