package web_test

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// said is the text of a part of a page.
func (b *browser) said(path, id string) string {
	b.t.Helper()
	part := between(b.ask("GET", path, nil).Body.String(), `id="`+id+`"`, "</section>")
	_, part, _ = strings.Cut(part, ">")
	text := strings.Join(strings.Fields(regexp.MustCompile("<[^>]*>").ReplaceAllString(part, " ")), " ")
	return strings.ReplaceAll(html.UnescapeString(text), "/ ", "/")
}

// contains reports texts that a part of a page lacks.
func contains(t *testing.T, what, got string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("%s says %q, without %q", what, got, text)
		}
	}
}

func TestTheWeekListsTheBusiestQuartersWithTheirJobs(t *testing.T) {
	w := newWorld(t) // it is Monday 23 November, 08:41
	w.fill()
	schedules := map[string]string{"often": "* 9 * * *", "noon": "5 12 * * *", "tuesday": "20 12 * * 2"}
	for i := range 14 {
		schedules[fmt.Sprintf("nine-%02d", i)] = "7 9 * * *"
	}
	w.serve(service.Config{Store: w.store, Planner: w.plans(schedules)})
	b := w.login("ann")
	const week = "/timeline?view=week"
	busiest := b.said(week, "busiest")
	contains(t, "the list", busiest,
		"Mon 23 Nov 09:00 to 09:15 29 starts as many on 6 other days", "Mon 23 Nov 09:15 to 09:30 15 starts as many on 6 other days",
		"Mon 23 Nov 12:00 to 12:15 1 start as many on 6 other days")
	if strings.Index(busiest, "09:00 to") > strings.Index(busiest, "12:00 to") || strings.Contains(busiest, "12:15 to 12:30 1 start as many") {
		t.Errorf("the list is %q", busiest)
	}
	contains(t, "the busiest quarter", b.said(week, "quarter"), "Mon 23 Nov 09:00 to 09:15 15 jobs 09:00 plan/often 15 starts 09:07 plan/nine-", "and 3 more jobs")
	b.shows(week, `href="/timeline?minute=2026-11-23T09%3A15%3A00Z&amp;view=week#quarter"`)
	contains(t, "a chosen quarter", b.said(week+"&minute=2026-11-23T12:05:00Z", "quarter"), "Mon 23 Nov 12:00 to 12:15 1 job 12:05 plan/noon 1 start")
	// What is over, or not a time, is not chosen.
	for _, minute := range []string{"2026-11-23T08:00:00Z", "2027-11-23T08:00:00Z", "noon"} {
		contains(t, minute, b.said(week+"&minute="+minute, "quarter"), "09:00 to 09:15")
	}
	contains(t, "the quietest", b.said(week, "quietest"), "Hour Mon 23 Nov 10:00 to 11:00: 0 starts", "Whole day Wed 25 Nov: 75 starts")
	contains(t, "a later week", b.said(week+"&at=2026-11-30T12:00:00Z", "quietest"), "Hour Mon 30 Nov 00:00 to 01:00: 0 starts", "Running then, a week before 0.0 at once")
	for _, id := range []string{"busiest", "quarter", "quietest", "gains"} {
		if text := b.said(week+"&of=failures", id); text != "" && id != "gains" {
			t.Errorf("failures have %s: %q", id, text)
		}
		if text := b.said(week+"&at=2026-11-10T12:00:00Z", id); text != "" {
			t.Errorf("a week that is over has %s: %q", id, text)
		}
	}
}

func TestTheWeekShowsWhatASpreadMoves(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.serve(service.Config{Store: w.store, Planner: w.plans(map[string]string{"one": "0 9 * * *", "two": "0 9 * * *", "three": "0 9 * * *", "later": "1 9 * * *"})})
	b := w.login("ann")
	const chosen = "/timeline?view=week&spread=15m"
	if text := b.said("/timeline?view=week", "moves") + b.said("/timeline?view=week&spread=7m", "moves"); text != "" {
		t.Errorf("without a choice the page shows what moves: %q", text)
	}
	moves := b.said(chosen, "moves")
	contains(t, "the preview", moves, "spread: 15m", "plan/one", "plan/two", "plan/three", "Nothing changes before")
	b.shows(chosen, "/api/v1/load/jobs?from=2026-11-23T09:00:00Z")
	if strings.Contains(moves, "plan/later") {
		t.Errorf("a job of another minute moves: %q", moves)
	}
	// What it says is what the schedule then does.
	would := regexp.MustCompile(`plan/one 09:00:00 (\d\d:\d\d:\d\d) \+`).FindStringSubmatch(moves)
	if would == nil {
		t.Fatalf("the preview does not say when plan/one would start: %q", moves)
	}
	w.put("namespace: plan\nname: one\nschedule: {cron: '0 9 * * *', spread: 15m, timezone: UTC}\nrun: {shell: 'true'}\n")
	next := html.UnescapeString(b.ask("GET", "/jobs/plan/one/schedule", nil).Body.String())
	late := regexp.MustCompile(`hide-s">\+([^<]*)<`).FindStringSubmatch(next)
	if late == nil {
		t.Fatal("the schedule with a spread says no delay")
	}
	d, err := time.ParseDuration(strings.NewReplacer(" min", "m", " s", "s", " ", "").Replace(late[1]))
	w.must(err)
	at, err := time.Parse(time.DateTime, "2026-11-23 "+would[1])
	w.must(err)
	if wrong := at.Sub(time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC).Add(d)); wrong.Abs() > time.Second { // both are rounded
		t.Errorf("the preview says %s, and the schedule %s later", would[1], late[1])
	}
	contains(t, "a job that is spread", b.said(chosen, "moves"), "plan/one", "has spread: 15m")
	contains(t, "in Chinese", between(b.ask("GET", chosen, nil, "Accept-Language", "zh").Body.String(), `id="moves"`, "</section>"), "已设置 spread: 15m", "将启动于")
}

func TestTheWeekSaysWhatItsBusiestQuarterCost(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	w.put("namespace: shop\nname: crowd\nrun: {shell: 'true'}\npolicy: {overlap: allow}\n")
	if text := b.said("/timeline?view=week&namespace=nothing", "costs"); text != "" {
		t.Errorf("a week without runs costs %q", text)
	}
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 9 * time.Second} {
		attempt := w.runs("shop/crowd")
		w.now = w.now.Add(wait + time.Minute)
		w.ends(attempt, time.Minute, job.OutcomeSucceeded)
	}
	_, err := w.store.Now(t.Context())
	w.must(err)
	w.must(w.store.Renew(t.Context(), w.node, store.Load{}))
	contains(t, "the page", b.said("/timeline?view=week&namespace=shop", "costs"),
		"runs that ended Mon 23 Nov 08:30 to 08:45", "Longest 9.0 s, shop/crowd", "Most running", "Mon 23 Nov 08:30 to 08:45: ", "Slots of the nodes now 8")
	b.shows("/timeline?view=week&namespace=shop", "Mon 23 08:30: 4, 1 of 4 failed", "more than 1 % failed")
}
