package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/belfry-cron/belfry/internal/server/config"
)

const (
	place     = "../../packaging/kubernetes"
	namespace = "belfry"
)

// Helm reports the links of the chart that it follows.
func init() { log.SetOutput(io.Discard) }

// theChart returns the chart of the repository.
func theChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(filepath.Join(place, "belfry"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// valuesFiles are the tested ways to use the chart.
func valuesFiles(t *testing.T) map[string]map[string]any {
	t.Helper()
	names, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no values files: %v", err)
	}
	files := map[string]map[string]any{}
	for _, name := range names {
		values, err := chartutil.ReadValuesFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(filepath.Base(name), ".yaml")] = values
	}
	return files
}

// rendered are the objects of a release, by kind/name.
type rendered map[string]any

// render renders the chart like helm template.
func render(c *chart.Chart, values map[string]any) (rendered, error) {
	options := chartutil.ReleaseOptions{Name: "belfry", Namespace: namespace, Revision: 1, IsInstall: true}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"}
	all, err := chartutil.ToRenderValues(c, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	objects := rendered{}
	for name, text := range files {
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		if err := objects.add(text); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, text)
		}
	}
	return objects, nil
}

// add decodes objects into their types; a field that a type does not have is an error.
func (r rendered) add(text string) error {
	for document := range strings.SplitSeq(text, "\n---") {
		if lines := strings.Split(document, "\n"); !slices.ContainsFunc(lines, func(l string) bool { return l != "" && !strings.HasPrefix(l, "#") && l != "---" }) {
			continue
		}
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return err
		}
		into := typeOf(head.APIVersion + "/" + head.Kind)
		if into == nil {
			return fmt.Errorf("unexpected kind %s/%s", head.APIVersion, head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			return fmt.Errorf("%s %s: %w", head.Kind, head.Metadata.Name, err)
		}
		key := head.Kind + "/" + head.Metadata.Name
		if ns := head.Metadata.Namespace; ns != "" && ns != namespace {
			key += " in " + ns
		}
		if r[key] != nil {
			return fmt.Errorf("%s is there twice", key)
		}
		r[key] = into
	}
	return nil
}

func typeOf(kind string) any {
	switch kind {
	case "apps/v1/StatefulSet":
		return &apps.StatefulSet{}
	case "apps/v1/Deployment":
		return &apps.Deployment{}
	case "autoscaling/v2/HorizontalPodAutoscaler":
		return &autoscaling.HorizontalPodAutoscaler{}
	case "v1/ConfigMap":
		return &core.ConfigMap{}
	case "v1/Service":
		return &core.Service{}
	case "v1/ServiceAccount":
		return &core.ServiceAccount{}
	case "networking.k8s.io/v1/Ingress":
		return &networking.Ingress{}
	case "networking.k8s.io/v1/NetworkPolicy":
		return &networking.NetworkPolicy{}
	case "policy/v1/PodDisruptionBudget":
		return &policy.PodDisruptionBudget{}
	case "rbac.authorization.k8s.io/v1/Role":
		return &rbac.Role{}
	case "rbac.authorization.k8s.io/v1/RoleBinding":
		return &rbac.RoleBinding{}
	case "monitoring.coreos.com/v1/ServiceMonitor":
		return &monitoring.ServiceMonitor{}
	case "monitoring.coreos.com/v1/PrometheusRule":
		return &monitoring.PrometheusRule{}
	}
	return nil
}

// pods returns the pods of a release, by the name of their controller.
func (r rendered) pods() map[string]*core.PodTemplateSpec {
	list := map[string]*core.PodTemplateSpec{}
	for name, object := range r {
		switch o := object.(type) {
		case *apps.StatefulSet:
			list[name] = &o.Spec.Template
		case *apps.Deployment:
			list[name] = &o.Spec.Template
		}
	}
	return list
}

