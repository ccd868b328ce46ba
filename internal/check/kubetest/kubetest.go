// Package kubetest stands in for the API of Kubernetes in tests: Jobs with one pod each, logs and
// CronJobs. Tests move the pods; nothing runs.
package kubetest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

type object = map[string]any

// Cluster is a cluster. Use [New].
type Cluster struct {
	*httptest.Server

	mu       sync.Mutex
	away     bool
	losesPut bool
	patches  int // that succeed before the API refuses them; below 0 for all
	refusal  *refusal
	jobs     map[string]*Job
	created  []string
	cronJobs map[string]object
	requests []string
	onCreate func(*Job)
}

type refusal struct {
	code    int
	message string
}

// Job is a Job with its pod. Its fields are changed in [Cluster.Do].
type Job struct {
	Name string
	// Manifest is what was created, and Conditions are those of the status.
	Manifest   object
	Conditions []object
	// Phase is that of the pod, "" for no pod; Reason, Message and PodConditions are in its status.
	Phase, Reason, Message string
	PodConditions          []object
	// States are those of containers, by name.
	States map[string]object
	// Lines are the log.
	Lines []string
	// LogFails makes reading the log fail.
	LogFails bool
	// Deleted is set when the deletion began; Lingers keeps the pod until the test removes it.
	Deleted, Lingers bool

	times []time.Time
}

// New starts a cluster that ends with the test.
func New(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{jobs: map[string]*Job{}, cronJobs: map[string]object{}, patches: -1}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

// Kubeconfig writes a kubeconfig whose context has the namespace shop, and returns its path.
func (c *Cluster) Kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("current-context: test\ncontexts: [{name: test, context: {cluster: k, user: u, namespace: shop}}]\nclusters: [{name: k, cluster: {server: %q}}]\n", c.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// SetAway makes the API hang up, or answer again.
func (c *Cluster) SetAway(away bool) { c.mu.Lock(); defer c.mu.Unlock(); c.away = away }

// LosePut makes the API create the next Job, and hang up before it answers.
func (c *Cluster) LosePut() { c.mu.Lock(); defer c.mu.Unlock(); c.losesPut = true }

// RefusePatchesAfter makes the API refuse to change CronJobs after some changes; below 0 it never does.
func (c *Cluster) RefusePatchesAfter(n int) { c.mu.Lock(); defer c.mu.Unlock(); c.patches = n }

// Refuse makes the API refuse to create Jobs, until code is 0.
func (c *Cluster) Refuse(code int, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal = nil
	if code != 0 {
		c.refusal = &refusal{code, message}
	}
}

// OnCreate sets what happens to each new Job.
func (c *Cluster) OnCreate(do func(*Job)) { c.mu.Lock(); defer c.mu.Unlock(); c.onCreate = do }

// AddCronJob adds a CronJob of the namespace shop.
func (c *Cluster) AddCronJob(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var o object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err) // of the test
	}
	c.cronJobs[nameOf(o)] = o
}

// Suspended reports whether a CronJob is suspended.
func (c *Cluster) Suspended(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	spec, _ := c.cronJobs[name]["spec"].(object)
	yes, _ := spec["suspend"].(bool)
	return yes
}

// Created returns the names of all Jobs that were created, in their order.
func (c *Cluster) Created() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.created)
}

// Left returns how many Jobs the cluster has.
func (c *Cluster) Left() int { c.mu.Lock(); defer c.mu.Unlock(); return len(c.jobs) }

// Requests returns how many requests had a method.
func (c *Cluster) Requests(method string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.requests {
		if one == method {
			n++
		}
	}
	return n
}

// Do changes a Job. It reports whether the Job exists.
func (c *Cluster) Do(name string, change func(*Job)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[name]
	if j != nil {
		change(j)
	}
	return j != nil
}

// Remove removes a Job with its pod.
func (c *Cluster) Remove(name string) { c.mu.Lock(); defer c.mu.Unlock(); delete(c.jobs, name) }

// Run makes the pod of the Job run, and write lines.
func (j *Job) Run(lines ...string) {
	j.Phase = "Running"
	for _, name := range j.containers() {
		j.States[name] = object{"running": object{"startedAt": time.Now().UTC().Format(time.RFC3339)}}
	}
	j.Write(lines...)
}

// Write adds lines to the log.
func (j *Job) Write(lines ...string) {
	for _, line := range lines {
		at := time.Now()
		if n := len(j.times); n > 0 && !at.After(j.times[n-1]) {
			at = j.times[n-1].Add(time.Nanosecond)
		}
		j.times, j.Lines = append(j.times, at), append(j.Lines, line)
	}
}

