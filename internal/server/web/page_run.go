package web

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// runView is the page of a run.
type runView struct {
	*Layout
	Run               client.Run
	ID, Short         string
	Namespace, Name   string
	JobAddress        string
	State             State
	Word, WordEnd     string // how it is, with the exit code or, between the two, how long it runs
	Runs              When
	Scheduled         When
	Node, Attempt     string
	Bad               bool // the reason is one of a failure
	Why               whyCard
	IsLatest          bool
	Latest            int64 // the version that the job has now, if it is a later one
	Phases            []phase
	Attempts          template.HTML
	AttemptsText      string
	Facts             []fact
	Params            []fact
	Fields            []paramField // of the parameters of the job, with the values of the run
	Around            neighboursCard
	Active, CanCancel bool
	RetryText         string // what a retry does, where that is not all
	Output            outputCard
	Refresh           bool // without script the page reads itself again
	Flow              *flowView
	Shards            shardsCard
}

// whyCard says why a run is as it is, and what that means for its job.
type whyCard struct {
	Class, Icon, JobAddress string
	Cancelling              string
	Reason, More            string
	Since                   *failingSince
	Changed                 string    // the fields that the version changed with which failures began
	Pause                   *runPause // of the job, by failures such as this one
	Same                    []need    // other jobs that fail with the same error
	Print                   string    // the fingerprint of its failure
	NotStarted              []string  // jobs that a success would have started
	NotStartedMore          bool
}

// outputCard is the output of an attempt.
type outputCard struct {
	ID, Zone string
	Lines    []outputLine
	Attempt  int
	Tabs     []tab
	Stream   string // that is shown; "" for both
	Streams  []tab
	Text     string // instead of lines
	Bytes    string // how much an attempt that has ended has written
	Size     string // how many lines and bytes it has, as far as a page without script knows that
	Raw      string
	Live     bool
	Cut      bool
	LeftOut  string // what is not kept
	Beside   string // where the output is beside another one's
	Compared *comparison
}

// neighboursCard has the runs before and after a run.
type neighboursCard struct {
	JobAddress string
	Runs       []neighbour
	Success    *neighbour // the last before a failure
	Successes  string     // where the successes are that Runs does not have
}

// shardsCard has the shards of the work that a run is a part of.
type shardsCard struct {
	List []shard
	Text string
}

// phase is a step in the life of a run.
type phase struct {
	Class, Name, When, Text string
	Clock                   When // that scripts keep current
	Link, Address           string
}

// runPause says how failures in a row pause the job of a run.
type runPause struct{ Text, Link, Address string }

type neighbour struct {
	Address  string
	State    State
	At       When
	Took     string
	This     bool
	Last     string // that it is the last that succeeded
	Relative When
}

// outputLine is a line of output, as far as a page without script shows it.
type outputLine struct {
	Class, Mark string // of a comparison
	Number      int
	At          string
	Error       bool
	Parts       []ansiPart
}

const (
	// outputTail is how many of the last lines a page shows without script.
	outputTail = 1000
	// lineMax is how much of a line a page shows without script: a browser needs long for a word
	// of many letters.
	lineMax = 4 << 10
	// neighbourRuns is how many runs before and after are looked for.
	neighbourRuns = 8
	// neighboursAfter is how many earlier ones are shown.
	neighboursAfter = 3
)

// besides says what is to be known of a run beside its reason.
func (p *page) besides(r *client.Run) string {
	var parts []string
	if r.Unmet != "" {
		parts = append(parts, p.reason(r.UnmetArgs.Reason(r.Unmet, r.UnmetCode)))
	}
	if r.StoreLoss != "" {
		parts = append(parts, p.reason(r.StoreLossArgs.Reason(r.StoreLoss, r.StoreLossCode)))
	}
	return strings.Join(parts, " ")
}

