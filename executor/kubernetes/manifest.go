package kubeexec

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/internal/pattern"
	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// The labels of Jobs and pods, and the annotation with the full name of the job, which labels cannot
// hold.
const (
	labelManaged  = "app.kubernetes.io/managed-by"
	labelRun      = "io.belfry.run"
	labelAttempt  = "io.belfry.attempt"
	annotationJob = "io.belfry.job"
)

const (
	// keptFor is how long a cluster keeps an ended Job: for people who look at its pod, and so that a
	// node which returns after an outage of all nodes sees how it has ended.
	keptFor = time.Hour
	// mainContainer is the name of the container of a job without a template.
	mainContainer = "main"
	// resultFile is where Kubernetes reads the last words of a container.
	resultFile = "/dev/termination-log"
)

type object = map[string]any

// builder makes the Job of an attempt.
type builder struct {
	cluster *Cluster
	work    *job.Kubernetes
	attempt *executor.Attempt
}

// about returns the data of the handover with the manifest, or why the cluster does not run the job.
func (b *builder) about() (a about, why job.Reason) {
	at, k := b.attempt, b.work
	a = about{
		Cluster: k.Cluster, Namespace: k.Namespace, Name: JobName(at.Run.ID, at.Number), WantsResult: at.WantsResult, Grace: at.Grace,
	}
	if a.Namespace == "" {
		a.Namespace = b.cluster.Client.Namespace
	}
	if s := at.Job.Policy.Success; s != nil {
		a.Codes, a.Match = s.ExitCodes, s.Match
	}
	if len(b.cluster.Namespaces) > 0 && !pattern.Any(b.cluster.Namespaces, at.Job.Namespace) {
		return a, b.refused("a Job of the namespace "+at.Job.Namespace, "namespaces")
	}
	if a.Namespace != b.cluster.Client.Namespace && !pattern.Any(b.cluster.KubeNamespaces, a.Namespace) {
		return a, b.refused("the namespace "+a.Namespace, "kube_namespaces")
	}
	template, why := b.template(&a)
	if !why.IsZero() {
		return a, why
	}
	labels := object{labelManaged: "belfry", labelRun: at.Run.ID.String(), labelAttempt: strconv.Itoa(at.Number)}
	annotations := object{annotationJob: at.Job.FullName()}
	metadata := child(template, "metadata")
	maps.Copy(child(metadata, "labels"), labels)
	maps.Copy(child(metadata, "annotations"), annotations)
	spec := object{"backoffLimit": 0, "ttlSecondsAfterFinished": int(keptFor.Seconds()), "template": template}
	if limit := at.Job.Policy.Timeout; limit != nil {
		spec["activeDeadlineSeconds"] = secondsUp(time.Duration(*limit))
	}
	manifest, err := json.Marshal(object{
		"apiVersion": "batch/v1", "kind": "Job",
		"metadata": object{"name": a.Name, "namespace": a.Namespace, "labels": labels, "annotations": annotations},
		"spec":     spec,
	})
	if err != nil {
		return a, job.Text(err.Error())
	}
	a.Manifest = manifest
	return a, job.Reason{}
}

func (b *builder) refused(what, setting string) job.Reason {
	return reason.KubeNotAllowed.Of(what, b.work.Cluster, "kubernetes.clusters."+b.work.Cluster+"."+setting)
}

