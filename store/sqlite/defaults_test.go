package sqlite

import (
	"cmp"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// What is planned goes by the policies of the server that is there.
func TestOtherDefaultsReachWhatIsPlanned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	start := func(lateBy job.Duration) *Store {
		return open(t, path, Options{Now: func() time.Time { return now }, Defaults: job.Defaults{Policy: job.Policy{LateBy: &lateBy}}})
	}
	s := start(job.Forever)
	j, err := s.PutJob(t.Context(), store.PutJob{Definition: &job.Job{
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

// A server that starts with another time zone plans the jobs that name none by
// it, and leaves the others alone.
func TestOtherDefaultsReachThePlanners(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	s := open(t, path, Options{})
	plain := benchJob(1, job.Policy{})
	zoned := benchJob(2, job.Policy{})
	zoned.Schedule.Timezone = "Asia/Tokyo"
	for _, j := range []*job.Job{plain, zoned} {
		if _, err := s.PutJob(t.Context(), store.PutJob{Definition: j}); err != nil {
			t.Fatal(err)
		}
	}
	for _, start := range []struct {
		zone  string
		epoch int64  // of the job without a zone
		named string // the zone of its namespace
	}{{"", 1, ""}, {"Europe/Berlin", 2, ""}, {"Europe/Berlin", 2, ""}, {"", 3, ""}, {"", 4, "Asia/Shanghai"}, {"Europe/Berlin", 4, "Asia/Shanghai"}} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		defaults := job.Defaults{Timezone: start.zone}
		if start.named != "" {
			defaults.Namespaces = map[string]job.Defaults{job.DefaultNamespace: {Timezone: start.named}}
		}
		s = open(t, path, Options{Defaults: defaults})
		list, _, err := s.JobsChanged(t.Context(), store.AllPartitions, 0, 10)
		if err != nil || len(list) != 2 {
			t.Fatalf("%v, %v", list, err)
		}
		zone := cmp.Or(start.named, start.zone)
		if zone == "" {
			zone = "UTC"
		}
		for _, p := range list {
			j, err := s.JobByUID(t.Context(), p.UID)
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