func (s *site) run(p *page) error {
	id, err := job.ParseID(p.r.PathValue("id"))
	if err != nil {
		return &service.Error{Type: client.TypeNotFound, Detail: job.Text(p.T("run.no_id", "id", clean(p.r.PathValue("id"))))}
	}
	explained, err := s.Service.Runs.Explained(p.ctx(), p.who, id)
	if err != nil {
		return err
	}
	r := explained.Run
	l := p.layout("run.title", "runs", "name", r.Job)
	l.Namespace = ""
	namespace, name := splitName(r.Job)
	v := runView{
		Layout: l, Run: r, ID: id.String(), Short: id.String()[:8] + "…" + id.String()[22:], Namespace: namespace, Name: name, JobAddress: "/jobs/" + r.Job,
		State: p.runState(&r), Scheduled: p.at(r.Scheduled), Node: r.Node, Active: r.State != job.StateDone,
	}
	v.Why.Reason, v.Why.JobAddress = p.withCause(p.reason(r.Value()), r.Reason, &r.Failure), v.JobAddress
	v.Around.JobAddress, v.Output.ID, v.Output.Zone = v.JobAddress, v.ID, l.Zone
	v.Scheduled.Text = p.dated(r.Scheduled) + ", " + r.Scheduled.In(p.zone).Format("15:04:05")
	l.CanRun = p.mayIn(service.Operate, namespace)
	v.CanCancel = v.Active && l.CanRun
	v.Word = p.stateWord(&r, v.State.Text)
	if r.State == job.StateRunning && !r.Started.IsZero() {
		v.Runs = p.since(r.Started)
		v.Word, v.WordEnd, _ = strings.Cut(p.T("run.running_for", "d", cutHere), cutHere)
	}
	v.Bad = r.State == job.StateDone && r.Outcome.Alarms()
	if v.Why.Class, v.Why.Icon = "info", v.State.Icon; v.Bad {
		v.Why.Class = "fail"
	}
	if r.Outcome == job.OutcomeSucceeded {
		v.Why.Reason = "" // the outcome says it
	}
	if r.Attempt > 0 {
		v.Attempt = p.T("run.attempt", "n", r.Attempt)
	}
	if v.Attempt != "" && r.AttemptsMax > 1 {
		v.Attempt = p.T("run.attempt_of", "n", r.Attempt, "most", r.AttemptsMax)
	}
	v.Why.More = p.besides(&r)
	if v.Active && r.CancelBy != "" {
		v.Why.Cancelling = p.T("run.cancelling", "who", r.CancelBy)
	}
	problems := s.frame(p.ctx(), p.who, frameFor).attention
	v.Why.More = strings.TrimSpace(v.Why.More + " " + p.urgency(problems, r.ID))
	if v.Bad && r.CauseFingerprint != "" {
		v.Why.Print, v.Why.Same = r.CauseFingerprint, p.sameError(problems, &r)
	}
	if now := explained.Job; now != nil && r.Version > 0 {
		v.IsLatest = now.Version == r.Version
		if now.Version > r.Version {
			v.Latest = now.Version
		}
	}
	runs, at, err := s.around(p, &r)
	if err != nil {
		return err
	}
	usual := p.usual(runs)
	if at >= 0 {
		p.neighbours(&v, runs, at)
	}
	if v.Why.Since != nil && v.Why.Since.SameVersion {
		if v.Why.Changed, err = s.changedSince(p, &r, v.Why.Since); err != nil {
			return err
		}
	}
	if v.Bad && at >= 0 {
		v.Why.Pause = p.pauseOf(&explained, runs, at)
	}
	if v.Why.NotStarted, v.Why.NotStartedMore, err = s.notStarted(p, &r); err != nil {
		return err
	}
	due, err := s.madeBy(p, &explained)
	if err != nil {
		return err
	}
	v.Phases = p.phases(&r, due, usual)
	v.Attempts, v.AttemptsText = p.attempts(&r)
	v.Facts = p.runFacts(&v, usual)
	for _, key := range slices.Sorted(maps.Keys(r.Params)) {
		v.Params = append(v.Params, fact{Name: key, Value: clean(r.Params[key])})
	}
	v.Fields = p.paramFields(explained.Job, r.Params)
	if err := s.outputOf(p, &r, &v.Output); err != nil {
		return err
	}
	if err := s.besideOf(p, &r, runs, at, &v.Output); err != nil {
		return err
	}
	if err := s.flowOf(p, &r, usual, &v); err != nil {
		return err
	}
	if v.Shards.List, v.Shards.Text, err = s.shardsOf(p, &r); err != nil {
		return err
	}
	v.Refresh = v.Active
	l.Events = "kind=run&job=" + template.URLQueryEscaper(r.Job)
	l.Commands = []Command{
		{p.T("command.shell"), "belfry logs " + v.ID},
		{p.T("run.retry"), "belfry run retry " + v.ID},
		{"curl", p.curl("GET", "/api/v1/runs/"+v.ID, "")},
	}
	return p.show("run", v)
}

