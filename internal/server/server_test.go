package server

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/server/config"
)

// TestMain makes the binary of the tests a watchdog when a worker starts one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == watchdog.Argument {
		os.Exit(Watchdog())
	}
	goleak.VerifyTestMain(m)
}

func TestFailedListenLeavesNothingBehind(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	data := filepath.Join(t.TempDir(), "data")
	_, err = Open(t.Context(), Config{
		Settings: config.Server{
			Data: data, Listen: config.Address(taken.Addr().String()), Store: config.Store("sqlite:" + filepath.Join(data, "belfry.db")),
			Roles: []config.Role{"planner", "api"},
		},
		Getenv: os.Getenv, Now: time.Now, Log: slog.New(slog.DiscardHandler), Level: &slog.LevelVar{},
	})
	var refused *ListenError
	if !errors.As(err, &refused) || refused.Address != taken.Addr().String() {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory is there: %v", err)
	}
}
