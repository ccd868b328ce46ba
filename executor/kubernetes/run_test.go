package kubeexec_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	kubeexec "github.com/belfry-cron/belfry/executor/kubernetes"
	"github.com/belfry-cron/belfry/internal/check/kubetest"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const hello = "run: {kubernetes: 'alpine:3.20', shell: echo hello}\n"

func TestAJobRunsAndItsOutputIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("hello", "你好") })
	r.pass(r.node, 2*time.Second)
	r.wants(a, "", "")
	if got := r.output(a); got != "hello\n你好\n" {
		t.Errorf("while it runs the output is %q", got)
	}
	r.do(a, func(j *kubetest.Job) { j.Write("bye"); j.Exit(0, "Completed", "") })
	r.pass(r.node, 2*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
	if got := r.output(a); got != "hello\n你好\nbye\n" {
		t.Errorf("the output is %q", got)
	}
	if record := r.record(a); record.Attempt.ExitCode == nil || *record.Attempt.ExitCode != 0 || record.OutputBytes != int64(len("hello\n你好\nbye\n")) {
		t.Errorf("exit code %v, %d bytes", record.Attempt.ExitCode, record.OutputBytes)
	}
}

func TestTheManifestHasTheLeastRights(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.startAs(`run:
  kubernetes:
    image: registry.example.com/etl:1
    command: [etl, "$(HOME)"]
    args: ["{{ .Run }}"]
    env: {MODE: full}
    secret_env: {DB_PASSWORD: shop-db/password}
    dir: /work
    user: 1000:2000
    read_only: true
    pull: always
    limits: {memory: 64MiB, cpu: 0.5}
policy: {timeout: 90s}
`, func(at *executor.Attempt) { at.WantsResult = true })
	var manifest struct {
		Metadata struct {
			Name, Namespace     string
			Labels, Annotations map[string]string
		}
		Spec struct {
			BackoffLimit, ActiveDeadlineSeconds, TTLSecondsAfterFinished *int
			Template                                                     struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					RestartPolicy                 string
					AutomountServiceAccountToken  *bool
					TerminationGracePeriodSeconds int
					SecurityContext               json.RawMessage
					Containers                    []struct {
						Name, Image, ImagePullPolicy, WorkingDir string
						Command, Args                            []string
						Env                                      []struct {
							Name, Value string
							ValueFrom   struct{ SecretKeyRef struct{ Name, Key string } }
						}
						Resources       struct{ Limits map[string]string }
						SecurityContext json.RawMessage
					}
				}
			}
		}
	}
	r.do(a, func(j *kubetest.Job) {
		text, _ := json.Marshal(j.Manifest)
		r.must(json.Unmarshal(text, &manifest))
	})
	spec := &manifest.Spec
	pod := &spec.Template.Spec
	if manifest.Metadata.Name != a.name || manifest.Metadata.Namespace != "shop" || manifest.Metadata.Annotations["io.belfry.job"] != "default/j1" || spec.Template.Metadata.Labels["io.belfry.run"] != a.Run.String() {
		t.Errorf("metadata %+v", manifest.Metadata)
	}
	if *spec.BackoffLimit != 0 || *spec.ActiveDeadlineSeconds != 90 || *spec.TTLSecondsAfterFinished != 3600 || pod.RestartPolicy != "Never" || *pod.AutomountServiceAccountToken || pod.TerminationGracePeriodSeconds != 10 {
		t.Errorf("spec %+v", spec)
	}
	c := pod.Containers[0]
	if fmt.Sprint(c.Command, c.Args) != fmt.Sprintf("[etl $$(HOME)] [%s]", a.Run) || c.ImagePullPolicy != "Always" || c.WorkingDir != "/work" || fmt.Sprint(c.Resources.Limits) != "map[cpu:500m memory:67108864]" {
		t.Errorf("container %+v", c)
	}
	if got := string(c.SecurityContext); got != `{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true,"runAsGroup":2000,"runAsUser":1000}` {
		t.Errorf("security %s", got)
	}
	if got := string(pod.SecurityContext); got != `{"seccompProfile":{"type":"RuntimeDefault"}}` {
		t.Errorf("security of the pod %s", got)
	}
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value + e.ValueFrom.SecretKeyRef.Name + e.ValueFrom.SecretKeyRef.Key
	}
	if env["MODE"] != "full" || env["DB_PASSWORD"] != "shop-dbpassword" || env["BELFRY_RUN"] != a.Run.String() || env["BELFRY_RESULT"] != "/dev/termination-log" {
		t.Errorf("environment %v", env)
	}
}

