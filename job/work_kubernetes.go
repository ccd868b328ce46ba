package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// WorkKubernetes is the kind of work of a Job of Kubernetes.
const WorkKubernetes Work = "kubernetes"

// Kubernetes is a Job in a cluster of Kubernetes, one for each attempt: see docs/kubernetes-jobs.md.
//
// The pod has one container, described as in run.container, or is that of Template.
type Kubernetes struct {
	Image   string   `json:"image,omitzero" short:"true" max:"1024" doc:"The image of the only container, for example alpine:3.20. The configuration must allow it, see kubernetes.clusters. Not with template."`
	Shell   string   `json:"shell,omitzero" max:"8192" doc:"A command line for /bin/sh of the image, in place of command and args. A template."`
	Command []string `json:"command,omitzero" items:"1000" max:"8192" doc:"The program and its first arguments. Default: the entrypoint of the image. Templates."`
	Args    []string `json:"args,omitzero" items:"1000" max:"8192" doc:"Arguments behind command or the entrypoint of the image. Default: those of the image, unless command is set. Templates."`

	Env       map[string]string `json:"env,omitzero" secret:"value" items:"1000" max:"8192" doc:"Environment variables, also beside template. Values are templates without secrets, since the cluster shows them."`
	SecretEnv map[string]string `json:"secret_env,omitzero" items:"100" max:"512" doc:"Environment variables from Secrets of the cluster, as SECRET/KEY, for example shop-db/password. Also beside template."`
	Dir       string            `json:"dir,omitzero" max:"4096" doc:"The working directory in the container, an absolute path. Default: the image's."`
	User      string            `json:"user,omitzero" max:"32" doc:"The user in the container by number, with a group after a colon if needed: 1000:1000. Default: the image's."`
	ReadOnly  bool              `json:"read_only,omitzero" doc:"The container cannot write to the files of its image."`
	Pull      Pull              `json:"pull,omitzero" doc:"When to pull the image: missing (default), if the node of the cluster does not have it; always; never."`
	Limits    *PodLimits        `json:"limits,omitzero" doc:"Resource limits of the container, which the cluster also reserves for it."`

	Template string `json:"template,omitzero" max:"12288" doc:"A pod template of Kubernetes in YAML or JSON, in place of the fields of a container. Texts in it are templates. The output and the exit code are those of its first container."`

	Cluster        string `json:"cluster,omitzero" max:"63" doc:"The name of the cluster in kubernetes.clusters of the configuration. Default: default."`
	Namespace      string `json:"namespace,omitzero" max:"63" doc:"The namespace of the Job in the cluster. Default: that of the cluster in the configuration."`
	ServiceAccount string `json:"service_account,omitzero" max:"253" doc:"The service account of the pod, whose token it gets. The configuration must allow it. Default: that of the namespace, without its token."`

	UnsafeParams bool `json:"unsafe_params,omitzero" doc:"Allow parameters as the program of a command, as code that it reads, or in PATH: anyone who may run the job may then run any program in the container."`
}

// PodLimits are the resource limits of a container in a cluster.
type PodLimits struct {
	Memory Size    `json:"memory,omitzero" min:"6MiB" max:"1024TiB" doc:"The memory limit, for example 512MiB."`
	CPU    float64 `json:"cpu,omitzero" min:"0.001" max:"1024" doc:"The maximum number of processors; 0.5 is half of one."`
}

// ClusterDefault is the cluster of jobs that name none.
const ClusterDefault = "default"

// clusterPrefix begins the handlers of nodes that reach a cluster. No handler of a program has such a
// name.
const clusterPrefix = ":kubernetes="

// ClusterHandler returns the handler of nodes that reach a cluster of their configuration.
func ClusterHandler(cluster string) string { return clusterPrefix + cluster }

// ClusterOf returns the cluster of a handler; ok is false for other handlers.
func ClusterOf(handler string) (cluster string, ok bool) {
	return strings.CutPrefix(handler, clusterPrefix)
}

