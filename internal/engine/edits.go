package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// PutJobs creates and changes jobs: see store.Jobs.
type PutJobs struct {
	List []store.PutJob
	// Documents are the documents of the definitions, in the same order, without Timing.
	Documents []*Document
	NewID     func(i int) job.ID // of the i-th that is created
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

// Decide decides about all of the jobs.
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
		} else {
			items[i].UID = o.NewID(i)
		}
	}
	if err := b.Put(items, Names{Calendars: b.calendar, Upstreams: b.follows}); err != nil {
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

// DeleteJob removes a job: see store.Jobs.
type DeleteJob struct{ store.DeleteJob }

// Need requests the job.
func (o *DeleteJob) Need(b *Batch, n *Need) { b.lookJob(n, o.UID) }

// Decide decides about it.
func (o *DeleteJob) Decide(b *Batch) error {
	j := b.job(o.UID)
	if j == nil {
		return fmt.Errorf("delete job %s: %w", o.UID, store.ErrNotFound)
	}
	if err := b.Delete(j, o.IfVersion, o.Actor); err != nil {
		return fmt.Errorf("delete job %s: %w", j.FullName(), err)
	}
	return nil
}

// PutCalendar creates or changes a calendar: see store.Jobs.
type PutCalendar struct {
	Given     *job.Calendar
	IfVersion int64
	Actor     string
	NewID     func(i int) job.ID // of the i-th that is created
	Calendar  *job.Calendar
}

// Need requests the calendars, and the jobs that name this one with the inputs of their new
// epochs.
func (o *PutCalendar) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	n.Calendars = !b.facts.hasCalendars
	full := CalendarHead(o.Given).FullName()
	if !b.facts.naming[full] {
		ask(&n.asked.naming, &n.Naming, full, full)
		return
	}
	for _, j := range b.facts.namedBy[full] {
		if p := j.Policy; p.MaxRuns > 0 || p.DeleteAfter >= 0 {
			b.lookWhole(n, j.UID)
		} else {
			b.lookWaiting(n, j.UID)
		}
	}
}

// Decide decides about the calendar, and begins a new epoch of each job that names it.
func (o *PutCalendar) Decide(b *Batch) error {
	full := CalendarHead(o.Given).FullName()
	all := maps.Clone(b.allCalendars())
	old := all[full]
	put, changed, err := PutDocument(old, *o.Given, CalendarHead, o.IfVersion, func() job.ID { return o.NewID(0) })
	if err != nil {
		return fmt.Errorf("put calendar %s: %w", full, err)
	}
	if o.Calendar = put; !changed {
		return nil
	}
	if all == nil {
		all = map[string]*job.Calendar{}
	}
	all[full] = put
	b.UseCalendars(all)
	list := slices.Clone(b.naming(full))
	sortByName(list)
	for _, j := range list {
		if j.Deleted {
			continue
		}
		timing, err := TimingText(j.Document.Filled, b.calendarsOf(j.Document))
		if err != nil {
			return fmt.Errorf("put calendar %s: %w", full, err)
		}
		j.Document = j.Document.with(func(d *Document) { d.Timing = timing })
		b.Reschedule(j, j.Document.Filled, b.calendarsOf(j.Document), WhyCalendar(full, o.Actor))
	}
	b.done.Calendars = append(b.done.Calendars, put)
	b.Audit(o.Actor, "calendar."+createOrChange(old == nil), full, put.Version, Differences(old, put)...)
	b.done.Hints |= store.HintJobs
	return nil
}

func createOrChange(isNew bool) string {
	if isNew {
		return "create"
	}
	return "change"
}

// PutPool creates or changes a pool: see store.Jobs.
type PutPool struct {
	Given     *job.Pool
	IfVersion int64
	Actor     string
	NewID     func(i int) job.ID // of the i-th that is created
	Pool      *job.Pool
}

// Need requests the pools, and the runs that hold or want the slots of this one.
func (o *PutPool) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	n.Pools = !b.facts.hasPools
	if key := PoolSlot(PoolHead(o.Given).FullName()); later(EndOfSlot, b.facts.slots[key]) {
		n.slot(key, job.ID{}, EndOfSlot)
	}
}

// Decide decides about the pool, and hands on the slots that it has more.
func (o *PutPool) Decide(b *Batch) error {
	full := PoolHead(o.Given).FullName()
	old := b.allPools()[full]
	put, changed, err := PutDocument(old, *o.Given, PoolHead, o.IfVersion, func() job.ID { return o.NewID(0) })
	if err != nil {
		return fmt.Errorf("put pool %s: %w", full, err)
	}
	if o.Pool = put; !changed {
		return nil
	}
	b.AddPool(full, put.Slots.Size)
	b.Refill(full)
	b.done.Pools = append(b.done.Pools, put)
	b.Audit(o.Actor, "pool."+createOrChange(old == nil), full, put.Version, Differences(old, put)...)
	b.done.Hints |= store.HintJobs
	return nil
}

// PutChannel creates or changes a channel: see store.Jobs.
type PutChannel struct {
	Given     *job.Channel
	IfVersion int64
	Actor     string
	NewID     func(i int) job.ID // of the i-th that is created
	Channel   *job.Channel
}

// Need requests the channels.
func (o *PutChannel) Need(b *Batch, n *Need) { n.Channels = !b.facts.hasChannels }

