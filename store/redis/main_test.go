//go:build servers

package redis

import (
	"context"
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

// server serves all tests of the package. It need not survive a power cut.
var server *servers.Redis

func TestMain(m *testing.M) {
	callMax, dialMax = time.Minute, time.Minute // a busy machine may stall for seconds
	os.Exit(servers.Main(m, &server, func() (*servers.Redis, error) { return servers.NewRedis("--appendonly", "no") }))
}

var prefixes atomic.Int64

// empty returns the address of an empty store.
func empty() string { return server.URL() + fmt.Sprintf("/test%d", prefixes.Add(1)) }

// open opens a store until the end of the test.
func open(t testing.TB, address string, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func optionsOf(o storetest.Options) Options {
	return Options{Now: o.Now, LookAhead: o.LookAhead, Defaults: o.Defaults, NewID: o.NewID, Revisions: o.Revisions, Guard: true}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, o storetest.Options) store.Store { return open(t, empty(), optionsOf(o)) })
}

// Another node makes every other call. store/etcd runs the whole suite of two nodes.
func TestStoreOfTwoNodes(t *testing.T) {
	t.Parallel()
	storetest.Again(storetest.Run)(t, func(t *testing.T, o storetest.Options) store.Store {
		address := empty()
		return storetest.Nodes(open(t, address, optionsOf(o)), open(t, address, optionsOf(o)))
	})
}

// History is in another store. The whole suite of that runs in store/joined and in
// store/internal/replica.
func TestStoreWithHistoryApart(t *testing.T) {
	t.Parallel()
	storetest.Again(storetest.RunJoined)(t, func(t *testing.T, o storetest.Options) store.Store {
		control, err := OpenControl(context.Background(), empty(), optionsOf(o))
		if err != nil {
			t.Fatal(err)
		}
		s, err := joined.New(t.Context(), control, memory.New(memory.Options{Now: o.Now}), joined.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return storetest.Shipping(s, true)
	})
}

// The model and the crowd again, with one run in the cell and each other run under its own key.
func TestStoreWithRunsApart(t *testing.T) {
	t.Parallel()
	storetest.RunRandom(t, func(t *testing.T, o storetest.Options) store.Store {
		address, own := empty(), optionsOf(o)
		own.InCell = 1
		return storetest.Nodes(open(t, address, own), open(t, address, own))
	})
}
