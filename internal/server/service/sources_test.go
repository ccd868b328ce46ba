package service

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	commitOne = "1111111111111111111111111111111111111111"
	commitTwo = "2222222222222222222222222222222222222222"
)

// commit is a request with the jobs of a commit, by pairs of name and command.
func commit(hash, mistake string, pairs ...string) client.Apply {
	r := client.Apply{Documents: []client.Document{}, Owner: "git", Prune: true, Source: &client.Commit{URL: "https://git.example.com/jobs", Commit: hash, Mistake: mistake}}
	for i := 0; i < len(pairs); i += 2 {
		r.Documents = append(r.Documents, client.Document{RawMessage: fmt.Appendf(nil, `{"name": %q, "run": {"shell": %q}}`, pairs[i], pairs[i+1])})
		r.Source.Files = append(r.Source.Files, "jobs/"+pairs[i]+".yaml")
	}
	return r
}

// sourceShown returns the source that a job shows.
func sourceShown(t *testing.T, s *Service, name string) *job.Source {
	t.Helper()
	d, _, err := s.Jobs.Get(t.Context(), admin, Name{"default", name}, false)
	if err != nil {
		t.Fatal(err)
	}
	j, err := d.Job()
	if err != nil {
		t.Fatal(err)
	}
	return j.Status.Source
}

func TestJobsShowTheCommitTheyAreOf(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "own", "run": {"shell": "true"}}`)
	apply := func(r client.Apply) client.Applied {
		t.Helper()
		applied, err := s.Documents.Apply(t.Context(), admin, r)
		if err != nil {
			t.Fatal(err)
		}
		return applied
	}
	apply(commit(commitOne, "", "a", "echo 1", "b", "true"))
	want := job.Source{URL: "https://git.example.com/jobs", Commit: commitOne, File: "jobs/a.yaml", Version: 1}
	if got := sourceShown(t, s, "a"); got == nil || *got != want {
		t.Errorf("the job is from %+v, want %+v", got, want)
	}
	if got := sourceShown(t, s, "own"); got != nil {
		t.Errorf("a job of no repository is from %+v", got)
	}

	// A pause is no difference to the file, and a change by hand is.
	if _, err := s.Jobs.Pause(t.Context(), admin, Name{"default", "a"}, client.PauseRequest{}, Expect{}); err != nil {
		t.Fatal(err)
	}
	if got := sourceShown(t, s, "a"); got.Edited {
		t.Errorf("after a pause it is %+v", got)
	}
	draft, err := ReadDraft([]byte(`{"name": "a", "run": {"shell": "echo 2"}, "labels": {"belfry/owner": "git"}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := s.Jobs.Put(t.Context(), admin, Name{"default", "a"}, draft, Expect{})
	if err != nil || !strings.Contains(strings.Join(changed.Warnings, "\n"), "at 1111111: the next commit sets this change back") {
		t.Errorf("a change by hand warns %q (%v)", changed.Warnings, err)
	}
	if got := sourceShown(t, s, "a"); !got.Edited || got.Version != 1 {
		t.Errorf("after a change by hand it is %+v", got)
	}
	byHand := commit(commitOne, "", "b", "false")
	byHand.Source, byHand.Prune = nil, false
	if applied := apply(byHand); !strings.Contains(strings.Join(applied.Results[0].Warnings, "\n"), "sets this change back") {
		t.Errorf("an apply by hand warns %q", applied.Results[0].Warnings)
	}
	apply(commit(commitTwo, "", "a", "echo 1"))
	if got := sourceShown(t, s, "a"); got.Edited || got.Commit != commitTwo {
		t.Errorf("after the next commit it is %+v", got)
	}
	notes := func() (versions []int64) {
		t.Helper()
		list, err := b.store.Notes(t.Context(), "source", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			versions = append(versions, n.Version)
		}
		return versions
	}
	before := notes()
	apply(commit(commitTwo, "", "a", "echo 1")) // as belfry sync --once does each few minutes
	if after := notes(); len(before) != 2 || !slices.Equal(before, after) {
		t.Errorf("the same commit again writes notes: their versions are %v, and were %v", after, before)
	}
	audit, err := s.Audit.List(t.Context(), admin, client.AuditQuery{Object: "git", Action: "source"})
	if err != nil || len(audit.Items) != 2 || audit.Items[0].Action != "source.apply" || audit.Items[0].Detail != "commit 2222222 of https://git.example.com/jobs" {
		t.Errorf("the audit has %+v (%v)", audit.Items, err)
	}
}

