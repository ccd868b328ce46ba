package scan

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/decide/account"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// bench is a store with a job that is due each ten seconds, and a node that plans and runs it under
// the test's control.
type bench struct {
	t       *testing.T
	store   store.Store
	now     time.Time
	session job.ID
	ids     uint64
	scan    *Scanner
}

func (b *bench) id() (id job.ID) {
	b.ids++
	binary.BigEndian.PutUint64(id[:], b.ids)
	return id
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, now: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)}
	b.store = memory.New(memory.Options{Now: func() time.Time { return b.now }})
	b.session = b.id()
	_, err := b.store.Join(t.Context(), store.Session{ID: b.session, Node: "a", Roles: []string{store.RolePlanner, store.RoleWorker}, Capacity: 10})
	b.must(err)
	b.scan = &Scanner{Store: b.store, Turn: func(int64) bool { return true }, Log: slog.New(slog.DiscardHandler)}
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) put(text string) *store.Job {
	b.t.Helper()
	docs, err := job.Decode("job.yaml", []byte(text+"\nrun: {shell: 'true'}"))
	b.must(err)
	j, err := store.PutOne(b.t.Context(), b.store, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "ann"})
	b.must(err)
	return j
}

// pass plans and runs some occurrences of a job, with the given fault for each.
func (b *bench) pass(uid job.ID, occurrences int, fault func(n int, at time.Time, r *store.NewRun) (planned bool, started time.Time)) {
	b.t.Helper()
	ctx := b.t.Context()
	for n := range occurrences {
		j, err := store.JobByUID(ctx, b.store, uid)
		b.must(err)
		at := j.Cursor.Truncate(10 * time.Second).Add(10 * time.Second)
		item := store.PlanItem{Job: uid, Epoch: j.Definition.Epoch, From: j.Cursor, To: at, Planned: j.Planned}
		run, started := store.NewRun{ID: b.id(), Scheduled: at, Due: at, Session: b.session, Node: "a"}, at
		planned := true
		if fault != nil {
			planned, started = fault(n, at, &run)
		}
		if planned {
			item.Runs = []store.NewRun{run}
		}
		b.now = at
		b.must(b.store.Renew(ctx, b.session, store.Load{}))
		out, _, err := b.store.Plan(ctx, b.session, []store.PlanItem{item})
		if b.must(err); out[0] != store.Planned {
			b.t.Fatalf("plan of %s: %v", at, out[0])
		}
		if planned {
			b.run(uid, run.ID, started)
		}
	}
	b.now = b.now.Add(account.Settle)
	b.must(b.store.Renew(ctx, b.session, store.Load{}))
}

func (b *bench) run(uid, run job.ID, started time.Time) {
	b.t.Helper()
	a := store.Attempt{Job: uid, Run: run, Number: 1, Token: b.id()}
	claims, err := b.store.Claim(b.t.Context(), b.session, []store.Attempt{a})
	if b.must(err); claims[0].Verdict != store.Started {
		b.t.Fatalf("claim: %+v", claims[0])
	}
	_, err = b.store.Finish(b.t.Context(), b.session, []store.Result{{Attempt: a, Started: started, Ended: b.now, Outcome: job.OutcomeSucceeded}})
	b.must(err)
}

// found returns the findings of two rounds, as kind and scheduled time, and checks their records.
func (b *bench) found() (list []string) {
	b.t.Helper()
	for range 2 { // the second finds no new ones
		for {
			over, err := b.scan.Portion(b.t.Context())
			if b.must(err); over {
				break
			}
		}
	}
	found, err := account.Found(b.t.Context(), b.store, b.now)
	b.must(err)
	for _, f := range found {
		list = append(list, fmt.Sprint(f.Kind, " ", f.Job, " ", f.Scheduled.Format(time.TimeOnly)))
	}
	audit, _, err := b.store.Audit(b.t.Context(), store.AuditQuery{Action: "occurrence", Limit: 100})
	b.must(err)
	if len(audit) != len(found) {
		b.t.Errorf("%d findings have %d records in the audit", len(found), len(audit))
	}
	return list
}

