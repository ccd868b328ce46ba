package watchdog

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
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
