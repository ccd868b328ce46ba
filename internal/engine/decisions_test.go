package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const minutely = "\nschedule: {cron: '* * * * *'}"

// superfluous are parts of needs that are asked for with something else.
var superfluous = map[string]string{
	"Asked.Jobs": ofRun, "HandOver.Jobs": ofRun, "ToAsk.Jobs": ofRun,
	"PutJobs.Jobs": ofRun, "Restart.Runs": "they are among those that their jobs ask for",
	"Adopt.HandedOver": "it is asked for as by Survey",
	"Cancel.Upstreams": noFollowers, "Release.Upstreams": noFollowers, "Plan.Upstreams": noFollowers, "Restart.Upstreams": noFollowers,
	"Cancel.Sessions": absences, "Inspect.Sessions": absences, "PutDocument.Sessions": absences,
	"FillSlots.Sessions": absences, "FillSlots.Upstreams": noFollowers,
	"Refit.Sessions": absences, "Restart.Sessions": absences, "Restart.Waiting": wholeJobs, "Refit.Waiting": wholeJobs,
}

const (
	wholeJobs   = "all runs of the jobs are asked for"
	ofRun       = "the job of a run is asked for with it"
	noFollowers = "followers are asked for with each end, and a run that was cancelled or skipped starts none"
	absences    = "absences of nodes matter where a slot is handed on or a schedule begins anew late"
)

// TestDecisions takes operations on a book. Each of them is made again without each part of what
// it needs, which must not go unnoticed.
func TestDecisions(t *testing.T) {
	seen := &tried{map[string]bool{}, map[string]bool{}}
	for _, table := range [][]decided{editDecisions, memberDecisions, runDecisions, slotDecisions, endDecisions, lossDecisions, handoverDecisions, flowDecisions, reportDecisions, upkeepDecisions} {
		for _, d := range table {
			t.Run(d.name, func(t *testing.T) { d.take(newBook(t, seen)) })
		}
	}
	var unnoticed []string
	for _, name := range slices.Sorted(maps.Keys(seen.asked)) {
		if superfluous[name] == "" && !seen.noticed[name] {
			unnoticed = append(unnoticed, name)
		}
	}
	if len(unnoticed) > 0 {
		t.Errorf("asked for and never missed:\n%s", strings.Join(unnoticed, "\n"))
	}
}

// decided is a situation in which operations are decided.
type decided struct {
	name string
	take func(k *book)
}

func (k *book) refuses(op Operation, want error) {
	k.Helper()
	if err := k.do(op); !errors.Is(err, want) {
		k.Errorf("%T: got %v, want %v", op, err, want)
	}
}

func equal[T comparable](k *book, what string, got, want T) {
	k.Helper()
	if got != want {
		k.Errorf("%s: got %v, want %v", what, got, want)
	}
}

var editDecisions = []decided{
	{"jobs are created, changed and left alone", func(k *book) {
		a := k.put("name: a" + minutely)
		k.put("name: a" + minutely)
		equal(k, "version", k.jobs[a].Version, 1)
		k.put("name: a\ndescription: x" + minutely)
		equal(k, "version", k.jobs[a].Version, 2)
		equal(k, "epoch", k.jobs[a].Epoch, 1)
		k.put("name: a\nschedule: {every: 5m}")
		equal(k, "epoch", k.jobs[a].Epoch, 2)
		equal(k, "audit", strings.Join(k.audit, "; "), "job.create default/a; job.change default/a; job.change default/a")
	}},
	{"an edit of another version is refused", func(k *book) {
		k.put("name: a" + minutely)
		op := k.puts("name: a\npaused: true" + minutely)
		op.List[0].IfVersion = 7
		k.refuses(op, store.ErrConflict)
		op = k.puts("name: a" + minutely)
		op.List[0].IfVersion = 0
		op.List[0].Definition.Description = "y"
		k.refuses(op, store.ErrExists)
		op = k.puts("name: b" + minutely)
		op.List[0].IfVersion = 1
		k.refuses(op, store.ErrNotFound)
	}},
	{"jobs that would follow each other in a circle are refused together", func(k *book) {
		k.put("name: c\nschedule: {on: [b]}")
		op := k.puts("name: a\nschedule: {on: [c]}", "name: b\nschedule: {on: [a]}")
		k.refuses(op, store.ErrCycle)
		var item *store.ItemError
		if err := k.do(op); !errors.As(err, &item) || !strings.Contains(err.Error(), "default/") {
			k.Errorf("the refusal does not say which job: %v", err)
		}
		equal(k, "jobs", len(k.jobs), 1)
	}},
	{"a pause withdraws what is planned, and a resume begins a new epoch", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely)
		run := k.plan(a, n)
		op := k.puts("name: a\npaused: true" + minutely)
		op.List[0].Pause = store.Pause{By: "ann", Reason: "repair", Until: k.now.Add(time.Hour)}
		k.must(op)
		equal(k, "state", k.jobs[a].State, job.JobPaused)
		k.claim(n, run, store.Gone)
		k.must(&Tidy{Runs: []RunRef{{Run: run.Run, Job: a}}})
		k.ended(run.Run, "withdrawn", "paused by ann: repair")
		k.must(&Tidy{Jobs: []job.ID{a}}) // too early
		equal(k, "state", k.jobs[a].State, job.JobPaused)
		k.pass(time.Hour)
		k.must(&Tidy{Jobs: []job.ID{a}})
		equal(k, "state", k.jobs[a].State, job.JobActive)
	}},
	{"a pause that is said again with another end is a change", func(k *book) {
		a := k.put("name: a" + minutely)
		for i, until := range []time.Duration{time.Hour, time.Hour, 2 * time.Hour} {
			op := k.puts("name: a\npaused: true" + minutely)
			op.List[0].Pause = store.Pause{By: "ann", Until: at(k.T, "2026-11-20T12:00:00Z").Add(until)}
			k.must(op)
			equal(k, "version", k.jobs[a].Version, []int64{2, 2, 3}[i])
		}
	}},
	{"a resume catches up what it is told", func(k *book) {
		a := k.put("name: a\npaused: true" + minutely)
		k.pass(time.Hour)
		op := k.puts("name: a" + minutely)
		op.List[0].CatchUp = job.MissedLatest
		k.must(op)
		if runs := k.inOrder(func(r *store.Run) bool { return r.JobUID == a }); len(runs) != 1 || !runs[0].Scheduled.Equal(k.now) {
			k.Errorf("caught up are %+v", runs)
		}
	}},
	{"a deleted job starts nothing and frees its name", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely)
		run := k.plan(a, n)
		k.refuses(&DeleteJob{store.DeleteJob{UID: a, IfVersion: 9, Actor: "ann"}}, store.ErrConflict)
		k.must(&DeleteJob{store.DeleteJob{UID: a, IfVersion: store.AnyVersion, Actor: "ann"}})
		k.must(&DeleteJob{store.DeleteJob{UID: a, IfVersion: store.AnyVersion, Actor: "ann"}})
		k.refuses(&DeleteJob{store.DeleteJob{UID: job.ID{99}, IfVersion: store.AnyVersion}}, store.ErrNotFound)
		k.claim(n, run, store.Gone)
		k.must(&Tidy{Runs: []RunRef{{Run: run.Run, Job: a}}, Jobs: []job.ID{a}})
		k.ended(run.Run, "withdrawn", "the job was deleted")
		if b := k.put("name: a" + minutely); b == a {
			k.Error("the new job has the uid of the old one")
		}
		equal(k, "deletions", strings.Count(strings.Join(k.audit, " "), "job.delete"), 1)
	}},
	{"a calendar reaches the jobs that name it, and is not deleted before them", func(k *book) {
		given := &job.Calendar{Name: "off", Namespace: "default", Days: job.Days{Include: []string{"2026-11-20"}}}
		put := &PutDocument{Given: document(job.Document{Calendar: given}), IfVersion: store.AnyVersion, Actor: "ann", NewID: func(int) job.ID { return job.ID{7} }}
		k.must(put)
		equal(k, "version", put.Put.Version(), 1)
		a := k.put("name: a\nschedule: {cron: '* * * * *', except: [off]}")
		k.must(put)
		equal(k, "epoch", k.jobs[a].Epoch, 1)
		k.ahead(a, k.join("n"))
		changed := *given
		changed.Days.Include = []string{"2026-11-21"}
		k.must(&PutDocument{Given: document(job.Document{Calendar: &changed}), IfVersion: store.AnyVersion, Actor: "ann", NewID: put.NewID})
		equal(k, "epoch", k.jobs[a].Epoch, 2)
		if !strings.Contains(k.jobs[a].EpochWhy, "calendar default/off") {
			k.Errorf("the epoch began because %s", k.jobs[a].EpochWhy)
		}
		drop := &DeleteDocument{Kind: job.KindCalendar, Name: "default/off", IfVersion: store.AnyVersion, Actor: "ann"}
		var named store.NamedError
		if err := k.do(drop); !errors.As(err, &named) || named.Job != "default/a" {
			k.Errorf("got %v", err)
		}
		k.put("name: limited\nschedule: {cron: '* * * * *', except: [off], max_runs: 3}")
		k.must(&PutDocument{Given: document(job.Document{Calendar: given}), IfVersion: 2, Actor: "ann", NewID: put.NewID})
		for uid := range k.jobs {
			k.must(&DeleteJob{store.DeleteJob{UID: uid, IfVersion: store.AnyVersion}})
		}
		stale := *drop
		stale.IfVersion = 1
		k.refuses(&stale, store.ErrConflict)
		k.must(drop)
		k.refuses(drop, store.ErrNotFound)
	}},
	{"a larger pool hands its slots on", func(k *book) {
		pool := func(size int) *PutDocument {
			return &PutDocument{Given: document(job.Document{Pool: &job.Pool{Name: "db", Namespace: "default", Slots: job.Slots{Size: size}}}), IfVersion: store.AnyVersion, Actor: "ann", NewID: func(int) job.ID { return job.ID{8} }}
		}
		k.must(pool(1))
		n := k.join("n")
		a, b := k.put("name: a\npolicy: {overlap: queue, concurrency_key: db}"), k.put("name: b\npolicy: {overlap: queue, concurrency_key: db}")
		k.claim(n, k.trigger(a, n), store.Started)
		second := k.trigger(b, n)
		k.claim(n, second, store.Waiting)
		k.see(b, "waiting")
		k.must(pool(2))
		k.see(b, "ready")
		k.claim(n, second, store.Started)
		drop := &DeleteDocument{Kind: job.KindPool, Name: "default/db", IfVersion: store.AnyVersion}
		k.must(drop)
		k.refuses(drop, store.ErrNotFound)
	}},
	{"channels are created, changed, bounded and dropped", func(k *book) {
		given := &job.Channel{Name: "ops", Namespace: "default"}
		put := &PutDocument{Given: document(job.Document{Channel: given}), IfVersion: store.AnyVersion, Actor: "ann", NewID: func(int) job.ID { return job.ID{6} }}
		k.must(put)
		k.must(put)
		equal(k, "version", k.documents[job.KindChannel]["default/ops"].Version(), 1)
		other := *given
		other.Paused = true
		k.must(&PutDocument{Given: document(job.Document{Channel: &other}), IfVersion: 1, Actor: "ann", NewID: put.NewID})
		equal(k, "version", k.documents[job.KindChannel]["default/ops"].Version(), 2)
		k.refuses(&PutDocument{Given: document(job.Document{Channel: given}), IfVersion: 1, Actor: "ann", NewID: put.NewID}, store.ErrConflict)
		for i := 1; i < store.ChannelsMax; i++ {
			k.documents.Put(document(job.Document{Channel: &job.Channel{Name: fmt.Sprint(i)}}))
		}
		third := *given
		third.Name = "more"
		k.refuses(&PutDocument{Given: document(job.Document{Channel: &third}), IfVersion: store.AnyVersion, NewID: put.NewID}, store.ErrLimit)
		drop := &DeleteDocument{Kind: job.KindChannel, Name: "default/ops", IfVersion: store.AnyVersion}
		k.must(drop)
		k.refuses(drop, store.ErrNotFound)
	}},
	{"tokens are unique, bounded and replaced, and one that makes others stays", func(k *book) {
		put := func(name string, hash byte, change func(*store.PutToken)) *PutToken {
			p := store.PutToken{Name: name, Hash: store.TokenHash{hash}, Role: store.RoleAdmin, Actor: "ann"}
			if change != nil {
				change(&p)
			}
			return &PutToken{PutToken: p}
		}
		first := func(p *store.PutToken) { p.First = true }
		k.must(put("root", 1, first))
		k.must(put("root", 1, first)) // the answer was lost
		k.refuses(put("other", 2, first), store.ErrExists)
		k.refuses(put("root", 3, nil), store.ErrExists)
		k.refuses(put("twin", 1, nil), store.ErrExists)
		k.must(put("root", 3, func(p *store.PutToken) { p.Replace = true }))
		k.refuses(&DeleteToken{"root", "ann"}, store.ErrLastAdmin)
		k.refuses(&DeleteToken{"nobody", "ann"}, store.ErrNotFound)
		k.must(put("viewer", 4, func(p *store.PutToken) { p.Role, p.Lasts = store.RoleViewer, time.Hour }))
		if got := k.tokens["viewer"].Expires; !got.Equal(k.now.Add(time.Hour)) {
			k.Errorf("it expires at %s", got)
		}
		k.must(&DeleteToken{"viewer", "ann"})
		session := func(p *store.PutToken) { p.Role, p.Lasts = store.RoleSession, time.Minute }
		k.must(put("s", 5, session))
		k.pass(time.Second)
		k.must(put("s", 5, func(p *store.PutToken) { session(p); p.Extend = true }))
		if got := k.tokens["s"].Expires; !got.Equal(k.now.Add(time.Minute)) {
			k.Errorf("extended, it expires at %s", got)
		}
		k.refuses(put("gone", 6, func(p *store.PutToken) { session(p); p.Extend = true }), store.ErrNotFound)
		for i := len(k.tokens); i < store.TokensMax+1; i++ {
			name := fmt.Sprint("t", i)
			k.tokens[name] = store.Token{Name: name, Hash: store.TokenHash{9, byte(i), byte(i >> 8)}, Role: store.RoleViewer}
		}
		k.refuses(put("more", 7, nil), store.ErrLimit)
		equal(k, "audit", strings.Join(k.audit, "; "), "token.create root; token.replace root; token.create viewer; token.revoke viewer")
	}},
	{"a note is compared and written with the audit", func(k *book) {
		note := func(version int64, text string) *PutNote {
			return &PutNote{store.AuditedNote{Note: store.Note{Name: "x", Version: version, Text: []byte(text)}, Audit: store.AuditRecord{Actor: "ann", Action: "secret.change", Object: "x"}}}
		}
		k.must(note(0, "1"))
		k.refuses(note(0, "2"), store.ErrConflict)
		k.must(note(1, "2"))
		equal(k, "text", string(k.notes["x"].Text), "2")
		equal(k, "audit", len(k.audit), 2)
		k.must(&Note{Actor: "ann", Action: "store.copy", Object: "x"})
		equal(k, "audit", len(k.audit), 3)
	}},
}

