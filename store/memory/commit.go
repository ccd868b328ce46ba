package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// Fate is what becomes of a part of a commit.
type Fate uint8

// What becomes of a part of a commit.
const (
	Done  Fate = iota
	Again      // neither it nor those behind it are done: the step is made again
	Away       // neither it nor those behind it are done, and the caller does not know
	Lost       // it is done, those behind it are not, and the caller does not know
	Late       // the caller does not know: all of it comes when the call was repeated
)

// commits is a store without locks in steps: they compare at the commit what they have
// read, and may commit in parts, like those on etcd and Redis.
type commits struct {
	fate     func(part, parts int) Fate
	versions map[string]int64
	last     int64
	late     []*late
}

// late is a commit in flight for a number of further calls.
type late struct {
	calls int
	do    func()
}

// lateBy is after how many calls a late commit comes: after the one that repeats it.
const lateBy = 2

// arrive applies commits whose flight is over.
func (c *commits) arrive() {
	c.late = slices.DeleteFunc(c.late, func(l *late) bool {
		l.calls--
		if l.calls == 0 {
			l.do()
		}
		return l.calls == 0
	})
}

// optimisticStep is a step that locks nothing.
type optimisticStep struct {
	*backend
	read    map[string]int64
	changes *engine.Changes
}

// Load implements ledger.Tx.
func (t *optimisticStep) Load(n *engine.Need, b *engine.Batch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range [][]job.ID{n.Jobs, n.Whole, n.Waiting} {
		for _, uid := range list {
			t.note(cellKey(uid))
		}
	}
	for _, ref := range n.Runs {
		if r := t.runs.byID[ref.Run]; r != nil {
			t.note(cellKey(r.JobUID))
		}
		t.note(recordsKey(ref.Run))
	}
	for i := range n.Slots {
		t.note(slotKey(n.Slots[i].Key))
	}
	for _, id := range n.Keys {
		t.note(identityKey(id))
	}
	for _, ref := range n.Records {
		t.note(recordsKey(ref.Run))
	}
	for _, id := range n.Running {
		t.note(runningKey(id))
	}
	for _, number := range n.Handovers {
		t.note(handoverKey(number))
	}
	for _, ref := range n.HandedOver {
		t.note(cellKey(ref.Job))
		for _, h := range t.openHandovers(ref.Run) {
			t.note(handoverKey(h.Number))
		}
	}
	if n.Number {
		t.note(numberKey)
	}
	if len(n.Names)+len(n.Upstreams)+len(n.Follows)+len(n.Naming)+len(n.Documents)+len(n.Notes) > 0 || n.Tokens {
		t.note(documentsKey)
	}
	if n.Sessions || n.Drains {
		t.note(sessionsKey)
	}
	return (*tx)(t.backend).Load(n, b)
}

// note notes as what something was read.
func (t *optimisticStep) note(key string) {
	if _, ok := t.read[key]; !ok {
		t.read[key] = t.commits.versions[key]
	}
}

// Now implements ledger.Tx.
func (t *optimisticStep) Now() (time.Time, error) { return t.now(), nil }

// Write implements ledger.Tx.
func (t *optimisticStep) Write(c *engine.Changes) error {
	t.changes = c
	return nil
}