// Decide decides about the channel.
func (o *PutChannel) Decide(b *Batch) error {
	full := ChannelHead(o.Given).FullName()
	old := b.allChannels()[full]
	if old == nil && len(b.allChannels()) >= store.ChannelsMax {
		return fmt.Errorf("put channel %s: %w", full, store.ErrLimit)
	}
	put, changed, err := PutDocument(old, *o.Given, ChannelHead, o.IfVersion, func() job.ID { return o.NewID(0) })
	if err != nil {
		return fmt.Errorf("put channel %s: %w", full, err)
	}
	if o.Channel = put; !changed {
		return nil
	}
	b.done.Channels = append(b.done.Channels, put)
	b.Audit(o.Actor, "channel."+createOrChange(old == nil), full, put.Version, Differences(old, put)...)
	return nil
}

// PutExecutors creates or changes a list of executors: see store.Jobs.
type PutExecutors struct {
	Given     *job.Executors
	IfVersion int64
	Actor     string
	NewID     func(i int) job.ID // of the i-th that is created
	Executors *job.Executors
}

// Need requests the lists of executors.
func (o *PutExecutors) Need(b *Batch, n *Need) { n.Listed = !b.facts.hasListed }

// Decide decides about the list.
func (o *PutExecutors) Decide(b *Batch) error {
	full := ExecutorsHead(o.Given).FullName()
	old := b.allListed()[full]
	if old == nil && len(b.allListed()) >= store.ExecutorsMax {
		return fmt.Errorf("put executors %s: %w", full, store.ErrLimit)
	}
	put, changed, err := PutDocument(old, *o.Given, ExecutorsHead, o.IfVersion, func() job.ID { return o.NewID(0) })
	if err != nil {
		return fmt.Errorf("put executors %s: %w", full, err)
	}
	if o.Executors = put; !changed {
		return nil
	}
	b.done.Listed = append(b.done.Listed, put)
	b.Audit(o.Actor, "executors."+createOrChange(old == nil), full, put.Version, Differences(old, put)...)
	return nil
}

// Drop removes a document but a job: see store.Jobs.
type Drop struct {
	Kind            job.Kind
	Namespace, Name string
	IfVersion       int64
	Actor           string
}

func (o *Drop) full() string { return o.Namespace + "/" + o.Name }

// Need requests the calendars and the jobs that name this one, or the others of the kind.
func (o *Drop) Need(b *Batch, n *Need) {
	switch o.Kind {
	case job.KindPool:
		n.Pools = !b.facts.hasPools
		return
	case job.KindChannel:
		n.Channels = !b.facts.hasChannels
		return
	case job.KindExecutors:
		n.Listed = !b.facts.hasListed
		return
	}
	n.Calendars = !b.facts.hasCalendars
	if !b.facts.naming[o.full()] {
		ask(&n.asked.naming, &n.Naming, o.full(), o.full())
	}
}

// Decide decides about it.
func (o *Drop) Decide(b *Batch) error {
	refused := func(err error) error { return fmt.Errorf("delete %s %s: %w", o.Kind, o.full(), err) }
	var version int64
	switch o.Kind {
	case job.KindPool:
		pool := b.allPools()[o.full()]
		if pool == nil {
			return refused(store.ErrNotFound)
		}
		version = pool.Version
	case job.KindChannel:
		channel := b.allChannels()[o.full()]
		if channel == nil {
			return refused(store.ErrNotFound)
		}
		version = channel.Version
	case job.KindExecutors:
		executors := b.allListed()[o.full()]
		if executors == nil {
			return refused(store.ErrNotFound)
		}
		version = executors.Version
	default:
		calendar := b.allCalendars()[o.full()]
		if calendar == nil {
			return refused(store.ErrNotFound)
		}
		list := slices.Clone(b.naming(o.full()))
		sortByName(list)
		for _, j := range list {
			if !j.Deleted {
				return refused(store.NamedError{Job: j.FullName()})
			}
		}
		version = calendar.Version
	}
	if o.IfVersion != store.AnyVersion && o.IfVersion != version {
		return refused(store.ErrConflict)
	}
	b.done.Dropped = append(b.done.Dropped, Dropped{o.Kind, o.full()})
	b.Audit(o.Actor, string(o.Kind)+".delete", o.full(), version)
	return nil
}

// PutToken adds a token: see store.Tokens.
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

// DeleteToken revokes a token: see store.Tokens.
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
	n.Calendars = n.Calendars || len(d.Calendars) > 0 && !b.facts.hasCalendars
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

func (b *Batch) calendar(namespace, name string) *job.Calendar {
	return b.facts.calendars[namespace+"/"+name]
}

// calendarsOf returns what finds the calendars that a document names.
func (b *Batch) calendarsOf(d *Document) job.Calendars {
	b.missing(len(d.Calendars) == 0 || b.facts.hasCalendars, "the calendars of job", d.Filled.FullName())
	return b.calendar
}

func (b *Batch) allCalendars() map[string]*job.Calendar {
	b.missing(b.facts.hasCalendars, "the calendars", "")
	return b.facts.calendars
}

func (b *Batch) allPools() map[string]*job.Pool {
	b.missing(b.facts.hasPools, "the pools", "")
	return b.facts.pools
}

func (b *Batch) allChannels() map[string]*job.Channel {
	b.missing(b.facts.hasChannels, "the channels", "")
	return b.facts.channels
}

func (b *Batch) allListed() map[string]*job.Executors {
	b.missing(b.facts.hasListed, "the lists of executors", "")
	return b.facts.listed
}

func (b *Batch) allTokens() []store.Token {
	b.missing(b.facts.hasTokens, "the tokens", "")
	return b.facts.tokens
}

// naming returns the jobs that name a calendar.
func (b *Batch) naming(full string) []*Job {
	b.missing(b.facts.naming[full], "who names calendar", full)
	return b.facts.namedBy[full]
}
