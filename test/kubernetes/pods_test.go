package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/belfry-cron/belfry/test/servers"
)

// patience bounds the waits for pods on a busy machine.
const patience = 2 * time.Minute

// program builds belfry once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "belfry-kubernetes-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the user of the pods executes it
		return "", err
	}
	file := filepath.Join(dir, "belfry")
	return file, servers.Build(file, "cmd/belfry")
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

// cluster stands for Kubernetes: it mounts volumes below a directory and starts containers as
// processes, with the pod's user if the test runs as root.
type cluster struct {
	t       *testing.T
	objects rendered
	dir     string
	secrets map[string]map[string]string
	ports   map[string]int // ports of pods that listen on 8420, by component
}

func newCluster(t *testing.T, values string) *cluster {
	t.Helper()
	objects, err := render(theChart(t), valuesFiles(t)[values])
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "belfry-pods-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &cluster{t: t, objects: objects, dir: dir, secrets: map[string]map[string]string{}, ports: map[string]int{}}
}

// pod is a container that runs.
type pod struct {
	*cluster
	name, root string
	spec       *core.PodTemplateSpec
	cmd        *exec.Cmd
	log        *os.File
	ended      chan error
}

// start starts a pod of a workload.
func (c *cluster) start(workload, name string) *pod {
	c.t.Helper()
	p := &pod{cluster: c, name: name, root: filepath.Join(c.dir, name), spec: c.objects.pods()[workload], ended: make(chan error, 1)}
	if p.spec == nil {
		c.t.Fatalf("there is no %s", workload)
	}
	container := p.spec.Spec.Containers[0]
	for _, m := range container.VolumeMounts {
		p.mount(m)
	}
	args := slices.Clone(container.Args)
	for i, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case key == "--listen" || key == "--health-listen":
			args[i] = fmt.Sprintf("%s=:%d", key, p.freePort())
		case key == "--server":
			args[i] = "--server=" + c.lookup(value)
		case strings.HasPrefix(value, "/"):
			args[i] = key + "=" + p.root + value
		}
	}
	file, err := program()
	if err != nil {
		c.t.Fatal(err)
	}
	p.cmd = exec.Command(file, append(args, "--name="+name)...)
	p.cmd.Env = p.environment()
	p.cmd.Dir = "/"
	p.cmd.SysProcAttr = p.user()
	if p.log, err = os.Create(p.root + ".log"); err != nil {
		c.t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	c.t.Cleanup(func() {
		p.stop()
		p.log.Close()
		if text, err := os.ReadFile(p.root + ".log"); err == nil && c.t.Failed() {
			c.t.Logf("%s said:\n%s", name, text)
		}
	})
	return p
}

// mount makes a volume as the kubelet does: Secrets and ConfigMaps are links into a directory
// that is exchanged as a whole, with the owner root and the group fsGroup.
func (p *pod) mount(m core.VolumeMount) {
	p.t.Helper()
	at := filepath.Join(p.root, m.MountPath)
	p.makeDir(at, 0o755, false)
	i := slices.IndexFunc(p.spec.Spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name })
	if i < 0 || p.spec.Spec.Volumes[i].EmptyDir != nil {
		p.makeDir(at, 0o775|fs.ModeSetgid, true)
		return
	}
	files, mode := map[string]string{}, fs.FileMode(0o644)
	switch v := p.spec.Spec.Volumes[i]; {
	case v.ConfigMap != nil:
		for name, text := range p.objects["ConfigMap/"+v.ConfigMap.Name].(*core.ConfigMap).Data {
			for _, other := range p.spec.Spec.Containers[0].VolumeMounts {
				text = strings.ReplaceAll(text, " "+other.MountPath, " "+p.root+other.MountPath)
			}
			files[name] = text
		}
	case v.Secret != nil:
		data := p.secrets[v.Secret.SecretName]
		if data == nil {
			p.t.Fatalf("%s waits for the Secret %s", p.name, v.Secret.SecretName)
		}
		if v.Secret.DefaultMode != nil {
			mode = fs.FileMode(*v.Secret.DefaultMode)
		}
		files = data
		if v.Secret.Items != nil {
			files = map[string]string{}
			for _, item := range v.Secret.Items {
				files[item.Path] = data[item.Key]
			}
		}
	default:
		p.t.Fatalf("a volume of another kind: %+v", v)
	}
	if os.Geteuid() != 0 {
		mode &^= 0o077 // all files have one owner
	}
	inner := filepath.Join(at, "..2026_11_21")
	p.makeDir(inner, 0o755, false)
	p.link("..2026_11_21", filepath.Join(at, "..data"))
	for name, text := range files {
		file := filepath.Join(inner, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
		p.own(file, mode)
		p.link(filepath.Join("..data", name), filepath.Join(at, name))
	}
}

func (p *pod) link(to, name string) {
	p.t.Helper()
	if err := os.Symlink(to, name); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) makeDir(dir string, mode fs.FileMode, shared bool) {
	p.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if shared {
		p.own(dir, mode)
	}
}

