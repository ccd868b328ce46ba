package kubeexec

import (
	"slices"
	"time"

	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/remote/kube"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The phases of pods.
const (
	phaseSucceeded = "Succeeded"
	phaseFailed    = "Failed"
)

// latest returns the newest pod of a Job, nil for none: the cluster replaces a pod that was deleted before
// its node has started it.
func latest(pods []kube.Pod) *kube.Pod {
	var found *kube.Pod
	for i := range pods {
		if p := &pods[i]; found == nil || p.Metadata.CreationTimestamp.After(found.Metadata.CreationTimestamp) {
			found = p
		}
	}
	return found
}

func isOver(p *kube.Pod) bool {
	return p.Status.Phase == phaseSucceeded || p.Status.Phase == phaseFailed
}

// statusOf returns the state of a container, nil if it has none yet.
func statusOf(p *kube.Pod, name string) *kube.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.Name == name {
			return s
		}
	}
	return nil
}

// hasBegun reports whether the main container has a log.
func hasBegun(p *kube.Pod, main string) bool {
	s := statusOf(p, main)
	return s != nil && (s.State.Running != nil || s.State.Terminated != nil)
}

// waits returns why the work of a pod has not begun, none if it has.
func waits(p *kube.Pod, main string) (none job.Reason) {
	if p == nil {
		return reason.KubeWaits.Of("the cluster has not made it", "")
	}
	if isOver(p) || hasBegun(p, main) {
		return none
	}
	if c := p.Status.Conditions.Of("PodScheduled"); c != nil && c.Status == "False" {
		return reason.KubeWaits.Of(c.Reason, words(c.Message))
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
			return reason.KubeWaits.Of(w.Reason, words(w.Message))
		}
		if s.State.Running != nil {
			return reason.KubeWaits.Of("the container "+s.Name+" runs first", "")
		}
	}
	return none
}

// judge returns how an attempt has ended, nil if it has not: its Job is nil if it is gone, and so is its
// pod. A pod that is over decides, since its Job follows.
func judge(a *about, j *kube.Job, p *kube.Pod, timeout time.Duration) *store.Result {
	r := &store.Result{Outcome: job.OutcomeFailed}
	isDeadline := false
	var failure *kube.Condition
	if j != nil {
		if failure = j.Status.Conditions.True("Failed"); failure == nil {
			failure = j.Status.Conditions.True("FailureTarget")
		}
		isDeadline = failure != nil && failure.Reason == "DeadlineExceeded"
	}
	switch {
	case isDeadline && (p == nil || isOver(p) || j.Status.Conditions.True("Failed") != nil):
		r.Outcome, r.Reason = job.OutcomeTimedOut, reason.KubeDeadline.Of(timeout)
	case p != nil && isOver(p):
		ofPod(r, a, j, p)
	case j == nil && p == nil:
		r.Reason = reason.KubeDeleted.Of(a.Namespace + "/" + a.Name)
	case p == nil && j.Status.Conditions.True("Complete") != nil:
		r.Outcome = job.OutcomeSucceeded
	case p == nil && failure != nil && failure.Reason == "BackoffLimitExceeded":
		r.Outcome, r.Reason = job.OutcomeLost, reason.KubePodDeleted.Of()
	case p == nil && failure != nil:
		r.Reason = reason.KubeFailed.Of(failure.Reason, words(failure.Message))
	default:
		return nil
	}
	return r
}

// ofPod sets the result of a pod that is over.
func ofPod(r *store.Result, a *about, j *kube.Job, p *kube.Pod) {
	name, end := a.Main, (*kube.Terminated)(nil)
	if s := statusOf(p, a.Main); s != nil {
		end = s.State.Terminated
	}
	if end != nil {
		code := end.ExitCode
		r.ExitCode = &code
	}
	disrupted := p.Status.Conditions.True("DisruptionTarget")
	switch {
	case end != nil && isSuccess(a.Codes, end.ExitCode) && (p.Status.Phase == phaseSucceeded || end.ExitCode != 0):
		r.Outcome = job.OutcomeSucceeded
		if a.WantsResult {
			value, err := verdict.ParseResult([]byte(end.Message))
			if err != nil {
				r.Outcome, r.Reason = job.OutcomeFailed, job.Text(err.Error())
			}
			r.Value = value
		}
		return
	case disrupted != nil && (disrupted.Reason == "DeletionByPodGC" || disrupted.Reason == "DeletionByTaintManager"), p.Status.Reason == "NodeLost":
		message := p.Status.Message
		if disrupted != nil {
			message = disrupted.Message
		}
		r.Outcome, r.Reason = job.OutcomeLost, reason.KubeNodeLost.Of(words(message))
		return
	case p.Status.Reason == "Evicted" || p.Status.Reason == "Preempting" || disrupted != nil:
		message := p.Status.Message
		if message == "" && disrupted != nil {
			message = disrupted.Message
		}
		r.Reason, r.Retryable = reason.KubeEvicted.Of(words(message)), true
		return
	}
	if end == nil || end.ExitCode == 0 { // another container has failed
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
				name, end = s.Name, t
				break
			}
		}
	}
	switch {
	case end == nil:
		r.Reason = reason.KubeFailed.Of(p.Status.Phase+" "+p.Status.Reason, words(p.Status.Message))
		return
	case end.ExitCode == 0:
		r.Reason = reason.ExitStatus.Of(0)
	case name == a.Main && len(p.Spec.Containers) < 2:
		r.Reason = reason.ExitStatus.Of(end.ExitCode)
	default:
		r.Reason = reason.KubeExit.Of(end.ExitCode, name)
	}
	switch {
	case end.Reason == "OOMKilled":
		r.Reason = reason.KubeOOM.Of(r.Reason, memoryOf(p, name))
	case j == nil || j.Metadata.DeletionTimestamp != nil:
		r.Reason = reason.Because.Of(reason.KubeDeleted.Of(a.Namespace+"/"+a.Name), r.Reason)
	case p.Metadata.DeletionTimestamp != nil:
		r.Reason, r.Retryable = reason.Because.Of(reason.KubePodDeleted.Of(), r.Reason), true
	}
}

// isSuccess reports whether an exit code is one of success.
func isSuccess(codes []int, code int) bool {
	if len(codes) == 0 {
		return code == 0
	}
	return slices.Contains(codes, code)
}

// memoryOf returns the memory limit of a container.
func memoryOf(p *kube.Pod, name string) string {
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == name && c.Resources.Limits["memory"] != "" {
			return c.Resources.Limits["memory"]
		}
	}
	return "that of its node"
}