// cutHere stands in a text for what scripts keep current.
const cutHere = "\x00"

// urgency says why a run needs a person, where its own reason does not say so.
func (p *page) urgency(list []client.Attention, id job.ID) string {
	for i := range list {
		switch a := &list[i]; {
		case a.Run != id:
		case a.Kind == client.AttentionSlow:
			return p.need(a).Text
		case a.Kind == client.AttentionFailing && a.Count > 1:
			return p.T("run.in_row", "n", a.Count, "when", p.day(a.Since, "15:04"))
		}
	}
	return ""
}

// sameError returns the other jobs that fail with the error of a run.
func (p *page) sameError(list []client.Attention, r *client.Run) (same []need) {
	for i := range list {
		if a := &list[i]; a.Kind == client.AttentionFailing && a.CauseFingerprint == r.CauseFingerprint && a.Job != r.Job {
			same = append(same, p.need(a))
		}
	}
	return same
}

// stateWord is how a run is in a few words.
func (p *page) stateWord(r *client.Run, word string) string {
	switch {
	case r.ExitCode != nil && *r.ExitCode != 0:
		return p.T("run.exit_code", "outcome", word, "n", *r.ExitCode)
	case r.Signal != "":
		return word + ", " + r.Signal
	case r.HTTPStatus >= 400:
		return fmt.Sprintf("%s, HTTP %d", word, r.HTTPStatus)
	}
	return word
}

// phases are the steps in the life of a run. due says what made it; usual is how long runs of its job
// take, 0 where that is not known.
func (p *page) phases(r *client.Run, due phase, usual time.Duration) []phase {
	exact := func(t time.Time) string { return p.day(t, "15:04:05.000") }
	due.Name, due.When = p.T("run.due"), exact(r.Due)
	if r.Due.IsZero() || r.Scheduled.Before(r.Due) && (r.Attempt > 1 || r.State == job.StateDone) {
		due.When = exact(r.Scheduled)
	}
	var list []phase
	if !r.Planned.IsZero() && r.Kind != job.RunByHand {
		list = append(list, phase{Name: p.T("run.planned"), When: exact(r.Planned), Text: p.T("run.before_due", "d", p.took(max(r.Scheduled.Sub(r.Planned), 0)))})
	}
	if r.Started.IsZero() || !r.Started.Before(r.Scheduled) { // a run that was reported later was not due
		list = append(list, due)
	}
	switch {
	case r.Started.IsZero() && r.State == job.StateDone:
		return append(list, phase{Class: classOf(r), Name: capital(p.outcome(r.Outcome).Text), When: exact(r.Ended), Text: p.T("run.never_started")})
	case r.Started.IsZero():
		word := p.T("run.starts")
		if r.State == job.StateWaiting || r.Reason != "" && r.Due.Before(p.now) {
			word = p.T("state.waiting")
		}
		return append(list, phase{Class: "now", Name: word, Clock: p.relative(r.Due), Text: p.reason(r.Value())}, phase{Class: "todo", Name: p.T("run.ends")})
	}
	if ahead := r.Due.Sub(r.Claimed); len(list) > 0 && !r.Claimed.IsZero() && r.Attempt <= 1 && ahead >= time.Millisecond {
		claimed := phase{Name: p.T("run.claimed"), When: exact(r.Claimed), Text: p.T("run.before_due", "d", p.took(ahead))}
		list = slices.Insert(list, len(list)-1, claimed)
	}
	started := phase{Name: p.T("run.started"), When: exact(r.Started)}
	if late := r.Started.Sub(r.Scheduled); late >= 0 {
		started.Text = p.T("run.after_due", "d", p.took(late))
	}
	if r.State == job.StateRunning {
		running := phase{Class: "now part", Name: p.T("state.running"), Clock: p.since(r.Started)}
		if r.Node != "" { // a flow runs on no node
			running.Text = p.T("run.on", "node", r.Node)
		}
		if usual > 0 {
			running.Text = strings.TrimPrefix(running.Text+", "+p.T("timeline.usual", "d", p.took(usual)), ", ")
		}
		ends := phase{Class: "todo", Name: p.T("run.ends")}
		if !r.Deadline.IsZero() {
			ends.When, ends.Clock, ends.Text = p.day(r.Deadline, "15:04:05")+", ", p.relative(r.Deadline), p.T("run.at_latest")
			if r.Attempt < r.AttemptsMax {
				ends.Name = p.T("run.attempt_ends")
			}
		}
		return append(list, started, running, ends)
	}
	if r.State != job.StateDone {
		return append(list, started, phase{Class: "now", Name: p.T("run.retries"), Clock: p.relative(r.Due), Text: p.T("run.attempt", "n", r.Attempt)}, phase{Class: "todo", Name: p.T("run.ends")})
	}
	return append(list, started, phase{Class: classOf(r), Name: capital(p.outcome(r.Outcome).Text), When: exact(r.Ended), Text: p.T("run.took", "d", p.took(max(r.Ended.Sub(r.Started), 0)))})
}

