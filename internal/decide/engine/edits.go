package engine

import (
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// PutJobs creates and changes jobs: see [store.Jobs].
type PutJobs struct {
	List []store.PutJob
	// Documents are the documents of the definitions, in the same order, without [Timing].
	Documents []*Document
	NewID     func(i int) job.ID // of the i-th new job
	Jobs      []*store.Job
}

// Need requests the jobs with the inputs of their changes, and the names in the new
// definitions.
func (o *PutJobs) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	given := map[string]*Document{}
	for _, d := range o.Documents {
		given[d.Filled.FullName()] = d
	}
	for _, d := range o.Documents {
		full := d.Filled.FullName()
		b.lookCalendars(n, d)
		b.lookFollows(n, Follows(d.Filled), given)
		if j := b.lookName(n, full); j != nil {
			b.lookEdit(n, j, d.Policy)
			b.lookCalendars(n, j.Document)
		}
	}
}

// Decide puts all of the jobs, or refuses one.
func (o *PutJobs) Decide(b *Batch) error {
	items := make([]PutItem, len(o.List))
	timings := make([]string, len(o.List))
	for i, d := range o.Documents {
		var err error
		if timings[i], err = TimingText(d.Filled, b.calendarsOf(d)); err != nil {
			return &store.ItemError{Item: i, Err: fmt.Errorf("put job %s: %w", d.Filled.FullName(), err)}
		}
		put := o.List[i]
		put.Definition = d.Definition
		items[i] = PutItem{Put: &put, Filled: d.Filled, Policy: d.Policy}
		if j := b.named(d.Filled.FullName()); j != nil {
			items[i].Old = Stored{Job: j, Definition: j.Document.Definition, Filled: j.Document.Filled}
		}
		if items[i].Old.Job == nil || put.New {
			items[i].UID = o.NewID(i)
		}
	}
	if err := b.Put(items, Names{Calendars: b.facts.documents.Calendar, Upstreams: b.follows}); err != nil {
		return err
	}
	o.Jobs = make([]*store.Job, len(items))
	for i := range items {
		j := items[i].Job
		if items[i].Changed {
			j.Document = o.Documents[i].with(func(d *Document) { d.Timing, d.Actor = timings[i], o.List[i].Actor })
			b.settleDocument(j)
		}
		o.Jobs[i] = j.View()
	}
	return nil
}

// DeleteJob removes a job: see [store.Jobs].
type DeleteJob struct{ store.DeleteJob }

// Need requests the job, its calendars, and the runs that may be withdrawn if they are counted.
func (o *DeleteJob) Need(b *Batch, n *Need) {
	if j, _ := b.lookJob(n, o.UID); j != nil {
		b.lookCalendars(n, j.Document)
		if j.Policy.MaxRuns > 0 {
			b.lookWhole(n, o.UID)
		}
	}
}

// Decide decides about it.
func (o *DeleteJob) Decide(b *Batch) error {
	j := b.job(o.UID)
	if j == nil {
		return fmt.Errorf("delete job %s: %w", o.UID, store.ErrNotFound)
	}
	if err := b.Delete(j, o.IfVersion, o.Actor, o.Reason); err != nil {
		return fmt.Errorf("delete job %s: %w", j.FullName(), err)
	}
	return nil
}

// RestoreJob brings back a deleted job: see [store.Jobs].
type RestoreJob struct {
	store.RestoreJob
	Job *store.Job
}

// Need requests the job, its calendars, its name, and the jobs that it follows.
func (o *RestoreJob) Need(b *Batch, n *Need) {
	if j, _ := b.lookJob(n, o.UID); j != nil {
		b.lookSessions(n)
		b.lookCalendars(n, j.Document)
		b.lookFollows(n, Follows(j.Document.Filled), nil)
		b.lookName(n, j.FullName())
		b.lookEdit(n, j, j.Policy)
	}
}