func (k *Kubernetes) kind() Work { return WorkKubernetes }

func (k *Kubernetes) spec() RunSpec { return RunSpec{Kubernetes: k} }

func (k *Kubernetes) traits() traits {
	cluster := k.Cluster
	if cluster == "" {
		cluster = ClusterDefault
	}
	return traits{handler: ClusterHandler(cluster), hasExitCode: true, hasOutput: true, unsafeParams: k.UnsafeParams, subject: k.Image}
}

func (k *Kubernetes) filled() work {
	filled := *k
	if filled.Pull == "" && filled.Template == "" {
		filled.Pull = PullMissing
	}
	if filled.Cluster == "" {
		filled.Cluster = ClusterDefault
	}
	return &filled
}

func (k *Kubernetes) expand(visit visitor, run *path) work {
	at := run.field("kubernetes")
	expanded := *k
	expanded.Shell = visit(TemplateShell, k.Shell, at.field("shell"))
	expanded.Command = visit.each(k.Command, at.field("command"))
	expanded.Args = visit.each(k.Args, at.field("args"))
	expanded.Env = visit.all(TemplateText, k.Env, at.field("env"))
	if pod, err := k.pod(); err == nil && pod != nil {
		at = at.field("template")
		text, err := json.Marshal(mapTexts(pod, func(text string) string { return visit(TemplateText, text, at) }))
		if err == nil {
			expanded.Template = string(text)
		}
	}
	return &expanded
}

// pod decodes the template, nil for none.
func (k *Kubernetes) pod() (pod map[string]any, err error) {
	if k.Template == "" {
		return nil, nil
	}
	if err := yaml.Unmarshal([]byte(k.Template), &pod); err != nil {
		return nil, err
	}
	if _, err := json.Marshal(pod); err != nil { // a key that is no text
		return nil, err
	}
	return pod, nil
}

// mapTexts returns a copy of a value of JSON with each text changed.
func mapTexts(value any, change func(string) string) any {
	switch v := value.(type) {
	case string:
		return change(v)
	case []any:
		changed := make([]any, len(v))
		for i := range v {
			changed[i] = mapTexts(v[i], change)
		}
		return changed
	case map[string]any:
		changed := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			changed[key] = mapTexts(v[key], change)
		}
		return changed
	}
	return value
}

