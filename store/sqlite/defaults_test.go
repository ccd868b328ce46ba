package sqlite

import (
	"cmp"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Planning uses the policies of the present server.
func TestChangedDefaultsReachPlannedRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	start := func(lateBy job.Duration) *Store {
		return openStore(t, path, Options{Now: func() time.Time { return now }, Defaults: job.Defaults{Policy: job.Policy{LateBy: &lateBy}}})
	}
	s := start(job.Forever)
	j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: &job.Job{
		Name: "a", Schedule: job.Schedule{AfterEnd: job.Duration(time.Second)}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(job.Duration(10 * time.Second))
	now = now.Add(12 * time.Second)
	if _, err := s.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	records, _, err := s.Attempts(t.Context(), store.HistoryQuery{Job: j.Definition.UID, Limit: 10})
	if err != nil || len(records) != 1 || records[0].Run.Outcome != job.OutcomeMissed {
		t.Fatalf("%+v, %v, want that the run is missed", records, err)
	}
}

// A server with a new default time zone replans the jobs that name none, and leaves other jobs
// alone.
func TestChangedDefaultsReachPlanners(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	s := openStore(t, path, Options{})
	plain := benchJob(1, job.Policy{})
	zoned := benchJob(2, job.Policy{})
	zoned.Schedule.Timezone = "Asia/Tokyo"
	for _, j := range []*job.Job{plain, zoned} {
		if _, err := store.PutOne(t.Context(), s, store.PutJob{Definition: j}); err != nil {
			t.Fatal(err)
		}
	}
	for _, start := range []struct {
		zone  string
		epoch int64  // epoch of the job without a zone
		named string // the default of its namespace
	}{{"", 1, ""}, {"Europe/Berlin", 2, ""}, {"Europe/Berlin", 2, ""}, {"", 3, ""}, {"", 4, "Asia/Shanghai"}, {"Europe/Berlin", 4, "Asia/Shanghai"}} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		defaults := job.Defaults{Timezone: start.zone}
		if start.named != "" {
			defaults.Namespaces = map[string]job.Defaults{job.DefaultNamespace: {Timezone: start.named}}
		}
		s = openStore(t, path, Options{Defaults: defaults})
		list, _, err := s.JobsChanged(t.Context(), store.AllPartitions, 0, 10)
		if err != nil || len(list) != 2 {
			t.Fatalf("%v, %v", list, err)
		}
		zone := cmp.Or(start.named, start.zone)
		if zone == "" {
			zone = "UTC"
		}
		for _, p := range list {
			j, err := store.JobByUID(t.Context(), s, p.UID)
			if err != nil {
				t.Fatal(err)
			}
			wantZone, wantEpoch := zone, start.epoch
			if j.Definition.Name == zoned.Name {
				wantZone, wantEpoch = "Asia/Tokyo", 1
			}
			if !strings.Contains(p.Timing, wantZone) || p.Epoch != wantEpoch || j.Filled.Schedule.Timezone != wantZone {
				t.Errorf("with %q: %s has epoch %d and %s, want epoch %d and %s", start.zone, j.Definition.Name, p.Epoch, p.Timing, wantEpoch, wantZone)
			}
		}
	}
}

// The rest of the jobs is rewritten while the server runs. A stop in between neither loses nor
// repeats anything, whatever the defaults of the next start.
func TestChangedDefaultsOfManyJobsAreFilledInTheBackground(t *testing.T) {
	const many = 500 + 100 // more than one read examines
	path := filepath.Join(t.TempDir(), "belfry.db")
	var over chan struct{} // closed when all jobs have the new defaults
	start := func(zone string) *Store {
		over = make(chan struct{})
		done := over
		return openStore(t, path, Options{Defaults: job.Defaults{Timezone: zone}, RefillMax: -1, Refill: func(r store.Refill) {
			if r.Over {
				close(done)
			}
		}})
	}
	jobs := func(s *Store) (list []store.PlannedJob) {
		t.Helper()
		list, _, err := s.JobsChanged(t.Context(), store.AllPartitions, 0, 2*many)
		if err != nil || len(list) != many {
			t.Fatalf("%d jobs, %v", len(list), err)
		}
		return list
	}
	seen := int64(0) // position in the feed of changes
	stop := func(s *Store) {
		t.Helper()
		var err error
		if _, seen, err = s.JobsChanged(t.Context(), store.AllPartitions, seen, 2*many); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	begun := func(s *Store) bool {
		t.Helper()
		list, _, err := s.JobsChanged(t.Context(), store.AllPartitions, seen, 1)
		if err != nil {
			t.Fatal(err)
		}
		return len(list) > 0
	}
	s := start("")
	<-over
	var wait sync.WaitGroup
	for part := range 20 {
		wait.Go(func() {
			for i := part; i < many; i += 20 {
				if _, err := store.PutOne(t.Context(), s, store.PutJob{Definition: benchJob(i, job.Policy{})}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	stop(s)

	// It is stopped halfway.
	s = start("Asia/Tokyo")
	for !begun(s) {
	}
	stop(s)
	s = start("Asia/Tokyo")
	<-over
	for _, p := range jobs(s) {
		if p.Epoch != 2 || !strings.Contains(p.Timing, "Asia/Tokyo") {
			t.Fatalf("job %s has epoch %d and %s, want epoch 2 in Asia/Tokyo", p.UID, p.Epoch, p.Timing)
		}
	}
	stop(s)

	// A start with the former defaults reverts what had begun.
	s = start("Europe/Berlin")
	for !begun(s) {
	}
	stop(s)
	s = start("Asia/Tokyo")
	<-over
	for _, p := range jobs(s) {
		if p.Epoch != 2 && p.Epoch != 4 || !strings.Contains(p.Timing, "Asia/Tokyo") {
			t.Fatalf("job %s has epoch %d and %s, want epoch 2 or 4 in Asia/Tokyo", p.UID, p.Epoch, p.Timing)
		}
	}
}

// A start leaves alone a job that new defaults do not affect.
func TestChangedDefaultsKeepExplicitFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	s := openStore(t, path, Options{})
	at := job.Duration(time.Minute)
	document := benchJob(1, job.Policy{LateBy: &at})
	document.Schedule.Timezone = "Asia/Tokyo"
	for _, j := range []*job.Job{document, benchJob(2, job.Policy{})} {
		if _, err := store.PutOne(t.Context(), s, store.PutJob{Definition: j}); err != nil {
			t.Fatal(err)
		}
	}
	_, seen, err := s.JobsChanged(t.Context(), store.AllPartitions, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	late := job.Duration(time.Hour / 2)
	s = openStore(t, path, Options{Defaults: job.Defaults{Policy: job.Policy{LateBy: &late}}})
	changed, _, err := s.JobsChanged(t.Context(), store.AllPartitions, seen, 10)
	if err != nil || len(changed) != 1 || changed[0].Epoch != 1 {
		t.Fatalf("changed: %+v, %v, want the one that says nothing, in its epoch", changed, err)
	}
}