func TestOccurrencesThatAreNotAsTheyMustBeAreFound(t *testing.T) {
	const due = "schedule: {cron: '*/10 * * * * *'}\npolicy: {overlap: allow}"
	at := func(n int) string { return time.Date(2026, 11, 28, 12, 0, 10*(n+1), 0, time.UTC).Format(time.TimeOnly) }
	for name, c := range map[string]struct {
		fault func(n int, at time.Time, r *store.NewRun) (bool, time.Time)
		then  func(b *bench, j *store.Job)
		want  string
	}{
		"nothing": {nil, nil, ""},
		"an occurrence is skipped by the planner": {
			func(n int, at time.Time, _ *store.NewRun) (bool, time.Time) { return n != 3, at }, nil, "unaccounted default/a " + at(3),
		},
		"a run starts early": {
			func(n int, at time.Time, _ *store.NewRun) (bool, time.Time) {
				if n == 2 {
					return true, at.Add(-5 * time.Second)
				}
				return true, at
			}, nil, "early default/a " + at(2),
		},
		"a job that was changed meanwhile": {
			func(n int, at time.Time, _ *store.NewRun) (bool, time.Time) { return n != 3, at },
			func(b *bench, _ *store.Job) {
				b.put("name: a\nschedule: {cron: '*/20 * * * * *'}\npolicy: {overlap: allow}")
			}, "",
		},
		"a job that was paused": {nil, func(b *bench, _ *store.Job) { b.put("name: a\n" + due + "\npaused: true") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			j := b.put("name: a\n" + due)
			b.put("name: b\n" + due + "\npaused: true")
			b.pass(j.Definition.UID, 6, c.fault)
			if c.then != nil {
				c.then(b, j)
			}
			if got := strings.Join(b.found(), ", "); got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// TestTheScannerTellsABrokenStore plans like two planners without knowledge of each other. It finds
// nothing, unless the store is broken (test/mutations).
func TestTheScannerTellsABrokenStore(t *testing.T) {
	b := newBench(t)
	j := b.put("name: a\nschedule: {cron: '*/10 * * * * *'}\npolicy: {overlap: allow}")
	uid, from, other := j.Definition.UID, j.Cursor, b.id()
	_, err := b.store.Join(t.Context(), store.Session{ID: other, Node: "b", Roles: []string{store.RolePlanner}})
	b.must(err)
	for n := range 4 {
		b.now = time.Date(2026, 11, 28, 12, 0, 10*(n+1), 0, time.UTC)
		b.must(b.store.Renew(t.Context(), b.session, store.Load{}))
		b.must(b.store.Renew(t.Context(), other, store.Load{}))
		for _, planner := range []job.ID{b.session, other} {
			a := store.Attempt{Job: uid, Run: b.id(), Number: 1, Token: b.id()}
			item := store.PlanItem{Job: uid, Epoch: 1, From: from, To: b.now, Planned: n, Runs: []store.NewRun{{ID: a.Run, Scheduled: b.now, Due: b.now, Session: b.session, Node: "a"}}}
			_, _, err := b.store.Plan(t.Context(), planner, []store.PlanItem{item})
			b.must(err)
			if claims, err := b.store.Claim(t.Context(), b.session, []store.Attempt{a}); err == nil && claims[0].Verdict == store.Started {
				_, err = b.store.Finish(t.Context(), b.session, []store.Result{{Attempt: a, Started: b.now, Ended: b.now, Outcome: job.OutcomeSucceeded}})
				b.must(err)
			}
		}
		from = b.now
	}
	b.now = b.now.Add(account.Settle)
	if found := b.found(); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

// TestAnOccurrenceThatIsGoneFromTheStoreIsFound loses the only record of an occurrence, and then all
// records of a job.
func TestAnOccurrenceThatIsGoneFromTheStoreIsFound(t *testing.T) {
	b := newBench(t)
	j := b.put("name: a\nschedule: {cron: '*/10 * * * * *'}\npolicy: {overlap: allow}")
	if got := b.found(); len(got) > 0 {
		t.Fatal(got)
	}
	b.pass(j.Definition.UID, 3, nil)
	b.scan.Store = &forgetful{Store: b.store}
	if got := b.found(); len(got) != 3 {
		t.Errorf("of a job without records %q was found", got)
	}
}

// forgetful is a store that has lost its records.
type forgetful struct{ store.Store }

func (f *forgetful) Attempts(context.Context, store.HistoryQuery) ([]store.Record, store.RecordRef, error) {
	return nil, store.RecordRef{}, nil
}

func TestComparingTakesAHundredthOfAProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 10 * portion {
			b.put(fmt.Sprintf("name: j%d\nschedule: {cron: '*/10 * * * * *'}", i))
		}
		busy := time.Duration(0)
		b.scan.Turn = func(n int64) bool {
			if n == 0 { // a portion takes that long
				time.Sleep(50 * time.Millisecond)
				busy += 50 * time.Millisecond
			}
			return true
		}
		const all = 2 * time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), all)
		defer cancel()
		b.scan.Run(ctx)
		if part := float64(busy) / float64(all); part > share || part < share/4 {
			t.Errorf("it took %.2f %% of the time", 100*part)
		}
	})
}

