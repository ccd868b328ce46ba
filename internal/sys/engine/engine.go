// Package engine speaks with a container engine, Docker or Podman, by the API of Docker over a Unix
// socket: the few calls that running a command in a container needs.
package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// dialWithin bounds connecting to the socket, which a working engine accepts at once.
	dialWithin = 5 * time.Second
	// answerWithin bounds calls other than waits. An engine under load may take seconds to create a
	// container.
	answerWithin = time.Minute
	// errorMax bounds the text of an error.
	errorMax = 16 << 10
	// answerMax bounds an answer: the list of all containers of a fully loaded node.
	answerMax = 64 << 20
	// idleMax is how many idle connections are kept.
	idleMax = 32
)

// Error is an answer of an engine that refuses a call.
type Error struct {
	Status int
	Text   string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// IsNotFound reports whether an engine's error means that an object does not exist.
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsConflict reports whether an engine's error means a conflict with the state of an object: a
// container of the name exists, or does not run.
func IsConflict(err error) bool { return hasStatus(err, http.StatusConflict) }

func hasStatus(err error, status int) bool {
	var answer *Error
	return errors.As(err, &answer) && answer.Status == status
}

// IsAway reports whether an error means that the engine did not answer.
func IsAway(err error) bool {
	var answer *Error
	return err != nil && !errors.As(err, &answer)
}

// Engine is a container engine. Its methods may be called from any goroutine.
type Engine struct {
	socket string
	client *http.Client
}

// New returns the engine with a socket. It makes no call.
func New(socket string) *Engine {
	dialer := net.Dialer{Timeout: dialWithin}
	return &Engine{socket: socket, client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: idleMax,
		IdleConnTimeout:     time.Minute,
	}}}
}

// Socket returns the path of the socket.
func (e *Engine) Socket() string { return e.socket }

// Close closes idle connections.
func (e *Engine) Close() { e.client.CloseIdleConnections() }

// Find returns the configured socket: "none" is none, and "" the first usual place of this machine
// that has a socket of an engine. It returns "" for no socket.
func Find(configured string, getenv func(string) string) string {
	switch configured {
	case "":
	case "none":
		return ""
	default:
		return configured
	}
	places := []string{"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		places = append(places, filepath.Join(dir, "docker.sock"), filepath.Join(dir, "podman", "podman.sock"))
	}
	uid := strconv.Itoa(os.Getuid())
	places = append(places, "/run/user/"+uid+"/docker.sock", "/run/user/"+uid+"/podman/podman.sock")
	for _, place := range places {
		if info, err := os.Stat(place); err == nil && info.Mode()&os.ModeSocket != 0 {
			return place
		}
	}
	return ""
}

// send sends a request. The caller closes the body of the answer.
func (e *Engine) send(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader) (*http.Response, error) {
	address := url.URL{Scheme: "http", Host: "engine", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, address.String(), body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	answer, err := e.client.Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the address in it has no meaning for people
		}
		return nil, fmt.Errorf("%s: %w", e.socket, err)
	}
	if answer.StatusCode < http.StatusBadRequest {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, errorMax))
	var reply struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &reply) != nil || reply.Message == "" {
		reply.Message = cmp.Or(strings.TrimSpace(string(text)), answer.Status)
	}
	return nil, &Error{answer.StatusCode, reply.Message}
}

// call sends a request, and reads the answer into a value unless that is nil.
func (e *Engine) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var body io.Reader
	header := http.Header{}
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
		header.Set("Content-Type", "application/json")
	}
	answer, err := e.send(ctx, method, path, query, header, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	limited := io.LimitReader(answer.Body, answerMax)
	if out != nil {
		if err := json.NewDecoder(limited).Decode(out); err != nil {
			return fmt.Errorf("%s: read the answer to %s: %w", e.socket, path, err)
		}
	}
	_, _ = io.Copy(io.Discard, limited) // so that the connection can be reused
	return nil
}

// Version is an engine's name and version.
type Version struct{ Name, Version, API string }

// String formats the version: Podman 4.3.1.
func (v Version) String() string { return v.Name + " " + v.Version }

