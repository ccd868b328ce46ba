package web_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/service"
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
		if got := strings.Contains(body, `It changed: <span class="mono">run.shell.command</span>. <a class="link" href="/jobs/shop/feed/definition?version=2&amp;since=1">`); got != c.last {
			t.Errorf("%s: the change is named and linked: %t", c.why, got)
		}
		isLatest := c.run != succeeded
		if got := strings.Count(body, "v2, the latest") == 2; got != isLatest {
			t.Errorf("%s: its version is the latest: %t", c.why, got)
		}
		if got := strings.Contains(body, `href="/jobs/shop/feed/definition?version=2&amp;since=1">v1 → v2</a>`); got == isLatest {
			t.Errorf("%s: the change since then is linked: %t", c.why, got)
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
		if !strings.Contains(body, "ber-1</span>, "+c.attempt+"</span>") {
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

func TestTheLineOfARunSaysWhatItUsed(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: ops\nname: heavy\nrun: {shell: 'true'}\npolicy: {expect: {memory_below: 100MB}}\n")
	a := w.runs("ops/heavy")
	used := job.Usage{CPUSeconds: 2.31, MemoryBytes: 118 << 20, ReadBytes: new(int64(0)), WrittenBytes: new(int64(900 << 10))}
	_, err := w.store.Finish(w.t.Context(), w.node, []store.Result{{Attempt: a, Started: w.now, Ended: w.now.Add(time.Second), Outcome: job.OutcomeSucceeded, Usage: used}})
	w.must(err)
	for lang, want := range map[string][]string{
		"en": {"2.3 s CPU · 118.0 MiB peak · 0 B read · 900.0 KiB written", "attempt 1 used 123.7 MB of memory, expected was less than 100.0 MB"},
		"zh": {"CPU 2.3 秒 · 内存峰值 118.0 MiB · 读取 0 B · 写入 900.0 KiB", "第 1 次尝试使用内存 123.7 MB，预期少于 100.0 MB"},
	} {
		body := w.login("vera").ask("GET", "/runs/"+a.Run.String(), nil, "Accept-Language", lang).Body.String()
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("in %s the page does not say %q", lang, text)
			}
		}
	}
}

// A failed run says how many more failures pause its job, that it has paused it, or which run has.
func TestAFailedRunSaysWhenFailuresPauseTheJob(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: shop\nname: flaky\nrun: {shell: 'false'}\npolicy: {pause_on_failure: 3}\n")
	vera := w.login("vera")
	says := func(run job.ID, lang, want string, others ...string) {
		t.Helper()
		body := vera.ask("GET", "/runs/"+run.String(), nil, "Accept-Language", lang).Body.String()
		if !strings.Contains(body, want) {
			t.Errorf("the page of the run does not say %q", want)
		}
		for _, other := range others {
			if strings.Contains(body, other) {
				t.Errorf("the page of the run says %q", other)
			}
		}
	}
	before := w.ran("shop/flaky", job.OutcomeFailed)
	w.ran("shop/flaky", job.OutcomeSucceeded)
	first := w.ran("shop/flaky", job.OutcomeFailed)
	says(before, "en", "exit status 1", "pause_on_failure")
	says(first, "en", "2 more failures in a row pause the job: 1 of 3 so far (pause_on_failure).")
	w.ran("shop/flaky", job.OutcomeTimedOut)
	says(first, "en", "1 more failure in a row pauses the job: 2 of 3 so far (pause_on_failure).")
	says(first, "zh", "再连续失败 1 次，任务将被暂停：目前 2 / 3（pause_on_failure）。")
	last := w.ran("shop/flaky", job.OutcomeFailed)
	at := w.now.Format("15:04:05")
	says(last, "en", "This run paused the job at "+at+", as pause_on_failure says: 3 runs failed in a row. An operator resumes it on its page or with belfry job resume shop/flaky. "+
		`<a class="link" href="/jobs/shop/flaky">To the job</a>`)
	says(first, "en", "The job is paused since "+at+", as pause_on_failure says: 3 runs failed in a row. An operator resumes it on its page or with belfry job resume shop/flaky. "+
		`<a class="link" href="/runs/`+last.String()+`">The run that paused it</a>`)
	says(last, "zh", "本次运行于 "+at+" 按 pause_on_failure 暂停了任务")
	says(before, "en", "exit status 1", "as pause_on_failure says")
	if answer := w.login("ann").send("/jobs/shop/flaky/resume"); answer.Code != http.StatusSeeOther {
		t.Fatalf("the job is not resumed: %d", answer.Code)
	}
	again := w.ran("shop/flaky", job.OutcomeFailed)
	says(again, "en", "2 more failures in a row pause the job")
	says(last, "en", "exit status 1", "so far (pause_on_failure)")
}

