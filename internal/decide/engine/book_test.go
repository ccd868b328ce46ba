package engine

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// book is the content of a store in plain maps. It decides one operation after another, and loads
// for each exactly its needs.
type book struct {
	*testing.T
	now       time.Time
	jobs      map[job.ID]Job
	runs      map[job.ID]store.Run
	records   []store.Record
	sessions  map[job.ID]store.Session
	over      map[job.ID]bool
	keys      map[Identity]job.ID
	documents Documents
	tokens    map[string]store.Token
	drains    map[string]*store.Drain
	notes     map[string]store.Note
	turns     map[string]time.Time
	handovers map[int64]store.Handover
	executors []store.Registration
	number    int64
	audit     []string // actions and their objects
	ids       byte
	said      Changes // changes of the latest operation
	tried     *tried
}

// tried records the parts of needs that operations have requested, and the parts whose omission was
// noticed.
type tried struct{ asked, noticed map[string]bool }

func newBook(t *testing.T, tried *tried) *book {
	return &book{
		T: t, now: at(t, "2026-11-20T12:00:00Z"), jobs: map[job.ID]Job{}, runs: map[job.ID]store.Run{}, sessions: map[job.ID]store.Session{},
		over: map[job.ID]bool{}, keys: map[Identity]job.ID{}, documents: Documents{}, tokens: map[string]store.Token{}, drains: map[string]*store.Drain{}, notes: map[string]store.Note{}, turns: map[string]time.Time{},
		handovers: map[int64]store.Handover{}, tried: tried,
	}
}

// document returns a document as a ledger passes it on.
func document(d job.Document) job.Document { return d.As(job.ID{}, 0) }

func (k *book) id() job.ID {
	k.ids++
	return job.ID{k.ids}
}

func (k *book) pass(d time.Duration) { k.now = k.now.Add(d) }

// parts are the fields of Need, by their names.
var parts = func() (names []string) {
	for f := range reflect.TypeFor[Need]().Fields() {
		if f.IsExported() {
			names = append(names, f.Name)
		}
	}
	return names
}()

// do decides an operation and applies its changes. Before that it decides the same operation with
// each part of its need left out, which must be noticed.
func (k *book) do(op Operation) error {
	k.Helper()
	kind := strings.TrimPrefix(fmt.Sprintf("%T", op), "*engine.")
	own := func() Operation {
		c := reflect.New(reflect.TypeOf(op).Elem())
		c.Elem().Set(reflect.ValueOf(op).Elem())
		return c.Interface().(Operation)
	}
	asked, _, err := k.decide(own(), "")
	for _, part := range parts {
		if name := kind + "." + part; asked[part] {
			k.tried.asked[name] = true
			if _, _, err := k.decide(own(), part); err != nil && strings.Contains(err.Error(), "no need has named") {
				k.tried.noticed[name] = true
			}
		}
	}
	if err != nil && strings.Contains(err.Error(), "no need has named") {
		k.Fatalf("%s: %v", kind, err)
	}
	_, b, err := k.decide(op, "")
	if err != nil {
		return err
	}
	k.said = b.Changes()
	k.write(&k.said)
	return nil
}

// decide decides an operation without a part of its need, and returns the requested parts. A panic
// is an error.
func (k *book) decide(op Operation, forget string) (asked map[string]bool, b *Batch, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	asked = map[string]bool{}
	b = NewBatch(k.now, lookAhead, 0)
	b.Guard()
	for need := (Need{}); ; {
		need.Reset()
		b.Needs(op, &need)
		for _, part := range parts {
			f := reflect.ValueOf(&need).Elem().FieldByName(part)
			switch {
			case part == forget:
				f.SetZero()
			case !f.IsZero() && (f.Kind() != reflect.Slice || f.Len() > 0):
				asked[part] = true
			}
		}
		if need.Empty() {
			return asked, b, op.Decide(b)
		}
		k.load(&need, b)
		b.Answered(&need)
	}
}

