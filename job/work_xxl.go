package job

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"strings"
	"time"
	"unicode"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// WorkXXL is the kind of work of an executor of XXL-JOB.
const WorkXXL Work = "xxl"

// XXL is work for XXL-JOB executors. A node sends the request to an executor of the group, and the
// executor calls back at the end: see docs/xxl.md.
type XXL struct {
	Group   string `json:"group" max:"255" doc:"The group of executors, which is the appname that they register with."`
	Handler string `json:"handler,omitzero" max:"255" doc:"The name of the handler in the executor, as in @XxlJob. Not with glue."`
	Param   string `json:"param,omitzero" secret:"value" max:"1048576" doc:"The parameter of the handler. A template."`
	ID      int    `json:"id,omitzero" min:"1" max:"2147483647" doc:"The number of the job at executors, which queue the runs of one number. Default: derived from the uid of the job."`
	Block   Block  `json:"block,omitzero" doc:"What an executor does with a run while another run of the job is on it. Only with overlap: allow; other overlap policies apply across all executors. Default: serial."`
	Glue    *Glue  `json:"glue,omitzero" doc:"Code to send to the executor instead of a handler. Nodes send it only with xxl.glue."`
}

// Glue is code that an executor runs.
type Glue struct {
	Type    GlueType  `json:"type" doc:"The language of the code."`
	Source  string    `json:"source" max:"1048576" doc:"The code. Not a template."`
	Updated time.Time `json:"updated,omitzero" doc:"When the code was changed, according to the old admin. When it differs from the previous run, the executor ends its runs of the job. Default: derived from the code."`
}

// GlueType is the language of code for executors.
type GlueType string

// The languages of code for executors.
const (
	GlueGroovy     GlueType = "groovy"
	GlueShell      GlueType = "shell"
	GluePython     GlueType = "python"
	GluePython2    GlueType = "python2"
	GlueNodeJS     GlueType = "nodejs"
	GluePowerShell GlueType = "powershell"
	GluePHP        GlueType = "php"
)

// Values returns all languages.
func (GlueType) Values() []string {
	return texts(GlueGroovy, GlueShell, GluePython, GluePython2, GlueNodeJS, GluePowerShell, GluePHP)
}

// Name returns the executors' name of the language.
func (t GlueType) Name() string { return "GLUE_" + strings.ToUpper(string(t)) }

// Block is an executor's treatment of a run while another run of the job is on it.
type Block string

// What an executor does with a run while another run of the job is unfinished.
const (
	BlockSerial  Block = "serial"
	BlockDiscard Block = "discard_later"
	BlockCover   Block = "cover_early"
)

// Values returns all blocks.
func (Block) Values() []string { return texts(BlockSerial, BlockDiscard, BlockCover) }

// Name returns the executors' name of the block strategy.
func (b Block) Name() string {
	if b == BlockDiscard || b == BlockCover {
		return strings.ToUpper(string(b))
	}
	return "SERIAL_EXECUTION"
}

// Moment returns when the code was changed, in milliseconds, as executors use it.
func (g *Glue) Moment() int64 {
	if !g.Updated.IsZero() {
		return g.Updated.UnixMilli()
	}
	sum := sha256.Sum256([]byte(g.Type.Name() + "\x00" + g.Source))
	return int64(binary.BigEndian.Uint64(sum[:8]) % glueMoments)
}

// glueMoments bounds the moments derived from code: before 2001, and so before any executor.
const glueMoments = 1_000_000_000_000

// Number returns the number that identifies the job to executors. A job without its own
// number gets one from its uid, above those assigned by an admin of XXL-JOB.
func (x *XXL) Number(uid ID) int32 {
	if x.ID != 0 {
		return int32(x.ID)
	}
	sum := sha256.Sum256(uid[:])
	return int32(1<<30 | binary.BigEndian.Uint32(sum[:4])&(1<<30-1))
}

