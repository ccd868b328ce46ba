package web_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/forecast"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// put puts in a document.
func (w *world) put(text string) {
	w.t.Helper()
	list, err := job.Decode("", []byte(text))
	w.must(err)
	_, err = store.PutOne(w.t.Context(), w.store, store.PutJob{Definition: list[0].Job, IfVersion: store.AnyVersion, Actor: "wei"})
	w.must(err)
}

// apply applies documents.
func (w *world) apply(request client.Apply) {
	w.t.Helper()
	_, err := w.documents.Apply(w.t.Context(), service.Caller{Name: "belfry sync", Role: store.RoleAdmin}, request)
	w.must(err)
}

// runs makes a run by hand, which has begun.
func (w *world) runs(name string) store.Attempt {
	w.t.Helper()
	found, err := w.store.JobsNamed(w.t.Context(), []string{name})
	w.must(err)
	outcomes, err := w.store.Trigger(w.t.Context(), []store.TriggerItem{{ID: w.id(), Job: found[0].Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: w.node, Actor: "ann"}})
	w.must(err)
	attempt := store.Attempt{Run: outcomes[0].Run, Number: 1, Token: w.id()}
	_, err = w.store.Claim(w.t.Context(), w.node, []store.Attempt{attempt})
	w.must(err)
	return attempt
}

// ends reports how a run that began earlier ends now.
func (w *world) ends(a store.Attempt, took time.Duration, outcome job.Outcome) {
	w.t.Helper()
	_, err := w.store.Finish(w.t.Context(), w.node, []store.Result{{Attempt: a, Started: w.now.Add(-took), Ended: w.now, Outcome: outcome, Reason: job.Text("exit status 1")}})
	w.must(err)
}

func TestAPageOfAnUnknownRunSaysHowLongRunsAreKept(t *testing.T) {
	w := newWorld(t)
	b := w.login("ann")
	for lang, want := range map[string]string{"en": "this server keeps finished runs forever, unless policy.keep of the job differs", "zh": "本服务器永久保留已结束的运行"} {
		answer := b.ask("GET", "/runs/"+w.id().String(), nil, "Accept-Language", lang)
		if answer.Code != http.StatusNotFound || !strings.Contains(answer.Body.String(), want) {
			t.Errorf("in %s the page answers %d without %q: %s", lang, answer.Code, want, answer.Body)
		}
	}
}

func TestTheSearchOfRunsOpensTheRunOfAnID(t *testing.T) {
	w := newWorld(t)
	w.fill()
	answer := w.login("ann").ask("GET", "/runs?q="+strings.ToLower(w.failed.String()), nil)
	if got := answer.Header().Get("Location"); answer.Code != http.StatusSeeOther || got != "/runs/"+w.failed.String() {
		t.Errorf("the search answers %d and leads to %q", answer.Code, got)
	}
}

// calendarDays are the days of the calendar of a page that have a text, such as "27 02:30".
func calendarDays(body string) (days []string) {
	for _, m := range regexp.MustCompile(`<i class="on[^"]*">(\d+)<b>([^<]*)</b></i>`).FindAllStringSubmatch(body, -1) {
		days = append(days, m[1]+" "+m[2])
	}
	return days
}

func TestTheCalendarOfAScheduleSaysWhenAndHowOften(t *testing.T) {
	w := newWorld(t) // it is Monday 23 November, 08:41
	for name, cron := range map[string]string{"daily": "30 2 * * *", "often": "*/10 * * * *", "always": "* * * * *", "yearly": "0 5 24 12 *"} {
		w.put(fmt.Sprintf("namespace: cal\nname: %s\nschedule: {cron: %q, timezone: UTC}\nrun: {shell: 'true'}\n", name, cron))
	}
	w.put("namespace: cal\nname: twice\nschedule: {cron: '* * * * *', timezone: UTC, max_runs: 2}\nrun: {shell: 'true'}\n")
	b := w.login("ann")
	for _, c := range []struct {
		path        string
		days        int
		first, last string
	}{
		{"daily/schedule", 7, "24 02:30", "30 02:30"},
		{"daily/schedule?month=2026-12", 31, "1 02:30", "31 02:30"},
		{"often/schedule", 8, "23 91×", "30 144×"},
		{"often/schedule?month=2027-02", 28, "1 144×", "28 144×"},
		{"always/schedule", 8, "23 918×", "30 …"},
		{"always/schedule?month=2027-02", 28, "1 1440×", "28 …"},
		{"yearly/schedule", 0, "", ""},
		{"yearly/schedule?month=2026-12", 1, "24 05:00", "24 05:00"},
		{"twice/schedule", 1, "23 2×", "23 2×"},
		{"twice/schedule?month=2026-12", 0, "", ""},
		{"daily/schedule?month=2026-10", 7, "24 02:30", "30 02:30"}, // what was before is no schedule
	} {
		days := calendarDays(b.ask("GET", "/jobs/cal/"+c.path, nil).Body.String())
		if len(days) != c.days || c.days > 0 && (days[0] != c.first || days[len(days)-1] != c.last) {
			t.Errorf("%s shows %q, want %d days from %q to %q", c.path, days, c.days, c.first, c.last)
		}
	}
	b.shows("/jobs/cal/daily/schedule?month=2027-01", "January 2027", "?month=2026-12", "?month=2027-02")
}

