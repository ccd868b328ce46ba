package planner

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestStatsShowHowFarAheadJobsArePlanned(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := New(Config{LookAhead: 15 * time.Second, Now: func() time.Time { return now }})
	p.table.timings = []timing{{jobs: 3}}
	p.mine = store.AllPartitions
	if s := p.Stats(); s.Jobs != 0 || s.Ahead != 15*time.Second {
		t.Errorf("without jobs: %+v", s)
	}
	for i, next := range []time.Duration{time.Hour, 12 * time.Second, -3 * time.Second} {
		entry := p.table.add(job.ID{byte(i + 1)})
		p.table.entries[entry].next = now.Add(next).UnixNano()
		p.table.due.Push(p.table.entries[entry].next, entry)
		if s := p.Stats(); s.Jobs != i+1 || s.Ahead != min(next, 15*time.Second) {
			t.Errorf("with a job due in %s: %+v", next, s)
		}
	}
	p.mine = store.Partitions{}
	if s := p.Stats(); s.Jobs != 0 {
		t.Errorf("without partitions: %+v", s)
	}
	p.mine.Add(job.Partition(job.ID{2}))
	if s := p.Stats(); s.Jobs != 1 {
		t.Errorf("with the partition of one job: %+v", s)
	}
	p.table.remove(p.table.byUID[job.ID{2}])
	if s := p.Stats(); s.Jobs != 0 {
		t.Errorf("with the partition of a job that was removed: %+v", s)
	}
}