var memberDecisions = []decided{
	{"a session is joined once, renewed and ended", func(k *book) {
		n := k.join("n")
		k.must(&Join{k.sessions[n]})
		k.pass(time.Second)
		k.must(&Renewal{Session: n, Load: store.Load{Running: 3}})
		equal(k, "load", k.sessions[n].Load.Running, 3)
		if err := k.do(&Join{}); err == nil {
			k.Error("a session without an id has joined")
		}
		again := k.sessions[n]
		again.Version = "2"
		k.must(&Join{again})
		equal(k, "version", k.sessions[n].Version, "2")
		k.must(&Leave{n})
		equal(k, "leaving", k.sessions[n].Leaving, true)
		k.refuses(&Join{again}, store.ErrSessionOver)
		k.must(&End{n})
		k.refuses(&Renewal{Session: job.ID{77}}, store.ErrSessionOver)
		k.refuses(&Leave{job.ID{77}}, store.ErrSessionOver)
	}},
	{"a session with something running does not end, and its ready runs are handed on", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {overlap: allow}")
		run, ready := k.trigger(a, n), k.trigger(a, n)
		k.claim(n, run, store.Started)
		k.must(&Leave{n})
		equal(k, "session of the ready run", k.runs[ready.Run].Session, job.ID{})
		k.refuses(&End{n}, store.ErrConflict)
		k.finish(run, job.OutcomeSucceeded, true)
		k.must(&End{n})
	}},
	{"a node that died leaves its runs to its successor at once", func(k *book) {
		old := k.join("n")
		a := k.put("name: a\npolicy: {retry: {attempts: 1, backoff: 0s, on: [lost]}}")
		run := k.trigger(a, old)
		k.claim(old, run, store.Started)
		next := k.join("n")
		equal(k, "predecessors", fmt.Sprint(k.sessions[next].Predecessors), fmt.Sprint([]job.ID{old}))
		k.must(&Reap{Session: next, Attempts: []store.Attempt{run}})
		k.ended(run.Run, "lost", "")
		k.see(a, "ready 2")
		k.refuses(&Renewal{Session: old}, store.ErrSessionOver)
		k.claim(next, store.Attempt{Job: a, Run: run.Run, Number: 2, Token: k.id()}, store.Started)
		k.join("n") // the first session, of which nothing is left, is none of its predecessors
	}},
	{"a drained node takes no runs until that is undone", func(k *book) {
		n := k.join("n")
		a := k.put("name: a")
		run := k.trigger(a, n)
		drain := func(undo bool) *DrainNode {
			return &DrainNode{store.DrainNode{Node: "n", Undo: undo, Reason: "disk", Actor: "ann"}}
		}
		k.must(drain(false))
		k.must(drain(false))
		equal(k, "session of the run", k.runs[run.Run].Session, job.ID{})
		k.claim(n, run, store.Taken)
		k.must(drain(true))
		k.claim(n, run, store.Started)
		k.refuses(&DrainNode{store.DrainNode{Node: "nobody"}}, store.ErrNotFound)
		equal(k, "audit", strings.Count(strings.Join(k.audit, " "), "node."), 2)
	}},
}