func TestListsShowTheCommitOfAJob(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "own", "run": {"shell": "true"}}`)
	b.put(s, `{"name": "labelled", "labels": {"belfry/owner": "by hand"}, "run": {"shell": "true"}}`)
	if _, err := s.Documents.Apply(t.Context(), admin, commit(commitOne, "", "a", "true")); err != nil {
		t.Fatal(err)
	}
	page, err := s.Jobs.Listed(t.Context(), admin, client.JobQuery{}, false)
	if err != nil || len(page.Items) != 3 {
		t.Fatal(page.Items, err)
	}
	for _, j := range page.Items {
		from := j.Status.Source
		if (j.Name == "a") != (from != nil) || from != nil && *from != (job.Source{URL: "https://git.example.com/jobs", Commit: commitOne}) {
			t.Errorf("%s is from %+v", j.Name, from)
		}
	}
}

// Owners come and go, such as those of branches for a review.
func TestSourcesWithoutJobsAreForgottenForOthers(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	apply := func(owner string) error {
		r := commit(commitOne, "", owner, "true")
		r.Owner = owner
		_, err := s.Documents.Apply(t.Context(), admin, r)
		return err
	}
	for i := range sourcesMax {
		if err := apply(fmt.Sprintf("owner-%03d", i)); err != nil {
			t.Fatal(err)
		}
	}
	var full *Error
	if err := apply("one-more"); !errors.As(err, &full) || full.Type != client.TypeConflict {
		t.Errorf("one more is answered with %v", err)
	}
	if _, _, err := s.Jobs.Get(t.Context(), admin, Name{"default", "one-more"}, false); err == nil {
		t.Error("its jobs are written all the same")
	}
	gone := commit(commitTwo, "")
	gone.Owner = "owner-007"
	if _, err := s.Documents.Apply(t.Context(), admin, gone); err != nil {
		t.Fatal(err)
	}
	if err := apply("one-more"); err != nil {
		t.Errorf("after one is gone: %v", err)
	}
	if got := sourceShown(t, s, "owner-008"); got == nil {
		t.Error("a source with jobs is forgotten")
	}
}

func TestAMistakeOfACommitNeedsAttention(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	apply := func(who Caller, r client.Apply) (client.Applied, error) {
		return s.Documents.Apply(t.Context(), who, r)
	}
	found := func(who Caller, namespace string) []client.Attention {
		t.Helper()
		list, err := s.Attention.List(t.Context(), who, namespace)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if _, err := apply(admin, commit(commitOne, "", "a", "true")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the same mistake again changes nothing
		if applied, err := apply(admin, commit(commitTwo, "jobs/a.yaml:2:1: nothing: unknown field")); err != nil || len(applied.Results) != 0 {
			t.Fatalf("a mistake is answered with %+v, %v", applied, err)
		}
	}
	if _, _, err := s.Jobs.Get(t.Context(), admin, Name{"default", "a"}, false); err != nil {
		t.Errorf("a commit with a mistake and without documents prunes: %v", err)
	}
	list := found(admin, "")
	if len(list) != 1 || list[0].Kind != client.AttentionSource || list[0].Source != "git" || list[0].Severity != client.SeverityBad ||
		list[0].Text != "commit 2222222 of https://git.example.com/jobs is not applied, and the jobs stay as of 1111111: jobs/a.yaml:2:1: nothing: unknown field" {
		t.Errorf("what needs attention is %+v", list)
	}
	lasting := func() (events []notification.Event) {
		t.Helper()
		l, err := s.Attention.Lasting(t.Context(), admin)
		if err != nil || !slices.Contains(l.Whole, job.NoticeSource) {
			t.Fatalf("what lasts is whole for %v (%v)", l.Whole, err)
		}
		return l.Events
	}
	if told := lasting(); len(told) != 1 || told[0].Kind != job.NoticeSource || told[0].Owner != "git" || told[0].Text.String() != list[0].Text || told[0].About() != "the repository of git" ||
		told[0].Key() == (&notification.Event{Kind: job.NoticeSource, Owner: "other"}).Key() {
		t.Errorf("channels hear %+v", told)
	}
	if n := len(found(admin, "default")); n != 1 {
		t.Errorf("the namespace of its jobs has %d problems", n)
	}
	if n := len(found(admin, "other")); n != 0 {
		t.Errorf("another namespace has %d problems", n)
	}
	if audit, err := s.Audit.List(t.Context(), admin, client.AuditQuery{Object: "git", Action: "source.refuse"}); err != nil || len(audit.Items) != 1 {
		t.Errorf("the audit has %+v (%v)", audit.Items, err)
	}
	if marked, err := s.Attention.Take(t.Context(), admin, client.AttentionRequest{Source: "git"}); err != nil || len(marked) != 1 || marked[0].TakenBy != admin.Name {
		t.Errorf("it is taken as %+v (%v)", marked, err)
	}
	elsewhere := Caller{Name: "ops", Role: store.RoleAdmin, Namespace: "other"}
	if _, err := apply(elsewhere, commit(commitTwo, "nothing")); err == nil {
		t.Error("a token of another namespace changes what is known of the source")
	}
	if got := found(admin, ""); len(got) != 1 || !strings.HasSuffix(got[0].Text, "unknown field") {
		t.Errorf("by a token of another namespace it becomes %+v", got)
	}
	if _, err := apply(admin, commit(commitOne, "", "a", "true")); err != nil {
		t.Fatal(err)
	}
	if told := lasting(); len(told) != 0 {
		t.Errorf("after a later commit channels hear %+v", told)
	}
	if list := found(admin, ""); len(list) != 0 {
		t.Errorf("after a later commit there is %+v", list)
	}
}

func TestARepositoryOutOfReachNeedsAttention(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	tell := func(hash string, change func(*client.Commit)) {
		t.Helper()
		r := commit(hash, "")
		change(r.Source)
		if applied, err := s.Documents.Apply(t.Context(), admin, r); err != nil || len(applied.Results) != 0 {
			t.Fatalf("it is answered with %+v, %v", applied, err)
		}
	}
	shows := func(want ...string) {
		t.Helper()
		list, err := s.Attention.List(t.Context(), admin, "")
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Attention.Lasting(t.Context(), admin)
		if err != nil {
			t.Fatal(err)
		}
		var got, told []string
		for _, a := range list {
			got = append(got, a.Text)
		}
		for _, e := range l.Events {
			told = append(told, e.Text.String())
		}
		if !slices.Equal(got, want) || !slices.Equal(told, want) {
			t.Errorf("what needs attention is %q, channels hear %q, want %q", got, told, want)
		}
	}
	lost := func(c *client.Commit) { c.Unreached = "no route" }
	reached := func(c *client.Commit) { c.Reached = true }
	tell("", lost) // it was never reached
	shows("the repository https://git.example.com/jobs is not reached: no route")
	if _, err := s.Documents.Apply(t.Context(), admin, commit(commitOne, "", "a", "true")); err != nil {
		t.Fatal(err)
	}
	shows()
	tell(commitTwo, func(c *client.Commit) { c.Mistake = "a mistake" })
	tell("", lost)
	tell("", lost)
	shows("the repository https://git.example.com/jobs is not reached, and the jobs stay as of 1111111: no route")
	if got := sourceShown(t, s, "a"); got == nil || got.Commit != commitOne {
		t.Errorf("meanwhile the job is from %+v", got)
	}
	tell(commitTwo, reached)
	tell(commitTwo, reached)
	shows("commit 2222222 of https://git.example.com/jobs is not applied, and the jobs stay as of 1111111: a mistake")
	tell("", lost)
	tell(commitTwo, func(c *client.Commit) { c.Mistake = "another mistake" }) // of a commit that is new when it is reached
	shows("commit 2222222 of https://git.example.com/jobs is not applied, and the jobs stay as of 1111111: another mistake")
	audit, err := s.Audit.List(t.Context(), admin, client.AuditQuery{Object: "git", Action: "source"})
	var actions []string
	for _, r := range audit.Items {
		actions = append(actions, r.Action)
	}
	if want := []string{"source.refuse", "source.lose", "source.reach", "source.lose", "source.refuse", "source.apply", "source.lose"}; err != nil || !slices.Equal(actions, want) {
		t.Errorf("the audit has %q, want %q (%v)", actions, want, err)
	}
}

func TestSourcesThatCannotBeAreRefused(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for want, change := range map[string]func(*client.Apply){
		"owner":         func(r *client.Apply) { r.Owner, r.Prune = "", false },
		"source.commit": func(r *client.Apply) { r.Source.Commit = "" },
		"source.files":  func(r *client.Apply) { r.Source.Files = append(r.Source.Files, "x") },
	} {
		r := commit(commitOne, "", "a", "true")
		change(&r)
		_, err := s.Documents.Apply(t.Context(), admin, r)
		if e := ErrorOf(err); err == nil || len(e.Errors) != 1 || e.Errors[0].Path != want && e.Errors[0].Pointer != "/"+strings.ReplaceAll(want, ".", "/") {
			t.Errorf("%s: %+v", want, err)
		}
	}
	dry := commit(commitTwo, "a mistake")
	dry.DryRun = true
	if _, err := s.Documents.Apply(t.Context(), admin, dry); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Attention.List(t.Context(), admin, ""); err != nil || len(list) != 0 {
		t.Errorf("a dry run leaves %+v (%v)", list, err)
	}
	large := commit(commitOne, "")
	for i := range 4000 { // too many for the note of files
		name := fmt.Sprintf("job-with-a-name-of-some-length-%04d", i)
		large.Documents = append(large.Documents, client.Document{RawMessage: fmt.Appendf(nil, `{"name": %q, "run": {"shell": "true"}}`, name)})
		large.Source.Files = append(large.Source.Files, "jobs/"+name+".yaml")
	}
	if _, err := s.Documents.Apply(t.Context(), admin, large); err != nil {
		t.Fatal(err)
	}
	if got := sourceShown(t, s, "job-with-a-name-of-some-length-0007"); got == nil || got.Commit != commitOne || got.File != "" || got.Edited {
		t.Errorf("a job of many is from %+v", got)
	}
}

func TestOtherDocumentsShowTheCommitTheyAreOf(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	days := func(day string) client.Document {
		return client.Document{RawMessage: fmt.Appendf(nil, `{"kind": "calendar", "name": "holidays", "calendar": {"include": [%q]}}`, day)}
	}
	apply := func(r client.Apply) client.Applied {
		t.Helper()
		applied, err := s.Documents.Apply(t.Context(), admin, r)
		if err != nil {
			t.Fatal(err)
		}
		return applied
	}
	shown := func() *job.Source {
		t.Helper()
		list, err := s.Calendars.List(t.Context(), admin, "")
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		one, err := s.Calendars.Get(t.Context(), admin, Name{"default", "holidays"})
		if err != nil || !reflect.DeepEqual(one.From(), list[0].From()) {
			t.Errorf("alone it is from %+v, in a list from %+v (%v)", one.From(), list[0].From(), err)
		}
		return list[0].From()
	}
	of := commit(commitOne, "", "a", "true")
	of.Documents, of.Source.Files = append(of.Documents, days("2026-10-01")), append(of.Source.Files, "shared.yaml")
	apply(of)
	want := job.Source{URL: "https://git.example.com/jobs", Commit: commitOne, File: "shared.yaml"}
	if got := shown(); got == nil || *got != want {
		t.Errorf("the calendar is from %+v, want %+v", got, want)
	}
	byHand := client.Apply{Documents: []client.Document{days("2026-12-24")}}
	if applied := apply(byHand); !strings.Contains(strings.Join(applied.Results[0].Warnings, "\n"), "at 1111111: the next commit sets this change back") {
		t.Errorf("a change by hand warns %q", applied.Results[0].Warnings)
	}
	if got := shown(); !got.Edited || !strings.Contains(got.Diff, `-  include: "2026-10-01"`) || !strings.Contains(got.Diff, `+  include: "2026-12-24"`) {
		t.Errorf("after a change by hand it is from %+v", got)
	}
	of.Source.Commit = commitTwo
	apply(of)
	if got := shown(); got.Edited || got.Diff != "" || got.Commit != commitTwo {
		t.Errorf("after the next commit it is from %+v", got)
	}
	apply(commit(commitOne, "", "a", "true")) // of which the calendar is no part any more
	if got := shown(); got != nil {
		t.Errorf("a calendar that is gone from the files is from %+v", got)
	}
}