// Decide decides about it.
func (o *RestoreJob) Decide(b *Batch) error {
	j := b.job(o.UID)
	if j == nil {
		return fmt.Errorf("restore job %s: %w", o.UID, store.ErrNotFound)
	}
	if j.Deleted {
		if b.named(j.FullName()) != nil {
			return fmt.Errorf("restore job %s: %w", j.FullName(), store.ErrExists)
		}
		if err := b.restore(j, o.Actor); err != nil {
			return fmt.Errorf("restore job %s: %w", j.FullName(), err)
		}
	}
	o.Job = j.View()
	return nil
}

// PutToken adds a token: see [store.Tokens].
type PutToken struct {
	store.PutToken
	Token store.Token
}

// Need requests the tokens.
func (o *PutToken) Need(b *Batch, n *Need) { n.Tokens = !b.facts.hasTokens }

// Decide decides about it.
func (o *PutToken) Decide(b *Batch) error {
	t, changed, err := b.PutToken(b.allTokens(), &o.PutToken)
	if err != nil {
		return fmt.Errorf("add the token %s: %w", o.Name, err)
	}
	if o.Token = t; changed {
		b.done.Tokens = append(b.done.Tokens, t)
	}
	return nil
}

// DeleteToken revokes a token: see [store.Tokens].
type DeleteToken struct{ Name, Actor string }

// Need requests the tokens.
func (o *DeleteToken) Need(b *Batch, n *Need) { n.Tokens = !b.facts.hasTokens }

// Decide decides about it.
func (o *DeleteToken) Decide(b *Batch) error {
	if err := b.DeleteToken(b.allTokens(), o.Name, o.Actor); err != nil {
		return fmt.Errorf("revoke the token %s: %w", o.Name, err)
	}
	b.done.Dropped = append(b.done.Dropped, Dropped{Name: o.Name})
	return nil
}

// lookCalendars requests the calendars if a document names any.
func (b *Batch) lookCalendars(n *Need, d *Document) {
	if len(d.Calendars) > 0 {
		b.lookDocuments(n, job.KindCalendar)
	}
}

// lookName returns the job with a full name, or requests it.
func (b *Batch) lookName(n *Need, full string) *Job {
	if uid, ok := b.facts.names[full]; ok {
		return b.jobs[uid]
	}
	ask(&n.asked.names, &n.Names, full, full)
	return nil
}

// lookFollows requests the upstream jobs of some jobs, transitively.
func (b *Batch) lookFollows(n *Need, upstreams []string, given map[string]*Document) {
	seen := map[string]bool{}
	for len(upstreams) > 0 {
		full := upstreams[0]
		upstreams = upstreams[1:]
		if seen[full] {
			continue
		}
		seen[full] = true
		if d := given[full]; d != nil {
			upstreams = append(upstreams, Follows(d.Filled)...)
			continue
		}
		if further, known := b.facts.follows[full]; known {
			upstreams = append(slices.Clone(upstreams), further...)
			continue
		}
		ask(&n.asked.follows, &n.Follows, full, full)
	}
}

// named returns the job with a full name, or nil.
func (b *Batch) named(full string) *Job {
	uid, ok := b.facts.names[full]
	b.missing(ok, "the job named", full)
	return b.jobs[uid]
}

// follows returns the full names of the jobs that one follows.
func (b *Batch) follows(full string) ([]string, error) {
	list, ok := b.facts.follows[full]
	b.missing(ok, "what is followed by job", full)
	return list, nil
}

// calendarsOf returns the lookup for the calendars of a document.
func (b *Batch) calendarsOf(d *Document) job.Calendars {
	if len(d.Calendars) > 0 {
		b.documents(job.KindCalendar)
	}
	return b.facts.documents.Calendar
}

func (b *Batch) allTokens() []store.Token {
	b.missing(b.facts.hasTokens, "the tokens", "")
	return b.facts.tokens
}
