package planner

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

func TestStatsSayHowFarAheadAllJobsArePlanned(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := New(Config{LookAhead: 15 * time.Second, Now: func() time.Time { return now }})
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
}
