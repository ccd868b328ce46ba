package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// tells lets the API tell what happens, until the end of the test.
func (s *server) tells() (stop func()) {
	s.t.Helper()
	s.events = events.New(s.store)
	s.handle(s.store)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = s.events.Run(ctx); close(done) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(stop)
	return stop
}

// listening is a client that follows what happens.
type listening struct {
	t      *testing.T
	cancel func()
	events chan client.Event
	ended  chan error
}

// listen follows with a token of the server, and returns once the stream stands.
func (s *server) listen(at, secret string, q client.EventQuery) *listening {
	s.t.Helper()
	c, err := client.New(client.Config{URL: at, Token: secret, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	l := &listening{t: s.t, cancel: cancel, events: make(chan client.Event, 1000), ended: make(chan error, 1)}
	begun := make(chan struct{})
	go func() {
		l.ended <- c.Events(ctx, q, sync.OnceFunc(func() { close(begun) }), func(e client.Event) error {
			l.events <- e
			return nil
		})
	}()
	select {
	case <-begun:
	case err := <-l.ended:
		s.t.Fatalf("the stream has ended before it began: %v", err)
	}
	return l
}

// expect requires events of these kinds next, and returns them.
func (l *listening) expect(kinds ...string) (list []client.Event) {
	l.t.Helper()
	for _, want := range kinds {
		select {
		case e := <-l.events:
			if e.Kind != want {
				l.t.Fatalf("told was %s of %s, want %s", e.Kind, e.Object, want)
			}
			list = append(list, e)
		case err := <-l.ended:
			l.t.Fatalf("the stream has ended with %v, want %s", err, want)
		case <-time.After(2 * time.Minute):
			l.t.Fatalf("no event came, want %s", want)
		}
	}
	return list
}

// end breaks off, and allows no unexpected event.
func (l *listening) end() {
	l.t.Helper()
	l.cancel()
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		l.t.Errorf("the stream has ended with %v", err)
	}
	if len(l.events) > 0 {
		l.t.Errorf("told was %s besides", (<-l.events).Kind)
	}
}

func TestEventsReachOnlyPermittedFollowers(t *testing.T) {
	s := newServer(t)
	s.tells()
	at := httptest.NewServer(s.handler)
	s.t.Cleanup(at.Close) // after those who follow have left
	s.grant("web", "of web", store.RoleViewer, "web")
	s.grant("ops", "of ops", store.RoleViewer, "")
	n := s.node()
	all := s.listen(at.URL, "of ops", client.EventQuery{})
	web := s.listen(at.URL, "of web", client.EventQuery{})
	chosen := s.listen(at.URL, "of ops", client.EventQuery{Namespace: "web"})
	done := s.listen(at.URL, "of ops", client.EventQuery{Job: "default/b", Kinds: []string{"run.done", "job"}})
	none := s.listen(at.URL, "of ops", client.EventQuery{Kinds: []string{"jo", "run.d", "token"}}) // two are no kinds

	ok[client.Change](s, "POST", "/api/v1/jobs", webJob)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "b", "run": {"shell": "true"}}`)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/b/run", "")
	n.start(run)
	n.finish(run, job.OutcomeSucceeded)
	ok[struct{}](s, "POST", "/api/v1/tokens", `{"name": "bob", "role": "viewer"}`)
	ok[client.Change](s, "POST", "/api/v1/jobs/web/a/pause", `{"reason": "why not"}`)

	list := all.expect("job.create", "job.create", "run.hand", "run.ready", "run.running", "run.done", "token.create", "job.pause")
	if e := list[0]; e.Object != "web/a" || e.Actor != "alice" || e.Version != 1 || e.ID == "" || e.Time.IsZero() || e.Run != nil {
		t.Errorf("the creation is %+v", e)
	}
	if e := list[4]; e.Object != "default/b" || e.Run == nil || e.Run.ID != run.ID || e.Run.State != job.StateRunning || e.Run.Node == "" {
		t.Errorf("the start is %+v", e)
	}
	if e := list[5]; e.Run == nil || e.Run.ID != run.ID || e.Run.Outcome != job.OutcomeSucceeded || e.Run.Ended.IsZero() {
		t.Errorf("the end is %+v", e)
	}
	if e := list[7]; !strings.HasPrefix(e.Detail, "why not") {
		t.Errorf("the pause is %+v", e)
	}
	for _, l := range []*listening{web, chosen} {
		for _, e := range l.expect("job.create", "job.pause") {
			if e.Object != "web/a" {
				t.Errorf("told was %s of %s", e.Kind, e.Object)
			}
		}
	}
	done.expect("job.create", "run.done")
	none.expect("token.create")
	for _, l := range []*listening{all, web, chosen, done, none} {
		l.end()
	}
}

func TestEventsOfJobsWithALabelOrAText(t *testing.T) {
	s := newServer(t)
	s.tells()
	at := httptest.NewServer(s.handler)
	s.t.Cleanup(at.Close)
	s.grant("ops", "of ops", store.RoleViewer, "")
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "labels": {"team": "shop"}, "run": {"shell": "true"}}`)
	labelled := s.listen(at.URL, "of ops", client.EventQuery{Labels: map[string]string{"team": "shop"}})
	named := s.listen(at.URL, "of ops", client.EventQuery{Text: "ware", Kinds: []string{"run.done", "job"}})

	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "b", "description": "loads the WAREhouse", "run": {"shell": "true"}}`)
	for _, name := range []string{"a", "b"} {
		run := ok[client.Run](s, "POST", "/api/v1/jobs/default/"+name+"/run", "")
		n.start(run)
		n.finish(run, job.OutcomeSucceeded)
	}
	ok[struct{}](s, "POST", "/api/v1/tokens", `{"name": "bob", "role": "viewer"}`)
	for _, e := range labelled.expect("run.hand", "run.ready", "run.running", "run.done") {
		if e.Object != "default/a" {
			t.Errorf("told was %s of %s", e.Kind, e.Object)
		}
	}
	if w := s.call("PUT", "/api/v1/jobs/default/a", `{"name": "a", "run": {"shell": "true"}}`, "If-Match", `"1"`); w.Code != 200 {
		t.Fatalf("the change is answered with %d: %s", w.Code, w.Body)
	}
	ok[client.Run](s, "POST", "/api/v1/jobs/default/a/run", "") // it has no label any more
	told := named.expect("job.create", "run.done")
	if w := s.call("DELETE", "/api/v1/jobs/default/b", "", "If-Match", `"1"`); w.Code >= 300 {
		t.Fatalf("the deletion is answered with %d: %s", w.Code, w.Body)
	}
	labelled.expect("job.change")
	for _, e := range append(told, named.expect("job.delete")...) {
		if e.Object != "default/b" {
			t.Errorf("told was %s of %s", e.Kind, e.Object)
		}
	}
	labelled.end()
	named.end()
	if w := s.call("GET", "/api/v1/events?kind=stats&label=team%3Dshop", ""); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("counts by a label are answered with %d: %s", w.Code, w.Body)
	}
}

func TestEventsWithCountsComeToThoseWhoAsk(t *testing.T) {
	s := newServer(t)
	s.tells()
	at := httptest.NewServer(s.handler)
	s.t.Cleanup(at.Close)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "b", "run": {"shell": "true"}}`)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/b/run", "")
	n.start(run)
	n.finish(run, job.OutcomeFailed)
	s.now = s.now.Add(10 * time.Second)
	s.grant("ops", "of ops", store.RoleViewer, "")
	s.grant("web", "of web", store.RoleViewer, "web")
	e := s.listen(at.URL, "of ops", client.EventQuery{Kinds: []string{"stats"}}).expect("stats")[0]
	if e.ID != "" || e.Stats == nil || e.Stats.Outcomes[job.OutcomeFailed] != 1 || !e.Stats.Start.Equal(s.now.Add(-time.Minute)) {
		t.Errorf("the counts are %+v of %+v", e, e.Stats)
	}
	if e := s.listen(at.URL, "of web", client.EventQuery{Kinds: []string{"stats"}}).expect("stats")[0]; len(e.Stats.Outcomes) != 0 {
		t.Errorf("another namespace counts %+v", e.Stats)
	}
}