func TestAScheduleShowsDelaysOnlyWhereThereAreSome(t *testing.T) {
	w := newWorld(t)
	w.put("namespace: cal\nname: at-once\nschedule: {cron: '0 5 * * *'}\nrun: {shell: 'true'}\n")
	w.put("namespace: cal\nname: spread\nschedule: {cron: '0 5 * * *', spread: 30m}\nrun: {shell: 'true'}\n")
	b := w.login("ann")
	if body := b.ask("GET", "/jobs/cal/at-once/schedule", nil).Body.String(); strings.Contains(body, "Later by") {
		t.Error("a schedule without a delay has a column for delays")
	}
	b.shows("/jobs/cal/spread/schedule", "Later by")
}

func TestTheJobNamesItsOwner(t *testing.T) {
	w := newWorld(t)
	w.put("namespace: cal\nname: owned\nlabels: {belfry/owner: deployers}\nrun: {shell: 'true'}\n")
	w.put("namespace: cal\nname: free\nrun: {shell: 'true'}\n")
	b := w.login("ann")
	b.shows("/jobs/cal/owned", "<dt>Owner</dt><dd class=\"\">deployers")
	if body := b.ask("GET", "/jobs/cal/free", nil).Body.String(); strings.Contains(body, "Owner") {
		t.Error("a job without an owner shows one")
	}
}

func TestPagesShowTheRepositoryOfAJobAndMistakesInIt(t *testing.T) {
	w := newWorld(t)
	from := client.Commit{URL: "https://git.example.com/<team>", Commit: "4be0643f1d98573b97caeca7aad8e5bf0a0c10a9", Files: []string{"jobs/a & b.yaml"}}
	document := client.Document{RawMessage: []byte(`{"namespace": "cal", "name": "synced", "run": {"shell": "true"}}`)}
	w.apply(client.Apply{Documents: []client.Document{document}, Owner: "git", Source: &from})
	b := w.login("ann")
	b.shows("/jobs/cal/synced", "<dt>From git</dt><dd class=\"\">https://git.example.com/&lt;team&gt; @ 4be0643 jobs/a &amp; b.yaml")
	if body := b.page("/jobs/cal/synced"); strings.Contains(body, "Changed by hand") {
		t.Error("a job as the commit has it is changed by hand")
	}
	b.shows("/", "Everything is as it should be.")
	w.put("namespace: cal\nname: synced\nlabels: {belfry/owner: git}\nrun: {shell: 'false'}\n")
	b.shows("/jobs/cal/synced", "<dt>Changed by hand</dt>", "since 4be0643: the next commit sets it back", "/jobs/cal/synced/definition?version=2&amp;since=1")
	from.Files, from.Commit, from.Mistake = nil, "5be0643f1d98573b97caeca7aad8e5bf0a0c10a9", "jobs/a.yaml:1: unknown <field>"
	w.apply(client.Apply{Documents: []client.Document{}, Owner: "git", Source: &from})
	w.now = w.now.Add(time.Minute) // the frame of pages is cached
	b.shows("/", "One repository needs you.", "commit 5be0643 of https://git.example.com/&lt;team&gt; is not applied, and the jobs stay as of 4be0643: jobs/a.yaml:1: unknown &lt;field&gt;",
		`href="/jobs?q=label%3Abelfry%2Fowner%3Dgit"`, `name="about" value="source git"`)
	if answer := b.send("/attention/take", "about", "source git"); answer.Code != http.StatusSeeOther {
		t.Errorf("it is taken with %d", answer.Code)
	}
	w.now = w.now.Add(time.Minute)
	b.shows("/", "ann has it")
	b.shows("/audit?action=source", "did not apply a commit to the jobs of", "commits of repositories")
}

