package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Operation is one atomic step of a store: it declares its needs and decides. Its fields
// hold the outcomes. Decide may be called several times, each time with another batch: the
// last call counts.
type Operation interface {
	// Need requests the inputs of the decision that the batch lacks. It is called again
	// after each load, until it requests nothing more.
	Need(b *Batch, n *Need)
	// Decide changes the batch. After an error no change is written.
	Decide(b *Batch) error
}

// Needs fills an empty need with the unknown inputs of an operation.
func (b *Batch) Needs(op Operation, n *Need) {
	op.Need(b, n)
	b.lookMembers(n)
	b.lookExecutors(n)
}

// Present returns a session that is not over.
func (b *Batch) Present(id job.ID) (*store.Session, error) {
	s := b.session(id)
	if s == nil || b.facts.over[id] {
		return nil, fmt.Errorf("session %s: %w", id, store.ErrSessionOver)
	}
	return s, nil
}

// sized returns a list of zero values of a length, reusing the memory of another one.
func sized[T any](list []T, n int) []T {
	list = slices.Grow(list[:0], n)[:n]
	clear(list)
	return list
}

// Plan moves cursors: see [store.Planning].
type Plan struct {
	Session  job.ID
	Items    []store.PlanItem
	Outcomes []store.PlanOutcome
	// Claims are the results for the runs with a token.
	Claims []store.ClaimOutcome
}

// Need requests the jobs, all runs of a job that is removed on completion, and the inputs of the
// claims.
func (o *Plan) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	for i := range o.Items {
		item := &o.Items[i]
		j, _ := b.lookJob(n, item.Job)
		if j == nil {
			continue
		}
		if item.Complete && j.Policy.DeleteAfter >= 0 {
			b.lookWhole(n, j.UID)
		}
		b.lookClaims(n, j, o.Session, item)
	}
}

// Decide decides about each item.
func (o *Plan) Decide(b *Batch) error {
	planner, err := b.Present(o.Session)
	if err != nil {
		return err
	}
	o.Outcomes = sized(o.Outcomes, len(o.Items))
	for i := range o.Items {
		o.Outcomes[i] = b.Plan(o.Session, &o.Items[i])
	}
	o.Claims = o.Claims[:0]
	for i := range o.Items {
		for k := range o.Items[i].Runs {
			if r := &o.Items[i].Runs[k]; !r.Token.IsZero() {
				o.Claims = append(o.Claims, b.claimPlanned(planner, o.Outcomes[i], o.Items[i].Job, r))
			}
		}
	}
	return nil
}

// Trigger makes runs on request: see [store.Planning].
type Trigger struct {
	Items    []store.TriggerItem
	Outcomes []store.TriggerOutcome
}

// Need requests the jobs and the keys of the requests.
func (o *Trigger) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	for i := range o.Items {
		b.lookJob(n, o.Items[i].Job)
		id := IdentityOf(&o.Items[i])
		if !b.facts.keys[id] {
			ask(&n.asked.keys, &n.Keys, id, id)
		} else if run := b.keys[id]; o.Items[i].PutOff > 0 && !run.IsZero() {
			b.lookRun(n, RunRef{Run: run, Job: o.Items[i].Job})
		}
	}
}

// Decide decides about each item.
func (o *Trigger) Decide(b *Batch) error {
	before := slices.Clone(o.Outcomes)
	o.Outcomes = sized(o.Outcomes, len(o.Items))
	for i := range o.Items {
		o.Outcomes[i] = b.Trigger(&o.Items[i])
		if before != nil && before[i].Made && before[i].Run == o.Outcomes[i].Run {
			o.Outcomes[i].Made = true // made by a partly committed try
		}
	}
	return nil
}

// Place assigns runs to sessions: see [store.Planning].
type Place struct{ Placements []store.Placement }

// Need requests the runs and their jobs.
func (o *Place) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	for i := range o.Placements {
		b.lookRun(n, RunRef{Run: o.Placements[i].Run, Job: o.Placements[i].Job})
	}
}

// Decide decides about each placement.
func (o *Place) Decide(b *Batch) error {
	for _, p := range o.Placements {
		b.Place(p)
	}
	return nil
}

// Claim starts attempts: see [store.Working].
type Claim struct {
	Session  job.ID
	Attempts []store.Attempt
	Outcomes []store.ClaimOutcome
}

// Need requests the runs with the inputs for the claiming node, and the records of finished ones.
func (o *Claim) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	session := b.sessions[o.Session]
	b.startsSteps = true
	for i := range o.Attempts {
		if m := b.runs[o.Attempts[i].Run]; m != nil && !isStep(&m.Run.Run) {
			b.startsSteps = false
		}
	}
	b.onlyUnitsEnd = b.startsSteps
	for i := range o.Attempts {
		ref := refOf(&o.Attempts[i])
		switch m, known := b.lookRun(n, ref); {
		case !known:
		case m == nil:
			b.lookRecords(n, ref)
		case session != nil:
			b.lookAround(n, m, session.Node)
			b.lookWindowOf(n, m)
		}
	}
}