// A round that is longer than the look back leaves occurrences out: the log says so.
func TestARoundThatTakesTooLongIsLogged(t *testing.T) {
	for took, want := range map[time.Duration]bool{10 * time.Second: true, time.Second: false} { // a portion
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			for i := range 10 * portion {
				b.put(fmt.Sprintf("name: j%d\nschedule: {cron: '*/10 * * * * *'}", i))
			}
			b.scan.Turn = func(n int64) bool {
				if n == 0 {
					time.Sleep(took)
				}
				return true
			}
			var log logtest.Log
			b.scan.Log = slog.New(slog.NewTextHandler(&log, nil))
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
			defer cancel()
			b.scan.Run(ctx)
			if got := strings.Contains(log.String(), "takes longer than it looks back"); got != want {
				t.Errorf("portions of %s: %q", took, log.String())
			}
		})
	}
}

// BenchmarkPortion compares jobs with a run each minute of the last hour on SQLite.
func BenchmarkPortion(b *testing.B) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "b.db"), sqlite.Options{Now: func() time.Time { return now }})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ids := uint64(0)
	id := func() (id job.ID) {
		ids++
		binary.BigEndian.PutUint64(id[:], ids)
		return id
	}
	session := id()
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	_, err = s.Join(b.Context(), store.Session{ID: session, Node: "a", Roles: []string{store.RolePlanner, store.RoleWorker}, Capacity: 1000})
	check(err)
	jobs := make([]*store.Job, portion)
	for i := range jobs {
		docs, err := job.Decode("job.yaml", []byte(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {overlap: allow}\nrun: {shell: 'true'}", i)))
		check(err)
		jobs[i], err = store.PutOne(b.Context(), s, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion, Actor: "ann"})
		check(err)
	}
	scan := &Scanner{Store: s, Turn: func(int64) bool { return true }, Log: slog.New(slog.DiscardHandler)}
	_, err = scan.Portion(b.Context())
	check(err)
	for range 60 {
		from := now
		now = now.Add(time.Minute)
		check(s.Renew(b.Context(), session, store.Load{}))
		var items []store.PlanItem
		var results []store.Result
		for i, j := range jobs {
			if from.Sub(jobs[i].Cursor) < time.Minute {
				from = jobs[i].Cursor
			}
			a := store.Attempt{Job: j.Definition.UID, Run: id(), Number: 1, Token: id()}
			items = append(items, store.PlanItem{Job: j.Definition.UID, Epoch: 1, From: from, To: now, Runs: []store.NewRun{{ID: a.Run, Scheduled: now, Due: now, Session: session, Node: "a", Token: a.Token}}})
			results = append(results, store.Result{Attempt: a, Started: now, Ended: now, Outcome: job.OutcomeSucceeded})
		}
		_, _, err := s.Plan(b.Context(), session, items)
		check(err)
		_, err = s.Finish(b.Context(), session, results)
		check(err)
	}
	now = now.Add(account.Settle)
	for b.Loop() {
		if _, err := scan.Portion(b.Context()); err != nil {
			b.Fatal(err)
		}
		scan.after = 0
	}
	if found, err := account.Found(b.Context(), s, now); err != nil || len(found) > 0 {
		b.Errorf("found %v, %v", found, err)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*portion), "µs/job")
}

// TestNodesShareTheJobs: each job is compared by the node whose turn its partition is.
func TestNodesShareTheJobs(t *testing.T) {
	b := newBench(t)
	for i := range 3 * portion {
		b.put(fmt.Sprintf("name: j%d\nschedule: {cron: '*/10 * * * * *'}", i))
	}
	seen := map[job.ID]int{}
	for node := range int64(2) {
		s := &Scanner{Store: b.store, Turn: func(n int64) bool { return n%2 == node }, Log: b.scan.Log}
		for {
			over, err := s.Portion(t.Context())
			if b.must(err); over {
				break
			}
		}
		for uid := range s.known {
			seen[uid]++
		}
	}
	if len(seen) != 3*portion {
		t.Errorf("%d of %d jobs were compared", len(seen), 3*portion)
	}
	for uid, n := range seen {
		if n != 1 {
			t.Errorf("job %s was compared by %d nodes", uid, n)
		}
	}
}
