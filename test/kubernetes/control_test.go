//go:build control

package kubernetes

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	rbac "k8s.io/api/rbac/v1"
)

// plane is a control plane of Kubernetes: etcd, the API and the controllers of Jobs. The test is the
// scheduler and the kubelet of its only node.
type plane struct {
	*testing.T
	dir, programs, url string
	etcd               string // its address
	client             *http.Client

	mu   sync.Mutex
	logs map[string][]string // lines with their times, by pod
}

type object = map[string]any

const adminToken = "the-token-of-the-admin"

func startPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{T: t, dir: t.TempDir(), logs: map[string][]string{}}
	if p.programs = os.Getenv("BELFRY_CONTROL"); p.programs == "" { // it names a directory that has them
		p.programs = p.dir
		build := exec.Command("go", "build", "-o", p.dir, "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-controller-manager", "go.etcd.io/etcd/server/v3")
		build.Dir = "control" // ten minutes, once
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the control plane: %v\n%s", err, out)
		}
	}
	peers, clients, secure := freeAddress(t), freeAddress(t), freeAddress(t)
	p.etcd = clients
	p.url = "https://" + secure
	p.program("server", "--data-dir", p.dir+"/etcd", "--listen-client-urls", "http://"+clients, "--advertise-client-urls", "http://"+clients,
		"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "default=http://"+peers)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	p.must(err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	p.must(err)
	p.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	p.write("sa.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	p.write("tokens", adminToken+",admin,1,system:masters\n")
	_, port, _ := strings.Cut(secure, ":")
	p.program("kube-apiserver", "--endpoint-reconciler-type=none", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--etcd-servers=http://"+clients,
		"--secure-port="+port, "--cert-dir="+p.dir+"/certs", "--service-account-issuer=https://k", "--service-account-key-file="+p.dir+"/sa.pub",
		"--service-account-signing-key-file="+p.dir+"/sa.key", "--token-auth-file="+p.dir+"/tokens", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount", "--kubelet-preferred-address-types=InternalIP")
	p.eventually("the API answers", func() bool {
		certificate, err := os.ReadFile(p.dir + "/certs/apiserver.crt")
		if err != nil {
			return false
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(certificate)
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig.RootCAs = pool
		p.client = &http.Client{Transport: transport}
		_, code := p.call(http.MethodGet, "/readyz", nil)
		return code == http.StatusOK
	})
	p.program("kube-controller-manager", "--kubeconfig="+p.kubeconfig(adminToken), "--controllers=job-controller,ttl-after-finished-controller,garbage-collector-controller,namespace-controller",
		"--secure-port=0", "--leader-elect=false")
	kubelet := httptest.NewTLSServer(http.HandlerFunc(p.log))
	t.Cleanup(kubelet.Close)
	_, kubeletPort, _ := net.SplitHostPort(kubelet.Listener.Addr().String())
	p.post("/api/v1/nodes", object{"metadata": object{"name": "n1"}})
	p.patch("/api/v1/nodes/n1/status", object{"status": object{
		"addresses": []any{object{"type": "InternalIP", "address": "127.0.0.1"}}, "daemonEndpoints": object{"kubeletEndpoint": object{"Port": json.Number(kubeletPort)}},
	}})
	return p
}

// freeAddress returns an address that no program listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (p *plane) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *plane) write(name, text string) string {
	p.Helper()
	path := filepath.Join(p.dir, name)
	p.must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// program starts a program of the plane, which ends with the test.
func (p *plane) program(name string, args ...string) {
	p.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(p.programs, name)
	}
	c := exec.Command(name, args...)
	log, err := os.Create(filepath.Join(p.dir, filepath.Base(name)+".log"))
	p.must(err)
	c.Stdout, c.Stderr = log, log
	p.must(c.Start())
	p.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGKILL)
		_ = c.Wait()
		_ = log.Close()
		if text, _ := os.ReadFile(log.Name()); p.Failed() {
			p.Logf("%s: …%s", name, text[max(0, len(text)-3000):])
		}
	})
}

func (p *plane) eventually(what string, holds func() bool) {
	p.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("never: %s", what)
		}
	}
}

// kubeconfig writes one for a token, with the namespace shop.
func (p *plane) kubeconfig(token string) string {
	return p.write(fmt.Sprintf("kubeconfig-%d", len(token)), fmt.Sprintf("current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: shop}}]\n"+
		"clusters: [{name: k, cluster: {server: %q, certificate-authority: certs/apiserver.crt}}]\nusers: [{name: u, user: {token: %s}}]\n", p.url, token))
}

