package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // for database/sql, as a comparison

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
)

// tally makes ids for benchmarks: ordered by time, and cheap.
type tally struct {
	mu sync.Mutex
	n  uint64
	at uint64
}

func (i *tally) next() (id job.ID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	if i.n%256 == 1 {
		i.at = uint64(time.Now().UnixMilli()) << 16
	}
	binary.BigEndian.PutUint64(id[:8], i.at)
	// Spread as random ids are.
	binary.BigEndian.PutUint64(id[8:], i.n*0x9e3779b97f4a7c15)
	return id
}

// sized returns the full number, or few with testing.Short, which only checks that benchmarks still
// run.
func sized(full, few int) int {
	if testing.Short() {
		return few
	}
	return full
}

// benchStore opens a store with jobs, and a node that has joined.
func benchStore(b testing.TB, jobs int, policy job.Policy) (s *Store, session job.ID, list []*store.Job) {
	return benchStoreAt(b, time.Now, jobs, policy)
}

func benchStoreAt(b testing.TB, now func() time.Time, jobs int, policy job.Policy) (s *Store, session job.ID, list []*store.Job) {
	s = openStore(b, filepath.Join(b.TempDir(), "belfry.db"), Options{LookAhead: time.Hour, Now: now})
	ctx := b.Context()
	id, err := job.NewID(time.Now(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	joined, err := s.Join(ctx, store.Session{ID: id, Node: "a", Machine: "m", DataDir: "d", Capacity: 1000})
	if err != nil {
		b.Fatal(err)
	}
	list = make([]*store.Job, jobs)
	var wg sync.WaitGroup
	for part := range 64 {
		wg.Go(func() {
			for i := part; i < jobs; i += 64 {
				j, err := store.PutOne(ctx, s, store.PutJob{Definition: benchJob(i, policy), Actor: "bench"})
				if err != nil {
					b.Error(err)
					return
				}
				list[i] = j
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return s, joined.ID, list
}

func benchJob(i int, policy job.Policy) *job.Job {
	return &job.Job{
		Name:     fmt.Sprintf("job-%07d", i),
		Schedule: job.Schedule{Cron: []string{fmt.Sprintf("%d %d * * *", i%60, i/60%24)}},
		Run:      job.RunSpec{Shell: &job.Shell{Command: fmt.Sprintf("report --number %d", i)}},
		Policy:   policy,
	}
}

// lives takes n runs from planned to finished with history, in batches of several concurrent
// flushers, whose claims and results share commits.
type lives struct {
	s       *Store
	session job.ID
	jobs    []*store.Job
	cursors []time.Time // of the jobs
	ids     *tally
	output  int // bytes per run
}

func newLives(s *Store, session job.ID, jobs []*store.Job, output int) *lives {
	l := &lives{s: s, session: session, jobs: jobs, cursors: make([]time.Time, len(jobs)), ids: &tally{}, output: output}
	for i, j := range jobs {
		l.cursors[i] = j.Cursor
	}
	return l
}

// run takes n runs per flusher from planned to finished.
func (l *lives) run(ctx context.Context, round, n, batch, flushers int) error {
	errs := make(chan error, flushers)
	share := len(l.jobs) / flushers
	for f := range flushers {
		go func() { errs <- l.flush(ctx, f*share, share, round*n, n, batch) }()
	}
	var first error
	for range flushers {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// plan returns items for the next occurrences of jobs, and their attempts.
func (l *lives) plan(from, n int) ([]store.PlanItem, []store.Attempt) {
	items, attempts := make([]store.PlanItem, n), make([]store.Attempt, n)
	for i := range n {
		k := from + i
		to := l.cursors[k].Add(time.Microsecond)
		items[i] = store.PlanItem{
			Job: l.jobs[k].Definition.UID, Epoch: l.jobs[k].Definition.Epoch, From: l.cursors[k], To: to,
			Runs: []store.NewRun{{ID: l.ids.next(), Session: l.session, Scheduled: to, Due: to}},
		}
		l.cursors[k] = to
		attempts[i] = store.Attempt{Run: items[i].Runs[0].ID, Number: 1, Token: l.ids.next()}
	}
	return items, attempts
}

// flush uses the jobs of a share, one after another.
func (l *lives) flush(ctx context.Context, share, size, at, n, batch int) error {
	for done := 0; done < n; done += batch {
		from := share + (at+done)%(size-size%batch)
		items, attempts := l.plan(from, batch)
		planned, _, err := l.s.Plan(ctx, l.session, items)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(planned, func(o store.PlanOutcome) bool { return o != store.Planned }); i >= 0 {
			return fmt.Errorf("item %d was not planned: %d", i, planned[i])
		}
		claimed, err := l.s.Claim(ctx, l.session, attempts)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(claimed, func(o store.ClaimOutcome) bool { return o.Verdict != store.Started }); i >= 0 {
			return fmt.Errorf("run %d was not started: %d %s", i, claimed[i].Verdict, claimed[i].Reason)
		}
		finished, err := l.s.Finish(ctx, l.session, l.results(attempts))
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(finished, func(o store.FinishOutcome) bool { return !o.Accepted }); i >= 0 {
			return fmt.Errorf("result %d was not accepted", i)
		}
	}
	return nil
}

func (l *lives) results(attempts []store.Attempt) []store.Result {
	results := make([]store.Result, len(attempts))
	now := time.Now().UTC()
	for i, a := range attempts {
		results[i] = store.Result{Attempt: a, Started: now, Ended: now.Add(time.Millisecond), Outcome: job.OutcomeSucceeded}
		if l.output > 0 {
			results[i].OutputBytes = int64(l.output)
			results[i].Output = []store.OutputChunk{{Run: a.Run, Attempt: 1, Bytes: l.output, Time: now, Data: make([]byte, l.output)}}
		}
	}
	return results
}

// BenchmarkLife measures the durable rate from planned to finished, with history
// and every index, and the limit beside it: rows of the same size that are
// inserted by bare statements into a table without a second index, in the same
// batches, on the same disk, just before.
func BenchmarkLife(b *testing.B) {
	cases := []struct {
		name                    string
		batch, flushers, output int
		overlap                 job.Overlap
	}{
		{"batch=500", 500, 1, 0, ""},
		{"batch=500/flushers=2", 500, 2, 0, ""},
		{"batch=500/output=200B", 500, 1, 200, ""},
		{"batch=500/overlap=allow", 500, 1, 0, job.OverlapAllow},
		{"batch=100/flushers=4", 100, 4, 0, ""},
		{"batch=20/flushers=8", 20, 8, 0, ""},
		{"batch=1/flushers=8", 1, 8, 0, ""},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			s, session, jobs := benchStore(b, sized(10_000, 1000), job.Policy{Overlap: c.overlap})
			limit := insertLimit(b, c.batch)
			l := newLives(s, session, jobs, c.output)
			n := 0
			begun, cpu := time.Now(), storetest.CPUTime(b)
			for b.Loop() {
				if err := l.run(b.Context(), n, c.batch, c.batch, c.flushers); err != nil {
					b.Fatal(err)
				}
				n++
			}
			n *= c.batch * c.flushers
			rate := float64(n) / time.Since(begun).Seconds()
			b.ReportMetric(rate, "runs/s")
			b.ReportMetric(float64((storetest.CPUTime(b)-cpu).Microseconds())/float64(n), "cpu-us/run")
			b.ReportMetric(limit, "rawrows/s")
			if log, err := os.Stat(s.d.path + "-wal"); err == nil {
				b.ReportMetric(float64(log.Size())/(1<<20), "wal-MB")
			}
			b.ReportMetric(rate/limit, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// insertLimit returns how many rows a second can be inserted in batches.
func insertLimit(b testing.TB, batch int) float64 {
	c, err := connect(filepath.Join(b.TempDir(), "limit.db"), true, "create table t (id blob primary key, a integer, b text) without rowid")
	if err != nil {
		b.Fatal(err)
	}
	defer c.close()
	ids := &tally{}
	text := string(make([]byte, 120))
	n := 0
	begun := time.Now()
	for time.Since(begun) < time.Duration(sized(500, 1))*time.Millisecond {
		err := inTransaction(c, func() error {
			for range batch {
				if err := c.stmt("insert into t (id, a, b) values (?, ?, ?)").bindID(ids.next()).bindInt(int64(n)).bindText(text).exec(); err != nil {
					return err
				}
				n++
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return float64(n) / time.Since(begun).Seconds()
}

// BenchmarkClaim10000 claims 10,000 runs due at one instant in batches, and reports the time of a
// batch.
func BenchmarkClaim10000(b *testing.B) {
	const runs = 10_000
	s, session, jobs := benchStore(b, runs, job.Policy{})
	l := newLives(s, session, jobs, 0)
	var took []time.Duration
	var whole time.Duration
	for b.Loop() {
		var attempts []store.Attempt
		for from := 0; from < runs; from += store.MaxBatch {
			items, batch := l.plan(from, store.MaxBatch)
			if _, _, err := s.Plan(b.Context(), session, items); err != nil {
				b.Fatal(err)
			}
			attempts = append(attempts, batch...)
		}
		begun := time.Now()
		for batch := range slices.Chunk(attempts, 100) {
			one := time.Now()
			claimed, err := s.Claim(b.Context(), session, batch)
			if err != nil || claimed[0].Verdict != store.Started {
				b.Fatal(claimed, err)
			}
			took = append(took, time.Since(one))
		}
		whole += time.Since(begun)
		for batch := range slices.Chunk(attempts, store.MaxBatch) {
			var results []store.Result
			for _, a := range batch {
				results = append(results, store.Result{Attempt: a, Outcome: job.OutcomeSucceeded})
			}
			if _, err := s.Finish(b.Context(), session, results); err != nil {
				b.Fatal(err)
			}
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms/100")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms/100")
	b.ReportMetric(float64(whole.Milliseconds())/float64(b.N), "ms/10000")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkJobsChanged reads the planner's data of a million jobs, as at its start.
func BenchmarkJobsChanged(b *testing.B) {
	n := sized(1_000_000, 20_000)
	s, _, _ := benchStore(b, 1, job.Policy{})
	err := s.write(b.Context(), func(t *tx) error {
		return t.c.exec(fmt.Sprintf(`
			create temp table one as select * from job_state;
			create temp table said as select * from jobs;
			delete from job_state;
			delete from jobs;
			with recursive i(x) as (select 1 union all select x + 1 from i where x < %[1]d)
			insert into job_state select unhex(printf('019AAAAAAAAAAAAA%%016X', i.x)), i.x, version, epoch, state, deleted, cursor_at, floor_at,
				planner, planned, failures, previous, previous_ok, completed, previous_failed, epoch_why
			from i cross join one;
			with recursive i(x) as (select 1 union all select x + 1 from i where x < %[1]d)
			insert into jobs select unhex(printf('019AAAAAAAAAAAAA%%016X', i.x)), i.x, version, i.x & 255, 'default/' || i.x, boot, created, changed,
				deleted_at, paused_at, paused_until, paused_by, pause_reason, remove_at, keep_runs, keep_for, keep_output, timing, definition
			from i cross join said;`, n))
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		since, loaded := int64(0), 0
		for {
			list, next, err := s.JobsChanged(b.Context(), store.AllPartitions, since, 10_000)
			if err != nil {
				b.Fatal(err)
			}
			if since, loaded = next, loaded+len(list); len(list) == 0 {
				break
			}
		}
		if loaded != n {
			b.Fatalf("%d of %d jobs", loaded, n)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "jobs/s")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/(1<<20), "MB")
}

// BenchmarkPutJob creates jobs, from many concurrent callers and from one.
func BenchmarkPutJob(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := openStore(b, filepath.Join(b.TempDir(), "belfry.db"), Options{})
			n, cpu := 0, storetest.CPUTime(b)
			for b.Loop() {
				var wg sync.WaitGroup
				for range callers {
					i := n
					n++
					wg.Go(func() {
						if _, err := store.PutOne(b.Context(), s, store.PutJob{Definition: benchJob(i, job.Policy{})}); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "jobs/s")
			b.ReportMetric(float64((storetest.CPUTime(b)-cpu).Microseconds())/float64(n), "cpu-us/job")
		})
	}
}

// BenchmarkStatements compares the ways to SQLite: rows read and updated one by
// one by their ids, by this package's connection and by database/sql.
func BenchmarkStatements(b *testing.B) {
	rows := sized(50_000, 1000)
	path := filepath.Join(b.TempDir(), "statements.db")
	c, err := connect(path, true, "create table t (id blob primary key, a integer, b text) without rowid")
	if err != nil {
		b.Fatal(err)
	}
	defer c.close()
	ids := make([]job.ID, rows)
	next := &tally{}
	err = inTransaction(c, func() error {
		for i := range ids {
			ids[i] = next.next()
			if err := c.stmt("insert into t (id, a, b) values (?, ?, 'hello')").bindID(ids[i]).bindInt(int64(i)).exec(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(full)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	selected, err := db.Prepare("select id, a, b from t where id = ?")
	if err != nil {
		b.Fatal(err)
	}
	defer selected.Close()
	b.Run("read/conn", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			q := c.stmt("select id, a, b from t where id = ?").bindID(ids[i*31%rows])
			for q.next() {
				_, _, _ = q.id(), q.int(), q.text()
			}
			if err := q.err(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read/sql", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			var id sql.RawBytes
			var a int64
			var text string
			list, err := selected.QueryContext(b.Context(), ids[i*31%rows][:])
			if err != nil {
				b.Fatal(err)
			}
			for list.Next() {
				if err := list.Scan(&id, &a, &text); err != nil {
					b.Fatal(err)
				}
			}
			list.Close() //nolint:sqlclosecheck // one of many in a loop
		}
	})
}

// BenchmarkSearch searches a long history for a text that does not occur: the time of one call at
// its beginning, and at its end.
func BenchmarkSearch(b *testing.B) {
	parts := sized(30, 3) // of store.LookMax records
	s, session, jobs := benchStore(b, 1, job.Policy{})
	now := time.Now()
	ids := &tally{}
	item := store.PlanItem{Job: jobs[0].Definition.UID, Epoch: jobs[0].Definition.Epoch, To: jobs[0].Cursor}
	batches := parts * store.LookMax / 1000
	time.Sleep(time.Until(jobs[0].Cursor.Add(time.Duration(batches) * time.Millisecond))) // all are due
	for range batches {
		item.From, item.To, item.Missed = item.To, item.To.Add(time.Millisecond), nil
		for i := range 1000 {
			at := item.From.Add(time.Duration(i+1) * time.Microsecond)
			item.Missed = append(item.Missed, store.MissedSpan{ID: ids.next(), First: at, Last: at, Count: 1, Reason: job.Text("no node planned it in time")})
		}
		if outcomes, _, err := s.Plan(b.Context(), session, []store.PlanItem{item}); err != nil || outcomes[0] != store.Planned {
			b.Fatal(outcomes, err)
		}
	}
	q := store.HistoryQuery{Text: "nowhere", From: now.Add(-time.Hour), Limit: 100}
	for _, place := range []string{"beginning", "end"} {
		b.Run(place, func(b *testing.B) {
			for b.Loop() {
				list, next, err := s.Attempts(b.Context(), q)
				if err != nil || len(list) > 0 || next == (store.RecordRef{}) {
					b.Fatal(len(list), next, err)
				}
			}
		})
		for range parts - 2 {
			var err error
			if _, q.Before, err = s.Attempts(b.Context(), q); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkListJobs lists a page of many jobs, and searches for a text that does not occur.
func BenchmarkListJobs(b *testing.B) {
	s, _, _ := benchStore(b, sized(100_000, 1000), job.Policy{})
	for _, bm := range []struct {
		name  string
		query store.JobQuery
		found int
	}{
		{"page", store.JobQuery{Limit: 100}, 100},
		{"text", store.JobQuery{Limit: 100, Text: "nowhere"}, 0},
		{"label", store.JobQuery{Limit: 100, Labels: map[string]string{"no": "where"}}, 0},
		{"state", store.JobQuery{Limit: 100, State: job.JobPaused}, 0},
	} {
		b.Run(bm.name, func(b *testing.B) {
			for b.Loop() {
				list, next, err := s.ListJobs(b.Context(), bm.query)
				if err != nil || len(list) != bm.found {
					b.Fatal(len(list), err)
				}
				bm.query.After = next
			}
		})
	}
}

// BenchmarkExpire is one step of removing old records: how long it blocks other writes.
func BenchmarkExpire(b *testing.B) {
	clock := time.Now()
	s, session, jobs := benchStoreAt(b, func() time.Time { return clock }, 1, job.Policy{})
	ids := &tally{}
	item := store.PlanItem{Job: jobs[0].Definition.UID, Epoch: jobs[0].Definition.Epoch, To: jobs[0].Cursor}
	for b.Loop() {
		b.StopTimer()
		clock = clock.Add(time.Hour)
		item.From, item.To, item.Missed = item.To, clock, nil
		for i := range store.ExpireMax {
			at := item.From.Add(time.Duration(i+1) * time.Microsecond)
			item.Missed = append(item.Missed, store.MissedSpan{ID: ids.next(), First: at, Last: at, Count: 1})
		}
		if outcomes, _, err := s.Plan(b.Context(), session, []store.PlanItem{item}); err != nil || outcomes[0] != store.Planned {
			b.Fatal(outcomes, err)
		}
		clock = clock.Add(time.Hour)
		b.StartTimer()
		if _, err := s.Expire(b.Context(), store.Retention{For: time.Minute}); err != nil {
			b.Fatal(err)
		}
	}
}
