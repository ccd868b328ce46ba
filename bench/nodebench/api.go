package nodebench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The goals of the API.
const (
	pageGoal    = 20 * time.Millisecond
	createdGoal = 1500   // a second, one by one
	appliedGoal = 10_000 // a second, in a batch
)

const (
	// inFlight is the number of concurrent requests of the client.
	inFlight = 8
	// pagesRead is how many pages of a list are read once.
	pagesRead = 60
	// appliedAtOnce is how many documents a request may have.
	appliedAtOnce = 10_000
)

// api measures the API of a node whose store has many jobs and a long history, from
// a client that shares its processors.
func (b *bench) api(ctx context.Context) ([]Figure, error) {
	jobs, runs := b.scaled(100_000, 1000), b.scaled(1_000_000, 5000)
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
	if _, _, err := makeJobs(ctx, path, jobs, b.scaled(2100, 21), teamJob); err != nil {
		return nil, err
	}
	if err := makeHistory(ctx, path, jobs, runs); err != nil {
		return nil, err
	}
	s, err := b.serve(ctx, data)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	requests, err := bareRequests(ctx, b.Seconds)
	if err != nil {
		return nil, err
	}
	figures, err := s.pages(ctx, b.scaled(pagesRead, 3), append(s.jobLists(), s.runLists(time.Now())...))
	if err != nil {
		return nil, err
	}
	walked, err := s.whole(ctx)
	if err != nil {
		return nil, err
	}
	figures = append(figures, walked...)
	commits, err := bareInserts(ctx, filepath.Join(dir, "commits.db"), 1)
	if err != nil {
		return nil, err
	}
	created, err := s.making(func() (int, time.Duration, error) { return s.create(ctx, b.Seconds) })
	if err != nil {
		return nil, err
	}
	figures = append(figures, above(fmt.Sprintf("jobs created one by one, a second, %d requests in flight", inFlight), created.rate, b.scaledGoal(createdGoal)).
		beside(fmt.Sprintf("%s of a processor each; %s requests a second that do nothing; %s bare `INSERT` a second, each committed", times(created.own), number(requests, 0), number(commits, 0))))
	inserts, err := bareInserts(ctx, filepath.Join(dir, "inserts.db"), 500)
	if err != nil {
		return nil, err
	}
	applied, err := s.making(func() (int, time.Duration, error) {
		return s.applyAtOnce(ctx, b.scaled(appliedAtOnce, 100), b.scaled(5, 1))
	})
	if err != nil {
		return nil, err
	}
	figures = append(figures, above("jobs applied at once, a second", applied.rate, b.scaledGoal(appliedGoal)).
		beside(times(applied.own)+" of a processor each; "+number(inserts, 0)+" bare `INSERT` a second, in batches of 500"))
	return figures, s.stop()
}

// teamJob returns a job of one of some teams. One in a hundred mentions invoices.
func teamJob(i int, now time.Time) *job.Job {
	j := farJob(i, now)
	j.Labels = map[string]string{"team": fmt.Sprintf("team-%d", i%21)}
	if i%100 == 7 {
		j.Description = "Sends the invoices of the day."
	}
	return j
}

// historySpan is the time over which the history is spread: less than a text search covers.
const historySpan = client.TextWindow - 24*time.Hour

