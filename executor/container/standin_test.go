package container_test

import (
	"archive/tar"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

// standIn answers the calls of an engine. Its containers are processes of the test, whose
// job.ContainerDir and job.FlowVolumeDir are directories of the test.
type standIn struct {
	t      *testing.T
	socket string
	dir    string

	mu         sync.Mutex
	images     map[string]bool
	pullable   map[string]bool // images that can be pulled
	logins     []string        // headers of pulls
	containers map[string]*inStandIn
	volumes    map[string]engine.Volume
	refuse     string // error of each start; "" for none
	silent     func() // called at the end of each start before its answer; may be nil
	stop       func() // ends the answers
	version    atomic.Int64
	asked      atomic.Int64 // how often for the version
	sampled    atomic.Int64 // how often for what a container uses
	gate       string       // a file made at the second such question
}

// endless is an image whose pull never ends.
const endless = "localhost/endless:1"

// inStandIn is a container in a stand-in.
type inStandIn struct {
	name    string
	spec    engine.Spec
	dir     string
	command *exec.Cmd
	frames  []frame
	state   engine.State
	ended   chan struct{}
	created time.Time
}

type frame struct {
	stream byte
	at     time.Time
	text   string
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &standIn{
		t: t, dir: dir, socket: filepath.Join(dir, "s"), images: map[string]bool{testImage: true}, pullable: map[string]bool{},
		containers: map[string]*inStandIn{}, volumes: map[string]engine.Volume{},
	}
	s.serve()
	return s
}

// serve begins to answer.
func (s *standIn) serve() {
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", fmt.Sprint("Engine/", s.version.Load()))
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)
		fmt.Fprintf(w, `{"Version":"%d","ApiVersion":"1.41","Components":[{"Name":"Engine"}]}`, s.version.Load())
	})
	mux.HandleFunc("GET /images/{rest...}", s.image)
	mux.HandleFunc("POST /images/create", s.pull)
	mux.HandleFunc("POST /containers/create", s.create)
	mux.HandleFunc("GET /containers/json", s.list)
	mux.HandleFunc("GET /containers/{name}/json", s.inspect)
	mux.HandleFunc("GET /containers/{name}/stats", s.stats)
	mux.HandleFunc("POST /containers/{name}/start", s.start)
	mux.HandleFunc("GET /containers/{name}/logs", s.logs)
	mux.HandleFunc("POST /containers/{name}/wait", s.wait)
	mux.HandleFunc("POST /containers/{name}/kill", s.kill)
	mux.HandleFunc("PUT /containers/{name}/archive", s.upload)
	mux.HandleFunc("GET /containers/{name}/archive", s.download)
	mux.HandleFunc("DELETE /containers/{name}", s.remove)
	mux.HandleFunc("POST /volumes/create", s.createVolume)
	mux.HandleFunc("GET /volumes", s.listVolumes)
	mux.HandleFunc("DELETE /volumes/{name}", s.removeVolume)
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	s.stop = sync.OnceFunc(func() { server.Close(); <-done })
	s.t.Cleanup(s.stop)
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": text})
}

func (s *standIn) image(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimSuffix(r.PathValue("rest"), "/json")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.images[name] {
		refuse(w, http.StatusNotFound, "No such image: "+name)
		return
	}
	fmt.Fprint(w, `{"Id":"sha256:1","Config":{"StopSignal":""}}`)
}

func (s *standIn) pull(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("fromImage")
	if name == endless {
		fmt.Fprintln(w, `{"status":"Pulling"}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logins = append(s.logins, r.Header.Get("X-Registry-Auth"))
	fmt.Fprintln(w, `{"status":"Pulling from library/x","id":"latest"}`)
	fmt.Fprintln(w, `{"status":"Downloading","id":"a","progressDetail":{"current":1000000,"total":2000000}}`)
	if !s.pullable[name] {
		fmt.Fprintln(w, `{"errorDetail":{"message":"manifest unknown"},"error":"manifest unknown"}`)
		return
	}
	s.images[name] = true
	fmt.Fprintln(w, `{"status":"Status: Downloaded newer image"}`)
}

func (s *standIn) create(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	c := &inStandIn{name: name, ended: make(chan struct{}), state: engine.State{Status: "created"}, created: time.Now()}
	if err := json.NewDecoder(r.Body).Decode(&c.spec); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.containers[name] != nil:
		refuse(w, http.StatusConflict, "the name is in use")
		return
	case !s.images[c.spec.Image]:
		refuse(w, http.StatusNotFound, "No such image")
		return
	}
	c.dir = filepath.Join(s.dir, name)
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	s.containers[name] = c
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"Id":%q}`, name)
}

// of returns the container of a request, or fails the request.
func (s *standIn) of(w http.ResponseWriter, r *http.Request) *inStandIn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[r.PathValue("name")]
	if c == nil {
		refuse(w, http.StatusNotFound, "No such container")
	}
	return c
}

