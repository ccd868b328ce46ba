// Package kubernetes turns CronJobs of Kubernetes into jobs. It reads their text, and neither files
// nor a cluster.
package kubernetes

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/job"
)

// Options are what CronJobs do not say.
type Options struct {
	// Zone is the time zone of the controller manager, which CronJobs without timeZone mean.
	Zone string
	// Shell runs the commands of the pods on nodes, in place of containers.
	Shell bool
}

// cronJob has the fields of a CronJob that become a field of a job or a note.
type cronJob struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       struct {
		Schedule                   string `yaml:"schedule"`
		TimeZone                   string `yaml:"timeZone"`
		ConcurrencyPolicy          string `yaml:"concurrencyPolicy"`
		StartingDeadlineSeconds    *int64 `yaml:"startingDeadlineSeconds"`
		Suspend                    bool   `yaml:"suspend"`
		SuccessfulJobsHistoryLimit *int   `yaml:"successfulJobsHistoryLimit"`
		FailedJobsHistoryLimit     *int   `yaml:"failedJobsHistoryLimit"`
		JobTemplate                struct {
			Spec jobSpec `yaml:"spec"`
		} `yaml:"jobTemplate"`
	} `yaml:"spec"`
}

type metadata struct {
	Name      string            `yaml:"name"`
	Namespace string            `yaml:"namespace"`
	Labels    map[string]string `yaml:"labels"`
}

type jobSpec struct {
	BackoffLimit            *int   `yaml:"backoffLimit"`
	ActiveDeadlineSeconds   *int64 `yaml:"activeDeadlineSeconds"`
	Completions             *int   `yaml:"completions"`
	Parallelism             *int   `yaml:"parallelism"`
	TTLSecondsAfterFinished *int64 `yaml:"ttlSecondsAfterFinished"`
	PodFailurePolicy        any    `yaml:"podFailurePolicy"`
	Template                struct {
		Spec podSpec `yaml:"spec"`
	} `yaml:"template"`
}

type podSpec struct {
	Containers                    []container       `yaml:"containers"`
	InitContainers                []container       `yaml:"initContainers"`
	Volumes                       []volume          `yaml:"volumes"`
	NodeSelector                  map[string]string `yaml:"nodeSelector"`
	Affinity                      any               `yaml:"affinity"`
	Tolerations                   []any             `yaml:"tolerations"`
	ServiceAccountName            string            `yaml:"serviceAccountName"`
	ImagePullSecrets              []any             `yaml:"imagePullSecrets"`
	HostNetwork                   bool              `yaml:"hostNetwork"`
	SecurityContext               security          `yaml:"securityContext"`
	TerminationGracePeriodSeconds *int64            `yaml:"terminationGracePeriodSeconds"`
}

type security struct {
	RunAsUser              *int64 `yaml:"runAsUser"`
	RunAsGroup             *int64 `yaml:"runAsGroup"`
	ReadOnlyRootFilesystem bool   `yaml:"readOnlyRootFilesystem"`
	Privileged             bool   `yaml:"privileged"`
}

type container struct {
	Name            string   `yaml:"name"`
	Image           string   `yaml:"image"`
	Command         []string `yaml:"command"`
	Args            []string `yaml:"args"`
	WorkingDir      string   `yaml:"workingDir"`
	ImagePullPolicy string   `yaml:"imagePullPolicy"`
	Env             []struct {
		Name      string `yaml:"name"`
		Value     string `yaml:"value"`
		ValueFrom *struct {
			SecretKeyRef    *keyRef `yaml:"secretKeyRef"`
			ConfigMapKeyRef *keyRef `yaml:"configMapKeyRef"`
			FieldRef        any     `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	} `yaml:"env"`
	EnvFrom      []any `yaml:"envFrom"`
	VolumeMounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		SubPath   string `yaml:"subPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
	Resources struct {
		Limits map[string]string `yaml:"limits"`
	} `yaml:"resources"`
	SecurityContext security `yaml:"securityContext"`
	Lifecycle       any      `yaml:"lifecycle"`
}

type keyRef struct {
	Name string `yaml:"name"`
	Key  string `yaml:"key"`
}

type volume struct {
	Name     string `yaml:"name"`
	EmptyDir *struct {
		SizeLimit string `yaml:"sizeLimit"`
	} `yaml:"emptyDir"`
	HostPath *struct {
		Path string `yaml:"path"`
	} `yaml:"hostPath"`
	ConfigMap             any `yaml:"configMap"`
	Secret                any `yaml:"secret"`
	PersistentVolumeClaim any `yaml:"persistentVolumeClaim"`
}

// Import reads CronJobs: documents of YAML or JSON, and lists of them. Other kinds are left out. A
// line is a CronJob.
func Import(text string, opt Options) ([]crontab.Line, error) {
	var lines []crontab.Line
	names := map[string]string{}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is no YAML: %w", err)
		}
		for _, node := range cronJobsIn(&document) {
			var c cronJob
			if err := node.Decode(&c); err != nil {
				return nil, fmt.Errorf("the CronJob of line %d cannot be read: %w", node.Line, err)
			}
			line := crontab.Line{Number: node.Line, Text: "CronJob " + c.fullName() + "  " + c.Spec.Schedule}
			if other, there := names[c.Metadata.Name]; there && other != c.Metadata.Namespace {
				line.Problem = fmt.Sprintf("namespace %s has a CronJob of this name, too: import one namespace at a time, each with another -n", other)
			} else {
				names[c.Metadata.Name] = c.Metadata.Namespace
				i := importer{Options: opt, line: &line}
				i.cronJob(&c)
			}
			lines = append(lines, line)
		}
	}
}

