package job

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// RunSpec is what a job runs: a union, of which exactly one field is set. Each kind of work has its
// own file, work_KIND.go: its type with its fields, checks, defaults and templates. A new kind
// needs such a file and a field here; outside this package only its executor uses it.
//
// Commands, arguments (except the interpreter's), URLs, header values, bodies, standard input and
// the values of the environment are templates; see [CompileTemplate].
type RunSpec struct {
	Shell      *Shell      `json:"shell,omitzero" short:"read" doc:"A command or a script on the node: text for sh, or a mapping."`
	Container  *Container  `json:"container,omitzero" doc:"A command in a container, on a node with Docker or Podman: the image as text, with shell beside it, or a mapping."`
	Kubernetes *Kubernetes `json:"kubernetes,omitzero" doc:"A Job in a cluster of Kubernetes: the image as text, with shell beside it, or a mapping."`
	HTTP       *HTTP       `json:"http,omitzero" doc:"A request to a web server."`
	Handler    *Handler    `json:"handler,omitzero" doc:"The name of a function that a Go program has registered with package belfry. Runs wait for a node that has it."`
	XXL        *XXL        `json:"xxl,omitzero" doc:"Work of an executor of XXL-JOB that is registered with Belfry."`
	Flow       *Flow       `json:"flow,omitzero" doc:"A flow: several dependent steps in one run."`
	Job        *OtherJob   `json:"job,omitzero" doc:"Only in a step of a flow: a run of another job; the step ends with that run."`
	External   *External   `json:"external,omitzero" doc:"Work that is started elsewhere and reported, such as a line of a crontab. Belfry only reports its absence."`
}

// Work is the kind of work of a job, which selects its executor: the name of the field of
// [RunSpec] in documents.
type Work string

// work is one kind of work. The fields of [RunSpec] implement it.
type work interface {
	kind() Work
	// spec returns the union with this work.
	spec() RunSpec
	traits() traits
	// check reports mistakes in the fields, and conflicts with the policies of the job. run
	// is the path of the field run; templates are checked elsewhere.
	check(v *validator, j *Job, run *path)
	// filled returns the work with its defaults.
	filled() work
	// expand returns a copy with every template replaced by visit. No other code knows which fields
	// are templates.
	expand(visit visitor, run *path) work
}

// traits are the properties of work that policies, placement and templates use.
type traits struct {
	handler      string // the handler that a node needs, "" for none
	group        string // the executors' group
	subject      string // its command or address, "" if it has none
	isElsewhere  bool   // executors do it, and place.strategy chooses them
	hasExitCode  bool   // policies may name exit codes
	hasOutput    bool   // policies may match its output
	hasUsage     bool   // the system reports what an attempt used
	isCheap      bool   // its interval may be below RateMin
	isReported   bool   // Belfry does not start it
	isFlow       bool   // its steps are the work
	isStep       bool   // only valid in steps of flows
	unsafeParams bool   // parameters may decide what runs
}

var runSpecType = reflect.TypeFor[RunSpec]()

// work returns the only kind of work that is set, or nil.
func (r *RunSpec) work() work {
	var set work
	v := reflect.ValueOf(r).Elem()
	for _, f := range fieldsOf(runSpecType) {
		if !f.isWork() || v.Field(f.index).IsNil() {
			continue
		}
		if set != nil {
			return nil
		}
		set = v.Field(f.index).Interface().(work)
	}
	return set
}

// traits returns the traits of the work.
func (r *RunSpec) traits() traits {
	if w := r.work(); w != nil {
		return w.traits()
	}
	return traits{}
}

// Work returns the kind of work, "" for none.
func (r *RunSpec) Work() Work {
	if w := r.work(); w != nil {
		return w.kind()
	}
	return ""
}

// Does reports whether the work is of a kind.
func (r *RunSpec) Does(work Work) bool { return r.Work() == work }

// HandlerName returns the handler that a node needs to run the job, "" for none.
func (r *RunSpec) HandlerName() string { return r.traits().handler }

// Group returns the group of executors that do the work, "" if nodes do it.
func (r *RunSpec) Group() string { return r.traits().group }

// Subject returns the command or the address of the work, "" where it has neither.
func (r *RunSpec) Subject() string { return r.traits().subject }

// IsFlow reports whether the work is a flow.
func (r *RunSpec) IsFlow() bool { return r.traits().isFlow }

// IsReported reports whether the work happens outside of Belfry and is reported to it.
func (r *RunSpec) IsReported() bool { return r.traits().isReported }

// IsTimed reports whether the timeout counts from the start of an attempt on its node: for other work
// it counts from when another program has begun.
func (r *RunSpec) IsTimed() bool {
	return !r.IsFlow() && !r.IsReported() && !r.IsHandedOver()
}

