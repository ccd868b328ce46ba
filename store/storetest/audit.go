package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// auditTests are about changes and their actors.
var auditTests = []test{
	{"an audit record names the changed fields", func(e *env) {
		e.put("name: a\ndescription: old\nschedule: {cron: '0 1 * * *'}\nrun: {shell: one, env: {A: '1', PASSWORD: hunter2}}")
		e.put("name: a\nlabels: {team: web}\nschedule: {cron: ['0 2 * * *', '0 3 * * *']}\nrun: {shell: two, env: {A: '1', PASSWORD: hunter3}}")
		list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 10})
		e.must(err)
		if len(list) != 2 || list[1].Changes != nil {
			e.Fatalf("the audit is %+v", list)
		}
		var changes []string
		for _, c := range list[0].Changes {
			changes = append(changes, fmt.Sprintf("%s: %s > %s", c.Path, c.Before, c.After))
		}
		equal(e, "changes", strings.Join(changes, "\n"), strings.Join([]string{
			"description: old > ",
			"labels.team:  > web",
			"run.env.PASSWORD: (hidden) > (hidden)",
			"run.shell: one > two",
			`schedule.cron: ["0 1 * * *"] > ["0 2 * * *","0 3 * * *"]`,
		}, "\n"))
	}},
	{"audit records of pools and calendars name the changed fields", func(e *env) {
		for version, size := range []int{1, 2} {
			_, err := e.PutDocument(e.ctx, job.Document{Pool: &job.Pool{Name: "db", Slots: job.Slots{Size: size}}}, int64(version), "ann")
			e.must(err)
			_, err = e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: job.Days{Include: []string{fmt.Sprintf("2026-12-2%d", size)}}}}, int64(version), "ann")
			e.must(err)
		}
		list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 2})
		e.must(err)
		equal(e, "calendar", fmt.Sprint(list[0].Changes), `[{calendar.include ["2026-12-21"] ["2026-12-22"]}]`)
		equal(e, "pool", fmt.Sprint(list[1].Changes), "[{pool.size 1 2}]")
	}},
	{"the audit is selected by object, namespace, actor and time", func(e *env) {
		e.put("name: a")
		e.clock.Advance(time.Hour)
		j := e.put("name: a\nnamespace: web")
		e.clock.Advance(time.Hour)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "bob"}))
		e.putToken(store.PutToken{Name: "web", Hash: hashOf("web"), Role: store.RoleViewer, Actor: "bob"})
		for _, tt := range []struct {
			q    store.AuditQuery
			want string
		}{
			{store.AuditQuery{}, "bob token.create web, bob job.delete web/a, ann job.create web/a, ann job.create default/a"},
			{store.AuditQuery{Namespace: "web"}, "bob job.delete web/a, ann job.create web/a"},
			{store.AuditQuery{Object: "web/a"}, "bob job.delete web/a, ann job.create web/a"},
			{store.AuditQuery{Object: "web"}, "bob token.create web"},
			{store.AuditQuery{Actor: "ann"}, "ann job.create web/a, ann job.create default/a"},
			{store.AuditQuery{Actor: "ann", Namespace: "web"}, "ann job.create web/a"},
			{store.AuditQuery{From: start.Add(time.Hour)}, "bob token.create web, bob job.delete web/a, ann job.create web/a"},
			{store.AuditQuery{To: start.Add(time.Hour)}, "ann job.create default/a"},
			{store.AuditQuery{Actor: "eve"}, ""},
			{store.AuditQuery{Action: "job.delete"}, "bob job.delete web/a"},
			{store.AuditQuery{Action: "token"}, "bob token.create web"},
			{store.AuditQuery{Action: "job.del"}, ""},
			{store.AuditQuery{Group: "g"}, ""},
		} {
			var got []string
			tt.q.Limit = 1
			for more := true; more; more = tt.q.Before != 0 {
				list, next, err := e.Audit(e.ctx, tt.q)
				e.must(err)
				for _, r := range list {
					got = append(got, r.Actor+" "+r.Action+" "+r.Object)
				}
				tt.q.Before = next
			}
			equal(e, fmt.Sprintf("%+v", tt.q), strings.Join(got, ", "), tt.want)
		}
	}},
	{"an audit record names the origin of the change", func(e *env) {
		e.put("name: a")
		ctx := store.WithOrigin(e.ctx, store.Origin{Client: "ui", Address: "192.0.2.7", Group: "g1"})
		document, err := job.Decode("", []byte("name: b\nschedule: {every: 1h}\nrun: {shell: 'true'}\npolicy: {pause_on_failure: 1}"))
		e.must(err)
		j, err := store.PutOne(ctx, e, store.PutJob{Definition: document[0].Job, Actor: "ann"})
		e.must(err)
		e.must(e.DeleteJob(ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		e.put("name: c")
		list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 10})
		e.must(err)
		var got []string
		for _, r := range list {
			got = append(got, fmt.Sprintf("%s %s %+v", r.Action, r.Object, r.Origin))
		}
		equal(e, "audit", strings.Join(got, "\n"), strings.Join([]string{
			"job.create default/c {Client: Address: Group:}",
			"job.delete default/b {Client:ui Address:192.0.2.7 Group:g1}",
			"job.create default/b {Client:ui Address:192.0.2.7 Group:g1}",
			"job.create default/a {Client: Address: Group:}",
		}, "\n"))
	}},
	{"changes by the store itself have no origin", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {pause_on_failure: 1}")
		a := e.plan(j, time.Second)[0]
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, a, store.Started)
		ctx := store.WithOrigin(e.ctx, store.Origin{Client: "api"})
		_, err := e.Finish(ctx, e.a.ID, []store.Result{{Attempt: a, Started: e.now(), Ended: e.now(), Outcome: job.OutcomeFailed, Reason: job.Text("by the test")}})
		e.must(err)
		list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 1})
		e.must(err)
		equal(e, "audit", fmt.Sprintf("%s %+v", list[0].Action, list[0].Origin), "job.pause {Client: Address: Group:}")
	}},
	{"a request for several shards has one audit record", func(e *env) {
		j := e.put("name: a\nplace: {shards: 3}")
		var items []store.TriggerItem
		for shard := range 3 {
			items = append(items, store.TriggerItem{
				ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Session: e.a.ID, Shard: shard, Shards: 3, Actor: "ann",
			})
		}
		_, err := e.Trigger(e.ctx, items)
		e.must(err)
		equal(e, "audit", strings.Join(e.actions(), ", "), "ann run.hand default/a, ann job.create default/a")
	}},
}
