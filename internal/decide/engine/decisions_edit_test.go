package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

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
		op.List[0].Pause = store.Pause{By: "ann", Reason: job.Text("repair"), Until: k.now.Add(time.Hour)}
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
	{"a resume catches up what the request says", func(k *book) {
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
		if !strings.Contains(k.jobs[a].EpochWhy.String(), "calendar default/off") {
			k.Errorf("the epoch began because %s", k.jobs[a].EpochWhy)
		}
		drop := &DeleteDocument{Kind: job.KindCalendar, Name: "default/off", IfVersion: store.AnyVersion, Actor: "ann"}
		var named store.NamedError
		if err := k.do(drop); !errors.As(err, &named) || named.Name != "default/a" {
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
		k.must(put("root", 1, first)) // its answer was lost
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
