package web_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ran makes a run of a job, ten minutes after the one before.
func (w *world) ran(name string, outcome job.Outcome) job.ID {
	w.t.Helper()
	w.now = w.now.Add(10 * time.Minute)
	attempt := w.runs(name)
	w.ends(attempt, time.Second, outcome)
	return attempt.Run
}

func (b *browser) page(path string) string {
	b.t.Helper()
	answer := b.ask("GET", path, nil)
	if answer.Code != http.StatusOK {
		b.t.Fatalf("%s is answered with %d", path, answer.Code)
	}
	return answer.Body.String()
}

// A failed run leads to the last one that succeeded, and to the change between the two.
func TestAFailedRunLeadsToTheLastSuccess(t *testing.T) {
	w := newWorld(t)
	w.fill()
	const document = "namespace: shop\nname: feed\nrun: {shell: '%s'}\n"
	w.put(fmt.Sprintf(document, "true"))
	succeeded := w.ran("shop/feed", job.OutcomeSucceeded)
	w.put(fmt.Sprintf(document, "false"))
	var failed []job.ID
	for range 12 {
		failed = append(failed, w.ran("shop/feed", job.OutcomeFailed))
	}
	b := w.login("vera")
	for _, c := range []struct {
		why        string
		run        job.ID
		last, find bool
	}{
		{"right after the success", failed[0], true, false},
		{"when the success is further down", failed[4], true, false},
		{"when no success is near", failed[11], false, true},
		{"of the success itself", succeeded, false, false},
	} {
		body := b.page("/runs/" + c.run.String())
		if got := strings.Contains(body, `<span class="muted">the last that succeeded</span>`); got != c.last {
			t.Errorf("%s: the last success is shown: %t", c.why, got)
		}
		if got := strings.Contains(body, fmt.Sprintf(`<a class="link" href="/runs/%s#output">Output of the success at 08:51</a>`, succeeded)); got != c.last {
			t.Errorf("%s: its output is linked: %t", c.why, got)
		}
		if got := strings.Contains(body, `href="/jobs/shop/feed/definition?version=2&amp;since=1">`); got != c.last {
			t.Errorf("%s: the change is linked: %t", c.why, got)
		}
		if got := strings.Contains(body, `href="/runs?outcome=succeeded&amp;job=shop%2Ffeed">`); got != c.find {
			t.Errorf("%s: the list of successes is linked: %t", c.why, got)
		}
	}
	if body := b.page("/runs?outcome=succeeded&job=shop/feed"); !strings.Contains(body, "/runs/"+succeeded.String()) || strings.Contains(body, "/runs/"+failed[0].String()) {
		t.Error("the list of successes does not have them alone")
	}
}

var endsPhase = regexp.MustCompile(`<li class="todo"><b>([^<]*)</b>(.*?)<br><span>([^<]*)</span></li>`)

// A running run says how many attempts it may have, and when this one ends at the latest.
func TestARunningRunSaysWhenItEndsAtTheLatest(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("vera")
	for i, c := range []struct{ policy, name, when, text, attempt string }{
		{"{timeout: 2h, kill_grace: 5s}", "Ends", "10:41:05, ", "at the latest, by timeout and kill_grace", "attempt 1"},
		{"{timeout: 2h, kill_grace: 5s, retry: {attempts: 2}}", "Attempt ends", "10:41:05, ", "at the latest, by timeout and kill_grace", "attempt 1 of 3"},
		{"{}", "Ends", "", "", "attempt 1"},
	} {
		name := fmt.Sprintf("long-%d", i)
		w.put("namespace: ops\nname: " + name + "\nrun: {shell: 'true'}\npolicy: " + c.policy + "\n")
		body := b.page("/runs/" + w.runs("ops/"+name).Run.String())
		ends := endsPhase.FindStringSubmatch(body)
		if ends == nil || ends[1] != c.name || !strings.HasPrefix(ends[2], c.when) || (c.when == "") != (ends[2] == "") || ends[3] != c.text {
			t.Errorf("%s: the end is %q", c.policy, ends)
		}
		if c.when != "" && !strings.Contains(ends[2], "data-relative>in 2 h<") {
			t.Errorf("%s: the end has no countdown: %q", c.policy, ends[2])
		}
		if !strings.Contains(body, "ber-1, "+c.attempt+"</span>") {
			t.Errorf("%s: the page does not say %q", c.policy, c.attempt)
		}
		if !strings.Contains(body, "running for <time") || !strings.Contains(body, "data-since>0 s</time></span>") {
			t.Errorf("%s: the page does not count how long it runs", c.policy)
		}
	}
}

// The line of attempts has their exit codes, and the wait before each that was not the first.
func TestTheAttemptsOfARunAreOnALineOfTime(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: ops\nname: twice\nrun: {shell: 'false'}\npolicy: {retry: {attempts: 1, backoff: 10s}}\n")
	a, code := w.runs("ops/twice"), 7
	for number := range 2 {
		if number == 1 {
			w.now = w.now.Add(10 * time.Second)
			a.Number, a.Token = 2, w.id()
			_, err := w.store.Claim(w.t.Context(), w.node, []store.Attempt{a})
			w.must(err)
		}
		_, err := w.store.Finish(w.t.Context(), w.node, []store.Result{{Attempt: a, Started: w.now, Ended: w.now.Add(time.Second), Outcome: job.OutcomeFailed, ExitCode: &code}})
		w.must(err)
		w.now = w.now.Add(time.Second)
	}
	for lang, want := range map[string][]string{
		"en": {"1.0 s on ber-1, exit code 7", `class="f-mute"><title>waited 10 s for the attempt`},
		"zh": {"1.0 秒，在 ber-1 上，退出码 7", "等待 10 秒后再次尝试"},
	} {
		body := w.login("vera").ask("GET", "/runs/"+a.Run.String(), nil, "Accept-Language", lang).Body.String()
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("in %s the page does not say %q", lang, text)
			}
		}
	}
}
