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
	const address = "/jobs/shop/price-import/backfill"
	preview := address + "?from=2026-11-23T08%3A00&to=2026-11-23T08%3A30&overlap=allow"
	b.shows(preview, "It would run 3 times", `<option value="allow" selected>`, "No run of this job was made by a backfill.")
	if after := len(b.ask("GET", "/runs", nil).Body.String()); after != before {
		t.Error("showing the times has made runs")
	}
	b.shows(address+"?from=2026-11-23T08%3A00&to=2026-11-23T07%3A00&overlap=queue", `role="alert"`, "is not before to")
	answer := b.send(address, "from", "2026-11-23T08:00", "to", "2026-11-23T08:30", "overlap", "queue")
	if got, want := answer.Header().Get("Location"), address+"?n=3&said=backfilled"; answer.Code != http.StatusSeeOther || got != want {
		t.Errorf("the runs are not made: %d, %s", answer.Code, got)
	}
	b.shows(address+"?n=3&said=backfilled", "3 runs were made.", "ready: 3", "Cancel 3 runs", "/backfill/cancel", "</svg>shell</span>")
	if answer := b.send(address+"/cancel", "reason", "wrong day"); answer.Code != http.StatusSeeOther {
		t.Errorf("the backfill is not cancelled: %d", answer.Code)
	}
	b.shows(address, "cancelled: 3", "wrong day")
	if answer := b.ask("GET", address+"?from=yesterday&to=2026-11-23T08:30", nil); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("a range that is none is answered with %d", answer.Code)
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