// place returns where a path in a container is for the test.
func (s *standIn) place(c *inStandIn, path string) string {
	if rest, ok := strings.CutPrefix(path, job.FlowVolumeDir); ok {
		for _, m := range c.spec.HostConfig.Mounts {
			if m.Target == job.FlowVolumeDir {
				return filepath.Join(s.dir, m.Source) + rest
			}
		}
	}
	return strings.Replace(path, job.ContainerDir, c.dir, 1)
}

func (s *standIn) start(w http.ResponseWriter, r *http.Request) {
	c := s.of(w, r)
	if c == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent != nil { // it starts, but the answer is lost
		defer s.silent()
	}
	if s.refuse != "" {
		refuse(w, http.StatusInternalServerError, s.refuse)
		return
	}
	words := slices.Concat(c.spec.Entrypoint, c.spec.Cmd)
	if len(words) == 0 {
		words = []string{"true"}
	}
	c.command = exec.Command(words[0], words[1:]...)
	for _, variable := range c.spec.Env {
		name, value, _ := strings.Cut(variable, "=")
		c.command.Env = append(c.command.Env, name+"="+s.place(c, value))
	}
	c.command.Env = append(c.command.Env, "PATH="+os.Getenv("PATH"))
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if dir := s.place(c, c.spec.WorkingDir); c.spec.WorkingDir != "" {
		c.command.Dir = dir
	}
	c.command.Stdout, c.command.Stderr = &frames{s, c, 1}, &frames{s, c, 2}
	if err := c.command.Start(); err != nil {
		refuse(w, http.StatusBadRequest, "exec: executable file not found: "+err.Error())
		return
	}
	c.state = engine.State{Status: "running", Running: true, StartedAt: time.Now()}
	go func() {
		err := c.command.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		c.state.Status, c.state.Running, c.state.FinishedAt = "exited", false, time.Now()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			c.state.ExitCode = exit.ExitCode()
			if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
				c.state.ExitCode = 128 + int(status.Signal())
			}
		}
		close(c.ended)
	}()
	w.WriteHeader(http.StatusNoContent)
}

// stats answers as an engine does about a container with 60 MB, of which 20 MB are pages of files.
func (s *standIn) stats(w http.ResponseWriter, r *http.Request) {
	c := s.of(w, r)
	if c == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.state.Running {
		fmt.Fprint(w, `{"cpu_stats":{"cpu_usage":{"total_usage":0}},"memory_stats":{},"blkio_stats":{"io_service_bytes_recursive":null}}`)
		return
	}
	if s.sampled.Add(1) == 2 && s.gate != "" {
		_ = os.WriteFile(s.gate, nil, 0o600)
	}
	fmt.Fprintf(w, `{"cpu_stats":{"cpu_usage":{"total_usage":%d}},"memory_stats":{"usage":60000000,"stats":{"inactive_file":20000000}},`+
		`"blkio_stats":{"io_service_bytes_recursive":[{"major":8,"minor":0,"op":"read","value":4096},{"major":8,"minor":0,"op":"write","value":512},{"major":8,"minor":16,"op":"write","value":512}]}}`,
		time.Since(c.state.StartedAt).Nanoseconds())
}

// frames encodes the output of a container, each write as a frame.
type frames struct {
	s      *standIn
	c      *inStandIn
	stream byte
}

func (f *frames) Write(p []byte) (int, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.c.frames = append(f.c.frames, frame{f.stream, time.Now(), string(p)})
	return len(p), nil
}