// Version requests the product and version of the engine.
func (e *Engine) Version(ctx context.Context) (Version, error) {
	var answer struct {
		Version    string
		APIVersion string `json:"ApiVersion"`
		Components []struct{ Name string }
	}
	if err := e.call(ctx, http.MethodGet, "/version", nil, nil, &answer); err != nil {
		return Version{}, err
	}
	v := Version{"Docker", answer.Version, answer.APIVersion}
	for _, c := range answer.Components {
		if strings.Contains(c.Name, "Podman") {
			v.Name = "Podman"
		}
	}
	return v, nil
}

// Ping returns how an engine names itself and its version. For [Engine.Version] Podman searches the packages of the
// machine, with a second of processor time on Debian.
func (e *Engine) Ping(ctx context.Context) (server string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer, err := e.send(ctx, http.MethodGet, "/_ping", nil, nil, nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, answerMax)) // so that the connection can be reused
	return answer.Header.Get("Server"), nil
}

// Image is an engine's data about an image.
type Image struct {
	ID     string `json:"Id"`
	Config struct{ StopSignal string }
}

// Image returns an image of the engine.
func (e *Engine) Image(ctx context.Context, name string) (Image, error) {
	var i Image
	return i, e.call(ctx, http.MethodGet, "/images/"+name+"/json", nil, nil, &i)
}

// Login is how to sign in to a registry.
type Login struct {
	User     string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Server   string `json:"serveraddress,omitempty"`
}

// Progress is a message about the pull of an image.
type Progress struct {
	Status         string `json:"status"`
	ID             string `json:"id"`
	Error          string `json:"error"`
	ProgressDetail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
}

// Pull pulls an image. It calls say for each message, and returns the first error among them.
func (e *Engine) Pull(ctx context.Context, name string, login *Login, say func(Progress)) error {
	query := url.Values{"fromImage": {name}}
	last := name[strings.LastIndex(name, "/")+1:]
	if !strings.ContainsAny(last, ":@") {
		query.Set("tag", "latest") // without a tag Docker pulls all tags
	}
	header := http.Header{}
	if login != nil {
		text, err := json.Marshal(login) //nolint:gosec // the engine wants the password
		if err != nil {
			return err
		}
		header.Set("X-Registry-Auth", base64.URLEncoding.EncodeToString(text))
	}
	answer, err := e.send(ctx, http.MethodPost, "/images/create", query, header, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for messages := json.NewDecoder(answer.Body); ; {
		var p Progress
		switch err := messages.Decode(&p); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: read the progress of a pull: %w", e.socket, err)
		case p.Error != "":
			return &Error{http.StatusInternalServerError, p.Error}
		}
		say(p)
	}
}

// Mount is a volume or a directory of the machine in a container.
type Mount struct {
	Type     string // bind or volume
	Source   string `json:",omitempty"`
	Target   string
	ReadOnly bool `json:",omitempty"`
}

// Log is where an engine keeps the output of a container.
type Log struct {
	Type   string
	Config map[string]string `json:",omitempty"`
}

// Host is how a container uses its machine.
type Host struct {
	Mounts         []Mount           `json:",omitempty"`
	Tmpfs          map[string]string `json:",omitempty"`
	ReadonlyRootfs bool              `json:",omitempty"`
	NetworkMode    string            `json:",omitempty"`
	Memory         int64             `json:",omitempty"`
	MemorySwap     int64             `json:",omitempty"`
	NanoCPUs       int64             `json:"NanoCpus,omitempty"`
	PidsLimit      int64             `json:",omitempty"`
	CapDrop        []string
	CapAdd         []string `json:",omitempty"`
	SecurityOpt    []string
	LogConfig      Log
}

// Spec is a container to create.
type Spec struct {
	Image      string
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	Env        []string
	WorkingDir string `json:",omitempty"`
	User       string `json:",omitempty"`
	Labels     map[string]string
	StopSignal string `json:",omitempty"`
	HostConfig Host
}

// Create creates a container with a name.
func (e *Engine) Create(ctx context.Context, name string, spec *Spec) error {
	return e.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {name}}, spec, nil)
}

// Start starts a container. A running one stays unchanged.
func (e *Engine) Start(ctx context.Context, name string) error {
	return e.call(ctx, http.MethodPost, "/containers/"+name+"/start", nil, nil, nil)
}

