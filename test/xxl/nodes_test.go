//go:build servers

package xxl

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Three nodes share a store: runs are sent by any, results are taken by the one that the
// executor knows, and the death of the sender costs nothing.
func TestThreeNodes(t *testing.T) {
	port := free(t)
	redis := exec.Command("redis-server", "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Process.Kill(); _ = redis.Wait() })
	store := "redis://127.0.0.1:" + port + "/belfry"
	var nodes []*node
	for i := range 3 {
		n := serve(t, "--store", store, "--name", fmt.Sprint("n", i), "--run-as", "nobody")
		if i > 0 {
			n.data = nodes[0].data // which has the token; its address is in the environment
		}
		nodes = append(nodes, n)
	}
	a := nodes[0]
	a.apply(jobs)
	a.executor()
	var ids []string
	for range 10 {
		ids = append(ids, a.run("echo"))
	}
	for _, id := range ids {
		a.wants(id, "succeeded", "")
	}
	id := a.run("sleep", "param=8s")
	a.waits("the run is at the executor", func() bool { return strings.Contains(a.cli("run", "logs", id), "sleeping") })
	for _, n := range nodes[1:] {
		n.end(t, syscall.SIGKILL)
	}
	a.wants(id, "succeeded", "")
}