func TestEventStreamResumesAtItsPlace(t *testing.T) {
	s := newServer(t)
	stop := s.tells()
	at := httptest.NewServer(s.handler)
	s.t.Cleanup(at.Close) // after those who follow have left
	l := s.listen(at.URL, token, client.EventQuery{})
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	place := l.expect("job.create")[0].ID
	l.end()
	ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", "")
	l = s.listen(at.URL, token, client.EventQuery{After: place})
	l.expect("job.pause")
	l.end()

	// The same place of a server that was started again.
	stop()
	s.tells()
	at.Config.Handler = s.handler
	l = s.listen(at.URL, token, client.EventQuery{After: place})
	if gap := l.expect(client.EventGap)[0]; gap.Detail == "" || gap.ID != "" {
		t.Errorf("the gap is %+v", gap)
	}
	ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/resume", "")
	l.expect("job.resume")
	l.end()
}

// The place to continue from comes before the first event, and moves on with what a client
// has not asked for: it would else ask for one that is not known any more.
func TestFilteredEventsAdvanceThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		stop := s.tells()
		l := dialSlow(t, s.handler, head("GET", "/api/v1/events?kind=token")+"\n")
		place := func() string {
			l.until(": alive")
			line, err := l.reader.ReadString('\n')
			id, found := strings.CutPrefix(strings.TrimSpace(line), "id: ")
			if err != nil || !found {
				t.Fatalf("%v, %q", err, line)
			}
			return id
		}
		begun := time.Now()
		first := place()
		if took := time.Since(begun); took > 0 {
			t.Errorf("the first place comes after %s", took)
		}
		ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
		second := place()
		if second == first {
			t.Errorf("the place is still %s", first)
		}
		if took := time.Since(begun); took < 15*time.Second || took > 16*time.Second {
			t.Errorf("the sign of life comes after %s", took)
		}
		_ = l.Close()
		<-l.served
		stop()
	})
}