func classOf(r *client.Run) string {
	if r.Outcome.Alarms() {
		return "fail"
	}
	return ""
}

// attempts draws the attempts on a line of time.
func (p *page) attempts(r *client.Run) (template.HTML, string) {
	if len(r.Attempts) < 2 {
		return "", ""
	}
	first, last := r.Attempts[0].Started, r.Attempts[len(r.Attempts)-1].Ended
	if first.IsZero() || !last.After(first) {
		return "", ""
	}
	length := last.Sub(first).Seconds() * 1.45 // room for the words beside the last one
	var lanes []draw.Lane
	for i := range r.Attempts {
		a := &r.Attempts[i]
		lane := draw.Lane{Name: p.T("run.attempt", "n", a.Number)}
		if !a.Started.IsZero() {
			took := p.took(a.Ended.Sub(a.Started))
			text := p.T("run.on_node", "d", took, "node", p.site.host(a.Node))
			if a.ExitCode != nil && a.Outcome == job.OutcomeFailed {
				text = p.T("run.on_node_code", "d", took, "node", p.site.host(a.Node), "n", *a.ExitCode)
			}
			if i > 0 && a.Started.After(r.Attempts[i-1].Ended) {
				before := r.Attempts[i-1].Ended
				lane.Spans = []draw.Span{{From: before.Sub(first).Seconds(), To: a.Started.Sub(first).Seconds(), Class: draw.Mute, Waits: true, Title: p.T("run.waited", "d", p.took(a.Started.Sub(before)))}}
			}
			lane.Spans = append(lane.Spans, draw.Span{From: a.Started.Sub(first).Seconds(), To: a.Ended.Sub(first).Seconds(), Class: outcomeClasses[a.Outcome], Title: p.outcome(a.Outcome).Text + " " + p.withCause(p.reason(a.Value()), a.Reason, &a.Failure), Text: text})
		}
		lanes = append(lanes, lane)
	}
	var ticks []draw.Tick
	for i := range 4 {
		at := length * float64(i) / 4
		text := p.day(first, "15:04:05")
		if i > 0 {
			text = "+" + p.took(time.Duration(at*float64(time.Second)))
		}
		ticks = append(ticks, draw.Tick{At: at, Text: text})
	}
	return picture(draw.Lanes(half, p.T("run.attempts"), lanes, length, ticks, -1, "")),
		p.T("run.from_to", "from", p.day(first, "15:04:05"), "to", p.day(last, "15:04:05"))
}

