package server

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// Tests of the stores compare the versions of other products.
func TestAServerNamesTheProgramOfItsStore(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	s := &Server{Config: Config{Now: func() time.Time { return now }}}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	s.Settings.Store = config.Store("redis://" + closed.Addr().String())
	if got := s.storeVersion(); got != "" {
		t.Errorf("a store that does not answer is %q", got)
	}
	s.Settings.Store = config.Store("sqlite:" + t.TempDir() + "/belfry.db")
	want := "SQLite " + sqlite.Version
	if got := s.storeVersion(); got != want || !strings.HasPrefix(sqlite.Version, "3.") {
		t.Errorf("the file is of %q, want %q: what was not known is asked for again", got, want)
	}
	s.Settings.Store = config.Store("redis://" + closed.Addr().String())
	if got := s.storeVersion(); got != want {
		t.Errorf("within the hour the store is %q, want %q", got, want)
	}
	now = now.Add(versionFor)
	if got := s.storeVersion(); got != "" {
		t.Errorf("an hour later the store is %q", got)
	}
}
