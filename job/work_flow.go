package job

import (
	"maps"
	"reflect"
	"slices"
)

// WorkFlow is the kind of work with several dependent steps.
const WorkFlow Work = "flow"

const (
	// StepsMax bounds the steps of a flow: the end of each writes the state of all.
	StepsMax = 500
	// ItemsMax bounds the items of a for_each: each is a separate run, and a store keeps some
	// thousand unfinished runs of a job.
	ItemsMax = 1000
	// ResultMax is the most bytes of JSON in the result of a step. Larger results belong
	// in storage from which the next step can fetch them.
	ResultMax = 64 << 10
	// ResultsMax bounds all results of a flow's run together, in bytes: they are part of its state.
	ResultsMax = 1 << 20
	// FlowDepthMax is the deepest nesting of flows that start flows.
	FlowDepthMax = 5

	flowParallelDefault = 16
	// finallyTimeoutDefault bounds the steps of finally: a hanging step would hold the slot of the
	// job forever.
	finallyTimeoutDefault = Duration(3600 * 1e9)
)

// Flow is work in several steps, each of which is a separate run.
type Flow struct {
	MaxParallel  int           `json:"max_parallel,omitzero" min:"1" max:"1000" doc:"How many steps and items of one run may run at once. Default: 16."`
	FailFast     bool          `json:"fail_fast,omitzero" doc:"The first failed step cancels the running steps, and no further step starts. Default: steps that do not need the failed one still run."`
	KeepTogether bool          `json:"keep_together,omitzero" doc:"All steps run on the node of the first. Their commands share the directory BELFRY_FLOW_DIR, their working directory unless dir is set, which is removed after the flow. Containers share a volume in the same way."`
	Defaults     *StepDefaults `json:"defaults,omitzero" doc:"Defaults for the steps."`
	Steps        []Step        `json:"steps" items:"500" doc:"The steps. Those without needs start at once."`
	Finally      []Step        `json:"finally,omitzero" items:"50" doc:"The steps that run after all others have ended, with any outcome, also after a cancel or a timeout."`
}

// StepDefaults are the defaults for the steps of a flow.
type StepDefaults struct {
	Retry   *Retry            `json:"retry,omitzero" doc:"Further attempts after one that did not succeed."`
	Timeout *Duration         `json:"timeout,omitzero" min:"0s" max:"365d" doc:"How long an attempt may take."`
	Place   *Place            `json:"place,omitzero" doc:"Which nodes run the steps. Default: that of the job."`
	Env     map[string]string `json:"env,omitzero" secret:"value" items:"1000" doc:"Environment variables of the steps with shell or container. Values are templates."`
	Dir     string            `json:"dir,omitzero" max:"4096" doc:"The working directory of the steps with shell."`
	User    string            `json:"user,omitzero" max:"64" doc:"The user to run the steps with shell as."`
}

// Step is a part of a flow.
type Step struct {
	Name  string     `json:"name" max:"64" doc:"The name of the step in its flow: letters, digits and underscores."`
	Needs []string   `json:"needs,omitzero" items:"500" max:"64" doc:"The steps that must have ended before."`
	When  UpstreamOn `json:"when,omitzero" doc:"The required outcome of the needed steps: succeeded (default), failed (at least one) or finished (any)."`
	If    string     `json:"if,omitzero" doc:"A template. The step is skipped, and counts as succeeded, unless the result is true."`

	Run  RunSpec `json:"run,omitzero" doc:"What to run, as in a job, or job: another job."`
	Wait *Wait   `json:"wait,omitzero" doc:"What to wait for, instead of run. Waiting uses no capacity of a node."`

	ForEach     []string `json:"for_each,omitzero" items:"1000" doc:"The items: a template that makes a list, or a list. The step runs once for each, as .Item and BELFRY_ITEM; its result is the list of their results."`
	MaxParallel int      `json:"max_parallel,omitzero" min:"1" max:"1000" doc:"How many items run at once. Default: as many as the flow allows."`
	FailFast    bool     `json:"fail_fast,omitzero" doc:"The first failed item cancels the others. Default: they continue."`

	AllowFailure bool      `json:"allow_failure,omitzero" doc:"A failure of the step does not fail the flow, and the steps that need it start."`
	Retry        *Retry    `json:"retry,omitzero" doc:"Further attempts after one that did not succeed."`
	Timeout      *Duration `json:"timeout,omitzero" min:"0s" max:"365d" doc:"The time limit of an attempt; 0 is none. Default: none, and 1h in finally."`
	KillGrace    *Duration `json:"kill_grace,omitzero" min:"0s" max:"1h" doc:"The time between the request to end and the kill of an attempt. Default: that of the job."`
	LostAfter    Duration  `json:"lost_after,omitzero" min:"1s" max:"7d" doc:"An attempt counts as lost when its node has been silent for this long. Default: that of the job."`
	Success      *Success  `json:"success,omitzero" doc:"The criteria of success. Default: exit status 0, or an expected HTTP status."`
	Place        *Place    `json:"place,omitzero" doc:"Which nodes run the step: labels and strategy. Default: that of the job."`
}

