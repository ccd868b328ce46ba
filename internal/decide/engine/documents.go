package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// documentsMax is the most documents of a kind, if bounded.
var documentsMax = map[job.Kind]int{job.KindChannel: store.ChannelsMax, job.KindExecutors: store.ExecutorsMax, job.KindWindow: store.WindowsMax, job.KindHook: store.HooksMax}

// Documents are documents by kind and full name.
type Documents map[job.Kind]map[string]job.Document

// Put adds a document, or replaces the one with its name.
func (all Documents) Put(d job.Document) {
	if all[d.Kind] == nil {
		all[d.Kind] = map[string]job.Document{}
	}
	all[d.Kind][d.FullName()] = d
}

// List returns the documents of some kinds, kind by kind, sorted by full name.
func (all Documents) List(kinds ...job.Kind) (list []job.Document) {
	for _, kind := range kinds {
		for _, full := range slices.Sorted(maps.Keys(all[kind])) {
			list = append(list, all[kind][full])
		}
	}
	return list
}

// Calendar returns a calendar, or nil. It is a [job.Calendars].
func (all Documents) Calendar(namespace, name string) *job.Calendar {
	return all[job.KindCalendar][namespace+"/"+name].Calendar
}

// Len returns how many documents there are.
func (all Documents) Len() (n int) {
	for _, some := range all {
		n += len(some)
	}
	return n
}

// lookDocuments requests all documents of some kinds.
func (b *Batch) lookDocuments(n *Need, kinds ...job.Kind) {
	for _, kind := range kinds {
		if _, has := b.facts.documents[kind]; !has && !slices.Contains(n.Documents, kind) {
			n.Documents = append(n.Documents, kind)
		}
	}
}

// documents returns all documents of a kind.
func (b *Batch) documents(kind job.Kind) map[string]job.Document {
	all, has := b.facts.documents[kind]
	b.missing(has, "the documents of kind", kind)
	return all
}

// lookNaming requests the jobs that name a calendar, and reports whether it has them.
func (b *Batch) lookNaming(n *Need, full string) bool {
	if !b.facts.naming[full] {
		ask(&n.asked.naming, &n.Naming, full, full)
	}
	return b.facts.naming[full]
}

// naming returns the jobs that name a calendar, by name.
func (b *Batch) naming(full string) []*Job {
	b.missing(b.facts.naming[full], "who names calendar", full)
	list := slices.DeleteFunc(slices.Clone(b.facts.namedBy[full]), func(j *Job) bool { return j.Deleted })
	sortByName(list)
	return list
}

// PutDocument creates or changes a document other than a job: see [store.Documents].
type PutDocument struct {
	Given     job.Document // including its kind and namespace
	IfVersion int64
	Actor     string
	NewID     func(i int) job.ID // of the i-th new document
	Put       job.Document
}

// Need requests the documents of the kind, for a calendar also its jobs with the inputs of their
// new epochs, and for a pool the runs that hold or want its slots.
func (o *PutDocument) Need(b *Batch, n *Need) {
	kind, full := o.Given.Kind, o.Given.FullName()
	b.lookDocuments(n, kind)
	switch kind {
	case job.KindCalendar:
		b.lookSessions(n)
		if !b.lookNaming(n, full) {
			return
		}
		for _, j := range b.facts.namedBy[full] {
			if p := j.Policy; p.MaxRuns > 0 || p.DeleteAfter >= 0 {
				b.lookWhole(n, j.UID)
			} else {
				b.lookWaiting(n, j.UID)
			}
		}
	case job.KindPool:
		b.lookHeld(n, PoolSlot(full))
		b.lookHeld(n, PoolSlot(inLine+full))
	case job.KindWindow:
		b.lookHeld(n, windowSlot+full)
	}
}

