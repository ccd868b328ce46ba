package job

import (
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// WorkJob is the kind of work of a step that is a run of another job.
const WorkJob Work = "job"

// OtherJob is another job, which a step of a flow runs.
type OtherJob struct {
	Name   string            `json:"name" short:"true" max:"257" doc:"The job, in the same namespace unless it is written as namespace/name."`
	Params map[string]string `json:"params,omitzero" beside:"true" items:"64" max:"65536" doc:"The parameters of its run. Values are templates."`
}

func (o *OtherJob) kind() Work { return WorkJob }

func (o *OtherJob) spec() RunSpec { return RunSpec{Job: o} }

func (o *OtherJob) traits() traits { return traits{isStep: true} }

func (o *OtherJob) filled() work { return o }

func (o *OtherJob) expand(visit visitor, run *path) work {
	expanded := *o
	expanded.Params = visit.all(TemplateText, o.Params, run.field("params"))
	return &expanded
}

// Calls returns the full name of the job that a step runs, "" for none. namespace is the
// namespace of the flow's job.
func (s *Step) Calls(namespace string) string {
	if s.Run.Job == nil {
		return ""
	}
	return s.Run.Job.FullName(namespace)
}

// FullName returns the full name of the job, for a flow in a namespace.
func (o *OtherJob) FullName(namespace string) string {
	if strings.Contains(o.Name, "/") {
		return o.Name
	}
	return fullName(namespace, o.Name)
}

func (o *OtherJob) check(v *validator, j *Job, run *path) {
	at := run.at("job.name")
	full := o.FullName(j.Namespace)
	namespace, name, _ := strings.Cut(full, "/")
	v.checkName(at, name)
	v.checkName(at, namespace)
	v.refuse(full == j.FullName(), at, phrase.FlowItself, phrase.OtherJob)
}