// cronJobsIn returns the CronJobs of a document.
func cronJobsIn(n *yaml.Node) (found []*yaml.Node) {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	kind := field(n, "kind")
	switch {
	case kind != nil && kind.Value == "CronJob":
		return []*yaml.Node{n}
	case kind != nil && (kind.Value == "List" || kind.Value == "CronJobList"):
		items := field(n, "items")
		if items == nil {
			return nil
		}
		for _, item := range items.Content {
			if of := field(item, "kind"); item.Kind == yaml.MappingNode && (of == nil && kind.Value == "CronJobList" || of != nil && of.Value == "CronJob") {
				found = append(found, item)
			}
		}
	}
	return found
}

func field(n *yaml.Node, name string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

func (c *cronJob) fullName() string {
	if c.Metadata.Namespace == "" {
		return c.Metadata.Name
	}
	return c.Metadata.Namespace + "/" + c.Metadata.Name
}

// importer makes the job of a CronJob.
type importer struct {
	Options
	line *crontab.Line
}

func (i *importer) note(format string, args ...any) {
	i.line.Notes = append(i.line.Notes, fmt.Sprintf(format, args...))
}

// What Kubernetes fills in.
const (
	defaultBackoffLimit = 6
	firstBackoff        = job.Duration(10 * time.Second)
	longestBackoff      = job.Duration(6 * time.Minute)
)

func (i *importer) cronJob(c *cronJob) {
	spec, of := &c.Spec, &c.Spec.JobTemplate.Spec
	j := &job.Job{Name: c.Metadata.Name, Paused: spec.Suspend, Schedule: job.Schedule{Cron: []string{spec.Schedule}, Timezone: spec.TimeZone}}
	if spec.TimeZone == "" {
		j.Schedule.Timezone = i.Zone
		i.note("timeZone is missing: it means the zone of the controller manager, taken as %s; --tz names another", i.Zone)
	}
	fields := strings.Fields(spec.Schedule)
	if len(fields) == 5 && fields[2] != "*" && fields[4] != "*" && (strings.HasPrefix(fields[2], "*/") || strings.HasPrefix(fields[4], "*/")) {
		i.note("day of month and day of week: Kubernetes runs on days that match either, Belfry on days that match both where one begins with *")
	}
	for _, key := range slices.Sorted(maps.Keys(c.Metadata.Labels)) {
		if j.Labels == nil {
			j.Labels = map[string]string{}
		}
		j.Labels[key] = c.Metadata.Labels[key]
	}
	i.policy(j, c)
	if i.line.Problem = i.pod(j, &of.Template.Spec); i.line.Problem != "" {
		return
	}
	if of.Completions != nil && *of.Completions > 1 || of.Parallelism != nil && *of.Parallelism > 1 {
		i.note("completions and parallelism are left out: each occurrence is one run; place.shards splits it")
	}
	if of.PodFailurePolicy != nil {
		i.note("podFailurePolicy is left out; policy.retry.exit_codes says which exit codes are retried")
	}
	if of.TTLSecondsAfterFinished != nil {
		i.note("ttlSecondsAfterFinished is left out: a container is removed when it has ended, and policy.keep is about history")
	}
	i.line.Documents = []job.Document{{Kind: job.KindJob, Job: j}}
}

// policy sets what happens when runs overlap, are late, fail and take too long.
func (i *importer) policy(j *job.Job, c *cronJob) {
	spec, of := &c.Spec, &c.Spec.JobTemplate.Spec
	switch spec.ConcurrencyPolicy {
	case "Forbid":
		j.Policy.Overlap = job.OverlapSkip
	case "Replace":
		j.Policy.Overlap = job.OverlapReplace
	default:
		j.Policy.Overlap = job.OverlapAllow
	}
	j.Policy.Missed = job.MissedLatest
	if d := spec.StartingDeadlineSeconds; d != nil {
		j.Policy.LateBy = seconds(*d)
	}
	if s, f := spec.SuccessfulJobsHistoryLimit, spec.FailedJobsHistoryLimit; s != nil || f != nil {
		n := max(1, valueOr(s, 3)+valueOr(f, 1))
		j.Policy.Keep = &job.Keep{Runs: n}
		i.note("history limits count successes and failures apart; policy.keep.runs counts both: %d", n)
	}
	if attempts := valueOr(of.BackoffLimit, defaultBackoffLimit); attempts > 0 {
		backoff := firstBackoff
		j.Policy.Retry = &job.Retry{Attempts: &attempts, Backoff: &backoff, Factor: 2, Max: longestBackoff}
	}
	if d := of.ActiveDeadlineSeconds; d != nil {
		j.Policy.Timeout = seconds(*d)
		if j.Policy.Retry != nil {
			j.Policy.Retry.Within = *seconds(max(1, *d))
		}
	}
	if d := of.Template.Spec.TerminationGracePeriodSeconds; d != nil {
		j.Policy.KillGrace = seconds(*d)
	}
}

func seconds(n int64) *job.Duration {
	d := job.Duration(time.Duration(n) * time.Second)
	return &d
}

func valueOr(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}

// pod sets the work, and returns why there is none.
func (i *importer) pod(j *job.Job, pod *podSpec) (problem string) {
	switch {
	case len(pod.Containers) == 0:
		return "the pod has no container"
	case len(pod.Containers) > 1:
		return fmt.Sprintf("the pod has %d containers (%s): a run has one; write the others as steps of a flow, or as services of their own", len(pod.Containers), namesOf(pod.Containers))
	case len(pod.InitContainers) > 0:
		return fmt.Sprintf("the pod has init containers (%s): write a flow with them as steps before the container", namesOf(pod.InitContainers))
	}
	of := &pod.Containers[0]
	for what, there := range map[string]bool{
		"nodeSelector": len(pod.NodeSelector) > 0, "affinity": pod.Affinity != nil, "tolerations": len(pod.Tolerations) > 0, "imagePullSecrets": len(pod.ImagePullSecrets) > 0,
		"serviceAccountName": pod.ServiceAccountName != "" && pod.ServiceAccountName != "default", "hostNetwork": pod.HostNetwork, "envFrom": len(of.EnvFrom) > 0,
		"lifecycle": of.Lifecycle != nil, "privileged": of.SecurityContext.Privileged,
	} {
		if there {
			i.note("%s is left out: %s", what, instead[what])
		}
	}
	slices.Sort(i.line.Notes)
	env := i.environment(of)
	if i.Shell {
		return i.command(j, of, env)
	}
	c := &job.Container{Image: of.Image, Command: literals(of.Command), Args: literals(of.Args), Env: env, Dir: of.WorkingDir, User: userOf(pod, of), ReadOnly: of.SecurityContext.ReadOnlyRootFilesystem}
	switch of.ImagePullPolicy {
	case "Always":
		c.Pull = job.PullAlways
	case "Never":
		c.Pull = job.PullNever
	}
	i.limits(c, of.Resources.Limits)
	i.mounts(c, pod, of)
	j.Run.Container = c
	return ""
}

// instead says what there is in place of a field that is left out.
var instead = map[string]string{
	"nodeSelector": "place.labels chooses nodes by the labels of belfry serve and worker", "affinity": "place.labels chooses nodes", "tolerations": "place.labels chooses nodes",
	"imagePullSecrets":   "run.container.registry names a secret of Belfry",
	"serviceAccountName": "the command has no token of the cluster; give it one as a secret",
	"hostNetwork":        "run.container.network names a network of the engine", "envFrom": "name the variables in run.container.env",
	"lifecycle": "the command does it", "privileged": "containers of jobs have no more rights than the node allows",
}

func namesOf(list []container) string {
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

func userOf(pod *podSpec, c *container) string {
	user, group := c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup
	if user == nil {
		user = pod.SecurityContext.RunAsUser
	}
	if group == nil {
		group = pod.SecurityContext.RunAsGroup
	}
	switch {
	case user == nil:
		return ""
	case group == nil:
		return fmt.Sprint(*user)
	}
	return fmt.Sprintf("%d:%d", *user, *group)
}

// environment returns the variables. Variables of Secrets become secrets of Belfry.
func (i *importer) environment(c *container) map[string]string {
	var env map[string]string
	for _, e := range c.Env {
		value := literal(e.Value)
		switch from := e.ValueFrom; {
		case from == nil && strings.Contains(e.Value, "$("):
			i.note("env %s refers to other variables by $(NAME), which is kept as it is", e.Name)
		case from == nil:
		case from.SecretKeyRef != nil:
			name := secretName(from.SecretKeyRef)
			value = "{{ .Secret." + name + " }}"
			i.note("env %s is the secret %s: belfry secret set %s takes the value of kubectl get secret %s -o jsonpath='{.data.%s}' | base64 -d", e.Name, name, name, from.SecretKeyRef.Name, strings.ReplaceAll(from.SecretKeyRef.Key, ".", `\.`))
		case from.ConfigMapKeyRef != nil:
			i.note("env %s is left out: it is %s of the ConfigMap %s; write the value", e.Name, from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name)
			continue
		default:
			i.note("env %s is left out: it is a field of the pod", e.Name)
			continue
		}
		if env == nil {
			env = map[string]string{}
		}
		env[e.Name] = value
	}
	return env
}

// secretName returns a key of a Secret as the name of a secret of Belfry.
func secretName(ref *keyRef) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_':
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '_'
	}, ref.Name+"_"+ref.Key)
}