func TestTheChartHasNoLint(t *testing.T) {
	t.Parallel()
	for name, values := range valuesFiles(t) {
		result := lint.All(filepath.Join(place, "belfry"), values, namespace, true)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

func TestEachValuesFileRendersObjectsOfKubernetes(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"sqlite":   {"ConfigMap/belfry", "PodDisruptionBudget/belfry", "Service/belfry", "Service/belfry-nodes", "ServiceAccount/belfry", "StatefulSet/belfry"},
		"postgres": {"ConfigMap/belfry", "PodDisruptionBudget/belfry", "Service/belfry", "Service/belfry-nodes", "ServiceAccount/belfry", "StatefulSet/belfry"},
		"cluster":  {"ConfigMap/belfry", "Deployment/belfry-general", "PodDisruptionBudget/belfry", "PodDisruptionBudget/belfry-general", "Service/belfry", "Service/belfry-nodes", "ServiceAccount/belfry", "StatefulSet/belfry"},
		"remote":   {"ConfigMap/belfry", "Deployment/belfry-edge", "PodDisruptionBudget/belfry", "PodDisruptionBudget/belfry-edge", "Service/belfry", "Service/belfry-nodes", "ServiceAccount/belfry", "StatefulSet/belfry"},
		"jobs": {
			"ConfigMap/belfry", "Deployment/belfry-edge", "PodDisruptionBudget/belfry", "PodDisruptionBudget/belfry-edge", "Role/belfry-jobs in shop", "Role/belfry-jobs in shop-batch",
			"RoleBinding/belfry-jobs in shop", "RoleBinding/belfry-jobs in shop-batch", "Service/belfry", "Service/belfry-nodes", "ServiceAccount/belfry", "StatefulSet/belfry",
		},
		"everything": {
			"ConfigMap/cron", "ConfigMap/cron-dashboard", "Deployment/cron-cpu", "Deployment/cron-far", "Deployment/cron-queue", "HorizontalPodAutoscaler/cron-cpu", "HorizontalPodAutoscaler/cron-queue", "Ingress/cron", "NetworkPolicy/cron",
			"PodDisruptionBudget/cron", "PodDisruptionBudget/cron-cpu", "PodDisruptionBudget/cron-far", "PodDisruptionBudget/cron-queue", "PrometheusRule/cron", "Service/cron", "Service/cron-nodes", "ServiceAccount/cron", "ServiceMonitor/cron", "StatefulSet/cron",
		},
	}
	for name, values := range valuesFiles(t) {
		objects, err := render(theChart(t), values)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want[name]) {
			t.Errorf("%s renders\n%v, want\n%v", name, got, want[name])
		}
	}
}

func TestBadValuesAreRefusedWithTheirName(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"{servers: {replicas: 2}}":                                                "servers",
		"{server: {replicas: 3}}":                                                 "replicas",
		"{server: {replicas: two}}":                                               "replicas",
		"{server: {roles: [plan]}}":                                               "roles",
		"{server: {roles: []}}":                                                   "roles",
		"{server: {persistence: {enabled: false}}}":                               "server.persistence.enabled is false",
		"{server: {persistence: {accessModes: [ReadWriteMany]}}}":                 "accessModes",
		"{store: {url: 'postgres://u:p@h/d'}}":                                    "url",
		"{config: {store: 'postgres://u:p@h/d'}}":                                 "propertyName 'store'",
		"{config: {drain_timeout: 1h}}":                                           "propertyName 'drain_timeout'",
		"{workers: [{name: a}]}":                                                  "the pool a of workers needs store.name, or remote: true",
		"{workers: [{name: a, remote: true}]}":                                    "needs token.name",
		"{workers: [{name: A}]}":                                                  "name",
		"{workers: [{replicas: 1}]}":                                              "name",
		"{workers: [{name: a, size: 1}]}":                                         "size",
		"{store: {name: s}, workers: [{name: a}, {name: a}]}":                     "two pools of workers are named a",
		"{store: {name: s}, workers: [{name: a, autoscaling: {minReplicas: 1}}]}": "maxReplicas",
		"{metrics: {serviceMonitor: {enabled: true}}}":                            "metrics.token.name is missing",
		"{ingress: {enabled: true}}":                                              "ingress.host is missing",
		"{kubernetesJobs: {namespaces: [Shop]}}":                                  "namespaces",
		"{xxl: {port: 8421}}":                                                     "xxl.token.name is missing",
		"{drainTimeoutSeconds: 0}":                                                "drainTimeoutSeconds",
		"{image: {digest: abc}}":                                                  "digest",
		"{networkPolicy: {enabled: 'yes'}}":                                       "enabled",
	} {
		parsed, err := chartutil.ReadValues([]byte(values))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = render(theChart(t), parsed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", values, err, want)
		}
	}
}

func TestPodsHaveNoMoreRightsThanTheyNeed(t *testing.T) {
	t.Parallel()
	for name, values := range valuesFiles(t) {
		objects, err := render(theChart(t), values)
		if err != nil {
			t.Fatal(err)
		}
		for of, pod := range objects.pods() {
			s, c := pod.Spec, pod.Spec.Containers[0]
			if !*s.SecurityContext.RunAsNonRoot || *s.SecurityContext.RunAsUser == 0 || s.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *s.AutomountServiceAccountToken != (name == "jobs" && of == "StatefulSet/belfry") {
				t.Errorf("%s: %s has rights: %+v", name, of, s.SecurityContext)
			}
			if *s.SecurityContext.FSGroupChangePolicy != core.FSGroupChangeOnRootMismatch {
				t.Errorf("%s: %s opens the token to its group at each start", name, of)
			}
			if *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem || !slices.Equal(c.SecurityContext.Capabilities.Drop, []core.Capability{"ALL"}) || c.SecurityContext.Privileged != nil {
				t.Errorf("%s: the container of %s has rights: %+v", name, of, c.SecurityContext)
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: %s has no bounds: %+v", name, of, c.Resources)
			}
			for _, v := range s.Volumes {
				if v.Secret != nil && v.Name != "ca" && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
					t.Errorf("%s: the secret %s of %s can be read by others", name, v.Name, of)
				}
			}
			for _, v := range c.Env {
				if (v.Name == "BELFRY_STORE" || v.Name == "BELFRY_HISTORY") && v.Value != "" {
					t.Errorf("%s: %s has the URL of a store by value", name, of)
				}
			}
		}
	}
}

