package xxlexec

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
)

// line is a line of a conversation in testdata: a request with its answer, from executor to admin
// or from admin to executor, or an action of a third party. The first time in ms is $1, the next
// different one $2 and so on.
type line struct {
	From, To, Method, URI string
	Headers               map[string]string `json:"request_headers"`
	Request               string
	Status                int
	ContentType           string  `json:"content_type"`
	Response              *string // none: a later line answers it

	Does    string // run, wait, cancel, answer, ends, output
	Name    string // of a run
	Job     string
	For     string
	Outcome job.Outcome
	Reason  string
	Text    string
}

// asked is a request at an executor that has no answer yet.
type asked struct {
	*http.Request
	body  string
	reply chan line
}

// conversation replays the messages between an executor and its admin.
type conversation struct {
	*rig
	asked   chan asked
	pending []asked // requests that wait for their lines
	open    *asked  // is answered later
	runs    map[string]*attempt
	waiting []func() // checks of unfinished requests
	times   []string
	at      int // the line
}

var moment = regexp.MustCompile(`\b[19]\d{11,12}\b`)

// shown writes times as the file has them.
func (c *conversation) shown(text string) string {
	return moment.ReplaceAllStringFunc(text, func(t string) string {
		for i, known := range c.times {
			if known == t {
				return fmt.Sprintf("$%d", i+1)
			}
		}
		c.times = append(c.times, t)
		return fmt.Sprintf("$%d", len(c.times))
	})
}

// real writes times of the file as they are.
func (c *conversation) real(text string) string {
	for i, t := range c.times {
		text = strings.ReplaceAll(text, fmt.Sprintf(":$%d", i+1), ":"+t)
	}
	return text
}

func (c *conversation) wrong(format string, args ...any) {
	c.Helper()
	c.Errorf("line %d: %s", c.at, fmt.Sprintf(format, args...))
}

// end refuses what the admin has sent besides.
func (c *conversation) end() {
	c.Helper()
	c.await()
	for _, q := range c.pending {
		c.wrong("the admin sent %s %s %s, which is not in the conversation", q.Method, q.URL.Path, q.body)
		q.reply <- line{Status: 404}
	}
	c.pending = nil
	c.settle()
}

// await waits until all goroutines are idle, and collects the requests of the admin.
func (c *conversation) await() {
	synctest.Wait()
	for range len(c.asked) {
		c.pending = append(c.pending, <-c.asked)
	}
}

// settle waits until all goroutines are idle, and checks finished requests.
func (c *conversation) settle() {
	c.Helper()
	c.await()
	for _, check := range c.waiting {
		check()
	}
	c.waiting = nil
}

func (c *conversation) take(l *line) {
	c.Helper()
	if l.From == "admin" {
		c.admin_(l)
		return
	}
	c.settle()
	switch {
	case l.From == "executor":
		c.executor_(l)
	case l.Does == "run":
		made := c.trigger(c.put(l.Job), 0, 0)
		one := &attempt{Attempt: made}
		c.runs[l.Name] = one
		go func() { *one = c.claim(made) }()
	case l.Does == "wait":
		d, err := time.ParseDuration(l.For)
		c.must(err)
		time.Sleep(d)
	case l.Does == "cancel":
		_, err := c.store.Cancel(c.Context(), c.runs[l.Name].Run, "ann", l.Reason)
		c.must(err)
	case l.Does == "answer":
		c.open.reply <- *l
		c.open = nil
		synctest.Wait()
	case l.Does == "ends":
		c.wants(*c.runs[l.Name], l.Outcome, l.Reason)
	case l.Does == "output":
		if got := c.output(*c.runs[l.Name]); got != l.Text {
			c.wrong("the output is %q, want %q", got, l.Text)
		}
	default:
		c.Fatalf("line %d is none", c.at)
	}
}