// Exit ends the pod and its Job.
func (j *Job) Exit(code int, reason, message string) {
	j.Phase = "Succeeded"
	condition := object{"type": "Complete", "status": "True"}
	if code != 0 {
		j.Phase = "Failed"
		condition = object{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
	}
	for _, name := range j.containers() {
		j.States[name] = object{"terminated": object{"exitCode": code, "reason": reason, "message": message}}
	}
	j.Conditions = append(j.Conditions, condition)
}

func (j *Job) spec() object {
	spec, _ := j.Manifest["spec"].(object)
	template, _ := spec["template"].(object)
	pod, _ := template["spec"].(object)
	return pod
}

func (j *Job) containers() (names []string) {
	list, _ := j.spec()["containers"].([]any)
	for _, one := range list {
		c, _ := one.(object)
		name, _ := c["name"].(string)
		names = append(names, name)
	}
	return names
}

func nameOf(o object) string {
	metadata, _ := o["metadata"].(object)
	name, _ := metadata["name"].(string)
	return name
}

func (c *Cluster) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r.Method)
	if c.away {
		panic(http.ErrAbortHandler)
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	at := slices.Index(parts, "namespaces")
	if at < 0 || len(parts) < at+3 {
		answer(w, 404, "no such path")
		return
	}
	kind, rest := parts[at+2], parts[at+3:]
	switch {
	case kind == "jobs" && r.Method == http.MethodPost:
		c.create(w, body)
	case kind == "jobs" && len(rest) == 1:
		c.job(w, r.Method, rest[0])
	case kind == "pods" && len(rest) == 0:
		name := strings.TrimPrefix(r.URL.Query().Get("labelSelector"), "batch.kubernetes.io/job-name=")
		items := []any{}
		if j := c.jobs[name]; j != nil && j.Phase != "" {
			items = append(items, j.pod())
		}
		write(w, 200, object{"kind": "PodList", "items": items})
	case kind == "pods" && len(rest) == 2 && rest[1] == "log":
		c.log(w, r, strings.TrimSuffix(rest[0], "-pod"))
	case kind == "cronjobs" && len(rest) == 0:
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(c.cronJobs)) {
			items = append(items, c.cronJobs[name])
		}
		write(w, 200, object{"kind": "CronJobList", "items": items})
	case kind == "cronjobs" && r.Method == http.MethodPatch && c.cronJobs[rest[0]] != nil:
		if c.patches == 0 {
			answer(w, 403, "cronjobs.batch is forbidden: cannot patch")
			return
		}
		c.patches--
		var patch object
		_ = json.Unmarshal(body, &patch)
		merge(c.cronJobs[rest[0]], patch)
		write(w, 200, c.cronJobs[rest[0]])
	default:
		answer(w, 404, fmt.Sprintf("%s %q not found", kind, strings.Join(rest, "/")))
	}
}

func merge(to, patch object) {
	for key, value := range patch {
		inner, isObject := value.(object)
		old, wasObject := to[key].(object)
		switch {
		case value == nil:
			delete(to, key)
		case isObject && wasObject:
			merge(old, inner)
		default:
			to[key] = value
		}
	}
}

func (c *Cluster) create(w http.ResponseWriter, body []byte) {
	var o object
	_ = json.Unmarshal(body, &o)
	name := nameOf(o)
	switch {
	case c.refusal != nil:
		answer(w, c.refusal.code, c.refusal.message)
		return
	case c.jobs[name] != nil:
		answer(w, 409, fmt.Sprintf("jobs.batch %q already exists", name))
		return
	}
	j := &Job{Name: name, Manifest: o, Phase: "Pending", States: map[string]object{}}
	c.jobs[name], c.created = j, append(c.created, name)
	if c.onCreate != nil {
		c.onCreate(j)
	}
	if c.losesPut {
		c.losesPut = false
		panic(http.ErrAbortHandler)
	}
	write(w, 201, o)
}

func (c *Cluster) job(w http.ResponseWriter, method, name string) {
	j := c.jobs[name]
	if j == nil {
		answer(w, 404, fmt.Sprintf("jobs.batch %q not found", name))
		return
	}
	if method == http.MethodDelete {
		j.Deleted = true
		if !j.Lingers {
			delete(c.jobs, name)
		}
	}
	metadata := object{"name": name}
	if m, _ := j.Manifest["metadata"].(object); m != nil {
		metadata["labels"] = m["labels"]
	}
	if j.Deleted {
		metadata["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	write(w, 200, object{"metadata": metadata, "status": object{"conditions": j.Conditions}})
}

func (j *Job) pod() object {
	metadata := object{"name": j.Name + "-pod", "creationTimestamp": "2026-01-01T00:00:00Z"}
	if j.Deleted {
		metadata["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	states := []any{}
	for _, name := range j.containers() {
		if state := j.States[name]; state != nil {
			states = append(states, object{"name": name, "state": state})
		}
	}
	return object{
		"metadata": metadata, "spec": object{"containers": j.spec()["containers"]},
		"status": object{"phase": j.Phase, "reason": j.Reason, "message": j.Message, "conditions": j.PodConditions, "containerStatuses": states},
	}
}

func (c *Cluster) log(w http.ResponseWriter, r *http.Request, name string) {
	j := c.jobs[name]
	if j == nil || j.LogFails {
		answer(w, 500, "Get \"https://node:10250/containerLogs\": dial tcp: connection refused")
		return
	}
	since, _ := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime"))
	for i, line := range j.Lines {
		if !j.times[i].Before(since) {
			_, _ = fmt.Fprintf(w, "%s %s\n", j.times[i].UTC().Format(time.RFC3339Nano), line)
		}
	}
}

func answer(w http.ResponseWriter, code int, message string) {
	write(w, code, object{"kind": "Status", "code": code, "message": message})
}

func write(w http.ResponseWriter, code int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}