var runDecisions = []decided{
	{"an occurrence is planned once, and a repeated plan is the same", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a" + minutely)
		j := k.jobs[a]
		due := k.now.Add(time.Second)
		item := store.PlanItem{Job: a, Epoch: 1, From: j.Cursor, To: due, Runs: []store.NewRun{{ID: k.id(), Session: n, Node: "n", Scheduled: due, Due: due}}}
		plan := func(session job.ID, change func(*store.PlanItem), want store.PlanOutcome) {
			k.Helper()
			own := item
			if change != nil {
				change(&own)
			}
			op := &Plan{Session: session, Items: []store.PlanItem{own}}
			if k.must(op); op.Outcomes[0] != want {
				k.Errorf("the plan is answered %d, want %d", op.Outcomes[0], want)
			}
		}
		plan(n, func(i *store.PlanItem) { i.Epoch = 4 }, store.Withdrawn)
		plan(n, func(i *store.PlanItem) { i.Job = job.ID{99} }, store.Withdrawn)
		plan(n, func(i *store.PlanItem) { i.From = i.From.Add(-time.Second) }, store.Moved)
		plan(n, func(i *store.PlanItem) {
			i.To = i.To.Add(time.Hour)
			i.Runs = []store.NewRun{{ID: k.id(), Scheduled: i.To, Due: i.To}}
		}, store.TooFar)
		plan(n, func(i *store.PlanItem) {
			i.Runs = []store.NewRun{{ID: k.id(), Scheduled: due.Add(time.Second), Due: due}}
		}, store.Malformed)
		k.see(a, "")
		plan(n, nil, store.Planned)
		plan(n, nil, store.Planned)
		plan(m, nil, store.Moved)
		k.see(a, "ready")
	}},
	{"what is missed goes to history, and a job of which nothing follows is completed and removed", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\nschedule: {at: ['2026-11-20T12:00:30Z'], delete_after: 5s}")
		k.pass(time.Minute)
		first := at(k.T, "2026-11-20T12:00:30Z")
		span := store.MissedSpan{ID: k.id(), First: first, Last: first, Count: 1, Reason: "no node was there"}
		k.must(&Plan{Session: n, Items: []store.PlanItem{{Job: a, Epoch: 1, From: k.jobs[a].Cursor, To: first, Missed: []store.MissedSpan{span}, Complete: true}}})
		k.ended(span.ID, "missed", "no node was there")
		equal(k, "state", k.jobs[a].State, job.JobCompleted)
		k.must(&Tidy{Jobs: []job.ID{a}})
		equal(k, "deleted", k.jobs[a].Deleted, false)
		k.pass(5 * time.Second)
		k.must(&Tidy{Jobs: []job.ID{a}})
		equal(k, "deleted", k.jobs[a].Deleted, true)
	}},
	{"what is due when it is planned is claimed with it, and again by the same tokens", func(k *book) {
		n := k.join("n")
		for what, c := range map[string]struct {
			text string
			want []store.Verdict
		}{
			"allow": {"policy: {overlap: allow}", []store.Verdict{store.Started, store.Started}},
			"skip":  {"policy: {overlap: skip}", []store.Verdict{store.Started, store.Skipped}},
			"queue": {"policy: {overlap: queue}", []store.Verdict{store.Started, store.Waiting}},
			"flow":  {"run: {flow: {steps: [{name: x, run: 'true'}]}}", []store.Verdict{store.Taken, store.Taken}},
		} {
			a := k.put("name: " + what + "\nschedule: {every: 1s}\n" + c.text)
			from := k.jobs[a].Cursor
			k.pass(2 * time.Second)
			item := store.PlanItem{Job: a, Epoch: 1, From: from, To: k.now}
			for i := range c.want {
				due := k.now.Add(time.Duration(i-len(c.want)+1) * time.Second)
				item.Runs = append(item.Runs, store.NewRun{ID: k.id(), Session: n, Node: "n", Scheduled: due, Due: due, Token: k.id()})
			}
			for range 2 {
				op := &Plan{Session: n, Items: []store.PlanItem{item}}
				k.must(op)
				for i, want := range c.want {
					equal(k, fmt.Sprintf("%s: verdict of claim %d", what, i), op.Claims[i].Verdict, want)
				}
			}
		}
	}},
	{"a plan that claims runs of a broadcast knows the slot of each node", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a\nschedule: {every: 1s}\nplace: {strategy: broadcast}")
		from := k.jobs[a].Cursor
		k.pass(time.Second)
		item := store.PlanItem{Job: a, Epoch: 1, From: from, To: k.now}
		for i, session := range []job.ID{n, m} {
			due := k.now.Add(time.Duration(i-1) * time.Second / 2)
			item.Runs = append(item.Runs, store.NewRun{ID: k.id(), Session: session, Scheduled: due, Due: due, Token: k.id()})
		}
		op := &Plan{Session: n, Items: []store.PlanItem{item}}
		k.must(op)
		equal(k, "outcome", op.Outcomes[0], store.Planned)
		equal(k, "its own", op.Claims[0].Verdict, store.Started)
		equal(k, "that of another node", op.Claims[1].Verdict, store.Taken)
	}},
	{"a run that is made on request is known by its key", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npaused: true" + minutely)
		item := store.TriggerItem{ID: k.id(), Job: a, Kind: job.RunByHand, Key: "once", Session: n, Node: "n", Actor: "ann", Params: map[string]string{}}
		op := &Trigger{Items: []store.TriggerItem{item}}
		k.must(op)
		equal(k, "made", op.Outcomes[0].Made, true)
		item.ID = k.id()
		again := &Trigger{Items: []store.TriggerItem{item}}
		k.must(again)
		equal(k, "made again", again.Outcomes[0].Made, false)
		equal(k, "run", again.Outcomes[0].Run, op.Outcomes[0].Run)
		for what, o := range map[string]store.TriggerItem{
			"of no job":                    {ID: k.id(), Job: job.ID{99}, Kind: job.RunByHand, Key: "x"},
			"a backfill of a paused job":   {ID: k.id(), Job: a, Kind: job.RunBackfill, Key: "y", Scheduled: k.now},
			"at the boot of a paused node": {ID: k.id(), Job: a, Kind: job.RunBoot, Key: "z"},
		} {
			op := &Trigger{Items: []store.TriggerItem{o}}
			if k.must(op); !errors.Is(op.Outcomes[0].Err, store.ErrNotFound) {
				k.Errorf("%s: %v", what, op.Outcomes[0].Err)
			}
		}
		k.put("name: a" + minutely)
		backfill := &Trigger{Items: []store.TriggerItem{{ID: k.id(), Job: a, Kind: job.RunBackfill, Key: "b", Scheduled: k.now.Add(-time.Hour), Overlap: job.OverlapQueue, Actor: "ann"}}}
		k.must(backfill)
		equal(k, "overlap of the backfill", k.runs[backfill.Outcomes[0].Run].Overlap, job.OverlapQueue)
		equal(k, "audit", strings.Count(strings.Join(k.audit, " "), "run.backfill")+strings.Count(strings.Join(k.audit, " "), "job.backfill"), 1)
	}},
	{"a run is placed where it is ready, and not where its node leaves", func(k *book) {
		n, m, leaves := k.join("n"), k.join("m"), k.join("l")
		k.must(&Leave{leaves})
		a := k.put("name: a")
		run := k.trigger(a, job.ID{})
		place := func(session job.ID, attempt int, want job.ID) {
			k.Helper()
			k.must(&Place{[]store.Placement{{Job: a, Run: run.Run, Attempt: attempt, Session: session}, {Job: a, Run: job.ID{99}, Attempt: 1, Session: session}}})
			equal(k, "session", k.runs[run.Run].Session, want)
		}
		place(leaves, 1, job.ID{})
		place(job.ID{99}, 1, job.ID{})
		place(n, 2, job.ID{})
		place(n, 1, n)
		place(m, 1, m)
		k.claim(m, run, store.Started)
		place(n, 1, m)
	}},
	{"an attempt is claimed by one node, and ended by its token", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a")
		run := k.trigger(a, n)
		k.claim(n, run, store.Started)
		k.claim(n, run, store.Started) // the answer was lost
		other := run
		other.Token = k.id()
		k.claim(m, other, store.Taken)
		k.finish(other, job.OutcomeSucceeded, false)
		k.finish(run, job.OutcomeSucceeded, true)
		k.finish(run, job.OutcomeSucceeded, true)
		k.finish(run, job.OutcomeFailed, false) // what came first stays
		k.ended(run.Run, "succeeded", "")
		k.claim(m, other, store.Taken)
		k.refuses(&Claim{Session: job.ID{99}, Attempts: []store.Attempt{run}}, store.ErrSessionOver)
	}},
	{"a failure is retried, later each time, and then recorded", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {retry: {attempts: 2, backoff: 10s, factor: 2, jitter: 0s, exit_codes: [75]}, pause_on_failure: 2}")
		run := k.trigger(a, n)
		for i, wait := range []time.Duration{10 * time.Second, 20 * time.Second} {
			k.claim(n, run, store.Started)
			code := 75
			k.report(store.Result{Attempt: run, Started: k.now, Ended: k.now, Outcome: job.OutcomeFailed, ExitCode: &code}, true)
			r := k.runs[run.Run]
			equal(k, "attempt", r.Attempt, i+2)
			equal(k, "backoff", r.Due.Sub(k.now), wait)
			k.pass(wait)
			run.Number, run.Token = r.Attempt, k.id()
		}
		k.claim(n, run, store.Started)
		k.finish(run, job.OutcomeFailed, true)
		k.ended(run.Run, "failed, failed, failed", "")
		for what, res := range map[string]store.Result{
			"an exit code of which no retry is": {Outcome: job.OutcomeFailed, ExitCode: new(1)},
			"a permanent failure":               {Outcome: job.OutcomeFailed, Permanent: true},
		} {
			k.put("name: " + strings.ReplaceAll(what, " ", "-") + "\npolicy: {retry: {attempts: 2, exit_codes: [75]}}")
			var uid job.ID
			for id, j := range k.jobs {
				if j.Name == strings.ReplaceAll(what, " ", "-") {
					uid = id
				}
			}
			once := k.trigger(uid, n)
			k.claim(n, once, store.Started)
			res.Attempt, res.Started, res.Ended = once, k.now, k.now
			k.report(res, true)
			k.ended(once.Run, "failed", "")
		}
		second := k.trigger(a, n)
		k.claim(n, second, store.Started)
		k.report(store.Result{Attempt: second, Started: k.now, Ended: k.now, Outcome: job.OutcomeFailed, Permanent: true}, true)
		equal(k, "state after two failed runs", k.jobs[a].State, job.JobPaused)
	}},
	{"the end of a run starts those that follow it and its successor", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\nschedule: {after_end: 5s}")
		onFail, onAny := k.put("name: f\nschedule: {on: [{job: a, outcome: failed}]}"), k.put("name: g\nschedule: {on: [{job: a, outcome: finished}]}")
		first := k.inOrder(func(r *store.Run) bool { return r.JobUID == a })[0]
		k.pass(5 * time.Second)
		run := store.Attempt{Job: a, Run: first.ID, Number: 1, Token: k.id()}
		k.claim(n, run, store.Started)
		equal(k, "unplaced", k.finish(run, job.OutcomeSucceeded, true).Unplaced, true)
		k.see(a, "ready")
		k.see(onFail, "")
		k.see(onAny, "ready")
		k.finish(run, job.OutcomeSucceeded, true)
		k.see(onAny, "ready")
		next := k.inOrder(func(r *store.Run) bool { return r.JobUID == a })[0]
		equal(k, "delay", next.Due.Sub(k.now), 5*time.Second)
	}},
	{"what is split is over with its last shard, by the worst of them", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\nschedule: {cron: '* * * * *'}\nplace: {shards: 3}\npolicy: {overlap: allow, pause_on_failure: 1}")
		f, g := k.put("name: f\nschedule: {on: [{job: a, outcome: failed}]}"), k.put("name: g\nschedule: {on: [a]}")
		due := k.now.Add(time.Second)
		var shards []store.Attempt
		item := store.PlanItem{Job: a, Epoch: 1, From: k.jobs[a].Cursor, To: due}
		for i := range 3 {
			id := k.id()
			item.Runs = append(item.Runs, store.NewRun{ID: id, Session: n, Node: "n", Scheduled: due, Due: due, Shard: i, Shards: 3})
			shards = append(shards, store.Attempt{Job: a, Run: id, Number: 1, Token: job.ID{5, byte(i)}})
		}
		k.must(&Plan{Session: n, Items: []store.PlanItem{item}})
		k.pass(time.Second)
		for i, outcome := range []job.Outcome{job.OutcomeFailed, job.OutcomeSucceeded, job.OutcomeSucceeded} {
			k.claim(n, shards[i], store.Started)
			k.see(f, "")
			k.finish(shards[i], outcome, true)
		}
		k.see(f, "ready")
		k.see(g, "")
		equal(k, "state", k.jobs[a].State, job.JobPaused)
	}},
	{"an attempt that surely did not start is given back", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely)
		run := k.plan(a, n)
		k.claim(n, run, store.Started)
		floor := k.jobs[a].Floor
		other := run
		other.Token = k.id()
		k.must(&Release{Session: n, Attempts: []store.Attempt{other}})
		k.see(a, "running")
		k.must(&Release{Session: n, Attempts: []store.Attempt{run}})
		k.must(&Release{Session: n, Attempts: []store.Attempt{run}})
		k.see(a, "ready")
		if !k.jobs[a].Floor.Before(floor) {
			k.Errorf("the floor stays at %s", floor)
		}
		run.Token = k.id()
		k.claim(n, run, store.Started)
		k.must(&Cancel{Runs: []RunRef{{Run: run.Run, Job: a}}, By: "ann", Reason: "enough"})
		k.must(&Release{Session: n, Attempts: []store.Attempt{run}})
		k.ended(run.Run, "cancelled", "by ann: enough")
	}},
	{"a cancel ends what is ready at once, and asks the node of what is running", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {overlap: queue, retry: {attempts: 3}}")
		ready, running, waiting := k.trigger(a, n), k.trigger(a, n), k.trigger(a, n)
		k.claim(n, running, store.Started)
		k.claim(n, waiting, store.Waiting)
		cancel := func(run job.ID) *Cancel {
			return &Cancel{Runs: []RunRef{{Run: run}}, By: "ann", Reason: "enough", Over: true}
		}
		for range 2 {
			k.must(cancel(ready.Run))
			k.must(cancel(waiting.Run))
			k.must(cancel(running.Run))
		}
		k.ended(ready.Run, "cancelled", "by ann: enough")
		k.see(a, "running ending")
		k.finish(running, job.OutcomeCancelled, true)
		k.ended(running.Run, "cancelled", "")
		k.refuses(cancel(job.ID{99}), store.ErrNotFound)
		k.must(&Cancel{Runs: []RunRef{{Run: job.ID{99}, Job: a}}}) // one of many that is over
	}},
	{"what is too late is missed, and what comes early is told to wait", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\nschedule: {cron: '* * * * *'}\npolicy: {late_by: 10s}")
		late := k.plan(a, n)
		k.pass(11 * time.Second)
		k.claim(n, late, store.Late)
		k.ended(late.Run, "missed", "")
		due := k.now.Add(10 * time.Second)
		early := store.NewRun{ID: k.id(), Session: n, Node: "n", Scheduled: due, Due: due}
		k.must(&Plan{Session: n, Items: []store.PlanItem{{Job: a, Epoch: 1, From: k.jobs[a].Cursor, To: due, Planned: k.jobs[a].Planned, Runs: []store.NewRun{early}}}})
		k.claim(n, store.Attempt{Job: a, Run: early.ID, Number: 1, Token: k.id()}, store.Early)
	}},
}

