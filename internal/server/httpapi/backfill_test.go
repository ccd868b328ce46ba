package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	hourly       = `{"name": "hourly", "schedule": {"cron": "0 * * * *", "timezone": "Europe/Berlin"}, "run": {"shell": "true"}}`
	hourlyFilled = "/api/v1/jobs/default/hourly/backfill"
	threeHours   = `{"from": "2026-11-20T08:00:00Z", "to": "2026-11-20T11:00:00Z"}`
)

func TestBackfillIsPreviewedCreatedOnceAndCancelledAsAWhole(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", hourly)
	preview := ok[client.Backfill](s, "POST", hourlyFilled, strings.Replace(threeHours, "}", `, "dry_run": true}`, 1))
	var times []string
	for _, r := range preview.Items {
		times = append(times, r.Scheduled.Format("15:04Z07"))
	}
	if fmt.Sprint(times) != "[09:00+01 10:00+01 11:00+01]" || !preview.DryRun || preview.Made != 0 {
		t.Errorf("the preview is %v: %+v", times, preview)
	}
	if page := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs", ""); len(page.Items) != 0 {
		t.Fatalf("a dry run has made %d runs", len(page.Items))
	}

	if w := s.call("POST", hourlyFilled, threeHours); w.Code != 201 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	w := s.call("POST", hourlyFilled, threeHours)
	if w.Code != 200 {
		t.Errorf("the same request again: status %d: %s", w.Code, w.Body)
	}
	again := ok[client.Backfill](s, "POST", hourlyFilled, `{"from": "2026-11-20T08:00:00Z", "to": "2026-11-20T12:00:00Z"}`)
	if again.Made != 1 || len(again.Items) != 4 || again.Items[0].Made || !again.Items[3].Made {
		t.Errorf("a longer range has made %+v", again)
	}
	runs := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs", "").Items
	if len(runs) != 4 || runs[0].Kind != job.RunBackfill || !runs[0].Scheduled.Equal(again.Items[0].Scheduled) || runs[0].Node != "one" {
		t.Fatalf("the runs are %+v", runs)
	}
	audit := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit", "").Items
	if len(audit) != 4 || audit[1].Action != "run.backfill" || audit[1].Detail != "3 runs, scheduled from 2026-11-20T08:00:00Z to 2026-11-20T10:00:00Z" {
		t.Errorf("the audit is %+v", audit)
	}

	// They wait for each other, although the job would skip.
	s.pass(time.Second)
	n.start(runs[0])
	outcomes, err := n.store.Claim(t.Context(), n.session, []store.Attempt{{Run: runs[1].ID, Number: 1, Token: s.id()}})
	if err != nil || outcomes[0].Verdict != store.Waiting {
		t.Fatalf("the second: %v, %+v", err, outcomes)
	}

	over := ok[client.BackfillCancelled](s, "POST", hourlyFilled+"/cancel", `{"reason": "wrong day"}`)
	if over.Ended != 3 || len(over.Running) != 1 || over.Running[0].ID != runs[0].ID || over.Running[0].CancelReason != "wrong day" {
		t.Errorf("cancelling: %+v", over)
	}
	n.finish(runs[0], job.OutcomeCancelled)
	if page := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs?state=ready&state=waiting&state=running", ""); len(page.Items) != 0 {
		t.Errorf("after it there are %+v", page.Items)
	}
	if over = ok[client.BackfillCancelled](s, "POST", hourlyFilled+"/cancel", ""); over.Ended != 0 || len(over.Running) != 0 {
		t.Errorf("cancelling again: %+v", over)
	}
	// A cancelled backfill is made again for another key.
	if again = ok[client.Backfill](s, "POST", hourlyFilled, threeHours); again.Made != 0 {
		t.Errorf("without a key it has made %d runs", again.Made)
	}
	if again = ok[client.Backfill](s, "POST", hourlyFilled, threeHours, "Idempotency-Key", "k"); again.Made != 3 {
		t.Errorf("with another key it has made %d runs", again.Made)
	}
	if again = ok[client.Backfill](s, "POST", hourlyFilled, threeHours, "Idempotency-Key", "k"); again.Made != 0 {
		t.Errorf("with the same key again it has made %d runs", again.Made)
	}
}

func TestBackfillOfASplitJobCreatesAllShards(t *testing.T) {
	s := newServer(t)
	s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "hourly", "schedule": {"every": "1h"}, "run": {"shell": "true"}, "place": {"shards": 2}}`)
	backfill := ok[client.Backfill](s, "POST", hourlyFilled, threeHours)
	if backfill.Made != 6 || backfill.Items[1].Shard != 1 || backfill.Items[1].Shards != 2 || backfill.Items[1].Run == backfill.Items[0].Run {
		t.Errorf("it has made %+v", backfill)
	}
}

func TestRefusedBackfillNamesItsReason(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", hourly)
	for _, c := range []struct {
		body, pointer, detail string
	}{
		{`{}`, "/from", ""},
		{`{"from": "2026-11-20T08:00:00Z", "to": "2026-11-20T14:00:01Z"}`, "/to", "is in the future"},
		{`{"from": "2026-11-20T14:00:00Z"}`, "/from", "is not before to"},
		{`{"from": "2026-11-20T08:00:00Z", "overlap": "wait"}`, "/overlap", ""},
	} {
		p := s.refused(client.TypeInvalid, 422, "POST", hourlyFilled, c.body)
		if len(p.Errors) != 1 || p.Errors[0].Pointer != c.pointer && p.Errors[0].Pointer != "" || !strings.Contains(p.Errors[0].Detail, c.detail) {
			t.Errorf("%s: the errors are %+v", c.body, p.Errors)
		}
	}
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "pooled", "schedule": {"cron": "0 * * * *"}, "run": {"shell": "x"}, "policy": {"concurrency_key": "db"}}`)
	p := s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs/default/pooled/backfill", `{"from": "2026-11-20T08:00:00Z", "overlap": "allow"}`)
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/overlap" || !strings.Contains(p.Errors[0].Detail, "pool") {
		t.Errorf("beside a pool: the errors are %+v", p.Errors)
	}
	p = s.refused(client.TypeTooMany, 429, "POST", hourlyFilled, `{"from": "2025-11-20T08:00:00Z", "dry_run": true}`)
	if p.Detail != "there would be 8766 runs, and a request makes at most 1000" || p.Hint != "split it: the first part is up to 2026-01-01T00:00:00Z" {
		t.Errorf("the problem is %q, %q", p.Detail, p.Hint)
	}
	if half := ok[client.Backfill](s, "POST", hourlyFilled, `{"from": "2025-11-20T08:00:00Z", "to": "2026-01-01T00:00:00Z", "dry_run": true}`); len(half.Items) != 1000 {
		t.Errorf("the first part has %d runs", len(half.Items))
	}
	ok[client.Change](s, "POST", "/api/v1/jobs/default/hourly/pause", "")
	if p = s.refused(client.TypeConflict, 409, "POST", hourlyFilled, threeHours); !strings.Contains(p.Detail, "is paused") {
		t.Errorf("a paused job: %q", p.Detail)
	}
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "by-hand", "run": {"shell": "true"}}`)
	if p = s.refused(client.TypeConflict, 409, "POST", "/api/v1/jobs/default/by-hand/backfill", threeHours); !strings.Contains(p.Detail, "has no scheduled times") {
		t.Errorf("a job without a schedule: %q", p.Detail)
	}
	s.refused(client.TypeNotFound, 404, "POST", "/api/v1/jobs/default/nobody/backfill", threeHours)
}
