package service

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/store"
)

func TestBarredJobsAreSaidWherePeopleLook(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	publish := func(users ...string) {
		t.Helper()
		c := placement.Commands{Users: users, File: "/etc/belfry/belfry.yaml", Reload: "systemctl reload belfry", Shell: true}
		if _, err := b.store.Join(t.Context(), store.Session{ID: b.session, Node: "one", Roles: []string{store.RoleWorker}, Capacity: 10, Handlers: []string{c.Handler()}}); err != nil {
			t.Fatal(err)
		}
	}
	publish("", "belfry")
	const why = "no node may run as www-data: set shell: {allow_users: [www-data]} in /etc/belfry/belfry.yaml on node one, then systemctl reload belfry"
	document := client.Document{RawMessage: []byte(`{"name": "site", "run": {"shell": "true", "user": "www-data"}}`)}
	for _, dry := range []bool{true, false, false} { // at last it is unchanged
		applied, err := s.Documents.Apply(t.Context(), admin, client.Apply{Documents: []client.Document{document}, DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		if r := applied.Results[0]; r.Barred != why || len(r.Warnings) != 1 || r.Warnings[0] != why {
			t.Errorf("apply with dry run %v says %q and warns %q", dry, r.Barred, r.Warnings)
		}
	}
	draft, err := ReadDraft(document.RawMessage, "")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := s.Jobs.Put(t.Context(), admin, Name{"default", "site"}, draft, Expect{})
	if err != nil || len(changed.Warnings) != 1 || changed.Warnings[0] != why {
		t.Errorf("a change warns %q, %v", changed.Warnings, err)
	}
	checked, err := s.Documents.Check(t.Context(), admin, client.Check{Text: string(document.RawMessage)})
	if err != nil || len(checked.Warnings) != 1 || checked.Warnings[0].Detail != why {
		t.Errorf("a check warns %+v, %v", checked.Warnings, err)
	}
	listed := func() string {
		t.Helper()
		page, err := s.Jobs.Listed(t.Context(), admin, client.JobQuery{}, false)
		if err != nil {
			t.Fatal(err)
		}
		return page.Items[0].Status.Barred
	}
	if got := listed(); got != why {
		t.Errorf("the list says %q", got)
	}
	shown, _, err := s.Jobs.Get(t.Context(), admin, Name{"default", "site"}, false)
	if err != nil || !strings.Contains(string(shown.RawMessage), `"barred":"`+why+`"`) {
		t.Errorf("the job is %s, %v", shown.RawMessage, err)
	}
	found := attention(t, s, admin, "")["barred default/site"]
	if found.Text != why || found.Severity != client.SeverityBad {
		t.Errorf("attention is %+v", found)
	}
	if nodes, err := s.Nodes.List(t.Context(), admin); err != nil || len(nodes) != 1 || len(nodes[0].Handlers) != 0 {
		t.Errorf("the nodes are %+v, %v; what they publish is no handler", nodes, err)
	}

	publish("", "belfry", "www-data")
	if got := listed(); got != "" {
		t.Errorf("after the setting the list says %q", got)
	}
	if found := attention(t, s, admin, ""); len(found) != 0 {
		t.Errorf("after the setting attention is %+v", found)
	}

	publish("", "belfry")
	if _, err := s.Jobs.Pause(t.Context(), admin, Name{"default", "site"}, client.PauseRequest{}, Expect{}); err != nil {
		t.Fatal(err)
	}
	if found := attention(t, s, admin, ""); len(found) != 0 {
		t.Errorf("a paused job needs attention: %+v", found)
	}
	if got := listed(); got != "" {
		t.Errorf("a paused job is %q in the list", got)
	}
}

func TestBarredJobWithLateRunsIsListedOnce(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "nowhere", "run": {"shell": "true"}, "place": {"labels": {"zone": "moon"}}}`)
	if found := attention(t, s, admin, "")["barred default/nowhere"]; found.Text != "no live node has the label zone=moon" {
		t.Errorf("without a run attention is %+v", found)
	}
	if _, err := s.Runs.Start(t.Context(), admin, Name{"default", "nowhere"}, client.RunRequest{}, ""); err != nil {
		t.Fatal(err)
	}
	b.pass(lateAfter + 1)
	b.renew(store.Load{})
	found := attention(t, s, admin, "")
	if found["late default/nowhere"].Count != 1 || found["barred default/nowhere"].Kind != "" {
		t.Errorf("with a late run attention is %+v", found)
	}
}