var (
	// kubeName matches names that clusters accept as labels of DNS.
	kubeName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	kubeSubname = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	secretKey   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9._-]{1,253}$`)
	podUser     = regexp.MustCompile(`^[0-9]{1,10}(:[0-9]{1,10})?$`)
)

func (k *Kubernetes) check(v *validator, j *Job, run *path) {
	at := run.field("kubernetes")
	v.refuse((k.Image == "") == (k.Template == ""), at, phrase.ImageOrTemplate, phrase.Example.Of("image: alpine:3.20"))
	c := Container{Image: k.Image, Shell: k.Shell, Command: k.Command, Args: k.Args, Env: k.Env, Dir: k.Dir, UnsafeParams: k.UnsafeParams}
	if k.Template == "" {
		if k.Image != "" {
			c.checkImage(v, at)
		}
		v.refuse(k.User != "" && !podUser.MatchString(k.User), at.field("user"), phrase.NotPodUser.Of(quote(k.User)), phrase.Example.Of("1000:1000"))
	} else {
		k.checkTemplate(v, j, at)
	}
	c.checkCommand(v, j, at)
	v.refuse(k.Cluster != "" && !kubeName.MatchString(k.Cluster), at.field("cluster"), phrase.NotKubeName.Of(quote(k.Cluster)), phrase.KubeNameForm)
	v.refuse(k.Namespace != "" && !kubeName.MatchString(k.Namespace), at.field("namespace"), phrase.NotKubeName.Of(quote(k.Namespace)), phrase.KubeNameForm)
	v.refuse(k.ServiceAccount != "" && !kubeSubname.MatchString(k.ServiceAccount), at.field("service_account"), phrase.NotKubeName.Of(quote(k.ServiceAccount)), phrase.KubeNameForm)
	for _, name := range slices.Sorted(maps.Keys(k.SecretEnv)) {
		here := at.field("secret_env").field(name)
		v.checkVariable(here, name)
		v.refuse(strings.HasPrefix(name, variablePrefix), here, phrase.ReservedPrefix.Of(variablePrefix))
		_, both := k.Env[name]
		v.refuse(both, here, phrase.NotWith.Of("env."+name), phrase.LeaveOneOut)
		v.refuse(!secretKey.MatchString(k.SecretEnv[name]), here, phrase.NotSecretKey.Of(quote(k.SecretEnv[name])), phrase.Example.Of("shop-db/password"))
	}
}

// podTemplateForm shows a pod template.
var podTemplateForm = phrase.PodTemplateForm.Of("spec: {containers: [{name: main, image: alpine}]}")

// checkTemplate checks the fields of a pod template, and what Belfry needs of it. The cluster checks the values.
func (k *Kubernetes) checkTemplate(v *validator, j *Job, at *path) {
	for _, f := range []struct {
		name  string
		isSet bool
	}{
		{"shell", k.Shell != ""}, {"command", len(k.Command) > 0}, {"args", len(k.Args) > 0}, {"dir", k.Dir != ""}, {"user", k.User != ""},
		{"read_only", k.ReadOnly}, {"pull", k.Pull != ""}, {"limits", k.Limits != nil},
	} {
		v.refuse(f.isSet, at.field(f.name), phrase.NotWith.Of("template"), phrase.WriteInTemplate)
	}
	at = at.field("template")
	at.hasParts = true
	pod, err := k.pod()
	if err != nil {
		v.report(at, phrase.NotPodTemplate.Of(phrase.Words(strings.TrimPrefix(err.Error(), "yaml: "))), podTemplateForm)
		return
	}
	wrong := func(text string) { v.report(at, phrase.NotPodTemplate.Of(phrase.Words(text)), podTemplateForm) }
	v.checkPod(pod, podTemplate, at)
	spec, _ := pod["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		wrong("spec.containers is missing")
		return
	}
	for i, one := range containers {
		c, _ := one.(map[string]any)
		for _, name := range []string{"name", "image"} {
			if text, _ := c[name].(string); text == "" {
				wrong(fmt.Sprintf("spec.containers[%d].%s is missing", i, name))
			}
		}
	}
	inits, _ := spec["initContainers"].([]any)
	for _, one := range slices.Concat(containers, inits) {
		if c, _ := one.(map[string]any); !k.UnsafeParams {
			v.checkPositions(j.paramNames(), wordsOf(c, at), envOf(c), at)
		}
	}
	if policy, isSet := spec["restartPolicy"]; isSet && policy != "Never" {
		v.report(at, phrase.NeverRestarts.Of(phrase.Quoted(fmt.Sprint(policy))), phrase.Example.Of("restartPolicy: Never"))
	}
}

// wordsOf returns the command of a container in a template.
func wordsOf(container map[string]any, at *path) (words []wordAt) {
	for _, field := range []string{"command", "args"} {
		list, _ := container[field].([]any)
		for _, one := range list {
			text, _ := one.(string)
			words = append(words, wordAt{at, text})
		}
	}
	return words
}

// envOf returns the variables of a container in a template.
func envOf(container map[string]any) map[string]string {
	env := map[string]string{}
	list, _ := container["env"].([]any)
	for _, one := range list {
		variable, _ := one.(map[string]any)
		name, _ := variable["name"].(string)
		env[name], _ = variable["value"].(string)
	}
	return env
}

// each returns a copy of texts with each replaced.
func (visit visitor) each(texts []string, at *path) []string {
	texts = slices.Clone(texts)
	for i, text := range texts {
		texts[i] = visit(TemplateText, text, at.item(i))
	}
	return texts
}
