package service

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/forecast"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// reads counts how often jobs are asked for.
type reads struct {
	*memory.Store
	asked int
}

func (c *reads) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	c.asked++
	return c.Store.JobsByUID(ctx, uids)
}

// A round trip for each of them would take a database some 40 ms.
func TestJobsByDueTimeAreReadInBatches(t *testing.T) {
	b := newBench(t)
	c := &reads{Store: b.store}
	p := &planned{timings: map[job.ID]forecast.Timing{}}
	s := b.serviceOn(Config{Store: c, Planner: p})
	for i := range 60 {
		b.put(s, fmt.Sprintf(`{"name": "job-%02d", "run": {"shell": "true"}, "schedule": {"cron": "0 %d * * *"}}`, i, i%24))
		j, err := store.JobNamed(t.Context(), b.store, "default", fmt.Sprintf("job-%02d", i))
		if err != nil {
			t.Fatal(err)
		}
		p.timings[j.Definition.UID] = forecast.Timing{Schedule: each(time.Duration(i+1) * time.Hour), Jobs: 1}
	}
	c.asked = 0
	page, err := s.Jobs.List(t.Context(), admin, client.JobQuery{Sort: client.ByNext, PageSize: 50}, false)
	if err != nil || len(page.Items) != 50 || page.NextPageToken == "" {
		t.Fatalf("the page has %d jobs (%v)", len(page.Items), err)
	}
	if c.asked > 2 {
		t.Errorf("a page of 50 jobs takes %d reads of jobs", c.asked)
	}
}
