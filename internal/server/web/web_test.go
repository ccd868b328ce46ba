package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store"
)

var untranslated = regexp.MustCompile(`>[a-z]+\.[a-z_.]+<`)

// forAuthors are the pages that a viewer is refused.
var forAuthors = regexp.MustCompile(`^/(jobs|channels)/(new|import)|/edit$`)

func TestEveryPageIsWrittenInBothLanguages(t *testing.T) {
	w := newWorld(t)
	w.fill()
	for _, name := range []string{"ann", "vera"} {
		b := w.login(name)
		for _, path := range w.pagePaths() {
			for _, lang := range []string{"en", "zh"} {
				answer := b.ask("GET", path, nil, "Accept-Language", lang)
				body := answer.Body.String()
				status := http.StatusOK
				if name == "vera" && forAuthors.MatchString(path) {
					status = http.StatusForbidden
				}
				if answer.Code != status || !strings.Contains(body, "</html>") || !strings.Contains(body, `lang="`+lang+`"`) {
					t.Errorf("%s for %s in %s answers %d: %.300s", path, name, lang, answer.Code, body)
				}
				if key := untranslated.FindString(body); key != "" {
					t.Errorf("%s in %s shows the key %s", path, lang, key)
				}
				if strings.Contains(body, "<script>") || strings.Contains(body, " style=") || strings.Contains(body, " onclick=") {
					t.Errorf("%s has what its policy forbids", path)
				}
			}
		}
	}
}

func TestEmptyServerOffersFirstSteps(t *testing.T) {
	answer := newWorld(t).login("ann").ask("GET", "/", nil)
	if !strings.Contains(answer.Body.String(), "/jobs/new") {
		t.Errorf("the first page does not lead to a first job: %s", answer.Body)
	}
}

func TestFormsPerformTheirAction(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	leads := func(to, path string, pairs ...string) {
		t.Helper()
		answer := b.send(path, pairs...)
		if answer.Code != http.StatusSeeOther || !strings.HasPrefix(answer.Header().Get("Location"), to) {
			t.Errorf("%s answers %d to %s: %.400s", path, answer.Code, answer.Header().Get("Location"), answer.Body)
		}
	}
	leads("/jobs/shop/price-import?about=shop%2Fprice-import&said=paused", "/jobs/shop/price-import/pause", "reason", "the disk is full", "until", "2026-12-01T10:00")
	if j, err := store.JobNamed(t.Context(), w.store, "shop", "price-import"); err != nil || !j.Definition.Paused || j.Definition.Status.PauseReason != "the disk is full" {
		t.Errorf("the job is not paused: %+v, %v", j.Definition.Status, err)
	}
	leads("/jobs?about=shop%2Fprice-import&said=resumed", "/jobs/shop/price-import/resume", "back", "/jobs")
	leads("/runs/", "/jobs/shop/price-import/run", "param.feed", "v2", "once", "k")
	later := b.send("/jobs/shop/price-import/run", "at", "2026-11-24T03:00", "previous", "2026-11-01T00:00", "scheduled", "2026-11-08T00:00", "notify", "https://ci.example.com/belfry").Header().Get("Location")
	if text := b.page(later); !strings.Contains(text, "2026-11-24") || !strings.Contains(text, "2026-11-08") {
		t.Errorf("the page of a run for later, at %q, names neither its start nor its interval", later)
	}
	for field, value := range map[string]string{"at": "soon", "notify": "ftp://ci.example.com"} {
		if answer := b.send("/jobs/shop/price-import/run", field, value); answer.Code != http.StatusUnprocessableEntity && answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), field) {
			t.Errorf("a run with the %s %s answers %d: %.300s", field, value, answer.Code, answer.Body)
		}
	}
	leads("/runs/", "/runs/"+w.failed.String()+"/retry")
	leads("/runs/"+w.running.String(), "/runs/"+w.running.String()+"/cancel", "reason", "enough")
	leads("/jobs?about=", "/jobs/bulk", "job", "data/warehouse-load", "action", "pause", "back", "/jobs", "confirmed", "1")
	leads("/nodes?about=ber-1&said=drained", "/nodes/ber-1/drain", "reason", "a new disk")
	leads("/nodes?about=ber-1&said=undrained", "/nodes/ber-1/undrain")
	leads("/settings?said=revoked", "/tokens/vera/revoke")
	leads("/jobs", "/ui/look", "theme", "dark", "lang", "zh", "back", "/jobs")
	if answer := b.send("/jobs/ops/by-hand/delete", "confirm", "another"); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("deleting without the name answers %d", answer.Code)
	}
	leads("/jobs?about=ops%2Fby-hand&said=deleted", "/jobs/ops/by-hand/delete", "confirm", "by-hand", "reason", "moved")
	leads("/jobs/ops/by-hand?about=ops%2Fby-hand&said=restored", "/jobs/ops/by-hand/restore")
	answer := b.send("/tokens", "name", "ci", "role", "runner")
	if answer.Code != http.StatusCreated || !strings.Contains(answer.Body.String(), "belfry_") {
		t.Errorf("a new token is not shown: %d", answer.Code)
	}
}

