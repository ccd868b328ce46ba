package kube

import "time"

// Meta identifies an object.
type Meta struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	Labels            map[string]string `json:"labels"`
	CreationTimestamp time.Time         `json:"creationTimestamp"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
}

// Condition is a part of the state of an object.
type Condition struct {
	Type, Status, Reason, Message string
}

// Conditions are the state of an object.
type Conditions []Condition

// True returns the condition of a type that is true, or nil.
func (list Conditions) True(kind string) *Condition {
	for i := range list {
		if c := &list[i]; c.Type == kind && c.Status == "True" {
			return c
		}
	}
	return nil
}

// Of returns the condition of a type, or nil.
func (list Conditions) Of(kind string) *Condition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// Job is a Job as a cluster has it.
type Job struct {
	Metadata Meta
	Status   struct{ Conditions Conditions }
}

// Pod is a pod as a cluster has it.
type Pod struct {
	Metadata Meta
	Spec     struct{ Containers []Container }
	Status   struct {
		Phase, Reason, Message string
		Conditions             Conditions
		ContainerStatuses      []ContainerStatus
		InitContainerStatuses  []ContainerStatus
	}
}

// Container is a container of a pod.
type Container struct {
	Name      string
	Resources struct{ Limits map[string]string }
}

// ContainerStatus is the state of a container.
type ContainerStatus struct {
	Name  string
	State struct {
		Waiting    *struct{ Reason, Message string }
		Running    *struct{}
		Terminated *Terminated
	}
}

// Terminated is how a container has ended.
type Terminated struct {
	ExitCode, Signal int
	Reason, Message  string
}
