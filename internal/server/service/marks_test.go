package service

import (
	"errors"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestProblemsAreSnoozedTakenAndNoted(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	b.put(s, `{"name": "b", "run": {"shell": "true"}}`)
	fails := func(name string, outcome job.Outcome) {
		t.Helper()
		b.ends(s, name, outcome)
	}
	for range 2 {
		fails("a", job.OutcomeFailed)
		fails("b", job.OutcomeFailed)
	}
	snooze := func(who Caller, r client.AttentionRequest) ([]client.Attention, error) {
		return s.Attention.Snooze(t.Context(), who, r)
	}
	about := client.AttentionRequest{Job: "default/a"}
	seen := func() client.Attention { t.Helper(); return attention(t, s, admin, "")["failing default/a"] }
	snoozed := func(what string, want bool, r client.AttentionRequest) {
		t.Helper()
		if r.Job != "" {
			if found, err := snooze(admin, r); err != nil || len(found) != 1 || found[0].Snoozed == nil {
				t.Fatalf("%s: a snooze is answered with %+v, %v", what, found, err)
			}
		}
		if got := seen().Snoozed != nil; got != want {
			t.Errorf("%s: it is snoozed: %v, want %v", what, got, want)
		}
	}

	until := about
	until.Until = b.clock().Add(time.Hour)
	snoozed("until a time", true, until)
	if list, err := s.Attention.List(t.Context(), admin, ""); err != nil || len(list) != 2 || list[1].Job != "default/a" || list[1].Snoozed.By != admin.Name {
		t.Errorf("what is snoozed is not last: %+v, %v", list, err)
	}
	b.pass(2 * time.Hour)
	snoozed("after that time", false, client.AttentionRequest{})

	version := about
	version.NextVersion = true
	snoozed("until the next version", true, version)
	fails("a", job.OutcomeTimedOut)
	snoozed("with another cause and the same version", true, client.AttentionRequest{})
	draft, err := ReadDraft([]byte(`{"name": "a", "run": {"shell": "false"}}`), "")
	if err == nil {
		_, err = s.Jobs.Put(t.Context(), admin, Name{"default", "a"}, draft, Expect{})
	}
	if err != nil {
		t.Fatal(err)
	}
	snoozed("with the next version", false, client.AttentionRequest{})

	cause := about
	cause.AnotherCause = true
	snoozed("until another cause", true, cause)
	fails("a", job.OutcomeTimedOut)
	snoozed("with the same cause", true, client.AttentionRequest{})
	fails("a", job.OutcomeFailed)
	snoozed("with another cause", false, client.AttentionRequest{})

	snoozed("before it is woken", true, client.AttentionRequest{Job: about.Job, Until: b.clock().Add(time.Hour)})
	if _, err := s.Attention.Wake(t.Context(), admin, about); err != nil {
		t.Fatal(err)
	}
	snoozed("after it was woken", false, client.AttentionRequest{})

	request := about
	request.Note = "ask the vendor"
	if _, err := s.Attention.Take(t.Context(), admin, request); err != nil {
		t.Fatal(err)
	}
	if a := seen(); a.TakenBy != admin.Name || a.Note != "ask the vendor" || a.NoteBy != admin.Name {
		t.Errorf("what was taken is %+v", a)
	}
	if _, err := s.Attention.Release(t.Context(), admin, about); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Attention.Note(t.Context(), admin, about); err != nil {
		t.Fatal(err)
	}
	if a := seen(); a.TakenBy != "" || a.Note != "" {
		t.Errorf("after its release it is %+v", a)
	}
	if notes, err := b.store.Notes(t.Context(), markNotes, "", 10); err != nil || len(notes) != 0 {
		t.Errorf("a mark that says nothing stays: %v, %v", notes, err)
	}
	audit, err := s.Audit.List(t.Context(), admin, client.AuditQuery{Object: "default/a", Action: "attention"})
	if err != nil || len(audit.Items) != 8 || audit.Items[2].Action != "attention.take" || audit.Items[2].Detail != "ask the vendor" {
		t.Errorf("the audit has %+v, %v", audit.Items, err)
	}
	// Of another problem than the one that was taken nothing is said.
	if _, err := s.Attention.Take(t.Context(), admin, about); err != nil {
		t.Fatal(err)
	}
	fails("a", job.OutcomeSucceeded)
	fails("a", job.OutcomeFailed)
	fails("a", job.OutcomeFailed)
	if a := seen(); a.TakenBy != "" || a.Count != 2 {
		t.Errorf("a later problem is taken already: %+v", a)
	}

	viewer := Caller{Name: "eve", Role: store.RoleViewer}
	elsewhere := Caller{Name: "ops", Role: store.RoleRunner, Namespace: "other"}
	for name, refused := range map[string]struct {
		who Caller
		r   client.AttentionRequest
	}{
		"a viewer":           {viewer, until},
		"another namespace":  {elsewhere, until},
		"no end":             {admin, about},
		"an end in the past": {admin, until},
		"nothing":            {admin, client.AttentionRequest{NextVersion: true}},
		"a version of nodes": {admin, client.AttentionRequest{Node: "n", NextVersion: true}},
		"no problem":         {admin, client.AttentionRequest{Job: "default/nothing", AnotherCause: true}},
		"two subjects":       {admin, client.AttentionRequest{Job: "default/a", Channels: true, AnotherCause: true}},
		"all of the server":  {elsewhere, client.AttentionRequest{Channels: true, AnotherCause: true}},
	} {
		_, err := snooze(refused.who, refused.r)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s is answered with %v", name, err)
		}
	}
}