// secondsUp returns the whole seconds of a duration, rounded up.
func secondsUp(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// child returns a mapping in a mapping, which it makes if it is missing.
func child(of object, key string) object {
	inner, ok := of[key].(object)
	if !ok {
		inner = object{}
		of[key] = inner
	}
	return inner
}

// setDefault sets a field that is not set.
func setDefault(of object, key string, value any) {
	if of[key] == nil {
		of[key] = value
	}
}

// objects returns the mappings in a list.
func objects(list any) (found []object) {
	items, _ := list.([]any)
	for _, item := range items {
		if o, ok := item.(object); ok {
			found = append(found, o)
		}
	}
	return found
}

func text(of object, key string) string {
	s, _ := of[key].(string)
	return s
}

func truth(of object, key string) bool {
	yes, _ := of[key].(bool)
	return yes
}

// template returns the pod template, with the least rights.
func (b *builder) template(a *about) (template object, why job.Reason) {
	if b.work.Template == "" {
		template = object{"spec": object{"containers": []any{b.container()}}}
	} else if err := json.Unmarshal([]byte(b.work.Template), &template); err != nil {
		return nil, job.Text(err.Error())
	}
	spec := child(template, "spec")
	containers := objects(spec["containers"])
	if len(containers) == 0 {
		return nil, job.Text("the template has no containers")
	}
	a.Main = text(containers[0], "name")
	b.environment(containers[0])
	all := append(slices.Clone(containers), objects(spec["initContainers"])...)
	for _, c := range all {
		if image := text(c, "image"); len(b.cluster.Images) > 0 && !pattern.Image(b.cluster.Images, image) {
			return nil, b.refused("the image "+image, "images")
		}
	}
	if why := b.account(spec); !why.IsZero() {
		return nil, why
	}
	if what := b.unsafe(spec, all); what != "" && !b.cluster.UnsafePods {
		return nil, b.refused(what, "unsafe_pods")
	}
	spec["restartPolicy"] = "Never"
	spec["terminationGracePeriodSeconds"] = secondsUp(a.Grace)
	setDefault(child(spec, "securityContext"), "seccompProfile", object{"type": "RuntimeDefault"})
	for _, c := range all {
		security := child(c, "securityContext")
		if truth(security, "privileged") {
			continue
		}
		setDefault(security, "allowPrivilegeEscalation", false)
		capabilities := child(security, "capabilities")
		if setDefault(capabilities, "drop", []any{"ALL"}); !b.cluster.UnsafePods {
			capabilities["drop"] = []any{"ALL"}
		}
		if len(b.cluster.Capabilities) > 0 {
			setDefault(capabilities, "add", b.cluster.Capabilities)
		}
	}
	return template, job.Reason{}
}

// container returns the container of a job without a template.
func (b *builder) container() object {
	k := b.work
	pull := map[job.Pull]string{job.PullMissing: "IfNotPresent", job.PullAlways: "Always", job.PullNever: "Never"}[k.Pull]
	c := object{"name": mainContainer, "image": k.Image, "imagePullPolicy": pull}
	command, args := k.Command, k.Args
	if k.Shell != "" {
		command, args = []string{"/bin/sh", "-c"}, []string{k.Shell}
	}
	if len(command) > 0 {
		c["command"] = escaped(command)
	}
	if len(args) > 0 {
		c["args"] = escaped(args)
	}
	if k.Dir != "" {
		c["workingDir"] = k.Dir
	}
	if l := k.Limits; l != nil {
		limits := child(child(c, "resources"), "limits")
		if l.Memory > 0 {
			limits["memory"] = strconv.FormatInt(int64(l.Memory), 10)
		}
		if l.CPU > 0 {
			limits["cpu"] = strconv.Itoa(max(1, int(l.CPU*1000))) + "m"
		}
	}
	security := child(c, "securityContext")
	if k.ReadOnly {
		security["readOnlyRootFilesystem"] = true
	}
	user, group, hasGroup := strings.Cut(k.User, ":")
	if n, err := strconv.ParseInt(user, 10, 64); err == nil {
		security["runAsUser"] = n
	}
	if n, err := strconv.ParseInt(group, 10, 64); err == nil && hasGroup {
		security["runAsGroup"] = n
	}
	return c
}

// escaped keeps Kubernetes from replacing $(NAME) in words.
func escaped(words []string) []string {
	words = slices.Clone(words)
	for i, word := range words {
		words[i] = strings.ReplaceAll(word, "$(", "$$(")
	}
	return words
}

// environment adds the variables of the job and of Belfry to a container. Variables of a template stay.
func (b *builder) environment(c object) {
	at := b.attempt
	data := at.Data
	data.Run, data.Attempt, data.Params = at.Run.ID, at.Number, map[string]string{}
	for name, param := range at.Job.Params {
		data.Params[name] = param.Default
	}
	maps.Copy(data.Params, at.Data.Params)
	values := maps.Clone(b.work.Env)
	if values == nil {
		values = map[string]string{}
	}
	maps.Copy(values, data.Environment())
	if at.WantsResult {
		values[verdict.ResultVariable] = resultFile
		if path := text(c, "terminationMessagePath"); path != "" {
			values[verdict.ResultVariable] = path
		}
	}
	list, _ := c["env"].([]any)
	has := map[string]bool{}
	for _, variable := range objects(list) {
		has[text(variable, "name")] = true
	}
	for _, name := range slices.Sorted(maps.Keys(b.work.SecretEnv)) {
		if secret, key, _ := strings.Cut(b.work.SecretEnv[name], "/"); !has[name] {
			list = append(list, object{"name": name, "valueFrom": object{"secretKeyRef": object{"name": secret, "key": key}}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !has[name] {
			list = append(list, object{"name": name, "value": strings.ReplaceAll(values[name], "$(", "$$(")})
		}
	}
	c["env"] = list
}

// account sets the service account of the pod, or returns why it may not have it.
func (b *builder) account(spec object) job.Reason {
	name := b.work.ServiceAccount
	if name == "" {
		name = text(spec, "serviceAccountName")
	}
	if name == "" {
		name = text(spec, "serviceAccount")
	}
	token := name != ""
	for _, volume := range objects(spec["volumes"]) {
		projected, _ := volume["projected"].(object)
		for _, source := range objects(projected["sources"]) {
			token = token || source["serviceAccountToken"] != nil
		}
	}
	if account := name; token {
		if account == "" {
			account = "default"
		}
		if !pattern.Any(b.cluster.ServiceAccounts, account) {
			return b.refused("the service account "+account, "service_accounts")
		}
	}
	delete(spec, "serviceAccount")
	if name == "" {
		spec["automountServiceAccountToken"] = false
		return job.Reason{}
	}
	spec["serviceAccountName"] = name
	setDefault(spec, "automountServiceAccountToken", true)
	return job.Reason{}
}

// unsafe returns what of a pod would give it rights on the nodes of the cluster, "" for nothing.
func (b *builder) unsafe(spec object, containers []object) string {
	for _, field := range []string{"hostNetwork", "hostPID", "hostIPC"} {
		if truth(spec, field) {
			return field
		}
	}
	for _, volume := range objects(spec["volumes"]) {
		if volume["hostPath"] != nil {
			return "the hostPath of the volume " + text(volume, "name")
		}
	}
	if what := unsafeContext(child(spec, "securityContext")); what != "" {
		return what
	}
	for _, c := range containers {
		security := child(c, "securityContext")
		if what := unsafeContext(security); what != "" {
			return what + " of the container " + text(c, "name")
		}
		capabilities, _ := security["capabilities"].(object)
		added, _ := capabilities["add"].([]any)
		for _, one := range added {
			if name, _ := one.(string); !slices.Contains(b.cluster.Capabilities, name) {
				return "the capability " + name + " of the container " + text(c, "name")
			}
		}
		for _, port := range objects(c["ports"]) {
			if port["hostPort"] != nil {
				return "a hostPort of the container " + text(c, "name")
			}
		}
	}
	return ""
}

// unsafeContext returns what of a security context gives rights on nodes.
func unsafeContext(security object) string {
	for _, field := range []string{"privileged", "allowPrivilegeEscalation"} {
		if truth(security, field) {
			return field
		}
	}
	for _, field := range []string{"procMount", "sysctls"} {
		if security[field] != nil {
			return field
		}
	}
	for _, field := range []string{"seccompProfile", "appArmorProfile"} {
		if profile, _ := security[field].(object); text(profile, "type") == "Unconfined" {
			return field + " Unconfined"
		}
	}
	if windows, _ := security["windowsOptions"].(object); truth(windows, "hostProcess") {
		return "windowsOptions.hostProcess"
	}
	return ""
}
