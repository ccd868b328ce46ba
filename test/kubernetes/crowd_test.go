//go:build control

package kubernetes

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	crowd      = 1000            // Jobs
	kills      = 6               // of nodes, at random moments
	podTakes   = 2 * time.Second // at most
	kubeletFor = 200 * time.Millisecond
	saidMax    = 8 << 10 // of the log of the nodes is shown
)

// kubelet runs the pods of the namespace shop until the test ends: each prints its name, takes a moment and
// succeeds. It returns the names of the Jobs that had a pod, and how many they had.
func (p *plane) kubelet() func() map[string]int {
	var mu sync.Mutex
	seen, done := map[string]int{}, make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		known := map[string]time.Time{} // when each pod ends
		for {
			select {
			case <-done:
				return
			case <-time.After(kubeletFor):
			}
			list, _ := p.call(http.MethodGet, "/api/v1/namespaces/shop/pods?resourceVersion=0", nil)
			items, _ := list["items"].([]any)
			for _, item := range items {
				metadata := item.(object)["metadata"].(object)
				pod := metadata["name"].(string)
				ends, found := known[pod]
				switch {
				case !found:
					labels, _ := metadata["labels"].(object)
					mu.Lock()
					seen[fmt.Sprint(labels["batch.kubernetes.io/job-name"])]++
					mu.Unlock()
					known[pod] = time.Now().Add(time.Duration(rand.Int64N(int64(podTakes))))
					p.call(http.MethodPost, pathOf(pod)+"/binding", object{"metadata": object{"name": pod}, "target": object{"kind": "Node", "name": "n1"}})
					p.call(http.MethodPatch, pathOf(pod)+"/status", object{"status": object{"phase": "Running"}})
					p.print(pod, "this is "+pod)
				case !ends.IsZero() && time.Now().After(ends):
					known[pod] = time.Time{}
					p.call(http.MethodPatch, pathOf(pod)+"/status", object{"status": object{"phase": "Succeeded", "containerStatuses": []any{
						object{"name": "main", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": exited(0, "Completed")},
					}}})
				}
			}
		}
	})
	return func() map[string]int {
		close(done)
		work.Wait()
		return seen
	}
}

// A thousand Jobs run while the two nodes that keep them are killed in turn: each run has one Job and one pod,
// and ends as the pod did.
func TestAThousandJobsOnARealControlPlane(t *testing.T) {
	p := startPlane(t)
	p.post("/api/v1/namespaces", object{"metadata": object{"name": "shop"}})
	file, err := program()
	p.must(err)
	settings := p.write("belfry.yaml", "kubernetes: {clusters: {default: {kubeconfig: "+p.kubeconfig(adminToken)+"}}}\n")
	var nodes [2]struct {
		url string
		run *exec.Cmd
	}
	me, err := user.Current()
	p.must(err)
	said, err := os.Create(filepath.Join(p.dir, "belfry.log"))
	p.must(err)
	t.Cleanup(func() {
		if text, _ := os.ReadFile(said.Name()); t.Failed() {
			t.Logf("the nodes said: …%s", text[max(0, len(text)-saidMax):])
		}
		said.Close()
	})
	start := func(i int) {
		n := &nodes[i]
		n.run = exec.Command(file, "serve", "--name", fmt.Sprint("n", i), "--data", filepath.Join(p.dir, fmt.Sprint("data", i)), "--store", "etcd://"+p.etcd+"/belfry",
			"--listen", strings.TrimPrefix(n.url, "http://"), "--config", settings, "--run-as", me.Username)
		n.run.Stderr = said
		p.must(n.run.Start())
	}
	for i := range nodes {
		nodes[i].url = "http://" + freeAddress(t)
		start(i)
	}
	t.Cleanup(func() {
		for i := range nodes {
			_ = nodes[i].run.Process.Kill()
			_ = nodes[i].run.Wait()
		}
	})
	var token string
	p.eventually("the first node has its token", func() bool {
		for i := range nodes {
			if text, err := os.ReadFile(filepath.Join(p.dir, fmt.Sprint("data", i), "token")); err == nil {
				token = strings.TrimSpace(string(text))
			}
		}
		return token != ""
	})
	belfry := func(args ...string) (string, error) {
		var out []byte
		for i := range nodes { // one of them is up
			c := exec.CommandContext(t.Context(), file, args...)
			c.Env = append(os.Environ(), "BELFRY_SERVER="+nodes[i].url, "BELFRY_TOKEN="+token)
			if out, err = c.Output(); err == nil {
				return string(out), nil
			}
		}
		return string(out), err
	}
	to := time.Now().Truncate(time.Second).Add(-time.Hour).UTC()
	jobs := p.write("jobs.yaml", "name: many\nschedule: {every: 1s, end: '"+to.Format(time.RFC3339)+"'}\nrun: {kubernetes: {image: 'alpine:3.20', command: [echo, hello]}}\npolicy: {overlap: allow}\n")
	p.eventually("Belfry takes the job", func() bool { _, err := belfry("apply", "-f", jobs); return err == nil })
	ended := p.kubelet()
	began := time.Now()
	p.eventually("the runs are made", func() bool {
		_, err := belfry("job", "backfill", "many", "--from", to.Add(-crowd*time.Second).Format(time.RFC3339), "--to", to.Format(time.RFC3339), "--overlap", "allow")
		return err == nil
	})
	for i := range kills {
		time.Sleep(time.Duration(rand.Int64N(int64(4 * time.Second))))
		n := i % len(nodes)
		_ = nodes[n].run.Process.Kill()
		_ = nodes[n].run.Wait()
		time.Sleep(time.Duration(rand.Int64N(int64(3 * time.Second))))
		start(n)
	}
	outcomes := map[string]int{}
	runs := map[string]string{} // the outcomes by the name of the Job
	for end := time.Now().Add(10 * time.Minute); len(runs) < crowd; time.Sleep(2 * time.Second) {
		if time.Now().After(end) {
			break
		}
		text, err := belfry("run", "list", "--job", "many", "--state", "done", "--limit", fmt.Sprint(2*crowd), "-o", "jsonl")
		if err != nil {
			continue
		}
		clear(runs)
		for line := range strings.Lines(text) {
			var r struct{ ID, Outcome, Reason string }
			p.must(json.Unmarshal([]byte(line), &r))
			runs["belfry-"+strings.ToLower(r.ID)+"-1"] = strings.TrimSpace(r.Outcome + " " + r.Reason)
		}
	}
	took := time.Since(began)
	seen := ended()
	for name, outcome := range runs {
		outcomes[outcome]++
		if seen[name] != 1 {
			t.Errorf("Job %s, %s, had %d pods", name, outcome, seen[name])
		}
	}
	t.Logf("%d runs in %.1f s, %d kills: %v", len(runs), took.Seconds(), kills, outcomes)
	if len(runs) != crowd || len(seen) != crowd || outcomes["succeeded"] != crowd {
		t.Errorf("%d runs have ended, and %d Jobs had pods, want %d", len(runs), len(seen), crowd)
	}
}
