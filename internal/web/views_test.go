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

// put puts in a document.
func (w *world) put(text string) {
	w.t.Helper()
	list, err := job.Decode("", []byte(text))
	w.must(err)
	_, err = store.PutOne(w.t.Context(), w.store, store.PutJob{Definition: list[0].Job, Actor: "wei"})
	w.must(err)
}

// runs makes a run by hand, which has begun.
func (w *world) runs(name string) store.Attempt {
	w.t.Helper()
	found, err := w.store.JobsNamed(w.t.Context(), []string{name})
	w.must(err)
	made, err := w.store.Trigger(w.t.Context(), []store.TriggerItem{{ID: w.id(), Job: found[0].Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: w.node, Actor: "ann"}})
	w.must(err)
	attempt := store.Attempt{Run: made[0].Run, Number: 1, Token: w.id()}
	_, err = w.store.Claim(w.t.Context(), w.node, []store.Attempt{attempt})
	w.must(err)
	return attempt
}

// ends reports how a run that began earlier ends now.
func (w *world) ends(a store.Attempt, took time.Duration, outcome job.Outcome) {
	w.t.Helper()
	_, err := w.store.Finish(w.t.Context(), w.node, []store.Result{{Attempt: a, Started: w.now.Add(-took), Ended: w.now, Outcome: outcome, Reason: "exit status 1"}})
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
	b.shows("/timeline?view=week", "Mon 23 08:30: 1<")
}
