//go:build servers

package mongo

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/joined"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// server is FerretDB on SQLite, which speaks the protocol of MongoDB.
var server *servers.FerretDB

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if server, err = servers.NewFerretDB(); err != nil {
		fmt.Fprintln(os.Stderr, "start FerretDB:", err)
		return 1
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "stop FerretDB:", err)
		return 1
	}
	return code
}

var databases atomic.Int64

func open(t *testing.T, o Options) *History {
	t.Helper()
	h, err := Open(t.Context(), fmt.Sprintf("%shistory%d", server.URL(), databases.Add(1)), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// TestHistory runs the part of the suite that is about history, with jobs in memory.
func TestHistory(t *testing.T) {
	storetest.RunHistory(t, func(t *testing.T, o storetest.Options) store.Store {
		control := memory.NewControl(memory.Options{Now: o.Now, LookAhead: o.LookAhead, Defaults: o.Defaults, NewID: o.NewID, Revisions: o.Revisions})
		s, err := joined.New(t.Context(), control, open(t, Options{Now: o.Now}), joined.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Shipping(s, true)
	})
}

func TestAServerThatDoesNotAnswerIsAway(t *testing.T) {
	_, err := Open(t.Context(), "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100&connectTimeoutMS=100", Options{})
	if !errors.Is(err, store.ErrAway) {
		t.Errorf("without a server: %v", err)
	}
}

func TestAURLSetsHowLongAServerIsLookedFor(t *testing.T) {
	for url, want := range map[string]time.Duration{"mongodb://h": selectMax, "mongodb://h/?serverSelectionTimeoutMS=100": 100 * time.Millisecond} {
		if got := *clientOptions(url).ServerSelectionTimeout; got != want {
			t.Errorf("%s: a server is looked for during %s, want %s", url, got, want)
		}
	}
}

func TestWrongURLIsNamed(t *testing.T) {
	var wrong *AddressError
	if _, err := Open(t.Context(), "mongodb://h/d?tls=perhaps", Options{}); !errors.As(err, &wrong) {
		t.Errorf("tls=perhaps: %v", err)
	}
}

func TestCheckNamesTheServer(t *testing.T) {
	about, err := Check(t.Context(), server.URL()+"history")
	if err != nil || about == "" {
		t.Errorf("check: %q, %v", about, err)
	}
}
