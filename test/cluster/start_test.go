//go:build servers

package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/check/logtest"
)

// muteFor is longer than databases keep a transaction whose client is silent, and than calls to etcd and
// Redis last.
const muteFor = 12 * time.Second

// stopsWithin is how long a server may take to stop while its store is away, on a quiet machine.
const stopsWithin = 10 * time.Second

// A server whose store is away, resets connections, answers late or stops answering while it starts waits
// for it: the log, systemd and probes say that it is not ready. SIGTERM ends it. What waiting cannot mend
// ends it at once.
func TestAServerWaitsForItsStoreAtItsStart(t *testing.T) {
	t.Parallel()
	for _, name := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, address := startDatabase(t, name)
			n := &node{t: t, name: "a", dir: t.TempDir(), proxy: newProxy(t, port(t, address))}
			store := *address
			store.Host = fmt.Sprintf("127.0.0.1:%d", n.proxy.address())
			n.store = store.String()
			t.Cleanup(n.end)
			told := n.tellSystemd()

			begun := time.Now()
			step := func(what string) { t.Logf("%6.1f s: %s", time.Since(begun).Seconds(), what) }
			for _, w := range []weather{cut, resets} {
				n.proxy.turn(w)
				n.launch()
				n.waits()
				began := time.Now()
				n.stop()
				if took := time.Since(began); took > stopsWithin+lateMax {
					t.Errorf("a server whose store is away takes %s to stop", took)
				}
				step("stopped while the store was away")
			}
			n.launch()
			n.waits()
			n.proxy.turn(cut)
			n.unready()
			if text := told.String(); !strings.Contains(text, "EXTEND_TIMEOUT_USEC=") || strings.Contains(text, "READY=1") {
				t.Errorf("systemd hears %q while the store is away", text)
			}
			n.proxy.turn(fair)
			n.await()
			eventually(t, "systemd hears that the server is ready", func() bool { return strings.Contains(told.String(), "READY=1") })
			step("live")
			n.stop()
			step("stopped")

			n.proxy.delay(slowAnswer)
			n.start()
			step("live with late answers")
			n.stop()
			step("stopped with late answers")
			// The first answers arrive, and later ones do not, from another moment of the start each time.
			until := time.Duration(1+rand.IntN(8)) * slowAnswer
			n.launch()
			<-time.After(until)
			n.proxy.turn(mute)
			<-time.After(muteFor)
			n.proxy.turn(fair)
			n.await()
			step(fmt.Sprintf("live after silence from %s on", until))
			n.stop()
			n.proxy.delay(0)

			if name != "postgres" && name != "mariadb" {
				return
			}
			other := *address
			other.Path += "_other"
			n.store = other.String()
			n.launch()
			eventually(t, "a server without its database ends", func() bool { return isClosed(n.exited) })
			if text := n.said(); n.cmd.ProcessState.ExitCode() != 1 || strings.Contains(text, waitsFor) || !strings.Contains(text, "_other") {
				t.Errorf("a server whose database does not exist: %s, %s", n.cmd.ProcessState, text)
			}
		})
	}
}

// waitsFor is in the log of a server that waits for its store.
const waitsFor = "the store cannot be reached; this server starts as soon as it can be"

// said returns what the present process has logged.
func (n *node) said() string {
	n.t.Helper()
	text, err := os.ReadFile(n.logFile())
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// waits waits until the node says that it waits for its store.
func (n *node) waits() {
	n.t.Helper()
	eventually(n.t, "the log says that the server waits", func() bool {
		if isClosed(n.exited) {
			n.t.Fatalf("the server ended: %s\n%s", n.cmd.ProcessState, n.said())
		}
		return strings.Contains(n.said(), waitsFor)
	})
}

// unready asks the probes of a node that waits.
func (n *node) unready() {
	n.t.Helper()
	var base string
	eventually(n.t, "the log has the address of the probes", func() bool {
		for line := range strings.Lines(n.said()) {
			var answer struct{ Msg, URL string }
			if json.Unmarshal([]byte(line), &answer) == nil && strings.HasPrefix(answer.Msg, "answering probes") {
				base = answer.URL
			}
		}
		return base != ""
	})
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/livez": {http.StatusOK, "ok"}, "/readyz": {http.StatusServiceUnavailable, "the store cannot be reached"},
		"/api/v1/jobs": {http.StatusServiceUnavailable, `"code":"store_away"`},
	} {
		address, err := url.JoinPath(base, path)
		if err != nil {
			n.t.Fatal(err)
		}
		r, err := http.Get(address)
		if err != nil {
			n.t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != want.status || !bytes.Contains(text, []byte(want.text)) {
			n.t.Errorf("GET %s: %s, %s, %v; want %d with %q", path, r.Status, text, err, want.status, want.text)
		}
	}
}

// tellSystemd gives the node a service manager, and returns what that hears.
func (n *node) tellSystemd() *logtest.Log {
	n.t.Helper()
	dir, err := os.MkdirTemp("", "notify") // short enough for the path of a socket
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { os.RemoveAll(dir) })
	address := &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"}
	manager, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { manager.Close() })
	n.env = append(n.env, "NOTIFY_SOCKET="+address.Name)
	var told logtest.Log
	go func() { _, _ = io.Copy(&told, manager) }()
	return &told
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