// runFacts are what there is to know about a run beside its outcome.
func (p *page) runFacts(v *runView, usual time.Duration) []fact {
	r := &v.Run
	list := []fact{{Name: p.T("run.made_by"), Value: p.T("kind." + string(r.Kind))}}
	if usual > 0 {
		list = append(list, fact{Name: p.T("run.usual"), Value: p.took(usual)})
	}
	if used := p.used(&r.Usage); used != "" {
		list = append(list, fact{Name: p.T("run.used"), Value: used})
	}
	if !r.Previous.IsZero() {
		list = append(list, fact{Name: p.T("run.previous_scheduled"), Value: p.at(r.Previous).Text})
	}
	if !r.RetryOf.IsZero() {
		list = append(list, fact{Name: p.T("run.retry_of"), Value: r.RetryOf.String()[:12] + "…", Link: "/runs/" + r.RetryOf.String(), Mono: true})
	}
	if r.Step != "" {
		name := r.Step
		if r.Item != nil {
			name = fmt.Sprintf("%s/%d", r.Step, *r.Item)
		}
		list = append(list, fact{Name: p.T("run.step_of"), Value: name, Link: selectStep("/runs/" + r.Parent.String())(r.Step)})
	} else if !r.Parent.IsZero() {
		list = append(list, fact{Name: p.T("run.parent"), Value: r.Parent.String()[:12] + "…", Link: "/runs/" + r.Parent.String(), Mono: true})
	}
	if r.Node != "" {
		list = append(list, fact{Name: p.T("run.node"), Value: r.Node, Link: "/nodes#" + r.Node})
	}
	list = append(list, p.executorFact(r)...)
	if r.Shards > 0 {
		list = append(list, fact{Name: p.T("run.shard"), Value: p.T("run.shard_of", "i", r.Shard+1, "n", r.Shards)})
	}
	if r.Version > 0 {
		version := fmt.Sprintf("v%d", r.Version)
		if v.IsLatest {
			version = p.T("run.version_latest", "v", r.Version)
		}
		list = append(list, fact{Name: p.T("job.definition"), Value: version, Link: fmt.Sprintf("/jobs/%s/definition?version=%d", r.Job, r.Version)})
	}
	if v.Latest > 0 {
		list = append(list, fact{
			Name: p.T("run.changed_since"), Value: fmt.Sprintf("v%d → v%d", r.Version, v.Latest),
			Link: changeAddress("/jobs/"+r.Job, v.Latest, r.Version),
		})
	}
	if r.Pool != "" {
		list = append(list, fact{Name: p.T("job.pool"), Value: r.Pool})
	} else if r.Slot != "" && r.Slot != r.Job {
		list = append(list, fact{Name: p.T("run.slot"), Value: r.Slot})
	}
	if r.CancelBy != "" {
		list = append(list, fact{Name: p.T("run.cancelled_by"), Value: strings.TrimSuffix(r.CancelBy+": "+clean(r.CancelReason), ": ")})
	}
	return append(list, fact{Name: "id", Value: r.ID.String(), Mono: true})
}

// used says what an attempt used of its machine, as far as that is known.
func (p *page) used(u *job.Usage) string {
	var parts []string
	if u.CPUSeconds > 0 {
		parts = append(parts, p.T("run.used_cpu", "d", p.took(u.CPU())))
	}
	switch memory := bytesText(u.MemoryBytes); {
	case u.MemoryAtMost:
		parts = append(parts, p.T("run.used_memory", "size", "≤ "+memory))
	case u.MemoryBytes > 0:
		parts = append(parts, p.T("run.used_memory", "size", memory))
	}
	if u.ReadBytes != nil {
		parts = append(parts, p.T("run.used_read", "size", bytesText(*u.ReadBytes)))
	}
	if u.WrittenBytes != nil {
		parts = append(parts, p.T("run.used_written", "size", bytesText(*u.WrittenBytes)))
	}
	return strings.Join(parts, " · ")
}

// around returns the runs of the job around this one, the latest first, and where this one is; -1 if it is
// not among them.
func (s *site) around(p *page, r *client.Run) (runs []client.Run, at int, err error) {
	uid := r.JobUID.String()
	for i, q := range []client.RunQuery{
		{Job: uid, PageSize: neighbourRuns},
		{Job: uid, PageSize: neighbourRuns, To: later(r.Ended, r.Scheduled).Add(time.Second)},
	} {
		at := slices.IndexFunc(runs, func(other client.Run) bool { return other.ID == r.ID })
		if i > 0 && at >= 0 && (len(runs) < neighbourRuns || len(runs)-at > neighboursAfter) {
			break // the list of the latest runs has this run and enough of its predecessors
		}
		page, err := s.Service.Runs.List(p.ctx(), p.who, q)
		if err != nil {
			return nil, -1, err
		}
		for _, run := range page.Items {
			if run.Step == r.Step && (run.Key != r.Key || run.ID == r.ID) && !slices.ContainsFunc(runs, func(other client.Run) bool { return other.ID == run.ID }) {
				runs = append(runs, run)
			}
		}
	}
	slices.SortStableFunc(runs, func(a, b client.Run) int { return b.Scheduled.Compare(a.Scheduled) })
	return runs, slices.IndexFunc(runs, func(other client.Run) bool { return other.ID == r.ID }), nil
}