// The life of a run says which expression, who or which other run has made it.
func TestARunSaysWhatMadeIt(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: shop\nname: twice\nschedule: {cron: ['30 9 * * *', '* * * * *'], timezone: Europe/Berlin}\nrun: {shell: 'true'}\n")
	w.put("namespace: shop\nname: after\nschedule: {on: [{job: shop/asked}]}\nrun: {shell: 'true'}\n")
	w.put("namespace: shop\nname: asked\nrun: {shell: 'true'}\n")
	found, err := w.store.JobsNamed(t.Context(), []string{"shop/twice"})
	w.must(err)
	due := w.now.Add(time.Minute)
	w.now = due.Add(-10 * time.Second)
	planned := w.id()
	outcomes, _, err := w.store.Plan(t.Context(), w.node, []store.PlanItem{{
		Job: found[0].Definition.UID, Epoch: 1, From: found[0].Cursor, To: due, Runs: []store.NewRun{{ID: planned, Session: w.node, Scheduled: due, Due: due}},
	}})
	w.must(err)
	if outcomes[0] != store.Planned {
		t.Fatalf("the run is not planned: %v", outcomes[0])
	}
	ann := w.login("ann")
	started := ann.send("/jobs/shop/asked/run").Header().Get("Location")
	id, err := job.ParseID(strings.TrimPrefix(started, "/runs/"))
	w.must(err)
	attempt := store.Attempt{Run: id, Number: 1, Token: w.id()}
	_, err = w.store.Claim(t.Context(), w.node, []store.Attempt{attempt})
	w.must(err)
	w.now = w.now.Add(time.Second)
	w.ends(attempt, time.Second, job.OutcomeSucceeded)
	typed, err := job.NewID(w.now, rand.Reader)
	w.must(err)
	_, err = w.store.Trigger(store.WithOrigin(t.Context(), store.Origin{Client: service.ByCLI}), []store.TriggerItem{{ID: typed, Job: found[0].Definition.UID, Kind: job.RunByHand, Actor: "wei"}})
	w.must(err)
	follower := regexp.MustCompile(`/runs/(\w{26})`).FindString(ann.page("/runs?job=shop/after"))
	for _, c := range []struct{ path, en, zh string }{
		{"/runs/" + planned.String(), "schedule, every minute", "调度，每分钟"},
		{started, "by hand, by ann", "由 ann 手动触发"},
		{"/runs/" + typed.String(), "by hand, by wei (command line)", "由 wei 手动触发（命令行）"},
		{follower, `after shop/asked <a class="link" href="` + started + `">See that run</a>`, `<a class="link" href="` + started + `">查看该运行</a>`},
	} {
		for lang, want := range map[string]string{"en": c.en, "zh": c.zh} {
			body := ann.ask("GET", c.path, nil, "Accept-Language", lang).Body.String()
			if !strings.Contains(body, want) {
				t.Errorf("%s in %s does not say %q: %s", c.path, lang, want, regexp.MustCompile(`(?s)<ol class="phases">.*?</ol>`).FindString(body))
			}
		}
	}
}

