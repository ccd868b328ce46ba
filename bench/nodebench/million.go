package nodebench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	driversqlite "modernc.org/sqlite"

	"github.com/belfry-cron/belfry/internal/node/planner"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// The goals of a node with a million jobs.
const (
	millionReady  = 5 * time.Second
	millionMemory = 400 // MB
	millionTick   = time.Millisecond
)

// asServed are the options with a server's defaults.
var asServed = sqlite.Options{Defaults: served}

// million measures a node with a million jobs that do not fall due, and 10 more that do each
// second, to see whether they are affected.
func (b *bench) million(ctx context.Context) ([]Figure, error) {
	jobs, schedules := b.scaled(1_000_000, 2000), b.scaled(2100, 21)
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(data, "belfry.db")
	put, copied, err := makeJobs(ctx, path, jobs, schedules, farJob)
	if err != nil {
		return nil, err
	}
	ticks, err := measureTicks(ctx, path, b.scaled(1000, 20))
	if err != nil {
		return nil, err
	}

	s, err := b.serve(ctx, data)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	ready := s.started
	now, peak, err := memory(s.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	p, err := b.tiny(ctx)
	if err != nil {
		return nil, err
	}
	due := commandLoads[0]
	r, err := s.measure(ctx, p, due, due.jobs, b.Seconds, b.settling(), filepath.Join(dir, "starts"))
	if err != nil {
		return nil, err
	}
	_, highest, err := memory(s.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	longest, _, live, collections := s.said.collections(0)
	if err := s.stop(); err != nil {
		return nil, err
	}
	if err := r.read(due, due.jobs); err != nil {
		return nil, err
	}
	return []Figure{
		fact("to make the store", fmt.Sprintf("%.1f s", (put+copied).Seconds())).
			beside(fmt.Sprintf("%s jobs with all schedules put one by one in %.1f s, the others copied from them", number(float64(schedules), 0), put.Seconds())),
		atMost(fmt.Sprintf("from the start to ready, %s jobs, %s schedules", number(float64(jobs), 0), number(float64(schedules), 0)), ready, millionReady),
		below("resident memory, at its highest", highest, millionMemory, 0, " MB").
			beside(fmt.Sprintf("when ready %.0f MB, until then at most %.0f MB; in use after a garbage collection %.0f MB", now, peak, live)),
		atMost("a round of the planner with nothing due, median", ticks.quantile(.5), millionTick).beside("p99 " + times(ticks.quantile(.99))),
		atMost("longest pause of a garbage collection", longest, 0).beside(fmt.Sprintf("%d of them", collections)),
		below(fmt.Sprintf("10 commands each second beside them: not started, of %d", r.due), float64(r.due-r.started), 0, 0, ""),
		atMost("late, p50", r.late.quantile(.5), due.p50),
		atMost("late, p99", r.late.quantile(.99), due.p99),
	}, nil
}

// measureTicks returns the durations of rounds of an idle planner.
func measureTicks(ctx context.Context, path string, n int) (lateness, error) {
	s, err := sqlite.Open(ctx, path, asServed)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	session, err := job.NewID(time.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	p := planner.New(planner.Config{
		Store: s, Session: func() job.ID { return session }, Live: func() []store.Session { return nil },
		Partitions: func() store.Partitions { return store.AllPartitions }, Now: time.Now,
	})
	running, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { _ = p.Run(running) })
	defer group.Wait()
	defer stop()
	select {
	case <-p.Ready():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var took lateness
	for range n {
		began := time.Now()
		if err := p.Sync(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took.sort(), nil
}

// makeJobs makes a store with n jobs and some schedules. One job per schedule is put normally, and
// the rest are copies of its rows with other names and ids: the same rows as from the store, in a
// tenth of the time.
func makeJobs(ctx context.Context, path string, n, schedules int, made func(i int, now time.Time) *job.Job) (put, copied time.Duration, err error) {
	began := time.Now()
	s, err := sqlite.Open(ctx, path, asServed)
	if err != nil {
		return 0, 0, err
	}
	var jobs []*job.Job
	for i := range schedules {
		jobs = append(jobs, made(i, began))
	}
	if err := putJobs(ctx, s, jobs); err != nil {
		s.Close()
		return 0, 0, err
	}
	if err := s.Close(); err != nil {
		return 0, 0, err
	}
	put = time.Since(began)
	began = time.Now()
	err = copyJobs(ctx, path, n, schedules)
	return put, time.Since(began), err
}

// farJob returns the job with a number; several share a schedule.
func farJob(i int, now time.Time) *job.Job {
	return &job.Job{
		Name: fmt.Sprintf("job-%07d", i), Schedule: job.Schedule{Cron: []string{farSchedule(i, now)}},
		Run: job.RunSpec{Shell: &job.Shell{Command: "/usr/local/bin/report --for customer --number 17"}},
	}
}

// farSchedule returns the schedule with a number, due half a year from now: the measured jobs do
// not run.
func farSchedule(i int, now time.Time) string {
	const days = 20 // from the fifth of a month
	return fmt.Sprintf("%d %d %d %d *", i%60, i/60%24, 5+i/1440%days, (int(now.Month())+5)%12+1)
}

// copied are the tables that each job has a row in, with the column of the job's
// id and what is different in the copies: i is the number of the copy, uid its id
// and name its name.
var copied = []struct {
	table, uid string
	differs    map[string]string
}{
	{"names", "uid", map[string]string{"n": "base.n + i", "uid": "c.uid", "name": "c.name"}},
	{"jobs", "uid", map[string]string{"uid": "c.uid", "seq": "base.seq + i", "part": "belfry_partition(c.uid)", "live": "'default/' || c.name", "definition": renamed}},
	{"job_state", "uid", map[string]string{"uid": "c.uid", "seq": "base.seq + i"}},
	{"revisions", "job", map[string]string{"job": "c.uid", "definition": renamed}},
}

const renamed = "replace(t.definition, c.old, c.name)"

var register = sync.OnceValue(func() error {
	id := func(_ *driversqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		now := time.Now()
		if len(args) > 0 {
			at, ok := args[0].(int64)
			if !ok {
				return nil, fmt.Errorf("%v is not a moment", args[0])
			}
			now = time.Unix(0, at)
		}
		id, err := job.NewID(now, rand.Reader)
		return id[:], err
	}
	partition := func(_ *driversqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		uid, ok := args[0].([]byte)
		if !ok || len(uid) != len(job.ID{}) {
			return nil, fmt.Errorf("%v is not an id", args[0])
		}
		return int64(job.Partition(job.ID(uid))), nil
	}
	if err := driversqlite.RegisterScalarFunction("belfry_id", -1, id); err != nil {
		return err
	}
	return driversqlite.RegisterDeterministicScalarFunction("belfry_partition", 1, partition)
})

// copyJobs copies jobs until there are n.
func copyJobs(ctx context.Context, path string, n, schedules int) error {
	db, err := openToFill(path)
	if err != nil {
		return err
	}
	defer db.Close()
	script := []string{
		"begin immediate",
		"create temp table base as select (select max(n) from names) as n, (select max(seq) from jobs) as seq",
		"create temp table templates (k integer primary key, uid blob, name text)",
		"insert into templates (k, uid, name) select n - 1, uid, name from names",
		fmt.Sprintf(`create temp table copies as with recursive i(i) as (select 1 union all select i + 1 from i where i < %d)
			select i.i as i, belfry_id() as uid, printf('job-%%07d', i.i + %d - 1) as name, t.uid as template, t.name as old
			from i cross join templates t on t.k = i.i %% %d`, n-schedules, schedules, schedules),
	}
	for _, c := range copied {
		statement, err := copyRows(ctx, db, c.table, c.uid, c.differs)
		if err != nil {
			return err
		}
		script = append(script, statement)
	}
	script = append(script,
		"update counters set value = (select max(seq) from jobs) where name = 'change'",
		"commit",
	)
	if err := execAll(ctx, db, script); err != nil {
		return fmt.Errorf("copy jobs: %w", err)
	}
	var there int
	if err := db.QueryRowContext(ctx, "select count(*) from job_state").Scan(&there); err != nil {
		return err
	}
	if there != n {
		return fmt.Errorf("%d of %d jobs are in the store", there, n)
	}
	return nil
}

// openToFill opens an unused store for bulk writes.
func openToFill(path string) (*sql.DB, error) {
	if err := register(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(off)&_pragma=synchronous(off)&_pragma=temp_store(memory)&_pragma=cache_size(-200000)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func execAll(ctx context.Context, db *sql.DB, script []string) error {
	for _, statement := range script {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%w in: %s", err, statement)
		}
	}
	return nil
}

// copyRows returns the statement that copies the rows of a table. Columns unknown to it are equal
// in the copies.
func copyRows(ctx context.Context, db *sql.DB, table, uid string, differs map[string]string) (string, error) {
	rows, err := db.QueryContext(ctx, "select name from pragma_table_info(?)", table)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var columns, values []string
	for rows.Next() {
		var column string
		if err := rows.Scan(&column); err != nil {
			return "", err
		}
		value, ok := differs[column]
		if !ok {
			value = "t." + column
		}
		columns, values = append(columns, column), append(values, value)
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	for column := range differs {
		if !slices.Contains(columns, column) {
			return "", fmt.Errorf("the table %s has no column %s any more", table, column)
		}
	}
	return fmt.Sprintf("insert into %s (%s) select %s from copies c cross join base join %s t on t.%s = c.template order by c.rowid",
		table, strings.Join(columns, ", "), strings.Join(values, ", "), table, uid), nil
}