// Upload unpacks a tar archive into a directory of a container.
func (e *Engine) Upload(ctx context.Context, name, dir string, archive []byte) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer, err := e.send(ctx, http.MethodPut, "/containers/"+name+"/archive", url.Values{"path": {dir}}, http.Header{"Content-Type": {"application/x-tar"}}, bytes.NewReader(archive))
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Download returns a tar archive with a file of a container. The caller closes it.
func (e *Engine) Download(ctx context.Context, name, file string) (io.ReadCloser, error) {
	answer, err := e.send(ctx, http.MethodGet, "/containers/"+name+"/archive", url.Values{"path": {file}}, nil, nil)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// State is the state of a container.
type State struct {
	Status     string // created, running, exited and others
	Running    bool
	OOMKilled  bool
	ExitCode   int
	Error      string
	StartedAt  time.Time
	FinishedAt time.Time
}

// Begun reports whether the container was started.
func (s *State) Begun() bool {
	return s.Running || s.Status != "created" && s.Status != "configured" && s.Status != "initialized"
}

// Container is a container of an engine.
type Container struct {
	ID     string `json:"Id"`
	State  State
	Config struct {
		Labels     map[string]string
		StopSignal string
	}
}

// Inspect returns a container.
func (e *Engine) Inspect(ctx context.Context, name string) (Container, error) {
	var c Container
	return c, e.call(ctx, http.MethodGet, "/containers/"+name+"/json", nil, nil, &c)
}

// Stats are what a running container has used since its start.
type Stats struct {
	CPU struct {
		Usage struct {
			Total int64 `json:"total_usage"` // in nanoseconds
		} `json:"cpu_usage"`
	} `json:"cpu_stats"`
	Memory struct {
		Usage uint64 `json:"usage"` // now
		Stats struct {
			Inactive uint64 `json:"inactive_file"`
		} `json:"stats"`
	} `json:"memory_stats"`
	Block struct {
		Bytes []struct {
			Op    string `json:"op"`
			Value uint64 `json:"value"`
		} `json:"io_service_bytes_recursive"`
	} `json:"blkio_stats"`
}

// Stats returns what a container uses, without the wait of an engine for a second sample.
func (e *Engine) Stats(ctx context.Context, name string) (s Stats, err error) {
	return s, e.call(ctx, http.MethodGet, "/containers/"+name+"/stats", url.Values{"stream": {"0"}, "one-shot": {"1"}}, nil, &s)
}

// Wait waits until a container is not running.
func (e *Engine) Wait(ctx context.Context, name string) error {
	answer, err := e.send(ctx, http.MethodPost, "/containers/"+name+"/wait", url.Values{"condition": {"not-running"}}, nil, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, errorMax))
	return err
}

// Kill sends a signal to the first process of a container.
func (e *Engine) Kill(ctx context.Context, name, signal string) error {
	return e.call(ctx, http.MethodPost, "/containers/"+name+"/kill", url.Values{"signal": {signal}}, nil, nil)
}

// Remove removes a container with its own volumes, and kills it before if it runs.
func (e *Engine) Remove(ctx context.Context, name string) error {
	return e.call(ctx, http.MethodDelete, "/containers/"+name, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
}

// Listed is a container in a list.
type Listed struct {
	ID      string `json:"Id"`
	Labels  map[string]string
	State   string
	Created int64 // seconds since 1970
}

// List returns the containers with a label, running or not.
func (e *Engine) List(ctx context.Context, label, value string) (list []Listed, err error) {
	return list, e.call(ctx, http.MethodGet, "/containers/json", labelled(url.Values{"all": {"1"}}, label, value), nil, &list)
}

func labelled(query url.Values, label, value string) url.Values {
	filter, _ := json.Marshal(map[string][]string{"label": {label + "=" + value}}) // texts always encode
	query.Set("filters", string(filter))
	return query
}

// Volume is a volume of an engine.
type Volume struct {
	Name   string
	Labels map[string]string
}

// CreateVolume creates a volume unless one with the name exists.
func (e *Engine) CreateVolume(ctx context.Context, v Volume) error {
	return e.call(ctx, http.MethodPost, "/volumes/create", nil, v, nil)
}

// Volumes returns the volumes with a label.
func (e *Engine) Volumes(ctx context.Context, label, value string) ([]Volume, error) {
	var list struct{ Volumes []Volume }
	return list.Volumes, e.call(ctx, http.MethodGet, "/volumes", labelled(url.Values{}, label, value), nil, &list)
}

// RemoveVolume removes a volume that no container uses.
func (e *Engine) RemoveVolume(ctx context.Context, name string) error {
	return e.call(ctx, http.MethodDelete, "/volumes/"+name, nil, nil, nil)
}