// pod is a job with a pod template.
func pod(spec string) string {
	return "run:\n  kubernetes:\n    template: |\n      spec:\n        containers: [{name: web, image: 'shop/web:1'" + spec + "\n"
}

func TestTemplatesGetNoMoreThanTheConfigurationAllows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		what, text, refusal string
		allow               kubeexec.Cluster
	}{
		{what: "a plain template", text: pod("}]")},
		{what: "a privileged container", text: pod(", securityContext: {privileged: true}}]"), refusal: "privileged of the container web"},
		{what: "a privileged container that is allowed", text: pod(", securityContext: {privileged: true}}]"), allow: kubeexec.Cluster{UnsafePods: true}},
		{what: "escalation", text: pod(", securityContext: {allowPrivilegeEscalation: true}}]"), refusal: "allowPrivilegeEscalation"},
		{what: "a capability", text: pod(", securityContext: {capabilities: {add: [SYS_ADMIN]}}}]"), refusal: "the capability SYS_ADMIN"},
		{what: "a listed capability", text: pod(", securityContext: {capabilities: {add: [CHOWN]}}}]"), allow: kubeexec.Cluster{Capabilities: []string{"CHOWN"}}},
		{what: "a hostPath", text: pod("}]\n        volumes: [{name: root, hostPath: {path: /}}]"), refusal: "the hostPath of the volume root"},
		{what: "the host's network", text: pod("}]\n        hostNetwork: true"), refusal: "hostNetwork"},
		{what: "the host's processes", text: pod("}]\n        hostPID: true"), refusal: "hostPID"},
		{what: "a port of the host", text: pod(", ports: [{containerPort: 80, hostPort: 80}]}]"), refusal: "a hostPort"},
		{what: "a privileged init container", text: pod("}]\n        initContainers: [{name: in, image: x, securityContext: {privileged: true}}]"), refusal: "privileged of the container in"},
		{what: "a service account", text: pod("}]\n        serviceAccountName: admin"), refusal: "the service account admin", allow: kubeexec.Cluster{UnsafePods: true, ServiceAccounts: []string{"shop-*"}}},
		{what: "a listed service account", text: pod("}]\n        serviceAccountName: shop-etl"), allow: kubeexec.Cluster{ServiceAccounts: []string{"shop-*"}}},
		{what: "a token in a volume", text: pod("}]\n        volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: t}}]}}]"), refusal: "the service account default"},
		{what: "an image", text: pod("}]"), refusal: "the image shop/web:1", allow: kubeexec.Cluster{Images: []string{"registry.example.com/*"}}},
		{what: "an image by its full name", text: pod("}]"), allow: kubeexec.Cluster{Images: []string{"docker.io/shop/*"}}},
		{what: "a namespace of Belfry", text: pod("}]"), refusal: "the namespace default", allow: kubeexec.Cluster{Namespaces: []string{"team-*"}}},
		{what: "a namespace of the cluster", text: "run: {kubernetes: {image: x, namespace: kube-system}}\n", refusal: "the namespace kube-system", allow: kubeexec.Cluster{KubeNamespaces: []string{"team-*"}}},
		{what: "a listed namespace of the cluster", text: "run: {kubernetes: {image: x, namespace: team-a}}\n", allow: kubeexec.Cluster{KubeNamespaces: []string{"team-*"}}},
		{what: "an unknown cluster", text: "run: {kubernetes: {image: x, cluster: gone}}\n", refusal: "no cluster gone"},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.allow = row.allow
			r.set(r.node)
			a := r.start(row.text)
			switch {
			case row.refusal == "" && (!a.result.HandedOver || len(r.cluster.Created()) != 1):
				t.Errorf("it was not created: %s", a.result.Reason)
			case row.refusal != "" && (!strings.Contains(a.result.Reason.String(), row.refusal) || len(r.cluster.Created()) > 0):
				t.Errorf("the reason is %q, want %q", a.result.Reason, row.refusal)
			}
		})
	}
}

