package xxl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recording is the conversation of the executor in Go that executor/xxl replays.
const recording = "../../executor/xxl/testdata/go.jsonl"

// spoken is a line of a conversation, as executor/xxl reads it.
type spoken struct {
	From        string            `json:"from,omitempty"`
	To          string            `json:"to,omitempty"`
	Method      string            `json:"method,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Headers     map[string]string `json:"request_headers,omitempty"`
	Request     string            `json:"request,omitempty"`
	Status      int               `json:"status,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Response    *string           `json:"response,omitempty"`

	Does    string `json:"does,omitempty"`
	For     string `json:"for,omitempty"`
	Name    string `json:"name,omitempty"`
	Job     string `json:"job,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Text    string `json:"text,omitempty"`
}

// recorder forwards and records requests between an executor and its admin, in both directions.
type recorder struct {
	t     *testing.T
	mu    sync.Mutex
	lines []*spoken // ordered by their beginning
}

func (r *recorder) add(l *spoken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, l)
}

// asked reports whether a request with a path and text has been answered.
func (r *recorder) asked(uri, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.lines, func(l *spoken) bool {
		return strings.HasSuffix(l.URI, uri) && strings.Contains(l.Request, text) && l.Status != 0
	})
}

// answered reports whether all requests have been.
func (r *recorder) answered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.lines, func(l *spoken) bool { return l.URI != "" && l.Status == 0 })
}

// between passes requests on and notes them. What changes the body of a request is not noted.
func (r *recorder) between(from, to, base string, change func(string) string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		l := &spoken{From: from, To: to, Method: q.Method, URI: q.RequestURI, Request: string(body), Headers: map[string]string{}}
		for _, name := range []string{"Content-Type", "XXL-JOB-ACCESS-TOKEN"} {
			if value := q.Header.Get(name); value != "" {
				l.Headers[name] = value
			}
		}
		r.add(l)
		onward, err := http.NewRequest(q.Method, base+q.RequestURI, strings.NewReader(change(string(body))))
		if err != nil {
			r.t.Error(err)
			return
		}
		onward.Header = q.Header.Clone()
		answer, err := http.DefaultClient.Do(onward)
		if err != nil {
			panic(http.ErrAbortHandler) // as if there were no answer
		}
		defer answer.Body.Close()
		said, _ := io.ReadAll(answer.Body)
		text := string(said)
		r.mu.Lock()
		l.Status, l.Response = answer.StatusCode, &text
		if from == "admin" {
			l.ContentType = answer.Header.Get("Content-Type")
		}
		r.mu.Unlock()
		w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(said)
	}))
	r.t.Cleanup(s.Close)
	return s
}

var (
	moment = regexp.MustCompile(`\b[19]\d{11,12}\b`)
	number = regexp.MustCompile(`\\"logId\\":\d+`)
)

// counted replaces each match of a pattern by its number among the distinct ones.
func counted(text string, pattern *regexp.Regexp, format string) string {
	var known []string
	return pattern.ReplaceAllStringFunc(text, func(found string) string {
		i := slices.Index(known, found)
		if i < 0 {
			i, known = len(known), append(known, found)
		}
		return fmt.Sprintf(format, i+1)
	})
}

// text returns the conversation with its times as $1, $2 and so on, runs numbered from 1, and the
// token and address of executor/xxl.
func (r *recorder) text(executor string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	isRegistered := false
	for _, l := range r.lines {
		if strings.HasSuffix(l.URI, "/registry") {
			if isRegistered {
				continue // a beat, at any time
			}
			isRegistered = true
		}
		if err := to.Encode(l); err != nil {
			r.t.Fatal(err)
		}
	}
	text := strings.NewReplacer(token, "a-token-for-tests", executor, "http://10.0.0.6:9999").Replace(b.String())
	return counted(counted(text, moment, "$%d"), number, `\"logId\":%d`)
}

// The conversation with the executor in Go equals the one that executor/xxl replays: UPDATE=1
// records it again. Requests of both sides overlap, so their order may differ.
func TestTheConversationIsTheOneThatIsReplayed(t *testing.T) {
	n := serve(t)
	r := &recorder{t: t}
	port := free(t)
	executor := "http://127.0.0.1:" + port
	toExecutor := r.between("admin", "executor", executor, func(body string) string { return body })
	toAdmin := r.between("executor", "admin", n.xxl, func(body string) string { return strings.ReplaceAll(body, executor, toExecutor.URL) })
	start(t, "goexecutor", toAdmin.URL+"/xxl-job-admin", token, port)
	n.waits("the executor registers", func() bool { return r.asked("/api/registry", executor) })

	do := func(name, document string, meanwhile func(id string), outcome, reason string) {
		t.Helper()
		n.apply("name: " + name + "\n" + document)
		r.add(&spoken{Does: "run", Name: name, Job: document})
		id := n.run(name)
		if meanwhile != nil {
			meanwhile(id)
		}
		n.wants(id, outcome, reason)
		r.add(&spoken{Does: "ends", Name: name, Outcome: outcome, Reason: reason})
		r.add(&spoken{Does: "wait", For: "50ms"}) // separates the times of runs
	}
	do("ok", "run: {xxl: {group: go-group, handler: echo, param: full, id: 17}}", nil, "succeeded", "")
	do("panic", "run: {xxl: {group: go-group, handler: panic, id: 18}}", nil, "failed", "task panic:deliberate")
	do("unknown", "run: {xxl: {group: go-group, handler: nowhere, id: 19}}", nil, "failed", "Task not registered")
	do("cancelled", "run: {xxl: {group: go-group, handler: sleep, param: 1h, id: 20}}", func(id string) {
		n.waits("the run is at the executor", func() bool { return r.asked("/run", `"jobId":20`) })
		r.add(&spoken{Does: "cancel", Name: "cancelled", Reason: "enough"})
		n.cli("run", "cancel", id, "--reason", "enough")
		n.waits("the executor reports it", func() bool { return r.asked("/api/callback", "cancelled") })
	}, "cancelled", "")

	n.waits("all is answered", r.answered)
	got := r.text(executor)
	if os.Getenv("UPDATE") != "" {
		head := "# Recorded with xxl-job-executor-go v1.2.0 by test/xxl: UPDATE=1 go -C test/xxl test -run Conversation .\n"
		if err := os.WriteFile(recording, []byte(head+got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	times := regexp.MustCompile(`\$\d+`)
	lines := func(text string) []string {
		list := slices.DeleteFunc(strings.Split(times.ReplaceAllString(text, "$"), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "#") || strings.Contains(line, `"uri":"/idleBeat"`) // only requests for long runs
		})
		slices.Sort(list)
		return slices.Compact(list)
	}
	if a, b := lines(got), lines(string(want)); !slices.Equal(a, b) {
		t.Errorf("said was\n%s\nwhat is replayed is\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}
