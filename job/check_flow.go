package job

import (
	"regexp"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

var stepPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

func (f *Flow) check(v *validator, j *Job, run *path) {
	at := run.field("flow")
	policy := root.field("policy")
	v.refuse(j.Policy.Retry != nil, policy.field("retry"), phrase.NotForFlowEach, phrase.SetFlowRetry)
	v.refuse(j.Policy.Success != nil, policy.field("success"), phrase.NotForFlowEach, phrase.SetStepSuccess)
	place := root.field("place")
	v.refuse(j.Place.Shards > 0, place.field("shards"), phrase.NotForFlow, phrase.ForEachInStep)
	v.refuse(j.Place.Strategy == StrategyBroadcast, place.field("strategy"), phrase.BroadcastFlow, phrase.StepWithBroadcast)
	if len(f.Steps) == 0 {
		v.report(at.field("steps"), phrase.Missing, phrase.Example.Of("[{name: first, run: {shell: echo hello}}]"))
		return
	}
	v.refuse(len(f.Steps)+len(f.Finally) > StepsMax, at.field("finally"), phrase.TooManySteps.Of(len(f.Steps)+len(f.Finally)), phrase.AtMostInAll.Of(StepsMax))
	g := f.graph(v, at)
	if d := f.Defaults; d != nil {
		v.flowDefaults(j, d, at.field("defaults"))
	}
	f.checkTogether(v, at)
	for i, s := range f.All() {
		v.step(j, s, g, i, f.pathOf(i, at))
	}
}

// checkTogether checks that all commands of a flow on one node run as the same user: other users
// cannot enter their shared directory.
func (f *Flow) checkTogether(v *validator, at *path) {
	if !f.KeepTogether {
		return
	}
	var first *Shell
	for i, s := range f.filled().(*Flow).All() {
		switch sh := s.Run.Shell; {
		case sh == nil:
		case first == nil:
			first = sh
		case sh.User != first.User:
			v.report(f.pathOf(i, at).at("run.user"), phrase.OtherUser,
				phrase.SetFlowUser)
			return
		}
	}
}

// pathOf returns the path of the i-th step of All.
func (f *Flow) pathOf(i int, at *path) *path {
	if f.IsFinally(i) {
		return at.field("finally").item(i - len(f.Steps))
	}
	return at.field("steps").item(i)
}

func (v *validator) flowDefaults(j *Job, d *StepDefaults, at *path) {
	if d.Place != nil {
		v.stepPlace(d.Place, at.field("place"))
	}
	sh := &Shell{Env: d.Env, Dir: d.Dir, User: d.User}
	sh.checkProcess(v, at)
	of := &Job{Run: RunSpec{Shell: &Shell{Command: "true"}}, Policy: Policy{Retry: d.Retry}}
	filled := of.Policy
	filled.fill(&Defaults{}, of)
	v.retry(of, &filled, at.field("retry"))
	for _, name := range sh.envNames() {
		v.templateOf(TemplatePrivate, d.Env[name], at.field("env").field(name), &compiler{params: j.paramNames(), secrets: j.secretParams()}, &TemplateData{Namespace: namespaceOf(j.Namespace)})
	}
}

// stepPlace checks where a step runs.
func (v *validator) stepPlace(p *Place, at *path) {
	v.labels(p.Labels, at.field("labels"))
	v.refuse(p.Shards > 0, at.field("shards"), phrase.NotForStep, phrase.UseForEach)
	v.refuse(p.Strategy == StrategyBroadcast, at.field("strategy"), phrase.BroadcastStep, phrase.RunWithBroadcast.Of("run: {job: NAME}"))
}

// graph is the dependencies of the steps.
type graph struct {
	index map[string]int
	// over are the steps that have certainly ended when another one starts.
	over []map[string]bool
}

// graph checks the names and the dependencies of the steps.
func (f *Flow) graph(v *validator, at *path) graph {
	all := f.All()
	g := graph{index: map[string]int{}, over: make([]map[string]bool, len(all))}
	var names []string
	for i, s := range all {
		here := f.pathOf(i, at).field("name")
		switch _, twice := g.index[s.Name]; {
		case s.Name == "":
			v.report(here, phrase.Missing, phrase.StepForm)
		case !stepPattern.MatchString(s.Name):
			v.report(here, phrase.NotStepName.Of(quote(s.Name)), phrase.StepForm)
		case twice:
			v.report(here, phrase.StepTwice.Of(quote(s.Name)))
		default:
			g.index[s.Name] = i
			names = append(names, s.Name)
		}
	}
	for i, s := range all {
		here := f.pathOf(i, at).field("needs")
		for k, need := range s.Needs {
			n, known := g.index[need]
			switch {
			case !known:
				v.report(here.item(k), phrase.NoStep.Of(quote(need)), nearest(need, names))
			case slices.Contains(s.Needs[:k], need):
				v.report(here.item(k), phrase.QuotedTwice.Of(quote(need)))
			case f.IsFinally(n) && !f.IsFinally(i):
				v.report(here.item(k), phrase.InFinally.Of(quote(need)))
			case !f.IsFinally(n) && f.IsFinally(i):
				v.report(here.item(k), phrase.EndedBefore.Of(quote(need)), phrase.LeaveOut)
			}
		}
		v.refuse(s.When == OnFailed && len(s.Needs) == 0, f.pathOf(i, at).field("when"), phrase.FailedWithoutNeed, phrase.NeedWhatFails)
	}
	if circle := f.circle(&g, all); circle != nil {
		first := g.index[circle[0]]
		v.report(f.pathOf(first, at).field("needs"), phrase.Circle.Of(strings.Join(circle, " needs ")))
		return g
	}
	for i := range all {
		f.reach(&g, all, i)
	}
	return g
}

// reach records the steps that have certainly ended when the i-th step starts. The graph
// has no cycle.
func (f *Flow) reach(g *graph, all []*Step, i int) map[string]bool {
	if g.over[i] != nil {
		return g.over[i]
	}
	over := map[string]bool{}
	if f.IsFinally(i) {
		for k := range f.Steps {
			over[f.Steps[k].Name] = true
		}
	}
	for _, need := range all[i].Needs {
		if n, known := g.index[need]; known {
			over[need] = true
			for name := range f.reach(g, all, n) {
				over[name] = true
			}
		}
	}
	g.over[i] = over
	return over
}

// circle returns the names along a cycle, with the first one again at the end, or nil
// without a cycle.
func (f *Flow) circle(g *graph, all []*Step) []string {
	const (
		unseen = iota
		open
		closed
	)
	state := make([]int, len(all))
	var way []string
	var visit func(i int) []string
	visit = func(i int) []string {
		state[i] = open
		way = append(way, all[i].Name)
		for _, need := range all[i].Needs {
			n, known := g.index[need]
			switch {
			case !known || state[n] == closed:
			case state[n] == open:
				return append(slices.Clone(way[slices.Index(way, need):]), need)
			default:
				if circle := visit(n); circle != nil {
					return circle
				}
			}
		}
		state[i] = closed
		way = way[:len(way)-1]
		return nil
	}
	for i := range all {
		if state[i] == unseen {
			if circle := visit(i); circle != nil {
				return circle
			}
		}
	}
	return nil
}

// step checks a step.
func (v *validator) step(j *Job, s *Step, g graph, i int, at *path) {
	over := g.over[i]
	if over == nil {
		over = map[string]bool{} // in a cycle, the ended steps are unknown
		for name := range g.index {
			over[name] = true
		}
	}
	of := &Job{Namespace: j.Namespace, Name: j.Name, Params: j.Params, Run: s.Run, Policy: Policy{Overlap: OverlapAllow, Retry: s.Retry, KillGrace: s.KillGrace, LostAfter: s.LostAfter}}
	scope := func() *compiler {
		return &compiler{params: j.paramNames(), secrets: j.secretParams(), flow: true, steps: over, item: len(s.ForEach) > 0}
	}
	early := func() *compiler {
		c := scope()
		c.early = true
		return c
	}
	v.template(s.If, at.field("if"), early())
	v.forEach(s, at, early)
	w := s.Run.work()
	v.refuse(s.Wait != nil && s.Run != (RunSpec{}), at.field("wait"), phrase.NotWith.Of("run"), phrase.TwoSteps)
	if s.Wait != nil {
		v.wait(s, at, early)
		return
	}
	v.runSpecOf(of, &s.Run, at.field("run"), true)
	if w == nil {
		return
	}
	if s.Place != nil {
		v.stepPlace(s.Place, at.field("place"))
	}
	filled := of.Policy
	filled.fill(&Defaults{}, of)
	if s.LostAfter != 0 {
		least := *filled.KillGrace + LostAfterMin
		v.refuse(s.LostAfter < least, at.field("lost_after"), phrase.TooShort.Of(s.LostAfter), phrase.AtLeastOrGrace.Of(least))
	}
	v.retry(of, &filled, at.field("retry"))
	v.success(of, s.Success, at.field("success"))
	if w.kind() == WorkJob {
		v.refuse(s.Retry != nil, at.field("retry"), phrase.NotForJobStep)
		v.refuse(s.Timeout != nil, at.field("timeout"), phrase.NotForJobStep)
		v.refuse(s.Place != nil, at.field("place"), phrase.NotForJobStep)
	}
	strict := !w.traits().unsafeParams
	w.expand(func(kind TemplateKind, text string, at *path) string {
		c := scope()
		c.strict, c.early = strict, w.kind() == WorkJob
		v.templateOf(kind, text, at, c, &TemplateData{Attempt: 1, Shards: 1, Namespace: namespaceOf(j.Namespace), Name: j.Name, Node: "node", Scheduled: v.now})
		return text
	}, at.field("run"))
}

func (v *validator) forEach(s *Step, at *path, scope func() *compiler) {
	if len(s.ForEach) == 0 {
		v.refuse(s.MaxParallel != 0, at.field("max_parallel"), phrase.OnlyWith.Of("for_each"), phrase.SetFlowParallel)
		v.refuse(s.FailFast, at.field("fail_fast"), phrase.OnlyWith.Of("for_each"), phrase.SetFlowFailFast)
		return
	}
	v.refuse(s.Wait != nil, at.field("for_each"), phrase.NotForWait)
	for i, text := range s.ForEach {
		c := scope()
		c.item = false
		v.template(text, at.field("for_each").item(i), c)
	}
}

func (v *validator) wait(s *Step, at *path, scope func() *compiler) {
	wait := at.field("wait")
	w := s.Wait
	var parts []string
	for _, kind := range []struct{ name, text string }{{"until", w.Until}, {"approval", w.Approval}, {"signal", w.Signal}} {
		if kind.text != "" {
			parts = append(parts, kind.name)
		}
	}
	switch {
	case len(parts) == 0 && w.For == 0:
		v.report(wait, phrase.OneOfWaits, phrase.Example.Of("{for: 10m}"))
	case len(parts) > 1:
		v.report(wait.field(parts[1]), phrase.NotWith.Of(parts[0]), phrase.TwoSteps)
	case w.Until != "" && w.For != 0:
		v.report(wait.field("for"), phrase.NotWith.Of("until"))
	}
	v.refuse(w.Signal != "" && !stepPattern.MatchString(w.Signal), wait.field("signal"), phrase.NotSignalName.Of(quote(w.Signal)), phrase.StepForm)
	v.template(w.Until, wait.field("until"), scope())
	if w.Until != "" && !strings.Contains(w.Until, "{{") {
		_, err := parseInstant(w.Until)
		v.reportError(wait.field("until"), err)
	}
	v.template(w.Approval, wait.field("approval"), scope())
	for _, f := range []struct {
		set  bool
		name string
	}{{s.Retry != nil, "retry"}, {s.Timeout != nil, "timeout"}, {s.Success != nil, "success"}, {s.Place != nil, "place"}, {s.KillGrace != nil, "kill_grace"}, {s.LostAfter != 0, "lost_after"}} {
		v.refuse(f.set, at.field(f.name), phrase.NotForWait, phrase.LimitIsWaitFor)
	}
}

// template checks a template of a flow.
func (v *validator) template(text string, at *path, c *compiler) {
	if text != "" {
		_, err := compileTemplate(TemplateText, text, c)
		v.reportError(at, err)
	}
}
