package httpapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// node is a worker, played by the test.
type node struct {
	*server
	session job.ID
	tokens  map[job.ID]job.ID // by run
	output  *output.Collector
}

func (s *server) node() *node {
	s.t.Helper()
	n := &node{server: s, session: s.id(), tokens: map[job.ID]job.ID{}}
	if _, err := s.store.Join(s.t.Context(), store.Session{ID: n.session, Node: "one", Roles: []string{store.RoleWorker}, Capacity: 10}); err != nil {
		s.t.Fatal(err)
	}
	var err error
	if n.output, err = output.New(output.Config{Sink: n}); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *server) id() job.ID {
	id, err := job.NewID(s.clock(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// Append implements output.Sink.
func (n *node) Append(ctx context.Context, chunks []output.Chunk) error {
	return n.store.AppendOutput(ctx, converted(chunks))
}

func converted(chunks []output.Chunk) []store.OutputChunk {
	var list []store.OutputChunk
	for _, c := range chunks {
		list = append(list, store.OutputChunk(c))
	}
	return list
}

// start claims a run.
func (n *node) start(run client.Run) {
	n.t.Helper()
	n.tokens[run.ID] = n.id()
	outcomes, err := n.store.Claim(n.t.Context(), n.session, []store.Attempt{{Run: run.ID, Number: run.Attempt, Token: n.tokens[run.ID]}})
	if err != nil || outcomes[0].Verdict != store.Started {
		n.t.Fatalf("claim: %v, %+v", err, outcomes)
	}
}

// finish ends a run with an output.
func (n *node) finish(run client.Run, outcome job.Outcome, chunks ...store.OutputChunk) {
	n.t.Helper()
	bytes := int64(0)
	for _, c := range chunks {
		bytes += int64(c.Bytes)
	}
	code := 0
	outcomes, err := n.store.Finish(n.t.Context(), n.session, []store.Result{{
		Attempt: store.Attempt{Run: run.ID, Number: run.Attempt, Token: n.tokens[run.ID]},
		Started: n.clock(), Ended: n.clock().Add(time.Second), Outcome: outcome, Reason: job.Text(reasonOf(outcome)), ExitCode: &code,
		Output: chunks, OutputBytes: bytes,
	}})
	if err != nil || !outcomes[0].Accepted {
		n.t.Fatalf("finish: %v, %+v", err, outcomes)
	}
}

func reasonOf(outcome job.Outcome) string {
	if outcome == job.OutcomeSucceeded {
		return ""
	}
	return "the exit code is 1"
}

// wrote makes the chunks of what an attempt wrote.
func (n *node) wrote(run client.Run, text string) []store.OutputChunk {
	n.t.Helper()
	capture := n.output.Capture(run.ID, run.Attempt)
	fmt.Fprint(capture.Stdout(), text)
	chunks, _ := capture.Close()
	return converted(chunks)
}

func TestRunByHandFromStartToEnd(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	w := s.call("POST", "/api/v1/jobs/default/nightly/run", `{"params": {"day": "monday"}}`, "Idempotency-Key", "k1")
	if w.Code != 201 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", `{"params": {"day": "monday"}}`, "Idempotency-Key", "k1")
	if run.State != job.StateReady || run.Kind != job.RunByHand || run.Node != "one" || run.Params["day"] != "monday" || run.Job != "default/nightly" {
		t.Errorf("the run is %+v", run)
	}
	list := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs", "")
	if len(list.Items) != 1 {
		t.Fatalf("the same key has made %d runs", len(list.Items))
	}

	n.start(run)
	going := ok[client.Run](s, "GET", "/api/v1/runs/"+run.ID.String(), "")
	if going.State != job.StateRunning || going.Started.IsZero() || !going.Ended.IsZero() {
		t.Errorf("the run is %+v", going)
	}
	// The answer to a change names it.
	change := ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", "")
	if len(change.Running) != 1 || change.Running[0].ID != run.ID {
		t.Errorf("the answer names %+v", change.Running)
	}
	s.refused(client.TypeConflict, 409, "POST", "/api/v1/runs/"+run.ID.String()+"/retry", "")
	cancelled := ok[client.Run](s, "POST", "/api/v1/runs/"+run.ID.String()+"/cancel", `{"reason": "too slow"}`)
	if cancelled.CancelBy != "alice" || cancelled.CancelReason != "too slow" || cancelled.State != job.StateRunning {
		t.Errorf("the run is %+v", cancelled)
	}
	n.finish(run, job.OutcomeFailed, n.wrote(run, "one\ntwo\nthree\n")...)

	ended := ok[client.Run](s, "GET", "/api/v1/runs/"+run.ID.String(), "")
	if ended.State != job.StateDone || ended.Outcome != job.OutcomeFailed || ended.Reason == "" || ended.OutputBytes != 14 ||
		len(ended.Attempts) != 1 || ended.Attempts[0].Outcome != job.OutcomeFailed || *ended.ExitCode != 0 {
		t.Errorf("the run is %+v", ended)
	}
	p := s.refused(client.TypeConflict, 409, "POST", "/api/v1/runs/"+run.ID.String()+"/cancel", "")
	if !strings.HasSuffix(p.Detail, "has already ended: failed") {
		t.Errorf("the detail is %q", p.Detail)
	}
	again := ok[client.Run](s, "POST", "/api/v1/runs/"+run.ID.String()+"/retry", "")
	if again.ID == run.ID || !again.Scheduled.Equal(ended.Scheduled) || again.Params["day"] != "monday" {
		t.Errorf("the retry is %+v", again)
	}
	j, err := ok[client.Document](s, "GET", "/api/v1/jobs/default/nightly", "").Job()
	if err != nil || j.Status.LastRun != run.ID || j.Status.LastOutcome != job.OutcomeFailed {
		t.Errorf("%v, the status is %+v", err, j.Status)
	}
	s.refused(client.TypeNotFound, 404, "GET", "/api/v1/runs/"+s.id().String(), "")
}

func TestParametersMustBeDeclared(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	p := s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs/default/nightly/run", `{"params": {"dya": "monday"}}`)
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/params/dya" || p.Errors[0].Hint != "declared: day" {
		t.Errorf("the errors are %+v", p.Errors)
	}
	// Running is not defining.
	s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs/default/nightly/run", `{"shell": "rm"}`)
}

func TestARunThatEndsBetweenTwoAttemptsSaysHow(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}, "policy": {"retry": {"attempts": 2}}}`)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/a/run", "")
	n.start(run)
	n.finish(run, job.OutcomeFailed)
	ok[client.Run](s, "POST", "/api/v1/runs/"+run.ID.String()+"/cancel", `{"reason": "enough"}`)
	ended := ok[client.Run](s, "GET", "/api/v1/runs/"+run.ID.String(), "")
	listed := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs", "").Items[0]
	for _, r := range []client.Run{ended, listed} {
		if r.Outcome != job.OutcomeCancelled || r.Attempt != 1 || !strings.Contains(r.Reason, "enough") {
			t.Errorf("the run is %+v", r)
		}
	}
	if len(ended.Attempts) != 1 || ended.Attempts[0].Outcome != job.OutcomeFailed {
		t.Errorf("the attempts are %+v", ended.Attempts)
	}
}

func TestRunsNameUnmetExpectations(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}, "policy": {"overlap": "allow", "expect": {"start_within": "5s"}}}`)
	var runs []client.Run
	for range 2 {
		runs = append(runs, ok[client.Run](s, "POST", "/api/v1/jobs/default/a/run", ""))
	}
	n.start(runs[0])
	n.finish(runs[0], job.OutcomeSucceeded)
	s.pass(6 * time.Second)
	n.start(runs[1])
	n.finish(runs[1], job.OutcomeSucceeded)
	const want = "it started 6 s after it was due, expected was 5 s at most"
	list := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs?unmet=true", "").Items
	if len(list) != 1 || list[0].ID != runs[1].ID || list[0].Unmet != want {
		t.Errorf("the list is %+v", list)
	}
	run := ok[client.Run](s, "GET", "/api/v1/runs/"+runs[1].ID.String(), "")
	if run.Unmet != want || run.Attempts[0].Unmet != want {
		t.Errorf("the run is %+v", run)
	}
	if run = ok[client.Run](s, "GET", "/api/v1/runs/"+runs[0].ID.String(), ""); run.Unmet != "" {
		t.Errorf("the other run is %+v", run)
	}
}