func (s *standIn) logs(w http.ResponseWriter, r *http.Request) {
	c := s.of(w, r)
	if c == nil {
		return
	}
	follow := r.URL.Query().Get("follow") == "1"
	flush := http.NewResponseController(w)
	for sent := 0; ; {
		ended := false
		select {
		case <-c.ended:
			ended = true
		default:
		}
		s.mu.Lock()
		more := slices.Clone(c.frames[sent:])
		s.mu.Unlock()
		sent += len(more)
		for _, f := range more {
			text := f.at.UTC().Format(time.RFC3339Nano) + " " + f.text
			header := make([]byte, 8, 8+len(text))
			header[0] = f.stream
			binary.BigEndian.PutUint32(header[4:], uint32(len(text)))
			if _, err := w.Write(append(header, text...)); err != nil {
				return
			}
		}
		_ = flush.Flush()
		if ended || !follow {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-c.ended:
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *standIn) wait(w http.ResponseWriter, r *http.Request) {
	if c := s.of(w, r); c != nil {
		select {
		case <-c.ended:
			fmt.Fprintf(w, `{"StatusCode":%d}`, c.state.ExitCode)
		case <-r.Context().Done():
		}
	}
}

func (s *standIn) inspect(w http.ResponseWriter, r *http.Request) {
	if c := s.of(w, r); c != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": c.name, "State": c.state, "Config": map[string]any{"Labels": c.spec.Labels}})
	}
}

func (s *standIn) kill(w http.ResponseWriter, r *http.Request) {
	c := s.of(w, r)
	if c == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.state.Running {
		refuse(w, http.StatusConflict, "the container does not run")
		return
	}
	signals := map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGKILL": syscall.SIGKILL}
	_ = syscall.Kill(-c.command.Process.Pid, signals[r.URL.Query().Get("signal")])
	w.WriteHeader(http.StatusNoContent)
}

func (s *standIn) upload(w http.ResponseWriter, r *http.Request) {
	c := s.of(w, r)
	if c == nil {
		return
	}
	dir := s.place(c, r.URL.Query().Get("path"))
	for archive := tar.NewReader(r.Body); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(filepath.Join(dir, header.Name), 0o700)
		}
		if err == nil && header.Typeflag == tar.TypeReg {
			var text []byte
			if text, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(filepath.Join(dir, header.Name), text, 0o600)
			}
		}
		if err != nil {
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
}

func (s *standIn) download(w http.ResponseWriter, r *http.Request) {
	c := s.of(w, r)
	if c == nil {
		return
	}
	text, err := os.ReadFile(s.place(c, r.URL.Query().Get("path")))
	if err != nil {
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	archive := tar.NewWriter(w)
	_ = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "result", Mode: 0o600, Size: int64(len(text))})
	_, _ = archive.Write(text)
	_ = archive.Close()
}

func (s *standIn) remove(w http.ResponseWriter, r *http.Request) {
	c := s.of(w, r)
	if c == nil {
		return
	}
	s.mu.Lock()
	if c.state.Running {
		_ = syscall.Kill(-c.command.Process.Pid, syscall.SIGKILL)
	}
	delete(s.containers, c.name)
	running := c.state.Running
	s.mu.Unlock()
	if running {
		<-c.ended
	}
	_ = os.RemoveAll(c.dir)
	w.WriteHeader(http.StatusNoContent)
}

func (s *standIn) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []engine.Listed{}
	for name, c := range s.containers {
		if hasLabel(r, c.spec.Labels) {
			list = append(list, engine.Listed{ID: name, Labels: c.spec.Labels, State: c.state.Status, Created: c.created.Unix()})
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

// hasLabel reports whether labels match the filter of a request.
func hasLabel(r *http.Request, labels map[string]string) bool {
	var filters struct{ Label []string }
	_ = json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters)
	return !slices.ContainsFunc(filters.Label, func(want string) bool {
		name, value, _ := strings.Cut(want, "=")
		return labels[name] != value
	})
}

func (s *standIn) createVolume(w http.ResponseWriter, r *http.Request) {
	var v engine.Volume
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.volumes[v.Name] = v
	_ = os.MkdirAll(filepath.Join(s.dir, v.Name), 0o700)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, "{}")
}

func (s *standIn) listVolumes(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []engine.Volume{}
	for _, v := range s.volumes {
		if hasLabel(r, v.Labels) {
			list = append(list, v)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"Volumes": list})
}

func (s *standIn) removeVolume(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.volumes, r.PathValue("name"))
	w.WriteHeader(http.StatusNoContent)
}
