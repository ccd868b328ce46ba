//go:build servers

package cluster_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/belfry-cron/belfry/test/servers"
)

// startApart starts three nodes on an etcd, with their history in a PostgreSQL, which is the
// database of the cluster.
func startApart(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	control, err := url.Parse(servers.StartEtcd(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	history := servers.StartPostgres(t)
	c.database = history
	schema := history.Schema()
	for i, name := range []string{"a", "b", "c"} {
		dir := filepath.Join(c.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		n := &node{t: t, name: name, dir: dir, proxy: newProxy(t, port(t, control)), history: schema}
		n.store = fmt.Sprintf("etcd://127.0.0.1:%d/belfry?compact=off", n.proxy.address())
		if i > 0 {
			n.token = c.nodes[0].token
		}
		t.Cleanup(n.end)
		n.start()
		c.nodes = append(c.nodes, n)
	}
	c.renewals = c.watch()
	return c
}

// The history server and a node are killed at once. All runs continue, and each is in history
// once when the server is back.
func TestAHistoryServerIsKilledWithANode(t *testing.T) {
	c := startApart(t)
	h := c.withstand(beyondSession, func() {
		if err := c.database.Kill(); err != nil {
			t.Fatal(err)
		}
		c.nodes[2].kill()
	}, func() {
		if err := c.database.Start(); err != nil {
			t.Fatal(err)
		}
		c.nodes[2].start()
	})
	h.punctual(lateMax)
	h.lostBy("c")
}