var slotDecisions = []decided{
	{"each policy for overlaps answers a second run in its way", func(k *book) {
		n := k.join("n")
		for policy, c := range map[string]struct {
			want  store.Verdict
			after string // the runs of the job then
		}{
			"overlap: allow":                        {store.Started, "running, running"},
			"overlap: skip":                         {store.Skipped, "running"},
			"overlap: queue":                        {store.Waiting, "running, waiting"},
			"overlap: replace":                      {store.Waiting, "running ending, waiting"},
			"overlap: skip, max_parallel: 2":        {store.Started, "running, running"},
			"overlap: queue, concurrency_key: none": {store.Waiting, "running, waiting"},
		} {
			a := k.put("name: j" + fmt.Sprint(k.ids) + minutely + "\npolicy: {" + policy + "}")
			k.claim(n, k.plan(a, n), store.Started)
			k.claim(n, k.plan(a, n), c.want)
			k.see(a, c.after)
		}
	}},
	{"a queue is bounded, and a slot goes to the run that was due first", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + "\npolicy: {overlap: queue, queue_limit: 2}")
		runs := []store.Attempt{k.plan(a, n), k.plan(a, n), k.plan(a, n), k.plan(a, n)}
		for i, want := range []store.Verdict{store.Started, store.Waiting, store.Waiting, store.Skipped} {
			k.claim(n, runs[i], want)
		}
		k.finish(runs[0], job.OutcomeSucceeded, true)
		k.see(a, "ready, waiting")
		k.claim(n, runs[1], store.Started)
		k.must(&Tidy{Runs: []RunRef{{Run: runs[2].Run, Job: a}}})
		k.see(a, "running, waiting")
	}},
	{"an occurrence that needs the one before waits for its success", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + "\npolicy: {overlap: allow, needs_previous: true}")
		first, second := k.plan(a, n), k.plan(a, n)
		k.claim(n, first, store.Started)
		k.claim(n, second, store.Waiting)
		k.finish(first, job.OutcomeFailed, true)
		k.see(a, "waiting")
		redo := &Trigger{Items: []store.TriggerItem{{ID: k.id(), Job: a, Kind: job.RunBackfill, Key: "again", Scheduled: k.records[0].Run.Scheduled, Session: n, Node: "n", Actor: "ann"}}}
		k.must(redo)
		again := store.Attempt{Job: a, Run: redo.Outcomes[0].Run, Number: 1, Token: k.id()}
		k.claim(n, again, store.Started)
		k.finish(again, job.OutcomeSucceeded, true)
		k.see(a, "ready")
	}},
	{"a job that moves to another pool leaves the slot of the one before", func(k *book) {
		for _, name := range []string{"x", "y"} {
			k.must(&PutDocument{Given: document(job.Document{Pool: &job.Pool{Name: name, Namespace: "default", Slots: job.Slots{Size: 1}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		}
		n := k.join("n")
		a, b := k.put("name: a\npolicy: {overlap: queue, concurrency_key: x}"), k.put("name: b\npolicy: {overlap: queue, concurrency_key: x}")
		held, waits := k.trigger(a, n), k.trigger(b, n)
		k.claim(n, held, store.Started)
		k.claim(n, waits, store.Waiting)
		k.put("name: b\npolicy: {overlap: queue, concurrency_key: y}")
		k.must(&Tidy{Runs: []RunRef{{Run: waits.Run, Job: b}}})
		k.claim(n, waits, store.Started)
	}},
}

// ahead plans a run of a job a second ahead and claims it.
func (k *book) ahead(uid, n job.ID) store.Attempt {
	k.Helper()
	j, due := k.jobs[uid], k.now.Add(time.Second)
	run := store.NewRun{ID: k.id(), Session: n, Node: k.sessions[n].Node, Scheduled: due, Due: due}
	k.must(&Plan{Session: n, Items: []store.PlanItem{{Job: uid, Epoch: j.Epoch, From: j.Cursor, To: due, Planned: j.Planned, Runs: []store.NewRun{run}}}})
	a := store.Attempt{Job: uid, Run: run.ID, Number: 1, Token: k.id()}
	k.claim(n, a, store.Started)
	return a
}

// queued returns a job with a run that holds its slot and one that waits for it, on a node; a job
// that runs everywhere follows it.
func (k *book) queued(n job.ID, policy string) (held, waits store.Attempt, follower job.ID) {
	k.Helper()
	name := "q" + fmt.Sprint(k.ids)
	a := k.put("name: " + name + minutely + "\npolicy: {overlap: queue, " + policy + "}")
	follower = k.put("name: follows-" + name + "\nschedule: {on: [{job: " + name + ", outcome: finished}]}\nplace: {strategy: broadcast}")
	held, waits = k.plan(a, n), k.plan(a, n)
	k.claim(n, held, store.Started)
	k.claim(n, waits, store.Waiting)
	return held, waits, follower
}

var endDecisions = func() (table []decided) {
	for what, end := range map[string]func(k *book, n job.ID, held store.Attempt){
		"a result": func(k *book, _ job.ID, held store.Attempt) { k.finish(held, job.OutcomeSucceeded, true) },
		"a cancel that its node has answered": func(k *book, _ job.ID, held store.Attempt) {
			k.must(&Cancel{Runs: []RunRef{{Run: held.Run, Job: held.Job}}, By: "ann", Over: true})
			k.finish(held, job.OutcomeCancelled, true)
		},
		"a release behind its cancel": func(k *book, n job.ID, held store.Attempt) {
			k.must(&Cancel{Runs: []RunRef{{Run: held.Run, Job: held.Job}}, By: "ann", Over: true})
			k.must(&Release{Session: n, Attempts: []store.Attempt{held}})
		},
		"the loss of its node": func(k *book, n job.ID, held store.Attempt) {
			k.must(&Reap{Session: k.join("n"), Attempts: []store.Attempt{held}})
		},
	} {
		table = append(table, decided{"a slot is handed on by " + what + ", and what follows starts on each node", func(k *book) {
			n := k.join("n")
			k.join("m")
			held, _, follower := k.queued(n, "queue_limit: 5")
			end(k, n, held)
			k.see(held.Job, "ready")
			k.see(follower, map[bool]string{true: "", false: "ready, ready"}[strings.Contains(what, "cancel")])
		}})
	}
	return append(table,
		decided{"a cancel hands on the slot that was given to a run", func(k *book) {
			n := k.join("n")
			held, waits, _ := k.queued(n, "queue_limit: 5")
			third := k.plan(held.Job, n)
			k.claim(n, third, store.Waiting)
			k.finish(held, job.OutcomeSucceeded, true)
			k.see(held.Job, "ready, waiting")
			k.must(&Cancel{Runs: []RunRef{{Run: waits.Run, Job: waits.Job}}, By: "ann", Over: true})
			k.see(held.Job, "ready")
		}},
		decided{"a slot is filled after those who can never have it have ended", func(k *book) {
			n := k.join("n")
			held, waits, _ := k.queued(n, "queue_limit: 5")
			hand := k.trigger(held.Job, n)
			k.claim(n, hand, store.Waiting)
			k.put("name: " + k.jobs[held.Job].Name + "\nschedule: {every: 7m}\npolicy: {overlap: queue, queue_limit: 5}")
			fill := &FillSlots{Slots: []SlotNeed{{Key: held.Job.String(), Job: held.Job}}}
			k.must(fill)
			k.ended(waits.Run, "withdrawn", "")
			k.see(held.Job, "running, waiting")
			k.put("name: " + k.jobs[held.Job].Name + "\nschedule: {every: 7m}\npolicy: {overlap: queue, queue_limit: 5, max_parallel: 2}")
			k.must(fill)
			k.see(held.Job, "running, ready")
		}},
		decided{"a slot that was given to a run which is too late is handed on", func(k *book) {
			n := k.join("n")
			held, waits, _ := k.queued(n, "late_by: 10s, queue_limit: 5")
			k.finish(held, job.OutcomeSucceeded, true)
			k.pass(9 * time.Second)
			next := k.plan(held.Job, n)
			k.claim(n, next, store.Waiting)
			k.pass(2 * time.Second)
			k.must(&Tidy{Runs: []RunRef{{Run: waits.Run, Job: held.Job}}})
			k.ended(waits.Run, "missed", "")
			k.see(held.Job, "ready")
		}},
		decided{"a plan that misses an occurrence starts what follows it", func(k *book) {
			n := k.join("n")
			a := k.put("name: a\nschedule: {every: 1s}")
			f := k.put("name: f\nschedule: {on: [{job: a, outcome: finished}]}")
			from := k.jobs[a].Cursor
			k.pass(time.Second)
			item := store.PlanItem{Job: a, Epoch: 1, From: from, To: k.now, Runs: []store.NewRun{{ID: k.id(), Session: n, Node: "n", Scheduled: k.now, Due: k.now, Token: k.id()}}}
			busy := k.trigger(a, n)
			k.claim(n, busy, store.Started)
			op := &Plan{Session: n, Items: []store.PlanItem{item}}
			k.must(op)
			equal(k, "verdict", op.Claims[0].Verdict, store.Skipped)
			k.see(f, "")
		}},
	)
}()

var lossDecisions = []decided{
	{"an attempt is lost with its silent node, and a late result replaces that", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a\npolicy: {overlap: allow, lost_after: 20s}")
		run := k.trigger(a, n)
		k.claim(n, run, store.Started)
		reap := &Reap{Session: m, Attempts: []store.Attempt{run}}
		k.pass(5 * time.Second)
		k.must(&Renewal{Session: m})
		k.must(reap)
		k.see(a, "running")
		for range 6 {
			k.pass(5 * time.Second)
			k.must(&Renewal{Session: m})
		}
		k.must(reap)
		k.must(reap)
		k.see(a, "")
		k.ended(run.Run, "lost", "")
		k.finish(run, job.OutcomeSucceeded, true)
		k.ended(run.Run, "succeeded", "")
		equal(k, "replaces", k.records[0].Replaces, true)
	}},
	{"a late result of a lost attempt that was retried is kept in words", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {retry: {attempts: 1, backoff: 0s, on: [lost]}}")
		run := k.trigger(a, n)
		k.claim(n, run, store.Started)
		next := k.join("n")
		k.must(&Reap{Session: next, Attempts: []store.Attempt{run}})
		k.finish(run, job.OutcomeSucceeded, false)
		k.ended(run.Run, "lost", "succeeded")
		again := store.Attempt{Job: a, Run: run.Run, Number: 2, Token: k.id()}
		k.claim(next, again, store.Started)
		k.finish(again, job.OutcomeSucceeded, true)
	}},
	{"a result whose record history has is decided by that", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {overlap: allow}")
		run := k.trigger(a, n)
		k.claim(n, run, store.Started)
		k.must(&Reap{Session: k.join("n"), Attempts: []store.Attempt{run}})
		past := k.records
		k.records = nil // they were shipped
		op := &Finish{Results: []store.Result{{Attempt: run, Started: k.now, Ended: k.now, Outcome: job.OutcomeSucceeded}}, Past: past}
		k.must(op)
		equal(k, "accepted", op.Outcomes[0].Accepted, true)
		equal(k, "replaces", len(k.records) == 1 && k.records[0].Replaces, true)
	}},
	{"expectations that are not met are told once, and marked", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {expect: {start_within: 5s, finish_within: 20s, duration_below: 10s}}")
		run := k.trigger(a, n)
		alert := func(want ...string) {
			k.Helper()
			op := &Alert{Runs: []RunRef{{Run: run.Run, Job: a}, {Run: job.ID{99}, Job: a}}}
			k.must(op)
			var got []string
			for _, x := range op.Alerts {
				got = append(got, x.Unmet...)
			}
			if len(got) != len(want) {
				k.Fatalf("told are %q, want %q", got, want)
			}
			for i := range want {
				if !strings.Contains(got[i], want[i]) {
					k.Errorf("told is %q, want %q", got[i], want[i])
				}
			}
		}
		alert()
		k.pass(6 * time.Second)
		alert("it has not started 5s after it was due")
		alert()
		k.claim(n, run, store.Started)
		k.pass(11 * time.Second)
		alert("attempt 1 has not ended 10s after it started")
		k.pass(4 * time.Second)
		alert("it has not ended 20s after it was due")
		k.finish(run, job.OutcomeSucceeded, true)
		if unmet := k.records[0].Unmet; !strings.Contains(unmet, "5s") || !strings.Contains(unmet, "20s") {
			k.Errorf("marked is %q", unmet)
		}
	}},
}

