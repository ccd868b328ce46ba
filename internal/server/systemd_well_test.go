package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSystemdWatchdogStopsWhileTheServerIsUnwell(t *testing.T) {
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
	ctx, cancel := context.WithCancel(t.Context())
	stopped, ended := make(chan struct{}), make(chan struct{})
	calls := make(chan int, 100)
	n := 0
	d := systemd{socket: socket, within: 20 * time.Millisecond, log: slog.New(slog.DiscardHandler)}
	go func() {
		defer close(ended)
		d.run(ctx, nil, stopped, nil, func(ctx context.Context) error {
			n++
			calls <- n
			if n <= 3 {
				<-ctx.Done() // it hangs
				return ctx.Err()
			}
			return errors.New("the store fails, and says so")
		})
	}()
	b := make([]byte, 64)
	if err := manager.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	read, err := manager.Read(b)
	if err != nil || string(b[:read]) != "WATCHDOG=1" {
		t.Fatalf("systemd receives %q, %v", b[:read], err)
	}
	if asked := len(calls); asked < 4 {
		t.Errorf("systemd hears that all is well after %d questions, of which three had no answer", asked)
	}
	cancel()
	close(stopped)
	<-ended
}

// A manager that does not read has room for only some lines.
func TestUnreadSystemdSocketBlocksNothing(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	var log bytes.Buffer
	d := systemd{socket: filepath.Join(dir, "s"), log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	const roomMax = 10_000 // lines, more than any system has room for
	for range roomMax {
		if d.tell("WATCHDOG=1"); log.Len() > 0 {
			break
		}
	}
	if !strings.Contains(log.String(), "i/o timeout") {
		t.Errorf("the log is %q", log.String())
	}
}

func TestSystemdSettingsComeFromTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		pid, usec string
		within    time.Duration
	}{
		{"", "", 0}, {"", "3000000", 3 * time.Second}, {"1", "3000000", 0}, {"", "soon", 0}, {"", "-5", 0},
	} {
		d := systemdOf(func(name string) string {
			return map[string]string{"NOTIFY_SOCKET": "@x", "WATCHDOG_PID": c.pid, "WATCHDOG_USEC": c.usec}[name]
		}, nil)
		if d.within != c.within || d.socket != "@x" {
			t.Errorf("process %q, %q microseconds: %+v", c.pid, c.usec, d)
		}
	}
}