// stepCompared makes a step, and compares when it commits.
func (s *backend) stepCompared(ctx context.Context, o *ledger.Order, decide func(ledger.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	s.commits.arrive()
	s.mu.Unlock()
	t := &optimisticStep{backend: s, read: map[string]int64{}}
	if err := decide(t); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.commits.hold(t.read) {
		return fmt.Errorf("compare: %w", ledger.ErrAgain)
	}
	list := []*engine.Changes{t.changes}
	if o.Parts {
		list = parts(t.changes)
	}
	for i, part := range list {
		switch s.commits.fate(i, len(list)) {
		case Done:
			s.commit(part)
			continue
		case Again:
			return fmt.Errorf("part %d of %d: %w", i+1, len(list), ledger.ErrAgain)
		case Lost:
			s.commit(part)
		case Late:
			if i == 0 { // an earlier part has changed what it compares
				s.commits.late = append(s.commits.late, &late{lateBy, func() {
					if s.commits.hold(t.read) {
						s.commit(t.changes)
					}
				}})
			}
		}
		return fmt.Errorf("part %d of %d: %w", i+1, len(list), store.ErrAway)
	}
	if n := len(list); o.Parts && s.commits.fate(n, n) == Again {
		return fmt.Errorf("after %d parts: %w", n, ledger.ErrAgain) // the part of no job, which some stores write last
	}
	o.Committed()
	return nil
}

// hold reports whether all that was read is as it was.
func (c *commits) hold(read map[string]int64) bool {
	for key, version := range read {
		if c.versions[key] != version {
			return false
		}
	}
	return true
}

// commit applies changes, and notes what they change.
func (s *backend) commit(c *engine.Changes) {
	s.commits.last++
	note := func(key string) { s.commits.versions[key] = s.commits.last }
	run := func(r *store.Run) {
		note(cellKey(r.JobUID))
		note(slotKey(r.Slot))
		note(runningKey(r.Session))
		if was := s.runs.byID[r.ID]; was != nil {
			note(slotKey(was.Slot))
			note(runningKey(was.Session))
		}
	}
	for _, list := range [][]*store.Run{c.Made, c.Saved, c.Removed} {
		for _, r := range list {
			run(r)
		}
	}
	for _, id := range c.HandOn {
		for _, r := range s.runs.index.ReadyOf(id) {
			run(r)
		}
	}
	for _, list := range [][]*store.Record{c.Records, c.Replaced} {
		for _, r := range list {
			note(recordsKey(r.Run.ID))
		}
	}
	for _, j := range c.Jobs {
		note(cellKey(j.UID))
		if j.News() {
			note(documentsKey)
		}
	}
	for _, key := range c.Keys {
		note(identityKey(key.Identity))
	}
	for _, h := range c.Handovers {
		note(handoverKey(h.Number))
	}
	for _, ask := range c.AskNow {
		for _, h := range s.openHandovers(ask.Run) {
			note(handoverKey(h.Number))
		}
	}
	if c.Number > 0 {
		note(numberKey)
	}
	if len(c.Documents)+len(c.Tokens)+len(c.Dropped)+len(c.Notes) > 0 {
		note(documentsKey)
	}
	for _, d := range c.Documents {
		note(slotKey(engine.PoolSlot(d.FullName()))) // of another kind, it is no slot
	}
	if len(c.Sessions)+len(c.Reaped)+len(c.Ended)+len(c.Drains) > 0 {
		note(sessionsKey)
	}
	_ = (*tx)(s).Write(c) // it does not fail
}

// What is compared, by name. Everything that is changed seldom is compared as one.
const (
	documentsKey = "documents"
	sessionsKey  = "sessions"
	numberKey    = "number"
)

func cellKey(uid job.ID) string             { return "cell " + uid.String() }
func slotKey(slot string) string            { return "slot " + slot }
func handoverKey(number int64) string       { return fmt.Sprint("handover ", number) }
func recordsKey(run job.ID) string          { return "records " + run.String() }
func runningKey(session job.ID) string      { return "running " + session.String() }
func identityKey(id engine.Identity) string { return fmt.Sprint("key ", id) }

// partOf returns what a cell is a part of.
func partOf(of map[string]string, k string) string {
	for of[k] != "" && of[k] != k {
		k = of[k]
	}
	return k
}

// parts splits changes into independent parts: the changes of one job, and of jobs that share a
// pool or follow each other.
func parts(c *engine.Changes) []*engine.Changes {
	of := map[string]string{} // what a cell is a part of
	join := func(a, b string) { of[partOf(of, a)] = partOf(of, b) }
	jobOf := map[job.ID]job.ID{}
	for _, list := range [][]*store.Run{c.Made, c.Saved, c.Removed} {
		for _, r := range list {
			jobOf[r.ID] = r.JobUID
		}
	}
	var order []string
	split := map[string]*engine.Changes{}
	for _, list := range [][]*store.Run{c.Made, c.Saved, c.Removed} {
		for _, r := range list {
			if strings.HasPrefix(r.Slot, engine.PoolSlot("")) {
				join(cellKey(r.JobUID), slotKey(r.Slot))
			}
			if uid, ok := jobOf[r.Parent]; ok {
				join(cellKey(r.JobUID), cellKey(uid))
			}
		}
	}
	part := func(uid job.ID) *engine.Changes {
		key := partOf(of, cellKey(uid))
		if split[key] == nil {
			split[key] = &engine.Changes{}
			order = append(order, key)
		}
		return split[key]
	}
	ofRun := func(r *store.Run) job.ID { return r.JobUID }
	ofRecord := func(r *store.Record) job.ID { return r.Run.JobUID }
	divide(c.Made, ofRun, part, func(p *engine.Changes) *[]*store.Run { return &p.Made })
	divide(c.Saved, ofRun, part, func(p *engine.Changes) *[]*store.Run { return &p.Saved })
	divide(c.Removed, ofRun, part, func(p *engine.Changes) *[]*store.Run { return &p.Removed })
	divide(c.Records, ofRecord, part, func(p *engine.Changes) *[]*store.Record { return &p.Records })
	divide(c.Replaced, ofRecord, part, func(p *engine.Changes) *[]*store.Record { return &p.Replaced })
	divide(c.Jobs, func(j *engine.Job) job.ID { return j.UID }, part, func(p *engine.Changes) *[]*engine.Job { return &p.Jobs })
	divide(c.Keys, func(k engine.Key) job.ID { return k.Job }, part, func(p *engine.Changes) *[]engine.Key { return &p.Keys })
	divide(c.Handovers, func(h *store.Handover) job.ID { return h.Attempt.Job }, part, func(p *engine.Changes) *[]*store.Handover { return &p.Handovers })
	divide(c.AskNow, func(a engine.AskNow) job.ID { return a.Job }, part, func(p *engine.Changes) *[]engine.AskNow { return &p.AskNow })
	uids := map[string]job.ID{} // by full name
	for _, r := range slices.Concat(c.Made, c.Saved, c.Removed) {
		uids[r.Namespace+"/"+r.Name] = r.JobUID
	}
	for _, j := range c.Jobs {
		uids[j.FullName()] = j.UID
	}
	var audit []store.AuditRecord // of no job
	for _, a := range c.Audit {
		if uid, ok := uids[a.Object]; ok {
			p := part(uid)
			p.Audit = append(p.Audit, a)
		} else {
			audit = append(audit, a)
		}
	}
	// What is about no job comes first: a session that is over must be so before anything
	// of it is reaped.
	rest := *c
	rest.Made, rest.Saved, rest.Removed, rest.Records, rest.Replaced, rest.Jobs, rest.Keys = nil, nil, nil, nil, nil, nil, nil
	rest.Handovers, rest.AskNow = nil, nil
	rest.Audit = audit
	list := []*engine.Changes{&rest}
	for _, key := range order {
		list = append(list, split[key])
	}
	return list
}

// divide adds each item to the part of its job.
func divide[T any](list []T, of func(T) job.ID, part func(job.ID) *engine.Changes, in func(*engine.Changes) *[]T) {
	for _, item := range list {
		to := in(part(of(item)))
		*to = append(*to, item)
	}
}

// cloned returns a map unaffected by later changes of the original.
func cloned[M ~map[K]V, K comparable, V any](s *backend, m M) M {
	if s.commits == nil {
		return m
	}
	return maps.Clone(m)
}