func (p *plane) call(method, path string, body any) (object, int) {
	text, err := json.Marshal(body)
	p.must(err)
	request, err := http.NewRequestWithContext(p.Context(), method, p.url+path, bytes.NewReader(text))
	p.must(err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := p.client.Do(request)
	if err != nil {
		return object{"message": err.Error()}, 0
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	var o object
	_ = json.Unmarshal(answer, &o)
	return o, response.StatusCode
}

func (p *plane) post(path string, body any) object {
	p.Helper()
	return p.change(http.MethodPost, path, body)
}

func (p *plane) patch(path string, body any) { p.Helper(); p.change(http.MethodPatch, path, body) }

func (p *plane) change(method, path string, body any) object {
	p.Helper()
	o, code := p.call(method, path, body)
	if code < 200 || code > 299 {
		p.Fatalf("%s %s: %d %v", method, path, code, o["message"])
	}
	return o
}

// log answers like a kubelet.
func (p *plane) log(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/") // /containerLogs/NAMESPACE/POD/CONTAINER
	since, _ := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime"))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.logs[parts[3]] {
		stamp, _, _ := strings.Cut(line, " ")
		if at, _ := time.Parse(time.RFC3339Nano, stamp); !at.Before(since) {
			fmt.Fprintln(w, line)
		}
	}
}

func (p *plane) print(pod, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logs[pod] = append(p.logs[pod], time.Now().UTC().Format(time.RFC3339Nano)+" "+line)
}

// podOf waits for the pod of a Job.
func (p *plane) podOf(job string) (name string) {
	p.Helper()
	p.eventually("the Job "+job+" has a pod", func() bool {
		list, _ := p.call(http.MethodGet, "/api/v1/namespaces/shop/pods?labelSelector=batch.kubernetes.io/job-name="+job, nil)
		items, _ := list["items"].([]any)
		if len(items) == 0 {
			return false
		}
		name = items[0].(object)["metadata"].(object)["name"].(string)
		return true
	})
	return name
}

func pathOf(pod string) string { return "/api/v1/namespaces/shop/pods/" + pod }

// run puts a pod on the node, and says that it runs.
func (p *plane) run(pod string) {
	p.Helper()
	p.post(pathOf(pod)+"/binding", object{"metadata": object{"name": pod}, "target": object{"kind": "Node", "name": "n1"}})
	p.status(pod, "Running", "", object{"running": object{"startedAt": time.Now().UTC().Format(time.RFC3339)}})
}

func (p *plane) status(pod, phase, reason string, state object) {
	p.Helper()
	status := object{"phase": phase, "reason": reason}
	if state != nil {
		status["containerStatuses"] = []any{object{"name": "main", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": state}}
	}
	p.patch(pathOf(pod)+"/status", object{"status": status})
}

func exited(code int, reason string) object {
	return object{"terminated": object{"exitCode": code, "reason": reason, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:00Z"}}
}

// awaitDeletion waits until a pod must end, and ends it like a kubelet.
func (p *plane) awaitDeletion(pod string) {
	p.Helper()
	p.eventually("the pod is being deleted", func() bool {
		o, code := p.call(http.MethodGet, pathOf(pod), nil)
		metadata, _ := o["metadata"].(object)
		return code == http.StatusOK && metadata["deletionTimestamp"] != nil
	})
	p.print(pod, "cleaned up")
	p.status(pod, "Failed", "", exited(143, "Error"))
	p.call(http.MethodDelete, pathOf(pod), object{"gracePeriodSeconds": 0})
}

func TestJobsOnARealControlPlane(t *testing.T) {
	p := startPlane(t)
	for _, name := range []string{"shop", "belfry"} {
		p.post("/api/v1/namespaces", object{"metadata": object{"name": name}})
	}
	// The rights of the chart are enough.
	objects, err := render(theChart(t), valuesFiles(t)["jobs"])
	p.must(err)
	p.post("/api/v1/namespaces/belfry/serviceaccounts", object{"metadata": object{"name": "belfry"}})
	role, binding := objects["Role/belfry-jobs in shop"].(*rbac.Role), objects["RoleBinding/belfry-jobs in shop"].(*rbac.RoleBinding)
	p.post("/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles", role)
	p.post("/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings", binding)
	token := p.post("/api/v1/namespaces/belfry/serviceaccounts/belfry/token", object{"spec": object{}})["status"].(object)["token"].(string)

	file, err := program()
	p.must(err)
	settings := p.write("belfry.yaml", "kubernetes: {clusters: {default: {kubeconfig: "+p.kubeconfig(token)+"}}}\n")
	data := filepath.Join(p.dir, "data")
	p.program(file, "serve", "--data="+data, "--listen="+freeAddress(t), "--config="+settings)
	belfry := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), file, args...)
		c.Env = append(os.Environ(), "BELFRY_DATA="+data, "KUBECONFIG="+p.kubeconfig(adminToken))
		out, _ := c.CombinedOutput()
		return string(out)
	}
	p.eventually("Belfry takes the jobs", func() bool {
		return strings.Contains(belfry("apply", "-f", p.write("jobs.yaml", controlJobs)), "job default/hello")
	})
	begin := func(name string) (run, pod string) {
		t.Helper()
		run = runID.FindString(belfry("job", "run", name))
		pod = p.podOf("belfry-" + strings.ToLower(run) + "-1")
		return run, pod
	}
	ends := func(run, outcome, why string) {
		t.Helper()
		var text string
		p.eventually("the run ends as "+outcome, func() bool {
			text = belfry("run", "show", run)
			return regexp.MustCompile(`(?m)^status +` + outcome).MatchString(text)
		})
		if !strings.Contains(text, why) {
			t.Errorf("no %q in\n%s", why, text)
		}
	}

	run, pod := begin("hello")
	p.patch(pathOf(pod)+"/status", object{"status": object{"conditions": []any{object{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}}}})
	p.eventually("the run says why its pod waits", func() bool {
		return strings.Contains(belfry("run", "show", run), "Unschedulable: 0/1 nodes are available")
	})
	p.run(pod)
	p.print(pod, "hello")
	p.eventually("the output is followed", func() bool { return strings.Contains(belfry("logs", run), "hello") })
	p.print(pod, "bye")
	p.status(pod, "Succeeded", "", exited(0, "Completed"))
	ends(run, "succeeded", "")
	if out := belfry("logs", run); out != "hello\nbye\n" {
		t.Errorf("the output is %q", out)
	}

	run, pod = begin("hello")
	p.run(pod)
	p.status(pod, "Failed", "", exited(137, "OOMKilled"))
	ends(run, "failed", "OOMKilled")

	run, pod = begin("hello")
	p.run(pod)
	p.status(pod, "Failed", "Evicted", nil)
	ends(run, "failed", "the pod was evicted")

	run, pod = begin("hello")
	p.run(pod)
	belfry("run", "cancel", run)
	p.awaitDeletion(pod)
	ends(run, "cancelled", "cancelled by admin")
	p.eventually("the Job is gone", func() bool {
		_, code := p.call(http.MethodGet, "/apis/batch/v1/namespaces/shop/jobs/belfry-"+strings.ToLower(run)+"-1", nil)
		return code == http.StatusNotFound
	})

	run, pod = begin("short")
	p.run(pod)
	p.awaitDeletion(pod)
	ends(run, "timed_out", "the cluster ended it")

	run, pod = begin("hello")
	p.run(pod)
	p.change(http.MethodDelete, "/apis/batch/v1/namespaces/shop/jobs/belfry-"+strings.ToLower(run)+"-1", object{"propagationPolicy": "Background"})
	p.awaitDeletion(pod)
	ends(run, "failed", "was deleted by another program")

	ends(runID.FindString(belfry("job", "run", "strict")), "failed", "unknown field")

	p.post("/apis/batch/v1/namespaces/shop/cronjobs", object{"metadata": object{"name": "nightly"}, "spec": object{"schedule": "0 3 * * *", "jobTemplate": object{"spec": object{
		"template": object{"spec": object{"restartPolicy": "OnFailure", "containers": []any{object{"name": "main", "image": "x"}}}},
	}}}})
	suspended := func() any {
		o, _ := p.call(http.MethodGet, "/apis/batch/v1/namespaces/shop/cronjobs/nightly", nil)
		return o["spec"].(object)["suspend"]
	}
	if out := belfry("kubernetes", "import", "--live", "--jobs", "--apply", "--take-over"); suspended() != true {
		t.Errorf("the CronJob was not suspended:\n%s", out)
	}
	run, pod = begin("nightly")
	p.run(pod)
	p.status(pod, "Succeeded", "", exited(0, "Completed"))
	ends(run, "succeeded", "")
	if out := belfry("kubernetes", "give-back", "--yes"); suspended() != false {
		t.Errorf("the CronJob is still suspended:\n%s", out)
	}
}

var runID = regexp.MustCompile(`[0-9A-Z]{26}`)

const controlJobs = `
name: hello
run: {kubernetes: "alpine:3.20", shell: echo hello}
policy: {overlap: allow}
---
name: short
run: {kubernetes: "alpine:3.20", shell: sleep 60}
policy: {timeout: 3s, kill_grace: 1s}
---
name: strict
run: {kubernetes: {template: "spec: {containers: [{name: main, image: x, imagePullPolice: Always}]}"}}
`