func TestEventStreamEndsWithAReason(t *testing.T) {
	s := newServer(t)
	stop := s.tells()
	at := httptest.NewServer(s.handler)
	s.t.Cleanup(at.Close) // after those who follow have left
	s.grant("ann", "of ann", store.RoleViewer, "")
	ann := s.listen(at.URL, "of ann", client.EventQuery{})
	alice := s.stream(at.URL + "/api/v1/events")
	if w := s.call("DELETE", "/api/v1/tokens/ann", ""); w.Code/100 != 2 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	s.tokens.Forget()
	if err := <-ann.ended; !client.IsType(err, client.TypeUnauthenticated) {
		t.Errorf("a follower whose token was revoked receives %v", err)
	}
	stop()
	var problem client.Problem
	for line := range alice {
		if data, found := strings.CutPrefix(line, "data: "); found {
			_ = json.Unmarshal([]byte(data), &problem)
		}
	}
	if problem.Type != client.TypeUnavailable {
		t.Errorf("at the end of the server told was %+v", problem)
	}
	s.refused(client.TypeUnavailable, http.StatusServiceUnavailable, "GET", "/api/v1/events", "")
}

// stream returns the lines of a stream, until it ends.
func (s *server) stream(url string) <-chan string {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || kind != "text/event-stream" {
		s.t.Fatalf("status %d, %s", answer.StatusCode, kind)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		defer answer.Body.Close()
		for scanner := bufio.NewScanner(answer.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

func TestBadEventFiltersAreNamed(t *testing.T) {
	s := newServer(t)
	s.tells()
	for query, parameter := range map[string]string{
		"kind=run&kind=RUN":                     "kind",
		"kind=run%20done":                       "kind",
		"job=nightly":                           "job",
		"kind=run&job=nightly":                  "job",
		"namespace=" + strings.Repeat("x", 200): "namespace",
	} {
		p := s.refused(client.TypeInvalid, http.StatusUnprocessableEntity, "GET", "/api/v1/events?"+query, "")
		if !slices.ContainsFunc(p.Errors, func(e client.FieldError) bool { return strings.HasPrefix(e.Parameter, parameter) }) {
			t.Errorf("%s: the errors are %+v", query, p.Errors)
		}
	}
}
