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

// uiGoal is how long the server may take for a page of the web UI.
const uiGoal = 100 * time.Millisecond

// ui measures how long the server takes for the pages of the web UI with many jobs and a long
// history.
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
	browser, err := s.browser(ctx)
	if err != nil {
		return nil, err
	}
	var figures []Figure
	for _, page := range []struct{ name, path string }{
		{"Overview", "/"}, {"Jobs", "/jobs"}, {"Jobs by when they fall due", "/jobs?sort=next"}, {"Jobs with a label, one of 21", "/jobs?q=label:team=team-3"},
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
	return figures, s.stop()
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
