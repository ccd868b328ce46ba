package engine

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Cell is a job with its unfinished runs and their open handovers.
type Cell struct {
	Job       Job
	Runs      []store.Run
	Handovers []store.Handover
}

// Kept is the stored decision data outside jobs, by full name, name of the node, or id.
type Kept struct {
	Documents Documents
	Tokens    map[string]store.Token
	Drains    map[string]*store.Drain
	Sessions  map[job.ID]store.Session
	Over      map[job.ID]bool // sessions that are over because a run was reaped
	Number    int64           // the last reserved number of a handover
}

// Survey reads jobs and, if All is set, the data outside jobs. It changes nothing.
type Survey struct {
	Jobs  []job.ID
	All   bool
	Cells []Cell // in the order of Jobs, without unknown ones
	Kept  Kept
}

// Need requests the jobs with their unfinished runs, and the other data.
func (o *Survey) Need(b *Batch, n *Need) {
	for _, uid := range o.Jobs {
		b.lookJob(n, uid)
		b.lookCell(n, uid)
	}
	if o.All {
		b.lookKept(n)
	}
}

func (b *Batch) lookKept(n *Need) {
	b.lookSessions(n)
	f := &b.facts
	b.lookDocuments(n, store.DocumentKinds...)
	n.Tokens, n.Drains = !f.hasTokens, !f.hasDrains
	n.Number = !b.handovers.hasLast
}

// Decide copies the loaded data.
func (o *Survey) Decide(b *Batch) error {
	o.Cells = nil
	for _, uid := range o.Jobs {
		if j := b.job(uid); j != nil {
			o.Cells = append(o.Cells, Cell{*j, b.unfinishedRuns(uid), b.handoversOf(uid)})
		}
	}
	if o.All {
		o.Kept = b.outsideJobs()
	}
	return nil
}

// lookCell requests the unfinished runs of a job with their handovers.
func (b *Batch) lookCell(n *Need, uid job.ID) {
	if !b.lookWhole(n, uid) {
		return
	}
	for _, m := range b.byJob[uid] {
		if isHandedOver(&m.Run) {
			b.lookHandoversOf(n, RunRef{m.ID, uid})
		}
	}
}

