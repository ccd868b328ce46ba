package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/dashboard"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/memory"
)

// program is a program that has mounted the dashboard of its scheduler.
type program struct {
	t         *testing.T
	scheduler *belfry.Scheduler
	url       string
	people    map[string]dashboard.Person // by what it calls a session
}

// patience bounds what happens within a second on an idle machine.
const patience = time.Minute

func start(t *testing.T) *program {
	t.Helper()
	p := &program{t: t, scheduler: belfry.New(memory.Empty(), belfry.WithNamespace("shop")), people: map[string]dashboard.Person{
		"ada": {Name: "ada@example.com", Role: dashboard.Admin},
		"bo":  {Name: "bo@example.com", Role: dashboard.Runner},
		"cy":  {Name: "cy@example.com", Role: dashboard.Viewer},
		"di":  {Name: "di@example.com", Roles: map[string]dashboard.Role{"elsewhere": dashboard.Admin}},
		"ed":  {Name: "ed@example.com", Role: "root"},
		"eve": {Role: dashboard.Admin},
	}}
	report := belfry.Handle(p.scheduler, "report", func(_ context.Context, run *belfry.Run, _ belfry.None) (belfry.None, error) {
		run.Log.Info("written")
		return belfry.None{}, nil
	})
	p.scheduler.Job("nightly", belfry.Cron("30 2 * * *"), report.Do(belfry.None{}))
	p.scheduler.Job("weekly", belfry.Cron("0 4 * * MON"), belfry.Edit(func(j *job.Job) { j.Title = "每周报告" }), report.Do(belfry.None{}))
	ctx, stop := context.WithCancel(t.Context())
	pages, err := dashboard.Handler(ctx, p.scheduler, dashboard.Config{
		Path: "/ops/belfry", SignOut: "/bye",
		Who: func(r *http.Request) (dashboard.Person, bool) {
			who, ok := p.people[r.Header.Get("X-Session")]
			return who, ok
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/belfry/", pages)
	server := httptest.NewServer(mux)
	p.url = server.URL
	var group sync.WaitGroup
	group.Go(func() {
		if err := p.scheduler.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		server.Close()
		stop()
		group.Wait()
	})
	p.await("the jobs are there", func() bool {
		n := 0
		for _, err := range p.scheduler.List(t.Context()) {
			if err != nil {
				return false
			}
			n++
		}
		return n == 2
	})
	return p
}

func (p *program) await(what string, holds func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// ask sends a request of a person, and follows no redirect.
func (p *program) ask(who, method, path, body string, headers ...string) (*http.Response, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("X-Session", who)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer, string(text)
}

var (
	addresses = regexp.MustCompile(`(?:href|src|action|formaction|data-href|data-output)="([^"]*)"`)
	formOf    = regexp.MustCompile(`name="form" value="([^"]*)"`)
)

// All addresses of all pages are below the path, and those that can be opened can be.
func TestPagesStayBelowTheirPath(t *testing.T) {
	p := start(t)
	const root = "/ops/belfry/"
	seen, todo := map[string]bool{root: true}, []string{root}
	opened := 0
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		answer, text := p.ask("ada", "GET", path, "")
		if to := answer.Header.Get("Location"); to != "" {
			if !strings.HasPrefix(to, root) {
				t.Errorf("%s leads to %s", path, to)
			}
			continue
		}
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s is answered with %s", path, answer.Status)
			continue
		}
		opened++
		if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
			continue
		}
		here, _ := url.Parse(path)
		for _, found := range addresses.FindAllStringSubmatch(text, -1) {
			to, err := here.Parse(strings.ReplaceAll(strings.ReplaceAll(found[1], "&amp;", "&"), "&#43;", "+"))
			if err != nil {
				t.Errorf("%s has the address %q", path, found[1])
				continue
			}
			if to.Host != "" || to.Path == "" {
				continue
			}
			if !strings.HasPrefix(to.Path, root) {
				t.Errorf("%s has the address %q", path, found[1])
				continue
			}
			// One of each page, with any question.
			if strings.HasPrefix(found[0], "href") && !seen[to.Path] && !strings.Contains(to.Path, "/ui/log") {
				seen[to.Path] = true
				todo = append(todo, to.RequestURI())
			}
		}
	}
	if opened < 20 {
		t.Errorf("%d pages were opened", opened)
	}
}

// A person has the rights that the program gives, and the audit has the person's name.
func TestPeopleHaveTheRightsThatTheProgramGives(t *testing.T) {
	p := start(t)
	run := func(who string) *http.Response {
		t.Helper()
		_, page := p.ask(who, "GET", "/ops/belfry/jobs/shop/nightly", "")
		form := ""
		if found := formOf.FindStringSubmatch(page); found != nil {
			form = found[1]
		}
		answer, _ := p.ask(who, "POST", "/ops/belfry/jobs/shop/nightly/run", url.Values{"form": {form}}.Encode(),
			"Content-Type", "application/x-www-form-urlencoded", "Origin", p.url, "Sec-Fetch-Site", "same-origin")
		return answer
	}
	if answer := run("bo"); answer.StatusCode != http.StatusSeeOther || !strings.HasPrefix(answer.Header.Get("Location"), "/ops/belfry/runs/") && !strings.HasPrefix(answer.Header.Get("Location"), "/ops/belfry/jobs/") {
		t.Errorf("a runner who runs a job is answered with %s, %s", answer.Status, answer.Header.Get("Location"))
	}
	if answer := run("cy"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer who runs a job is answered with %s", answer.Status)
	}
	if answer, text := p.ask("cy", "GET", "/ops/belfry/api/v1/jobs", "", "Authorization", "Bearer of-the-program"); answer.StatusCode != http.StatusOK || !strings.Contains(text, "nightly") {
		t.Errorf("the API answers a viewer with %s: %s", answer.Status, text)
	}
	if answer, _ := p.ask("bo", "POST", "/ops/belfry/api/v1/jobs/shop/nightly/run", "{}", "Content-Type", "application/json"); answer.StatusCode != http.StatusCreated {
		t.Errorf("the API answers a runner's program with %s", answer.Status)
	}
	if answer, _ := p.ask("bo", "POST", "/ops/belfry/api/v1/jobs/shop/nightly/run", "{}", "Content-Type", "application/json", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("another site's page is answered with %s", answer.Status)
	}
	if answer, text := p.ask("di", "GET", "/ops/belfry/api/v1/jobs", ""); answer.StatusCode != http.StatusOK || strings.Contains(text, "nightly") {
		t.Errorf("someone of another namespace is answered with %s: %s", answer.Status, text)
	}
	for who, status := range map[string]int{"": http.StatusForbidden, "mallory": http.StatusForbidden, "ed": http.StatusInternalServerError, "eve": http.StatusInternalServerError} {
		if answer, text := p.ask(who, "GET", "/ops/belfry/", ""); answer.StatusCode != status || strings.Contains(text, "nightly") {
			t.Errorf("%q is answered with %s", who, answer.Status)
		}
	}
	_, text := p.ask("ada", "GET", "/ops/belfry/api/v1/audit", "")
	var audit client.Page[client.AuditRecord]
	if err := json.Unmarshal([]byte(text), &audit); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(audit.Items, func(a client.AuditRecord) bool { return a.Action == "run.hand" && a.Actor == "app:bo@example.com" }) {
		t.Errorf("the audit is %s", text)
	}

	// A role that is taken away is gone with the next request, and what an administrator has ended begins anew.
	p.people["bo"] = dashboard.Person{Name: "bo@example.com", Role: dashboard.Viewer}
	if answer := run("bo"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a former runner is answered with %s", answer.Status)
	}
	if answer, text := p.ask("ada", "DELETE", "/ops/belfry/api/v1/sessions/"+url.PathEscape("app:cy@example.com"), ""); answer.StatusCode >= 300 {
		t.Fatalf("ending a session is answered with %s: %s", answer.Status, text)
	}
	p.await("the person is let in again", func() bool {
		answer, _ := p.ask("cy", "GET", "/ops/belfry/jobs", "")
		return answer.StatusCode == http.StatusOK
	})
}

func TestTheProgramsSignOutIsUsed(t *testing.T) {
	p := start(t)
	for path, want := range map[string]string{"/ops/belfry/ui/logout": "/bye", "/ops/belfry/ui/login?next=/jobs": "/ops/belfry/"} {
		if answer, _ := p.ask("ada", "POST", path, ""); answer.Header.Get("Location") != want {
			t.Errorf("%s leads to %q", path, answer.Header.Get("Location"))
		}
	}
}

func TestMistakesOfTheConfigurationAreNamed(t *testing.T) {
	who := func(*http.Request) (dashboard.Person, bool) { return dashboard.Person{}, false }
	for want, c := range map[string]dashboard.Config{
		"Config.Who is missing":                    {},
		`Config.Path is "ops" and must be like`:    {Path: "ops", Who: who},
		`Config.Path is "/ops/" and must be like`:  {Path: "/ops/", Who: who},
		`Config.Path is "//evil" and must be like`: {Path: "//evil", Who: who},
	} {
		if _, err := dashboard.Handler(t.Context(), belfry.New(memory.Empty()), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A scheduler without a store has no dashboard, and says so in its log.
func TestLightSchedulersHaveNoDashboard(t *testing.T) {
	pages, err := dashboard.Handler(t.Context(), belfry.New(belfry.Light()), dashboard.Config{Who: func(*http.Request) (dashboard.Person, bool) {
		return dashboard.Person{Name: "ada", Role: dashboard.Admin}, true
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("the answer is %d: %s", w.Code, w.Body)
	}
}

// List, Get and Resume are what the dashboard shows too.
func TestAProgramSeesItsJobs(t *testing.T) {
	p := start(t)
	ctx := t.Context()
	if _, err := p.scheduler.Get(ctx, "gone"); !errors.Is(err, belfry.ErrNotFound) {
		t.Errorf("a job that does not exist: %v", err)
	}
	if err := p.scheduler.Pause(ctx, "nightly", "inventory", time.Time{}); err != nil {
		t.Fatal(err)
	}
	paused, err := p.scheduler.Get(ctx, "nightly")
	if err != nil || !paused.Paused {
		t.Errorf("the paused job is %v, %v", paused, err)
	}
	if err := p.scheduler.Resume(ctx, "nightly", job.MissedAll, job.MissedNone); !errors.Is(err, belfry.ErrInvalid) {
		t.Errorf("two answers to what was missed: %v", err)
	}
	if err := p.scheduler.Resume(ctx, "nightly", job.MissedLatest); err != nil {
		t.Error(err)
	}
	var names []string
	for j, err := range p.scheduler.List(ctx) {
		if err != nil || j.Paused {
			t.Errorf("a job is %v, %v", j, err)
		}
		names = append(names, j.Title+j.Name)
	}
	if fmt.Sprint(names) != "[nightly 每周报告weekly]" {
		t.Errorf("the jobs are %q", names)
	}
}