func TestRetriedFollowerKeepsItsInput(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "leader", "params": {"day": "", "who": ""}, "run": {"shell": "true"}}`)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "follower", "params": {"day": ""}, "schedule": {"on": "leader"}, "run": {"shell": "true"}}`)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "last", "params": {"who": ""}, "schedule": {"on": "follower"}, "run": {"shell": "true"}}`)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/leader/run", `{"params": {"day": "monday", "who": "ann"}}`)
	n.start(run)
	n.finish(run, job.OutcomeSucceeded)
	again := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs?job=follower", "").Items[0]
	for _, outcome := range []job.Outcome{job.OutcomeFailed, job.OutcomeFailed, job.OutcomeSucceeded} {
		if len(again.Params) != 2 || again.Params["day"] != "monday" || !again.Scheduled.Equal(run.Scheduled) {
			t.Errorf("the run is %+v", again)
		}
		n.start(again)
		n.finish(again, outcome)
		if outcome == job.OutcomeFailed {
			again = ok[client.Run](s, "POST", "/api/v1/runs/"+again.ID.String()+"/retry", "")
		}
	}
	if last := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs?job=last", "").Items; len(last) != 1 || last[0].Params["who"] != "ann" {
		t.Errorf("what follows it is %+v", last)
	}
}

func TestShardsAreMadeTogether(t *testing.T) {
	s := newServer(t)
	s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "split", "run": {"shell": "true"}, "place": {"shards": 3}}`)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/split/run", "")
	if run.Shard != 0 || run.Shards != 3 || len(run.Others) != 2 {
		t.Errorf("the run is %+v", run)
	}
}

