package nodebench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The least cost of a run on PostgreSQL: planning, claiming and recording its end are a statement
// and a commit each, for many runs at once. They make the necessary checks, but rows have only the
// columns for that, keys have 8 bytes, and there is one more index.
const (
	bareSchema = `
create table job_state (
  uid bigint primary key, cursor_at bigint not null, epoch bigint not null, running bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
create table active (
  id bigint primary key, job bigint not null, due bigint not null, epoch bigint not null,
  session bigint not null, token bigint not null, attempt integer not null, state smallint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index active_session on active (session, due);
create table history (
  day integer not null, run bigint not null, attempt integer not null, job bigint not null, due bigint not null,
  ended bigint not null, outcome smallint not null, primary key (day, run, attempt)
)`
	bareJobs = `insert into job_state select n, 0, 1, 0 from generate_series(1, $1) n`
	barePlan = `
with planned as (select * from unnest($1::bigint[], $2::bigint[]) as t (job, id)),
  moved as (update job_state j set cursor_at = $4 from planned p where j.uid = p.job and j.cursor_at = $3 and j.epoch = 1 returning p.*)
insert into active select id, job, $4, 1, $5, 0, 1, 0 from moved`
	bareClaim = `
with free as (
    select a.id, a.job from active a join job_state j on j.uid = a.job
    where a.id = any($1) and a.state = 0 and a.epoch = j.epoch and j.running < 100 order by a.job, a.id for update of j, a),
  taken as (update job_state j set running = running + f.n from (select job, count(*) n from free group by job) f where j.uid = f.job)
update active a set state = 2, token = $2 from free f where a.id = f.id`
	bareFinish = `
with gone as (delete from active where id = any($1) and token = $2 and state = 2 returning *),
  freed as (update job_state j set running = running - 1 from gone g where j.uid = g.job)
insert into history select $3::bigint / 86400000000000, id, attempt, job, due, $3, 1 from gone`

	bareTogether    = 500
	bareConnections = 4
	bareSeconds     = 10
)

// runBare measures how many runs per second these statements take from planned to finished.
func (b *bench) runBare(ctx context.Context) (r caughtUp, err error) {
	p, err := onPostgres.make("")
	if err != nil {
		return r, err
	}
	defer p.close()
	pool, err := p.connect(ctx, bareConnections)
	if err != nil {
		return r, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, bareSchema); err != nil {
		return r, err
	}
	if _, err := pool.Exec(ctx, bareJobs, bareConnections*bareTogether); err != nil {
		return r, err
	}
	own, server, err := p.spent()
	if err != nil {
		return r, err
	}
	began := time.Now()
	until := began.Add(time.Duration(b.scaled(bareSeconds, 1)) * time.Second)
	var group sync.WaitGroup
	var rounds [bareConnections]int
	var failed [bareConnections]error
	for c := range rounds {
		group.Go(func() {
			for ; failed[c] == nil && time.Now().Before(until); rounds[c]++ {
				failed[c] = bareRound(ctx, pool, c, rounds[c])
			}
		})
	}
	group.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		return r, err
	}
	r.took = time.Since(began)
	for _, n := range rounds {
		r.finished += n * bareTogether
	}
	return r, r.charge(p, own, server)
}

// bareRound takes a run of each of the jobs of a connection from planned to finished.
func bareRound(ctx context.Context, pool *pgxpool.Pool, connection, round int) error {
	jobs, ids := make([]int64, bareTogether), make([]int64, bareTogether)
	for i := range jobs {
		jobs[i] = int64(connection*bareTogether + i + 1)
		ids[i] = int64(connection)<<48 + int64(round*bareTogether+i)
	}
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{barePlan, []any{jobs, ids, round, round + 1, connection}},
		{bareClaim, []any{ids, connection + 1}},
		{bareFinish, []any{ids, connection + 1, time.Now().UnixNano()}},
	} {
		done, err := pool.Exec(ctx, step.sql, step.args...)
		if err != nil {
			return err
		}
		if done.RowsAffected() != bareTogether {
			return fmt.Errorf("%d of %d runs were written by: %s", done.RowsAffected(), bareTogether, step.sql)
		}
	}
	return nil
}
