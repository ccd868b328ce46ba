package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/cli/checkout"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// commitReading is what a commit with a document says.
func commitReading(hash, document string) reading {
	r := reading{commit: checkout.Commit{Hash: hash, Subject: "x"}, sum: sha256.Sum256([]byte(hash)), validation: &validation{}}
	documents, err := job.Decode("a.yaml", []byte(document))
	var problems job.Problems
	errors.As(err, &problems)
	r.documents, r.problems = documents, problems
	for _, d := range documents {
		sent, err := client.DocumentOf(d)
		r.request.Documents, r.err = append(r.request.Documents, sent), err
	}
	return r
}

// followed runs belfry sync on readings, and returns the server, what it said and how commits ended.
func followed(t *testing.T, server *applies, readings ...reading) (said string, ended []string) {
	t.Helper()
	web := httptest.NewServer(server)
	defer web.Close()
	var log logtest.Log
	getenv := func(name string) string {
		return map[string]string{"BELFRY_SERVER": web.URL, "BELFRY_TOKEN": "x", "NO_COLOR": "1"}[name]
	}
	env := Env{Stdin: strings.NewReader(""), Stdout: &log, Stderr: &log, Getenv: getenv, Now: time.Now, Dir: t.TempDir()}
	r, err := connect(env, config.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := following{every: time.Millisecond, ended: func(r *reading, _ client.Applied, err error) {
		text := r.commit.Hash + " is applied"
		if err != nil {
			text = r.commit.Hash + ": " + r.mistake(err)
		}
		ended = append(ended, text)
	}}
	f.look = func(context.Context) reading {
		if len(readings) == 0 {
			cancel()
			return reading{err: errors.New("no more"), absent: true}
		}
		now := readings[0]
		readings = readings[1:]
		return now
	}
	f.run(ctx, newSync(env), r)
	return log.String(), ended
}

func TestSyncAppliesACommitOnce(t *testing.T) {
	good, away := commitReading("one", "name: a\n"+watchedJob), reading{err: errors.New("no route to host"), absent: true}
	var server applies
	said, ended := followed(t, &server, away, away, good, good, away, good)
	if len(server.taken) != 1 || len(ended) != 1 || ended[0] != "one is applied" {
		t.Errorf("it applied %d times, and ended %q:\n%s", len(server.taken), ended, said)
	}
	if n := strings.Count(said, "no route to host"); n != 2 { // once in each time without it
		t.Errorf("the missing repository is said %d times:\n%s", n, said)
	}
}

func TestSyncKeepsTheLastGoodCommit(t *testing.T) {
	good, bad := commitReading("one", "name: a\n"+watchedJob), commitReading("two", "name: a\nx: 1\ny: 2\n"+watchedJob)
	var server applies
	said, ended := followed(t, &server, good, bad, bad, commitReading("three", "name: b\n"+watchedJob))
	if len(server.taken) != 2 || strings.Count(said, "the jobs stay as they are") != 1 {
		t.Errorf("it applied %d times:\n%s", len(server.taken), said)
	}
	if len(ended) != 3 || !strings.HasPrefix(ended[1], "two: a.yaml:2:1: x: unknown field") || !strings.HasSuffix(ended[1], ", and 1 other mistake") {
		t.Errorf("the commits ended %q", ended)
	}
}

func TestSyncTriesAgainWhatTheServerRefuses(t *testing.T) {
	good := commitReading("one", "name: a\n"+watchedJob)
	server := applies{status: http.StatusConflict}
	readings := make([]reading, 200)
	for i := range readings {
		readings[i] = good
	}
	said, ended := followed(t, &server, readings...)
	if server.tries < 3 || strings.Count(said, "belongs to another owner") != 1 || len(ended) != server.tries {
		t.Errorf("after %d tries, of which %d ended, it said\n%s", server.tries, len(ended), said)
	}
}

func TestAMistakeIsShownWhenTheServerIsBack(t *testing.T) {
	server := applies{status: http.StatusServiceUnavailable}
	web := httptest.NewServer(&server)
	defer web.Close()
	var log logtest.Log
	getenv := func(name string) string {
		return map[string]string{"BELFRY_SERVER": web.URL, "BELFRY_TOKEN": "x"}[name]
	}
	to, err := connect(Env{Stderr: &log, Getenv: getenv, Now: time.Now}, config.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	m := shownProblems{server: to}
	r := commitReading("one", "name: a\nx: 1\n")
	r.request.Owner, r.request.Source = "git", &client.Commit{URL: "https://git.example.com/x", Commit: "one", Files: []string{"a.yaml"}}
	m.show(t.Context(), &r, failed("1 mistake"))
	if !strings.Contains(log.String(), "does not show the problem yet") || m.showOwed(t.Context()) == nil {
		t.Errorf("without a server it says %q", log.String())
	}
	server.fail(0)
	for range 2 { // and then no more
		if err := m.showOwed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(server.taken) != 1 || server.taken[0].Owner != "git" || !strings.HasPrefix(server.taken[0].Source.Mistake, "a.yaml:2:1: x: unknown field") || server.taken[0].Source.Files != nil || server.taken[0].Prune {
		t.Errorf("the server takes %+v", server.taken)
	}
	m.show(t.Context(), &r, &failure{code: ExitUnreachable, message: "no route"})
	m.show(t.Context(), &r, nil)
	if len(server.taken) != 1 {
		t.Error("a failure of the server is a mistake of the commit")
	}
}

func TestARepositoryOutOfReachIsShownUntilItIsReached(t *testing.T) {
	var server applies
	web := httptest.NewServer(&server)
	defer web.Close()
	now, log := time.Unix(1e9, 0), logtest.Log{}
	getenv := func(name string) string {
		return map[string]string{"BELFRY_SERVER": web.URL, "BELFRY_TOKEN": "x"}[name]
	}
	to, err := connect(Env{Stderr: &log, Getenv: getenv, Now: func() time.Time { return now }}, config.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	m := shownProblems{server: to}
	about := client.Apply{Documents: []client.Document{}, Owner: "git", Source: &client.Commit{URL: "https://git.example.com/x"}}
	away := func(why string) reading { return reading{err: errors.New(why), absent: true} }
	here := commitReading("one", "name: a\n"+watchedJob)
	here.commit.Hash = "abcdef0"
	for _, c := range []struct {
		after time.Duration
		r     reading
		taken int // by the server so far
	}{
		{0, here, 0},
		{time.Minute, away("no route"), 0},
		{unreachedAfter - time.Second, away("no route"), 0},
		{time.Second, away("no route"), 1},
		{time.Hour, away("no route"), 1},
		{time.Minute, away("no route after 5 ms"), 2},
		{time.Minute, away("no route after 17 ms"), 2},
		{time.Minute, here, 3},
		{time.Minute, here, 3},
		{time.Minute, away("no route"), 3},
		{time.Minute, here, 3}, // a short gap is no problem
		{unreachedAfter - time.Second, away("no route"), 3},
	} {
		now = now.Add(c.after)
		m.showReach(t.Context(), about, &c.r)
		if len(server.taken) != c.taken {
			t.Fatalf("%v later, %v, the server has been told %d times, want %d", c.after, c.r.err, len(server.taken), c.taken)
		}
	}
	if s := server.taken; s[0].Source.Unreached != "no route" || s[0].Source.Commit != "" || s[0].Prune || s[1].Source.Unreached != "no route after 5 ms" || !s[2].Source.Reached || s[2].Source.Commit != "abcdef0" {
		t.Errorf("the server takes %+v, %+v and %+v", s[0].Source, s[1].Source, s[2].Source)
	}
	server.fail(http.StatusServiceUnavailable)
	lost := away("no route")
	for range 2 {
		now = now.Add(unreachedAfter)
		m.showReach(t.Context(), about, &lost)
	}
	if !strings.Contains(log.String(), "does not show the problem yet") || len(server.taken) != 3 {
		t.Errorf("without a server it says %q", log.String())
	}
	server.fail(0)
	if err := m.showOwed(t.Context()); err != nil || len(server.taken) != 4 {
		t.Errorf("the server is told %d times (%v)", len(server.taken), err)
	}
}

func TestStatusOfACommitIsWritten(t *testing.T) {
	env := Env{Dir: t.TempDir(), Now: func() time.Time { return time.Unix(0, 0) }}
	ask := syncFlags{statusFile: "status"}
	r := commitReading("one", "name: a\n"+watchedJob)
	for _, c := range []struct {
		err         error
		state, text string
	}{
		{nil, "success", "2 documents applied"},
		{&failure{code: ExitFailed, message: "1 mistake", details: []string{strings.Repeat("误", 200)}}, "failure", strings.Repeat("误", statusTextMax-1) + "…"},
		{&failure{code: ExitUnreachable, message: "no route <here>"}, "error", "no route <here>"},
	} {
		if err := ask.writeStatus(env, &r, client.Applied{Results: make([]client.ApplyResult, 2)}, c.err); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(env.Dir, "status"))
		if err != nil {
			t.Fatal(err)
		}
		var got commitStatus
		if err := json.Unmarshal(text, &got); err != nil || got.Commit != "one" || got.State != c.state || got.Description != c.text {
			t.Errorf("the status is %s (%v), want %s: %s", text, err, c.state, c.text)
		}
	}
}
