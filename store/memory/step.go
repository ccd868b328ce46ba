package memory

import (
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// tx is a step, with the store locked.
type tx backend

// Now implements ledger.Tx.
func (t *tx) Now() (time.Time, error) { return (*backend)(t).now(), nil }

// Load implements ledger.Tx.
func (t *tx) Load(n *engine.Need, b *engine.Batch) error {
	for _, uid := range n.Jobs {
		if row := t.jobs[uid]; row != nil {
			b.AddJob(t.copy(row))
		}
	}
	for _, name := range n.Names {
		if row := t.names[name]; row != nil {
			b.AddNamed(name, t.copy(row))
		}
	}
	for _, ref := range n.Runs {
		if r := t.runs.byID[ref.Run]; r != nil && (ref.Job.IsZero() || ref.Job == r.JobUID) {
			b.AddRun(r)
		}
	}
	t.loadMany(n, b)
	for _, name := range n.Upstreams {
		for _, row := range t.followers(name) {
			b.AddFollower(name, t.copy(row))
		}
	}
	for _, name := range n.Follows {
		if row := t.names[name]; row != nil {
			b.AddFollows(name, engine.Follows(row.Document.Filled))
		}
	}
	now := (*backend)(t).now()
	if n.Executors {
		b.UseExecutors((*backend)(t).registered(store.ExecutorsOfXXL), t.documents.List(job.KindExecutors))
	}
	for _, id := range n.Keys {
		if key, ok := t.keys[id]; ok && now.Before(key.Expires) {
			b.AddKey(id, key.Run)
		}
	}
	for _, ref := range n.Records {
		for _, r := range t.records[ref.Run] {
			b.AddRecord(r)
		}
	}
	t.loadHandovers(n, b)
	t.loadMembers(n, b)
	t.loadDocuments(n, b)
	for _, full := range n.Naming {
		for _, name := range sortedKeys(t.names) {
			if row := t.names[name]; slices.Contains(row.Document.Calendars, full) {
				b.AddNaming(full, t.copy(row))
			}
		}
	}
	return nil
}

// loadDocuments adds what is not of a job.
func (t *tx) loadDocuments(n *engine.Need, b *engine.Batch) {
	for _, kind := range n.Documents {
		b.UseDocuments(kind, cloned((*backend)(t), t.documents[kind]))
	}
	if n.Tokens {
		b.UseTokens((*backend)(t).allTokens())
	}
	for _, name := range n.Notes {
		b.AddNote(name, t.notes[name].Version)
	}
}

// copy returns a job for the step to change.
func (t *tx) copy(row *jobRow) *engine.Job {
	if t.commits != nil { // steps run concurrently
		own := row.Job
		return &own
	}
	if t.copied == len(t.copies) {
		t.copies = append(t.copies, &engine.Job{})
	}
	own := t.copies[t.copied]
	t.copied++
	*own = row.Job
	return own
}

// loadMany adds the runs of whole jobs, the waiting ones of some, and the members of slots,
// in one scan.
func (t *tx) loadMany(n *engine.Need, b *engine.Batch) {
	if len(n.Whole)+len(n.Waiting)+len(n.Slots) == 0 {
		return
	}
	slots := make(map[string]*members, len(n.Slots))
	for i := range n.Slots {
		s := &n.Slots[i]
		slots[s.Key] = &members{until: s.Until}
		if name, ok := engine.PoolOf(s.Key); ok {
			if d, ok := t.documents[job.KindPool][name]; ok {
				b.AddPool(name, d.Pool.Slots.Size)
			}
		}
	}
	for _, uid := range n.Whole {
		for _, r := range t.runs.byJob[uid] {
			b.AddRun(r)
		}
	}
	for _, uid := range n.Waiting {
		for _, r := range t.runs.byJob[uid] {
			if r.State != job.StateReady {
				b.AddRun(r)
			}
		}
	}
	for i := range n.Slots {
		key := n.Slots[i].Key
		m := slots[key]
		for _, r := range t.runs.bySlot[key] {
			if m.takes(r) {
				b.AddRun(r)
			}
		}
		if m.more > 0 {
			b.MoreWaiting(key, m.more)
		}
	}
}

// members counts which members of a slot are added: see engine.SlotNeed.
type members struct {
	until                store.RunRef
	waiting, ready, more int
}

// takes reports whether the next run in the order of due time and id is one of them.
func (m *members) takes(r *store.Run) bool {
	switch {
	case r.HoldsSlot:
		return true
	case r.State == job.StateWaiting:
		if m.waiting++; m.waiting <= store.MaxBatch {
			return true
		}
		if r.Overlap == "" && !r.AwaitsPrevious {
			m.more++
		}
		return false
	case m.until.Compare(r.Ref()) < 0:
		return false
	}
	m.ready++
	return m.ready <= store.MaxBatch
}

// followers returns the jobs that follow one.
func (t *tx) followers(upstream string) []*jobRow {
	if t.following == nil {
		t.following = map[string][]*jobRow{}
		for _, name := range sortedKeys(t.names) {
			for _, up := range t.names[name].Policy.On {
				if list := t.following[up.Job]; !slices.Contains(list, t.names[name]) {
					t.following[up.Job] = append(list, t.names[name])
				}
			}
		}
	}
	return t.following[upstream]
}

func (t *tx) loadMembers(n *engine.Need, b *engine.Batch) {
	if n.Sessions {
		b.UseSessions(cloned((*backend)(t), t.sessions))
		for id := range t.over {
			b.AddOver(id)
		}
	}
	for _, id := range n.Running {
		if r := t.runs.index.Running(id); r != nil {
			b.AddRunning(id, r.ID)
		}
	}
	if n.Drains {
		b.UseDrains(cloned((*backend)(t), t.drains))
	}
}

// Write implements ledger.Tx.
func (t *tx) Write(c *engine.Changes) error {
	for _, list := range [...][]*store.Run{c.Made, c.Saved} {
		for _, r := range list {
			t.runs.put(r)
		}
	}
	for _, r := range c.Removed {
		t.runs.remove(r.ID)
	}
	s := (*backend)(t)
	for _, record := range c.Records {
		s.record(record, false)
	}
	for _, record := range c.Replaced {
		s.record(record, true)
	}
	s.appendOutput(c.Output)
	for _, j := range c.Jobs {
		t.writeJob(j)
	}
	for _, key := range c.Keys {
		t.keys[key.Identity] = key
	}
	for _, record := range c.Audit {
		record.Seq = 1
		if n := len(t.audit); n > 0 {
			record.Seq = t.audit[n-1].Seq + 1
		}
		t.audit = append(t.audit, record)
	}
	t.writeDocuments(c)
	for _, n := range c.Notes {
		(*backend)(t).writeNote(n)
	}
	t.writeMembers(c)
	t.writeHandovers(c)
	t.hints.Send(c.Hints)
	return nil
}

// record writes a record that is new, or replaces another one.
func (s *backend) record(record *store.Record, replaces bool) {
	list := s.records[record.Run.ID]
	at := slices.IndexFunc(list, func(r *store.Record) bool { return replaces && r.Attempt.Number == record.Attempt.Number })
	s.feed.add(record, replaces && !record.Replaces, s.now())
	switch {
	case s.outbox != nil:
	case at >= 0:
		s.latest.Remove(list[at])
		fallthrough
	default:
		s.keep(record)
	}
	if at >= 0 {
		list[at] = record
	} else {
		s.records[record.Run.ID] = append(list, record)
	}
}

func (t *tx) writeDocuments(c *engine.Changes) {
	for _, d := range c.Documents {
		t.documents.Put(d)
	}
	for _, token := range c.Tokens {
		t.tokens[token.Name] = token
	}
	for _, d := range c.Dropped {
		if d.Kind == "" {
			delete(t.tokens, d.Name)
		} else {
			delete(t.documents[d.Kind], d.Name)
		}
	}
}

func (t *tx) writeMembers(c *engine.Changes) {
	for _, session := range c.Sessions {
		t.sessions[session.ID], t.members = session, nil
	}
	for _, id := range c.Reaped {
		if t.sessions[id] != nil {
			t.over[id], t.members = true, nil
		}
	}
	for _, id := range c.Ended {
		(*backend)(t).removeSession(id)
	}
	for _, id := range c.HandOn {
		for _, r := range t.runs.index.ReadyOf(id) {
			unplaced := *r
			unplaced.Session = job.ID{}
			t.runs.put(&unplaced)
		}
	}
	for _, d := range c.Drains {
		if delete(t.drains, d.Node); d.Drain != nil {
			t.drains[d.Node] = d.Drain
		}
	}
}

// writeJob writes a job. What planners or users must be told goes into the feed of
// changes; a new version has a revision.
func (t *tx) writeJob(j *engine.Job) {
	row := t.jobs[j.UID]
	if row == nil {
		row = &jobRow{partition: job.Partition(j.UID)}
		t.jobs[j.UID] = row
	}
	if row.Epoch != j.Epoch || j.Deleted || j.State == job.JobPaused {
		t.suspects[j.UID] = true
	}
	row.Job = *j
	if full := j.FullName(); j.Made() {
		t.names[full] = row
	} else if j.Deleted && t.names[full] == row {
		delete(t.names, full)
	}
	if j.Revised() {
		definition := *j.Document.Definition
		definition.UID, definition.Version, definition.Epoch = j.UID, j.Version, j.Epoch
		row.revisions = append(row.revisions, store.Revision{
			Version: j.Version, Changed: j.Changed, Actor: j.Document.Actor, Definition: &definition,
		})
		row.revisions = row.revisions[max(0, len(row.revisions)-t.revisions):]
	}
	if j.News() {
		t.seq++
		row.seq, t.following = t.seq, nil
		t.hints.Send(store.HintJobs | store.HintAbout(j.UID))
	}
}