// handed returns an attempt that was handed over, and its handover.
func (k *book) handed(n job.ID, policy string) (store.Attempt, store.Handover) {
	k.Helper()
	a := k.put("name: h" + fmt.Sprint(k.ids) + "\npolicy: {" + policy + "}")
	run := k.trigger(a, n)
	k.claim(n, run, store.Started)
	h := store.Handover{Number: k.numbers(1, 0), Attempt: run, Kind: "stub", To: "x", Timeout: time.Minute}
	k.handOver(n, h, store.Handed)
	return run, k.handovers[h.Number]
}

func (k *book) numbers(n int, from int64) int64 {
	k.Helper()
	op := &Numbers{N: n, From: from}
	k.must(op)
	return op.First
}

func (k *book) handOver(session job.ID, h store.Handover, want store.HandedOver) {
	k.Helper()
	op := &HandOver{Session: session, List: []store.Handover{h}}
	if k.must(op); op.Outcomes[0] != want {
		k.Errorf("handover %d is answered %d, want %d", h.Number, op.Outcomes[0], want)
	}
}

func (k *book) asks(want int, list ...store.Handover) []store.Outstanding {
	k.Helper()
	op := &ToAsk{Given: list}
	if k.must(op); len(op.Taken) != want {
		k.Errorf("%d are to be asked after, want %d", len(op.Taken), want)
	}
	return op.Taken
}