func TestTheJobNamesWhatItFollowsAndItsFollowers(t *testing.T) {
	w := newWorld(t)
	w.fill()
	const up = "/jobs/shop/price-import"
	connected := func(b *browser, path string) string {
		return between(b.ask("GET", path, nil).Body.String(), `id="connected"`, "</section>")
	}
	ann, vera := w.login("ann"), w.login("vera")
	if words := connected(vera, up); strings.Contains(words, "Followed by") {
		t.Errorf("a job without followers says %s", words)
	}
	if words := ann.ask("GET", up+"/definition", nil).Body.String(); strings.Contains(words, "and are no longer started") {
		t.Error("the deletion of a job without followers warns")
	}
	w.put("namespace: shop\nname: b\nschedule: {on: [{job: price-import, outcome: failed}]}\nrun: {shell: 'true'}\n")
	w.put("namespace: data\nname: a\npaused: true\nschedule: {on: [{job: shop/price-import}, {job: shop/price-import, outcome: finished}, shop/b]}\nrun: {shell: 'true'}\n")
	for path, want := range map[string][]string{
		up:             {`<dt>Followed by</dt><dd class=""><a class="link" href="/jobs/data/a">data/a, after success, after success or failure, paused</a>`, `href="/jobs/shop/b">shop/b, after failure</a>`},
		"/jobs/data/a": {`href="/jobs/shop/price-import">shop/price-import, after success</a>`, `href="/jobs/shop/b">shop/b, after success</a>`},
		"/jobs/shop/b": {`<dt>Follows</dt><dd class=""><a class="link" href="/jobs/shop/price-import">shop/price-import, after failure</a>`, `href="/jobs/data/a">data/a, after success, paused</a>`},
	} {
		words := connected(vera, path)
		for _, text := range want {
			if !strings.Contains(words, text) {
				t.Errorf("%s does not say %s: %s", path, text, words)
			}
		}
	}
	ann.shows(up+"/definition", "Jobs that follow it, and are no longer started: data/a, shop/b.")
	if words := vera.ask("GET", up+"/definition", nil).Body.String(); strings.Contains(words, "and are no longer started") {
		t.Error("a viewer is warned of a deletion")
	}

	for i := range 23 {
		w.put(fmt.Sprintf("namespace: many\nname: f%02d\nschedule: {on: shop/price-import}\nrun: {shell: 'true'}\n", i))
	}
	seen, pages := map[string]bool{}, 0
	for path := up; path != ""; pages++ {
		words := connected(vera, path)
		for _, found := range regexp.MustCompile(`href="/jobs/([^"]*)"`).FindAllStringSubmatch(words, -1) {
			seen[found[1]] = true
		}
		path = ""
		if next := regexp.MustCompile(`href="(/jobs/[^"]*\?followers=[^"]*)#connected">and more</a>`).FindStringSubmatch(words); next != nil {
			path = html.UnescapeString(next[1])
		}
	}
	if pages != 3 || len(seen) < 25 || !seen["many/f22"] || !seen["data/a"] {
		t.Errorf("25 followers are on %d pages: %v", pages, seen)
	}
	ann.shows(up+"/definition", ", and more.")
}

func TestThePageOfARunSaysHowLongRunsTakeAndHowManyFailedInARow(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: shop\nname: feed\nrun: {shell: 'true'}\npolicy: {overlap: allow}\n")
	for range 3 {
		a := w.runs("shop/feed")
		w.now = w.now.Add(time.Minute)
		w.ends(a, time.Minute, job.OutcomeSucceeded)
	}
	running := w.runs("shop/feed")
	b := w.login("ann")
	b.shows("/runs/"+running.Run.String(), "usually takes 1 min")
	var failed store.Attempt
	for range 2 {
		failed = w.runs("shop/feed")
		w.now = w.now.Add(time.Minute)
		w.ends(failed, time.Minute, job.OutcomeFailed)
	}
	w.now = w.now.Add(time.Minute) // what the frame has read is old
	b.shows("/runs/"+failed.Run.String(), "exit status 1", "The last 2 runs of the job failed, since 08:45.", "Usually takes")
	for _, tab := range []string{"", "/schedule", "/definition", "/statistics"} {
		b.shows("/jobs/shop/feed"+tab, "failing, 2 in a row")
	}
	w.now = w.now.Add(time.Hour)
	b.shows("/runs/"+running.Run.String(), "has been running for")
}

