package container

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/executor/internal/pattern"
	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

const (
	// filePrefix begins the names of files of the job, and resultFile is the file for its result.
	filePrefix = "file-"
	resultFile = "result"
	// resultVariable names the file into which a step of a flow writes its result, and flowVariable
	// the directory that the steps of a flow share.
	resultVariable = verdict.ResultVariable
	flowVariable   = "BELFRY_FLOW_DIR"
	// flowDir is the directory in the shared volume.
	flowDir = job.FlowVolumeDir + "/shared"

	// logSize and logFiles bound the output that an engine keeps: a node reads it at once, and
	// needs more only after an outage.
	logSize, logFiles = "64m", "2"
	// cpuUnits is the number of an engine's units in a processor.
	cpuUnits = 1e9
)

// specOf returns the container of the attempt, or why this node does not run it.
func (r *attempt) specOf(s *Settings) (*engine.Spec, job.Reason) {
	c := r.work
	if namespace := r.Job.Namespace; len(s.Namespaces) > 0 && !slices.Contains(s.Namespaces, namespace) {
		return nil, reason.NotOnNode.Of("a container of the namespace "+namespace, "containers.namespaces")
	}
	if len(s.Images) > 0 && !pattern.Image(s.Images, c.Image) {
		return nil, reason.NotOnNode.Of("the image "+c.Image, "containers.images")
	}
	host := engine.Host{
		ReadonlyRootfs: c.ReadOnly, NetworkMode: c.Network,
		CapDrop: []string{"ALL"}, CapAdd: s.Capabilities, SecurityOpt: []string{"no-new-privileges"},
		PidsLimit: int64(s.PIDs), LogConfig: engine.Log{Type: "json-file", Config: map[string]string{"max-size": logSize, "max-file": logFiles}},
	}
	if r.polls.Load() {
		host.LogConfig = engine.Log{Type: "k8s-file"}
	}
	if l := c.Limits; l != nil {
		host.Memory, host.MemorySwap = int64(l.Memory), int64(l.Memory) // without additional swap
		host.NanoCPUs = int64(l.CPU * cpuUnits)
		if l.PIDs > 0 {
			host.PidsLimit = int64(l.PIDs)
		}
	}
	for _, text := range c.Mounts {
		m, err := job.ParseMount(text)
		if err != nil {
			return nil, job.Text(err.Error())
		}
		source, allowed := within(s.Mounts, m.Source)
		if !allowed {
			return nil, reason.NotOnNode.Of("the mount of "+m.Source, "containers.mounts")
		}
		host.Mounts = append(host.Mounts, engine.Mount{Type: "bind", Source: source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	for _, text := range c.Tmpfs {
		t, err := job.ParseTmpfs(text)
		if err != nil {
			return nil, job.Text(err.Error())
		}
		if host.Tmpfs == nil {
			host.Tmpfs = map[string]string{}
		}
		options := "rw,nosuid,nodev"
		if t.Size > 0 {
			options += ",size=" + attemptLabel(int(t.Size))
		}
		host.Tmpfs[t.Target] = options
	}
	if len(c.Files) > 0 || r.WantsResult {
		host.Mounts = append(host.Mounts, engine.Mount{Type: "volume", Target: job.ContainerDir})
	}
	dir := c.Dir
	if r.Together {
		host.Mounts = append(host.Mounts, engine.Mount{Type: "volume", Source: volumeOf(r.Attempt.Run.Parent), Target: job.FlowVolumeDir})
		if dir == "" {
			dir = flowDir
		}
	}
	spec := &engine.Spec{
		Image: c.Image, Entrypoint: c.Command, Cmd: c.Args, Env: r.environment(), WorkingDir: dir, User: c.User, StopSignal: c.StopSignal, HostConfig: host,
		Labels: map[string]string{
			labelNode: r.config.Node, labelRun: r.Attempt.Run.ID.String(), labelAttempt: attemptLabel(r.Number), labelJob: r.Job.FullName(),
		},
	}
	if c.Shell != "" {
		spec.Entrypoint, spec.Cmd = []string{"/bin/sh", "-c"}, []string{c.Shell}
	}
	return spec, job.Reason{}
}

// environment returns the variables of the container in the form NAME=value.
func (r *attempt) environment() []string {
	data := r.Data
	data.Run, data.Attempt = r.Attempt.Run.ID, r.Number
	data.Params = map[string]string{}
	for name, param := range r.Job.Params {
		data.Params[name] = param.Default
	}
	maps.Copy(data.Params, r.Data.Params)
	all := maps.Clone(r.work.Env)
	if all == nil {
		all = map[string]string{}
	}
	for variable := range r.work.Files {
		all[variable] = job.ContainerDir + "/" + filePrefix + variable
	}
	maps.Copy(all, data.Environment())
	if r.WantsResult {
		all[resultVariable] = job.ContainerDir + "/" + resultFile
	}
	if r.Together {
		all[flowVariable] = flowDir
	}
	env := make([]string, 0, len(all))
	for name, value := range all {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// files returns the archive of the job's files, nil for none. Every user of the container may read
// them: no other container has the volume, and only the image may know the user.
func (r *attempt) files() []byte {
	if len(r.work.Files) == 0 && !r.WantsResult {
		return nil
	}
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	add := func(name, text string, mode int64) {
		// Writing into memory cannot fail.
		_ = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text))})
		_, _ = io.WriteString(archive, text)
	}
	for _, variable := range slices.Sorted(maps.Keys(r.work.Files)) {
		add(filePrefix+variable, r.work.Files[variable], 0o444)
	}
	if r.WantsResult {
		add(resultFile, "", 0o666)
	}
	_ = archive.Close()
	return b.Bytes()
}

// within resolves the links in the source of a mount, and reports whether it is in one of some
// directories.
func within(dirs []string, source string) (string, bool) {
	real, err := filepath.EvalSymlinks(source)
	if err != nil {
		return source, false
	}
	return real, slices.ContainsFunc(dirs, func(dir string) bool {
		if target, err := filepath.EvalSymlinks(dir); err == nil {
			dir = target
		}
		below, err := filepath.Rel(dir, real)
		return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(os.PathSeparator))
	})
}

func unmarshal(text json.RawMessage, to any) error { return json.Unmarshal(text, to) }
