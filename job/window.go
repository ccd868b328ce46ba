package job

import (
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Window is a maintenance window: while it is open, no run of the matched jobs starts, except by
// hand. It opens at each occurrence of its schedule.
type Window struct {
	Namespace   string            `json:"namespace,omitzero" max:"128" doc:"The namespace of the window. Default: default."`
	Name        string            `json:"name" max:"128" doc:"The name of the window."`
	Description string            `json:"description,omitzero" max:"4096" doc:"Why the window exists. The reasons of skipped and held runs quote it."`
	Labels      map[string]string `json:"labels,omitzero" items:"64" doc:"Labels by which to find and group windows. Those of the matched jobs are in match."`
	Match       WindowMatch       `json:"match,omitzero" doc:"The jobs that do not start. Default: all jobs of the window's namespace."`
	Schedule    Schedule          `json:"schedule" doc:"When the window opens: by cron, every or at, bounded by only, except, start and end as for a job. Without a timezone it is in UTC."`
	For         Duration          `json:"for" min:"1s" max:"366d" doc:"How long the window stays open."`
	Action      WindowAction      `json:"action,omitzero" doc:"What happens to a run that falls due while the window is open. Default: hold."`
	Closed      time.Time         `json:"closed,omitzero" doc:"The window was closed by hand at this instant: an opening that began before is over. belfry window close sets it."`
	UID         ID                `json:"uid,omitzero" doc:"Read-only. The identity of the window."`
	Version     int64             `json:"version,omitzero" min:"1" doc:"Read-only. Every change of the window increments it."`
	Source      *Source           `json:"source,omitzero" doc:"Read-only. The commit of a repository that the window is of."`
}

// FullName returns "namespace/name".
func (w *Window) FullName() string { return fullName(w.Namespace, w.Name) }

// WindowMatch selects the jobs of a window.
type WindowMatch struct {
	Labels     map[string]string `json:"labels,omitzero" items:"64" doc:"Labels that a job must have, all of them."`
	Namespaces []string          `json:"namespaces,omitzero" items:"100" max:"128" doc:"The namespaces of the jobs, or * for all. Default: the namespace of the window."`
}

// AllNamespaces stands for all namespaces in WindowMatch.Namespaces.
const AllNamespaces = "*"

// In returns the namespaces of the matched jobs.
func (w *Window) In() []string {
	if len(w.Match.Namespaces) > 0 {
		return w.Match.Namespaces
	}
	return []string{namespaceOf(w.Namespace)}
}

// Matches reports whether the window applies to a job.
func (w *Window) Matches(namespace string, labels map[string]string) bool {
	for key, value := range w.Match.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	in := w.In()
	return slices.Contains(in, AllNamespaces) || slices.Contains(in, namespace)
}

// WindowAction is what happens to runs that fall due in a window.
type WindowAction string

// The treatments of runs that fall due in a window.
const (
	WindowHold WindowAction = "hold" // until the window closes, then by policy.missed
	WindowSkip WindowAction = "skip"
)

// Values returns all treatments of runs that fall due in a window.
func (WindowAction) Values() []string { return texts(WindowHold, WindowSkip) }

// AsJob returns a job that falls due when the window opens.
func (w *Window) AsJob() *Job {
	return &Job{Namespace: w.Namespace, Name: w.Name, Schedule: w.Schedule}
}

// windowDocument checks a window.
func (v *validator) windowDocument(w *Window) {
	v.labels(w.Labels, root.field("labels"))
	v.labels(w.Match.Labels, root.at("match.labels"))
	for i, namespace := range w.Match.Namespaces {
		if namespace != AllNamespaces && !isName(namespace) {
			v.report(root.at("match.namespaces").item(i), phrase.NotNamespace.Of(quote(namespace)), phrase.NamespacesForm)
		}
	}
	v.refuse(w.For == 0, root.field("for"), phrase.Missing, phrase.Example.Of("2h"))
	s, at := &w.Schedule, root.field("schedule")
	for _, of := range [...]struct {
		name string
		set  bool
	}{
		{"after_end", s.AfterEnd != 0}, {"on", len(s.On) > 0}, {"boot", s.Boot}, {"max_runs", s.MaxRuns != 0},
		{"delete_after", s.DeleteAfter != nil}, {"jitter", s.Jitter != 0}, {"spread", s.Spread != 0},
	} {
		if of.set {
			v.refuse(true, at.field(of.name), phrase.NotOfWindow, phrase.WindowOpens)
			return
		}
	}
	v.refuse(len(s.Cron)+len(s.At) == 0 && s.Every == 0, at, phrase.NeverOpens, phrase.WindowOpens)
	v.schedule(w.AsJob())
}