// Decide decides about each attempt.
func (o *Claim) Decide(b *Batch) error {
	claimer, err := b.Present(o.Session)
	if err != nil {
		return err
	}
	o.Outcomes = sized(o.Outcomes, len(o.Attempts))
	for i, a := range o.Attempts {
		o.Outcomes[i] = b.claimed(claimer, a)
	}
	return nil
}

// claimed is the answer to a claim, with the data for its attempt.
func (b *Batch) claimed(by *store.Session, a store.Attempt) store.ClaimOutcome {
	out := b.Claim(by, a)
	if out.Verdict == store.Started {
		out.Job = b.job(out.Run.JobUID).View()
		b.ofClaim(&out)
	}
	return out
}

// Release returns claimed attempts: see [store.Working].
type Release struct {
	Session  job.ID
	Attempts []store.Attempt
}

// Need requests the runs with their inputs, and the other claimed runs of their jobs.
func (o *Release) Need(b *Batch, n *Need) {
	b.lookAttempts(n, o.Attempts)
	for i := range o.Attempts {
		if m, _ := b.lookRun(n, refOf(&o.Attempts[i])); m != nil {
			if j, _ := b.lookJob(n, m.JobUID); j != nil && j.wantsClaims(&m.Run, b.now) {
				b.lookWaiting(n, j.UID)
			}
		}
	}
}

// Decide decides about each attempt.
func (o *Release) Decide(b *Batch) error {
	b.Release(o.Session, o.Attempts)
	return nil
}

// lookAttempts requests the runs of attempts with their surroundings, and the sessions.
func (b *Batch) lookAttempts(n *Need, attempts []store.Attempt) {
	b.lookSessions(n)
	for i := range attempts {
		b.lookWithAround(n, refOf(&attempts[i]))
	}
}

func refOf(a *store.Attempt) RunRef { return RunRef{Run: a.Run, Job: a.Job} }

// lookWithAround requests a run with its surroundings.
func (b *Batch) lookWithAround(n *Need, ref RunRef) (m *member, known bool) {
	if m, known = b.lookRun(n, ref); m != nil {
		b.lookAround(n, m, "")
	}
	return m, known
}

// Finish ends attempts: see [store.Working].
type Finish struct {
	// Session is the reporting session, which receives the runs that became ready for it.
	Session job.ID
	Results []store.Result
	// Past are records outside the store.
	Past     []store.Record
	Outcomes []store.FinishOutcome
}

// Need requests the runs with their inputs, and the records of runs without this attempt running.
func (o *Finish) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	b.onlyUnitsEnd = true
	for i := range o.Results {
		ref := refOf(&o.Results[i].Attempt)
		if m, known := b.lookWithAround(n, ref); known && (m == nil || !runs(m, o.Results[i].Attempt)) {
			if b.facts.records[ref.Run] {
				o.recall(b, ref.Run)
			}
			b.lookRecords(n, ref)
		}
	}
}

// recall adds the records of a run from outside the store.
func (o *Finish) recall(b *Batch, run job.ID) {
	for i := range o.Past {
		if o.Past[i].Run.ID == run {
			b.AddRecord(&o.Past[i])
		}
	}
}

// Decide decides about each result.
func (o *Finish) Decide(b *Batch) error {
	before := slices.Clone(o.Outcomes)
	o.Outcomes = sized(o.Outcomes, len(o.Results))
	b.reporter = o.Session
	defer func() { b.reporter = job.ID{} }()
	for i := range o.Results {
		if o.Outcomes[i] = b.Finish(o.Results[i]); o.Outcomes[i].Accepted {
			b.done.Output = append(b.done.Output, o.Results[i].Output...)
		}
		if before != nil && before[i].Unplaced {
			o.Outcomes[i].Unplaced = true // set by a partly committed try
		}
	}
	return nil
}

// Cancel ends runs at a user's request: see [store.Working].
type Cancel struct {
	Runs       []RunRef
	By, Reason string
	// Over also requests a finished run, and makes an unknown one an ErrNotFound.
	Over      bool
	Cancelled []store.Run
	// asked are the runs that an earlier try of this step has asked their nodes to end. If a store
	// divides the step, that try may be committed in part.
	asked map[job.ID]bool
}

// Need requests the runs with their surroundings.
func (o *Cancel) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	for _, ref := range o.Runs {
		if m, known := b.lookWithAround(n, ref); known && m == nil && o.Over {
			b.lookRecords(n, ref)
		}
	}
}

// Decide decides about each run.
func (o *Cancel) Decide(b *Batch) error {
	o.Cancelled = nil
	for _, ref := range o.Runs {
		m := b.run(ref.Run)
		if m == nil && !o.Over {
			continue
		}
		if m != nil && m.CancelBy == o.By && o.asked[ref.Run] {
			o.Cancelled = append(o.Cancelled, m.Run) // not a second request, which would also end finally
			continue
		}
		if m != nil && m.State == job.StateRunning && m.CancelBy == "" {
			put(&o.asked, ref.Run, true)
		}
		r, ok := b.Cancel(ref.Run, o.By, job.Text(o.Reason))
		switch {
		case ok:
			o.Cancelled = append(o.Cancelled, r)
		case o.Over:
			return store.ErrNotFound
		}
	}
	return nil
}