func TestChangeNamesRunsThatMayStillStart(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	j, err := store.JobNamed(t.Context(), w.store, "shop", "price-import")
	w.must(err)
	at := j.Cursor.Add(time.Second)
	a := store.Attempt{Job: j.Definition.UID, Run: w.id(), Number: 1, Token: w.id()}
	planned, _, err := w.store.Plan(t.Context(), w.node, []store.PlanItem{{
		Job: a.Job, Epoch: j.Definition.Epoch, From: j.Cursor, To: at, Runs: []store.NewRun{{ID: a.Run, Session: w.node, Node: "ber-1", Scheduled: at, Due: at}},
	}})
	w.must(err)
	claimed, err := w.store.Claim(t.Context(), w.node, []store.Attempt{a})
	w.must(err)
	if planned[0] != store.Planned || claimed[0].Verdict != store.Started {
		t.Fatalf("the run was not claimed: %v, %+v", planned, claimed)
	}
	shows := func(path string, pairs ...string) {
		t.Helper()
		to := b.send(path, pairs...).Header().Get("Location")
		body := b.ask("GET", to, nil).Body.String()
		if !strings.Contains(to, "may="+a.Run.String()) || !strings.Contains(body, "1 run was claimed before the change and may still start") ||
			!strings.Contains(body, `<a class="link" href="/runs/`+a.Run.String()) || !strings.Contains(body, "of shop/price-import on node ber-1, due") {
			t.Errorf("%s leads to %s, which does not name the run: %.2000s", path, to, body)
		}
	}
	shows("/jobs/shop/price-import/pause", "back", "/jobs?namespace=shop&may=x")
	w.must(w.store.Release(t.Context(), w.node, []store.Attempt{a}))
	if body := b.ask("GET", "/jobs?said=paused&may="+a.Run.String()+"+x", nil).Body.String(); strings.Contains(body, "may still start") {
		t.Error("a run that was released is named")
	}
}

var identified = regexp.MustCompile(`\sid="([^"]+)"`)

// Parts of pages are replaced by their ids.
func TestNoIDIsTwiceInAPage(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	for _, path := range w.pagePaths() {
		seen := map[string]bool{}
		for _, m := range identified.FindAllStringSubmatch(b.ask("GET", path, nil).Body.String(), -1) {
			if seen[m[1]] {
				t.Errorf("%s has the id %s twice", path, m[1])
			}
			seen[m[1]] = true
		}
	}
}

// offered are the forms that change something.
var offered = regexp.MustCompile(`action="[^"]*/(?:run|pause|resume|cancel|retry|drain|tokens|delete|bulk|look|logout)"`)