// Wait is the condition of a waiting step. Exactly one of until, approval and signal is set, or
// only for.
type Wait struct {
	For      Duration `json:"for,omitzero" min:"1ms" max:"365d" doc:"How long to wait. With approval or signal: the step fails after this time."`
	Until    string   `json:"until,omitzero" doc:"The instant to wait for. A template."`
	Approval string   `json:"approval,omitzero" doc:"The question to approve or reject. A template."`
	Signal   string   `json:"signal,omitzero" max:"64" doc:"The name of a signal, which comes through the API; its data is the result."`
}

func (f *Flow) kind() Work { return WorkFlow }

func (f *Flow) spec() RunSpec { return RunSpec{Flow: f} }

func (f *Flow) traits() traits { return traits{handler: AnyNode, isFlow: true} }

// expand keeps templates: each step expands its own when it starts.
func (f *Flow) expand(visitor, *path) work { return f }

// All returns all steps, the steps of finally last.
func (f *Flow) All() []*Step {
	list := make([]*Step, 0, len(f.Steps)+len(f.Finally))
	for i := range f.Steps {
		list = append(list, &f.Steps[i])
	}
	for i := range f.Finally {
		list = append(list, &f.Finally[i])
	}
	return list
}

// IsFinally reports whether the i-th of All is in finally.
func (f *Flow) IsFinally(i int) bool { return i >= len(f.Steps) }

func (f *Flow) filled() work {
	filled := *f
	if filled.MaxParallel == 0 {
		filled.MaxParallel = flowParallelDefault
	}
	filled.Steps, filled.Finally = slices.Clone(f.Steps), slices.Clone(f.Finally)
	for i, s := range filled.All() {
		s.fill(f.Defaults, filled.IsFinally(i))
	}
	return &filled
}

func (s *Step) fill(d *StepDefaults, finally bool) {
	if s.When == "" {
		s.When = OnSucceeded
	}
	w := s.Run.work()
	if w == nil {
		return
	}
	if d == nil {
		d = &StepDefaults{}
	}
	s.Run = w.filled().spec()
	if s.Run.Job != nil {
		return // the other job defines the rest
	}
	fill(reflect.ValueOf(&s.Retry).Elem(), reflect.ValueOf(d.Retry))
	if s.Timeout == nil {
		s.Timeout = d.Timeout
	}
	if s.Timeout == nil && finally {
		s.Timeout = new(finallyTimeoutDefault)
	}
	if s.Place == nil {
		s.Place = d.Place
	}
	if c := s.Run.Container; c != nil && len(d.Env) > 0 {
		own := *c
		own.Env = maps.Clone(d.Env)
		maps.Copy(own.Env, c.Env)
		s.Run.Container = &own
	}
	if sh := s.Run.Shell; sh != nil {
		own := *sh
		if len(d.Env) > 0 {
			own.Env = maps.Clone(d.Env)
			maps.Copy(own.Env, sh.Env)
		}
		if own.Dir == "" {
			own.Dir = d.Dir
		}
		if own.User == "" {
			own.User = d.User
		}
		s.Run.Shell = &own
	}
}

// OfStep returns the definition for the attempts of a step. The defaults of the job are filled
// in.
func (j *Job) OfStep(s *Step) *Job {
	of := &Job{
		Namespace: j.Namespace, Name: j.Name, Params: j.Params, Run: s.Run, Place: Place{Labels: j.Place.Labels, Strategy: j.Place.Strategy, Sticky: j.Place.Sticky},
		Schedule: Schedule{Timezone: j.Schedule.Timezone},
		Policy: Policy{
			Overlap: OverlapAllow, LateBy: new(Forever), Timeout: s.Timeout, KillGrace: s.KillGrace, Retry: s.Retry,
			LostAfter: s.LostAfter, Success: s.Success, Priority: j.Policy.Priority,
		},
		UID: j.UID, Version: j.Version, Epoch: j.Epoch, Status: j.Status,
	}
	if s.Place != nil {
		of.Place = *s.Place
	}
	if of.Place.Strategy == "" {
		of.Place.Strategy = StrategyAny
	}
	if of.Policy.KillGrace == nil {
		of.Policy.KillGrace = j.Policy.KillGrace
	}
	of.Policy.fill(&Defaults{}, of)
	if least := *of.Policy.KillGrace + LostAfterMin; s.LostAfter == 0 {
		of.Policy.LostAfter = max(j.Policy.LostAfter, least)
	}
	return of
}