// IsHandedOver reports whether nodes hand the work over to another program, which reports the end
// later.
func (r *RunSpec) IsHandedOver() bool {
	return r.traits().isElsewhere || r.Kubernetes != nil || r.HTTP != nil && r.HTTP.Callback
}

// MarshalJSON implements [json.Marshaler]: the form in stores, which is the form of documents
// with each kind of work written out.
func (r RunSpec) MarshalJSON() ([]byte, error) {
	v := reflect.ValueOf(&r).Elem()
	b, fields := []byte{'{'}, 0
	for _, f := range fieldsOf(runSpecType) {
		value := f.of(v)
		if !isSaid(value) {
			continue
		}
		b = append(appendJSONText(appendComma(b, fields), f.name), ':')
		if flow, ok := value.Interface().(*Flow); ok { // its steps have work
			text, err := json.Marshal(flow)
			if err != nil {
				return nil, err
			}
			b = append(b, text...)
			fields++
		} else if fields++; f.isWork() && !isStoredShort(value) {
			b, _, _ = appendFields(append(b, '{'), value.Elem())
			b = append(b, '}')
		} else {
			b = appendSet(b, value)
		}
	}
	return append(b, '}'), nil
}

// isStoredShort reports whether stores use the short text form of a kind of work.
func isStoredShort(work reflect.Value) bool {
	_, ok := work.Interface().(json.Unmarshaler)
	return ok
}

// UnmarshalJSON implements [json.Unmarshaler]. It reads what MarshalJSON has written, and
// ignores fields of a newer version.
func (r *RunSpec) UnmarshalJSON(text []byte) error {
	type union RunSpec // has no UnmarshalJSON
	if err := json.Unmarshal(text, (*union)(r)); err != nil {
		return err
	}
	v := reflect.ValueOf(r).Elem()
	read := -1
	for _, f := range fieldsOf(runSpecType) {
		if f.isWork() || f.owner == read || v.Field(f.owner).IsNil() {
			continue
		}
		// Fields that documents write beside the work have other names inside it.
		if err := json.Unmarshal(text, v.Field(f.owner).Interface()); err != nil {
			return err
		}
		read = f.owner
	}
	return nil
}

// worksWhere returns the fields of the kinds of work that have a trait, as users write them.
func worksWhere(has func(traits) bool) []string {
	var names []string
	for _, f := range fieldsOf(runSpecType) {
		if f.isWork() && has(reflect.New(f.typ.Elem()).Interface().(work).traits()) {
			names = append(names, "run."+f.name)
		}
	}
	return names
}

// runSpec checks the work of a job, except its templates.
func (v *validator) runSpec(j *Job) { v.runSpecOf(j, &j.Run, root.field("run"), false) }

// runSpecOf checks the work of a job, or of a step of its flow.
func (v *validator) runSpecOf(j *Job, r *RunSpec, at *path, inFlow bool) {
	fits := func(t traits) bool {
		if inFlow {
			return !t.isFlow && !t.isReported
		}
		return !t.isStep
	}
	if w := r.work(); w != nil {
		v.misplaced(w.kind(), at)
		switch {
		case fits(w.traits()):
			w.check(v, j, at)
		case w.traits().isStep:
			v.report(at.field(string(w.kind())), phrase.OnlyForSteps, phrase.FlowOrOn.Of("run: {flow: {steps: [...]}}", "schedule: {on: NAME}"))
		default:
			v.report(at.field(string(w.kind())), phrase.NotForFlowSteps, phrase.JobOfItsOwn.Of("run: {job: NAME}"))
		}
		return
	}
	var kinds []string
	for _, f := range fieldsOf(runSpecType) {
		if f.isWork() && fits(reflect.New(f.typ.Elem()).Interface().(work).traits()) {
			kinds = append(kinds, f.name)
		}
	}
	v.report(at, phrase.ExactlyOne.Of(kinds), phrase.Example.Of("shell: echo hello"))
}

// misplaced reports fields that belong to another kind of work.
func (v *validator) misplaced(kind Work, at *path) {
	if v.doc.source == nil {
		return
	}
	_, run := at.locate(v.doc.source)
	fields := fieldsOf(runSpecType)
	for _, f := range fields {
		owner := slices.IndexFunc(fields, func(o *field) bool { return o.isWork() && o.index == f.owner })
		if owner < 0 || fields[owner].name == string(kind) {
			continue
		}
		if value := run.get(f.name); value != nil && value.kind != nullNode {
			v.report(at.field(f.name), phrase.OnlyWithRun.Of(fields[owner].name))
		}
	}
}