// own assigns a file to root and the group of the pod.
func (p *pod) own(file string, mode fs.FileMode) {
	p.t.Helper()
	if os.Geteuid() == 0 {
		if err := os.Chown(file, 0, int(*p.spec.Spec.SecurityContext.FSGroup)); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := os.Chmod(file, mode); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) user() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	s := p.spec.Spec.SecurityContext
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(*s.RunAsUser), Gid: uint32(*s.RunAsGroup), Groups: []uint32{uint32(*s.FSGroup)}}}
}

// environment returns the variables of the image and of the pod.
func (p *pod) environment() []string {
	env := []string{"PATH=/usr/bin:/bin", "TMPDIR=" + p.root + "/tmp"}
	for _, v := range p.spec.Spec.Containers[0].Env {
		value := v.Value
		if strings.HasPrefix(value, "/") {
			value = p.root + value
		}
		if v.ValueFrom != nil {
			ref := v.ValueFrom.SecretKeyRef
			var ok bool
			if value, ok = p.secrets[ref.Name][ref.Key]; !ok {
				p.t.Fatalf("%s waits for %s of the Secret %s", p.name, ref.Key, ref.Name)
			}
		}
		env = append(env, v.Name+"="+value)
	}
	return env
}

func (p *pod) freePort() int {
	port, err := servers.FreePort()
	if err != nil {
		p.t.Fatal(err)
	}
	p.ports[p.name] = port
	return port
}

// lookup finds the address of a service of the release.
func (c *cluster) lookup(url string) string {
	c.t.Helper()
	service := c.objects["Service/belfry"].(*core.Service)
	if want := fmt.Sprintf("http://belfry.%s.svc:%d", namespace, service.Spec.Ports[0].Port); url != want {
		c.t.Fatalf("workers ask %s, and the service is at %s", url, want)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", c.ports["belfry-0"])
}

// ready waits for the probe of a pod.
func (p *pod) ready() {
	p.t.Helper()
	probe := p.spec.Spec.Containers[0].ReadinessProbe.HTTPGet
	client := &http.Client{Timeout: patience}
	p.wait("ready", func() error {
		response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", p.ports[p.name], probe.Path))
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return nil
	})
}

// wait waits until a condition holds or the pod has ended.
func (p *pod) wait(what string, so func() error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		err := so()
		if err == nil {
			return
		}
		select {
		case ended := <-p.ended:
			p.ended <- ended
			p.t.Fatalf("%s has ended (%v) before it was %s: %v", p.name, ended, what, err)
		case <-ctx.Done():
			p.t.Fatalf("%s is not %s: %v", p.name, what, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// exec runs a command like kubectl exec POD -- belfry ARGS.
func (p *pod) exec(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.cmd.Path, args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr, cmd.Stdin = p.environment(), "/", p.user(), strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("belfry %v: %w\n%s", args, err, said.Bytes())
	}
	return out.String(), nil
}

// must is exec for what has to work.
func (p *pod) must(stdin string, args ...string) string {
	p.t.Helper()
	out, err := p.exec(stdin, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// stop ends a pod like the kubelet.
func (p *pod) stop() {
	select {
	case err := <-p.ended:
		p.ended <- err
		return
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Error(err)
	}
	select {
	case err := <-p.ended:
		p.ended <- err
		if err != nil {
			p.t.Errorf("%s ends with %v", p.name, err)
		}
	case <-time.After(patience):
		p.t.Errorf("%s does not end", p.name)
		_ = p.cmd.Process.Kill()
	}
}

func TestOneServerWithSQLiteStartsAndKeepsItsVolume(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "sqlite")
	server := c.start("StatefulSet/belfry", "belfry-0")
	server.ready()
	server.must("", "job", "create", "hello", "--", "echo hello")
	if out := server.must("", "job", "run", "hello", "--logs"); !strings.Contains(out, "hello") {
		t.Errorf("the job prints %q", out)
	}
	server.stop()
	// The next pod has the volume of this one.
	if err := os.Rename(filepath.Join(c.dir, "belfry-0/data"), filepath.Join(c.dir, "volume")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(c.dir, "belfry-0")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.dir, "belfry-0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(c.dir, "volume"), filepath.Join(c.dir, "belfry-0/data")); err != nil {
		t.Fatal(err)
	}
	server = c.start("StatefulSet/belfry", "belfry-0")
	server.ready()
	if out := server.must("", "job", "list"); !strings.Contains(out, "hello") {
		t.Errorf("the jobs are %q", out)
	}
}

func TestARemoteWorkerRunsJobsWithItsTokenAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "remote")
	server := c.start("StatefulSet/belfry", "belfry-0")
	server.ready()
	c.secrets["belfry-edge"] = map[string]string{"token": server.must("", "token", "create", "edge", "--role", "worker")}
	worker := c.start("Deployment/belfry-edge", "belfry-edge-1")
	worker.ready()
	worker.wait("there", func() error {
		if out, err := server.exec("", "node", "list"); err != nil || !strings.Contains(out, "belfry-edge-1") {
			return fmt.Errorf("the nodes are %s, %w", out, err)
		}
		return nil
	})
	server.must("name: edge\nplace: {labels: {zone: dmz}}\nrun: {shell: echo at the edge}\n", "apply", "--yes", "-f", "-")
	if out := server.must("", "job", "run", "edge", "--logs"); !strings.Contains(out, "at the edge") {
		t.Errorf("the job prints %q", out)
	}
}
