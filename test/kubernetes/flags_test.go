package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/belfry-cron/belfry/internal/cli"
	"github.com/belfry-cron/belfry/internal/server/config"
)

// TestPodsSayWhatBelfryKnows compares command lines, environment and probes with the program.
func TestPodsSayWhatBelfryKnows(t *testing.T) {
	t.Parallel()
	known := []string{"HOME", "SSL_CERT_DIR", "TZ"}
	for _, f := range config.Fields() {
		known = append(known, f.Env)
	}
	for name, values := range valuesFiles(t) {
		objects, err := render(theChart(t), values)
		if err != nil {
			t.Fatal(err)
		}
		for of, pod := range objects.pods() {
			c := pod.Spec.Containers[0]
			if !slices.Equal(c.Command, []string{"/usr/bin/belfry"}) {
				t.Errorf("%s: %s runs %v, and the image has /usr/bin/belfry", name, of, c.Command)
			}
			cmd, rest, err := cli.Commands().Find(c.Args)
			if err != nil || cmd.Name() != c.Args[0] {
				t.Errorf("%s: %s runs %v: %v", name, of, c.Args, err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil || cmd.Flags().NArg() > 0 {
				t.Errorf("%s: %s runs %v: %v", name, of, c.Args, err)
			}
			for _, v := range c.Env {
				if !slices.Contains(known, v.Name) {
					t.Errorf("%s: %s has the variable %s, which belfry does not read", name, of, v.Name)
				}
			}
			checkMounts(t, name+": "+of, pod)
			listen := cmd.Flags().Lookup("listen")
			if listen == nil {
				listen = cmd.Flags().Lookup("health-listen")
			}
			if listen.Value.String() != fmt.Sprintf(":%d", c.Ports[0].ContainerPort) {
				t.Errorf("%s: %s listens on %s and has the port %d", name, of, listen.Value, c.Ports[0].ContainerPort)
			}
			scheme := core.URISchemeHTTP
			if cmd.Flags().Changed("tls-cert") {
				scheme = core.URISchemeHTTPS
			}
			for path, probe := range map[string]*core.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
				if probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != c.Ports[0].Name || probe.HTTPGet.Scheme != scheme {
					t.Errorf("%s: %s is probed by %+v", name, of, probe.HTTPGet)
				}
			}
		}
	}
}

// checkMounts compares the files that a pod names with what is mounted.
func checkMounts(t *testing.T, name string, pod *core.PodTemplateSpec) {
	t.Helper()
	c := pod.Spec.Containers[0]
	for _, m := range c.VolumeMounts {
		made := m.Name == "data" // by a claim
		for _, v := range pod.Spec.Volumes {
			made = made || v.Name == m.Name
		}
		if !made {
			t.Errorf("%s mounts %s, which is no volume", name, m.Name)
		}
	}
	for _, arg := range c.Args {
		_, value, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(value, "/") && !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return strings.HasPrefix(value, m.MountPath+"/") }) {
			t.Errorf("%s says %s, and nothing is mounted there", name, arg)
		}
	}
}
