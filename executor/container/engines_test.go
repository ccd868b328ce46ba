//go:build servers

package container_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/container"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/servers"
)

// startEngine starts an engine with the image of the tests. If the machine cannot run it, the
// report of all tests lists the test as skipped.
func startEngine(t *testing.T, kind string) *servers.ContainerEngine {
	t.Helper()
	e, err := servers.NewContainerEngine(t.Context(), kind, testImage)
	if err != nil {
		t.Skipf("LEFT OUT: %s does not run on this machine: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Log(err)
		}
	})
	r := newRig(t, e.Socket, container.Settings{})
	if got := r.Run(t.Context(), attemptOf(job.Container{Shell: "true"}), executor.Output{}); got.Outcome != job.OutcomeSucceeded {
		t.Skipf("LEFT OUT: %s runs no containers on this machine: %s", kind, got.Reason)
	}
	return e
}

// onlyReal are tests that need a real engine.
var onlyReal = map[string]func(*rig){
	"no rights by default": func(r *rig) {
		said := newRecorder()
		a := attemptOf(job.Container{Shell: `grep -E "^(CapEff|CapPrm|CapBnd|NoNewPrivs)" /proc/self/status | tr -d " \t"`})
		r.Run(r.Context(), a, said.output())
		const none = "0000000000000000"
		if out, errors := said.texts(); out != "CapPrm:"+none+"\nCapEff:"+none+"\nCapBnd:"+none+"\nNoNewPrivs:1\n" {
			r.Errorf("a container has\n%s%s", out, errors)
		}
	},
	"killed for its memory": func(r *rig) {
		if r.rootless() {
			r.Skip("LEFT OUT: a user's Podman limits memory only on a machine with cgroups of version 2")
		}
		a := attemptOf(job.Container{Shell: `x=$(head -c 300000000 /dev/zero | tr '\0' x); echo survived`, Limits: &job.ContainerLimits{Memory: 32 << 20}})
		got := r.Run(r.Context(), a, executor.Output{})
		if got.Outcome != job.OutcomeFailed || codeOf(got) != 137 || got.Reason.Code() != "over_memory" && got.Reason.Code() != "likely_over_memory" || !strings.Contains(got.Reason.String(), "32MiB") {
			r.Errorf("got %+v (%s)", got, got.Reason)
		}
		r.nothingLeft()
	},
	"files and result of another user, without writing to the image": func(r *rig) {
		a := attemptOf(job.Container{
			Shell: `touch /file 2>/dev/null && echo "the image can be written"; touch /tmp/a && echo "who=$(id -u):$(id -g) $(cat "$F")" > "$BELFRY_RESULT"`,
			User:  "1000:1001", Files: map[string]string{"F": "text"}, ReadOnly: true, Tmpfs: []string{"/tmp:1MiB"},
		})
		a.WantsResult = true
		said := newRecorder()
		got := r.Run(r.Context(), a, said.output())
		if out, errors := said.texts(); string(got.Value) != `{"who":"1000:1001 text"}` || out != "" {
			r.Errorf("got %+v (%s), %s, %q, %q", got, got.Reason, got.Value, out, errors)
		}
	},
	"steps of other users share a volume": func(r *rig) {
		flow := newID()
		for user, command := range map[string]string{"1000": "echo a > first", "2000": "echo b > second"} {
			a := attemptOf(job.Container{Shell: command, User: user})
			a.Run.Parent, a.Together = flow, true
			said := newRecorder()
			if got := r.Run(r.Context(), a, said.output()); got.Outcome != job.OutcomeSucceeded {
				_, errors := said.texts()
				r.Errorf("as user %s: %+v (%s), %s", user, got, got.Reason, errors)
			}
		}
		over := func(_ context.Context, runs []job.ID) ([]job.ID, error) { return runs, nil }
		for volumes := []engine.Volume{{}}; len(volumes) > 0; time.Sleep(10 * time.Millisecond) {
			err := r.SettleFlows(r.Context(), over)
			if err == nil {
				volumes, err = r.engine.Volumes(r.Context(), "io.belfry.node", r.node)
			}
			if err != nil {
				r.Fatal(err)
			}
		}
	},
}

func TestRealEnginesRunContainers(t *testing.T) {
	for _, name := range servers.ContainerEngines {
		t.Run(name, func(t *testing.T) {
			e := startEngine(t, name)
			t.Run("suite", func(t *testing.T) {
				runSuite(t, func(*testing.T) string { return e.Socket })
				for name, test := range onlyReal {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(newRig(t, e.Socket, container.Settings{}))
					})
				}
			})
			t.Run("the engine is killed", func(t *testing.T) {
				r := newRig(t, e.Socket, container.Settings{})
				a := attemptOf(job.Container{Shell: "echo ready; sleep 3; echo end; exit 9"})
				said := newRecorder()
				done := make(chan executor.Result, 1)
				go func() { done <- r.Run(t.Context(), a, said.output()) }()
				said.until(t, "ready")
				if err := e.Crash(); err != nil {
					t.Fatal(err)
				}
				got := <-done
				// A restarting Docker ends containers unless it is configured to keep them.
				if out, _ := said.texts(); got.Outcome != job.OutcomeFailed || (codeOf(got) != 9 || out != "ready\nend\n") && got.Reason.Code() != "killed_by_others" {
					t.Errorf("got %+v (%s), %q", got, got.Reason, out)
				}
				r.nothingLeft()
			})
		})
	}
}