// command makes a command on a node of the container.
func (i *importer) command(j *job.Job, c *container, env map[string]string) string {
	words := append(slices.Clone(c.Command), c.Args...)
	if len(c.Command) == 0 {
		return fmt.Sprintf("the command is that of the image %s: with --shell it must be written in the CronJob", c.Image)
	}
	i.note("the command runs on a node, without the image %s: its programs must be there", c.Image)
	for _, m := range c.VolumeMounts {
		i.note("volume %s at %s is left out: the command sees the files of the node", m.Name, m.MountPath)
	}
	j.Run.Shell = &job.Shell{Command: literal(words[0]), Args: literals(words[1:]), Env: env, Dir: c.WorkingDir}
	return ""
}

func (i *importer) limits(c *job.Container, limits map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		text := limits[name]
		if c.Limits == nil {
			c.Limits = &job.ContainerLimits{}
		}
		ok := false
		switch name {
		case "memory":
			c.Limits.Memory, ok = memory(text)
		case "cpu":
			c.Limits.CPU, ok = processors(text)
		}
		if !ok {
			i.note("resources.limits.%s: %s is left out", name, text)
		}
	}
	if c.Limits != nil && *c.Limits == (job.ContainerLimits{}) {
		c.Limits = nil
	}
}

// mounts keeps directories in memory and of the node.
func (i *importer) mounts(c *job.Container, pod *podSpec, of *container) {
	for _, m := range of.VolumeMounts {
		n := slices.IndexFunc(pod.Volumes, func(v volume) bool { return v.Name == m.Name })
		switch {
		case n >= 0 && pod.Volumes[n].EmptyDir != nil:
			at := m.MountPath
			if size, ok := memory(pod.Volumes[n].EmptyDir.SizeLimit); ok && size > 0 {
				at += ":" + size.String()
			}
			c.Tmpfs = append(c.Tmpfs, at)
		case n >= 0 && pod.Volumes[n].HostPath != nil:
			source := pod.Volumes[n].HostPath.Path
			if m.SubPath != "" {
				source += "/" + m.SubPath
			}
			mount := source + ":" + m.MountPath
			if m.ReadOnly {
				mount += ":ro"
			}
			c.Mounts = append(c.Mounts, mount)
			i.note("volume %s: the node must allow %s in containers.mounts", m.Name, source)
		default:
			i.note("volume %s at %s is left out: run.container.mounts takes directories of the node, and run.container.files small files", m.Name, m.MountPath)
		}
	}
}

// literal keeps text from being a template.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

func literals(list []string) []string {
	var all []string
	for _, text := range list {
		all = append(all, literal(text))
	}
	return all
}
