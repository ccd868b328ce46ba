//go:build servers

package etcd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/test/servers"
)

// server serves all tests of the package. It need not survive a power cut.
var server *servers.Etcd

// calm are options for a slow machine: on a machine that stalls etcd gives up what takes longer
// than 5 s and two elections, and the longer these are, the later is it ready.
var calm = []string{"--heartbeat-interval=500", "--election-timeout=7500"}

func TestMain(m *testing.M) {
	callMax, keepAlive, checkMax = 30*time.Second, 30*time.Second, 30*time.Second
	os.Exit(servers.Main(m, &server, func() (*servers.Etcd, error) {
		return servers.NewEtcd(append(slices.Clone(calm), "--unsafe-no-fsync")...)
	}))
}

var prefixes atomic.Int64

// empty returns the address of an empty store.
func empty() string { return addressOf(server) + fmt.Sprintf("/test%d", prefixes.Add(1)) }

func addressOf(members ...*servers.Etcd) string {
	var hosts []string
	for _, m := range members {
		hosts = append(hosts, strings.TrimPrefix(m.URL(), "http://"))
	}
	return "etcd://" + strings.Join(hosts, ",")
}

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

// The whole suite runs for one node in store/redis, which shares the code except the driver.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Again(storetest.Run)(t, func(t *testing.T, o storetest.Options) store.Store { return open(t, empty(), optionsOf(o)) })
}

// The suite, with every other call made by a second node.
func TestStoreOfTwoNodes(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, o storetest.Options) store.Store {
		address := empty()
		return storetest.Nodes(open(t, address, optionsOf(o)), open(t, address, optionsOf(o)))
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