// A person who must stop a job need not find its run first.
func TestARunningJobIsCancelledOnItsPage(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: shop\nname: feed\nrun: {shell: 'true'}\npolicy: {overlap: allow}\n")
	b := w.login("ann")
	if body := b.ask("GET", "/jobs/shop/feed", nil).Body.String(); strings.Contains(body, `data-key="c"`) {
		t.Error("a job that does not run is cancelled")
	}
	first := w.runs("shop/feed")
	b.shows("/jobs/shop/feed", `action="/runs/`+first.Run.String()+`/cancel"`)
	if body := w.login("vera").ask("GET", "/jobs/shop/feed", nil).Body.String(); strings.Contains(body, "/cancel") {
		t.Error("a viewer cancels a run")
	}
	second := w.runs("shop/feed")
	b.shows("/jobs/shop/feed", `href="/runs?job=shop%2ffeed&amp;state=running"`)
	b.send("/runs/"+first.Run.String()+"/cancel", "reason", "enough")
	b.shows("/jobs/shop/feed", `action="/runs/`+second.Run.String()+`/cancel"`)
}

// A run that a program reports after it has ended began before the report made it due.
func TestARunThatIsReportedLaterWasNotDue(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: shop\nname: reported\nrun: {shell: 'true'}\n")
	a := w.runs("shop/reported")
	w.ends(a, time.Minute, job.OutcomeSucceeded)
	body := w.login("ann").ask("GET", "/runs/"+a.Run.String(), nil).Body.String()
	phases, _, _ := strings.Cut(body[strings.Index(body, `class="phases"`):], "</ol>")
	if strings.Contains(phases, "<b>Due</b>") || strings.Contains(phases, "after it was due") || !strings.Contains(phases, "<b>Started</b>08:40:00.000") {
		t.Errorf("its phases are %s", phases)
	}
}

func TestTheWeekCountsFailuresAndLeadsToDays(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	b.shows("/timeline?view=week&of=failures", "Mon 23 08:30: 1 failure", "Mon 23 08:45: 0 failures", "more, up to 1 failure", "17 Nov to 23 Nov", `href="/timeline?at=2026-11-23T12%3A00%3A00Z"`)
	if body := b.ask("GET", "/timeline?view=week&of=failures", nil).Body.String(); strings.Contains(body, "% failed") {
		t.Error("failures are marked among failures")
	}
}

// queue makes a run by hand, which a node claims if it may.
func (w *world) queue(name string) (run job.ID, verdict store.Verdict) {
	w.t.Helper()
	found, err := w.store.JobsNamed(w.t.Context(), []string{name})
	w.must(err)
	results, err := w.store.Trigger(w.t.Context(), []store.TriggerItem{{ID: w.id(), Job: found[0].Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: w.node, Actor: "ann"}})
	w.must(err)
	outcomes, err := w.store.Claim(w.t.Context(), w.node, []store.Attempt{{Run: results[0].Run, Number: 1, Token: w.id()}})
	w.must(err)
	return results[0].Run, outcomes[0].Verdict
}

// between returns the part of a page from one text to the next one.
func between(body, from, to string) string {
	_, after, _ := strings.Cut(body, from)
	part, _, _ := strings.Cut(after, to)
	return part
}