func TestEndsOfPodsAreExplained(t *testing.T) {
	t.Parallel()
	disrupted := func(reason, message string) func(*kubetest.Job) {
		return func(j *kubetest.Job) {
			j.Run("begun")
			j.Exit(137, "Error", "")
			j.PodConditions = []map[string]any{{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}}
		}
	}
	for _, row := range []struct {
		what    string
		text    string
		end     func(*kubetest.Job)
		outcome job.Outcome
		why     string
	}{
		{"an exit code", hello, func(j *kubetest.Job) { j.Run("x"); j.Exit(3, "Error", "") }, job.OutcomeFailed, "exit status 3"},
		{"an exit code of success", hello + "policy: {success: {exit_codes: [0, 3]}}\n", func(j *kubetest.Job) { j.Run("x"); j.Exit(3, "Error", "") }, job.OutcomeSucceeded, ""},
		{"0 where it is none of success", hello + "policy: {success: {exit_codes: [3]}}\n", func(j *kubetest.Job) { j.Run("x"); j.Exit(0, "Completed", "") }, job.OutcomeFailed, "exit status 0"},
		{"OOMKilled", "run: {kubernetes: {image: x, limits: {memory: 64MiB}}}\n", func(j *kubetest.Job) { j.Run("x"); j.Exit(137, "OOMKilled", "") }, job.OutcomeFailed, "OOMKilled, it used more memory than 67108864"},
		{"an eviction", hello, func(j *kubetest.Job) {
			j.Phase, j.Reason, j.Message = "Failed", "Evicted", "The node was low on resource: memory."
		}, job.OutcomeFailed, "evicted: The node was low on resource: memory."},
		{"a preemption", hello, disrupted("PreemptionByScheduler", "default-scheduler: preempting"), job.OutcomeFailed, "evicted: default-scheduler: preempting"},
		{"a lost node", hello, disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"), job.OutcomeLost, "the node of the cluster that ran the pod was lost"},
		{"the deadline", hello + "policy: {timeout: 1m}\n", func(j *kubetest.Job) {
			j.Phase = ""
			j.Conditions = []map[string]any{{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}}
		}, job.OutcomeTimedOut, "longer than its timeout of 1 min, and the cluster ended it"},
		{"another container", pod("}, {name: proxy, image: y}]"), func(j *kubetest.Job) {
			j.Run("x")
			j.Exit(1, "Error", "")
			j.States["web"] = map[string]any{"terminated": map[string]any{"exitCode": 0}}
		}, job.OutcomeFailed, "exit status 1 of the container proxy"},
		{"a pod that is gone", hello, func(j *kubetest.Job) {
			j.Phase = ""
			j.Conditions = []map[string]any{{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}}
		}, job.OutcomeLost, "the pod was deleted by another program"},
		{"a success without a pod", hello, func(j *kubetest.Job) {
			j.Phase = ""
			j.Conditions = []map[string]any{{"type": "Complete", "status": "True"}}
		}, job.OutcomeSucceeded, ""},
		{"output that matches", hello + "policy: {success: {match: '^rows: [1-9]'}}\n", func(j *kubetest.Job) { j.Run("rows: 0", "rows: 12", "end"); j.Exit(0, "Completed", "") }, job.OutcomeSucceeded, ""},
		{"output that does not match", hello + "policy: {success: {match: '^rows: [1-9]'}}\n", func(j *kubetest.Job) { j.Run("rows: 0", "no rows: 1"); j.Exit(0, "Completed", "") }, job.OutcomeFailed, "exit status 0, but the output does not match"},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.start(row.text)
			r.pass(r.node, time.Second)
			r.do(a, row.end)
			r.pass(r.node, 5*time.Second)
			r.wants(a, row.outcome, row.why)
		})
	}
}

func TestAFailureHasTheLastLineAsItsCause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("load", "cannot reach db") })
	r.pass(r.node, 2*time.Second)
	r.do(a, func(j *kubetest.Job) { j.Exit(1, "Error", "") })
	r.pass(r.node, 2*time.Second)
	if record := r.record(a); record == nil || record.Attempt.Cause != "cannot reach db" {
		t.Errorf("record %+v", record)
	}
}

func TestAWaitingPodSaysWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	for _, row := range []struct {
		change func(*kubetest.Job)
		want   string
	}{
		{func(j *kubetest.Job) {
			j.PodConditions = []map[string]any{{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient memory."}}
		}, "Unschedulable: 0/3 nodes are available"},
		{func(j *kubetest.Job) {
			j.PodConditions = nil
			j.States["main"] = map[string]any{"waiting": map[string]any{"reason": "ImagePullBackOff", "message": "Back-off pulling image \"alpin\""}}
		}, "ImagePullBackOff: Back-off pulling image"},
		{func(j *kubetest.Job) { j.Run("x") }, ""},
	} {
		r.do(a, row.change)
		r.pass(r.node, 15*time.Second)
		if got := r.waits(a); !strings.Contains(got, row.want) || (row.want == "") != (got == "") {
			t.Errorf("it waits: %q, want %q", got, row.want)
		}
	}
	r.wants(a, "", "")
}

func TestAFullQuotaIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cluster.Refuse(403, `jobs.batch "x" is forbidden: exceeded quota: few, requested: count/jobs.batch=1, used: count/jobs.batch=5`)
	a := r.start(hello)
	r.pass(r.node, 3*time.Hour) // longer than a cluster keeps an ended Job
	r.wants(a, "", "")
	if got := r.waits(a); !strings.Contains(got, "exceeded quota") {
		t.Errorf("it waits: %q", got)
	}
	r.cluster.Refuse(0, "")
	r.pass(r.node, 20*time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("x"); j.Exit(0, "", "") })
	r.pass(r.node, 15*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
}

func TestARefusedJobFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cluster.Refuse(422, `Job.batch "x" is invalid: spec.template.spec.containers[0].image: Required value`)
	a := r.start(hello)
	r.wants(a, job.OutcomeFailed, "the cluster default refuses the Job")
	r.wants(a, job.OutcomeFailed, "Required value")
}

func TestAResultOfAStepIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.startAs(hello, func(at *executor.Attempt) { at.WantsResult = true })
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("x"); j.Exit(0, "Completed", "{rows") })
	r.pass(r.node, 2*time.Second)
	r.wants(a, job.OutcomeFailed, "BELFRY_RESULT begins with { and is not a JSON object")
}

func TestALostAnswerCreatesOneJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cluster.LosePut()
	a := r.start(hello)
	if !a.result.HandedOver {
		t.Fatalf("it was not handed over: %s", a.result.Reason)
	}
	r.do(a, func(j *kubetest.Job) { j.Run("x"); j.Exit(0, "", "") })
	r.pass(r.node, 20*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
	if got := r.cluster.Created(); len(got) != 1 {
		t.Errorf("created %v", got)
	}
}

func TestAForeignJobIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cluster.OnCreate(func(j *kubetest.Job) { j.Manifest["metadata"] = map[string]any{"name": j.Name} })
	r.cluster.LosePut() // so that the node asks again, and finds a Job without labels
	a := r.start(hello)
	r.pass(r.node, 20*time.Second)
	r.wants(a, job.OutcomeFailed, "a Job shop/"+a.name+" that Belfry did not make")
	if r.cluster.Requests("DELETE") > 0 || r.cluster.Left() != 1 {
		t.Error("the Job was deleted")
	}
}

func TestAnotherNodeCreatesTheJobOfADeadOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cluster.SetAway(true) // the node dies between its note and the request
	a := r.start(hello)
	r.cluster.SetAway(false)
	other := r.newNode()
	r.pass(other, 20*time.Second)
	if got := r.cluster.Created(); len(got) != 1 || got[0] != a.name {
		t.Fatalf("created %v", got)
	}
	r.do(a, func(j *kubetest.Job) { j.Run("x"); j.Exit(0, "", "") })
	r.pass(other, 5*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
}

func TestAnotherNodeFollowsWithoutLossOfOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	var want strings.Builder
	for i := range 50 { // nodes take turns, as if each had died after its poll
		line := fmt.Sprintf("line %d", i)
		r.do(a, func(j *kubetest.Job) {
			if j.Phase == "Pending" {
				j.Run()
			}
			j.Write(line)
		})
		want.WriteString(line + "\n")
		r.pass(r.newNode(), 3*time.Second)
	}
	r.do(a, func(j *kubetest.Job) { j.Exit(0, "", "") })
	r.pass(r.node, 15*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
	if got := r.output(a); got != want.String() {
		t.Errorf("the output is %q, want %q", got, want.String())
	}
}

