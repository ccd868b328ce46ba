//go:build servers

package cluster_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/test/servers"
)

// A replica of Redis that lags takes over. What its master had acknowledged is gone, and all nodes say so: the runs
// that it may have touched are marked, and number and marks outlive the processes.
func TestAFailoverThatLosesStepsLeavesMarks(t *testing.T) {
	t.Parallel()
	if !slices.Contains(databases(), "redis") {
		return
	}
	master := servers.StartRedis(t)
	replica := servers.StartRedis(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.Port))
	do := func(on *servers.Redis, words ...string) string {
		t.Helper()
		out, err := on.Do(words...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	tail := func(on *servers.Redis) string { return do(on, "hget", "{belfry}:meta", "tail") }
	eventually(t, "the replica follows", func() bool { return strings.Contains(do(replica, "info", "replication"), "master_link_status:up") })
	address, err := url.Parse(master.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := startOn(t, master, address, 2, func(n *node) { n.store = fmt.Sprintf("redis://127.0.0.1:%d,127.0.0.1:%d", master.Port, replica.Port) })
	asked := c.nodes[0]
	asked.apply("name: long\nrun: {shell: exec sleep 1000}\n")
	asked.apply("name: quick\nrun: {shell: 'true'}\n")
	run := func(name string) client.Run {
		t.Helper()
		r, err := asked.RunJob(t.Context(), "default", name, client.RunRequest{}, "")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	long := run("long")
	eventually(t, "the replica has the run", func() bool {
		r := c.run(long.ID)
		return r.Node != "" && tail(master) == tail(replica)
	})
	do(replica, "replicaof", "127.0.0.1", "1") // nothing listens there
	gone := run("quick")
	eventually(t, "a run has ended that the replica does not know", func() bool { return c.run(gone.ID).Outcome != "" })
	if err := master.Kill(); err != nil {
		t.Fatal(err)
	}
	do(replica, "replicaof", "no", "one")

	marked := func(n *node) func() bool {
		return func() bool {
			r, err := n.Run(t.Context(), long.ID)
			return err == nil && r.StoreLossCode == reason.LossNear.Name
		}
	}
	eventually(t, "the run that was under way is marked", marked(asked))
	for _, n := range c.nodes {
		eventually(t, "node "+n.name+" counts the lost steps", func() bool { return n.lostSteps() > 0 })
	}
	eventually(t, "the audit has the loss", func() bool {
		audit, err := asked.Audit(t.Context(), client.AuditQuery{PageSize: 100})
		return err == nil && slices.ContainsFunc(audit.Items, func(r client.AuditRecord) bool { return r.Action == "store.lost" })
	})
	if r, err := asked.Run(t.Context(), gone.ID); err == nil {
		t.Errorf("the run that is gone is %+v", r)
	}
	later := run("quick")
	eventually(t, "a later run ends", func() bool { return c.run(later.ID).Outcome != "" })
	before := map[string]int{}
	for _, n := range c.nodes {
		before[n.name] = n.lostSteps()
	}
	c.killAll()
	c.startAll()
	for _, n := range c.nodes {
		eventually(t, "node "+n.name+" still marks the run", marked(n))
		eventually(t, "node "+n.name+" still counts the lost steps", func() bool { return n.lostSteps() >= before[n.name] })
	}
	for _, n := range c.nodes {
		n.stop() // a killed one has a watchdog that still writes into its directory
	}
}

// lostSteps returns the lost steps that the metrics of the node count.
func (n *node) lostSteps() (steps int) {
	n.t.Helper()
	request, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, n.URL()+"/metrics", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+n.token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "belfry_store_steps_lost_total "); is {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				n.t.Fatal(err)
			}
			steps = int(f)
		}
	}
	return steps
}