// executor_ sends an executor's request to the admin, and compares the answer byte by byte.
func (c *conversation) executor_(l *line) {
	var body struct{ RegistryValue string }
	if json.Unmarshal([]byte(l.Request), &body) == nil && body.RegistryValue != "" {
		c.serve(body.RegistryValue)
	}
	q := httptest.NewRequest(l.Method, l.URI, strings.NewReader(c.real(l.Request)))
	q.Header = http.Header{}
	for name, value := range l.Headers {
		q.Header.Set(name, value)
	}
	answer, at, done := httptest.NewRecorder(), c.at, make(chan struct{})
	go func() { defer close(done); c.admin.ServeHTTP(answer, q) }()
	c.waiting = append(c.waiting, func() {
		<-done
		if answer.Code != l.Status || answer.Body.String() != *l.Response || answer.Header().Get("Content-Type") != xxl.ContentType {
			c.Errorf("line %d: answered with %d %s (%s), want %d %s", at, answer.Code, answer.Body, answer.Header().Get("Content-Type"), l.Status, *l.Response)
		}
	})
}

// admin_ takes a request of the admin, which must be the next of the conversation. Concurrent ones
// may come in any order.
func (c *conversation) admin_(l *line) {
	c.await()
	if len(c.pending) == 0 {
		c.Fatalf("line %d: the admin has not sent %s %s", c.at, l.URI, l.Request)
	}
	at := max(0, slices.IndexFunc(c.pending, func(q asked) bool {
		known := len(c.times)
		isIt := q.Method == l.Method && q.RequestURI == l.URI && c.shown(q.body) == l.Request
		if !isIt {
			c.times = c.times[:known]
		}
		return isIt
	}))
	q := c.pending[at]
	c.pending = slices.Delete(c.pending, at, at+1)
	if q.Method != l.Method || q.RequestURI != l.URI || c.shown(q.body) != l.Request {
		c.wrong("the admin sent %s %s %s\nwant %s %s %s", q.Method, q.RequestURI, c.shown(q.body), l.Method, l.URI, l.Request)
	}
	for _, name := range []string{"Content-Type", xxl.HeaderToken, xxl.HeaderGroup} {
		if got := q.Header.Get(name); got != l.Headers[name] {
			c.wrong("the header %s is %q, want %q", name, got, l.Headers[name])
		}
	}
	if l.Response == nil {
		c.open = &q
		return
	}
	q.reply <- *l
}

// serve lets an executor listen where it registers.
func (c *conversation) serve(base string) {
	u, err := url.Parse(base)
	c.must(err)
	c.net.mu.Lock()
	known := c.net.hosts[u.Host] != nil
	c.net.mu.Unlock()
	if known {
		return
	}
	l := c.net.listen(u.Host)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		q := asked{r, string(body), make(chan line)}
		select {
		case c.asked <- q:
		case <-c.Context().Done():
			return
		}
		reply := <-q.reply
		w.Header().Set("Content-Type", reply.ContentType)
		w.WriteHeader(reply.Status)
		if reply.Response != nil {
			_, _ = io.WriteString(w, c.real(*reply.Response))
		}
	})}
	go func() { _ = server.Serve(l) }()
	c.Cleanup(func() { c.net.cut(u.Host); _ = server.Close(); c.admin.Close() })
}

// Conversations of executors of each generation, written by the rules of the protocol, and one
// recorded with the executor in Go by test/xxl.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".jsonl"), func(t *testing.T) {
			bubble(t, func(r *rig) {
				file, err := os.Open(name)
				r.must(err)
				defer file.Close()
				c := &conversation{rig: r, asked: make(chan asked, 100), runs: map[string]*attempt{}}
				r.must(r.admin.Set(Settings{Tokens: []string{token}, Glue: true}))
				c.keepOnly()
				lines := bufio.NewScanner(file)
				lines.Buffer(nil, 1<<20)
				for lines.Scan() {
					if c.at++; strings.HasPrefix(lines.Text(), "{") {
						var l line
						from := json.NewDecoder(strings.NewReader(lines.Text()))
						from.DisallowUnknownFields()
						if err := from.Decode(&l); err != nil {
							t.Fatalf("line %d: %v", c.at, err)
						}
						c.take(&l)
					}
				}
				r.must(lines.Err())
				c.end()
			})
		})
	}
}

// keepOnly runs the loops of the admin.
func (c *conversation) keepOnly() {
	ctx, stop := context.WithCancel(c.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.admin.Serve(ctx) }()
	c.Cleanup(func() { stop(); <-done })
	synctest.Wait()
}
