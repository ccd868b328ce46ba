package job

import (
	pathpkg "path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// WorkContainer is the kind of work of a container.
const WorkContainer Work = "container"

// Container is a command in a container, which the engine of a node runs: Docker or Podman.
//
// Command and Args replace the entrypoint and the command of the image, as in Kubernetes. Shell is
// a text for /bin/sh in the container, in place of both. In documents, [Shell] and the fields that
// run.shell has beside it may stand beside the container:
//
//	run: {container: alpine, shell: "echo hello", env: {A: b}}
type Container struct {
	Image   string   `json:"image" short:"true" max:"1024" doc:"The image, for example alpine:3.20 or registry.example.com/etl@sha256:…. The node must allow it, see containers.images in the configuration."`
	Shell   string   `json:"shell,omitzero" max:"65536" doc:"A command line for /bin/sh of the image, in place of command and args. A template."`
	Command []string `json:"command,omitzero" items:"1000" max:"65536" doc:"The program and its first arguments. Default: the entrypoint of the image. Templates."`
	Args    []string `json:"args,omitzero" items:"1000" max:"65536" doc:"Arguments behind command or the entrypoint of the image. Default: those of the image, unless command is set. Templates."`

	Env   map[string]string `json:"env,omitzero" secret:"value" items:"1000" doc:"Environment variables. Values are templates."`
	Files map[string]string `json:"files,omitzero" secret:"value" items:"50" max:"262144" doc:"Files that exist while the container does. Keys are environment variables for their paths, values their contents, as templates."`
	Dir   string            `json:"dir,omitzero" max:"4096" doc:"The working directory in the container, an absolute path. Default: the image's; with keep_together the volume that the steps share."`
	User  string            `json:"user,omitzero" max:"128" doc:"The user in the container, by name or number, with a group after a colon if needed: 1000:1000. Default: the image's."`

	Mounts   []string `json:"mounts,omitzero" items:"64" max:"8192" doc:"Directories and files of the node in the container: SOURCE:TARGET, or SOURCE:TARGET:ro to read only. Both are absolute paths, and the node must allow the source, see containers.mounts in its configuration."`
	Tmpfs    []string `json:"tmpfs,omitzero" items:"64" max:"4096" doc:"Directories in memory: an absolute path, or PATH:SIZE such as /tmp:64MiB."`
	ReadOnly bool     `json:"read_only,omitzero" doc:"The container cannot write to the files of its image."`
	Network  string   `json:"network,omitzero" max:"128" doc:"The network: none, or the name of one of the engine. Default: the engine's default network, which is not the host's."`

	Pull     Pull             `json:"pull,omitzero" doc:"When to pull the image: missing (default), if the engine does not have it; always, before each attempt; never."`
	Registry *Registry        `json:"registry,omitzero" doc:"How to sign in to the registry of the image."`
	Limits   *ContainerLimits `json:"limits,omitzero" doc:"Resource limits of the container."`

	StopSignal string `json:"stop_signal,omitzero" max:"16" doc:"The signal that asks the container to end, for example SIGINT. Default: the image's, else SIGTERM. SIGKILL follows after policy.kill_grace."`

	UnsafeParams bool `json:"unsafe_params,omitzero" doc:"Allow parameters as the program of a command, as code that it reads, or in PATH: anyone who may run the job may then run any program in the container."`
}

// ContainerLimits are the resource limits of a container.
type ContainerLimits struct {
	Memory Size    `json:"memory,omitzero" min:"6MiB" max:"1024TiB" doc:"The memory limit, for example 512MiB, without swap beyond it."`
	CPU    float64 `json:"cpu,omitzero" min:"0.01" max:"1024" doc:"The maximum number of processors; 0.5 is half of one."`
	PIDs   int     `json:"pids,omitzero" min:"1" max:"4194304" doc:"The maximum number of processes and threads. Default: that of the node, containers.pids."`
}

// Registry is how to sign in to a registry.
type Registry struct {
	Secret string `json:"secret" max:"64" doc:"The name of a secret with USER:PASSWORD, or with a config.json of docker login."`

	login string // value of the secret, in expanded work
}

// Login returns the value of the secret. Only expanded work has it.
func (r *Registry) Login() string { return r.login }

// Pull is when the image of a container is pulled.
type Pull string

// The times of pulling an image.
const (
	PullMissing Pull = "missing"
	PullAlways  Pull = "always"
	PullNever   Pull = "never"
)

// Values returns all times.
func (Pull) Values() []string { return texts(PullMissing, PullAlways, PullNever) }

// ContainerHandler is a handler of nodes that have a working container engine. No handler of a
// program has such a name.
const ContainerHandler = ":container"

// ContainerDir is the directory in a container that has the files of the job and the file for its
// result.
const ContainerDir = "/run/belfry"

// FlowVolumeDir is where the volume that the steps of a flow share is in their containers.
const FlowVolumeDir = "/flow"

// Mount is an entry of Container.Mounts.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// ParseMount reads an entry of Container.Mounts. Both paths are cleaned.
func ParseMount(text string) (Mount, error) {
	source, rest, _ := strings.Cut(text, ":")
	target, option, _ := strings.Cut(rest, ":")
	switch {
	case !pathpkg.IsAbs(source):
		return Mount{}, phrase.Mistake(phrase.NotNodePath.Of(quote(source)), phrase.Example.Of("/data/in:/in:ro"))
	case !pathpkg.IsAbs(target):
		return Mount{}, phrase.Mistake(phrase.NotInnerPath.Of(quote(target)), phrase.Example.Of("/data/in:/in:ro"))
	case option != "" && option != "ro" && option != "rw":
		return Mount{}, phrase.Mistake(phrase.NotMountOption.Of(quote(option)), phrase.MountOptions)
	case strings.ContainsFunc(text, unicode.IsControl):
		return Mount{}, phrase.Mistake(phrase.HasControl)
	case pathpkg.Clean(target) == "/":
		return Mount{}, phrase.Mistake(phrase.ReplacesImage, phrase.Example.Of("/data/in:/in:ro"))
	}
	return Mount{pathpkg.Clean(source), pathpkg.Clean(target), option == "ro"}, nil
}

// Tmpfs is an entry of Container.Tmpfs. A size of zero is the engine's default.
type Tmpfs struct {
	Target string
	Size   Size
}

// ParseTmpfs reads an entry of Container.Tmpfs.
func ParseTmpfs(text string) (t Tmpfs, err error) {
	target, size, sized := strings.Cut(text, ":")
	switch {
	case !pathpkg.IsAbs(target) || pathpkg.Clean(target) == "/":
		return t, phrase.Mistake(phrase.NotBelowRoot.Of(quote(target)), phrase.Example.Of("/tmp, or /tmp:64MiB"))
	case strings.ContainsFunc(target, unicode.IsControl):
		return t, phrase.Mistake(phrase.HasControl)
	}
	t.Target = pathpkg.Clean(target)
	if sized {
		err = t.Size.UnmarshalText([]byte(size))
	}
	return t, err
}

func (c *Container) kind() Work { return WorkContainer }

func (c *Container) spec() RunSpec { return RunSpec{Container: c} }

func (c *Container) traits() traits {
	return traits{handler: ContainerHandler, hasExitCode: true, hasOutput: true, hasUsage: true, unsafeParams: c.UnsafeParams, subject: c.Image}
}

func (c *Container) filled() work {
	filled := *c
	if filled.Pull == "" {
		filled.Pull = PullMissing
	}
	return &filled
}

func (c *Container) expand(visit visitor, run *path) work {
	at := run.field("container")
	expanded := *c
	expanded.Shell = visit(TemplateShell, c.Shell, at.field("shell"))
	expanded.Command = visit.each(c.Command, at.field("command"))
	expanded.Args = visit.each(c.Args, at.field("args"))
	expanded.Env = visit.all(TemplatePrivate, c.Env, at.field("env"))
	expanded.Files = visit.all(TemplatePrivate, c.Files, at.field("files"))
	if r := c.Registry; r != nil && IsSecretName(r.Secret) {
		login := visit(TemplatePrivate, "{{ .Secret."+r.Secret+" }}", at.at("registry.secret"))
		expanded.Registry = &Registry{Secret: r.Secret, login: login}
	}
	return &expanded
}

var (
	// imagePattern matches [HOST[:PORT]/]NAME[/NAME…][:TAG][@DIGEST].
	imagePattern   = regexp.MustCompile(`^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
	networkPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	signalPattern  = regexp.MustCompile(`^(SIG[A-Z][A-Z0-9+-]*|[1-9][0-9]?)$`)
	innerUser      = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]*|[0-9]+)(:([A-Za-z_][A-Za-z0-9_.-]*|[0-9]+))?$`)
)

func (c *Container) check(v *validator, j *Job, run *path) {
	at := run.field("container")
	c.checkImage(v, at)
	c.checkCommand(v, j, at)
	v.refuse(c.User != "" && !innerUser.MatchString(c.User), at.field("user"), phrase.NotInnerUser.Of(quote(c.User)), phrase.InnerUserForm)
	c.checkMounts(v, at)
	switch name := strings.ToLower(c.Network); {
	case name == "host" || name == "container" || name == "ns":
		v.report(at.field("network"), phrase.GivesNetwork.Of(quote(c.Network)), phrase.NetworkOrNone)
	case name != "":
		v.refuse(!networkPattern.MatchString(c.Network), at.field("network"), phrase.NotNetwork.Of(quote(c.Network)), phrase.NetworkForm)
	}
	if r := c.Registry; r != nil {
		v.refuse(!IsSecretName(r.Secret), at.at("registry.secret"), phrase.NotSecretName.Of(quote(r.Secret)), phrase.SecretNameForm.Of(SecretNameMax))
		v.refuse(c.Pull == PullNever, at.field("registry"), phrase.NoPull, phrase.LeaveOneOut)
	}
	v.refuse(c.StopSignal != "" && !signalPattern.MatchString(c.StopSignal), at.field("stop_signal"), phrase.NotSignal.Of(quote(c.StopSignal)), phrase.Example.Of("SIGTERM, SIGINT or SIGQUIT"))
}

func (c *Container) checkImage(v *validator, at *path) {
	switch {
	case c.Image == "":
		v.report(at.field("image"), phrase.Missing, phrase.Example.Of("alpine:3.20"))
	case strings.Contains(c.Image, "{{"):
		v.report(at.field("image"), phrase.NotATemplate.Of("{{"))
	case !imagePattern.MatchString(c.Image):
		v.report(at.field("image"), phrase.NotImage.Of(quote(c.Image)), phrase.ImageForm)
	}
}

// checkCommand checks the command and its environment.
func (c *Container) checkCommand(v *validator, j *Job, at *path) {
	v.refuse(c.Shell != "" && strings.TrimSpace(c.Shell) == "", at.field("shell"), phrase.Blank)
	v.refuse(c.Shell != "" && len(c.Command) > 0, at.field("command"), phrase.NotWith.Of("shell"), phrase.LeaveOneOut)
	v.refuse(c.Shell != "" && len(c.Args) > 0, at.field("args"), phrase.NotWith.Of("shell"), phrase.LeaveOneOut)
	if len(c.Command) == 1 {
		text, _, _ := strings.Cut(c.Command[0], "{{")
		if strings.ContainsAny(strings.TrimSpace(text), " \t\n") {
			v.report(at.field("command").item(0), phrase.ProgramBlank.Of(quote(c.Command[0])), phrase.WriteListOrShell.Of("["+strings.Join(strings.Fields(c.Command[0]), ", ")+"]"))
		}
	}
	for i, word := range c.Command {
		v.refuse(i == 0 && word == "", at.field("command").item(i), phrase.Empty)
	}
	(&Shell{Env: c.Env, Files: c.Files}).checkProcess(v, at)
	v.refuse(c.Dir != "" && !pathpkg.IsAbs(c.Dir), at.field("dir"), phrase.NotInnerPath.Of(quote(c.Dir)))
	v.refuse(strings.ContainsFunc(c.Dir, unicode.IsControl), at.field("dir"), phrase.HasControl)
	if !c.UnsafeParams {
		var words []wordAt
		for i, text := range c.Command {
			words = append(words, wordAt{at.field("command").item(i), text})
		}
		for i, text := range c.Args {
			words = append(words, wordAt{at.field("args").item(i), text})
		}
		v.checkPositions(j.paramNames(), words, c.Env, at.field("env"))
	}
}

// checkMounts checks the mounts that replace files of the image.
func (c *Container) checkMounts(v *validator, at *path) {
	taken := map[string]bool{}
	target := func(at *path, name string) {
		v.refuse(taken[name], at, phrase.TargetTaken.Of(quote(name)))
		v.refuse(name == ContainerDir || strings.HasPrefix(name, ContainerDir+"/") || strings.HasPrefix(ContainerDir+"/", name+"/"), at,
			phrase.WouldHide.Of(quote(name), ContainerDir))
		taken[name] = true
	}
	for i, text := range c.Mounts {
		here := at.field("mounts").item(i)
		m, err := ParseMount(text)
		if v.reportError(here, err); err == nil {
			target(here, m.Target)
		}
	}
	for i, text := range c.Tmpfs {
		here := at.field("tmpfs").item(i)
		t, err := ParseTmpfs(text)
		if v.reportError(here, err); err == nil {
			target(here, t.Target)
		}
	}
}

// besideContainer moves fields that stand beside run.container or run.kubernetes into it: shell, which
// is then a command in the container, and its common fields with run.shell.
func besideContainer(run *node, kind Work, container reflect.Type) {
	at := slices.IndexFunc(run.entries, func(e entry) bool { return e.key.text == string(kind) })
	if at < 0 || run.entries[at].value.kind != scalarNode && run.entries[at].value.kind != mappingNode {
		return
	}
	fields, inside := fieldsOf(runSpecType), fieldsOf(container)
	shell := fieldNamed(fields, string(WorkShell))
	var moved []entry
	stay := run.entries[:0:0]
	for _, e := range run.entries {
		f := fieldNamed(fields, e.key.text)
		if f != nil && e.value.kind != nullNode && (f == shell || f.owner == shell.index) && fieldNamed(inside, f.name) != nil {
			moved = append(moved, e)
			continue
		}
		stay = append(stay, e)
	}
	if len(moved) == 0 {
		return
	}
	run.entries = stay
	at = slices.IndexFunc(stay, func(e entry) bool { return e.key.text == string(kind) })
	inner := *stay[at].value
	if inner.kind == scalarNode {
		image := inner
		inner = node{kind: mappingNode, line: image.line, column: image.column, entries: []entry{{textNode("image"), &image}}}
	}
	inner.entries = slices.Concat(inner.entries, moved)
	stay[at].value = &inner
}
