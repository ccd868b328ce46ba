package service

import (
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Jobs that fail with one error have one fingerprint, by which their runs are listed and repeated together, and the
// version with which the failures of a job began is named.
func TestRunsWithOneErrorAreListedAndRepeatedTogether(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for _, name := range []string{"a", "b"} {
		b.put(s, `{"name": "`+name+`", "run": {"shell": "true"}}`)
		b.ends(s, name, job.OutcomeSucceeded)
	}
	draft, err := ReadDraft([]byte(`{"name": "b", "run": {"shell": "false"}}`), "")
	if err == nil {
		_, err = s.Jobs.Put(t.Context(), admin, Name{"default", "b"}, draft, Expect{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "b"} {
		b.ends(s, name, job.OutcomeFailed)
	}
	found := attention(t, s, admin, "")
	one, two := found["failing default/a"], found["failing default/b"]
	if one.CauseFingerprint == "" || one.CauseFingerprint != two.CauseFingerprint {
		t.Fatalf("the fingerprints are %q and %q", one.CauseFingerprint, two.CauseFingerprint)
	}
	if one.SinceVersion != 0 || two.SinceVersion != 2 {
		t.Errorf("the failures began with versions %d and %d", one.SinceVersion, two.SinceVersion)
	}
	page, err := s.Runs.List(t.Context(), admin, client.RunQuery{CauseFingerprint: one.CauseFingerprint})
	if err != nil || len(page.Items) != 3 {
		t.Errorf("%d runs have the error: %v", len(page.Items), err)
	}
	if page, err := s.Runs.List(t.Context(), admin, client.RunQuery{CauseFingerprint: "00000000000000ff"}); err != nil || len(page.Items) != 0 {
		t.Errorf("%d runs have another error: %v", len(page.Items), err)
	}
	if _, err := s.Runs.List(t.Context(), admin, client.RunQuery{CauseFingerprint: "refused"}); ErrorOf(err).Type != client.TypeInvalid {
		t.Errorf("a word as a fingerprint is answered with %v", err)
	}

	unknown := b.id()
	runs := []job.ID{one.Run, two.Run, unknown}
	retries, err := s.Runs.RetryAll(t.Context(), admin, runs, "once")
	if err != nil || len(retries.Runs) != 2 || retries.Runs[0].RetryOf != one.Run || len(retries.Errors) != 1 || retries.Errors[0].Run != unknown {
		t.Fatalf("the retries are %+v, %v", retries, err)
	}
	again, err := s.Runs.RetryAll(t.Context(), admin, runs, "once")
	if err != nil || len(again.Runs) != 2 || again.Runs[1].ID != retries.Runs[1].ID {
		t.Errorf("the same retries again are %+v, %v", again, err)
	}
	for _, n := range []int{0, client.RetriesMax + 1} {
		if _, err := s.Runs.RetryAll(t.Context(), admin, make([]job.ID, n), ""); ErrorOf(err).Type != client.TypeInvalid {
			t.Errorf("%d runs are answered with %v", n, err)
		}
	}
	if _, err := s.Runs.RetryAll(t.Context(), Caller{Name: "vera", Role: store.RoleViewer}, runs, ""); ErrorOf(err).Type != client.TypeForbidden {
		t.Errorf("a viewer is answered with %v", err)
	}
}
