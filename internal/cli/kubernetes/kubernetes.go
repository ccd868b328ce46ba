// Package kubernetes turns CronJobs of Kubernetes into jobs. It reads their text, and neither files
// nor a cluster.
package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// Options are settings that CronJobs lack.
type Options struct {
	// Zone is the time zone of the controller manager, which CronJobs without timeZone mean.
	Zone string
	// Shell runs the commands of the pods on nodes, in place of containers.
	Shell bool
	// Jobs keeps the pods, as Jobs of a Cluster of the configuration; "" for the default one.
	Jobs    bool
	Cluster string
}

// TakenAnnotation is the annotation of a CronJob that is suspended because a job of Belfry, which it names,
// has taken its place.
const TakenAnnotation = "io.belfry.taken-over"

// Taken returns the jobs that have taken the place of CronJobs, by the names of these.
func Taken(text string) (map[string]string, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name        string            `yaml:"name"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"metadata"`
		} `yaml:"items"`
	}
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("the list of CronJobs: %w", err)
	}
	taken := map[string]string{}
	for _, item := range list.Items {
		if full := item.Metadata.Annotations[TakenAnnotation]; full != "" {
			taken[item.Metadata.Name] = full
		}
	}
	return taken, nil
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
	Name         string            `yaml:"name"`
	GenerateName string            `yaml:"generateName"`
	Namespace    string            `yaml:"namespace"`
	Labels       map[string]string `yaml:"labels"`
	Annotations  map[string]string `yaml:"annotations"`
}

type jobSpec struct {
	BackoffLimit            *int        `yaml:"backoffLimit"`
	ActiveDeadlineSeconds   *int64      `yaml:"activeDeadlineSeconds"`
	Completions             *int        `yaml:"completions"`
	Parallelism             *int        `yaml:"parallelism"`
	TTLSecondsAfterFinished *int64      `yaml:"ttlSecondsAfterFinished"`
	PodFailurePolicy        any         `yaml:"podFailurePolicy"`
	Template                podTemplate `yaml:"template"`
}

