package kubernetes

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// bases are the directories for kustomize, with their values files.
var bases = map[string]string{"base": "sqlite", "cluster": "cluster"}

// TestKustomizeBasesMatchTheChart makes the bases, or compares them.
func TestKustomizeBasesMatchTheChart(t *testing.T) {
	for dir, values := range bases {
		objects, err := render(theChart(t), valuesFiles(t)[values])
		if err != nil {
			t.Fatal(err)
		}
		files := baseOf(t, objects)
		for name, text := range files {
			file := filepath.Join(place, dir, name)
			if os.Getenv("UPDATE") != "" {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if old, err := os.ReadFile(file); err != nil || string(old) != text {
				t.Errorf("%s is not what the chart makes of %s.yaml (%v); UPDATE=1 go -C test/kubernetes test . writes it", file, values, err)
			}
		}
		entries, err := os.ReadDir(filepath.Join(place, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if files[e.Name()] == "" {
				t.Errorf("%s/%s is not made of the chart", dir, e.Name())
			}
		}
	}
}

// baseOf returns the files of a base. It omits Helm's own labels, and kustomize creates the
// ConfigMap, so that an overlay may replace its files.
func baseOf(t *testing.T, objects rendered) map[string]string {
	t.Helper()
	const made = "# Made from the chart by test/kubernetes; change the chart.\n"
	files := map[string]string{}
	var resources, configs []string
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		kind, name, _ := strings.Cut(key, "/")
		if c, ok := objects[key].(*core.ConfigMap); ok {
			for file, text := range c.Data {
				files[file] = text
				configs = append(configs, file)
			}
			continue
		}
		data, err := yaml.Marshal(objects[key])
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := yaml.Unmarshal(data, &object); err != nil {
			t.Fatal(err)
		}
		withoutHelm(object)
		if data, err = yaml.Marshal(object); err != nil {
			t.Fatal(err)
		}
		file := strings.ToLower(kind) + strings.TrimPrefix(name, "belfry") + ".yaml"
		resources = append(resources, file)
		files[file] = made + string(data)
	}
	slices.Sort(configs)
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": namespace,
		"resources":          resources,
		"configMapGenerator": []any{map[string]any{"name": "belfry", "files": configs}},
	})
	if err != nil {
		t.Fatal(err)
	}
	files["kustomization.yaml"] = made + string(data)
	return files
}

// withoutHelm removes what is Helm's, and what the type writes although it is empty.
func withoutHelm(node any) {
	switch n := node.(type) {
	case map[string]any:
		delete(n, "helm.sh/chart")
		delete(n, "app.kubernetes.io/managed-by")
		delete(n, "checksum/config")
		delete(n, "status")
		for key, value := range n {
			withoutHelm(value)
			if m, ok := value.(map[string]any); value == nil || ok && len(m) == 0 && (key == "annotations" || key == "strategy" || key == "updateStrategy") {
				delete(n, key)
			}
		}
	case []any:
		for _, value := range n {
			withoutHelm(value)
		}
	}
}

// build builds like kubectl kustomize.
func build(t *testing.T, dir string) rendered {
	t.Helper()
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	text, err := result.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	objects := rendered{}
	if err := objects.add(string(text)); err != nil {
		t.Fatalf("%s: %v\n%s", dir, err, text)
	}
	return objects
}

func TestKustomizeBuildsTheSamePodsAsHelm(t *testing.T) {
	for dir, values := range bases {
		want, err := render(theChart(t), valuesFiles(t)[values])
		if err != nil {
			t.Fatal(err)
		}
		got := build(t, filepath.Join(place, dir))
		if len(got) != len(want) {
			t.Errorf("%s has %v, the chart %v", dir, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		pods := got.pods()
		for name, pod := range want.pods() {
			other := pods[name]
			if other == nil {
				t.Errorf("%s: %s is missing", dir, name)
				continue
			}
			for _, v := range other.Spec.Volumes {
				if v.Name == "config" {
					if got["ConfigMap/"+v.ConfigMap.Name] == nil || v.ConfigMap.Name == "belfry" {
						t.Errorf("%s: %s has the configuration %s, which does not change its name", dir, name, v.ConfigMap.Name)
					}
					v.ConfigMap.Name = "belfry"
				}
			}
			if !reflect.DeepEqual(pod.Spec, other.Spec) {
				a, _ := yaml.Marshal(pod.Spec)
				b, _ := yaml.Marshal(other.Spec)
				t.Errorf("%s: %s differs:\n%s\n%s", dir, name, a, b)
			}
		}
	}
}

// TestTheOverlayOfTheGuideBuilds builds the overlay in docs/kubernetes.md.
func TestTheOverlayOfTheGuideBuilds(t *testing.T) {
	guide, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := bytes.Cut(guide, []byte("```yaml\n# kustomization.yaml\n"))
	text, _, ended := bytes.Cut(rest, []byte("```"))
	if !ok || !ended {
		t.Fatal("docs/kubernetes.md shows no kustomization.yaml")
	}
	absolute, err := filepath.Abs(place)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(absolute, "overlay") // kustomize requires relative names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const remote = "https://github.com/belfry-cron/belfry//packaging/kubernetes/cluster?ref=v1.2.3"
	if !bytes.Contains(text, []byte(remote)) {
		t.Fatalf("the overlay does not use %s", remote)
	}
	text = bytes.ReplaceAll(text, []byte(remote), []byte("../cluster"))
	for name, data := range map[string]string{"kustomization.yaml": string(text), "belfry.yaml": "timezone: Europe/Berlin\nhosts: [belfry]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	objects := build(t, dir)
	for name, pod := range objects.pods() {
		if image := pod.Spec.Containers[0].Image; image != "registry.example.com/belfry:1.2.3" {
			t.Errorf("%s has the image %s", name, image)
		}
	}
	for name, object := range objects {
		if c, ok := object.(*core.ConfigMap); ok && !strings.Contains(c.Data["belfry.yaml"], "Europe/Berlin") {
			t.Errorf("%s has the configuration of the base", name)
		}
	}
	if d, ok := objects["Deployment/belfry-general"].(*apps.Deployment); !ok || *d.Spec.Replicas != 5 {
		t.Error("the overlay does not change the number of workers")
	}
}
