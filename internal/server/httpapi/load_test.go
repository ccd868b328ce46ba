package httpapi_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestDueJobsSayByHowMuchASpreadWouldDelayThem(t *testing.T) {
	s := newServer(t)
	made, err := store.PutOne(context.Background(), s.store, store.PutJob{Definition: &job.Job{
		Namespace: "big", Name: "j", Schedule: job.Schedule{Cron: []string{"0 3 * * *"}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}, IfVersion: store.AnyVersion})
	if err != nil {
		t.Fatal(err)
	}
	s.planner.table = map[job.ID]time.Time{made.Definition.UID: s.clock().Add(30 * time.Second)}
	for query, isSaid := range map[string]bool{"": false, "?spread=10m": true} {
		page := ok[client.Page[client.DueJob]](s, "GET", "/api/v1/load/jobs"+query, "")
		if len(page.Items) != 1 || (page.Items[0].Delay != nil) != isSaid {
			t.Errorf("%s is answered with %+v", query, page)
		}
	}
	from := s.clock()
	page, err := s.dial().SpreadJobs(t.Context(), "big", from, from.Add(time.Minute), job.Duration(10*time.Minute), 5)
	if err != nil || len(page.Items) != 1 || page.Items[0].Delay == nil {
		t.Errorf("the client reads %+v (%v)", page, err)
	}
	for _, spread := range []string{"soon", "-1m", "0s"} {
		p := s.refused(client.TypeInvalid, http.StatusUnprocessableEntity, "GET", "/api/v1/load/jobs?spread="+spread, "")
		if len(p.Errors) != 1 || p.Errors[0].Parameter != "spread" {
			t.Errorf("a spread of %s is answered with %+v", spread, p)
		}
	}
}