// must decides an operation that is not refused.
func (k *book) must(op Operation) {
	k.Helper()
	if err := k.do(op); err != nil {
		k.Fatalf("%T: %v", op, err)
	}
}

func (k *book) inOrder(wanted func(*store.Run) bool) (list []store.Run) {
	for _, r := range k.runs {
		if wanted(&r) {
			list = append(list, r)
		}
	}
	sort.Slice(list, func(i, j int) bool { return before(&list[i], &list[j]) })
	return list
}

func (k *book) load(n *Need, b *Batch) {
	for _, uid := range n.Jobs {
		if j, ok := k.jobs[uid]; ok {
			b.AddJob(&j)
		}
	}
	named := func(wanted func(*Job) bool) (list []*Job) {
		for _, j := range k.jobs {
			if !j.Deleted && wanted(&j) {
				list = append(list, &j)
			}
		}
		sortByName(list)
		return list
	}
	for _, full := range n.Names {
		for _, j := range named(func(j *Job) bool { return j.FullName() == full }) {
			b.AddNamed(full, j)
		}
	}
	for _, full := range n.Follows {
		for _, j := range named(func(j *Job) bool { return j.FullName() == full }) {
			b.AddFollows(full, Follows(j.Document.Filled))
		}
	}
	for _, full := range n.Upstreams {
		for _, j := range named(func(j *Job) bool { return slices.Contains(Follows(j.Document.Filled), full) }) {
			b.AddFollower(full, j)
		}
	}
	for _, full := range n.Naming {
		for _, j := range named(func(j *Job) bool { return slices.Contains(j.Document.Calendars, full) }) {
			b.AddNaming(full, j)
		}
	}
	for i := range n.Slots {
		if name, ok := PoolOfSlot(n.Slots[i].Key); ok {
			b.AddPool(name, k.documents.Slots(name), k.turns[name])
		}
	}
	for _, r := range k.inOrder(func(r *store.Run) bool {
		return slices.ContainsFunc(n.Runs, func(ref RunRef) bool { return ref.Run == r.ID }) || slices.Contains(n.Whole, r.JobUID) ||
			slices.Contains(n.Waiting, r.JobUID) && r.State != job.StateReady || slices.ContainsFunc(n.Slots, func(s SlotNeed) bool { return s.Key == r.Slot })
	}) {
		b.AddRun(&r)
	}
	for i := range k.records {
		if slices.ContainsFunc(n.Records, func(ref RunRef) bool { return ref.Run == k.records[i].Run.ID }) {
			r := k.records[i]
			b.AddRecord(&r)
		}
	}
	for _, id := range n.Keys {
		if run, ok := k.keys[id]; ok {
			b.AddKey(id, run)
		}
	}
	for _, id := range n.Running {
		for _, r := range k.inOrder(func(r *store.Run) bool { return r.State == job.StateRunning && r.Session == id }) {
			b.AddRunning(id, r.ID)
		}
	}
	k.loadRest(n, b)
}

// loadRest loads what is of no job.
func (k *book) loadRest(n *Need, b *Batch) {
	if n.Sessions {
		all := map[job.ID]*store.Session{}
		for id, s := range k.sessions {
			all[id] = &s
		}
		b.UseSessions(all)
		for id := range k.over {
			b.AddOver(id)
		}
	}
	for _, kind := range n.Documents {
		b.UseDocuments(kind, maps.Clone(k.documents[kind]))
	}
	if n.Tokens {
		b.UseTokens(slices.Collect(maps.Values(k.tokens)))
	}
	if n.Drains {
		b.UseDrains(maps.Clone(k.drains))
	}
	if n.Executors {
		b.UseExecutors(k.executors, nil)
	}
	for _, name := range n.Notes {
		b.AddNote(name, k.notes[name].Version)
	}
	for _, h := range k.handovers {
		if slices.Contains(n.Handovers, h.Number) || !h.IsOver() && slices.ContainsFunc(n.HandedOver, func(ref RunRef) bool { return ref.Run == h.Attempt.Run }) {
			b.AddHandover(&h)
		}
	}
	if n.Number {
		b.UseNumber(k.number)
	}
}

