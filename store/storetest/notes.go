package storetest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// noteTests are about notes and about channels of notifications.
var noteTests = []test{
	{"a note is changed only with its version", func(e *env) {
		first := e.note("a/1", 0, "one “quoted” line\n")
		e.noteRefused(store.Note{Name: "a/1", Text: []byte("again")})
		e.noteRefused(store.Note{Name: "a/1", Version: first + 1, Text: []byte("later")})
		second := e.note("a/1", first, "two")
		if second <= first {
			e.Errorf("version %d follows %d", second, first)
		}
		e.noteRefused(store.Note{Name: "a/1", Version: first})
		equal(e, "notes", e.notes("a/", ""), fmt.Sprintf("a/1=%d:two ", second))
		e.note("a/1", second, "")
		equal(e, "notes after the removal", e.notes("", ""), "")
		e.noteRefused(store.Note{Name: "a/1", Version: second, Text: []byte("gone")})
		e.note("a/1", 0, "made again")
	}},
	{"notes are listed by prefix, in order, behind a name", func(e *env) {
		for _, name := range []string{"b/1", "a/2", "a/1", "a/10", "a", "a~", "b"} {
			e.note(name, 0, name)
		}
		names := func(prefix, after string, limit int) string {
			list, err := e.Notes(e.ctx, prefix, after, limit)
			e.must(err)
			var b strings.Builder
			for _, n := range list {
				b.WriteString(n.Name + " ")
			}
			return b.String()
		}
		equal(e, "all", names("", "", 100), "a a/1 a/10 a/2 a~ b b/1 ")
		equal(e, "of a prefix", names("a/", "", 100), "a/1 a/10 a/2 ")
		equal(e, "the first two", names("a/", "", 2), "a/1 a/10 ")
		equal(e, "behind them", names("a/", "a/10", 2), "a/2 ")
		equal(e, "behind the last", names("a/", "a/2", 2), "")
		equal(e, "that has the name of the prefix", names("b", "", 1), "b ")
	}},
	{"notes that are too large or badly named are refused", func(e *env) {
		for _, n := range []store.Note{
			{Name: ""}, {Name: strings.Repeat("x", 201)}, {Name: "a b", Text: []byte("x")}, {Name: "ä", Text: []byte("x")},
			{Name: "large", Text: make([]byte, store.NoteMax+1)},
		} {
			if _, err := e.PutNote(e.ctx, n); err == nil {
				e.Errorf("note %.20q of %d bytes was taken", n.Name, len(n.Text))
			}
		}
		large := strings.Repeat("x", store.NoteMax)
		e.note("large", 0, large)
		list, err := e.Notes(e.ctx, "large", "", 1)
		e.must(err)
		equal(e, "the largest", string(list[0].Text) == large, true)
	}},
	{"one of several writers with the same version succeeds", func(e *env) {
		version := e.note("lease", 0, "nobody")
		for range 3 {
			var won atomic.Int64
			var next atomic.Int64
			var group sync.WaitGroup
			for n := range 6 {
				group.Go(func() {
					if v, err := e.PutNote(e.ctx, store.Note{Name: "lease", Version: version, Text: fmt.Append(nil, n)}); err == nil {
						won.Add(1)
						next.Store(v)
					}
				})
			}
			group.Wait()
			equal(e, "writers that succeeded", won.Load(), 1)
			version = next.Load()
		}
	}},
	{"a note with an audit record is written with it or not at all", func(e *env) {
		put := func(version int64, text, action string) error {
			return e.PutAudited(e.ctx, store.AuditedNote{
				Note:  store.Note{Name: "s/1", Version: version, Text: []byte(text)},
				Audit: store.AuditRecord{Actor: "wei", Action: action, Object: "default/s", Version: 7, Detail: job.Text("in words")},
			})
		}
		version := func() int64 {
			list, err := e.Notes(e.ctx, "s/", "", 1)
			e.must(err)
			if len(list) == 0 {
				return 0
			}
			return list[0].Version
		}
		e.must(put(0, "one", "secret.create"))
		first := version()
		e.want(put(0, "again", "secret.create"), store.ErrConflict)
		e.want(put(first+1, "later", "secret.change"), store.ErrConflict)
		e.must(put(first, "two", "secret.change"))
		e.note("s/1", version(), "three")
		e.want(put(first, "late", "secret.change"), store.ErrConflict)
		e.must(put(version(), "", "secret.delete"))
		equal(e, "notes", e.notes("s/", ""), "")
		e.want(put(first, "", "secret.delete"), store.ErrConflict)
		if err := put(0, strings.Repeat("x", store.NoteMax+1), "secret.create"); err == nil {
			e.Errorf("a note that is too large was taken")
		}
		list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 10})
		e.must(err)
		var parts []string
		for _, a := range list {
			parts = append(parts, fmt.Sprintf("%d %s %s %s v%d %s", a.Seq, a.Actor, a.Action, a.Object, a.Version, a.Detail))
		}
		equal(e, "audit", strings.Join(parts, "; "), "3 wei secret.delete default/s v7 in words; 2 wei secret.change default/s v7 in words; 1 wei secret.create default/s v7 in words")
	}},
	{"an empty note that does not exist only writes its audit record, however many do so", func(e *env) {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				e.must(e.PutAudited(e.ctx, store.AuditedNote{Note: store.Note{Name: "hook/1"}, Audit: store.AuditRecord{Actor: "hook:default/h", Action: "hook.ignore", Object: "default/h"}}))
			})
		}
		group.Wait()
		equal(e, "notes", e.notes("hook/", ""), "")
		list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 10})
		e.must(err)
		equal(e, "records", len(list), 4)
	}},
	{"a hook is created, changed and deleted by version", func(e *env) {
		h := &job.Hook{Name: "deploy", Job: "a", From: job.HookGitHub, Secret: "s", Params: map[string]string{"ref": "{{ .Body.ref }}"}}
		doc, err := e.PutDocument(e.ctx, job.Document{Hook: h}, 0, "wei")
		e.must(err)
		changed := *h
		changed.Paused = true
		again, err := e.PutDocument(e.ctx, job.Document{Hook: &changed}, 1, "wei")
		e.must(err)
		if again.UID() != doc.UID() || again.Version() != 2 {
			e.Errorf("the changed hook is %+v, and was %+v", again, doc)
		}
		list, err := e.Documents(e.ctx, job.KindHook)
		e.must(err)
		if len(list) != 1 || !list[0].Hook.Paused || list[0].Hook.Params["ref"] != h.Params["ref"] || list[0].UID() != doc.UID() {
			e.Errorf("the store has the hooks %+v", list)
		}
		e.must(e.DeleteDocument(e.ctx, job.KindHook, "default/deploy", 2, "wei"))
		e.want(e.DeleteDocument(e.ctx, job.KindHook, "default/deploy", 2, "wei"), store.ErrNotFound)
	}},
	{"a channel is created, changed and deleted by version", func(e *env) {
		c := &job.Channel{
			Name: "ops", To: job.Service{Slack: &job.SlackService{URL: &job.Secret{File: "slack"}}},
			Rules: []job.ChannelRule{{Events: []job.Notice{job.NoticeFailed}}},
		}
		doc, err := e.PutDocument(e.ctx, job.Document{Channel: c}, 0, "wei")
		e.must(err)
		if doc.FullName() != "default/ops" || doc.Version() != 1 || doc.UID().IsZero() || c.Version != 0 {
			e.Errorf("the channel is %+v, and the one given %+v", doc, c)
		}
		same, err := e.PutDocument(e.ctx, job.Document{Channel: c}, 1, "wei")
		e.must(err)
		equal(e, "version of what says the same", same.Version(), 1)
		changed := *c
		changed.Rules = []job.ChannelRule{{Events: []job.Notice{job.NoticeFailed, job.NoticeRecovered}}}
		_, err = e.PutDocument(e.ctx, job.Document{Channel: &changed}, 7, "wei")
		e.want(err, store.ErrConflict)
		next, err := e.PutDocument(e.ctx, job.Document{Channel: &changed}, 1, "wei")
		e.must(err)
		equal(e, "version", next.Version(), 2)
		equal(e, "uid stays", next.UID(), doc.UID())
		list, err := e.Documents(e.ctx, job.KindChannel)
		e.must(err)
		if len(list) != 1 || list[0].Channel.To.Slack == nil || list[0].Channel.To.Slack.URL.File != "slack" || len(list[0].Channel.Rules[0].Events) != 2 {
			e.Fatalf("the channels are %+v", list)
		}
		list, err = e.Documents(e.ctx, store.DocumentKinds...)
		e.must(err)
		equal(e, "documents", len(list), 1)
		list, err = e.Documents(e.ctx, job.KindPool, job.KindExecutors)
		e.must(err)
		equal(e, "other documents", len(list), 0)
		_, err = e.PutDocument(e.ctx, job.Document{Job: &job.Job{Name: "a"}}, 0, "wei")
		if err == nil {
			e.Error("a job was taken for another document")
		}
		e.want(e.DeleteDocument(e.ctx, job.KindChannel, "default/ops", 1, "wei"), store.ErrConflict)
		e.must(e.DeleteDocument(e.ctx, job.KindChannel, "default/ops", 2, "wei"))
		e.want(e.DeleteDocument(e.ctx, job.KindChannel, "default/ops", store.AnyVersion, "wei"), store.ErrNotFound)
		list, err = e.Documents(e.ctx, job.KindChannel)
		e.must(err)
		equal(e, "channels", len(list), 0)
		equal(e, "audit", strings.Join(e.actions(), " "), "wei channel.delete default/ops wei channel.change default/ops wei channel.create default/ops")
	}},
	{"a list of executors is created, changed and deleted by version", func(e *env) {
		given := &job.Executors{Namespace: "shop", Name: "orders", Group: "Order-Service", Title: "订单", Addresses: []string{"http://10.0.0.5:9999/", "http://10.0.0.6:9999"}, Token: "orders_token"}
		doc, err := e.PutDocument(e.ctx, job.Document{Executors: given}, 0, "wei")
		e.must(err)
		if doc.FullName() != "shop/orders" || doc.Version() != 1 || doc.UID().IsZero() || given.Version != 0 {
			e.Errorf("the list is %+v, and the one given %+v", doc, given)
		}
		same, err := e.PutDocument(e.ctx, job.Document{Executors: given}, 1, "wei")
		e.must(err)
		equal(e, "version of what says the same", same.Version(), 1)
		changed := *given
		changed.Addresses = changed.Addresses[:1]
		_, err = e.PutDocument(e.ctx, job.Document{Executors: &changed}, 7, "wei")
		e.want(err, store.ErrConflict)
		next, err := e.PutDocument(e.ctx, job.Document{Executors: &changed}, 1, "wei")
		e.must(err)
		equal(e, "version", next.Version(), 2)
		list, err := e.Documents(e.ctx, job.KindExecutors)
		e.must(err)
		if len(list) != 1 || list[0].Executors.Appname() != "Order-Service" || list[0].Executors.Title != "订单" || list[0].Executors.Token != "orders_token" || len(list[0].Executors.Addresses) != 1 {
			e.Fatalf("the lists are %+v", list)
		}
		e.want(e.DeleteDocument(e.ctx, job.KindExecutors, "shop/orders", 1, "wei"), store.ErrConflict)
		e.must(e.DeleteDocument(e.ctx, job.KindExecutors, "shop/orders", 2, "wei"))
		e.want(e.DeleteDocument(e.ctx, job.KindExecutors, "shop/orders", store.AnyVersion, "wei"), store.ErrNotFound)
		list, err = e.Documents(e.ctx, job.KindExecutors)
		e.must(err)
		equal(e, "lists", len(list), 0)
		equal(e, "audit", strings.Join(e.actions(), " "), "wei executors.delete shop/orders wei executors.change shop/orders wei executors.create shop/orders")
	}},
}

// note writes a note and returns its version.
func (e *env) note(name string, version int64, text string) int64 {
	e.Helper()
	next, err := e.PutNote(e.ctx, store.Note{Name: name, Version: version, Text: []byte(text)})
	e.must(err)
	return next
}

func (e *env) noteRefused(n store.Note) {
	e.Helper()
	_, err := e.PutNote(e.ctx, n)
	e.want(err, store.ErrConflict)
}

// notes writes all notes with a prefix.
func (e *env) notes(prefix, after string) string {
	e.Helper()
	list, err := e.Notes(e.ctx, prefix, after, 100)
	e.must(err)
	var b strings.Builder
	for _, n := range list {
		fmt.Fprintf(&b, "%s=%d:%s ", n.Name, n.Version, n.Text)
	}
	return b.String()
}
