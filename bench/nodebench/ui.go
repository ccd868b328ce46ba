package nodebench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// uiGoal bounds the server's time for a page of the web UI.
const uiGoal = 100 * time.Millisecond

// ui measures the server's time for pages of the web UI with many jobs and a long history.
func (b *bench) ui(ctx context.Context) ([]Figure, error) {
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
	return b.uiPages(ctx, s)
}

// uiOnServer measures the same pages with PostgreSQL, whose history is partitioned by day.
func (b *bench) uiOnServer(ctx context.Context) ([]Figure, error) {
	jobs, runs := b.scaled(100_000, 1000), b.scaled(1_000_000, 5000)
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p, err := onPostgres.make(dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := putTeams(ctx, p, jobs); err != nil {
		return nil, err
	}
	if err := fillPostgres(ctx, p, jobs, runs); err != nil {
		return nil, fmt.Errorf("fill the history: %w", err)
	}
	s, err := b.join(ctx, filepath.Join(dir, "data"), "", "--store", p.address, "--name", "bench")
	if err != nil {
		return nil, err
	}
	defer s.kill()
	return b.uiPages(ctx, s)
}

// fillPostgres is makeHistory for PostgreSQL.
func fillPostgres(ctx context.Context, p place, jobs, runs int) error {
	address, err := url.Parse(p.address)
	if err != nil {
		return err
	}
	pool, err := p.connect(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "set search_path to "+address.Query().Get("schema")); err != nil {
		return err
	}
	const day = 24 * time.Hour
	step, first := int64(historySpan)/int64(runs), time.Now().Add(-historySpan)
	for at := first.Truncate(day); at.Before(time.Now().Add(-day)); at = at.Add(day) {
		_, err := pool.Exec(ctx, fmt.Sprintf("create table if not exists history_%s partition of history for values from (%d) to (%d)", at.UTC().Format("20060102"), at.UnixNano(), at.Add(day).UnixNano()))
		if err != nil {
			return err
		}
	}
	_, err = pool.Exec(ctx, fmt.Sprintf(`insert into history (ended, run, attempt, job, is_final, outcome, kind, run_key, shard, shards, epoch, version, scheduled, due,
			next_attempt, held_slot, started, node, token, reason, exited, exit_code, signal_name, http_status, params, parent, occurrences, last_scheduled, replaces, output_bytes, unmet)
		select r.ended, decode(lpad(to_hex(r.ended / 1000000), 12, '0') || substr(md5(r.i::text), 1, 20), 'hex'), 1, j.uid, 1, case when r.i %% 100 = 50 then 2 else 1 end, 0, '', 0, 0, 1, 1,
			r.ended - 1000000000, r.ended - 1000000000, 1, 0, r.ended - 990000000, 'bench', decode(md5(r.i::text), 'hex'), case when r.i %% 100 = 50 then 'exit code 1' else '' end,
			1, case when r.i %% 100 = 50 then 1 else 0 end, '', 0, '', '', 1, 0, 0, 120, ''
		from (select i, %d + i * %d as ended, case when i %% 10 = 0 then i / 10 %% 100 else i * 7919 %% %d end as job from generate_series(0::bigint, %d - 1) i) r
		join (select uid, row_number() over (order by name) - 1 as k from names) j on j.k = r.job`, first.UnixNano(), step, jobs, runs))
	if err != nil {
		return err
	}
	for _, statement := range append(countHistory(), "analyze") {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// uiPage is a page of the web UI.
type uiPage struct{ name, path string }

// uiPages reads each page many times: with nothing beside, in Chromium, and while runs end.
func (b *bench) uiPages(ctx context.Context, s *server) ([]Figure, error) {
	browser, err := s.browser(ctx)
	if err != nil {
		return nil, err
	}
	pages, err := s.uiList(ctx)
	if err != nil {
		return nil, err
	}
	figures, err := b.reads(ctx, s, browser, pages, "", time.Time{})
	if err != nil {
		return nil, err
	}
	tab, leave, err := b.chromium(ctx, s)
	defer leave()
	if err != nil {
		return nil, err
	}
	if tab == nil {
		figures = append(figures, fact("what Chromium shows", "not measured: there is no Chromium"))
	} else if painted, err := b.painted(ctx, tab, s); err != nil {
		return nil, err
	} else {
		figures = append(figures, painted...)
	}
	if err := s.tick(ctx); err != nil {
		return nil, err
	}
	loaded, err := b.reads(ctx, s, browser, pages, fmt.Sprintf(", with %d runs a second", ticking), time.Now().Add(b.Hold))
	if err != nil {
		return nil, err
	}
	figures = append(figures, loaded...)
	if tab != nil {
		busy, err := b.unused(ctx, tab, s, "while runs end")
		if err != nil {
			return nil, err
		}
		for i := range ticking {
			if _, err := s.DeleteJob(ctx, "bench", tickName(i), 0, ""); err != nil {
				return nil, err
			}
		}
		quiet, err := b.unused(ctx, tab, s, "without changes")
		if err != nil {
			return nil, err
		}
		figures = slices.Concat(figures, busy, quiet)
	}
	return figures, s.stop()
}

// uiList returns the pages. The first has no data of its own: what the frame around each of them takes.
func (s *server) uiList(ctx context.Context) ([]uiPage, error) {
	const one = "/jobs/default/job-0000001"
	list := []uiPage{
		{"a page without data", "/jobs/import"}, {"Overview", "/"}, {"Wall", "/wall"},
		{"Jobs", "/jobs"}, {"Jobs by when they fall due", "/jobs?sort=next"}, {"Jobs with a label, one of 21", "/jobs?q=label:team=team-3"},
		{"Jobs by their last failure", "/jobs?sort=failure"}, {"Jobs that fail", "/jobs?state=failing"}, {"Jobs that never ran", "/jobs?state=never_ran"},
		{"Runs", "/runs"}, {"Runs that failed, one of 100", "/runs?outcome=failed"},
		{"a Job", one}, {"its Schedule", one + "/schedule"}, {"its Definition", one + "/definition"}, {"its Statistics", one + "/statistics"}, {"its editor", one + "/edit"},
		{"Timeline", "/timeline"}, {"a week of it", "/timeline?view=week"}, {"Flows", "/flows"}, {"Nodes", "/nodes"}, {"Executors", "/executors"},
		{"Notifications", "/notifications"}, {"Audit", "/audit"}, {"Settings", "/settings"}, {"Calendars, pools, windows, secrets", "/shared"},
	}
	for name, outcome := range map[string]job.Outcome{"a run that succeeded": job.OutcomeSucceeded, "a run that failed": job.OutcomeFailed} {
		runs, err := s.Runs(ctx, client.RunQuery{Outcomes: []job.Outcome{outcome}, PageSize: 1})
		if err != nil {
			return nil, err
		}
		if len(runs.Items) > 0 {
			list = append(list, uiPage{name, "/runs/" + runs.Items[0].ID.String()})
		}
	}
	return list, nil
}

// reads reads the pages in turn, until each was read often enough, and until a time.
func (b *bench) reads(ctx context.Context, s *server, browser *browser, pages []uiPage, beside string, until time.Time) ([]Figure, error) {
	took, first, worked := make([]lateness, len(pages)), make([]time.Duration, len(pages)), make([]time.Duration, len(pages))
	failed := make([]error, len(pages)) // the last failure of each
	for n := 0; n < b.scaled(pagesRead, 3) || time.Now().Before(until); n++ {
		for i, page := range pages {
			before, err := s.worked()
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if err := browser.get(ctx, s.url+page.path); ctx.Err() != nil {
				return nil, ctx.Err()
			} else if err != nil {
				failed[i] = err
			}
			took[i] = append(took[i], time.Since(began))
			after, err := s.worked()
			if err != nil {
				return nil, err
			}
			worked[i] += after - before
			if n == 0 {
				first[i] = took[i][0]
			}
		}
	}
	var figures []Figure
	for i, page := range pages {
		n := time.Duration(len(took[i]))
		took[i].sort()
		f := atMost(page.name+beside+", p95", took[i].quantile(.95), uiGoal).
			beside(fmt.Sprintf("the first %s, p50 %s; %s of a processor", times(first[i]), times(took[i].quantile(.5)), times(worked[i]/n)))
		if failed[i] != nil {
			f.missed, f.Limit = true, fmt.Sprintf("%s; it has failed: %v", f.Limit, failed[i])
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// ticking is how many jobs run once a second beside the pages.
const ticking = 10

func tickName(i int) string { return fmt.Sprintf("tick-%d", i) }

// tick makes these jobs.
func (s *server) tick(ctx context.Context) error {
	var jobs []*job.Job
	for i := range ticking {
		jobs = append(jobs, &job.Job{Namespace: "bench", Name: tickName(i), Schedule: job.Schedule{Every: job.Duration(time.Second)}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}})
	}
	return s.apply(ctx, jobs)
}

// browser is a client of pages.
type browser struct{ http.Client }

// browser returns a client that is logged in.
func (s *server) browser(ctx context.Context) (*browser, error) {
	code, err := s.LoginCode(ctx)
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	b := &browser{http.Client{Jar: jar}}
	form := url.Values{"code": {code.Code}, "next": {"/ui/kit"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/ui/login", strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b, b.do(request)
}

func (b *browser) get(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	return b.do(request)
}

func (b *browser) do(request *http.Request) error {
	answer, err := b.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", answer.Status)
	}
	return err
}