func TestTheJobShowsWhoUsesItsPool(t *testing.T) {
	w := newWorld(t)
	w.fill()
	_, err := w.store.PutDocument(t.Context(), documentOf(t, "kind: pool\nnamespace: shop\nname: db\npool: {size: 2}\n"), 0, "wei")
	w.must(err)
	for _, name := range []string{"shop/one", "shop/two", "other/three"} {
		namespace, short, _ := strings.Cut(name, "/")
		w.put(fmt.Sprintf("namespace: %s\nname: %s\nrun: {shell: 'true'}\npolicy: {concurrency_key: shop/db, overlap: queue, queue_limit: 10}\n", namespace, short))
	}
	w.put("namespace: shop\nname: alone\nrun: {shell: 'true'}\npolicy: {concurrency_key: lock}\n")
	b := w.login("ann")
	b.shows("/jobs/shop/one", "shop/db, 0 of 2 in use")
	b.shows("/jobs/shop/alone", "shop/lock, 0 of 1 in use")
	if body := b.ask("GET", "/jobs/shop/price-import", nil).Body.String(); strings.Contains(body, `id="pool"`) {
		t.Error("a job without a pool shows one")
	}
	holders := []string{"shop/two", "other/three"}
	runs := map[string]job.ID{}
	for _, name := range append(holders, "shop/one", "other/three", "shop/one", "shop/one", "shop/one", "shop/one", "shop/one") {
		run, verdict := w.queue(name)
		if started := len(runs) < len(holders); (verdict == store.Started) != started {
			t.Fatalf("the claim of %s is answered with %d", name, verdict)
		}
		runs[name+fmt.Sprint(len(runs))] = run
	}
	b.shows("/jobs/shop/one", "shop/db, 2 of 2 in use", `href="/timeline?by=pool"`, "7 wait for a slot")
	pool := between(b.ask("GET", "/jobs/shop/one", nil).Body.String(), `id="pool"`, "</section>")
	for _, name := range []string{"shop/two0", "other/three1", "shop/one2", "other/three3", "shop/one4"} {
		if !strings.Contains(pool, `href="/runs/`+runs[name].String()+`"`) {
			t.Errorf("the pool does not list the run %s: %s", name, pool)
		}
	}
	if running, waiting := strings.Count(pool, "<span class=\"sr\">running"), strings.Count(pool, "<span class=\"sr\">waiting"); running != 2 || waiting != 5 {
		t.Errorf("%d runs hold a slot and %d wait: %s", running, waiting, pool)
	}
	// Runs of other namespaces are counted, and not named.
	w.grant("sam", "shop", store.RoleViewer)
	body := w.login("sam").ask("GET", "/jobs/shop/one", nil).Body.String()
	pool = between(body, `id="pool"`, "</section>")
	if !strings.Contains(body, "shop/db, 2 of 2 in use") || strings.Contains(pool, "three") || !strings.Contains(pool, "1 more holds a slot") {
		t.Errorf("who may read shop alone sees %s", pool)
	}
	// The pool itself is of a namespace that this reader has no role in.
	w.grant("olaf", "other", store.RoleViewer)
	body = w.login("olaf").ask("GET", "/jobs/other/three", nil).Body.String()
	if !strings.Contains(body, "shop/db") || strings.Contains(body, "in use") || strings.Contains(body, `id="pool"`) {
		t.Error("who may not read the pool sees how it is used")
	}
}

