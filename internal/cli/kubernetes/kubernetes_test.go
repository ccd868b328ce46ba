package kubernetes

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// pod returns a CronJob with fields of its spec, its job's spec, its pod and its container.
func pod(spec, of, inPod, inContainer string) string {
	return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a, namespace: n}\nspec:\n  schedule: '0 3 * * *'\n  timeZone: UTC\n" + spec +
		"  jobTemplate:\n    spec:\n      backoffLimit: 0\n" + of + "      template:\n        spec:\n" + inPod + "          containers:\n          - name: main\n            image: busybox:1\n" + inContainer
}

func TestEachFieldBecomesAFieldOrANote(t *testing.T) {
	for _, row := range []struct {
		name, text string
		shell      bool
		want       []string // in the document
		notes      []string
		problem    string
	}{
		{name: "the least", text: pod("", "", "", ""), want: []string{"name: a\n", "cron: 0 3 * * *", "timezone: UTC", "container: busybox:1", "overlap: allow", "missed: latest"}},
		{name: "forbid", text: pod("  concurrencyPolicy: Forbid\n", "", "", ""), want: []string{"overlap: skip"}},
		{name: "replace", text: pod("  concurrencyPolicy: Replace\n", "", "", ""), want: []string{"overlap: replace"}},
		{name: "a deadline", text: pod("  startingDeadlineSeconds: 90\n", "", "", ""), want: []string{"late_by: 1m30s"}},
		{name: "suspended", text: pod("  suspend: true\n", "", "", ""), want: []string{"paused: true"}},
		{name: "limits of history", text: pod("  failedJobsHistoryLimit: 4\n", "", "", ""), want: []string{"runs: 7"}, notes: []string{"policy.keep.runs counts both: 7"}},
		{name: "retries", text: pod("", "      activeDeadlineSeconds: 60\n      ttlSecondsAfterFinished: 5\n", "", ""), want: []string{"timeout: 1m"}, notes: []string{"ttlSecondsAfterFinished is left out"}},
		{name: "several pods", text: pod("", "      parallelism: 3\n", "", ""), notes: []string{"place.shards splits it"}},
		{name: "a failure policy", text: pod("", "      podFailurePolicy: {rules: []}\n", "", ""), notes: []string{"podFailurePolicy is left out"}},
		{name: "grace", text: pod("", "", "          terminationGracePeriodSeconds: 5\n", ""), want: []string{"kill_grace: 5s"}},
		{name: "users", text: pod("", "", "          securityContext: {runAsUser: 1000, runAsGroup: 7}\n", ""), want: []string{"user: 1000:7"}},
		{name: "the user of the container", text: pod("", "", "          securityContext: {runAsUser: 1}\n", "            securityContext: {runAsUser: 2, readOnlyRootFilesystem: true}\n"), want: []string{`user: "2"`, "read_only: true"}},
		{name: "placement", text: pod("", "", "          nodeSelector: {a: b}\n          tolerations: [{}]\n          affinity: {}\n          serviceAccountName: s\n          imagePullSecrets: [{name: x}]\n", ""),
			notes: []string{"affinity is left out", "imagePullSecrets is left out", "nodeSelector is left out", "serviceAccountName is left out", "tolerations is left out"}},
		{name: "commands", text: pod("", "", "", "            command: [a, 'b {{c}}']\n            args: [d]\n            workingDir: /w\n            imagePullPolicy: Always\n"),
			want: []string{"- a\n", `- b {{ "{{" }}c}}`, "args: d", "dir: /w", "pull: always"}},
		{name: "limits", text: pod("", "", "", "            resources: {limits: {cpu: 1500m, memory: 1Gi}}\n"), want: []string{"cpu: 1.5", "memory: 1GiB"}},
		{name: "an unknown limit", text: pod("", "", "", "            resources: {limits: {ephemeral-storage: 1Gi}}\n"), notes: []string{"resources.limits.ephemeral-storage: 1Gi is left out"}},
		{name: "variables", text: pod("", "", "", "            env: [{name: A, value: b}, {name: B, valueFrom: {fieldRef: {}}}, {name: C, value: $(A)}]\n"),
			want: []string{"A: b"}, notes: []string{"env B is left out: it is a field of the pod", "env C refers to other variables"}},
		{name: "secrets", text: pod("", "", "", "            env: [{name: A, valueFrom: {secretKeyRef: {name: Db-x, key: pw}}}]\n"),
			want: []string{"A: '{{ .Secret.db_x_pw }}'"}, notes: []string{"belfry secret set db_x_pw"}},
		{name: "volumes", text: pod("", "", "          volumes: [{name: h, hostPath: {path: /srv}}, {name: e, emptyDir: {}}, {name: c, configMap: {}}]\n",
			"            volumeMounts: [{name: h, mountPath: /d, readOnly: true}, {name: e, mountPath: /t}, {name: c, mountPath: /c}]\n"),
			want: []string{"mounts: /srv:/d:ro", "tmpfs: /t\n"}, notes: []string{"the node must allow /srv in containers.mounts", "volume c at /c is left out"}},
		{name: "init containers", text: pod("", "", "          initContainers: [{name: x, image: y}]\n", ""), problem: "init containers (x)"},
		{name: "a sidecar", text: pod("", "", "", "          - {name: b, image: c}\n"), problem: "the pod has 2 containers (main, b)"},
		{name: "a command on a node", shell: true, text: pod("", "", "", "            command: [/bin/x, y]\n"), want: []string{"command: /bin/x", "args: \"y\""}, notes: []string{"without the image busybox:1"}},
		{name: "no command on a node", shell: true, text: pod("", "", "", ""), problem: "the command is that of the image"},
		{name: "a zone that is not told", text: strings.Replace(pod("", "", "", ""), "  timeZone: UTC\n", "", 1), want: []string{"timezone: Asia/Tokyo"}, notes: []string{"taken as Asia/Tokyo"}},
		{name: "a zone in the schedule", text: strings.Replace(strings.Replace(pod("", "", "", ""), "  timeZone: UTC\n", "", 1), "0 3 * * *", "CRON_TZ=Asia/Shanghai 0 3 * * *", 1), want: []string{"timezone: Asia/Shanghai", "cron: 0 3 * * *"}},
		{name: "a name that the cluster ends", text: strings.Replace(pod("", "", "", ""), "{name: a,", "{generateName: nightly-,", 1), want: []string{"name: nightly\n"}},
		{name: "variables of other objects", text: pod("", "", "", "            envFrom: [{configMapRef: {name: rc}}, {prefix: X_, secretRef: {name: rs}}]\n"), notes: []string{"envFrom of rc, rs is left out"}},
		{name: "an anchor", text: "base: &base {apiVersion: batch/v1, kind: CronJob}\n<<: *base\nmetadata: {name: a}\nspec: {schedule: '0 3 * * *', timeZone: UTC, jobTemplate: {spec: {template: {spec: {containers: [{name: b, image: c}]}}}}}\n", want: []string{"name: a\n"}},
		{name: "an alias in a list", text: "kind: List\nx: &x {kind: CronJob, metadata: {name: a}, spec: {schedule: '0 3 * * *', timeZone: UTC, jobTemplate: {spec: {template: {spec: {containers: [{name: b, image: c}]}}}}}}\nitems: [*x]\n", want: []string{"name: a\n"}},
		{name: "a list in a list", text: "kind: List\nitems: [{kind: List, items: [{kind: CronJob, metadata: {name: a}, spec: {schedule: '0 3 * * *', timeZone: UTC, jobTemplate: {spec: {template: {spec: {containers: [{name: b, image: c}]}}}}}}]}]\n", want: []string{"name: a\n"}},
		{name: "days", text: strings.Replace(pod("", "", "", ""), "0 3 * * *", "0 3 */2 * 1", 1), notes: []string{"Kubernetes runs on days that match either"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			lines, err := Import(row.text, Options{Zone: "Asia/Tokyo", Shell: row.shell})
			if err != nil || len(lines) != 1 {
				t.Fatalf("%v, %v", lines, err)
			}
			line := lines[0]
			if row.problem != "" || !line.Problem.IsZero() {
				if row.problem == "" || !strings.Contains(line.Problem.String(), row.problem) || len(line.Documents) > 0 {
					t.Errorf("the problem is %q, want %q", line.Problem, row.problem)
				}
				return
			}
			if err := line.Documents[0].Validate(); err != nil {
				t.Error(err)
			}
			var b bytes.Buffer
			if err := job.Encode(&b, line.Documents, job.YAML); err != nil {
				t.Fatal(err)
			}
			for _, want := range row.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("no %q in\n%s", want, b.String())
				}
			}
			words := fmt.Sprint(line.Notes)
			for _, want := range row.notes {
				if !strings.Contains(words, want) {
					t.Errorf("no note %q in\n%s", want, words)
				}
			}
			if len(line.Notes) != len(row.notes) {
				t.Errorf("the notes are\n%s", words)
			}
		})
	}
}

