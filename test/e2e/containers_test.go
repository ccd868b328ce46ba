//go:build servers

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/servers"
)

const crashImage = "localhost/belfry-crash:1"

// crashes are how long containers run through crashes: BELFRY_CONTAINERS makes it longer.
func crashes(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("BELFRY_CONTAINERS")
	if text == "" {
		return 12 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestContainersRunThroughCrashes kills the server and the engine again and again. Each container that has
// started counts once, with its whole output, and none is left.
func TestContainersRunThroughCrashes(t *testing.T) {
	for _, kind := range []string{servers.Podman, servers.Dockerd} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			throughCrashes(t, kind)
		})
	}
}

func throughCrashes(t *testing.T, kind string) {
	e, err := servers.NewContainerEngine(t.Context(), kind, crashImage)
	if err != nil {
		t.Skipf("LEFT OUT: %s does not run on this machine: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Log(err)
		}
	})
	f := newFolder(t)
	witness := f.path("witness")
	if err := os.Mkdir(witness, 0o755); err != nil {
		t.Fatal(err)
	}
	config := f.path("belfry.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "containers: {socket: %s, mounts: [%s]}\n", e.Socket, witness), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := func() *server { return f.serve(t, options{args: []string{"--config", config}}) }
	s := serve()
	eventually(t, "the node runs containers", func() bool {
		nodes, err := s.Nodes(t.Context())
		return err == nil && slices.ContainsFunc(nodes.Items, func(n client.Node) bool { return n.Engine != "" })
	})
	s.apply(fmt.Sprintf(`
name: crashed
schedule: {every: 2s}
policy: {overlap: allow}
run:
  container: {image: %s, network: none, mounts: ["%s:/w"]}
  shell: |
    echo "$BELFRY_RUN" >> /w/starts
    for i in 1 2 3; do echo "第 $i 行"; sleep 1; done
    echo "$BELFRY_RUN" >> /w/ends
`, crashImage, witness))

	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	killed := 0
	for until := time.Now().Add(crashes(t)); time.Now().Before(until) || killed < 2; {
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond) // a random moment
		// A Docker that is not configured to keep them ends its containers.
		if kind == servers.Podman && random.IntN(3) == 0 {
			if err := e.Crash(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		killed++
		s.kill()
		if random.IntN(2) == 0 { // again while it continues
			half := f.begin(t, options{args: []string{"--config", config}})
			time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			half.kill()
		}
		s = serve()
	}
	within(t, 3*time.Minute, "a container has started", func() bool { // between crashes a busy machine may start none
		text, _ := os.ReadFile(witness + "/starts")
		return len(text) > 0
	})
	if _, err := s.Pause(t.Context(), "default", "crashed", client.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	var runs []client.Run
	within(t, 3*time.Minute, "all runs have ended", func() bool {
		runs = s.runs("crashed")
		return !slices.ContainsFunc(runs, func(r client.Run) bool { return r.Outcome == "" })
	})
	count := func(name string) map[string]int {
		text, _ := os.ReadFile(witness + "/" + name) // none if no container has come that far
		n := map[string]int{}
		for _, run := range strings.Fields(string(text)) {
			n[run]++
		}
		return n
	}
	starts, ends := count("starts"), count("ends")
	succeeded := 0
	for _, r := range runs {
		id := r.ID.String()
		if ok := r.Outcome == job.OutcomeSucceeded; starts[id] > 1 || ends[id] != starts[id] || ok != (starts[id] == 1) {
			t.Errorf("run %s is %s (%s): %d containers have started and %d ended", id, r.Outcome, r.Reason, starts[id], ends[id])
		} else if !ok {
			t.Logf("no container of run %s has started: %s (%s)", id, r.Outcome, r.Reason)
			continue
		}
		succeeded++
		if text := s.output(r.ID); text != "第 1 行\n第 2 行\n第 3 行\n" {
			t.Errorf("the output of run %s is %q", id, text)
		}
	}
	if succeeded == 0 {
		t.Errorf("none of %d runs has succeeded", len(runs))
	}
	t.Logf("%d runs, %d succeeded, the server was killed %d times", len(runs), succeeded, killed)
	asks := engine.New(e.Socket)
	defer asks.Close()
	node, err := os.ReadFile(f.data + "/engine-node")
	if err != nil {
		t.Fatal(err)
	}
	within(t, 3*time.Minute, "nothing is left", func() bool {
		list, err := asks.List(t.Context(), "io.belfry.node", strings.TrimSpace(string(node)))
		return err == nil && len(list) == 0
	})
}

// BenchmarkContainersOfOneInstant runs 100 containers at once, by Belfry and by as many processes of the
// engine's program: the figures of docs/containers.md.
func BenchmarkContainersOfOneInstant(b *testing.B) {
	const containers = 100
	for _, kind := range []string{servers.Podman, servers.Dockerd} {
		e, err := servers.NewContainerEngine(b.Context(), kind, crashImage)
		if err != nil {
			b.Skipf("LEFT OUT: %s does not run on this machine: %v", kind, err)
		}
		b.Cleanup(func() { _ = e.Close() })
		b.Run(kind+"/program", func(b *testing.B) {
			for b.Loop() {
				var group sync.WaitGroup
				for range containers {
					group.Go(func() {
						if text, err := e.RunCommand(crashImage, "/bin/true").CombinedOutput(); err != nil {
							b.Errorf("%v\n%s", err, text)
						}
					})
				}
				group.Wait()
			}
		})
		f := newFolder(b)
		if err := os.MkdirAll(f.data, 0o700); err != nil {
			b.Fatal(err)
		}
		config := f.path("belfry.yaml")
		if err := os.WriteFile(config, fmt.Appendf(nil, "containers: {socket: %s}\n", e.Socket), 0o600); err != nil {
			b.Fatal(err)
		}
		s := f.serve(b, options{args: []string{"--config", config}})
		s.apply(fmt.Sprintf("name: hundred\nplace: {shards: %d}\nrun: {container: {image: %s, command: [/bin/true], network: none}}\n", containers, crashImage))
		b.Run(kind+"/belfry", func(b *testing.B) {
			for n := 1; b.Loop(); n++ {
				s.runByHand("hundred")
				within(b, 10*time.Minute, "all have ended", func() bool { return len(s.done("hundred")) >= n*containers })
			}
		})
		s.kill()
	}
}