// handoversOf returns copies of the handovers of the runs of a job that have not ended.
func (b *Batch) handoversOf(uid job.ID) (list []store.Handover) {
	for _, m := range b.unfinished(uid) {
		for _, h := range b.openHandovers(m) {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, func(x, y store.Handover) int { return cmp.Compare(x.Number, y.Number) })
	return list
}

// unfinishedRuns returns copies of all unfinished runs of a job, by due time and id.
func (b *Batch) unfinishedRuns(uid job.ID) (list []store.Run) {
	for _, m := range b.unfinished(uid) {
		if !m.removed {
			list = append(list, m.Run)
		}
	}
	slices.SortFunc(list, func(x, y store.Run) int {
		if before(&x, &y) {
			return -1
		}
		return 1
	})
	return list
}

func (b *Batch) outsideJobs() Kept {
	b.missing(b.handovers.hasLast, "the last number", "")
	k := Kept{
		Documents: Documents{}, Drains: maps.Clone(b.drains()),
		Tokens: map[string]store.Token{}, Sessions: map[job.ID]store.Session{}, Over: maps.Clone(b.facts.over),
		Number: b.handovers.last,
	}
	for _, kind := range store.DocumentKinds {
		if all := b.documents(kind); len(all) > 0 {
			k.Documents[kind] = maps.Clone(all)
		}
	}
	for _, t := range b.allTokens() {
		k.Tokens[t.Name] = t
	}
	for id, s := range b.allSessions() {
		k.Sessions[id] = *s
	}
	return k
}

// adoptMax is the most jobs, runs and other records that one step of [Adopt] changes: a
// store may have to write them in one request.
const adoptMax = 100

// Adopt copies jobs, and the data that belongs to none, from another store. It compares
// first, so that equal data costs no write.
type Adopt struct {
	Cells []Adopted
	Kept  *Kept // nil leaves it unchanged
	// Audit and Keys are added.
	Audit []store.AuditRecord
	Keys  []Key

	Changed int
	// More is set when changes remain for another step.
	More bool
}

// Adopted is the target state of a job.
type Adopted struct {
	Cell
	// Document is the document of the version, as this store fills it in, without [Timing].
	Document *Document
	// Past is set for an old version, whose runs are not changed.
	Past bool
}

// AheadError means that a job is not adopted because this store has planned it since an
// earlier adoption.
type AheadError struct{ Job string }

func (e AheadError) Error() string {
	return "job " + e.Job + " was planned further than where it comes from"
}

// Need requests the present data.
func (o *Adopt) Need(b *Batch, n *Need) {
	for i := range o.Cells {
		c := &o.Cells[i]
		b.lookJob(n, c.Job.UID)
		b.lookCell(n, c.Job.UID)
		for i := range c.Handovers {
			b.lookHandover(n, c.Handovers[i].Number)
		}
		b.lookCalendars(n, c.Document)
	}
	if o.Kept != nil {
		b.lookKept(n)
	}
}

// Decide compares and changes.
func (o *Adopt) Decide(b *Batch) error {
	o.Changed, o.More = 0, false
	for i := range o.Cells {
		if err := o.cell(b, &o.Cells[i]); err != nil {
			return err
		}
	}
	if o.Kept != nil {
		o.outsideJobs(b)
	}
	b.done.Audit = append(b.done.Audit, o.Audit...)
	b.done.Keys = append(b.done.Keys, o.Keys...)
	return nil
}

// may reports whether another change fits into the step, and counts it.
func (o *Adopt) may() bool {
	if o.Changed == adoptMax {
		o.More = true
		return false
	}
	o.Changed++
	return true
}

func (o *Adopt) cell(b *Batch, c *Adopted) error {
	timing, err := TimingText(c.Document.Filled, b.calendarsOf(c.Document))
	if err != nil {
		return fmt.Errorf("job %s: %w", c.Job.FullName(), err)
	}
	is, there := b.job(c.Job.UID), true
	if is == nil {
		is, there = &Job{UID: c.Job.UID}, false
	}
	if there && is.Epoch == c.Job.Epoch && is.Cursor.After(c.Job.Cursor) {
		return AheadError{c.Job.FullName()}
	}
	wanted := c.Job
	wanted.Document, wanted.Policy = is.Document, is.Policy
	wanted.changed, wanted.adopted, wanted.was = is.changed, is.adopted, is.was
	if same := there && reflect.DeepEqual(wanted, *is) && is.Document.Timing == timing; !same {
		if !o.may() {
			return nil
		}
		wanted.Document = c.Document.with(func(d *Document) { d.Timing = timing })
		wanted.Policy = c.Document.Policy
		*is = wanted
		if !there {
			b.AddJob(is)
			is.was = was{}
			b.HasWhole(is.UID)
		}
		is.adopted = true
		b.saveJob(is)
	}
	if !c.Past {
		o.runs(b, c)
		o.handovers(b, c)
	}
	return nil
}

// runs updates the unfinished runs of a job to the target state. The policy of a step is in the run
// of its flow, so the steps come last.
func (o *Adopt) runs(b *Batch, c *Adopted) {
	wanted := make(map[job.ID]bool, len(c.Runs))
	slices.SortStableFunc(c.Runs, func(x, y store.Run) int {
		switch {
		case isStep(&x.Run) == isStep(&y.Run):
			return 0
		case isStep(&x.Run):
			return 1
		}
		return -1
	})
	for i := range c.Runs {
		r := &c.Runs[i]
		wanted[r.ID] = true
		m := b.runs[r.ID]
		if m != nil {
			same := *r
			same.AlertAt = m.AlertAt // it is derived from the other fields
			if reflect.DeepEqual(same, m.Run) {
				continue
			}
		}
		switch {
		case !o.may():
			return
		case m == nil:
			b.makeRun(*r)
		default:
			m.Run = *r
			b.save(m)
		}
	}
	for _, m := range slices.Clone(b.unfinished(c.Job.UID)) {
		if !wanted[m.ID] && !m.removed {
			if !o.may() {
				return
			}
			b.remove(m)
		}
	}
}

// handovers updates the handovers of a job to the target state. A superfluous one ends at
// its next poll.
func (o *Adopt) handovers(b *Batch, c *Adopted) {
	for i := range c.Handovers {
		h := &c.Handovers[i]
		is := b.handover(h.Number)
		if is != nil && reflect.DeepEqual(*is, *h) {
			continue
		}
		if !o.may() {
			return
		}
		b.saveHandover(h)
	}
}

// outsideJobs updates the data outside jobs to the target state.
func (o *Adopt) outsideJobs(b *Batch) {
	is, c := b.outsideJobs(), &b.done
	if o.Kept.Number > is.Number && o.may() {
		c.Number = o.Kept.Number
	}
	for _, kind := range store.DocumentKinds {
		adopt(o, o.Kept.Documents[kind], is.Documents[kind], func(_ string, d job.Document) { c.Documents = append(c.Documents, d) },
			func(name string) { c.Dropped = append(c.Dropped, Dropped{kind, name}) })
	}
	adopt(o, o.Kept.Tokens, is.Tokens, func(_ string, t store.Token) { c.Tokens = append(c.Tokens, t) },
		func(name string) { c.Dropped = append(c.Dropped, Dropped{Name: name}) })
	adopt(o, o.Kept.Drains, is.Drains, func(node string, d *store.Drain) { c.Drains = append(c.Drains, NodeDrain{node, d}) },
		func(node string) { c.Drains = append(c.Drains, NodeDrain{Node: node}) })
	adopt(o, o.Kept.Sessions, is.Sessions, func(_ job.ID, s store.Session) { c.Sessions = append(c.Sessions, &s) },
		func(id job.ID) { c.Ended = append(c.Ended, id) })
	adopt(o, o.Kept.Over, is.Over, func(id job.ID, _ bool) { c.Reaped = append(c.Reaped, id) }, func(job.ID) {})
}

// adopt calls put for differing values, and drop for superfluous ones.
func adopt[K comparable, V any](o *Adopt, wanted, is map[K]V, put func(K, V), drop func(K)) {
	for key := range is {
		if _, ok := wanted[key]; !ok && o.may() {
			drop(key)
		}
	}
	for key, value := range wanted {
		if known, ok := is[key]; (!ok || !reflect.DeepEqual(known, value)) && o.may() {
			put(key, value)
		}
	}
}

// DeleteAdopted removes a job that was removed in the source store, without an audit record, since
// the audit is copied too. It first removes the runs, some in each step, so that a repeated call
// continues an interrupted removal.
type DeleteAdopted struct {
	Job job.ID
	// More is set when the job has more runs than one step removes.
	More bool
}

// Need requests the job with its unfinished runs.
func (o *DeleteAdopted) Need(b *Batch, n *Need) {
	b.lookJob(n, o.Job)
	b.lookWhole(n, o.Job)
}

// Decide removes runs, and the job with its last run.
func (o *DeleteAdopted) Decide(b *Batch) error {
	o.More = false
	j := b.job(o.Job)
	if j == nil || j.Deleted {
		return nil
	}
	for i, m := range b.unfinished(o.Job) {
		if o.More = i == adoptMax; o.More {
			return nil
		}
		b.remove(m)
	}
	j.Deleted = true
	j.Version++
	b.saveJob(j)
	return nil
}