// makeHistory writes finished runs: nine of ten for all jobs in turn, the rest for the first
// hundred. One in a hundred failed.
func makeHistory(ctx context.Context, path string, jobs, runs int) (err error) {
	db, err := openToFill(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	step := int64(historySpan) / int64(runs)
	first := time.Now().Add(-historySpan).UnixNano()
	return execAll(ctx, db, append([]string{
		"begin immediate",
		fmt.Sprintf(`with recursive i(i) as (select 0 union all select i + 1 from i where i < %d - 1),
			r as (select i, %d + i * %d as ended, iif(i %% 10 = 0, i / 10 %% 100, i * 7919 %% %d) + 1 as job, i %% 100 = 50 as failed from i)
			insert into history (ended, run, attempt, job, is_final, outcome, kind, run_key, shard, shards, epoch, version, scheduled, due,
				next_attempt, held_slot, started, node, token, reason, exit_code, signal_name, http_status, params, parent, occurrences, last_scheduled, replaces, output_bytes)
			select ended, belfry_id(ended), 1, job, 1, iif(failed, 2, 1), 0, '', 0, 0, 1, 1, ended - 1000000000, ended - 1000000000,
				1, 0, ended - 990000000, 'bench', belfry_id(), iif(failed, 'exit code 1', ''), failed, '', 0, '', x'', 1, 0, 0, 120
			from r`, runs, first, step, jobs),
	}, append(countHistory(), "commit")...))
}

// countHistory returns the statements that count finished runs by slices, as a node does that has been running; the latest
// slices are left to it.
func countHistory() []string {
	until := time.Now().Add(-time.Hour).Truncate(store.Slice).UnixNano()
	return []string{
		fmt.Sprintf(`insert into slices (slice, job, outcome, occurrences, took, longest)
			select h.ended - h.ended %% %d, h.job, h.outcome, sum(h.occurrences), sum(h.ended - h.started), max(h.ended - h.started)
			from history h where h.ended < %d group by 1, 2, 3`, int64(store.Slice), until),
		fmt.Sprintf("update counters set value = %d where name = 'slices'", until),
	}
}

// apiOnServer measures the API with jobs on a database server.
func (b *bench) apiOnServer(ctx context.Context, on backend) ([]Figure, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p, err := on.make(dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := putTeams(ctx, p, b.scaled(100_000, 1000)); err != nil {
		return nil, err
	}
	s, err := b.join(ctx, filepath.Join(dir, "data"), "", "--store", p.address, "--name", "bench")
	if err != nil {
		return nil, err
	}
	defer s.kill()
	figures, err := s.pages(ctx, b.scaled(pagesRead, 3), s.jobLists())
	if err != nil {
		return nil, err
	}
	walked, err := s.whole(ctx)
	if err != nil {
		return nil, err
	}
	figures = append(figures, walked...)
	created, err := s.making(func() (int, time.Duration, error) { return s.create(ctx, b.Seconds) })
	if err != nil {
		return nil, err
	}
	figures = append(figures, above(fmt.Sprintf("jobs created one by one, a second, %d requests in flight", inFlight), created.rate, b.scaledGoal(createdGoal)).
		beside(times(created.own)+" of a processor each, of the server of the API"))
	return figures, s.stop()
}

// putTeams makes n jobs of teams.
func putTeams(ctx context.Context, p place, n int) error {
	s, err := p.open(ctx, 0)
	if err != nil {
		return err
	}
	var jobs []*job.Job
	now := time.Now()
	for i := range n {
		j := teamJob(i%2100, now)
		j.Name = fmt.Sprintf("job-%07d", i)
		jobs = append(jobs, j)
	}
	return errors.Join(putJobs(ctx, s, jobs), s.Close())
}

// list is a list of the API, with a function that reads a page.
type list struct {
	what string
	read func(ctx context.Context, token string) (items int, next string, err error)
}

// jobLists are lists of jobs.
func (s *server) jobLists() []list {
	jobPages := func(q client.JobQuery) func(context.Context, string) (int, string, error) {
		return func(ctx context.Context, token string) (int, string, error) {
			q.PageToken = token
			page, err := s.Jobs(ctx, q)
			return len(page.Items), page.NextPageToken, err
		}
	}
	return []list{
		{"jobs by name", jobPages(client.JobQuery{})},
		{"500 jobs by name", jobPages(client.JobQuery{PageSize: 500})},
		{"jobs by when they fall due", jobPages(client.JobQuery{Sort: client.ByNext})},
		{"jobs with a label, one of 21", jobPages(client.JobQuery{Labels: map[string]string{"team": "team-3"}})},
		{"the same by when they fall due", jobPages(client.JobQuery{Labels: map[string]string{"team": "team-3"}, Sort: client.ByNext})},
		{"jobs with a text, one of 100", jobPages(client.JobQuery{Text: "invoices"})},
		{"jobs with a text that none has", jobPages(client.JobQuery{Text: "nowhere"})},
	}
}

// runLists are lists of runs.
func (s *server) runLists(now time.Time) []list {
	runPages := func(q client.RunQuery) func(context.Context, string) (int, string, error) {
		return func(ctx context.Context, token string) (int, string, error) {
			q.PageToken = token
			page, err := s.Runs(ctx, q)
			return len(page.Items), page.NextPageToken, err
		}
	}
	return []list{
		{"runs", runPages(client.RunQuery{})},
		{"runs of a job", runPages(client.RunQuery{Job: "job-0000001"})},
		{"runs that have failed, one of 100", runPages(client.RunQuery{Outcomes: []job.Outcome{job.OutcomeFailed}})},
		{"runs of an hour", runPages(client.RunQuery{From: now.Add(-historySpan / 2), To: now.Add(-historySpan/2 + time.Hour)})},
		{"runs with a text, one of 100", runPages(client.RunQuery{Text: "exit code"})},
		{"runs with a text that none has", runPages(client.RunQuery{Text: "nowhere"})},
	}
}

// pages reads pages of each list, and reports the time of one.
func (s *server) pages(ctx context.Context, n int, lists []list) ([]Figure, error) {
	var figures []Figure
	for _, l := range lists {
		worked, err := s.worked()
		if err != nil {
			return nil, err
		}
		took, items := lateness{}, 0
		for token := ""; len(took) < n; {
			began := time.Now()
			got, next, err := l.read(ctx, token)
			if err != nil {
				return nil, fmt.Errorf("a page of %s: %w", l.what, err)
			}
			took = append(took, time.Since(began))
			items += got
			token = next // the first page follows the last
		}
		took.sort()
		own, err := s.worked()
		if err != nil {
			return nil, err
		}
		figures = append(figures, atMost("a page of "+l.what+", p50", took.quantile(.5), pageGoal).
			beside(fmt.Sprintf("p99 %s; %d items each, %s of a processor", times(took.quantile(.99)), items/len(took), times((own-worked)/time.Duration(len(took))))))
	}
	return figures, nil
}

// whole reads all pages of lists of jobs, and reports the time.
func (s *server) whole(ctx context.Context) (figures []Figure, err error) {
	lists := s.jobLists()
	for _, l := range []list{lists[1], lists[len(lists)-1]} {
		began, pages, items := time.Now(), 0, 0
		for token := ""; pages == 0 || token != ""; pages++ {
			got, next, err := l.read(ctx, token)
			if err != nil {
				return nil, fmt.Errorf("all pages of %s: %w", l.what, err)
			}
			items, token = items+got, next
		}
		figures = append(figures, fact("all pages of "+l.what, times(time.Since(began))).beside(fmt.Sprintf("%d pages, %d items", pages, items)))
	}
	return figures, nil
}

// worked returns how long the server has worked, in itself and in the kernel: on a shared machine
// it is more telling than the clock.
func (s *server) worked() (time.Duration, error) {
	own, _, err := processorTime(s.cmd.Process.Pid)
	return own, err
}

// made is a rate of creating jobs, with the processor time of each.
type made struct {
	rate float64
	own  time.Duration
}

// making measures do, which makes jobs and returns how many and how long it took.
func (s *server) making(do func() (n int, took time.Duration, err error)) (made, error) {
	before, err := s.worked()
	if err != nil {
		return made{}, err
	}
	n, took, err := do()
	if err != nil {
		return made{}, err
	}
	after, err := s.worked()
	return made{float64(n) / took.Seconds(), (after - before) / time.Duration(max(1, n))}, err
}

// create makes jobs one by one.
func (s *server) create(ctx context.Context, seconds int) (n int, took time.Duration, err error) {
	now := time.Now()
	var names atomic.Int64
	return inFlightFor(seconds, func() error {
		i := int(names.Add(1))
		j := farJob(i, now)
		j.Name = fmt.Sprintf("created-%d", i)
		document, err := client.DocumentOf(job.Document{Kind: job.KindJob, Job: j})
		if err == nil {
			_, err = s.CreateJob(ctx, document)
		}
		return err
	})
}

// applyAtOnce makes jobs by requests of n each.
func (s *server) applyAtOnce(ctx context.Context, each, requests int) (n int, took time.Duration, err error) {
	now := time.Now()
	for r := range requests {
		var request client.Apply
		for i := range each {
			j := farJob(i, now)
			j.Name = fmt.Sprintf("applied-%d-%d", r, i)
			document, err := client.DocumentOf(job.Document{Kind: job.KindJob, Job: j})
			if err != nil {
				return 0, 0, err
			}
			request.Documents = append(request.Documents, document)
		}
		began := time.Now()
		if _, err := s.Apply(ctx, request); err != nil {
			return 0, 0, err
		}
		took += time.Since(began)
	}
	return each * requests, took, nil
}

// inFlightFor calls do for some seconds, inFlight calls at once, and returns how often.
func inFlightFor(seconds int, do func() error) (n int, took time.Duration, err error) {
	var group sync.WaitGroup
	var done atomic.Int64
	failures := make(chan error, inFlight)
	began := time.Now()
	for range inFlight {
		group.Go(func() {
			for time.Since(began) < time.Duration(seconds)*time.Second {
				if err := do(); err != nil {
					failures <- err
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		return 0, 0, err
	default:
		return int(done.Load()), time.Since(began), nil
	}
}

// bareRequests returns the requests per second of an empty handler in the server's process.
func bareRequests(ctx context.Context, seconds int) (float64, error) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	defer s.Close()
	c, err := client.New(client.Config{URL: s.URL})
	if err != nil {
		return 0, err
	}
	document, err := client.DocumentOf(job.Document{Kind: job.KindJob, Job: farJob(0, time.Now())})
	if err != nil {
		return 0, err
	}
	n, took, err := inFlightFor(seconds, func() error {
		_, err := c.CreateJob(ctx, document)
		return err
	})
	return float64(n) / took.Seconds(), err
}

// bareInserts returns how many rows of the size of a definition a second can be
// inserted in transactions of n, each on disk before the next.
func bareInserts(ctx context.Context, path string, each int) (rate float64, err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "create table t (id integer primary key, text text)"); err != nil {
		return 0, err
	}
	insert, err := db.PrepareContext(ctx, "insert into t (text) values (?)")
	if err != nil {
		return 0, err
	}
	defer insert.Close()
	text := string(make([]byte, 200))
	n, began := 0, time.Now()
	for ; time.Since(began) < time.Second; n += each {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		insert := tx.StmtContext(ctx, insert) //nolint:sqlclosecheck // the transaction closes it at its end
		for range each {
			if _, err := insert.ExecContext(ctx, text); err != nil {
				return 0, errors.Join(err, tx.Rollback())
			}
		}
		if err := tx.Commit(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
