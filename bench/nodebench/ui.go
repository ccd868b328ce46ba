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
	"strings"
	"time"
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
	_, err = pool.Exec(ctx, "analyze")
	return err
}

// uiPages reads each page many times.
func (b *bench) uiPages(ctx context.Context, s *server) ([]Figure, error) {
	browser, err := s.browser(ctx)
	if err != nil {
		return nil, err
	}
	var figures []Figure
	for _, page := range []struct{ name, path string }{
		{"Overview", "/"}, {"Jobs", "/jobs"}, {"Jobs by when they fall due", "/jobs?sort=next"}, {"Jobs with a label, one of 21", "/jobs?q=label:team=team-3"},
		{"Jobs by their last failure", "/jobs?sort=failure"}, {"Jobs that fail", "/jobs?state=failing"}, {"Jobs that never ran", "/jobs?state=never_ran"},
		{"Runs", "/runs"}, {"Runs that failed, one of 100", "/runs?outcome=failed"},
		{"a Job", "/jobs/default/job-0000001"}, {"its Statistics", "/jobs/default/job-0000001/statistics"}, {"Timeline", "/timeline"},
	} {
		worked, err := s.worked()
		if err != nil {
			return nil, err
		}
		var took lateness
		var first time.Duration
		for len(took) < b.scaled(pagesRead, 3) {
			began := time.Now()
			if err := browser.get(ctx, s.url+page.path); err != nil {
				return nil, fmt.Errorf("the page %s: %w", page.name, err)
			}
			took = append(took, time.Since(began))
			if first == 0 {
				first = took[0]
			}
		}
		took.sort()
		own, err := s.worked()
		if err != nil {
			return nil, err
		}
		figures = append(figures, atMost(page.name+", p95", took.quantile(.95), uiGoal).
			beside(fmt.Sprintf("the first %s, p50 %s; %s of a processor", times(first), times(took.quantile(.5)), times((own-worked)/time.Duration(len(took))))))
	}
	painted, err := b.painted(ctx, s)
	if err != nil {
		return nil, err
	}
	return append(figures, painted...), s.stop()
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