var handoverDecisions = []decided{
	{"numbers grow and leave out what they are told to", func(k *book) {
		equal(k, "first", k.numbers(10, 0), 1)
		equal(k, "next", k.numbers(1, 5), 11)
		equal(k, "raised", k.numbers(1, 1000), 1000)
		equal(k, "behind", k.numbers(1, 0), 1001)
	}},
	{"an attempt is handed over once, to one address after the other, and belongs to no node", func(k *book) {
		n, m := k.join("n"), k.join("m")
		run, h := k.handed(n, "lost_after: 20s")
		k.handOver(n, h, store.Handed) // the answer was lost
		equal(k, "session", k.runs[run.Run].Session, job.ID{})
		other := h
		other.Attempt = k.trigger(run.Job, n)
		k.handOver(n, other, store.HandNumbers)
		next := h
		next.Number = k.numbers(1, 0)
		k.handOver(m, next, store.Handed)
		equal(k, "the earlier one has ended", !k.handovers[h.Number].Ended.IsZero(), true)
		k.handOver(n, h, store.HandGone)
		k.pass(time.Hour)
		k.must(&Renewal{Session: m})
		k.must(&Reap{Session: m, Attempts: []store.Attempt{run}})
		k.claim(m, store.Attempt{Job: run.Job, Run: run.Run, Number: 1, Token: k.id()}, store.Taken)
		k.finish(run, job.OutcomeSucceeded, true)
		k.handOver(m, next, store.HandGone)
		k.ended(run.Run, "succeeded", "")
	}},
	{"a handover is asked after by one caller, and ends with its attempt", func(k *book) {
		n := k.join("n")
		run, h := k.handed(n, "overlap: allow")
		k.asks(0, h)
		k.pass(store.AskAgain)
		taken := k.asks(1, h)
		k.asks(0, h)
		k.must(&Asked{[]store.Answer{{Handover: taken[0].Handover, Seen: true, Next: time.Minute}}})
		equal(k, "next", k.handovers[h.Number].Ask.Sub(k.now), time.Minute)
		equal(k, "seen", k.handovers[h.Number].Seen.Equal(k.now), true)
		k.must(&Cancel{Runs: []RunRef{{Run: run.Run, Job: run.Job}}, By: "ann"})
		taken = k.asks(1, h)
		equal(k, "ending", taken[0].Run.CancelBy, "ann")
		next := h
		next.Number = k.numbers(1, 0)
		k.handOver(n, next, store.HandEnding)
		k.finish(run, job.OutcomeCancelled, true)
		k.must(&Asked{[]store.Answer{{Handover: taken[0].Handover, Next: time.Minute}}})
		equal(k, "over", !k.handovers[h.Number].Ended.IsZero(), true)
		k.asks(0, h)
		second, other := k.handed(n, "overlap: allow")
		k.finish(second, job.OutcomeFailed, true)
		k.asks(0, other)
		equal(k, "over without an answer", !k.handovers[other.Number].Ended.IsZero(), true)
		k.must(&Asked{[]store.Answer{{Handover: store.Handover{Number: 999, Attempt: second}}}})
	}},
	{"an attempt that is handed over twice in one call has the last address", func(k *book) {
		n := k.join("n")
		run := k.trigger(k.put("name: twice"), n)
		k.claim(n, run, store.Started)
		first := k.numbers(2, 0)
		op := &HandOver{Session: n}
		for i := range int64(2) {
			op.List = append(op.List, store.Handover{Number: first + i, Attempt: run, Kind: "stub", To: "x"})
		}
		k.must(op)
		equal(k, "outcomes", fmt.Sprint(op.Outcomes), fmt.Sprint([]store.HandedOver{store.Handed, store.Handed}))
		equal(k, "the first has ended", k.handovers[first].Ended.IsZero(), false)
		equal(k, "the second has ended", k.handovers[first+1].Ended.IsZero(), true)
	}},
	{"the retry of a handed-over attempt is placed again", func(k *book) {
		n := k.join("n")
		run, _ := k.handed(n, "retry: {attempts: 1, backoff: 0s}")
		k.report(store.Result{Attempt: run, Started: k.now, Ended: k.now, Outcome: job.OutcomeFailed, Retryable: true}, true)
		k.see(run.Job, "ready 2")
		equal(k, "session", k.runs[run.Run].Session, job.ID{})
	}},
}

// steps returns the steps of a flow that are open, by name.
func (k *book) steps(flow job.ID) map[string]store.Attempt {
	found := map[string]store.Attempt{}
	for _, r := range k.runs {
		if _, name, _ := strings.Cut(r.Key, "/"); r.Parent == flow && name != "" {
			found[name] = store.Attempt{Job: r.JobUID, Run: r.ID, Number: r.Attempt, Token: job.ID{0x55, r.ID[0], byte(r.Attempt)}}
		}
	}
	return found
}

func (k *book) open(flow job.ID, want string) {
	k.Helper()
	if got := strings.Join(slices.Sorted(maps.Keys(k.steps(flow))), " "); got != want {
		k.Errorf("open are the steps %q, want %q", got, want)
	}
}

// step claims and ends a step.
func (k *book) step(n, flow job.ID, name string, outcome job.Outcome, value string) store.ClaimOutcome {
	k.Helper()
	a := k.steps(flow)[name]
	out := k.claim(n, a, store.Started)
	k.report(store.Result{Attempt: a, Started: k.now, Ended: k.now, Outcome: outcome, Value: []byte(value)}, true)
	return out
}

// flow begins a flow of steps.
func (k *book) flow(n job.ID, steps string) (uid, run job.ID) {
	k.Helper()
	uid = k.put("name: flow" + fmt.Sprint(k.ids) + minutely + "\nrun: {flow: {" + steps + "}}")
	a := k.trigger(uid, n)
	k.claim(n, a, store.Taken)
	return uid, a.Run
}