func (k *book) write(c *Changes) {
	for _, r := range slices.Concat(c.Made, c.Saved) {
		k.runs[r.ID] = *r
	}
	for _, r := range c.Removed {
		delete(k.runs, r.ID)
	}
	for _, r := range slices.Concat(c.Records, c.Replaced) {
		k.records = slices.DeleteFunc(k.records, func(o store.Record) bool { return o.Run.ID == r.Run.ID && o.Attempt.Number == r.Attempt.Number })
		k.records = append(k.records, *r)
	}
	for _, j := range c.Jobs {
		k.jobs[j.UID] = *j
	}
	for _, key := range c.Keys {
		k.keys[key.Identity] = key.Run
	}
	for _, a := range c.Audit {
		k.audit = append(k.audit, a.Action+" "+a.Object)
	}
	for _, s := range c.Sessions {
		k.sessions[s.ID] = *s
	}
	for _, id := range c.Reaped {
		k.over[id] = true
	}
	for _, id := range c.Ended {
		delete(k.sessions, id)
	}
	for _, id := range c.HandOn {
		for _, r := range k.inOrder(func(r *store.Run) bool { return r.State == job.StateReady && r.Session == id }) {
			r.Session = job.ID{}
			k.runs[r.ID] = r
		}
	}
	for _, d := range c.Documents {
		k.documents.Put(d)
	}
	for _, t := range c.Tokens {
		k.tokens[t.Name] = t
	}
	for _, d := range c.Dropped {
		delete(k.documents[d.Kind], d.Name)
		delete(k.tokens, d.Name)
	}
	for _, d := range c.Drains {
		if k.drains[d.Node] = d.Drain; d.Drain == nil {
			delete(k.drains, d.Node)
		}
	}
	for _, moved := range c.Turns {
		k.turns[moved.Line] = moved.At
	}
	for _, n := range c.Notes {
		n.Version++
		k.notes[n.Name] = n
	}
	for _, h := range c.Handovers {
		k.handovers[h.Number] = *h
	}
	for _, a := range c.AskNow {
		for number, h := range k.handovers {
			if h.Attempt.Run == a.Run && !h.IsOver() {
				h.Ask = a.At
				k.handovers[number] = h
			}
		}
	}
	k.number = max(k.number, c.Number)
}

// join begins the session of a node.
func (k *book) join(node string) job.ID {
	k.Helper()
	id := k.id()
	k.must(&Join{store.Session{ID: id, Node: node, Machine: node, DataDir: "/d", Roles: []string{store.RoleWorker, store.RolePlanner}}})
	return id
}

