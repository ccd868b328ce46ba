package web_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// called counts the calls of a store: each is a round trip to a database server.
type called struct {
	store.Store
	mu    sync.Mutex
	calls map[string]int
}

func (c *called) one(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[what]++
}

func (c *called) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	c.one("JobsByUID")
	return c.Store.JobsByUID(ctx, uids)
}

func (c *called) JobsNamed(ctx context.Context, names []string) ([]*store.Job, error) {
	c.one("JobsNamed")
	return c.Store.JobsNamed(ctx, names)
}

func (c *called) ListJobs(ctx context.Context, q store.JobQuery) ([]*store.Job, string, error) {
	c.one("ListJobs")
	return c.Store.ListJobs(ctx, q)
}

func (c *called) Followers(ctx context.Context, upstream string, after job.ID, limit int) ([]*store.Job, bool, error) {
	c.one("Followers")
	return c.Store.Followers(ctx, upstream, after, limit)
}

func (c *called) Revisions(ctx context.Context, uid job.ID, before int64, limit int) ([]store.Revision, error) {
	c.one("Revisions")
	return c.Store.Revisions(ctx, uid, before, limit)
}

func (c *called) ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error) {
	c.one("ListActive")
	return c.Store.ListActive(ctx, q)
}

func (c *called) Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error) {
	c.one("Attempts")
	return c.Store.Attempts(ctx, q)
}

func (c *called) AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error) {
	c.one("AttemptsOf")
	return c.Store.AttemptsOf(ctx, run)
}

func (c *called) Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error) {
	c.one("Recent")
	return c.Store.Recent(ctx, jobs, n)
}

func (c *called) Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error) {
	c.one("Aggregate")
	return c.Store.Aggregate(ctx, q)
}

func (c *called) Output(ctx context.Context, run job.ID, attempt, from, limit int) ([]store.OutputChunk, error) {
	c.one("Output")
	return c.Store.Output(ctx, run, attempt, from, limit)
}

func (c *called) Sessions(ctx context.Context) ([]store.Session, error) {
	c.one("Sessions")
	return c.Store.Sessions(ctx)
}

func (c *called) Now(ctx context.Context) (time.Time, error) {
	c.one("Now")
	return c.Store.Now(ctx)
}

func (c *called) Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRecord, int64, error) {
	c.one("Audit")
	return c.Store.Audit(ctx, q)
}

func (c *called) Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error) {
	c.one("Notes")
	return c.Store.Notes(ctx, prefix, after, limit)
}

func (c *called) Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error) {
	c.one("Documents")
	return c.Store.Documents(ctx, kinds...)
}

func (c *called) Tokens(ctx context.Context) ([]store.Token, error) {
	c.one("Tokens")
	return c.Store.Tokens(ctx)
}

func (c *called) Handovers(ctx context.Context, q store.HandoverQuery) ([]store.Handover, error) {
	c.one("Handovers")
	return c.Store.Handovers(ctx, q)
}

func (c *called) Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error) {
	c.one("Cursors")
	return c.Store.Cursors(ctx, uids)
}

// callsMax is how many round trips a page may need, whatever its number of rows.
const callsMax = 9

// The pages that are opened most ask the store a few times, however many rows they have: what the
// frame shows is read once in some seconds for all pages.
func TestAPageNeedsFewCallsOfTheStore(t *testing.T) {
	w := newWorld(t)
	w.fill()
	for i := range 40 {
		schedule := "cron: '0 0 1 1 *'"
		if i%4 == 0 {
			schedule = "after_end: 1h"
		}
		list, err := job.Decode("", fmt.Appendf(nil, "namespace: many\nname: j%02d\nschedule: {%s}\nrun: {shell: 'true'}\n", i, schedule))
		w.must(err)
		_, err = store.PutOne(t.Context(), w.store, store.PutJob{Definition: list[0].Job, Actor: "wei"})
		w.must(err)
	}
	w.put("namespace: many\nname: pooled\nrun: {shell: 'true'}\npolicy: {concurrency_key: db}\n")
	w.put("namespace: many\nname: follower\nschedule: {on: pooled}\nrun: {shell: 'true'}\n")
	w.put("namespace: many\nname: changed\nrun: {shell: 'true'}\n")
	w.ran("many/changed", job.OutcomeSucceeded)
	w.put("namespace: many\nname: changed\nrun: {shell: 'false'}\n")
	failing := w.ran("many/changed", job.OutcomeFailed)
	counted := &called{Store: w.store, calls: map[string]int{}}
	w.serve(service.Config{Store: counted})
	b := w.login("vera")
	const j = "/jobs/shop/price-import"
	for _, path := range []string{"/", "/jobs", "/jobs?sort=next", "/runs", j, "/jobs/many/pooled", j + "/statistics", j + "/definition", j + "/schedule", "/runs/" + w.failed.String(), "/runs/" + w.running.String(), "/runs/" + failing.String(), "/timeline", "/timeline?view=week", "/timeline?view=week&spread=15m", "/nodes", "/audit"} {
		b.ask("GET", path, nil) // what all pages share is read now
		counted.calls = map[string]int{}
		if answer := b.ask("GET", path, nil); answer.Code != http.StatusOK {
			t.Fatalf("%s is answered with %d", path, answer.Code)
		}
		sum := 0
		for n := range maps.Values(counted.calls) {
			sum += n
		}
		if sum > callsMax {
			var list []string
			for _, what := range slices.Sorted(maps.Keys(counted.calls)) {
				list = append(list, fmt.Sprintf("%s %d", what, counted.calls[what]))
			}
			t.Errorf("%s needs %d calls of the store: %v", path, sum, list)
		}
	}
}