var flowDecisions = []decided{
	{"steps run in their order, with results and items", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: a, run: 'true'}, {name: b, needs: a, for_each: '{{ .Steps.a.Result.list }}', max_parallel: 2, run: 'true'}, {name: c, needs: b, if: '{{ .Steps.a.Result.no }}', run: 'true'}, {name: d, needs: c, run: 'true'}]")
		k.open(f, "a")
		k.step(n, f, "a", job.OutcomeSucceeded, `{"list": [1, 2, 3], "no": false}`)
		k.open(f, "b/0 b/1")
		equal(k, "item", string(k.step(n, f, "b/1", job.OutcomeSucceeded, "").Item), "2")
		k.open(f, "b/0 b/2")
		k.step(n, f, "b/0", job.OutcomeSucceeded, "")
		k.step(n, f, "b/2", job.OutcomeSucceeded, "")
		k.open(f, "d")
		k.step(n, f, "d", job.OutcomeSucceeded, "")
		k.ended(f, "succeeded", "")
	}},
	{"a failed step blocks what needs it, and finally runs all the same", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: a, run: 'true', retry: {attempts: 1, backoff: 0s}}, {name: b, needs: a, run: 'true'}, {name: c, needs: a, when: failed, run: 'true'}], finally: [{name: z, run: 'true'}]")
		a := k.steps(f)["a"]
		k.claim(n, a, store.Started)
		k.report(store.Result{Attempt: a, Started: k.now, Ended: k.now, Outcome: job.OutcomeFailed, Retryable: true}, true)
		k.open(f, "a") // its retry
		k.step(n, f, "a", job.OutcomeFailed, "")
		k.open(f, "c")
		k.step(n, f, "c", job.OutcomeSucceeded, "")
		k.open(f, "z")
		k.step(n, f, "z", job.OutcomeSucceeded, "")
		k.ended(f, "failed", "step a has failed")
	}},
	{"approvals, signals and times are waited for, and answered once", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: ok, wait: {approval: 'go?'}}, {name: go, needs: ok, wait: {signal: start}}, {name: later, needs: go, wait: {for: 10s}}]")
		answer := func(a store.FlowAnswer) *AnswerFlow {
			a.Run, a.By = f, "ann"
			return &AnswerFlow{a}
		}
		k.refuses(answer(store.FlowAnswer{Signal: "other"}), store.ErrConflict)
		k.refuses(answer(store.FlowAnswer{Step: "none"}), store.ErrConflict)
		k.refuses(answer(store.FlowAnswer{Step: "go"}), store.ErrConflict)
		k.refuses(&AnswerFlow{store.FlowAnswer{Run: job.ID{99}, Step: "ok"}}, store.ErrNotFound)
		k.must(answer(store.FlowAnswer{Step: "ok", Note: "fine"}))
		k.refuses(answer(store.FlowAnswer{Step: "ok"}), store.ErrConflict)
		k.must(answer(store.FlowAnswer{Signal: "start", Data: []byte(`{"x": 1}`)}))
		var timer store.Run
		for _, r := range k.runs {
			if r.ID != f {
				timer = r
			}
		}
		equal(k, "timer", timer.Due.Sub(k.now), 10*time.Second)
		k.pass(10 * time.Second)
		for _, r := range k.inOrder(func(*store.Run) bool { return true }) {
			k.must(&Tidy{Runs: []RunRef{{Run: r.ID, Job: r.JobUID}}})
			if r.ID != f {
				op := &Claim{Session: n, Attempts: []store.Attempt{{Job: r.JobUID, Run: r.ID, Number: r.Attempt, Token: k.id()}}}
				k.must(op)
			}
		}
		k.ended(f, "succeeded", "")
		equal(k, "audit", strings.Count(strings.Join(k.audit, " "), "run.approve")+strings.Count(strings.Join(k.audit, " "), "run.signal"), 2)
	}},
	{"a rejected approval fails the flow", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: ok, wait: {approval: 'go?'}}]")
		k.must(&AnswerFlow{store.FlowAnswer{Run: f, Step: "ok", Reject: true, By: "ann", Note: "no"}})
		k.ended(f, "failed", "ok")
	}},
	{"a flow that is cancelled ends its steps", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: a, run: 'true'}, {name: b, run: 'true'}]")
		a := k.steps(f)["a"]
		k.claim(n, a, store.Started)
		k.must(&Cancel{Runs: []RunRef{{Run: f}}, By: "ann", Reason: "enough", Over: true})
		k.open(f, "a")
		k.finish(a, job.OutcomeCancelled, true)
		k.ended(f, "cancelled", "by ann: enough")
	}},
	{"a step that starts another job ends with its run", func(k *book) {
		n := k.join("n")
		other := k.put("name: other")
		_, f := k.flow(n, "steps: [{name: before, run: 'true'}, {name: sub, needs: before, run: {job: other}}, {name: after, needs: sub, run: 'true'}]")
		k.step(n, f, "before", job.OutcomeSucceeded, "")
		k.see(other, "ready")
		r := k.inOrder(func(r *store.Run) bool { return r.JobUID == other })[0]
		a := store.Attempt{Job: other, Run: r.ID, Number: 1, Token: k.id()}
		k.claim(n, a, store.Started)
		k.finish(a, job.OutcomeSucceeded, true)
		k.open(f, "after")
		k.step(n, f, "after", job.OutcomeSucceeded, "")
		k.ended(f, "succeeded", "")
		k.flow(n, "steps: [{name: sub, run: {job: other}}]")
		k.see(other, "ready")
		_, gone := k.flow(n, "steps: [{name: sub, run: {job: nobody}}]")
		k.ended(gone, "failed", "sub")
	}},
	{"a step is lost with its node and follows its own retry", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: a, run: 'true', retry: {attempts: 1, backoff: 0s}}]")
		a := k.steps(f)["a"]
		k.claim(n, a, store.Started)
		next := k.join("n")
		k.must(&Reap{Session: next, Attempts: []store.Attempt{a}})
		k.open(f, "a")
		k.step(next, f, "a", job.OutcomeSucceeded, "")
		k.ended(f, "succeeded", "")
	}},
	{"a flow that is kept together stays on the node of its first step", func(k *book) {
		n, m := k.join("n"), k.join("m")
		_, f := k.flow(n, "keep_together: true, steps: [{name: a, run: 'true'}, {name: b, needs: a, run: 'true'}]")
		k.step(n, f, "a", job.OutcomeSucceeded, "")
		k.claim(m, k.steps(f)["b"], store.Taken)
		k.step(n, f, "b", job.OutcomeSucceeded, "")
		k.ended(f, "succeeded", "")
	}},
}

const reportedJob = "\nrun: {external: {grace: 5m}}"

func (k *book) says(r store.Report) store.ReportOutcome {
	k.Helper()
	if r.ID.IsZero() {
		r.ID = k.id()
	}
	op := &Report{Report: r}
	k.must(op)
	return op.Outcome
}

var reportDecisions = []decided{
	{"a report is about the run that waits for it, else about one of its own", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + reportedJob)
		f := k.put("name: f\nschedule: {on: [a]}\nplace: {strategy: broadcast}")
		run := k.plan(a, n)
		k.see(a, "waiting")
		got := k.says(store.Report{Job: a, Key: "k", Result: store.Result{Outcome: job.OutcomeSucceeded, Output: []store.OutputChunk{{Data: []byte("x")}}}})
		equal(k, "run", got.Run, run.Run)
		k.ended(run.Run, "succeeded", "")
		k.see(f, "ready")
		equal(k, "the same report", k.says(store.Report{Job: a, Key: "k", Result: store.Result{Outcome: job.OutcomeFailed}}).Run, run.Run)
		own := k.says(store.Report{Job: a, Result: store.Result{Outcome: job.OutcomeFailed, Reason: "x"}})
		k.ended(own.Run, "failed", "x")
	}},
	{"a reported start awaits its end, with a lock alone", func(k *book) {
		a := k.put("name: a" + minutely + reportedJob)
		first := k.says(store.Report{Job: a, Starts: true, Lock: true, Key: "s"})
		equal(k, "until", first.Until.Sub(k.now), 5*time.Minute)
		k.refuses(&Report{Report: store.Report{Job: a, ID: k.id(), Starts: true, Lock: true}}, store.ErrExists)
		k.pass(time.Minute)
		equal(k, "renewed", k.says(store.Report{Job: a, Starts: true, Run: first.Run}).Until.Sub(k.now), 5*time.Minute)
		equal(k, "known by its key", k.says(store.Report{Job: a, Starts: true, Key: "s"}).Until.Sub(k.now), 5*time.Minute)
		got := k.says(store.Report{Job: a, Run: first.Run, Result: store.Result{Outcome: job.OutcomeSucceeded}})
		equal(k, "attempt", got.Attempt, 1)
		equal(k, "renewed after its end", k.says(store.Report{Job: a, Starts: true, Run: first.Run}).Until.IsZero(), true)
	}},
	{"a report that does not come leaves the occurrence missed, an end that does not come timed out", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + reportedJob)
		missed := k.plan(a, n)
		k.pass(5*time.Minute + time.Second)
		k.must(&Tidy{Runs: []RunRef{{Run: missed.Run, Job: a}}})
		k.ended(missed.Run, "missed", "no report came")
		started := k.says(store.Report{Job: a, Starts: true})
		k.pass(5*time.Minute + time.Second)
		k.must(&Tidy{Runs: []RunRef{{Run: started.Run, Job: a}}})
		k.ended(started.Run, "timed_out", "its start was reported")
	}},
	{"a report on what Belfry starts, or what is gone, is refused", func(k *book) {
		a := k.put("name: a")
		k.refuses(&Report{Report: store.Report{Job: a, ID: k.id()}}, store.ErrConflict)
		k.refuses(&Report{Report: store.Report{Job: job.ID{99}, ID: k.id()}}, store.ErrNotFound)
	}},
}

