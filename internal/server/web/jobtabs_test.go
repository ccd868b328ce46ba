package web_test

import (
	"html"
	"net/http"
	"strings"
	"testing"
)

func TestABackfillShowsItsTimesFirst(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	before := len(b.ask("GET", "/runs", nil).Body.String())
	form := []string{"from", "2026-11-23T08:00", "to", "2026-11-23T08:30", "overlap", "queue"}
	if answer := b.send("/jobs/shop/price-import/backfill", form...); answer.Code != 200 || !strings.Contains(answer.Body.String(), "It would run 3 times") {
		t.Errorf("the times are not shown: %d", answer.Code)
	}
	if after := len(b.ask("GET", "/runs", nil).Body.String()); after != before {
		t.Error("showing the times has made runs")
	}
	if answer := b.send("/jobs/shop/price-import/backfill", append(form, "action", "run")...); answer.Code != 200 || !strings.Contains(answer.Body.String(), "3 runs were made") {
		t.Errorf("the runs are not made: %d", answer.Code)
	}
}

// The page of versions says what each has changed, numbers the lines of a difference as the newer text has them,
// and offers to restore the version before.
func TestVersionsSayWhatTheyChanged(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	const text = "namespace: shop\nname: price-import\ndescription: the prices of the day\nlabels: {team: shop, tier: '1'}\nschedule: {cron: '*/10 * * * *', timezone: Europe/Berlin}\nparams: {feed: {default: v1, description: which}}\nrun: {shell: 'false'}\npolicy: {timeout: 30s, pause_on_failure: 10}\n"
	if answer := b.send("/jobs/shop/price-import/edit", "document", text, "action", "save", "of", "shop/price-import", "present", "1"); answer.Code != http.StatusSeeOther {
		t.Fatalf("saving answers %d: %s", answer.Code, answer.Body)
	}
	body := html.UnescapeString(b.ask("GET", "/jobs/shop/price-import/definition", nil).Body.String())
	for _, want := range []string{
		`title="description, run.shell">description, run.shell</span>`,
		`<span class="add" data-n="4">+description: the prices of the day</span>`,
		`<span class="del">-description: prices</span>`,
		`name="version" value="1"`, `data-copy="kind: job`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the versions do not show %q", want)
		}
	}
	if vera := w.login("vera").ask("GET", "/jobs/shop/price-import/definition", nil); strings.Contains(vera.Body.String(), "/rollback") {
		t.Error("a viewer is offered to restore a version")
	}
}
