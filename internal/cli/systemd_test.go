package cli_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/cli"
)

func TestSystemdReceivesTheServerState(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	dir, err := os.MkdirTemp("", "notify") // short enough for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	heard := func() string {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 256)
		n, err := manager.Read(b)
		if err != nil {
			t.Fatalf("nothing is heard: %v", err)
		}
		return string(b[:n])
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "100000", "HOME": dir}
	var log logtest.Log
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan cli.ExitCode, 1)
	go func() {
		ended <- cli.Run(ctx, cli.Env{
			Stdin: &bytes.Buffer{}, Stdout: &log, Stderr: &log, Getenv: func(name string) string { return environment[name] }, Now: time.Now, Dir: dir,
		}, []string{"serve", "--data", "data", "--listen", "127.0.0.1:0", "--run-as", me.Username})
	}()
	// A start may take longer than systemd's timeout.
	first := heard()
	if first != "EXTEND_TIMEOUT_USEC=60000000" {
		t.Errorf("systemd receives %q first", first)
	}
	// It may report life before readiness.
	for strings.HasPrefix(first, "EXTEND_") || first == "WATCHDOG=1" {
		first = heard()
	}
	if first != "READY=1" {
		t.Errorf("systemd receives %q before the server is ready", first)
	}
	for range 3 {
		if next := heard(); next != "WATCHDOG=1" {
			t.Errorf("systemd receives %q while all is well", next)
		}
	}
	cancel()
	last := heard()
	for last == "WATCHDOG=1" {
		last = heard()
	}
	if last != "STOPPING=1" {
		t.Errorf("systemd receives %q at the end", last)
	}
	if code := <-ended; code != cli.ExitOK {
		t.Errorf("the server ended with %d:\n%s", code, log.String())
	}
	if !strings.Contains(log.String(), "stopping: ") {
		t.Errorf("the log is\n%s", log.String())
	}
}