// XXLHandler is a handler of nodes that may send work to executors. No handler of a program has
// such a name.
const XXLHandler = ":xxl"

// ExecutorParam is among the parameters of a run that was started for one executor: its address.
// No job can declare a parameter of this name, and jobs that follow do not get it.
const ExecutorParam = ":executor"

// WithoutExecutor returns parameters of a run for its followers.
func WithoutExecutor(params map[string]string) map[string]string {
	if _, has := params[ExecutorParam]; !has {
		return params
	}
	if len(params) == 1 {
		return nil
	}
	params = maps.Clone(params)
	delete(params, ExecutorParam)
	return params
}

// PreviousParam is among the parameters of a run whose request has chosen the interval of its data: where
// it begins, instead of the previous scheduled time. No job can declare a parameter of this name.
const PreviousParam = ":previous"

// WithPrevious returns parameters of a run with the beginning of its interval.
func WithPrevious(params map[string]string, previous time.Time) map[string]string {
	params = maps.Clone(params)
	if params == nil {
		params = map[string]string{}
	}
	params[PreviousParam] = previous.UTC().Format(time.RFC3339Nano)
	return params
}

// PreviousOf returns the beginning of the interval that the request for a run has chosen, zero for none.
func PreviousOf(params map[string]string) time.Time {
	previous, _ := time.Parse(time.RFC3339Nano, params[PreviousParam]) // it is not from people
	return previous
}

// ShownParams returns parameters of a run for people: those that a job can declare.
func ShownParams(params map[string]string) map[string]string {
	params = WithoutExecutor(params)
	if _, has := params[PreviousParam]; !has {
		return params
	}
	if len(params) == 1 {
		return nil
	}
	params = maps.Clone(params)
	delete(params, PreviousParam)
	return params
}

func (x *XXL) kind() Work { return WorkXXL }

func (x *XXL) spec() RunSpec { return RunSpec{XXL: x} }

func (x *XXL) traits() traits { return traits{handler: XXLHandler, group: x.Group, isElsewhere: true} }

func (x *XXL) filled() work { return x }

func (x *XXL) expand(visit visitor, run *path) work {
	expanded := *x
	expanded.Param = visit(TemplatePrivate, x.Param, run.at("xxl.param"))
	return &expanded
}

func (x *XXL) check(v *validator, j *Job, run *path) {
	at := run.field("xxl")
	v.refuse(strings.TrimSpace(x.Group) == "", at.field("group"), phrase.Missing, phrase.GroupForm)
	v.refuse(strings.ContainsFunc(x.Group, isBlankOrControl), at.field("group"), phrase.HasBlank.Of(quote(x.Group)), phrase.GroupForm)
	v.refuse(strings.ContainsFunc(x.Handler, unicode.IsControl), at.field("handler"), phrase.HasControl)
	v.refuse((x.Handler != "") == (x.Glue != nil), at, phrase.OneOfXXL, phrase.Example.Of("handler: orderSync"))
	if g := x.Glue; g != nil {
		v.refuse(strings.TrimSpace(g.Source) == "", at.at("glue.source"), phrase.Missing)
		v.refuse(!g.Updated.IsZero() && g.Updated.UnixMilli() <= 0, at.at("glue.updated"), phrase.Before1970)
	}
	policy := j.Policy
	policy.fill(v.defaults.in(j.Namespace), j)
	v.refuse(x.Block != "" && policy.Overlap != OverlapAllow, at.field("block"), phrase.OnlyWith.Of("policy.overlap: allow"),
		phrase.OneAtExecutor.Of(string(policy.Overlap)))
	place := root.field("place")
	v.refuse(j.Place.Sticky, place.field("sticky"), phrase.AboutNodes, phrase.UseHash)
	v.refuse(j.Place.Strategy == StrategyBroadcast && j.Schedule.Boot, root.at("schedule.boot"), phrase.NotWithXXLCast)
}

func isBlankOrControl(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
