package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/check/logtest"
)

// applies is a server that takes documents.
type applies struct {
	http.Handler
	mu     sync.Mutex
	status int // of its answers, unless 0
	tries  int
	taken  []client.Apply
}

func (a *applies) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries++
	if a.status != 0 {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(a.status)
		_ = json.NewEncoder(w).Encode(client.Problem{Type: client.TypeConflict, Title: "conflict", Detail: "the job belongs to another owner", Status: a.status})
		return
	}
	var request client.Apply
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.taken = append(a.taken, request)
	answer := client.Applied{}
	for range request.Documents {
		answer.Results = append(answer.Results, client.ApplyResult{Kind: "job", Name: "default/x", Result: client.Changed})
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *applies) fail(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = status
}

// watching is a running belfry apply --watch.
type watching struct {
	t      *testing.T
	dir    string
	server applies
	says   logtest.Log
}

func newWatching(t *testing.T, files ...string) *watching {
	t.Helper()
	w := &watching{t: t, dir: t.TempDir()}
	web := httptest.NewServer(&w.server)
	t.Cleanup(web.Close)
	for i, name := range files {
		files[i] = filepath.Join(w.dir, name)
	}
	getenv := func(name string) string {
		return map[string]string{"BELFRY_SERVER": web.URL, "BELFRY_TOKEN": "x", "NO_COLOR": "1"}[name]
	}
	env := Env{Stdin: strings.NewReader(""), Stdout: &w.says, Stderr: &w.says, Getenv: getenv, Now: time.Now, Dir: w.dir}
	cmd := newApply(env)
	ctx, cancel := context.WithCancel(context.Background())
	cmd.SetContext(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- watch(cmd, env, applyFlags{sources: sources{files: files, owner: "git", prune: true}, output: asTable}, 10*time.Millisecond)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
	return w
}

func (w *watching) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// until waits until the server has taken documents, or the command has said a text.
func (w *watching) until(what string, is func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		w.server.mu.Lock()
		done := is()
		w.server.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s does not come; it said\n%s", what, w.says.String())
		}
	}
}

func (w *watching) said(text string) {
	w.t.Helper()
	w.until(text, func() bool { return strings.Contains(w.says.String(), text) })
}

// applied waits for the nth request, and returns the names in it.
func (w *watching) applied(n int) (names []string) {
	w.t.Helper()
	w.until("a request", func() bool { return len(w.server.taken) >= n })
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if len(w.server.taken) != n {
		w.t.Fatalf("%d requests were made, want %d", len(w.server.taken), n)
	}
	last := w.server.taken[n-1]
	if last.Owner != "git" || !last.Prune {
		w.t.Errorf("the request is of %q, and prunes: %v", last.Owner, last.Prune)
	}
	for _, d := range last.Documents {
		j, err := d.Job()
		if err != nil {
			w.t.Fatal(err)
		}
		names = append(names, j.Name)
	}
	return names
}

const watchedJob = "run: {shell: 'true'}\n"

func TestWatchAppliesWhatChanges(t *testing.T) {
	w := newWatching(t, "jobs")
	w.said("no such file or directory") // the folder comes later, as with git-sync
	for _, release := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(w.dir, release), 0o700); err != nil {
			t.Fatal(err)
		}
		w.write(release+"/a.yaml", "name: of-"+release+"\n"+watchedJob)
	}
	link := func(to string) {
		t.Helper()
		fresh := filepath.Join(w.dir, "fresh")
		if err := os.Symlink(to, fresh); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, filepath.Join(w.dir, "jobs")); err != nil {
			t.Fatal(err)
		}
	}
	link("one")
	if got := w.applied(1); !slices.Equal(got, []string{"of-one"}) {
		t.Errorf("the documents are %q", got)
	}
	link("two") // as git-sync and ConfigMaps do
	if got := w.applied(2); !slices.Equal(got, []string{"of-two"}) {
		t.Errorf("the documents are %q", got)
	}
	w.write("two/b.yaml", "name: 另一个\n"+watchedJob)
	w.said("\"另一个\"") // is no name: the last good state stays
	w.said("the jobs stay as they are")
	w.write("two/b.yaml", "name: b\n"+watchedJob)
	if got := w.applied(3); !slices.Equal(got, []string{"of-two", "b"}) {
		t.Errorf("the documents are %q", got)
	}
	before := strings.Count(w.says.String(), "the jobs stay as they are")
	if err := os.Remove(filepath.Join(w.dir, "jobs")); err != nil {
		t.Fatal(err)
	}
	w.until("a missing folder", func() bool { return strings.Count(w.says.String(), "the jobs stay as they are") > before })
	link("two") // the same as before: nothing is to be done, and applying it again does no harm
	w.applied(4)
}

func TestWatchWaitsForFilesThatAreBeingWritten(t *testing.T) {
	w := newWatching(t, "jobs.yaml")
	rests := 0 // on a busy machine the file may rest between two readings
	for i := range 200 {
		began := time.Now()
		w.write("jobs.yaml", "name: n"+strings.Repeat("0", i%50)+"\n"+watchedJob)
		time.Sleep(time.Millisecond)
		if time.Since(began) > 4*time.Millisecond {
			rests++
		}
	}
	w.write("jobs.yaml", "name: last\n"+watchedJob)
	w.until("the last state", func() bool {
		n := len(w.server.taken)
		return n > 0 && bytes.Contains(w.server.taken[n-1].Documents[0].RawMessage, []byte(`"last"`))
	})
	if n := len(w.server.taken); n > 20+rests {
		t.Errorf("%d states of a file that was being written were applied, and it rested %d times", n, rests)
	}
}

func TestWatchTriesAgainWhatTheServerRefuses(t *testing.T) {
	w := newWatching(t, "jobs.yaml")
	w.server.fail(http.StatusConflict)
	w.write("jobs.yaml", "name: a\n"+watchedJob)
	w.until("the third try", func() bool { return w.server.tries >= 3 })
	if n := strings.Count(w.says.String(), "belongs to another owner"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, w.says.String())
	}
	w.server.fail(0)
	w.applied(1)
	w.said("1 document applied: 1 changed")
}

func TestWatchRefusesWhatContradictsIt(t *testing.T) {
	for _, c := range []struct {
		ask  applyFlags
		want string
	}{
		{applyFlags{sources: sources{files: []string{"-"}}}, "standard input only once"},
		{applyFlags{dryRun: "server"}, "--watch or --dry-run"},
		{applyFlags{run: true}, "--watch or --run"},
		{applyFlags{output: asJSON}, "leave out --output"},
	} {
		c.ask.watch = true
		if c.ask.output == "" {
			c.ask.output = asTable
		}
		if err := c.ask.checkWatch(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.ask, err)
		}
	}
}
