package watchdog

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/clock"
)

// fakeEngine is a container engine with one container.
type fakeEngine struct {
	socket string
	mu     sync.Mutex
	status string // status of the container, "" for none
	ends   string // the signal that ends the container
	calls  []string
}

func newFakeEngine(t *testing.T, status, ends string) *fakeEngine {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	e := &fakeEngine{socket: filepath.Join(dir, "s"), status: status, ends: ends}
	listener, err := net.Listen("unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	locked := func(pattern string, f func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.status == "" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			f(w, r)
		})
	}
	locked("GET /containers/c/json", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"State":{"Status":%q,"Running":%v}}`, e.status, e.status == "running")
	})
	locked("POST /containers/c/kill", func(w http.ResponseWriter, r *http.Request) {
		signal := r.URL.Query().Get("signal")
		if e.calls = append(e.calls, signal); e.status != "running" {
			w.WriteHeader(http.StatusConflict)
			return
		}
		if signal == e.ends {
			e.status = "exited"
		}
	})
	locked("DELETE /containers/c", func(http.ResponseWriter, *http.Request) { e.status = "" })
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close(); <-done })
	return e
}

func (e *fakeEngine) called() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

func TestContainersOfADeadNodeAreEnded(t *testing.T) {
	for _, c := range []struct {
		name, status, ends string
		grace              time.Duration
		last, after        string // the last call, and the state after it
	}{
		{"by SIGTERM", "running", "SIGTERM", time.Minute, "SIGTERM", "exited"},
		{"by SIGKILL after the grace", "running", "SIGKILL", time.Millisecond, "SIGKILL", "exited"},
		{"by SIGKILL without a grace", "running", "SIGKILL", 0, "SIGKILL", "exited"},
		{"by removal before a late start", "created", "", time.Minute, "SIGTERM", ""},
		{"not when they have ended", "exited", "", time.Minute, "", "exited"},
		{"not when they are gone", "", "", time.Minute, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEngine(t, c.status, c.ends)
			file, err := os.Create(filepath.Join(t.TempDir(), fileName))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			entry := Entry{Key: Key{newRun(t), 1}, Command: true, State: Announced, Cgroup: containerPrefix + e.socket + "#c", Grace: c.grace}
			end(table{file: file}, []slot{{Entry: entry}}, func(string) {})
			last := ""
			if n := len(e.calls); n > 0 {
				last = e.calls[n-1]
			}
			if e.status != c.after || last != c.last || c.grace == 0 && slices.Contains(e.calls, "SIGTERM") {
				t.Errorf("the container is %q after the calls %q", e.status, e.calls)
			}
			if left := survey([]Entry{entry}); len(left) > 0 {
				t.Errorf("there is still %v", left)
			}
		})
	}
}

func TestAContainerWhoseEngineIsAwayCountsAsRunning(t *testing.T) {
	t.Parallel()
	entry := Entry{Key: Key{newRun(t), 1}, Command: true, State: Announced, Cgroup: containerPrefix + "/nonexistent/s#c"}
	if found := survey([]Entry{entry})[entry.Key]; !slices.Equal(found, []int{0}) {
		t.Errorf("found %v", found)
	}
}

// kept is a journal with a container of a dead node, with the file of its state.
func kept(t *testing.T, dir string, e *fakeEngine, fence time.Duration) Key {
	t.Helper()
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	key := Key{newRun(t), 2}
	tb := table{file: file}
	entry := Entry{Key: key, Command: true, State: Announced, Cgroup: containerPrefix + e.socket + "#c", Fence: fence, Kept: true}
	n := &Node{config: Config{Dir: dir}, kept: map[Key]bool{}}
	// The container was announced long before the last renewal.
	for _, err := range []error{tb.writeHeader(header{boot, true, clock.Boot()}), tb.write(slot{Entry: entry}), n.Keep(key, []byte("state\n2"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	n.Chunks(key, 640)
	return key
}

func TestTheNextNodeGetsTheContainersOfADeadOne(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t, "running", "SIGKILL")
	dir := folder(t)
	key := kept(t, dir, e, time.Hour)
	stale := filepath.Join(dir, keptDir, newRun(t).String()+"-1")
	if err := os.WriteFile(stale, append(number(0), "old"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second node finds what the first, killed, had not ended
		n := open(t, dir)
		if left := n.Left(); len(left) != 1 || left[0].Key != key || string(left[0].State) != "state\n2" || left[0].Chunks != 640 {
			t.Errorf("left are %+v", left)
		}
		if err := n.table.file.Close(); err != nil { // like kill -9: its watchdog keeps the container
			t.Fatal(err)
		}
		n.stop()
		<-n.stopped
	}
	if got := e.called(); len(got) != 0 {
		t.Errorf("the engine was called %q", got)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the file of an ended attempt: %v", err)
	}
	n := open(t, dir)
	n.End([]Key{key})
	n.Forget(key)
	if got := e.called(); !slices.Contains(got, "SIGKILL") {
		t.Errorf("the engine was called %q", got)
	}
	if files, _ := os.ReadDir(filepath.Join(dir, keptDir)); len(files) > 0 {
		t.Errorf("files are left: %v", files)
	}
}

func TestAContainerWithoutItsFileIsEnded(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t, "running", "SIGKILL")
	dir := folder(t)
	key := kept(t, dir, e, time.Hour)
	if err := os.RemoveAll(filepath.Join(dir, keptDir)); err != nil {
		t.Fatal(err)
	}
	n := open(t, dir)
	if left := n.Left(); len(left) > 0 || !slices.Contains(e.called(), "SIGKILL") || !n.Began(key) {
		t.Errorf("left are %+v, and the engine was called %q", left, e.called())
	}
}

// A node that has come back but cannot reach its store is no owner.
func TestAContainerEndsAtTheFenceOfADeadNode(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t, "running", "SIGKILL")
	dir := folder(t)
	key := kept(t, dir, e, 3*time.Second)
	n := open(t, dir)
	began := clock.Boot()
	for deadline := time.Now().Add(patience); !slices.Contains(e.called(), "SIGKILL"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it runs on")
		}
	}
	if took := clock.Boot() - began; took < 2*time.Second {
		t.Errorf("it was ended after %s: the last renewal does not count", took)
	}
	if len(n.Left()) != 1 {
		t.Errorf("left are %+v", n.Left())
	}
	n.Forget(key)
}

// The watchdog of a dead node waits until the fence, and then reports a second time.
func TestTheWatchdogEndsContainersOfANodeThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t, "running", "SIGKILL")
	dir := folder(t)
	key := kept(t, dir, e, time.Second)
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := lock(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	g := guard{table: table{file}, boot: boot, session: session, renewed: clock.Boot(), log: func(text string) { t.Log(text) }}
	var kept []bool
	g.bury([]byte("settings"), func(_ context.Context, d Dead) {
		<-d.Ended
		if kept = append(kept, d.Keeps() && d.IsKept(key.Run, key.Number)); len(kept) == 1 && len(e.called()) > 0 {
			t.Errorf("the engine was called %q before the fence", e.called())
		}
	}, io.Discard)
	if !slices.Equal(kept, []bool{true, false}) || !slices.Equal(e.called(), []string{"SIGKILL"}) {
		t.Errorf("reports with the container kept: %v; the engine was called %q", kept, e.called())
	}
	if n := open(t, dir); len(n.Left()) > 0 {
		t.Errorf("left are %+v", n.Left())
	}
}