// forgetful is a store whose Asked fails: the node dies before it has noted what it stored.
type forgetful struct{ kubeexec.Store }

func (forgetful) Asked(context.Context, []store.Answer) error { return errors.New("the node is dead") }

func TestOutputThatWasStoredAndNotNotedIsNotRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("one") })
	dead := kubeexec.New(kubeexec.Config{Store: forgetful{r.store}, OutputLimit: 64 << 10})
	r.set(dead)
	defer dead.Close()
	r.mu.Lock()
	r.now = r.now.Add(time.Second)
	r.mu.Unlock()
	if err := dead.Look(r.Context()); err == nil {
		t.Fatal("the node did not die")
	}
	if got := r.output(a); got != "one\n" {
		t.Fatalf("the dead node has stored %q", got)
	}
	r.do(a, func(j *kubetest.Job) { j.Write("two"); j.Exit(0, "", "") })
	r.pass(r.node, 20*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
	if got := r.output(a); got != "one\ntwo\n" {
		t.Errorf("the output is %q", got)
	}
}

func TestTwoNodesAtOnceCountARunOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := r.newNode()
	var all []attempt
	for range 30 {
		a := r.start(hello)
		r.do(a, func(j *kubetest.Job) { j.Run("x"); j.Exit(0, "", "") })
		all = append(all, a)
	}
	done := make(chan error)
	for i := 0; i < 20; i++ {
		r.mu.Lock()
		r.now = r.now.Add(time.Second)
		r.mu.Unlock()
		for _, e := range []*kubeexec.Executor{r.node, other} {
			go func() { done <- e.Look(r.Context()) }()
		}
		r.must(<-done)
		r.must(<-done)
	}
	for _, a := range all {
		r.wants(a, job.OutcomeSucceeded, "")
		if got := r.output(a); got != "x\n" {
			t.Errorf("the output is %q", got)
		}
	}
	if got := r.cluster.Created(); len(got) != len(all) {
		t.Errorf("%d Jobs were created", len(got))
	}
}

func TestAnOutageOfTheAPIIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("x") })
	r.cluster.SetAway(true)
	r.pass(r.node, 20*time.Minute)
	r.wants(a, "", "")
	if got := r.waits(a); !strings.Contains(got, "the cluster default does not answer") {
		t.Errorf("it waits: %q", got)
	}
	if away := r.node.Away(); !away["default"] {
		t.Errorf("the clusters away are %v", away)
	}
	r.do(a, func(j *kubetest.Job) { j.Write("y"); j.Exit(0, "", "") })
	r.cluster.SetAway(false)
	r.pass(r.node, 15*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
	if away := r.node.Away(); away["default"] {
		t.Errorf("the clusters away are %v", away)
	}
	if got := r.output(a); got != "x\ny\n" {
		t.Errorf("the output is %q", got)
	}
}

func TestAJobDeletedByHandFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("x") })
	r.pass(r.node, 2*time.Second)
	r.cluster.Remove(a.name)
	r.pass(r.node, 15*time.Second)
	r.wants(a, job.OutcomeFailed, "was deleted by another program")
	if got := r.cluster.Created(); len(got) != 1 {
		t.Errorf("created %v", got)
	}
}

func TestACancelDeletesTheJobAndWaitsForItsGrace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("x"); j.Lingers = true })
	r.pass(r.node, time.Second)
	r.cancel(a)
	r.pass(r.node, 5*time.Second)
	r.wants(a, "", "")
	r.do(a, func(j *kubetest.Job) {
		if !j.Deleted {
			t.Error("the Job is not being deleted")
		}
		j.Write("cleaned up")
		j.Exit(143, "Error", "")
	})
	r.pass(r.node, 3*time.Second)
	r.wants(a, job.OutcomeCancelled, "cancelled by ann")
	if got := r.output(a); got != "x\ncleaned up\n" {
		t.Errorf("the output is %q", got)
	}
}

func TestACancelOfADeadPodEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("x"); j.Lingers = true })
	r.cancel(a)
	r.pass(r.node, 3*time.Minute)
	r.wants(a, job.OutcomeCancelled, "the pod has not ended")
}

func TestACancelDuringAnOutageEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.cluster.SetAway(true)
	r.cancel(a)
	r.pass(r.node, 5*time.Minute)
	r.wants(a, "", "")
	r.pass(r.node, 10*time.Minute)
	r.wants(a, job.OutcomeCancelled, "may still run the pod")
	if r.cluster.Left() != 1 {
		t.Fatal("the cluster has lost the Job by itself")
	}
	r.cluster.SetAway(false)
	r.pass(r.newNode(), time.Second)
	notes, err := r.store.Notes(t.Context(), "kube/", "", 10)
	if r.must(err); r.cluster.Left() != 0 || len(notes) != 0 {
		t.Errorf("%d Jobs and %d notes about them are left after the outage", r.cluster.Left(), len(notes))
	}
}

func TestACancelBeforeTheJobIsThereLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cluster.SetAway(true)
	a := r.start(hello)
	r.cluster.SetAway(false)
	r.cancel(a)
	r.pass(r.node, 5*time.Second)
	r.wants(a, "", "") // the node may still create it
	r.pass(r.node, 30*time.Second)
	r.wants(a, job.OutcomeCancelled, "cancelled by ann")
	if r.cluster.Left() != 0 {
		t.Error("a Job is left")
	}
}

func TestATimeoutEndsAJobThatTheClusterDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello + "policy: {timeout: 1m}\n")
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("x") })
	r.pass(r.node, time.Minute)
	r.wants(a, "", "")
	r.pass(r.node, 40*time.Second)
	r.wants(a, job.OutcomeTimedOut, "longer than its timeout of 1 min")
	if r.cluster.Left() != 0 {
		t.Error("the Job is left")
	}
}

func TestAJobThatWasNeverSeenIsLostAfterItsTimeInTheCluster(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cluster.SetAway(true)
	a := r.start(hello)
	r.pass(r.node, 61*time.Minute)
	r.cluster.SetAway(false)
	r.pass(r.node, 15*time.Second)
	r.wants(a, job.OutcomeLost, "was never seen")
	if got := r.cluster.Created(); len(got) > 0 {
		t.Errorf("created %v", got)
	}
}

func TestOutputThatMatchedEarlyCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello + "policy: {success: {match: '^ok$'}}\n")
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("ok") })
	r.pass(r.node, 5*time.Second)
	r.do(a, func(j *kubetest.Job) { j.Write("more"); j.Exit(0, "", "") })
	r.pass(r.newNode(), 15*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
}

func TestANodeWithoutTheClusterLeavesItsJobsToOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.do(a, func(j *kubetest.Job) { j.Run("x"); j.Exit(0, "", "") })
	other := kubeexec.New(kubeexec.Config{Store: r.store, OutputLimit: 64 << 10})
	other.Set(map[string]kubeexec.Cluster{"west": {Client: r.client()}})
	defer other.Close()
	r.pass(other, 20*time.Second)
	r.wants(a, "", "")
	if got := r.waits(a); !strings.Contains(got, "no cluster of this name is in the configuration") {
		t.Errorf("it waits: %q", got)
	}
	r.pass(r.node, 3*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
}

func TestLongOutputKeepsItsBeginAndEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("first") })
	for i := range 10 {
		r.do(a, func(j *kubetest.Job) {
			for k := range 300 {
				j.Write(fmt.Sprintf("%d/%d %s", i, k, strings.Repeat("x", 90)))
			}
		})
		r.pass(r.node, 3*time.Second)
	}
	r.do(a, func(j *kubetest.Job) { j.Write(strings.Repeat("很长", 100_000), "last"); j.Exit(0, "", "") })
	r.pass(r.node, 15*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
	got := r.output(a)
	if !strings.HasPrefix(got, "first\n0/0 ") || !strings.HasSuffix(got, "\nlast\n") || len(got) > 80<<10 || strings.Count(got, "bytes are left out") != 1 {
		t.Errorf("%d bytes of output: %.40q … %q", len(got), got, got[max(0, len(got)-40):])
	}
}

func TestAnEndWithoutItsLogIsRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(hello)
	r.pass(r.node, time.Second)
	r.do(a, func(j *kubetest.Job) { j.Run("x"); j.Exit(0, "", ""); j.LogFails = true })
	r.pass(r.node, 10*time.Second)
	r.wants(a, job.OutcomeSucceeded, "")
	if got := r.output(a); !strings.HasPrefix(got, "belfry: the output may lack its end: ") {
		t.Errorf("the output is %q", got)
	}
}