func TestPodsAreKeptAsTheyAre(t *testing.T) {
	text := pod("", "", "          restartPolicy: OnFailure\n          terminationGracePeriodSeconds: 5\n          serviceAccountName: etl\n          nodeSelector: {a: b}\n          volumes: [{name: h, hostPath: {path: /srv}}]\n          initContainers: [{name: in, image: x}]\n",
		"            args: ['{{x}}', '$(A)']\n            envFrom: [{configMapRef: {name: rc}}]\n          - {name: side, image: c}\n")
	lines, err := Import(text, Options{Zone: "UTC", Jobs: true, Cluster: "east"})
	if err != nil || len(lines) != 1 || len(lines[0].Documents) != 1 {
		t.Fatalf("%+v, %v", lines, err)
	}
	if err := lines[0].Documents[0].Validate(); err != nil {
		t.Error(err)
	}
	j := lines[0].Documents[0].Job
	expanded, err := j.Expand(job.TemplateData{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"spec":{"containers":[{"args":["{{x}}","$(A)"],"envFrom":[{"configMapRef":{"name":"rc"}}],"image":"busybox:1","name":"main"},{"image":"c","name":"side"}],` +
		`"initContainers":[{"image":"x","name":"in"}],"nodeSelector":{"a":"b"},"serviceAccountName":"etl","volumes":[{"hostPath":{"path":"/srv"},"name":"h"}]}}`
	if k := expanded.Kubernetes; k.Template != want || k.Cluster != "east" || k.Namespace != "n" {
		t.Errorf("got %+v", k)
	}
	if words := fmt.Sprint(lines[0].Notes); !strings.Contains(words, "service account etl") || !strings.Contains(words, "unsafe_pods") || len(lines[0].Notes) != 3 {
		t.Errorf("the notes are %s", words)
	}
}

func TestOnlyCronJobsAreRead(t *testing.T) {
	list := "{kind: CronJobList, items: [{metadata: {name: a}, spec: {schedule: '@daily', jobTemplate: {spec: {template: {spec: {containers: [{image: x}]}}}}}}]}"
	lines, err := Import("kind: Deployment\n---\n---\n- a\n---\n"+pod("", "", "", "")+"---\n"+strings.Replace(list, "name: a", "name: b", 1), Options{Zone: "UTC"})
	if err != nil || len(lines) != 2 || lines[0].Number != 6 || lines[1].Documents[0].Job.Name != "b" {
		t.Errorf("got %+v, %v", lines, err)
	}
	lines, err = Import(pod("", "", "", "")+"---\n"+strings.Replace(pod("", "", "", ""), "namespace: n", "namespace: m", 1), Options{})
	if err != nil || len(lines) != 2 || !strings.Contains(lines[1].Problem.String(), "namespace n has a CronJob of this name") {
		t.Errorf("got %+v, %v", lines, err)
	}
	if lines, err := Import("&a {kind: List, items: [*a], <<: *a}", Options{}); err != nil || len(lines) > 0 {
		t.Errorf("of a list in itself: %+v, %v", lines, err)
	}
	if _, err := Import("{{- if .Values.enabled }}\nkind: CronJob\n{{ end }}\n", Options{}); err == nil || !strings.Contains(err.Error(), "helm template") {
		t.Errorf("a template is refused with %v", err)
	}
	for _, text := range []string{"a: [", "kind: CronJob\nspec: []\n"} {
		if _, err := Import(text, Options{}); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func FuzzImport(f *testing.F) {
	f.Add(pod("", "", "", ""))
	f.Add("&a {kind: List, items: [*a], <<: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := Import(text, Options{Zone: "UTC"})
		for _, l := range lines {
			if err == nil && (l.Problem.IsZero()) == (len(l.Documents) == 0) {
				t.Errorf("a line has neither a job nor a problem, or both: %+v", l)
			}
		}
	})
}