func decoded(t *testing.T, text string) *job.Job {
	t.Helper()
	if !strings.Contains(text, "run:") {
		text += "\nrun: {shell: 'true'}"
	}
	documents, err := job.Decode("job.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return documents[0].Job
}

// puts is the operation that puts jobs.
func (k *book) puts(texts ...string) *PutJobs {
	k.Helper()
	op := &PutJobs{NewID: func(i int) job.ID { return job.ID{0xaa, k.ids, byte(i)} }}
	k.ids++
	for _, text := range texts {
		d := decoded(k.T, text)
		op.List = append(op.List, store.PutJob{Definition: d, IfVersion: store.AnyVersion, Actor: "ann"})
		op.Documents = append(op.Documents, NewDocument(d, d.WithDefaults(job.Defaults{})))
	}
	return op
}

// put creates or changes a job, and returns its uid.
func (k *book) put(text string) job.ID {
	k.Helper()
	op := k.puts(text)
	k.must(op)
	return op.Jobs[0].Definition.UID
}

// plan makes a run of a job that is due now, for a session.
func (k *book) plan(uid, session job.ID) store.Attempt {
	k.Helper()
	j := k.jobs[uid]
	run := store.NewRun{ID: k.id(), Session: session, Node: k.sessions[session].Node, Scheduled: k.now, Due: k.now}
	k.pass(time.Millisecond) // the cursor moves
	op := &Plan{Session: session, Items: []store.PlanItem{{Job: uid, Epoch: j.Epoch, From: j.Cursor, To: k.now, Planned: j.Planned, Runs: []store.NewRun{run}}}}
	if op.Items[0].Runs[0].Scheduled.Equal(j.Cursor) {
		op.Items[0].Runs[0].Scheduled, op.Items[0].Runs[0].Due = k.now, k.now
	}
	if k.must(op); op.Outcomes[0] != store.Planned {
		k.Fatalf("a run of job %s is not planned: %d", j.Name, op.Outcomes[0])
	}
	return store.Attempt{Job: uid, Run: run.ID, Number: 1, Token: k.id()}
}

// trigger makes a run of a job by hand.
func (k *book) trigger(uid, session job.ID) store.Attempt {
	k.Helper()
	op := &Trigger{Items: []store.TriggerItem{{ID: k.id(), Job: uid, Kind: job.RunByHand, Session: session, Node: k.sessions[session].Node, Actor: "ann"}}}
	if k.must(op); op.Outcomes[0].Err != nil {
		k.Fatal(op.Outcomes[0].Err)
	}
	return store.Attempt{Job: uid, Run: op.Outcomes[0].Run, Number: 1, Token: k.id()}
}

// claim claims an attempt, and reports an unexpected verdict.
func (k *book) claim(session job.ID, a store.Attempt, want store.Verdict) store.ClaimOutcome {
	k.Helper()
	op := &Claim{Session: session, Attempts: []store.Attempt{a}}
	if k.must(op); op.Outcomes[0].Verdict != want {
		k.Errorf("the claim of %s is answered %d (%s), want %d", a.Run, op.Outcomes[0].Verdict, op.Outcomes[0].Reason, want)
	}
	return op.Outcomes[0]
}

// finish ends an attempt, and reports whether its acceptance is unexpected.
func (k *book) finish(a store.Attempt, outcome job.Outcome, accepted bool) store.FinishOutcome {
	k.Helper()
	return k.report(store.Result{Attempt: a, Started: k.now, Ended: k.now, Outcome: outcome}, accepted)
}

func (k *book) report(r store.Result, accepted bool) store.FinishOutcome {
	k.Helper()
	op := &Finish{Results: []store.Result{r}}
	if k.must(op); op.Outcomes[0].Accepted != accepted {
		k.Errorf("the result of %s is accepted: %t, want %t", r.Run, op.Outcomes[0].Accepted, accepted)
	}
	return op.Outcomes[0]
}

// see compares the unfinished runs of a job, by due time, as their states with what they wait for
// or their node.
func (k *book) see(uid job.ID, want string) {
	k.Helper()
	var got []string
	for _, r := range k.inOrder(func(r *store.Run) bool { return r.JobUID == uid }) {
		text := string(r.State)
		if r.Attempt > 1 {
			text += fmt.Sprint(" ", r.Attempt)
		}
		if r.CancelBy != "" {
			text += " ending"
		}
		got = append(got, text)
	}
	if text := strings.Join(got, ", "); text != want {
		k.Errorf("the runs of job %s are %q, want %q", k.jobs[uid].Name, text, want)
	}
}

// ended compares the records of a run: outcomes of its attempts, and a part of the last reason.
func (k *book) ended(run job.ID, want, reason string) {
	k.Helper()
	var got []string
	last := ""
	for _, r := range k.records {
		if r.Run.ID == run {
			got, last = append(got, string(r.Attempt.Outcome)), r.Attempt.Reason.String()
		}
	}
	if text := strings.Join(got, ", "); text != want || !strings.Contains(last, reason) {
		k.Errorf("run %s ended %q (%s), want %q (%s)", run, text, last, want, reason)
	}
}