func TestActiveRunsComeFirstAndPagesAreComplete(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}, "policy": {"overlap": "allow"}}`)
	var want []string
	var ended []client.Run
	for range 5 {
		run := ok[client.Run](s, "POST", "/api/v1/jobs/default/a/run", "")
		n.start(run)
		n.finish(run, job.OutcomeSucceeded)
		ended = append(ended, run)
		s.pass(time.Second)
	}
	for range 4 {
		want = append(want, ok[client.Run](s, "POST", "/api/v1/jobs/default/a/run", "").ID.String())
		s.pass(time.Second)
	}
	for i := range ended {
		want = append(want, ended[len(ended)-1-i].ID.String())
	}
	for _, size := range []int{1, 2, 3, 4, 5, 100} {
		var got []string
		pages := 0
		for token := ""; ; pages++ {
			page := ok[client.Page[client.Run]](s, "GET", fmt.Sprintf("/api/v1/runs?page_size=%d&page_token=%s", size, token), "")
			for _, r := range page.Items {
				got = append(got, r.ID.String())
			}
			if token = page.NextPageToken; token == "" || pages > 20 {
				break
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("pages of %d have\n%v\nwant\n%v", size, got, want)
		}
	}
	for query, count := range map[string]int{
		"state=done": 5, "state=ready": 4, "state=ready&state=running": 4, "outcome=succeeded": 5, "outcome=failed": 0,
		"job=default/a": 9, "job=a": 9, "job=default/a&state=done&page_size=500": 5, "namespace=other": 0, "text=A": 5, "text=zzz": 0,
		"from=2030-01-01T00:00:00Z": 0,
	} {
		if page := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs?"+query, ""); len(page.Items) != count {
			t.Errorf("%s gives %d runs, want %d", query, len(page.Items), count)
		}
	}
	s.refused(client.TypeNotFound, 404, "GET", "/api/v1/runs?job=default/none", "")
}

func TestTextSearchTakesABoundedTime(t *testing.T) {
	s := newServer(t)
	n := s.node()
	s.call("POST", "/api/v1/jobs", nightly)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", "")
	n.start(run)
	n.finish(run, job.OutcomeFailed)
	ended := s.clock()
	s.pass(10 * 24 * time.Hour)
	at := func(d time.Duration) string { return ended.Add(d).Format(time.RFC3339) }
	const day = 24 * time.Hour
	for query, count := range map[string]int{
		"text=night":                             0, // the last 7 days
		"text=night&from=" + at(-day):            1,
		"text=night&to=" + at(day):               1, // 7 days before that
		"text=night&to=" + at(9*day):             0,
		"text=night&from=" + at(-21*day):         1, // 31 days
		"from=" + at(-1000*day):                  1, // without a text
		"text=EXIT&outcome=failed&to=" + at(day): 1, // in the reason
	} {
		if page := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs?"+query, ""); len(page.Items) != count {
			t.Errorf("%s gives %d runs, want %d", query, len(page.Items), count)
		}
	}
	for query, want := range map[string]string{
		"text=night&from=" + at(-22*day):                  "is 32 days before the end, and text is looked for in at most 31 days",
		"text=night&from=" + at(-50*day) + "&to=" + at(0): "is 50 days before",
		"from=" + at(day) + "&to=" + at(0):                "is not before the end",
	} {
		p := s.refused(client.TypeInvalid, 422, "GET", "/api/v1/runs?"+query, "")
		if len(p.Errors) != 1 || p.Errors[0].Parameter != "from" || !strings.Contains(p.Errors[0].Detail, want) {
			t.Errorf("%s: %+v", query, p.Errors)
		}
	}
}

// rare is a store that finds one record in the third part of its history, and
// nothing in a million more.
type rare struct {
	*memory.Store
	calls int
}

func (r *rare) Attempts(_ context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error) {
	r.calls++
	part := 100
	if q.Before.Attempt > 0 {
		part = q.Before.Attempt - 1
	}
	next := store.RecordRef{Attempt: part}
	if part == 98 {
		return []store.Record{{Run: job.Run{ID: job.ID{1}, JobUID: job.ID{1}, Kind: job.RunScheduled}, Final: true}}, next, nil
	}
	if part == 1 {
		next = store.RecordRef{}
	}
	return nil, next, nil
}

func TestSparseSearchReturnsPartialPages(t *testing.T) {
	s := newServer(t)
	r := &rare{Store: s.store}
	s.plain(r)
	found, pages, token := 0, 0, ""
	for more := true; more; more = token != "" {
		before := r.calls
		page := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs?text=x&page_token="+token, "")
		if token = page.NextPageToken; r.calls-before > 10 {
			t.Fatalf("a page has looked at %d parts", r.calls-before)
		}
		found += len(page.Items)
		pages++
	}
	if found != 1 || pages != 10 || r.calls != 100 {
		t.Errorf("found %d on %d pages in %d parts", found, pages, r.calls)
	}
}

func TestOutputAsText(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", "")
	n.start(run)
	path := "/api/v1/runs/" + run.ID.String() + "/output"
	if w := s.call("GET", path, ""); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("status %d: %q", w.Code, w.Body)
	}
	n.finish(run, job.OutcomeSucceeded, n.wrote(run, "one\ntwo\nthree\n")...)
	for query, want := range map[string]string{
		"": "one\ntwo\nthree\n", "?attempt=1": "one\ntwo\nthree\n", "?offset=4": "two\nthree\n", "?offset=99": "",
		"?tail=2": "two\nthree\n", "?tail=9": "one\ntwo\nthree\n", "?stream=stderr": "", "?stream=stdout&tail=1": "three\n",
		"?since=2000-01-01T00:00:00Z": "one\ntwo\nthree\n", "?since=9999-01-01T00:00:00Z": "",
	} {
		if w := s.call("GET", path+query, ""); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: status %d: %q, want %q", query, w.Code, w.Body, want)
		}
	}
	if w := s.call("GET", path+"?timestamps=true", ""); strings.Count(w.Body.String(), "Z | ") != 3 {
		t.Errorf("the lines are %q", w.Body)
	}
	s.refused(client.TypeNotFound, 404, "GET", path+"?attempt=2", "")
	s.refused(client.TypeInvalid, 422, "GET", path+"?stream=std", "")
}

func TestOutputIsFollowedToTheEnd(t *testing.T) {
	s := newServer(t)
	n := s.node()
	c := s.dial()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "again", "run": {"shell": "true"}, "policy": {"retry": {"attempts": 1, "backoff": "0s"}}}`)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/again/run", "")
	n.start(run)
	first := n.wrote(run, "begin\n")
	if err := s.store.AppendOutput(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	ended, err := c.Follow(t.Context(), run.ID, client.OutputQuery{}, func(part client.OutputPart) error {
		fmt.Fprintf(&text, "%d: %s", part.Attempt, part.Text)
		switch part.Text {
		case "begin\n":
			n.finish(run, job.OutcomeFailed, first...)
			second := run
			second.Attempt = 2
			n.start(second)
			n.finish(second, job.OutcomeSucceeded, n.wrote(second, "better \xff\n")...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := text.String(); got != "1: begin\n2: better \uFFFD\n" {
		t.Errorf("the output is %q", got)
	}
	if ended.Outcome != job.OutcomeSucceeded || len(ended.Attempts) != 2 {
		t.Errorf("the run is %+v", ended)
	}
	var bytes bytes.Buffer
	if err := c.Output(t.Context(), run.ID, client.OutputQuery{}, &bytes); err != nil || bytes.String() != "better \xff\n" {
		t.Errorf("%v, the output is %q", err, bytes.String())
	}

	// A broken connection continues after what was seen.
	w := s.call("GET", "/api/v1/runs/"+run.ID.String()+"/output", "", "Accept", "text/event-stream", "Last-Event-ID", "1:6")
	if got := w.Body.String(); strings.Contains(got, "begin\\n") || !strings.Contains(got, "id: 2:9\nevent: output\n") || !strings.Contains(got, "event: end\n") {
		t.Errorf("the events are %s", got)
	}
	s.refused(client.TypeInvalid, 422, "GET", "/api/v1/runs/"+run.ID.String()+"/output", "", "Accept", "text/event-stream", "Last-Event-ID", "here")
}

func TestARunThatEndsWithoutAnAttemptIsFollowedToItsEnd(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", "")
	ok[client.Run](s, "POST", "/api/v1/runs/"+run.ID.String()+"/cancel", "")
	ended, err := s.dial().Follow(t.Context(), run.ID, client.OutputQuery{FromFirst: true}, func(client.OutputPart) error { return nil })
	if err != nil || ended.Outcome != job.OutcomeCancelled || ended.Attempt != 0 {
		t.Errorf("%v, the run is %+v", err, ended)
	}
	s.refused(client.TypeNotFound, 404, "GET", "/api/v1/runs/"+run.ID.String()+"/output?attempt=1", "", "Accept", "text/event-stream")
}

func TestEventsHoldWholeLettersAndAreBounded(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", "")
	n.start(run)
	long := strings.Repeat("周\x01", 200_000) // each letter is written in pieces, and escaped
	n.finish(run, job.OutcomeSucceeded, n.wrote(run, long)...)
	var text strings.Builder
	parts := 0
	_, err := s.dial().Follow(t.Context(), run.ID, client.OutputQuery{}, func(part client.OutputPart) error {
		text.WriteString(part.Text)
		parts++
		return nil
	})
	if err != nil || text.String() != long || parts < 3 {
		t.Errorf("%v: %d parts with %d bytes, want %d", err, parts, text.Len(), len(long))
	}
}

// pipes is a listener whose connections are net.Pipe, which have the time of
// testing/synctest.
type pipes struct {
	made   chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestFollowingLastsLongerThanReadingARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		n := s.node()
		ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
		run := ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", "")
		n.start(run)
		const readTime = time.Second
		web := &http.Server{Handler: s.handler, ReadTimeout: readTime, WriteTimeout: readTime}
		listener := pipes{make(chan net.Conn), make(chan struct{})}
		go func() { _ = web.Serve(listener) }()
		defer web.Close()
		connections := 0
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			connections++
			ours, theirs := net.Pipe()
			listener.made <- theirs
			return ours, nil
		}}
		defer transport.CloseIdleConnections()
		c, err := client.New(client.Config{URL: "http://belfry.example", Token: token, HTTP: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		later := time.AfterFunc(4*readTime, func() { n.finish(run, job.OutcomeSucceeded) })
		defer later.Stop()
		if ended, err := c.Follow(t.Context(), run.ID, client.OutputQuery{}, func(client.OutputPart) error { return nil }); err != nil || ended.Outcome != job.OutcomeSucceeded {
			t.Errorf("%v, the run is %+v", err, ended)
		}
		if connections != 1 {
			t.Errorf("%d connections were made, want 1", connections)
		}
	})
}

func TestASecondPauseKeepsTheFirstOnesReason(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", `{"reason": "the disk is full"}`)
	ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", ``)
	status := func() *job.Status {
		j, err := ok[client.Document](s, "GET", "/api/v1/jobs/default/nightly", "").Job()
		if err != nil {
			t.Fatal(err)
		}
		return j.Status
	}
	if got := status(); got.PauseReason != "the disk is full" || !got.PausedUntil.IsZero() {
		t.Errorf("the status is %+v", got)
	}
	ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", `{"until": "2026-12-01T00:00:00Z"}`)
	if got := status(); got.PausedUntil.IsZero() {
		t.Errorf("the status is %+v", got)
	}
}

func TestClientTellsErrorsApart(t *testing.T) {
	s := newServer(t)
	c := s.dial()
	if _, err := c.Job(t.Context(), "default", "none", false); !client.IsType(err, client.TypeNotFound) {
		t.Errorf("the error is %v", err)
	}
	other, err := client.New(client.Config{URL: c.URL(), Token: "wrong"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Nodes(t.Context()); !client.IsType(err, client.TypeUnauthenticated) {
		t.Errorf("the error is %v", err)
	}
	absent, err := client.New(client.Config{URL: "http://127.0.0.1:1", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := absent.Nodes(t.Context()); !errors.Is(err, client.ErrUnreachable) || strings.Contains(err.Error(), token) {
		t.Errorf("the error is %v", err)
	}
	for _, address := range []string{"", "127.0.0.1:8420", "ftp://x", "http://u:p@x", "http://x/?y"} {
		if _, err := client.New(client.Config{URL: address}); err == nil || strings.Contains(err.Error(), ":p@") {
			t.Errorf("%q gives the error %v", address, err)
		}
	}
	s.node()
	if nodes, err := c.Nodes(t.Context()); err != nil || len(nodes.Items) != 1 || nodes.Items[0].State != "live" {
		t.Errorf("%v, the nodes are %+v", err, nodes)
	}
	// A file or a variable that ends with a line break is a token all the same.
	broken, err := client.New(client.Config{URL: c.URL(), Token: token + "\r\n"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := broken.Nodes(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := client.New(client.Config{URL: c.URL(), Token: token + "\nmore"}); err == nil || strings.Contains(err.Error(), token) {
		t.Errorf("a token with two lines: %v", err)
	}
	if _, err := c.RunJob(t.Context(), "default", "nightly", client.RunRequest{}, "a\nb"); err == nil || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a key with two lines: %v", err)
	}
}

// The clock of the store says what is due, and what is past.
func TestAWrongClockOfTheNodeChangesNothing(t *testing.T) {
	s := newServer(t)
	s.handleAt(func() time.Time { return s.clock().Add(time.Hour) })
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", "")
	ok[client.Run](s, "POST", "/api/v1/runs/"+run.ID.String()+"/cancel", "")
	again := ok[client.Run](s, "POST", "/api/v1/runs/"+run.ID.String()+"/retry", "")
	if now := s.clock(); !run.Due.Equal(now) || !again.Due.Equal(now) {
		t.Errorf("at %v a run by hand is due at %v, and its retry at %v", now, run.Due, again.Due)
	}
	until := s.clock().Add(time.Minute).Format(time.RFC3339)
	ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", `{"until": "`+until+`"}`)
}

// Answers of a node do not depend on its clock either.
func TestNodesWithOtherClocksAnswerAlike(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "often", "schedule": {"cron": "* * * * *"}, "run": {"shell": "echo"}}`)
	often, err := store.JobNamed(t.Context(), s.store, "default", "often")
	if err != nil {
		t.Fatal(err)
	}
	s.planner.table = map[job.ID]time.Time{often.Definition.UID: s.clock().Add(time.Minute)}
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/often/run", "")
	ok[client.Run](s, "POST", "/api/v1/runs/"+run.ID.String()+"/cancel", "")
	soon := `{"name": "soon", "schedule": {"at": ["` + s.clock().Add(time.Minute).Format(time.RFC3339) + `"]}, "run": {"shell": "echo"}}`
	yesterday := s.clock().Add(-24 * time.Hour).Format(time.RFC3339)
	for _, request := range []struct{ method, target, body, has string }{
		{"GET", "/api/v1/jobs/default/often", "", `"next"`},
		{"GET", "/api/v1/jobs?sort=next", "", `"next"`},
		{"GET", "/api/v1/jobs/default/often/next", "", "scheduled"},
		{"GET", "/api/v1/schedules:preview?expr=*+*+*+*+*", "", `"next"`},
		{"GET", "/api/v1/runs?text=often", "", "cancelled"},
		{"GET", "/api/v1/runs?text=often&from=" + yesterday, "", "cancelled"},
		{"POST", "/api/v1/jobs:apply", `{"documents": [` + soon + `], "dry_run": true}`, "soon"},
	} {
		right := s.handler
		want := s.call(request.method, request.target, request.body)
		if want.Code >= 300 || !strings.Contains(want.Body.String(), request.has) {
			t.Fatalf("%s: %d %s", request.target, want.Code, want.Body)
		}
		for _, wrong := range []time.Duration{-100 * 24 * time.Hour, 100 * 24 * time.Hour} {
			s.handleAt(func() time.Time { return s.clock().Add(wrong) })
			if got := s.call(request.method, request.target, request.body); got.Code != want.Code || got.Body.String() != want.Body.String() {
				t.Errorf("%s by a clock that is %v ahead: %d %s, want %d %s", request.target, wrong, got.Code, got.Body, want.Code, want.Body)
			}
		}
		s.handler = right
	}
}

func TestAKeyIsForOneRequest(t *testing.T) {
	s := newServer(t)
	s.grant("bob", "of bob", store.RoleRunner, "")
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	const path, body = "/api/v1/jobs/default/nightly/run", `{"params": {"day": "monday"}}`
	run := ok[client.Run](s, "POST", path, body, "Idempotency-Key", "k1")
	if again := ok[client.Run](s, "POST", path, body, "Idempotency-Key", "k1"); again.ID != run.ID {
		t.Errorf("the same request has made another run")
	}
	for _, other := range []string{"", `{}`, `{"params": {"day": "tuesday"}}`} {
		p := s.refused(client.TypeInvalid, 422, "POST", path, other, "Idempotency-Key", "k1")
		if len(p.Errors) != 1 || p.Errors[0].Parameter != "Idempotency-Key" || !strings.Contains(p.Errors[0].Detail, "other parameters") {
			t.Errorf("with the body %q: %+v", other, p.Errors)
		}
	}
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Host = "127.0.0.1:8420"
	r.Header.Set("Authorization", "Bearer of bob")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k1")
	if w := s.answer(r); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "another caller") {
		t.Errorf("another user has the status %d: %s", w.Code, w.Body)
	}
	if runs := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs", ""); len(runs.Items) != 1 {
		t.Errorf("there are %d runs", len(runs.Items))
	}
}

func TestRequestsAreTheSameByParameters(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "sync", "params": {"customer": "none", "why": ""}, "run": {"shell": "true"}}`)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "split", "place": {"shards": 3}, "run": {"shell": "true"}}`)
	const path = "/api/v1/jobs/default/sync/run"
	ask := func(customer, why, same string) client.Run {
		return ok[client.Run](s, "POST", path, fmt.Sprintf(`{"params": {"customer": %q, "why": %q}, %s}`, customer, why, same), "Idempotency-Key", why)
	}
	unique, debounce := `"unique": {"for": "10m", "by": ["customer"]}`, `"debounce": {"for": "30s", "by": ["customer"]}`
	first := ask("穆勒 & Söhne", "a", unique)
	if again := ask("穆勒 & Söhne", "b", unique); again.ID != first.ID || again.Params["why"] != "a" {
		t.Errorf("the same customer has another run: %+v", again)
	}
	if other := ask("b", "b", unique); other.ID == first.ID {
		t.Errorf("another customer has the run of the first")
	}
	if all := ask("b", "c", `"unique": {"for": "10m"}`); all.ID == first.ID || all.Params["why"] != "c" {
		t.Errorf("by all parameters it is %+v", all)
	}
	later := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Second)
	if r := ask("b", "at", fmt.Sprintf(`"at": %q`, later.Format(time.RFC3339))); !r.Due.Equal(later) || !r.Scheduled.Equal(later) {
		t.Errorf("it is due at %s for %s, asked was %s", r.Due, r.Scheduled, later)
	}
	waits := ask("b", "d", debounce)
	if waits.Due.Sub(waits.Scheduled) != 30*time.Second {
		t.Errorf("it is due %s after the request", waits.Due.Sub(waits.Scheduled))
	}
	if again := ask("b", "e", debounce); again.ID != waits.ID || again.Params["why"] != "e" {
		t.Errorf("the second request has made %+v", again)
	}
	for body, field := range map[string]string{
		`{"at": "2036-01-01T00:00:00Z"}`:                             "at",
		`{"at": "2020-01-01T00:00:00Z", "debounce": {"for": "10m"}}`: "debounce",
		`{"unique": {"for": "10m", "by": ["no"]}}`:                   "unique.by",
		`{"unique": {"for": "25h"}}`:                                 "unique.for",
		`{"debounce": {"for": "1ms"}}`:                               "debounce.for",
		`{"unique": {"for": "10m"}, "debounce": {"for": "10m"}}`:     "debounce",
		`{"params": {"no": "x"}, "debounce": {"for": "10m"}}`:        "params.no",
	} {
		if p := s.refused(client.TypeInvalid, 422, "POST", path, body); len(p.Errors) != 1 || p.Errors[0].Path != field {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	if p := s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs/default/split/run", `{"debounce": {"for": "10m"}}`); p.Errors[0].Path != "debounce" {
		t.Errorf("with shards: %+v", p.Errors)
	}
}

func TestARetryHasAKeyOfItsOwn(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	var ended []client.Run
	for range 2 {
		run := ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", "")
		n.start(run)
		n.finish(run, job.OutcomeFailed)
		ended = append(ended, run)
		s.pass(time.Minute)
	}
	retry := func(run client.Run) string { return "/api/v1/runs/" + run.ID.String() + "/retry" }
	request := ok[client.Run](s, "POST", retry(ended[0]), "", "Idempotency-Key", "k")
	if again := ok[client.Run](s, "POST", retry(ended[0]), "", "Idempotency-Key", "k"); again.ID != request.ID {
		t.Error("the same request has made another run")
	}
	s.refused(client.TypeInvalid, 422, "POST", retry(ended[1]), "", "Idempotency-Key", "k")
}

// plan plans a run of a job, due after a time.
func (n *node) plan(name string, after time.Duration) client.Run {
	n.t.Helper()
	j, err := store.JobNamed(n.t.Context(), n.store, "default", name)
	if err != nil {
		n.t.Fatal(err)
	}
	due := n.clock().Add(after)
	item := store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: due, Runs: []store.NewRun{{ID: n.id(), Session: n.session, Node: "one", Scheduled: due, Due: due}}}
	out, _, err := n.store.Plan(n.t.Context(), n.session, []store.PlanItem{item})
	if err != nil || out[0] != store.Planned {
		n.t.Fatalf("plan: %v, %v", err, out)
	}
	return client.Run{ID: item.Runs[0].ID, Attempt: 1}
}

func TestChangeNamesRunningButNotRecalledRuns(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "schedule": {"cron": ["7 7 7 7 *"]}, "run": {"shell": "true"}, "policy": {"overlap": "allow"}}`)
	failed := n.plan("a", time.Second)
	n.start(failed)
	n.finish(failed, job.OutcomeFailed)
	s.pass(5 * time.Second)
	ahead := n.plan("a", 2*time.Second)
	n.start(ahead)
	change := ok[client.Change](s, "POST", "/api/v1/jobs/default/a/pause", "")
	if len(change.Running) != 0 || len(change.MayStart) != 1 || change.MayStart[0].ID != ahead.ID || change.MayStart[0].Node != "one" {
		t.Errorf("the answer names %+v, and %+v, which was claimed and not due", change.Running, change.MayStart)
	}
	if err := n.store.Release(t.Context(), n.session, []store.Attempt{{Run: ahead.ID, Number: 1, Token: n.tokens[ahead.ID]}}); err != nil {
		t.Fatal(err)
	}
	if run := ok[client.Run](s, "GET", "/api/v1/runs/"+ahead.ID.String(), ""); run.Outcome != job.OutcomeWithdrawn {
		t.Fatalf("what was called back is %q", run.Outcome)
	}
	j, err := ok[client.Document](s, "GET", "/api/v1/jobs/default/a", "").Job()
	if err != nil || j.Status.LastRun != failed.ID || j.Status.LastOutcome != job.OutcomeFailed {
		t.Errorf("%v, the status is %+v, want the failure", err, j.Status)
	}
}

func TestRunBeginsWithItsFirstAttempt(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "schedule": {"cron": ["7 7 7 7 *"]}, "run": {"shell": "true"}, "policy": {"retry": {"attempts": 1, "backoff": "0s"}}}`)
	run := n.plan("a", time.Second)
	s.pass(time.Second)
	began := s.clock()
	for _, state := range []job.RunState{job.StateReady, job.StateDone} {
		n.start(run)
		n.finish(run, job.OutcomeFailed)
		run.Attempt++
		list := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs", "")
		if len(list.Items) != 1 || list.Items[0].State != state || !list.Items[0].Started.Equal(began) {
			t.Errorf("the runs are %+v, want one that is %s and began at %s", list.Items, state, began)
		}
		s.pass(time.Minute)
	}
}