// The script that reads a page again has the output already: such a read neither asks the store for it
// nor sends it.
func TestALiveReadOfARunLeavesOutItsOutput(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: shop\nname: loud\nrun: {shell: 'true'}\n")
	attempt := w.runs("shop/loud")
	var text []byte
	for i := range 800 {
		text = fmt.Appendf(text, "line %d of the output\n", i)
	}
	// As package output writes a piece: no compression, stdout at the time of the chunk, its length.
	data := append([]byte{0, 0, byte(len(text)), byte(len(text) >> 8)}, text...)
	chunk := store.OutputChunk{Run: attempt.Run, Attempt: 1, Bytes: len(text), Time: w.now, Data: data}
	_, err := w.store.Finish(t.Context(), w.node, []store.Result{{
		Attempt: attempt, Started: w.now, Ended: w.now.Add(time.Second), Outcome: job.OutcomeSucceeded, Output: []store.OutputChunk{chunk}, OutputBytes: 20 << 10,
	}})
	w.must(err)
	counted := &called{Store: w.store, calls: map[string]int{}}
	w.serve(service.Config{Store: counted})
	b := w.login("vera")
	read := func(headers ...string) (body string, output int) {
		counted.calls = map[string]int{}
		body = b.ask("GET", "/runs/"+attempt.Run.String(), nil, headers...).Body.String()
		return body, counted.calls["Output"]
	}
	whole, first := read()
	part, again := read("X-Belfry", "1")
	if first == 0 || again != 0 {
		t.Errorf("the output is read %d times for the page, and %d times for its parts", first, again)
	}
	if strings.Count(whole, "of the output") != 800 || len(part) > len(whole)/3 || strings.Contains(part, "of the output") {
		t.Errorf("the page has %d bytes, its parts %d", len(whole), len(part))
	}
	live := regexp.MustCompile(`(?s)<(?:div|section)[^>]* id="(head|why|life|facts|neighbours)".*?</(?:div|section)>`)
	if a, b := live.FindAllString(whole, -1), live.FindAllString(part, -1); len(a) != 5 || strings.Join(a, "") != strings.Join(b, "") {
		t.Errorf("the parts differ: %d and %d", len(a), len(b))
	}
	if !strings.Contains(whole, "800 lines, 20.0 KiB</span>") {
		t.Error("the page does not say how much the output is")
	}
}

func TestTheFailureOfARunNamesTheFollowersThatItDidNotStart(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: many\nname: up\nrun: {shell: 'true'}\n")
	for name, on := range map[string]string{
		"success": "up", "failure": "{job: up, outcome: failed}", "finish": "{job: up, outcome: finished}", "both": "up, {job: up, outcome: failed}", "paused": "up",
	} {
		w.put(fmt.Sprintf("namespace: many\nname: %s\npaused: %v\nschedule: {on: [%s]}\nrun: {shell: 'true'}\n", name, name == "paused", on))
	}
	w.put("namespace: data\nname: other\nschedule: {on: many/up}\nrun: {shell: 'true'}\n")
	ann := w.login("ann")
	for outcome, want := range map[job.Outcome]string{
		job.OutcomeSucceeded: "", job.OutcomeCancelled: "",
		job.OutcomeFailed: "data/other many/success", job.OutcomeTimedOut: "data/other many/success", job.OutcomeLost: "data/other many/success",
		// "both" is started by a failure, and nothing by a missed run.
	} {
		why := between(ann.page("/runs/"+w.ran("many/up", outcome).String()), `id="why"`, `<div class="grid`)
		_, named, _ := strings.Cut(why, "Its followers were not started:")
		var got []string
		for _, found := range regexp.MustCompile(`href="/jobs/([^"]*)"`).FindAllStringSubmatch(named, -1) {
			got = append(got, found[1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("a run that is %s says that it has not started %v, want %s: %s", outcome, got, want, why)
		}
	}
	for i := range 12 {
		w.put(fmt.Sprintf("namespace: many\nname: f%02d\nschedule: {on: up}\nrun: {shell: 'true'}\n", i))
	}
	ann.shows("/runs/"+w.ran("many/up", job.OutcomeFailed).String(), `, <a class="link" href="/jobs/many/up#connected">and more</a>`)
}

// What a command said last stands behind the reason, on the page of the run, in lists and on the overview.
func TestAFailureIsShownWithItsCause(t *testing.T) {
	w := newWorld(t)
	w.fill()
	ann := w.login("ann")
	for _, page := range []string{"/runs/" + w.failed.String(), "/runs", "/"} {
		ann.shows(page, "exit status 1: feed.csv: 0 &lt;rows&gt;")
	}
	body := ann.ask("GET", "/runs/"+w.failed.String(), nil, "Accept-Language", "zh").Body.String()
	if !strings.Contains(body, "exit status 1：feed.csv: 0 &lt;rows&gt;") {
		t.Error("the page in Chinese does not show the cause")
	}
}