// Reap ends attempts as lost: see [store.Working].
type Reap struct {
	Session  job.ID
	Attempts []store.Attempt
}

// Need requests the runs with their inputs, and fixed sessions.
func (o *Reap) Need(b *Batch, n *Need) {
	n.Judges = !b.facts.judges
	b.lookAttempts(n, o.Attempts)
}

// Decide decides about each attempt.
func (o *Reap) Decide(b *Batch) error {
	reaper, err := b.Present(o.Session)
	if err != nil {
		return err
	}
	b.missing(b.facts.judges, "sessions", "that may end")
	for _, a := range o.Attempts {
		b.Reap(reaper, a)
	}
	return nil
}

// Alert returns the missed expectations of runs: see [store.Working].
type Alert struct {
	Runs   []RunRef
	Alerts []store.Alert
}

// Need requests the runs and their jobs.
func (o *Alert) Need(b *Batch, n *Need) {
	for _, ref := range o.Runs {
		b.lookRun(n, ref)
	}
}

// Decide decides about each run.
func (o *Alert) Decide(b *Batch) error {
	o.Alerts = nil
	for _, ref := range o.Runs {
		m := b.run(ref.Run)
		if m == nil {
			continue
		}
		r := m.Run
		if unmet := b.Alert(ref.Run); len(unmet) > 0 {
			o.Alerts = append(o.Alerts, store.Alert{Run: r, Unmet: unmet})
		}
	}
	return nil
}

// Tidy ends runs that will never start, ends expired pauses, and removes completed jobs
// that are due for removal. Its fields are only candidates.
type Tidy struct {
	Runs []RunRef
	Jobs []job.ID
	// More is set when the step reached its limit of ended runs before it examined all.
	More bool
}

// Need requests the runs with their surroundings, and the jobs.
func (o *Tidy) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	for _, ref := range o.Runs {
		b.lookWithAround(n, ref)
	}
	for _, uid := range o.Jobs {
		j, _ := b.lookJob(n, uid)
		if j == nil || j.Deleted {
			continue
		}
		if j.Policy.MaxRuns > 0 || j.Policy.DeleteAfter >= 0 {
			b.lookWhole(n, uid)
		} else {
			b.lookWaiting(n, uid)
		}
		b.lookCalendars(n, j.Document)
	}
}

// Decide decides about each run and job, the jobs by name.
func (o *Tidy) Decide(b *Batch) error {
	o.More = false
	settled := 0
	for _, ref := range o.Runs {
		if o.More = settled == store.MaxBatch; o.More {
			break
		}
		m := b.run(ref.Run)
		waited := m != nil && m.State == job.StateWaiting
		if b.Settle(ref.Run) {
			settled++
			if waited && b.jobOf(&m.Run).Policy.Contends(&m.Run) && b.free(&m.Run) > 0 {
				b.fillLater(m) // other runs may have waited behind it since the slot became free
			}
		}
	}
	var list []*Job
	for _, uid := range o.Jobs {
		if j := b.job(uid); j != nil {
			list = append(list, j)
		}
	}
	sortByName(list)
	for _, j := range list {
		if b.Expired(j) {
			if err := b.Delete(j, store.AnyVersion, System, job.Reason{}); err != nil {
				return err
			}
		} else if !j.Deleted {
			b.Unpause(j, j.Document.Filled, b.calendarsOf(j.Document))
		}
	}
	return nil
}

// FillSlots gives slots to waiting runs, and ends waiting runs that can never start.
type FillSlots struct{ Slots []SlotNeed }

// Need requests the members of the slots, and the inputs of the ends.
func (o *FillSlots) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	for _, s := range o.Slots {
		if isWindowSlot(s.Key) {
			b.lookHeld(n, s.Key)
			continue
		}
		if _, known := b.facts.slots[s.Key]; !known {
			n.slot(s.Key, s.Job, store.RunRef{})
			continue
		}
		for _, m := range b.bySlot[s.Key] {
			if m.State == job.StateWaiting {
				b.lookAround(n, m, "")
			}
		}
	}
}

// Decide decides about each slot.
func (o *FillSlots) Decide(b *Batch) error {
	for _, s := range o.Slots {
		if isWindowSlot(s.Key) {
			b.freeHeld(s.Key)
			continue
		}
		var ended *member
		left := b.fillMax(s.Key)
		for _, m := range slices.Clone(b.slot(s.Key)) {
			if left > 0 && m.State == job.StateWaiting && b.Settle(m.ID) {
				ended = m
				left--
			}
		}
		if left > 0 {
			b.fill(s.Key)
		}
		if ended != nil && (left == 0 || !slices.ContainsFunc(b.slot(s.Key), b.waits)) {
			b.fillLater(ended) // for waiting runs beyond the loaded ones
		}
	}
	return nil
}

func sortByName(list []*Job) {
	slices.SortFunc(list, func(a, b *Job) int { return strings.Compare(a.FullName(), b.FullName()) })
}