// TestJobsOfKubernetesHaveTheLeastRights compares the roles of the chart with the calls of the program.
func TestJobsOfKubernetesHaveTheLeastRights(t *testing.T) {
	t.Parallel()
	objects, err := render(theChart(t), valuesFiles(t)["jobs"])
	if err != nil {
		t.Fatal(err)
	}
	role := objects["Role/belfry-jobs in shop"].(*rbac.Role)
	var rights []string
	for _, rule := range role.Rules {
		rights = append(rights, fmt.Sprint(rule.APIGroups, rule.Resources, rule.Verbs))
	}
	if want := []string{"[batch] [jobs] [create get delete]", "[] [pods] [list]", "[] [pods/log] [get]"}; !slices.Equal(rights, want) {
		t.Errorf("the rights are %q, want %q", rights, want)
	}
	binding := objects["RoleBinding/belfry-jobs in shop-batch"].(*rbac.RoleBinding)
	if s := binding.Subjects[0]; s.Name != "belfry" || s.Namespace != namespace || binding.RoleRef.Name != role.Name {
		t.Errorf("the binding is of %+v for %+v", binding.RoleRef, s)
	}
	files := objects["ConfigMap/belfry"].(*core.ConfigMap).Data
	var server config.Server
	if err := yaml.Unmarshal([]byte(files["belfry.yaml"]), &server); err != nil {
		t.Fatal(err)
	}
	c := server.Kubernetes.Clusters["default"]
	if !c.InCluster || !slices.Equal(c.KubeNamespaces, []string{"shop", "shop-batch"}) || !slices.Equal(c.Images, []string{"registry.example.com/*"}) || !slices.Equal(c.ServiceAccounts, []string{"etl"}) || c.UnsafePods {
		t.Errorf("the cluster is %+v", c)
	}
	if strings.Contains(files["worker-edge.yaml"], "kubernetes") {
		t.Errorf("a worker without the store has %s", files["worker-edge.yaml"])
	}
}

func TestPodsHaveTheTimeToDrain(t *testing.T) {
	t.Parallel()
	for name, values := range valuesFiles(t) {
		objects, err := render(theChart(t), values)
		if err != nil {
			t.Fatal(err)
		}
		all, err := chartutil.CoalesceValues(theChart(t), values)
		if err != nil {
			t.Fatal(err)
		}
		for of, pod := range objects.pods() {
			drain := fmt.Sprintf("--drain-timeout=%vs", all["drainTimeoutSeconds"])
			if !slices.Contains(pod.Spec.Containers[0].Args, drain) {
				t.Errorf("%s: %s does not have %s", name, of, drain)
			}
			var seconds, grace int64
			if _, err := fmt.Sscan(fmt.Sprint(all["drainTimeoutSeconds"], " ", all["killGraceSeconds"]), &seconds, &grace); err != nil {
				t.Fatal(err)
			}
			least := seconds + grace + 15
			if hook := pod.Spec.Containers[0].Lifecycle; hook != nil {
				least += hook.PreStop.Sleep.Seconds
			}
			if *pod.Spec.TerminationGracePeriodSeconds != least {
				t.Errorf("%s: %s is killed after %d s, and needs %d", name, of, *pod.Spec.TerminationGracePeriodSeconds, least)
			}
		}
	}
}