// podTemplate is decoded, and kept as it is.
type podTemplate struct {
	Spec podSpec
	all  map[string]any
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (t *podTemplate) UnmarshalYAML(n *yaml.Node) error {
	var fields struct {
		Spec podSpec `yaml:"spec"`
	}
	if err := n.Decode(&fields); err != nil {
		return err
	}
	t.Spec = fields.Spec
	return n.Decode(&t.all)
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
	EnvFrom      []envFrom `yaml:"envFrom"`
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

type envFrom struct {
	ConfigMapRef keyRef `yaml:"configMapRef"`
	SecretRef    keyRef `yaml:"secretRef"`
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

// Import reads CronJobs: documents of YAML or JSON, and lists of them. Other kinds are skipped.
// Each line is a CronJob.
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
			if strings.Contains(text, "{{") {
				return nil, fmt.Errorf("it is a template, not YAML: helm template RELEASE CHART | belfry kubernetes import - imports what it makes: %w", err)
			}
			return nil, fmt.Errorf("it is no YAML: %w", err)
		}
		for _, node := range cronJobsIn(&document) {
			var c cronJob
			if err := node.Decode(&c); err != nil {
				return nil, fmt.Errorf("the CronJob of line %d cannot be read: %w", node.Line, err)
			}
			if c.Metadata.Name == "" { // the cluster appends random letters
				c.Metadata.Name = strings.TrimRight(c.Metadata.GenerateName, "-.")
			}
			line := crontab.Line{Number: node.Line, Text: "CronJob " + c.fullName() + "  " + c.Spec.Schedule}
			if other, there := names[c.Metadata.Name]; there && other != c.Metadata.Namespace {
				line.Problem = phrase.SameInNamespace.Of(other)
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
	kind := field(n, "kind")
	switch {
	case kind == nil:
	case kind.Value == "CronJob":
		return []*yaml.Node{n}
	case kind.Value == "List" || kind.Value == "CronJobList":
		items := field(n, "items")
		if items == nil {
			return nil
		}
		for _, item := range items.Content {
			if field(item, "kind") == nil && field(item, "spec") != nil && kind.Value == "CronJobList" {
				found = append(found, item)
			}
			if kind := field(item, "kind"); kind != nil && kind.Value == "CronJob" {
				found = append(found, item)
			} else if item.Kind == yaml.MappingNode { // an alias may name its own ancestor
				found = append(found, cronJobsIn(item)...)
			}
		}
	}
	return found
}

// field returns the value of a field, also where it is merged from an anchor.
func field(n *yaml.Node, name string) *yaml.Node {
	if found := own(n, name); found != nil {
		return found
	}
	merged := own(n, "<<")
	if merged == nil || merged.Kind != yaml.SequenceNode {
		return own(merged, name)
	}
	for _, one := range merged.Content {
		if found := own(one, name); found != nil {
			return found
		}
	}
	return nil
}

// own returns the value of a mapping's field, resolving aliases.
func own(n *yaml.Node, name string) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if value := n.Content[i+1]; n.Content[i].Value == name {
			if value.Kind == yaml.AliasNode {
				return value.Alias
			}
			return value
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

func (i *importer) note(text phrase.Text) { i.line.Notes = append(i.line.Notes, text) }

// Defaults of Kubernetes.
const (
	defaultBackoffLimit = 6
	firstBackoff        = job.Duration(10 * time.Second)
	longestBackoff      = job.Duration(6 * time.Minute)
)

func (i *importer) cronJob(c *cronJob) {
	spec, of := &c.Spec, &c.Spec.JobTemplate.Spec
	isTaken := c.Metadata.Annotations[TakenAnnotation] != ""
	j := &job.Job{Name: c.Metadata.Name, Paused: spec.Suspend && !isTaken, Schedule: job.Schedule{Cron: []string{spec.Schedule}, Timezone: spec.TimeZone}}
	first, expression, _ := strings.Cut(strings.TrimSpace(spec.Schedule), " ")
	if _, zone, inside := strings.Cut(first, "TZ="); inside && spec.TimeZone == "" { // as old controllers read it
		j.Schedule = job.Schedule{Cron: []string{strings.TrimSpace(expression)}, Timezone: zone}
	} else if spec.TimeZone == "" {
		j.Schedule.Timezone = i.Zone
		i.note(phrase.ControllerZone.Of(i.Zone))
	}
	fields := strings.Fields(spec.Schedule)
	if len(fields) == 5 && fields[2] != "*" && fields[4] != "*" && (strings.HasPrefix(fields[2], "*/") || strings.HasPrefix(fields[4], "*/")) {
		i.note(phrase.EitherDay)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Metadata.Labels)) {
		if j.Labels == nil {
			j.Labels = map[string]string{}
		}
		j.Labels[key] = c.Metadata.Labels[key]
	}
	i.policy(j, c)
	if i.Jobs {
		i.line.Problem = i.template(j, c)
	} else {
		i.line.Problem = i.pod(j, &of.Template.Spec)
	}
	if !i.line.Problem.IsZero() {
		return
	}
	if of.Completions != nil && *of.Completions > 1 || of.Parallelism != nil && *of.Parallelism > 1 {
		i.note(phrase.OneRunEach)
	}
	if of.PodFailurePolicy != nil {
		i.note(phrase.ExitCodesInstead)
	}
	if of.TTLSecondsAfterFinished != nil {
		i.note(phrase.RemovedAtEnd)
	}
	i.line.Documents = []job.Document{{Kind: job.KindJob, Job: j}}
}

// policy sets the policies for runs that overlap, are late, fail and take too long.
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
		i.note(phrase.HistoryLimits.Of(n))
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

// template keeps the pod template, or returns why it cannot.
func (i *importer) template(j *job.Job, c *cronJob) phrase.Text {
	of := &c.Spec.JobTemplate.Spec.Template
	if len(of.Spec.Containers) == 0 {
		return phrase.NoContainer
	}
	all, _ := escapedTexts(of.all).(map[string]any)
	spec, _ := all["spec"].(map[string]any)
	for _, field := range []string{"restartPolicy", "terminationGracePeriodSeconds"} { // policies say both
		delete(spec, field)
	}
	kept := map[string]any{"spec": spec}
	if of, _ := all["metadata"].(map[string]any); len(of) > 0 {
		delete(of, "creationTimestamp")
		kept["metadata"] = of
	}
	text, err := yaml.Marshal(kept)
	if err != nil {
		return phrase.NotPodTemplate.Of(phrase.Words(err.Error()))
	}
	j.Run.Kubernetes = &job.Kubernetes{Template: string(text), Cluster: i.Cluster, Namespace: c.Metadata.Namespace}
	if account := of.Spec.ServiceAccountName; account != "" {
		i.note(phrase.AccountListed.Of(account))
	}
	if of.Spec.HostNetwork || slices.ContainsFunc(of.Spec.Containers, func(c container) bool { return c.SecurityContext.Privileged }) ||
		slices.ContainsFunc(of.Spec.Volumes, func(v volume) bool { return v.HostPath != nil }) {
		i.note(phrase.NeedsUnsafePods)
	}
	i.note(phrase.NoCapabilities)
	return phrase.Text{}
}

// escapedTexts returns a value whose texts are no templates of Belfry.
func escapedTexts(value any) any {
	switch v := value.(type) {
	case string:
		return literal(v)
	case []any:
		for i := range v {
			v[i] = escapedTexts(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = escapedTexts(v[key])
		}
	}
	return value
}

// pod sets the work, or returns why there is none.
func (i *importer) pod(j *job.Job, pod *podSpec) (problem phrase.Text) {
	switch {
	case len(pod.Containers) == 0:
		return phrase.NoContainer
	case len(pod.Containers) > 1:
		return phrase.ManyContainers.Of(len(pod.Containers), namesOf(pod.Containers))
	case len(pod.InitContainers) > 0:
		return phrase.InitContainers.Of(namesOf(pod.InitContainers))
	}
	of := &pod.Containers[0]
	for _, field := range []struct {
		name    string
		isSet   bool
		instead phrase.Text
	}{
		{"affinity", pod.Affinity != nil, phrase.LabelsChoose},
		{"envFrom of " + sourcesOf(of.EnvFrom), len(of.EnvFrom) > 0, phrase.VariablesInEnv},
		{"hostNetwork", pod.HostNetwork, phrase.NamesNetwork},
		{"imagePullSecrets", len(pod.ImagePullSecrets) > 0, phrase.RegistrySecret},
		{"lifecycle", of.Lifecycle != nil, phrase.CommandDoesIt},
		{"nodeSelector", len(pod.NodeSelector) > 0, phrase.LabelsOfNodes},
		{"privileged", of.SecurityContext.Privileged, phrase.NoMoreThanNode},
		{"serviceAccountName", pod.ServiceAccountName != "" && pod.ServiceAccountName != "default", phrase.NoClusterToken},
		{"tolerations", len(pod.Tolerations) > 0, phrase.LabelsChoose},
	} {
		if field.isSet {
			i.note(phrase.LeftOut.Of(field.name, field.instead))
		}
	}
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
	return phrase.Text{}
}

func namesOf(list []container) (names []string) {
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}

func sourcesOf(list []envFrom) string {
	var names []string
	for _, e := range list {
		names = append(names, cmp.Or(e.ConfigMapRef.Name, e.SecretRef.Name))
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
			i.note(phrase.OtherVariables.Of(e.Name))
		case from == nil:
		case from.SecretKeyRef != nil:
			name := secretName(from.SecretKeyRef)
			value = "{{ .Secret." + name + " }}"
			i.note(phrase.EnvIsSecret.Of(e.Name, name, from.SecretKeyRef.Name, "{.data."+strings.ReplaceAll(from.SecretKeyRef.Key, ".", `\.`)+"}"))
		case from.ConfigMapKeyRef != nil:
			i.note(phrase.LeftOut.Of("env "+e.Name, phrase.OfConfigMap.Of(from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name)))
			continue
		default:
			i.note(phrase.LeftOut.Of("env "+e.Name, phrase.FieldOfPod))
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
func (i *importer) command(j *job.Job, c *container, env map[string]string) phrase.Text {
	words := append(slices.Clone(c.Command), c.Args...)
	if len(c.Command) == 0 {
		return phrase.CommandOfImage.Of(c.Image)
	}
	i.note(phrase.WithoutImage.Of(c.Image))
	for _, m := range c.VolumeMounts {
		i.note(phrase.VolumeLeftOut.Of(m.Name, m.MountPath, phrase.FilesOfNode))
	}
	j.Run.Shell = &job.Shell{Command: literal(words[0]), Args: literals(words[1:]), Env: env, Dir: c.WorkingDir}
	return phrase.Text{}
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
			i.note(phrase.LeftOutValue.Of("resources.limits."+name, text))
		}
	}
	if c.Limits != nil && *c.Limits == (job.ContainerLimits{}) {
		c.Limits = nil
	}
}

// mounts converts directories in memory and on the node.
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
			i.note(phrase.NodeMustAllow.Of(m.Name, source))
		default:
			i.note(phrase.VolumeLeftOut.Of(m.Name, m.MountPath, phrase.MountsInstead))
		}
	}
}

// literal escapes text so that it is no template.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

func literals(list []string) []string {
	var all []string
	for _, text := range list {
		all = append(all, literal(text))
	}
	return all
}