// neighbours shows the runs around this one, with the last success before a failure.
func (p *page) neighbours(v *runView, runs []client.Run, at int) {
	r := &runs[at]
	last := -1 // the last success before a failure
	if v.Bad {
		last = slices.IndexFunc(runs[at:], func(other client.Run) bool { return other.Outcome == job.OutcomeSucceeded })
		v.Why.Since = p.failing(runs[at:], v.JobAddress)
		v.Around.Successes = "/runs?outcome=" + string(job.OutcomeSucceeded) + "&job=" + template.URLQueryEscaper(r.Job)
	}
	shown := runs[max(0, at-2):min(at+1+neighboursAfter, len(runs))]
	if last >= 0 && at+last >= max(0, at-2)+len(shown) {
		shown = append(slices.Clone(shown), runs[at+last])
	}
	for i := range shown {
		run := &shown[i]
		n := neighbour{Address: "/runs/" + run.ID.String(), State: p.runState(run), At: p.minute(run.Scheduled), This: run.ID == r.ID}
		if d := p.duration(run); d > 0 {
			n.Took = p.took(d)
		}
		if run.State == job.StateReady && run.Due.After(p.now) {
			n.Relative = p.relative(run.Due)
		}
		if last >= 0 && run.ID == runs[at+last].ID {
			n.Last = p.T("run.last_success")
			v.Around.Success = &n
		}
		v.Around.Runs = append(v.Around.Runs, n)
	}
}

// changedFieldsMost is how many changed fields a sentence names.
const changedFieldsMost = 6

// changedSince names the fields that a version has changed.
func (s *site) changedSince(p *page, r *client.Run, since *failingSince) (string, error) {
	namespace, name := splitName(r.Job)
	changes, err := s.Service.Jobs.Changes(p.ctx(), p.who, service.Name{Namespace: namespace, Name: name}, r.JobUID, since.Version, since.Before)
	if err != nil {
		return "", err
	}
	var fields []string
	for _, c := range changes[:min(len(changes), changedFieldsMost)] {
		fields = append(fields, clean(c.Path))
	}
	if len(changes) > changedFieldsMost {
		fields = append(fields, "…")
	}
	return strings.Join(fields, p.T("comma")), nil
}

// pauseOf says how the failures in a row that a run belongs to pause its job. nil: they do not.
func (p *page) pauseOf(r *service.ExplainedRun, runs []client.Run, at int) *runPause {
	if r.Job == nil || r.Job.Policy.PauseOnFailure == nil || r.Job.Status == nil || at >= neighbourRuns || !r.Outcome.Failed() {
		return nil
	}
	most, failures, later := *r.Job.Policy.PauseOnFailure, r.Job.Status.Failures, 0
	for i := range runs[:at] {
		if runs[i].Outcome == job.OutcomeSucceeded {
			return nil
		}
		if runs[i].Outcome.Failed() {
			later++
		}
	}
	if later >= failures { // the count began anew after this run
		return nil
	}
	if r.Job.Status.State != job.JobPaused {
		if most <= failures {
			return nil
		}
		return &runPause{Text: p.T("run.pauses_after", "k", failures, "most", most, "n", most-failures)}
	}
	last := reason.PausedByFailure.Arg(r.Job.Status.PausedFor, "run")
	if last == "" {
		return nil
	}
	resume := p.T("run.resume", "job", r.Job.FullName())
	link, address := p.T("run.to_job"), "/jobs/"+r.Run.Job
	if last == r.ID.String() {
		return &runPause{Text: p.T("run.paused_job", "n", failures, "when", p.day(r.Ended, "15:04:05")) + " " + resume, Link: link, Address: address}
	}
	text := p.T("run.job_paused", "n", failures)
	if i := slices.IndexFunc(runs, func(other client.Run) bool { return other.ID.String() == last }); i >= 0 {
		text = p.T("run.job_paused_since", "n", failures, "when", p.day(runs[i].Ended, "15:04:05"))
	}
	return &runPause{Text: text + " " + resume, Link: p.T("run.pausing"), Address: "/runs/" + last}
}

