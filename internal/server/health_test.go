package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// remoteWorker opens a worker of a server at an address, with its own token.
func remoteWorker(t *testing.T, kept *memory.Store, server, health string) (*Worker, error) {
	t.Helper()
	secret, err := auth.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kept.PutToken(t.Context(), store.PutToken{Name: "edge", Hash: auth.HashOf(secret), Role: store.RoleRemote, Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := config.Server{
		Data: filepath.Join(dir, "data"), Name: "edge",
		Worker: config.Worker{Servers: []string{server}, TokenFile: file, HealthListen: config.Address(health)},
	}.Filled(os.Getenv, "edge", false)
	settings.Listen = "" // as set by the command
	manager := func(name string) string { return map[string]string{"NOTIFY_SOCKET": os.Getenv("NOTIFY_SOCKET")}[name] }
	return OpenWorker(t.Context(), Config{Settings: settings, Getenv: manager, Now: time.Now, Version: "1.2.3", Log: slog.New(slog.DiscardHandler), Level: &slog.LevelVar{}})
}

func TestAWorkerAnswersProbesAndPrometheus(t *testing.T) {
	kept := memory.New(memory.Options{})
	tokens := auth.New(kept, nil)
	answers, err := service.New(service.Config{Store: kept, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := httpapi.Handler(httpapi.Config{Service: answers, Workers: host.New(host.Config{Store: kept, Tokens: tokens}), Tokens: tokens, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "notify") // short enough for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "s"))
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	hears := func(want string) {
		t.Helper()
		line := make([]byte, 256)
		if err := manager.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		for text := ""; !strings.HasPrefix(text, want); {
			n, err := manager.Read(line)
			if text = string(line[:n]); err != nil || text == "READY=1" && text != want {
				t.Fatalf("systemd hears %q, %v, want %s", text, err, want)
			}
		}
	}
	var up atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()

	w, err := remoteWorker(t, kept, server.URL, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}()
	get := func(path string) (int, string) {
		t.Helper()
		response, err := http.Get("http://" + w.parts.listen.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	if status, text := get("/livez"); status != http.StatusOK || text != "ok\n" {
		t.Errorf("/livez without a server answers %d %q", status, text)
	}
	if status, text := get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(text, "no server has accepted this worker yet") {
		t.Errorf("/readyz without a server answers %d %q", status, text)
	}
	if _, page := get("/metrics"); !strings.Contains(page, "\nbelfry_session_live 0\n") {
		t.Errorf("the metrics without a server are\n%s", page)
	}
	hears("EXTEND_TIMEOUT_USEC=") // else systemd would end a worker whose servers are away
	up.Store(true)
	hears("READY=1")
	status, text := get("/readyz")
	for deadline := time.Now().Add(2 * time.Minute); status != http.StatusOK && time.Now().Before(deadline); status, text = get("/readyz") {
		<-time.After(20 * time.Millisecond)
	}
	if status != http.StatusOK || text != "ok\n" {
		t.Errorf("/readyz with a server answers %d %q", status, text)
	}
	_, page := get("/metrics")
	// A machine that hung for a while renews the session first.
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(page, "\nbelfry_session_live 1\n") && time.Now().Before(deadline); _, page = get("/metrics") {
		<-time.After(20 * time.Millisecond)
	}
	for _, want := range []string{"\nbelfry_session_live 1\n", "\nbelfry_capacity_attempts 512\n", `belfry_build_info{version="1.2.3"`, "\nbelfry_attempts_running 0\n", "\nprocess_cpu_seconds_total "} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics lack %q:\n%s", want, page)
		}
	}
	if url := w.parts.callbackURL(); url != "" {
		t.Errorf("services would report to %s, which takes no reports", url)
	}
	if status, _ := get("/api/v1/jobs"); status != http.StatusNotFound {
		t.Errorf("the API of a worker answers %d", status)
	}
}

// Anybody who reaches the address of probes learns whether the worker works, and holds up no probe.
func TestStrangersGetOnlyProbesFromAWorker(t *testing.T) {
	w, err := remoteWorker(t, memory.New(memory.Options{}), "http://127.0.0.1:1/secret-path", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}()
	address := w.parts.listen.Addr().String()
	const slow = 300
	for i := range slow {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		text := "GET /livez HTTP/1.1\r\nHost: x\r\nA: "
		if i%2 == 0 {
			text = "POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/livez", http.StatusOK},
		{"HEAD", "/livez", http.StatusOK},
		{"POST", "/livez", http.StatusMethodNotAllowed},
		{"DELETE", "/metrics", http.StatusMethodNotAllowed},
		{"GET", "/metrics", http.StatusOK},
		{"GET", "/livez/../api/v1/jobs", http.StatusNotFound},
		{"GET", "/debug/pprof/", http.StatusNotFound},
		{"GET", "/api/v1/tokens", http.StatusNotFound},
		{"GET", "/", http.StatusNotFound},
	} {
		request, err := http.NewRequestWithContext(ctx, c.method, "http://"+address+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Origin", "https://elsewhere.example")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatalf("%s %s beside %d slow connections: %v", c.method, c.path, slow, err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != c.status {
			t.Errorf("%s %s answers %d, want %d: %v", c.method, c.path, response.StatusCode, c.status, err)
		}
		if text := string(body); strings.Contains(text, "secret-path") || strings.Contains(text, "token") || response.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s tells too much: %v\n%s", c.method, c.path, response.Header, text)
		}
	}
}

func TestAWorkerWithoutAHealthAddressListensToNothing(t *testing.T) {
	w, err := remoteWorker(t, memory.New(memory.Options{}), "http://127.0.0.1:1", "")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.parts.listen != nil || w.parts.http != nil {
		t.Errorf("it listens on %v", w.parts.listen)
	}
}

func TestATakenHealthAddressLeavesNothingBehind(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = remoteWorker(t, memory.New(memory.Options{}), "http://127.0.0.1:1", taken.Addr().String())
	var refused *ListenError
	if !errors.As(err, &refused) || refused.Address != taken.Addr().String() {
		t.Errorf("the error is %v", err)
	}
}

func TestReadinessOfAWorkerNamesTheReason(t *testing.T) {
	session := job.ID{1}
	for name, c := range map[string]struct {
		is     node.Stats
		status int
		text   string
	}{
		"before the first session":     {node.Stats{}, 503, "no session: no server has accepted this worker yet"},
		"while no server answers":      {node.Stats{Session: session, Silent: 12 * time.Second}, 503, "the session was not renewed for 12 s: no server answers"},
		"while it is drained":          {node.Stats{Session: session, Live: true, Drained: true}, 200, "ok; node is drained, not accepting runs"},
		"while its session is renewed": {node.Stats{Session: session, Live: true}, 200, "ok"},
	} {
		if status, text := readiness(c.is); status != c.status || text != c.text {
			t.Errorf("%s it answers %d %q", name, status, text)
		}
	}
}