func TestUnknownThingsAreNamedInChinese(t *testing.T) {
	b := newWorld(t).login("ann")
	for path, want := range map[string]string{
		"/runs/01HZZZZZZZZZZZZZZZZZZZZZZZ": "没有运行 01HZZZZZZZZZZZZZZZZZZZZZZZ", "/jobs/shop/none": "没有任务 shop/none", "/nothing": "该地址不存在",
	} {
		if body := b.ask("GET", path, nil, "Accept-Language", "zh").Body.String(); !strings.Contains(body, want) {
			t.Errorf("%s does not say %q: %s", path, want, body)
		}
	}
}

func TestAViewerSeesNoButtonsAndIsRefused(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("vera")
	for _, path := range w.pagePaths() {
		body := b.ask("GET", path, nil).Body.String()
		for _, action := range offered.FindAllString(body, -1) {
			if action != `action="/ui/logout"` && action != `action="/ui/look"` {
				t.Errorf("%s offers %s to a viewer", path, action)
			}
		}
	}
	for _, b := range []*browser{b, newWorld(t).login("vera")} { // with jobs and without
		for _, path := range []string{"/", "/jobs", "/flows", "/jobs/shop/price-import", "/jobs/data/nightly/graph"} {
			body := b.ask("GET", path, nil).Body.String()
			for _, refused := range []string{`href="/jobs/new`, `href="/jobs/import`, `/edit"`, "jobs.new", "/examples"} {
				if strings.Contains(body, refused) {
					t.Errorf("%s leads a viewer to %s", path, refused)
				}
			}
		}
	}
	for _, path := range []string{"/jobs/shop/price-import/pause", "/jobs/shop/price-import/run", "/jobs/shop/price-import/delete?confirm=price-import", "/runs/" + w.running.String() + "/cancel", "/nodes/ber-1/drain", "/tokens"} {
		if answer := b.send(path, "confirm", "price-import", "name", "x", "role", "admin"); answer.Code != http.StatusForbidden {
			t.Errorf("%s of a viewer answers %d", path, answer.Code)
		}
	}
}

func TestNamespaceTokenSeesNoOtherNamespace(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.grant("shopkeeper", "shop", store.RoleAdmin)
	b := w.login("shopkeeper")
	if body := b.ask("GET", "/jobs", nil).Body.String(); strings.Contains(body, "warehouse-load") || !strings.Contains(body, "price-import") {
		t.Error("the list has jobs of another namespace, or not its own")
	}
	if answer := b.ask("GET", "/jobs/data/warehouse-load", nil); answer.Code != http.StatusForbidden && answer.Code != http.StatusNotFound {
		t.Errorf("a job of another namespace answers %d", answer.Code)
	}
}

func TestPagesCarryAStrictPolicy(t *testing.T) {
	answer := newWorld(t).login("ann").ask("GET", "/", nil)
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types belfry",
		"Referrer-Policy":         "same-origin", "X-Content-Type-Options": "nosniff", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
	} {
		if got := answer.Header().Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

func TestErrorPagesNameWhatStillWorks(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	for _, path := range []string{"/nothing", "/jobs/shop/nothing", "/runs/nothing", "/runs/" + w.id().String()} {
		answer := b.ask("GET", path, nil)
		if answer.Code != http.StatusNotFound || !strings.Contains(answer.Body.String(), `href="/jobs"`) {
			t.Errorf("%s answers %d", path, answer.Code)
		}
	}
}

// The help of keys lists each key that pages have.
func TestTheHelpOfKeysHasThemAll(t *testing.T) {
	body := newWorld(t).login("vera").ask("GET", "/flows", nil).Body.String()
	for _, key := range []string{"/", "Ctrl K", "?", "g o", "g s", "j k", "Enter", "f", "w"} {
		if !strings.Contains(body, "<dt><kbd>"+key+"</kbd></dt>") {
			t.Errorf("the help has no %q", key)
		}
	}
}

// The wall of a team speaks the language that its address names: a screen has no settings.
func TestAnAddressNamesTheLanguageOfItsPage(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("vera")
	b.shows("/wall?lang=zh", `<html lang="zh"`, "节点")
	b.shows("/wall", `<html lang="en"`)
}
