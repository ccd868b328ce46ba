package replica_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/storetest"
)

// BenchmarkLife plans, claims and finishes runs of 500 jobs that each have 15 planned, as a job that is
// due each second has: with encoded values, on a server that takes no time, and in memory.
func BenchmarkLife(b *testing.B) {
	b.Run("encoded", func(b *testing.B) {
		benchLife(b, func(opt storetest.Options) (store.Store, error) {
			return replica.Open(b.Context(), driver{Shelf: newShelf()}, options(opt, 0))
		})
	})
	b.Run("memory", func(b *testing.B) {
		benchLife(b, func(opt storetest.Options) (store.Store, error) {
			return memory.New(memory.Options{Now: opt.Now, LookAhead: opt.LookAhead, NewID: opt.NewID}), nil
		})
	})
}

func benchLife(b *testing.B, open func(storetest.Options) (store.Store, error)) {
	const jobs, ahead = 500, 15
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	last := uint64(0)
	newID := func() (id job.ID) {
		last++
		binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16)
		binary.BigEndian.PutUint64(id[8:], last*0x9e3779b97f4a7c15) // spread like random ids
		return id
	}
	one, err := open(storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Hour, NewID: newID})
	if err != nil {
		b.Fatal(err)
	}
	defer one.Close()
	node, err := one.Join(b.Context(), store.Session{ID: newID(), Node: "n", Machine: "m", Roles: []string{store.RoleWorker}})
	if err != nil {
		b.Fatal(err)
	}
	var all []*store.Job
	for len(all) < jobs {
		documents, err := job.Decode("job.yaml", fmt.Appendf(nil, "name: j%d\nschedule: {every: 1s}\nrun: {shell: 'true'}", len(all)))
		if err != nil {
			b.Fatal(err)
		}
		j, err := store.PutOne(b.Context(), one, store.PutJob{Definition: documents[0].Job, Actor: "ann"})
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, j)
	}
	cursor := all[0].Cursor
	var due [][]store.Attempt // grouped by planned second
	plan := func() {
		at := cursor.Add(time.Second)
		var items []store.PlanItem
		var attempts []store.Attempt
		for _, j := range all {
			run := store.NewRun{ID: newID(), Session: node.ID, Node: "n", Scheduled: at, Due: at, Shards: 1}
			items = append(items, store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: cursor, To: at, Runs: []store.NewRun{run}})
			attempts = append(attempts, store.Attempt{Job: j.Definition.UID, Run: run.ID, Number: 1, Token: newID()})
		}
		if _, _, err := one.Plan(b.Context(), node.ID, items); err != nil {
			b.Fatal(err)
		}
		cursor, due = at, append(due, attempts)
	}
	for range ahead {
		plan()
	}
	runs, began := 0, storetest.CPUTime(b)
	for b.Loop() {
		plan()
		now = cursor.Add(-ahead * time.Second)
		if err := one.Renew(b.Context(), node.ID, store.Load{}); err != nil {
			b.Fatal(err)
		}
		claimed, err := one.Claim(b.Context(), node.ID, due[0])
		if err != nil {
			b.Fatal(err)
		}
		var results []store.Result
		for i, c := range claimed {
			if c.Verdict != store.Started {
				b.Fatalf("the claim of %s is answered %d: %s", due[0][i].Run, c.Verdict, c.Reason)
			}
			results = append(results, store.Result{Attempt: due[0][i], Started: now, Ended: now, Outcome: job.OutcomeSucceeded})
		}
		if _, err := one.Finish(b.Context(), node.ID, results); err != nil {
			b.Fatal(err)
		}
		due, runs = due[1:], runs+len(results)
	}
	b.ReportMetric(float64((storetest.CPUTime(b)-began).Microseconds())/float64(runs), "cpu-us/run")
	b.ReportMetric(0, "ns/op")
}
