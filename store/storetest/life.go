package storetest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// tally makes ids for benchmarks: ordered by time, and cheap.
type tally struct {
	mu sync.Mutex
	n  uint64
}

func (i *tally) next() (id job.ID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16)
	// Spread as random ids are.
	binary.BigEndian.PutUint64(id[8:], i.n*0x9e3779b97f4a7c15)
	return id
}

// life takes runs of its jobs from planned to finished.
type life struct {
	s       store.Store
	session job.ID
	jobs    []*store.Job
	ids     *tally
	at      int
}

// batch takes one run of each of the next n jobs from planned to finished.
func (l *life) batch(ctx context.Context, n int) error {
	items, attempts := make([]store.PlanItem, n), make([]store.Attempt, n)
	for i := range n {
		j := l.jobs[(l.at+i)%len(l.jobs)]
		to := j.Cursor.Add(time.Microsecond)
		items[i] = store.PlanItem{
			Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: to,
			Runs: []store.NewRun{{ID: l.ids.next(), Session: l.session, Scheduled: to, Due: to}},
		}
		j.Cursor = to
		attempts[i] = store.Attempt{Job: items[i].Job, Run: items[i].Runs[0].ID, Number: 1, Token: l.ids.next()}
	}
	l.at += n
	planned, _, err := l.s.Plan(ctx, l.session, items)
	if err != nil {
		return err
	}
	claimed, err := l.s.Claim(ctx, l.session, attempts)
	if err != nil {
		return err
	}
	results := make([]store.Result, n)
	now := time.Now().UTC()
	for i, a := range attempts {
		if planned[i] != store.Planned || claimed[i].Verdict != store.Started {
			return fmt.Errorf("run %d: planned %d, claimed %d %s", i, planned[i], claimed[i].Verdict, claimed[i].Reason)
		}
		results[i] = store.Result{Attempt: a, Started: now, Ended: now.Add(time.Millisecond), Outcome: job.OutcomeSucceeded}
	}
	finished, err := l.s.Finish(ctx, l.session, results)
	if err != nil {
		return err
	}
	for i := range finished {
		if !finished[i].Accepted {
			return fmt.Errorf("result %d was not accepted", i)
		}
	}
	return nil
}

// Life measures the durable rate of runs from planned to finished, with history and every index.
// Open opens an empty store that plans an hour ahead, and served returns the processor time of its
// server.
func Life(b *testing.B, open func(testing.TB) store.Store, served func() (time.Duration, error)) {
	for _, c := range []struct{ batch, flushers, jobs int }{{500, 4, 4_000}, {500, 1, 4_000}, {100, 4, 10_000}, {20, 8, 10_000}, {1, 8, 10_000}} {
		b.Run(fmt.Sprintf("batch=%d/flushers=%d", c.batch, c.flushers), func(b *testing.B) {
			s := open(b)
			id, err := job.NewID(time.Now(), rand.Reader)
			if err != nil {
				b.Fatal(err)
			}
			session, err := s.Join(b.Context(), store.Session{ID: id, Node: "a", Machine: "m", DataDir: "d", Capacity: 1000})
			if err != nil {
				b.Fatal(err)
			}
			ids := &tally{}
			lives := make([]*life, c.flushers)
			var wait sync.WaitGroup
			for f := range lives {
				lives[f] = &life{s: s, session: session.ID, ids: ids}
				wait.Go(func() {
					for from, n := 0, c.jobs/c.flushers; from < n; from += store.PutMax {
						var list []store.PutJob
						for i := from; i < min(n, from+store.PutMax); i++ {
							list = append(list, store.PutJob{Actor: "bench", Definition: &job.Job{
								Name:     fmt.Sprintf("job-%d-%d", f, i),
								Schedule: job.Schedule{Cron: []string{fmt.Sprintf("%d %d * * *", i%60, i/60%24)}},
								Run:      job.RunSpec{Shell: &job.Shell{Command: "true"}},
							}})
						}
						jobs, err := s.PutJobs(b.Context(), list)
						if err != nil {
							b.Error(err)
							return
						}
						lives[f].jobs = append(lives[f].jobs, jobs...)
					}
				})
			}
			wait.Wait()
			if b.Failed() {
				return
			}
			begun, n := time.Now(), 0
			client, server := CPUTime(b), serverTime(b, served)
			for b.Loop() {
				for _, l := range lives {
					wait.Go(func() {
						if err := l.batch(b.Context(), c.batch); err != nil {
							b.Error(err)
						}
					})
				}
				wait.Wait()
				n += c.batch * c.flushers
				if b.Failed() {
					return
				}
			}
			b.ReportMetric(float64(n)/time.Since(begun).Seconds(), "runs/s")
			b.ReportMetric(float64((CPUTime(b)-client).Microseconds())/float64(n), "client-us/run")
			b.ReportMetric(float64((serverTime(b, served)-server).Microseconds())/float64(n), "server-us/run")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func serverTime(b *testing.B, served func() (time.Duration, error)) time.Duration {
	b.Helper()
	used, err := served()
	if err != nil {
		b.Fatal(err)
	}
	return used
}