// Decide gives the document the replaced one's uid or a new one, and the next version. An equal one
// stays.
func (o *PutDocument) Decide(b *Batch) error {
	kind, full := o.Given.Kind, o.Given.FullName()
	all := b.documents(kind)
	old, there := all[full]
	same := there && job.Same(old, o.Given)
	err := checkVersion(old.Version(), o.IfVersion, same)
	if most := documentsMax[kind]; err == nil && !there && most > 0 && len(all) >= most {
		err = store.ErrLimit
	}
	if err != nil {
		return fmt.Errorf("put %s %s: %w", kind, full, err)
	}
	if same {
		o.Put = old
		return nil
	}
	uid, verb := old.UID(), "change"
	var changes []store.Change
	if there {
		changes = Differences(old.Content(), o.Given.Content())
	} else {
		uid, verb = o.NewID(0), "create"
	}
	o.Put = o.Given.As(uid, old.Version()+1)
	switch kind {
	case job.KindCalendar:
		if err := b.rescheduleNaming(o.Put, o.Actor); err != nil {
			return err
		}
	case job.KindPool:
		b.AddPool(full, &o.Put.Pool.Slots, time.Time{})
		b.AddPool(inLine+full, &o.Put.Pool.Slots, b.pools[inLine+full].turn)
		b.Refill(full)
	case job.KindWindow:
		b.freeHeld(windowSlot + full)
	}
	b.done.Documents = append(b.done.Documents, o.Put)
	b.Audit(o.Actor, string(kind)+"."+verb, full, o.Put.Version(), changes...)
	b.done.Hints |= store.HintJobs
	return nil
}

// rescheduleNaming begins a new epoch of each job that names a changed calendar.
func (b *Batch) rescheduleNaming(calendar job.Document, actor string) error {
	full := calendar.FullName()
	why := reason.CalendarChanged.Of(full, actor)
	for _, j := range b.naming(full) {
		b.missUnplanned(j, b.timingOf(j), why)
	}
	all := Documents{job.KindCalendar: maps.Clone(b.documents(job.KindCalendar))}
	all.Put(calendar)
	b.UseDocuments(job.KindCalendar, all[job.KindCalendar])
	for _, j := range b.naming(full) {
		timing, err := TimingText(j.Document.Filled, b.calendarsOf(j.Document))
		if err != nil {
			return fmt.Errorf("put calendar %s: %w", full, err)
		}
		j.Document = j.Document.with(func(d *Document) { d.Timing = timing })
		b.Reschedule(j, j.Document.Filled, b.calendarsOf(j.Document), why)
	}
	return nil
}

// DeleteDocument removes a document other than a job: see [store.Documents].
type DeleteDocument struct {
	Kind      job.Kind
	Name      string // in full
	IfVersion int64
	Actor     string
}

// Need requests the documents of the kind, and the jobs that name a calendar.
func (o *DeleteDocument) Need(b *Batch, n *Need) {
	b.lookDocuments(n, o.Kind)
	switch o.Kind {
	case job.KindCalendar:
		b.lookNaming(n, o.Name)
		b.lookDocuments(n, job.KindWindow)
	case job.KindWindow:
		b.lookHeld(n, windowSlot+o.Name)
	}
}

// Decide decides about it.
func (o *DeleteDocument) Decide(b *Batch) error {
	d, there := b.documents(o.Kind)[o.Name]
	var err error
	switch {
	case !there:
		err = store.ErrNotFound
	case o.Kind == job.KindCalendar && len(b.naming(o.Name)) > 0:
		err = store.NamedError{Kind: job.KindJob, Name: b.naming(o.Name)[0].FullName()}
	case o.Kind == job.KindCalendar && b.windowNaming(o.Name) != "":
		err = store.NamedError{Kind: job.KindWindow, Name: b.windowNaming(o.Name)}
	case o.IfVersion != store.AnyVersion && o.IfVersion != d.Version():
		err = store.ErrConflict
	}
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", o.Kind, o.Name, err)
	}
	if o.Kind == job.KindWindow {
		b.freeHeld(windowSlot + o.Name)
	}
	b.done.Dropped = append(b.done.Dropped, Dropped{o.Kind, o.Name})
	b.Audit(o.Actor, string(o.Kind)+".delete", o.Name, d.Version())
	b.done.Hints |= store.HintJobs
	return nil
}

// windowNaming returns the full name of a window that names a calendar, "" for none.
func (b *Batch) windowNaming(calendar string) string {
	for full, d := range b.documents(job.KindWindow) {
		if slices.Contains(Calendars(d.Window.AsJob()), calendar) {
			return full
		}
	}
	return ""
}