func TestSelectorsFindTheirPods(t *testing.T) {
	t.Parallel()
	for name, values := range valuesFiles(t) {
		objects, err := render(theChart(t), values)
		if err != nil {
			t.Fatal(err)
		}
		pods := objects.pods()
		find := func(what string, selector map[string]string, want int) {
			t.Helper()
			found := 0
			for _, pod := range pods {
				matches := true
				for key, value := range selector {
					matches = matches && pod.Labels[key] == value
				}
				if matches {
					found++
				}
			}
			if found != want {
				t.Errorf("%s: %s selects %d kinds of pods, want %d", name, what, found, want)
			}
		}
		listening := 0
		for _, pod := range pods {
			if len(pod.Spec.Containers[0].Ports) > 0 {
				listening++
			}
		}
		for key, object := range objects {
			switch o := object.(type) {
			case *apps.StatefulSet:
				find(key, o.Spec.Selector.MatchLabels, 1)
				if objects["Service/"+o.Spec.ServiceName] == nil {
					t.Errorf("%s: %s names the service %q, which does not exist", name, key, o.Spec.ServiceName)
				}
			case *apps.Deployment:
				find(key, o.Spec.Selector.MatchLabels, 1)
			case *policy.PodDisruptionBudget:
				find(key, o.Spec.Selector.MatchLabels, 1)
			case *networking.NetworkPolicy:
				find(key, o.Spec.PodSelector.MatchLabels, len(pods))
			case *core.Service:
				if strings.HasSuffix(key, "-nodes") {
					find(key, o.Spec.Selector, listening)
				} else {
					find(key, o.Spec.Selector, 1)
				}
			case *monitoring.ServiceMonitor:
				nodes := objects["Service/cron-nodes"].(*core.Service)
				for label, value := range o.Spec.Selector.MatchLabels {
					if nodes.Labels[label] != value {
						t.Errorf("%s: %s looks for %s=%s", name, key, label, value)
					}
				}
			}
		}
	}
}

func TestRulesAndDashboardMatchTheGuide(t *testing.T) {
	t.Parallel()
	objects, err := render(theChart(t), valuesFiles(t)["everything"])
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	got := objects["PrometheusRule/cron"].(*monitoring.PrometheusRule).Spec
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) || len(got.Groups) == 0 {
		t.Errorf("the chart has other rules than docs/alerts.yaml:\n%s\n%s", a, b)
	}
	dashboard, err := os.ReadFile("../../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := objects["ConfigMap/cron-dashboard"].(*core.ConfigMap).Data["belfry.json"]; strings.TrimSpace(got) != strings.TrimSpace(string(dashboard)) {
		t.Error("the chart has another dashboard than docs/grafana-dashboard.json")
	}
}

// TestConfigPassesOtherSettingsThrough compares the schema with the fields of the configuration.
func TestConfigPassesOtherSettingsThrough(t *testing.T) {
	t.Parallel()
	own := []string{"data", "listen", "store", "history", "name", "roles", "labels", "capacity", "drain_timeout", "hosts", "tls", "plain_http", "worker", "log_format"}
	var want []string
	for _, f := range config.Fields() {
		name, _, _ := strings.Cut(f.Name, ".")
		if !slices.Contains(own, name) && !slices.Contains(want, name) {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	for _, at := range [][]string{{"config"}, {"workerDefaults", "properties", "config"}, {"workers", "items", "properties", "config"}} {
		node := schemaOf(t)["properties"].(map[string]any)
		for _, key := range at {
			node = node[key].(map[string]any)
		}
		var got []string
		for _, name := range node["propertyNames"].(map[string]any)["enum"].([]any) {
			got = append(got, name.(string))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%v takes\n%v, want\n%v", at, got, want)
		}
	}
}

func schemaOf(t *testing.T) map[string]any {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal(theChart(t).Schema, &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestEachValueIsDescribedAndInTheGuide makes the table of docs/kubernetes.md.
func TestEachValueIsDescribedAndInTheGuide(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| value | meaning | default |\n|---|---|---|\n")
	c := theChart(t)
	describe(t, &table, "", schemaOf(t), c.Values)
	const file, begin, end = "../../docs/kubernetes.md", "<!-- values -->\n\n", "\n<!-- end of values -->"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for the values", file)
	}
	if old == table.String() {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatalf("%s describes other values than the schema; UPDATE=1 go -C test/kubernetes test . writes them", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// describe writes a line for each value, and compares the schema with the defaults.
func describe(t *testing.T, table *strings.Builder, path string, schema map[string]any, defaults any) {
	properties, _ := schema["properties"].(map[string]any)
	values, isMap := defaults.(map[string]any)
	if len(properties) == 0 || !isMap || len(values) == 0 {
		if schema["description"] == nil {
			t.Errorf("the schema does not say what %s is", path)
		}
		text, err := json.Marshal(defaults)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(table, "| `%s` | %s | `%s` |\n", path, schema["description"], text)
		return
	}
	for name := range values {
		if properties[name] == nil && schema["additionalProperties"] == false {
			t.Errorf("values.yaml has %s.%s, which the schema does not", path, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if name == "global" {
			continue
		}
		value, there := values[name]
		if !there && !strings.HasSuffix(path, "image") {
			t.Errorf("values.yaml does not have %s.%s", path, name)
		}
		describe(t, table, strings.TrimPrefix(path+"."+name, "."), properties[name].(map[string]any), value)
	}
}