// outputOf shows which output there is and, for pages without script, its end.
func (s *site) outputOf(p *page, r *client.Run, v *outputCard) error {
	attempt := 0
	if n := p.query("attempt"); n != "" {
		_, _ = fmt.Sscan(n, &attempt)
	}
	latest := lastAttempt(r)
	if latest < 1 {
		v.Text = p.T("run.no_output_yet")
		if r.State == job.StateDone {
			v.Text = p.T("run.never_started")
		}
		return nil
	}
	if attempt < 1 || attempt > latest {
		attempt = latest
	}
	v.Attempt = attempt
	v.Live = r.State == job.StateRunning && attempt == r.Attempt
	for n := 1; latest > 1 && n <= latest; n++ {
		v.Tabs = append(v.Tabs, tab{Name: p.T("run.attempt", "n", n), Address: p.with("attempt", fmt.Sprint(n)) + "#output", Current: n == attempt})
	}
	v.Raw = fmt.Sprintf("/api/v1/runs/%s/output?attempt=%d", r.ID, attempt)
	for _, stream := range []string{"", "stdout", "stderr"} {
		t := tab{Name: stream, Address: p.with("stream", stream) + "#output", Current: stream == p.query("stream")}
		if stream == "" {
			t.Name = p.T("job.all")
		} else if t.Current {
			v.Stream = stream
			v.Raw += "&stream=" + stream
		}
		v.Streams = append(v.Streams, t)
	}
	if i := slices.IndexFunc(r.Attempts, func(a client.Attempt) bool { return a.Number == attempt }); i >= 0 && v.Stream == "" {
		v.Bytes = bytesText(r.Attempts[i].OutputBytes)
	}
	if p.query("compare") != "" {
		return nil
	}
	if p.isLive() { // the script has the output, and shows the output of another attempt without help
		v.Text = p.T("run.no_output_yet")
		return nil
	}
	lines, err := s.Service.Lines.ReadOf(p.ctx(), p.who, r, client.LinesQuery{Attempt: attempt, Stream: v.Stream, Count: outputTail})
	if err != nil {
		return err
	}
	var colours ansi
	for i := range lines.Items {
		v.Lines = append(v.Lines, p.outputLine(&lines.Items[i], &colours))
	}
	if len(v.Lines) == 0 {
		v.Text = p.T("run.no_output")
	}
	v.LeftOut = p.leftOut(&lines)
	if v.Cut = lines.Total > len(v.Lines); !v.Cut {
		v.Size = strings.ReplaceAll(p.T("js.lines"), "{n}", number(int64(lines.Total+max(0, lines.LeftOutTo-lines.LeftOutLine))))
	}
	if v.Bytes != "" {
		v.Size = strings.TrimPrefix(v.Size+", "+v.Bytes, ", ")
	}
	return nil
}

// leftOut says what of an output is not kept, as the script does.
func (p *page) leftOut(lines *client.OutputLines) string {
	n, line := fmt.Sprintf("%.1f", float64(lines.LeftOut)/1e6), number(int64(lines.LeftOutLine))
	switch {
	case lines.LeftOut == 0:
		return ""
	case lines.LeftOutTo == 0:
		return p.T("js.left_out_bytes", "n", n, "line", line)
	}
	return p.T("js.left_out", "n", n, "line", line, "to", number(int64(lines.LeftOutTo)))
}

// parseOutput divides output with times into lines.
func parseOutput(text []byte, zone *time.Location) []outputLine {
	var lines []outputLine
	var colours ansi
	for raw := range strings.Lines(strings.ToValidUTF8(string(text), "\uFFFD")) {
		raw = strings.TrimSuffix(strings.TrimSuffix(raw, "\n"), "\r")
		line := outputLine{Number: len(lines) + 1}
		if at, rest, ok := strings.Cut(raw, " "); ok {
			if t, err := time.Parse(time.RFC3339Nano, at); err == nil && len(rest) > 0 {
				line.At, line.Error = t.In(zone).Format("15:04:05"), rest[0] == '!'
				raw = strings.TrimPrefix(rest[1:], " ")
			}
		}
		if len(raw) > lineMax {
			raw = strings.ToValidUTF8(raw[:lineMax], "") + "…"
		}
		line.Parts = colours.parts(raw)
		lines = append(lines, line)
	}
	return lines
}