var upkeepDecisions = []decided{
	{"what one store has another one adopts, and then nothing is left to change", func(k *book) {
		n := k.join("n")
		k.must(&PutDocument{Given: document(job.Document{Pool: &job.Pool{Name: "db", Namespace: "default", Slots: job.Slots{Size: 1}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		k.must(&PutDocument{Given: document(job.Document{Calendar: &job.Calendar{Name: "off", Namespace: "default", Days: job.Days{Include: []string{"2026-12-25"}}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		k.must(&PutToken{PutToken: store.PutToken{Name: "t", Hash: store.TokenHash{1}, Role: store.RoleAdmin}})
		k.must(&DrainNode{store.DrainNode{Node: "n", Actor: "ann"}})
		k.must(&DrainNode{store.DrainNode{Node: "n", Actor: "ann", Undo: true}})
		a := k.put("name: a\nschedule: {cron: '* * * * *', except: [off]}")
		ready := k.plan(a, n)
		run, h := k.handed(n, "overlap: allow")
		survey := &Survey{Jobs: []job.ID{a, run.Job, {99}}, All: true}
		k.must(survey)
		equal(k, "cells", len(survey.Cells), 2)
		to := newBook(k.T, k.tried)
		to.now = k.now
		adopt := func(kept *Kept) *Adopt {
			op := &Adopt{Kept: kept, Audit: []store.AuditRecord{{Actor: "ann", Action: "store.copy", Object: "x"}}, Keys: []Key{{Identity: Identity{Job: a, Key: "k"}, Run: ready.Run}}}
			for _, c := range survey.Cells {
				op.Cells = append(op.Cells, Adopted{Cell: c, Document: c.Job.Document})
			}
			return op
		}
		to.must(adopt(&survey.Kept))
		for range 3 { // a calendar must be there before its job is read again
			to.must(adopt(&survey.Kept))
		}
		last := adopt(&survey.Kept)
		to.must(last)
		equal(to, "changes of the last", last.Changed, 0)
		to.see(a, "ready")
		to.see(run.Job, "running")
		equal(to, "handover", to.handovers[h.Number].Number, h.Number)
		equal(to, "documents", to.documents.Len(), 2)
		to.claim(n, ready, store.Started)
		to.finish(run, job.OutcomeSucceeded, true)
		changed := adopt(nil)
		to.must(changed) // and back to what it was
		to.see(a, "ready")
		ahead := to.jobs[a]
		ahead.Cursor = ahead.Cursor.Add(time.Hour)
		to.jobs[a] = ahead
		var further AheadError
		if err := to.do(adopt(nil)); !errors.As(err, &further) {
			to.Errorf("got %v", err)
		}
		to.must(&DeleteAdopted{Job: a})
		to.must(&DeleteAdopted{Job: a})
		to.see(a, "")
		equal(to, "deleted", to.jobs[a].Deleted, true)
	}},
	{"damage is found and mended in one step", func(k *book) {
		n := k.join("n")
		k.must(&PutDocument{Given: document(job.Document{Calendar: &job.Calendar{Name: "off", Namespace: "default", Days: job.Days{Include: []string{"2026-12-25"}}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		b := k.put("name: b")
		a := k.put("name: a\nschedule: {cron: '* * * * *', except: [off]}\npolicy: {overlap: queue}")
		c := k.put("name: c\nschedule: {on: [b]}")
		held, waits, twice := k.plan(a, n), k.plan(a, n), k.plan(a, n)
		k.claim(n, held, store.Started)
		k.claim(n, waits, store.Waiting)
		inspect := func(fix bool) *Inspect {
			return &Inspect{Jobs: []job.ID{a, b, c}, Runs: []RunRef{{Run: job.ID{0xdd}}}, Fix: fix}
		}
		found := func(want ...string) {
			k.Helper()
			for _, fix := range []bool{false, true} {
				op := inspect(fix)
				k.must(op)
				var got []string
				for _, d := range op.Found {
					got = append(got, d.Check)
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					k.Errorf("found (mending: %t) is %v, want %v; %+v", fix, got, want, op.Found)
				}
			}
			again := inspect(false)
			if k.must(again); len(again.Found) > 0 {
				k.Errorf("found after mending is %+v", again.Found)
			}
		}
		found()
		// A run whose job does not exist, a slot that was freed and not handed on, and an occurrence
		// that is there twice.
		stray := k.runs[twice.Run]
		stray.ID, stray.JobUID, stray.Name = job.ID{0xdd}, job.ID{0xde}, "nobody"
		k.runs[stray.ID] = stray
		delete(k.runs, held.Run)
		double := k.runs[twice.Run]
		double.ID = job.ID{0xdf}
		k.runs[double.ID] = double
		found(CheckRuns, CheckRuns, CheckSlots)
		// A run that history says has ended, and a cursor that would plan an occurrence again.
		k.records = append(k.records, store.Record{Run: k.runs[twice.Run].Run, Final: true, Attempt: job.Attempt{Run: twice.Run, Number: 1, Outcome: job.OutcomeSucceeded, Reason: "x"}})
		behind := k.jobs[a]
		behind.Cursor = behind.Cursor.Add(-time.Minute)
		k.jobs[a] = behind
		k.claim(n, waits, store.Started)
		found(CheckCursors, CheckRuns)
		far := k.jobs[a]
		far.Cursor = k.now.Add(48 * time.Hour)
		k.jobs[a] = far
		found(CheckCursors)
		// Planners have another schedule.
		stale := k.jobs[a]
		stale.Document = stale.Document.with(func(d *Document) { d.Timing = "{}" })
		k.jobs[a] = stale
		version := stale.Version
		found(CheckFeed)
		equal(k, "version", k.jobs[a].Version, version+1)
		k.must(&Rewrite{Jobs: []job.ID{a, {99}}})
		equal(k, "version", k.jobs[a].Version, version+2)
	}},
	{"other defaults of the server reach what depends on them", func(k *book) {
		n := k.join("n")
		k.must(&PutDocument{Given: document(job.Document{Calendar: &job.Calendar{Name: "off", Namespace: "default", Days: job.Days{Include: []string{"2026-12-25"}}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		a := k.put("name: a\nschedule: {cron: '0 12 * * *', except: [off]}\npolicy: {overlap: queue}")
		limited := k.put("name: b\nschedule: {cron: '0 12 * * *', max_runs: 5}")
		k.ahead(limited, n)
		ahead := k.put("name: c\nschedule: {cron: '0 12 * * *'}")
		k.ahead(ahead, n)
		run := k.plan(a, n)
		j := k.jobs[a]
		filled := j.Document.Definition.WithDefaults(job.Defaults{Timezone: "Asia/Tokyo"})
		j.Document = NewDocument(j.Document.Definition, filled)
		j.Document.Timing = k.jobs[a].Document.Timing
		j.Policy = j.Document.Policy
		k.jobs[a] = j
		for _, uid := range []job.ID{limited, ahead} {
			j = k.jobs[uid]
			j.Document = NewDocument(j.Document.Definition, j.Document.Definition.WithDefaults(job.Defaults{Timezone: "Asia/Tokyo"}))
			j.Document.Timing, j.Policy = k.jobs[uid].Document.Timing, j.Document.Policy
			k.jobs[uid] = j
		}
		k.must(&Refit{Jobs: []job.ID{a, limited, ahead, {99}}})
		equal(k, "epoch", k.jobs[a].Epoch, 2)
		k.claim(n, run, store.Gone)
		k.must(&Refit{Jobs: []job.ID{a}})
		equal(k, "epoch after the same defaults", k.jobs[a].Epoch, 2)
	}},
	{"a store that was restored begins new epochs and ends what may have run elsewhere", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + "\npolicy: {overlap: queue, retry: {attempts: 3}}")
		running, waiting := k.plan(a, n), k.plan(a, n)
		k.claim(n, running, store.Started)
		k.claim(n, waiting, store.Waiting)
		b, c := k.put("name: b"+minutely), k.put("name: c\nschedule: {cron: '* * * * *', max_runs: 5}")
		k.ahead(b, n)
		k.ahead(c, n)
		k.must(&Restart{Jobs: []job.ID{a, b, c, {99}}, Runs: []store.Run{k.runs[running.Run], k.runs[waiting.Run]}, By: "ann", Reason: "restored"})
		equal(k, "epoch", k.jobs[a].Epoch, 2)
		k.see(a, "")
		k.ended(running.Run, "cancelled", "by ann: restored")
		k.ended(waiting.Run, "withdrawn", "")
	}},
	{"what belongs to a node that is gone is missed in time", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a" + minutely + "\nplace: {strategy: broadcast}\npolicy: {late_by: 1h, lost_after: 20s}")
		run := k.plan(a, n)
		for range 10 {
			k.pass(5 * time.Second)
			k.must(&Renewal{Session: m})
		}
		k.must(&Tidy{Runs: []RunRef{{Run: run.Run, Job: a}}})
		k.ended(run.Run, "missed", "n")
	}},
	{"a pause that ends gives back what was claimed ahead, and counts max_runs anew", func(k *book) {
		for _, bounded := range []string{"", ", max_runs: 5"} {
			n := k.join("n")
			text := "name: a" + fmt.Sprint(k.ids) + "\nschedule: {every: 1m" + bounded + "}"
			a := k.put(text)
			k.ahead(a, n)
			op := k.puts(text + "\npaused: true")
			op.List[0].Pause = store.Pause{By: "ann", Until: k.now.Add(time.Second / 2)}
			k.must(op)
			k.pass(time.Second / 2)
			k.must(&Tidy{Jobs: []job.ID{a}})
			equal(k, "state", k.jobs[a].State, job.JobActive)
		}
	}},
	{"a step ends no more runs than others can wait for", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + "\npolicy: {overlap: allow}")
		run := k.plan(a, n)
		k.must(&DeleteJob{store.DeleteJob{UID: a, IfVersion: store.AnyVersion}})
		op := &Tidy{}
		for i := range store.MaxBatch + 1 {
			r := k.runs[run.Run]
			r.ID = job.ID{1, byte(i), byte(i >> 8)}
			k.runs[r.ID] = r
			op.Runs = append(op.Runs, RunRef{Run: r.ID, Job: a})
		}
		k.tried = &tried{map[string]bool{}, map[string]bool{}}
		k.must(op)
		equal(k, "more", op.More, true)
		equal(k, "left", len(k.runs), 2)
	}},
}
