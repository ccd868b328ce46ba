package web_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

func TestManyJobsAreCountedBeforeTheyAreChanged(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	filter := []string{"action", "pause", "all", "1", "q", "label:team=shop", "back", "/jobs?q=label:team=shop"}
	answer := b.send("/jobs/bulk", filter...)
	if body := answer.Body.String(); answer.Code != http.StatusOK || !strings.Contains(body, "Pause 1 job<") || !strings.Contains(body, `name="expect" value="1"`) {
		t.Errorf("the confirmation answers %d: %.1500s", answer.Code, body)
	}
	names := []string{"shop/price-import", "data/warehouse-load"}
	if got := w.isPaused(names...); got[0] || got[1] {
		t.Errorf("before the confirmation the jobs are paused: %v", got)
	}
	if answer := b.send("/jobs/bulk", append(filter, "confirmed", "1", "expect", "2")...); answer.Code != http.StatusConflict || w.isPaused(names...)[0] {
		t.Errorf("another number than was confirmed answers %d", answer.Code)
	}
	if answer := b.send("/jobs/bulk", append(filter, "confirmed", "1", "expect", "1", "reason", "the disk is full")...); answer.Code != http.StatusSeeOther {
		t.Errorf("the change answers %d: %.400s", answer.Code, answer.Body)
	}
	if got := w.isPaused(names...); !got[0] || got[1] {
		t.Errorf("after the confirmation the jobs are paused: %v", got)
	}
	// One click undoes a pause of several jobs, and leaves alone the job that was paused before it.
	answer = b.send("/jobs/bulk", "action", "pause", "job", names[0], "job", names[1], "confirmed", "1", "reason", "the disk is full")
	to := answer.Header().Get("Location")
	undo := regexp.MustCompile(`action="(/jobs/bulk/undo[^"]+)"`).FindStringSubmatch(b.page(to))
	b.shows(to, "Paused 2 jobs.")
	if got := w.isPaused(names...); !got[0] || !got[1] || undo == nil {
		t.Fatalf("the jobs are paused: %v, and %s undoes it at %q", got, to, undo)
	}
	if answer := b.send(html.UnescapeString(undo[1])); !strings.Contains(answer.Header().Get("Location"), "said=bulk_resume") {
		t.Errorf("the undoing is answered with %d: %.800s", answer.Code, answer.Body)
	}
	if got := w.isPaused(names...); !got[0] || got[1] {
		t.Errorf("after it was undone the jobs are paused: %v", got)
	}
	if answer := b.send("/jobs/bulk/undo?about=nothing"); answer.Code != http.StatusUnprocessableEntity && answer.Code != http.StatusBadRequest {
		t.Errorf("nothing is undone with %d", answer.Code)
	}
	answer = b.send("/jobs/bulk", "action", "run", "job", "shop/price-import", "job", "shop/none", "confirmed", "1")
	if body := answer.Body.String(); answer.Code != http.StatusConflict || !strings.Contains(body, "shop/none") || !strings.Contains(body, "1 job was changed") {
		t.Errorf("a job that does not exist answers %d: %.1500s", answer.Code, body[strings.Index(body, "<main"):])
	}
	if answer := b.send("/jobs/bulk", "action", "paint", "job", "shop/price-import"); answer.Code != http.StatusUnprocessableEntity && answer.Code != http.StatusBadRequest {
		t.Errorf("an action that does not exist answers %d", answer.Code)
	}
	if answer := w.login("vera").send("/jobs/bulk", append(filter, "confirmed", "1", "expect", "1")...); answer.Code != http.StatusForbidden {
		t.Errorf("a viewer is answered with %d", answer.Code)
	}
}