func documentOf(t *testing.T, text string) job.Document {
	t.Helper()
	list, err := job.Decode("", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// planner has the schedules of some jobs, each with its moments from the present on.
type planner struct {
	timings []forecast.Timing
	next    []engine.Upcoming
}

func (p *planner) NextAfter(job.ID, time.Time) (time.Time, bool) { return time.Time{}, false }
func (p *planner) Timings([]job.ID) []forecast.Timing            { return p.timings }
func (p *planner) Sync(context.Context) error                    { return nil }
func (p *planner) Ready() <-chan struct{}                        { return nil }

func (p *planner) Upcoming(at time.Time, after engine.Upcoming, n int) (list []engine.Upcoming) {
	for _, u := range p.next {
		if !u.Next.Before(at) && u.Compare(after) > 0 && len(list) < n {
			list = append(list, u)
		}
	}
	return list
}

// plans puts in jobs that the planner knows.
func (w *world) plans(schedules map[string]string) *planner {
	w.t.Helper()
	p := &planner{}
	for name, text := range schedules {
		w.put(fmt.Sprintf("namespace: plan\nname: %s\nschedule: {cron: %q, timezone: UTC}\nrun: {shell: 'true'}\n", name, text))
		found, err := w.store.JobsNamed(w.t.Context(), []string{"plan/" + name})
		w.must(err)
		schedule, err := cron.ParseSchedule(text)
		w.must(err)
		p.timings = append(p.timings, forecast.Timing{Schedule: schedule, Jobs: 1})
		p.next = append(p.next, engine.Upcoming{Next: schedule.Next(w.now), Job: found[0].Definition.UID})
	}
	slices.SortFunc(p.next, engine.Upcoming.Compare)
	return p
}

func TestAScheduleNamesQuieterMinutes(t *testing.T) {
	w := newWorld(t) // it is 08:41
	// Two start in each minute but the fifth, in which mine starts too.
	schedules := map[string]string{"mine": "0,5 9 * * *", "always": "0-4,6-59 * * * *", "beside": "0-4,6-59 * * * *"}
	for i := range 10 {
		schedules[fmt.Sprintf("nine-%02d", i)], schedules[fmt.Sprintf("soon-%02d", i)] = "0 9 * * *", "42 8 * * *"
	}
	for minute, jobs := range map[int]int{58: 2, 59: 7, 1: 7, 3: 7, 4: 1} {
		for i := range jobs {
			schedules[fmt.Sprintf("near-%02d-%02d", minute, i)] = fmt.Sprintf("%d * * * *", minute)
		}
	}
	w.serve(service.Config{Store: w.store, Planner: w.plans(schedules)})
	b := w.login("ann")
	beside := func(job string) string {
		text := between(b.ask("GET", "/jobs/plan/"+job+"/schedule", nil).Body.String(), `id="beside"`, "</section>")
		return strings.Join(strings.Fields(regexp.MustCompile("<[^>]*>").ReplaceAllString(text, " ")), " ")
	}
	// The minutes 59, 1 and 3 have more than half of the starts of 09:00.
	got := beside("mine")
	for _, want := range []string{"13 starts", "and more", "Quieter minutes near it: 08:56 (2 starts), 08:57 (2 starts), 09:02 (2 starts)"} {
		if !strings.Contains(got, want) {
			t.Errorf("beside the job is %q, without %q", got, want)
		}
	}
	b.shows("/jobs/plan/mine/schedule", `href="/timeline?minute=2026-11-23T09%3A00%3A00Z#minute"`)
	if got := beside("always"); !strings.Contains(got, "12 starts") || strings.Contains(got, "Quieter") {
		t.Errorf("beside a job of every minute is %q", got)
	}
	if got := beside("soon-03"); !strings.Contains(got, "Quieter minutes near it: 08:43") {
		t.Errorf("beside a job of the next minute is %q", got)
	}
}

func TestTheWeekIsMovedAsFarAsRunsAndStartsAreKnown(t *testing.T) {
	w := newWorld(t) // it is Monday 23 November, 08:41
	w.fill()
	plan := w.plans(map[string]string{"noon": "5 12 * * *"})
	w.serve(service.Config{Store: w.store, Planner: plan, Kept: func() store.Retention { return store.Retention{For: 20 * 24 * time.Hour} }})
	b := w.login("ann")
	const now, week = `href="/timeline?view=week"`, "/timeline?at=2026-%s-%sT12%%3A00%%3A00Z&view=week"
	link := func(month, day, label string) string {
		return `href="` + strings.ReplaceAll(fmt.Sprintf(week, month, day), "&", "&amp;") + `" aria-label="` + label + `"`
	}
	for _, c := range []struct {
		month, day string
		shows      []string
		without    []string
	}{
		{"11", "23", []string{"23 Nov to 29 Nov", "Mon 23 12:00: 1 start", "Tue 17 ", link("11", "16", "Earlier"), link("11", "30", "Later"), "by the minute of the hour"}, []string{"No further"}},
		{"11", "30", []string{"30 Nov to 6 Dec", "Sun 6 12:00: 1 start", "Mon 30 00:00: 0 starts", link("11", "23", "Earlier"), link("12", "07", "Later"), "Hour</dt><dd class=\"\">Mon 30 Nov 00:00 to 01:00: 0 starts"}, []string{"No further", "Runs that ended", "by the minute of the hour"}},
		{"12", "21", []string{"21 Dec to 23 Dec</span>", "No further ahead: starts are counted for 31 days.", "Wed 23 12:00: 1 start", link("12", "14", "Earlier")}, []string{"Later", "Thu 24"}},
		{"11", "16", []string{"10 Nov to 16 Nov", "Tue 10 ", link("11", "09", "Earlier"), link("11", "23", "Later")}, []string{"No further", "Starts to come"}},
		{"11", "09", []string{"3 Nov to 9 Nov</span>", "no run of these days is in the history", "No further back: finished runs are kept for 20 d, unless policy.keep of their job differs.", link("11", "16", "Later")}, []string{"Earlier"}},
		// A week that is out of reach shows the current week; one that is not whole weeks away leads to it.
		{"10", "01", []string{"23 Nov to 29 Nov"}, nil},
		{"11", "20", []string{"14 Nov to 20 Nov", link("11", "23", "Later")}, nil},
		{"11", "26", []string{"26 Nov to 2 Dec", link("11", "23", "Earlier")}, nil},
	} {
		body := html.UnescapeString(b.ask("GET", fmt.Sprintf(week, c.month, c.day), nil).Body.String())
		for _, text := range c.shows {
			if text = html.UnescapeString(text); !strings.Contains(body, text) {
				t.Errorf("the week of %s-%s does not show %q", c.month, c.day, text)
			}
		}
		for _, text := range c.without {
			if strings.Contains(body, text) {
				t.Errorf("the week of %s-%s shows %q", c.month, c.day, text)
			}
		}
		if !strings.Contains(body, now) {
			t.Errorf("the week of %s-%s does not lead to now", c.month, c.day)
		}
	}
	// Failures lie in the past: they are not moved ahead.
	body := b.ask("GET", "/timeline?view=week&of=failures&at=2026-11-30T12:00:00Z", nil).Body.String()
	if !strings.Contains(body, "17 Nov to 23 Nov") || strings.Contains(body, "Later") || strings.Contains(body, "No further") {
		t.Error("failures to come are offered")
	}
	b.shows("/timeline?view=week&of=failures&at=2026-11-16T12:00:00Z", "10 Nov to 16 Nov", "Later")
	// A day that has ended is shown as long as its runs are kept.
	b.shows("/timeline?at=2026-11-05T12:00:00Z", "Thu 5 Nov 00:00 to Fri 6 Nov 00:00", "Earlier")
	b.shows("/timeline?at=2026-11-03T12:00:00Z", "No further back: finished runs are kept for 20 d")
	b.shows("/timeline?at=2026-12-24T00:00:00Z", "No further ahead")
	w.serve(service.Config{Store: w.store})
	b = w.login("ann")
	b.shows("/timeline?view=week&at=2025-11-24T12:00:00Z", "18 Nov 2025 to 24 Nov 2025", "No further back than a year")
}

func TestTheSummaryOfAJobIsThatOfItsStatistics(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.put("namespace: shop\nname: feed\nrun: {shell: 'true'}\npolicy: {overlap: allow}\n")
	for i := range 120 {
		a := w.runs("shop/feed")
		outcome := job.OutcomeSucceeded
		if i < 12 {
			outcome = job.OutcomeFailed
		}
		w.now = w.now.Add(time.Duration(i+1) * time.Second)
		w.ends(a, time.Duration(i+1)*time.Second, outcome)
	}
	b := w.login("ann")
	summary := between(b.ask("GET", "/jobs/shop/feed", nil).Body.String(), `id="summary"`, "</section>")
	for _, want := range []string{"The last 120 runs", "90.0 % of 120", "Late p50, p95, p99", "0 ms, 0 ms, 0 ms", "1 min 6 s, 1 min 55 s"} {
		if !strings.Contains(summary, want) {
			t.Errorf("the summary does not say %q: %s", want, summary)
		}
	}
	b.shows("/jobs/shop/feed", "Duration of the last 72 runs")
}

// A zone is named where moments follow from it, and a moment has seconds where some have.
func TestMomentsOfAScheduleAreAsShortAsTheyMay(t *testing.T) {
	w := newWorld(t)
	w.put("namespace: cal\nname: hand\nschedule: {timezone: Asia/Shanghai}\nrun: {shell: 'true'}\n")
	w.put("namespace: cal\nname: utc\nschedule: {cron: '0 5 * * *', timezone: UTC}\nrun: {shell: 'true'}\n")
	w.put("namespace: cal\nname: china\nschedule: {cron: '30 0 5 * * *', timezone: Asia/Shanghai}\nrun: {shell: 'true'}\n")
	b := w.login("ann")
	if body := b.ask("GET", "/jobs/cal/hand", nil).Body.String(); strings.Contains(body, "Shanghai") {
		t.Error("a job that is run by hand has a zone")
	}
	headers := func(job string) string {
		table := between(b.ask("GET", "/jobs/cal/"+job+"/schedule", nil).Body.String(), "<thead>", "</thead>")
		return strings.Join(strings.Fields(regexp.MustCompile("<[^>]*>").ReplaceAllString(table, " ")), " ")
	}
	for job, want := range map[string]string{"utc": "In UTC", "china": "In Asia/Shanghai UTC"} {
		if got := headers(job); got != want {
			t.Errorf("the columns of %s are %q, want %q", job, got, want)
		}
	}
	b.shows("/jobs/cal/utc/schedule", "<td>Tue 24 Nov 05:00</td>")
	b.shows("/jobs/cal/china/schedule", "<td>Tue 24 Nov 05:00:30</td>")
}

// What falls due by the clock can be backfilled; a job of a pool waits for its slots.
func TestEachJobThatFallsDueByTheClockIsBackfilled(t *testing.T) {
	w := newWorld(t)
	for name, text := range map[string]string{
		"cron": "schedule: {cron: '0 5 * * *'}\nrun: {shell: 'true'}\npolicy: {timeout: 30s}\n", "every": "schedule: {every: 10m}\nrun: {shell: 'true'}\npolicy: {concurrency_key: db}\n",
		"at": "schedule: {at: ['2026-12-01T05:00:00Z']}\nrun: {shell: 'true'}\n", "hand": "run: {shell: 'true'}\n", "after": "schedule: {after_end: 1h}\nrun: {shell: 'true'}\n",
	} {
		w.put("namespace: cal\nname: " + name + "\n" + text)
	}
	b := w.login("ann")
	for _, c := range []struct {
		job          string
		fills, allow bool
	}{{"cron", true, true}, {"every", true, false}, {"at", true, true}, {"hand", false, false}, {"after", false, false}} {
		body := b.ask("GET", "/jobs/cal/"+c.job+"/backfill", nil).Body.String()
		if fills, led := strings.Contains(body, `id="backfill"`), strings.Contains(body, `<a href="/jobs/cal/`+c.job+`/backfill">`); fills != c.fills || led != c.fills {
			t.Errorf("%s: it is offered to backfill: %t, and the menu leads there: %t", c.job, fills, led)
		}
		if allow := strings.Contains(body, `<option value="allow">`); allow != c.allow {
			t.Errorf("%s: runs of a backfill may overlap: %t", c.job, allow)
		}
	}
	b.shows("/jobs/cal/every/schedule", `<p class="mono">every: 10m</p>`, "belfry job next cal/every", "/api/v1/jobs/cal/every/next")
	b.shows("/jobs/cal/every/statistics", "belfry job statistics cal/every")
	b.shows("/jobs/cal/every/definition", "belfry job revisions cal/every")
	b.shows("/jobs/cal/every", "belfry job get cal/every -o yaml")
	b.shows("/timeline?namespace=cal", "belfry load --namespace cal")
	b.shows("/jobs/cal/cron", "ended after 30 s, killed 10 s later")
	b.shows("/jobs/cal/every/backfill?from=2026-11-23T07:05&to=2026-11-23T07:35&overlap=queue", "It would run 3 times")
}

func TestAScheduleSaysAllThatDecidesWhenItFallsDue(t *testing.T) {
	w := newWorld(t)
	for name, text := range map[string]string{
		"vixie": "{cron: '30 2 * * *', timezone: America/New_York}", "skips": "{cron: '30 2 * * *', timezone: America/New_York, clock_change: skip_once}",
		"two":    "{cron: ['0 5 * * *', '30 2 * * *'], timezone: America/New_York}",
		"bounds": "{cron: '0 5 * * *', timezone: UTC, except: [sat, sun], off_day: previous, spread: 10m, jitter: 2s, start: '2026-12-01T00:00:00Z', end: '2027-02-01T12:30:00Z', max_runs: 7}",
	} {
		w.put("namespace: cal\nname: " + name + "\nschedule: " + text + "\nrun: {shell: 'true'}\n")
	}
	b := w.login("ann")
	words := func(name string) string {
		body := html.UnescapeString(b.ask("GET", "/jobs/cal/"+name+"/schedule", nil).Body.String())
		return strings.Join(strings.Fields(regexp.MustCompile("<[^>]*>").ReplaceAllString(between(body, `expression">`, "</section>"), " ")), " ")
	}
	for name, want := range map[string][]string{
		"vixie": {"14 March 2027 02:30 does not exist in New York: runs at 03:00"}, "skips": {"02:30 does not exist in New York: does not run"},
		"two":    {"0 5 * * * | 30 2 * * *", "30 2 * * *: on 14 March 2027"},
		"bounds": {"at 05:00", "except in: sat, sun", "On excluded days move them to the previous allowed day", "Spread 10 min", "Random delay 2.0 s", "Tue 1 Dec 00:00", "Mon 1 Feb 2027 12:30", "At most so many runs 7"},
	} {
		got := words(name)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%s says %q, without %q", name, got, text)
			}
		}
	}
}
